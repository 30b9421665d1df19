/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Waiting for a token: SET udb.fence, CALL udb.wait_for(), and functions.
 *
 * A session that waits for replay while it holds a snapshot can be what
 * replay waits for: a VACUUM on the primary removes a row that the snapshot
 * could see, and replay stops until max_standby_streaming_delay is over.
 *
 *	SET [LOCAL] udb.fence	waits in the utility hook, after the setting is
 *							made.  SET takes no snapshot, also not in REPEATABLE
 *							READ, so the statement after it sees the write.
 *	CALL udb.wait_for()		is given a snapshot by PortalRunUtility.  It ends its
 *							transaction, and waits in another one.  Within a
 *							transaction block it only pops the snapshot, which
 *							PortalRunUtility stands, as it does with VACUUM; in
 *							REPEATABLE READ that is the block's, so it is refused.
 *	functions				cannot get rid of their query's snapshot.
 *
 * To pop a snapshot is not enough: replay makes a list of transactions that
 * hold conflicting ones, and then waits for these to end.  Whoever has held one
 * in the same transaction can be on that list.  So a wait in such a
 * transaction, and in a function, looks for replay waiting for snapshots, and
 * gives up then, rather than to hold up all of the standby.  The same holds for
 * a page that a query has pinned, and for a lock, such as a TRUNCATE needs: of
 * whom replay waits for then is known, so that is looked for in every
 * transaction block.
 *
 * A setting that can be set in ways that do not pass the hook would be a fence
 * that does not wait.  So its check hook refuses any value but '' unless the
 * utility hook has opened the door; set_config(), ALTER ROLE ... SET,
 * connection options and SET clauses of functions get an error.  Restoring a
 * value at rollback asks no check hook, and a parallel worker restores what
 * its leader has waited for.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/errors.h"
#include "common/guc.h"
#include "common/interval.h"
#include "token/commit.h"
#include "token/fence.h"
#include "token/type.h"
#include "token/waiter.h"

#define FENCE_SETTING "udb.fence"

static ProcessUtility_hook_type prev_process_utility = NULL;

/* the value of udb.fence */
static char *fence_setting = NULL;

/* SET udb.fence is being executed at top level */
static bool door_open = false;

/* the CALL being executed is one that the client has sent */
static bool call_at_top = false;

/* the last fence, for fence_status() */
static struct
{
	const char *outcome;		/* NULL: there was none */
	char	   *token;			/* in TopMemoryContext */
	int64		waited;			/* microseconds */
	TimestampTz ended_at;
} last_fence;

/* ---- the last outcome ------------------------------------------------------ */

static void
remember_token(const char *token)
{
	char	   *copy = MemoryContextStrdup(TopMemoryContext, token);

	if (last_fence.token != NULL)
		pfree(last_fence.token);
	last_fence.token = copy;

	/* if the wait is cancelled, nobody comes back to say so */
	last_fence.outcome = "interrupted";
	last_fence.waited = 0;
	last_fence.ended_at = GetCurrentTimestamp();
}

static void
remember_outcome(UdbPositionState state, int64 waited)
{
	static const char *const outcomes[] = {[UDB_POSITION_REACHED] = "reached",
										   [UDB_POSITION_PENDING] = "timed_out",
										   [UDB_POSITION_OTHER_CLUSTER] = "other_cluster",
										   [UDB_POSITION_DIVERGED] = "diverged",
										   [UDB_POSITION_FUTURE] = "future",
										   [UDB_POSITION_LEFT_BEHIND] = "newer_timeline"};

	last_fence.outcome = outcomes[state];
	last_fence.waited = waited;
	last_fence.ended_at = GetCurrentTimestamp();
}

/* ---- the wait -------------------------------------------------------------- */

void
udb_refuse_fixed_snapshot(const char *what)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(udb_errcode(FENCE_HOLDS_SNAPSHOT)),
				 errmsg("%s cannot be used in a transaction with a fixed snapshot", what),
				 errdetail("A transaction in REPEATABLE READ or SERIALIZABLE does not see what its "
						   "first query did not see."),
				 errhint("Use SET LOCAL udb.fence before the first query of the transaction.")));
}

/* How a wait is asked for. */
typedef enum UdbFenceForm
{
	FENCE_SET,
	FENCE_CALL, /* outside of transaction blocks */
	FENCE_CALL_IN_BLOCK,
	FENCE_QUERY
} UdbFenceForm;

