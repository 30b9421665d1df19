/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Checks of arguments, for the functions that are written in SQL.
 *
 * They raise what the functions in C raise for the same fault, in the same
 * words, and return true otherwise, so that they can stand in a condition.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "common/check.h"
#include "common/compat.h"
#include "common/interval.h"

static void
null_argument(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", argument)));
}

void
udb_check_store(const text *store)
{
	if (store != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("unknown store \"%s\"", text_to_cstring(store))));
}

void
udb_check_name(const char *argument, const text *name, int max_bytes)
{
	Size		len;

	if (name == NULL)
		null_argument(argument);
	len = VARSIZE_ANY_EXHDR(name);
	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME), errmsg("%s must not be empty", argument)));
	if (len > max_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("%s of %zu bytes is too long", argument, len),
				 errdetail("The limit is %d bytes.", max_bytes)));
}

UDB_FUNCTION(udb_check_store_sql);

/* _check_store(store) returns boolean */
Datum
udb_check_store_sql(PG_FUNCTION_ARGS)
{
	udb_check_store(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0));
	PG_RETURN_BOOL(true);
}

UDB_FUNCTION(udb_check_not_null_sql);

/* _check_not_null(argument, anyelement) returns boolean */
Datum
udb_check_not_null_sql(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		null_argument(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_BOOL(true);
}

UDB_FUNCTION(udb_check_name_sql);

/* _check_name(argument, name, max_bytes) returns boolean */
Datum
udb_check_name_sql(PG_FUNCTION_ARGS)
{
	udb_check_name(text_to_cstring(PG_GETARG_TEXT_PP(0)),
				   PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1), PG_GETARG_INT32(2));
	PG_RETURN_BOOL(true);
}

UDB_FUNCTION(udb_check_duration_sql);

/* _check_duration(argument, interval, positive) returns boolean */
Datum
udb_check_duration_sql(PG_FUNCTION_ARGS)
{
	const char *argument = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if (PG_ARGISNULL(1))
		null_argument(argument);
	if (udb_interval_usecs(PG_GETARG_INTERVAL_P(1), argument) == 0 && PG_GETARG_BOOL(2))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must be greater than zero", argument)));
	PG_RETURN_BOOL(true);
}
