/*-------------------------------------------------------------------------
 *
 * consumer.c
 *	  Consumers of registries: registering, waiting, and calling handlers.
 *
 * A handler is somebody's function that the worker calls, and the worker is a
 * superuser.  So it runs as its owner, who alone can register it, with a pinned
 * search_path and in a security-restricted operation, which it cannot leave:
 * SET ROLE, temporary tables and deferred triggers are refused there.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "common/check.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/interval.h"
#include "common/spi.h"
#include "reactor/inval.h"
#include "reactor/registry.h"
#include "reactor/table.h"
#include "reactor/wake.h"

#define HANDLER_SECURITY (SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION)

static text *
consumer_argument(FunctionCallInfo fcinfo)
{
	text	   *consumer = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);

	udb_check_name("consumer", consumer, UDB_REGISTRY_CONSUMER_MAX);
	return consumer;
}

/* ---- handlers ---- */

/*
 * Throw unless this is a function (text, udb.registry_record[], boolean).
 * Returns its owner.
 */
static Oid
check_handler(Oid handler)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(handler));
	Form_pg_proc proc;
	Oid			rows;
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", handler)));
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	owner = proc->proowner;
	rows = get_array_type(GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
										  CStringGetDatum("registry_record"),
										  ObjectIdGetDatum(get_namespace_oid(UDB_SCHEMA, false))));
	if (proc->prokind != PROKIND_FUNCTION || proc->proretset || proc->pronargs != 3 ||
		proc->proargtypes.values[0] != TEXTOID || proc->proargtypes.values[1] != rows ||
		proc->proargtypes.values[2] != BOOLOID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function \"%s\" cannot be a handler", NameStr(proc->proname)),
				 errhint("A handler has the arguments (text, udb.registry_record[], boolean) and returns no set.")));
	ReleaseSysCache(tuple);
	return owner;
}

/* The handler argument as text that names it in any session, or NULL. */
static text *
handler_argument(FunctionCallInfo fcinfo, int argno)
{
	Oid			handler;

	if (PG_ARGISNULL(argno))
		return NULL;
	handler = PG_GETARG_OID(argno);
	(void) check_handler(handler);
	if (!udb_proc_owner_check(handler))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FUNCTION, get_func_name(handler));
	return cstring_to_text(format_procedure_qualified(handler));
}

UDB_FUNCTION(udb_registry_call);

/* _registry_call(handler, consumer, records, removals) returns void */
Datum
udb_registry_call(PG_FUNCTION_ARGS)
{
	LOCAL_FCINFO(call, 3);
	FmgrInfo	flinfo;
	Oid			userid;
	int			sec_context;
	int			guc_level;
	char	   *name;
	Oid			handler;
	Oid			owner;

	/* by its text, as it may have been created anew */
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	handler = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(name)));
	owner = check_handler(handler);

	GetUserIdAndSecContext(&userid, &sec_context);
	SetUserIdAndSecContext(owner, sec_context | HANDLER_SECURITY);
	guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);

	fmgr_info(handler, &flinfo);
	InitFunctionCallInfoData(*call, &flinfo, 3, InvalidOid, NULL, NULL);
	for (int i = 0; i < 3; i++)
	{
		call->args[i].value = PG_GETARG_DATUM(i + 1);
		call->args[i].isnull = PG_ARGISNULL(i + 1);
	}
	(void) FunctionCallInvoke(call);

	/* on error both are undone by the subtransaction of who called */
	AtEOXact_GUC(false, guc_level);
	SetUserIdAndSecContext(userid, sec_context);
	PG_RETURN_VOID();
}

/* ---- registering ---- */

UDB_FUNCTION(udb_create_registry_consumer);