/* Let go of every snapshot, or throw. */
static void
drop_snapshots(const char *what, UdbFenceForm form)
{
	if (form == FENCE_QUERY)
		return;
	if (form == FENCE_CALL)
	{
		if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
			elog(ERROR, "SPI_connect_ext failed");
		SPI_commit();
		if (SPI_finish() != SPI_OK_FINISH)
			elog(ERROR, "SPI_finish failed");
	}
	else if (form == FENCE_CALL_IN_BLOCK && ActiveSnapshotSet())
		PopActiveSnapshot();
	InvalidateCatalogSnapshot();
	if (HaveRegisteredOrActiveSnapshot() || TransactionIdIsValid(MyProc->xmin))
		ereport(ERROR, (errcode(udb_errcode(FENCE_HOLDS_SNAPSHOT)), errmsg("%s cannot wait while the transaction holds a snapshot", what), errhint("Close open cursors, or fence before they are opened.")));
}

/*
 * Look, and wait if need be.  Returns REACHED or PENDING, which means that the
 * time is over; throws for anything else.  No catalog access from where the
 * snapshots are gone.
 */
static UdbPositionState
fence(const char *what, const char *token, int64 timeout, UdbFenceForm form, int64 *waited)
{
	UdbPosition position;
	UdbPositionState state;
	UdbWhere	where;

	*waited = 0;
	udb_token_position(token, &position);
	remember_token(token);
	state = udb_position_state(&position, &where);
	if (state == UDB_POSITION_PENDING && timeout != 0)
	{
		drop_snapshots(what, form);
		state = udb_waiter_wait(&position, timeout, form == FENCE_QUERY || FirstSnapshotSet, &where,
								waited);
	}
	remember_outcome(state, *waited);
	udb_position_refuse(state, &position, &where);
	return state;
}

/* Why a standby may not have got there. */
static const char *
replay_condition(void)
{
	if (RecoveryInProgress() && GetRecoveryPauseState() != RECOVERY_NOT_PAUSED)
		return "Replay is paused.";
	if (RecoveryInProgress() && recovery_min_apply_delay > 0)
		return "Replay is delayed by recovery_min_apply_delay.";
	return NULL;
}

static void
timed_out(const char *what, int64 waited)
{
	const char *condition = replay_condition();

	ereport(ERROR, (errcode(udb_errcode(FENCE_TIMED_OUT)), errmsg("%s: the token was not reached within " INT64_FORMAT " ms", what, waited / 1000), condition != NULL ? errdetail("%s", condition) : 0));
}

bool
udb_fence_in_query(const char *function, const char *token, int64 timeout, int64 *waited)
{
	udb_refuse_fixed_snapshot(function);
	return fence(function, token, timeout, FENCE_QUERY, waited) == UDB_POSITION_REACHED;
}

/* ---- SET udb.fence --------------------------------------------------------- */

static bool
check_fence(char **newval, void **extra, GucSource source)
{
	const char *why = NULL;

	if (*newval == NULL || **newval == '\0' || InitializingParallelWorker)
		return true;
	if (!door_open)
	{
		GUC_check_errcode(udb_errcode(FENCE_BYPASSED));
		GUC_check_errmsg(
			"parameter \"%s\" can only be set by SET or SET LOCAL, as a statement of its own",
			FENCE_SETTING);
		GUC_check_errdetail("In any other way nothing would wait for the token.");
		return false;
	}
	if (!udb_token_valid(*newval, &why))
	{
		GUC_check_errdetail("%s", why);
		return false;
	}
	return true;
}

/* The statement sets udb.fence to a value. */
static bool
sets_fence(Node *stmt)
{
	VariableSetStmt *set = (VariableSetStmt *) stmt;

	return IsA(stmt, VariableSetStmt) && set->kind == VAR_SET_VALUE &&
		pg_strcasecmp(set->name, FENCE_SETTING) == 0;
}

/* Before the setting is made: what can be known to be wrong by then. */
static void
check_set(ProcessUtilityContext context)
{
	if (context != PROCESS_UTILITY_TOPLEVEL)
		ereport(ERROR,
				(errcode(udb_errcode(FENCE_BYPASSED)),
				 errmsg("SET %s cannot be used inside of a function, procedure or DO block",
						FENCE_SETTING),
				 errhint("Send it as a statement of its own, or use udb.wait_for_token().")));
	if (IsolationUsesXactSnapshot() && FirstSnapshotSet)
		udb_refuse_fixed_snapshot("SET " FENCE_SETTING " after the first query");
}

