/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Leases as SQL functions.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "common/clock.h"
#include "common/interval.h"
#include "lease/lease.h"
#include "lease/row.h"
#include "lease/wait.h"

void
udb_lease_init(void)
{
	udb_lease_row_init();
	udb_lease_wait_init();
}

static void
not_null(FunctionCallInfo fcinfo, int argno, const char *name)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be null", name)));
}

/* The first two arguments of each function; also checks that it can run. */
static void
who_arguments(FunctionCallInfo fcinfo, UdbLeaseWho *who, const char *function)
{
	text	   *name;
	text	   *owner;

	not_null(fcinfo, 0, "lease_name");
	not_null(fcinfo, 1, "owner_id");
	name = PG_GETARG_TEXT_PP(0);
	owner = PG_GETARG_TEXT_PP(1);
	udb_lease_who(who, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), VARDATA_ANY(owner),
				  VARSIZE_ANY_EXHDR(owner));
	if (RecoveryInProgress())
		ereport(ERROR, (errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION), errmsg("cannot execute %s during recovery", function), errhint("Connect to the primary.")));
	PreventCommandIfParallelMode(function);
}

static int64
duration_argument(FunctionCallInfo fcinfo, int argno, const char *name)
{
	not_null(fcinfo, argno, name);
	return udb_interval_usecs(PG_GETARG_INTERVAL_P(argno), name);
}

UDB_FUNCTION(udb_try_acquire_lease);

/* try_acquire_lease(lease_name, owner_id, ttl) returns boolean */
Datum
udb_try_acquire_lease(PG_FUNCTION_ARGS)
{
	UdbLeaseWho who;
	UdbLease	lease;
	int64		ttl;

	who_arguments(fcinfo, &who, "try_acquire_lease()");
	ttl = duration_argument(fcinfo, 2, "ttl");
	PreventCommandIfReadOnly("try_acquire_lease()");
	PG_RETURN_BOOL(udb_lease_try(&who, ttl, &lease) == UDB_LEASE_GOT);
}

UDB_FUNCTION(udb_acquire_lease);

/* acquire_lease(lease_name, owner_id, ttl, wait) returns udb.lease or null */
Datum
udb_acquire_lease(PG_FUNCTION_ARGS)
{
	UdbLeaseWho who;
	UdbLease	lease;
	int64		ttl;
	int64		wait;
	TupleDesc	desc;
	Datum		values[5];
	bool		nulls[5] = {false};

	who_arguments(fcinfo, &who, "acquire_lease()");
	ttl = duration_argument(fcinfo, 2, "ttl");
	wait = duration_argument(fcinfo, 3, "wait");
	PreventCommandIfReadOnly("acquire_lease()");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!udb_lease_acquire(&who, ttl, wait, &lease))
		PG_RETURN_NULL();

	values[0] = CStringGetTextDatum(who.name);
	values[1] = CStringGetTextDatum(who.owner);
	values[2] = Int64GetDatum(lease.fencing_token);
	values[3] = TimestampTzGetDatum(lease.acquired_at);
	values[4] = TimestampTzGetDatum(lease.expires_at);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

UDB_FUNCTION(udb_renew_lease);

/* renew_lease(lease_name, owner_id, fencing_token, ttl) returns boolean */
Datum
udb_renew_lease(PG_FUNCTION_ARGS)
{
	UdbLeaseWho who;
	int64		ttl;

	who_arguments(fcinfo, &who, "renew_lease()");
	not_null(fcinfo, 2, "fencing_token");
	ttl = duration_argument(fcinfo, 3, "ttl");
	PreventCommandIfReadOnly("renew_lease()");
	PG_RETURN_BOOL(udb_lease_renew(&who, PG_GETARG_INT64(2), ttl));
}

UDB_FUNCTION(udb_release_lease);

/* release_lease(lease_name, owner_id) returns boolean */
Datum
udb_release_lease(PG_FUNCTION_ARGS)
{
	UdbLeaseWho who;

	who_arguments(fcinfo, &who, "release_lease()");
	PreventCommandIfReadOnly("release_lease()");
	PG_RETURN_BOOL(udb_lease_release(&who));
}

UDB_FUNCTION(udb_assert_lease);

/* assert_lease(lease_name, owner_id, fencing_token) returns void */
Datum
udb_assert_lease(PG_FUNCTION_ARGS)
{
	UdbLeaseWho who;

	who_arguments(fcinfo, &who, "assert_lease()");
	not_null(fcinfo, 2, "fencing_token");
	udb_lease_assert(&who, PG_GETARG_INT64(2));
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_lease_clock);

/* lease_clock() returns timestamptz */
Datum
udb_lease_clock(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(udb_clock_now());
}

UDB_FUNCTION(udb_lease_waiting);

/* _lease_waiting(lease_name) returns integer: how many sessions wait for it */
Datum
udb_lease_waiting(PG_FUNCTION_ARGS)
{
	text	   *name = PG_GETARG_TEXT_PP(0);
	UdbLeaseWho who;

	udb_lease_who(&who, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), "-", 1);
	PG_RETURN_INT32(udb_lease_waiters(&who));
}