/* create_registry_consumer(consumer, registry, handler, applied, store) returns void */
Datum
udb_create_registry_consumer(PG_FUNCTION_ARGS)
{
	static SPIPlanPtr registry_plan = NULL;
	static SPIPlanPtr insert_plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, TEXTOID, INT8OID};
	text	   *consumer = consumer_argument(fcinfo);
	text	   *registry = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	text	   *handler;
	int64		applied;
	int64		watermark;
	Datum		values[4];
	char		nulls[4] = {' ', ' ', ' ', ' '};
	bool		isnull;
	UdbSpi		spi;

	udb_check_name("registry", registry, UDB_REGISTRY_NAME_MAX);
	if (PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"applied\" must not be null")));
	applied = Max(PG_GETARG_INT64(3), 0);
	udb_check_store(PG_ARGISNULL(4) ? NULL : PG_GETARG_TEXT_PP(4));
	PreventCommandIfReadOnly("create_registry_consumer()");
	handler = handler_argument(fcinfo, 2);

	values[0] = PointerGetDatum(consumer);
	values[1] = PointerGetDatum(registry);
	values[2] = PointerGetDatum(handler);
	values[3] = Int64GetDatum(applied);
	if (handler == NULL)
		nulls[2] = 'n';
	udb_reactor_wake_prepare();
	udb_spi_begin(&spi);
	/* keeps drop_registry() off */
	if (udb_spi_execute(&registry_plan, "SELECT watermark FROM udb.registries WHERE registry = $2 FOR KEY SHARE",
						4, types, values, nulls, SPI_OK_SELECT) == 0)
		udb_registry_missing(registry);
	watermark =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	if (applied > watermark)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("watermark " INT64_FORMAT " is above that of registry \"%s\"", applied,
						text_to_cstring(registry)),
				 errdetail("Its watermark is " INT64_FORMAT ".", watermark)));
	/* who begins at nothing knows of no record that could have been removed */
	if (udb_spi_execute(&insert_plan,
						"INSERT INTO udb.registry_consumers (consumer, registry, handler, applied,"
						" removals_checked) SELECT $1, $2, $3, $4,"
						" CASE $4 WHEN 0 THEN last_removal ELSE $4 END"
						" FROM udb.registries WHERE registry = $2 ON CONFLICT DO NOTHING",
						4, types, values, nulls, SPI_OK_INSERT) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("registry consumer \"%s\" already exists", text_to_cstring(consumer))));
	udb_spi_end(&spi);
	udb_reactor_touch(registry);	/* the worker may have work now */
	PG_RETURN_VOID();
}

/* ---- waiting ---- */

/* Whether the consumer has not applied all; *registry is which it is of. */
static bool
behind(const text *consumer, text **registry)
{
	Snapshot	snapshot = udb_registry_snapshot();
	UdbRegistry now;
	int64		applied;
	bool		result;

	if (!udb_registry_consumer_get(consumer, snapshot, registry, &applied))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("registry consumer \"%s\" does not exist", text_to_cstring(consumer))));
	result = udb_registry_get(*registry, snapshot, &now) && now.watermark > applied;
	UnregisterSnapshot(snapshot);
	return result;
}

UDB_FUNCTION(udb_wait_for_registry);

/* wait_for_registry(consumer, timeout, store) returns boolean */
Datum
udb_wait_for_registry(PG_FUNCTION_ARGS)
{
	text	   *consumer = consumer_argument(fcinfo);
	text	   *registry;
	TimestampTz deadline;
	bool		ready;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"timeout\" must not be null")));
	deadline = GetCurrentTimestamp() + udb_interval_usecs(PG_GETARG_INTERVAL_P(1), "timeout");
	udb_check_store(PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2));

	/* replay wakes nobody, and nothing can be applied there */
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", "wait_for_registry()"),
				 errhint("Connect to the primary.")));

	ready = behind(consumer, &registry);
	if (!ready)
	{
		text	   *waits_for = registry;

		udb_reactor_wait_begin(waits_for);
		while (!(ready = behind(consumer, &registry)))
		{
			UDB_DEBUG_POINT("registry-wait");
			pfree(registry);
			if (!udb_reactor_wait(waits_for, deadline))
				break;
		}
		udb_reactor_wait_end();
	}

	/* who has seen the new watermark shall not resolve by the old one, whatever has been sent */
	if (ready)
		udb_registry_generation++;
	PG_RETURN_BOOL(ready);
}

UDB_FUNCTION(udb_registry_doubt);

/* _registry_doubt() returns void: this session has seen a change, perhaps before its message */
Datum
udb_registry_doubt(PG_FUNCTION_ARGS)
{
	udb_registry_generation++;
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_announce_wake);

/* _announce_wake(topic) returns boolean: whether listeners will be notified, if this commits */
Datum
udb_announce_wake(PG_FUNCTION_ARGS)
{
	udb_reactor_wake_prepare();
	udb_reactor_touch(PG_GETARG_TEXT_PP(0));
	PG_RETURN_BOOL(udb_notify);
}