static void
wait_after_set(void)
{
	int64		waited;
	int64		timeout = UDB_WAIT_FOREVER;

	if (fence_setting == NULL || *fence_setting == '\0')
		return;
	if (udb_fence_timeout >= 0)
		timeout = (int64) udb_fence_timeout * 1000;
	if (fence("SET " FENCE_SETTING, fence_setting, timeout, FENCE_SET, &waited) ==
		UDB_POSITION_PENDING)
		timed_out("SET " FENCE_SETTING, waited);
}

static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type next =
		prev_process_utility ? prev_process_utility : standard_ProcessUtility;
	Node	   *stmt = pstmt->utilityStmt;
	bool		is_set = sets_fence(stmt);
	bool		is_call = IsA(stmt, CallStmt);
	bool		was_at_top = call_at_top;
	bool		was_open = door_open;

	if (IsA(stmt, TransactionStmt) &&
		((TransactionStmt *) stmt)->kind == TRANS_STMT_COMMIT_PREPARED)
		udb_commit_prepared_begins();
	if (!is_set && !is_call)
	{
		next(pstmt, query, read_only_tree, context, params, env, dest, qc);
		return;
	}

	if (is_set)
		check_set(context);
	PG_TRY();
	{
		door_open = is_set;
		call_at_top = is_call && context == PROCESS_UTILITY_TOPLEVEL;
		next(pstmt, query, read_only_tree, context, params, env, dest, qc);
	}
	PG_FINALLY();
	{
		door_open = was_open;
		call_at_top = was_at_top;
	}
	PG_END_TRY();
	if (is_set)
		wait_after_set();
}

void
udb_fence_init(void)
{
	DefineCustomStringVariable(
		FENCE_SETTING, "Sets the token that this server is to have reached.",
		"The wait takes place when the parameter is set.", &fence_setting, "", PGC_USERSET,
		GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, check_fence, NULL, NULL);
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

/* ---- functions ------------------------------------------------------------- */

static int64
timeout_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"timeout\" must not be null")));
	return udb_interval_usecs(PG_GETARG_INTERVAL_P(1), "timeout");
}

static char *
token_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"token\" must not be null")));
	return TextDatumGetCString(PG_GETARG_DATUM(0));
}

UDB_FUNCTION(udb_token_reached);

/* token_reached(token) returns boolean */
Datum
udb_token_reached(PG_FUNCTION_ARGS)
{
	UdbPosition position;
	UdbPositionState state;
	UdbWhere	where;

	udb_token_position(token_argument(fcinfo), &position);
	udb_refuse_fixed_snapshot("token_reached()");
	state = udb_position_state(&position, &where);
	udb_position_refuse(state, &position, &where);
	PG_RETURN_BOOL(state == UDB_POSITION_REACHED);
}

UDB_FUNCTION(udb_wait_for_token);

/* wait_for_token(token, timeout) returns boolean */
Datum
udb_wait_for_token(PG_FUNCTION_ARGS)
{
	int64		waited;
	char	   *token = token_argument(fcinfo);

	PG_RETURN_BOOL(
		udb_fence_in_query("wait_for_token()", token, timeout_argument(fcinfo), &waited));
}

UDB_FUNCTION(udb_wait_for);

/* CALL wait_for(token, timeout) */
Datum
udb_wait_for(PG_FUNCTION_ARGS)
{
	char	   *token = token_argument(fcinfo);
	int64		timeout = timeout_argument(fcinfo);
	UdbFenceForm form = FENCE_CALL;
	int64		waited;

	/*
	 * Inside of anything else there is somebody who holds on to the snapshot
	 * that is to be popped.
	 */
	if (!call_at_top)
		ereport(ERROR,
				(errcode(udb_errcode(FENCE_BYPASSED)),
				 errmsg("wait_for() cannot be called from a function, procedure or DO block"),
				 errhint("Send CALL as a statement of its own, or use udb.wait_for_token().")));
	if (((CallContext *) fcinfo->context)->atomic)
	{
		udb_refuse_fixed_snapshot("wait_for()");
		form = FENCE_CALL_IN_BLOCK;
	}
	if (fence("wait_for()", token, timeout, form, &waited) == UDB_POSITION_PENDING)
		timed_out("wait_for()", waited);
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_fence_status);

/* fence_status() returns (outcome, token, waited_ms, ended_at) */
Datum
udb_fence_status(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (last_fence.outcome != NULL)
	{
		memset(nulls, 0, sizeof(nulls));
		values[0] = CStringGetTextDatum(last_fence.outcome);
		values[1] = CStringGetTextDatum(last_fence.token);
		values[2] = Float8GetDatum((double) last_fence.waited / 1000);
		values[3] = TimestampTzGetDatum(last_fence.ended_at);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
