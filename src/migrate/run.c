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
 * A call that finds something to do begins a run in the ledger, and commits that
 * before its first step; nobody else gets the component's lock in between.  Each
 * round is a subtransaction, so that a failure can be recorded in a transaction
 * that commits before the error is thrown.
 *
 * Durability: a step, its stamp and its line in the ledger commit together or not
 * at all.  A step that runs alone can have taken effect without its stamp; it is
 * then run again, and if that fails, the verify query decides.  A run whose
 * session has gone stays without an end until the next call for its component.
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

/* One CALL migrate(). */
typedef struct Call
{
	const char *component;
	bool		has_target;
	int32		target;
	char	   *role;			/* as whom the steps run */
	MemoryContext context;		/* of one round */

	/* its run in the ledger, if there is something to do */
	bool		begun;
	bool		begin_committed;
	bool		holds_component;	/* the session does, from there to the first step */
	bool		holds_run;
	pg_uuid_t	run_id;
	int32		nsteps;			/* that are recorded */

	bool		looked_for_lost;	/* runs that others have not finished */
	UdbMigration *step;			/* under way, or NULL */
} Call;

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
apply(const Call *call)
{
	UdbMigration *step = call->step;
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
	/* whoever has cancelled it wants all of it to stop, whether it is needed or not */
	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		step_failed(step, error);
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
	udb_migration_stamp(step, error != NULL, INSTR_TIME_GET_MICROSEC(duration), call->role);
	udb_ledger_record(&call->run_id, call->nsteps, step, error != NULL ? "SKIPPED" : "APPLIED",
					  error != NULL ? error->message : NULL);
}

static LOCKTAG
component_locktag(const char *component)
{
	return udb_locktag(UDB_LOCK_MIGRATE,
					   hash_bytes_extended((const unsigned char *) component, strlen(component),
										   0));
}

/* Wait until nobody else migrates the component, until the transaction ends. */
static void
lock_component(const char *component)
{
	LOCKTAG		tag = component_locktag(component);

	/*
	 * Who waited must see what the others have committed, whatever the session's
	 * default is.  No snapshot has been taken yet.
	 */
	XactIsoLevel = XACT_READ_COMMITTED;
	InvalidateCatalogSnapshot();
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* Let the session go on holding the component's lock, which it has, or not. */
static void
hold_component(Call *call, bool hold)
{
	LOCKTAG		tag = component_locktag(call->component);

	if (call->holds_component == hold)
		return;
	if (hold)
		(void) LockAcquire(&tag, ExclusiveLock, true, false);
	else
		(void) LockRelease(&tag, ExclusiveLock, true);
	call->holds_component = hold;
}

static void
release_session_locks(Call *call)
{
	hold_component(call, false);
	if (call->holds_run)
		udb_ledger_unlock(&call->run_id);
	call->holds_run = false;
}

static void
begin_run(Call *call)
{
	udb_ledger_begin(call->component, call->has_target, call->target, &call->run_id);
	call->begun = true;
	udb_ledger_lock(&call->run_id);
	call->holds_run = true;
	hold_component(call, true);
}

/* Do the next thing, in this transaction.  False if there is none. */
static bool
next_round(Call *call)
{
	static const UdbMigration none = {0};
	UdbMigration *step = palloc(sizeof(UdbMigration));

	*step = none;
	CHECK_FOR_INTERRUPTS();
	UDB_DEBUG_POINT("migrate-round");
	lock_component(call->component);
	hold_component(call, false);
	udb_migration_check(call->component);
	if (!call->looked_for_lost)
		udb_ledger_finish_lost(call->component);
	call->looked_for_lost = true;
	if (!udb_migration_next(call->component, call->has_target, call->target, step))
	{
		if (call->begun)
			udb_ledger_finish(&call->run_id, "COMPLETED", NULL);
		return false;
	}
	if (!call->begun)
		begin_run(call);
	else
	{
		UDB_DEBUG_POINT("migrate-step");
		call->step = step;
		apply(call);
	}
	return true;
}

/* The same in a subtransaction: if it fails, the transaction can go on. */
static bool
try_round(Call *call)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool more = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(call->context);
	PG_TRY();
	{
		more = next_round(call);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(oldcontext);
		CurrentResourceOwner = owner;
		ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcontext);
	CurrentResourceOwner = owner;
	return more;
}

/*
 * Rounds until there is nothing to do.  What is thrown leaves a transaction in
 * which nothing has been done.
 */
static void
run_rounds(Call *call)
{
	bool		more;

	do
	{
		more = try_round(call);
		/* ends the transaction, and with it what the step has locked */
		SPI_commit();
		call->begin_committed = call->begun;
		if (call->step != NULL)
			call->nsteps++;
		call->step = NULL;
		MemoryContextReset(call->context);
	} while (more);
}

/* Tell the ledger how the run has ended.  Must not hide the error itself. */
static void
record_failure(Call *call, const ErrorData *error)
{
	MemoryContext oldcontext = CurrentMemoryContext;

	PG_TRY();
	{
		XactIsoLevel = XACT_READ_COMMITTED;
		if (call->step != NULL)
			udb_ledger_record(&call->run_id, call->nsteps, call->step, "FAILED", error->message);
		udb_ledger_finish(&call->run_id, "ERROR", error->message);
		SPI_commit();
	}
	PG_CATCH();
	{
		ErrorData  *other;

		MemoryContextSwitchTo(oldcontext);
		other = CopyErrorData();
		FlushErrorState();
		ereport(WARNING,
				(errcode(other->sqlerrcode),
				 errmsg("could not record the failure of a migration run: %s", other->message)));
	}
	PG_END_TRY();
}

UDB_FUNCTION(udb_migrate);

/* CALL migrate(component, target) */
Datum
udb_migrate(PG_FUNCTION_ARGS)
{
	Call		call = {0};
	MemoryContext oldcontext;

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
	oldcontext = CurrentMemoryContext;
	call.component = text_to_cstring(PG_GETARG_TEXT_PP(0));
	call.has_target = !PG_ARGISNULL(1);
	call.target = call.has_target ? PG_GETARG_INT32(1) : 0;
	call.role = GetUserNameFromId(GetUserId(), false);
	call.context = AllocSetContextCreate(oldcontext, "udb migrate", ALLOCSET_DEFAULT_SIZES);

	/* what the caller has done before is not ours to roll back */
	SPI_commit();
	PG_TRY();
	{
		run_rounds(&call);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		FlushErrorState();
		if (call.begin_committed)
			record_failure(&call, error);
		release_session_locks(&call);
		ReThrowError(error);
	}
	PG_END_TRY();
	release_session_locks(&call);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	PG_RETURN_VOID();
}
