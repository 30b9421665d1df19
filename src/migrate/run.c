/*-------------------------------------------------------------------------
 *
 * run.c
 *	  CALL migrate(): apply what is pending, one transaction a step.
 *
 * Each round starts a transaction, takes the component's lock, and only then
 * looks for the next step: whoever has waited for the lock finds the stamp moved
 * and goes on from there.  The step runs as the caller in a subtransaction, so
 * that its verify query can be asked after it has failed; the stamp is written
 * after it in the same transaction.
 *
 * While waiting for the lock, and while a step runs in a worker of its own, the
 * session has no snapshot: CREATE INDEX CONCURRENTLY would wait for it.
 *
 * Durability: a step and its stamp commit together or not at all.  A step that
 * runs alone can have taken effect without its stamp; it is then run again, and
 * if that fails, the verify query decides.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "portability/instr_time.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "common/debugpoint.h"
#include "common/errors.h"
#include "common/locktag.h"
#include "migrate/migrate.h"

static void
step_context(void *arg)
{
	UdbMigration *step = arg;

	errcontext("migration step %d \"%s\" of component \"%s\"", step->version, step->name,
			   step->component);
}

/* Run a step's SQL; settings that it changes are back afterwards. */
static void
run_sql(const UdbMigration *step)
{
	int			guc_level = NewGUCNestLevel();
	int			rc = SPI_execute(step->sql, false, 0);

	AtEOXact_GUC(false, guc_level);
	if (rc == SPI_ERROR_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("cannot end or start a transaction in a migration step"),
				 errhint("Each step is a transaction of its own: make it several steps.")));
	if (rc < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute this command in a migration step: %s",
						SPI_result_code_string(rc))));
}

/* Throw unless the verify query has given a boolean; return it. */
static bool
run_verify(const UdbMigration *step)
{
	int			guc_level = NewGUCNestLevel();
	int			rc = SPI_execute(step->verify_sql, true, 1);
	bool		isnull = true;
	Datum		value = (Datum) 0;

	AtEOXact_GUC(false, guc_level);
	if (rc != SPI_OK_SELECT || SPI_tuptable->tupdesc->natts != 1 ||
		SPI_gettypeid(SPI_tuptable->tupdesc, 1) != BOOLOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("verify query must return one column of type boolean")));
	if (SPI_processed > 0)
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	return !isnull && DatumGetBool(value);
}

/* Do one or the other in a subtransaction; returns the error, or NULL. */
static ErrorData *
in_subtransaction(UdbMigration *step, bool verify, bool *verified)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorContextCallback callback = {.callback = step_context, .arg = step};
	ErrorData *volatile error = NULL;

	callback.previous = error_context_stack;
	PushActiveSnapshot(GetTransactionSnapshot());
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		error_context_stack = &callback;
		if (verify)
			*verified = run_verify(step);
		else
			run_sql(step);
		error_context_stack = callback.previous;
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	PopActiveSnapshot();
	return error;
}

/*
 * Whether the step has taken effect, by its verify query; one that cannot be
 * answered is no reason to hide what went wrong before it.
 */
static bool
is_verified(UdbMigration *step)
{
	bool		verified = false;
	ErrorData  *error;

	if (step->verify_sql == NULL)
		return false;
	error = in_subtransaction(step, true, &verified);
	if (error != NULL)
	{
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("verify query of step %d \"%s\" of component \"%s\" failed: %s",
						step->version, step->name, step->component, error->message)));
		return false;
	}
	return verified;
}

/* Throw what a step has thrown. */
static void
step_failed(UdbMigration *step, ErrorData *error)
{
	ErrorContextCallback callback = {.callback = step_context, .arg = step};

	if (step->transactional)
	{
		if (error->sqlerrcode == ERRCODE_ACTIVE_SQL_TRANSACTION)
			error->hint = pstrdup("Register the step with transactional => false and a verify query: it then runs alone, outside of a transaction.");
		ReThrowError(error);
	}
	/* it comes from another process, and so has no context yet */
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	ThrowErrorData(error);
}

/* Apply a step in this transaction. */
static void
apply(UdbMigration *step, const char *role)
{
	instr_time	start;
	instr_time	duration;
	ErrorData  *error;
	bool		verified = false;

	INSTR_TIME_SET_CURRENT(start);
	if (step->transactional)
		error = in_subtransaction(step, false, NULL);
	else
		error = udb_migration_run_alone(step->sql);
	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, start);

	UDB_DEBUG_POINT("migrate-step-run");
	if (error != NULL || !step->transactional)
		verified = is_verified(step);
	if (error != NULL && !verified)
		step_failed(step, error);
	if (!step->transactional && !verified)
		ereport(ERROR,
				(errcode(udb_errcode(MIGRATION_NOT_VERIFIED)),
				 errmsg("step %d \"%s\" of component \"%s\" has run, but its verify query is not true",
						step->version, step->name, step->component)));
	if (error != NULL)
		ereport(NOTICE,
				(errmsg("step %d \"%s\" of component \"%s\" had taken effect already",
						step->version, step->name, step->component),
				 errdetail("It failed with: %s", error->message)));
	udb_migration_stamp(step, error != NULL, INSTR_TIME_GET_MICROSEC(duration), role);
}

/* Wait until nobody else migrates the component, until the transaction ends. */
static void
lock_component(const char *component)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_MIGRATE,
							  hash_bytes_extended((const unsigned char *) component,
												  strlen(component), 0));

	/*
	 * Who waited must see what the others have committed, whatever the session's
	 * default is.  No snapshot has been taken yet.
	 */
	XactIsoLevel = XACT_READ_COMMITTED;
	InvalidateCatalogSnapshot();
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* Apply the next step.  False if there is none. */
static bool
migrate_one(const char *component, bool has_target, int32 target, const char *role)
{
	UdbMigration step;

	lock_component(component);
	udb_migration_check(component);
	if (!udb_migration_next(component, has_target, target, &step))
		return false;
	UDB_DEBUG_POINT("migrate-step");
	apply(&step, role);
	return true;
}

UDB_FUNCTION(udb_migrate);

/* CALL migrate(component, target) */
Datum
udb_migrate(PG_FUNCTION_ARGS)
{
	char	   *component;
	bool		has_target = !PG_ARGISNULL(1);
	int32		target = has_target ? PG_GETARG_INT32(1) : 0;
	char	   *role;
	MemoryContext context;
	bool		more;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"component\" must not be null")));
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("migrate() cannot run inside a transaction block or a function"),
				 errdetail("It commits each step.")));
	PreventCommandDuringRecovery("migrate()");

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	component = text_to_cstring(PG_GETARG_TEXT_PP(0));
	role = GetUserNameFromId(GetUserId(), false);
	context = AllocSetContextCreate(CurrentMemoryContext, "udb migrate", ALLOCSET_DEFAULT_SIZES);
	do
	{
		MemoryContext oldcontext;

		/* ends the transaction, and with it what the last step has locked */
		SPI_commit();
		CHECK_FOR_INTERRUPTS();
		oldcontext = MemoryContextSwitchTo(context);
		more = migrate_one(component, has_target, target, role);
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(context);
	} while (more);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	PG_RETURN_VOID();
}
