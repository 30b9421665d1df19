/*-------------------------------------------------------------------------
 *
 * errors.c
 *	  The table of class UD, and its SQL face udb.error_codes.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "common/errors.h"

#define UDB_ERROR_ROW(sym, code, name, doc) {code, name, doc},
const UdbErrorCode udb_error_codes[UDB_ERROR_COUNT] = {
	UDB_ERROR_MAP(UDB_ERROR_ROW)};
#undef UDB_ERROR_ROW

UDB_FUNCTION(udb_error_codes_list);

/* _error_codes() returns SETOF (sqlstate, condition_name, description) */
Datum
udb_error_codes_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < UDB_ERROR_COUNT; i++)
	{
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		values[0] = CStringGetTextDatum(udb_error_codes[i].code);
		values[1] = CStringGetTextDatum(udb_error_codes[i].name);
		values[2] = CStringGetTextDatum(udb_error_codes[i].doc);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
