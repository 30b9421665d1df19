/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  The job queue's entry for _PG_init, and helpers of its functions in SQL.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "common/catalog.h"
#include "common/compat.h"
#include "common/errors.h"
#include "common/locktag.h"
#include "queue/hint.h"
#include "queue/queue.h"
#include "queue/seq.h"
#include "queue/wait.h"

void
udb_queue_init(void)
{
	udb_job_seq_init();
	udb_queue_hint_init();
	udb_queue_wait_init();
}

void
udb_queue_not_null(FunctionCallInfo fcinfo, int argno, const char *name)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", name)));
}

void
udb_queue_check_served(const char *function)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", function),
				 errhint("Connect to the primary.")));
	PreventCommandIfParallelMode(function);
}

void
udb_queue_check_writable(const char *function)
{
	udb_queue_check_served(function);
	PreventCommandIfReadOnly(function);
}

/* The queue named by an argument, as hints and waiters know it. */
static UdbQueueId
queue_argument(FunctionCallInfo fcinfo, int argno)
{
	static UdbRelation jobs = {"jobs"};
	Relation	rel = table_open(udb_relation_oid(&jobs), AccessShareLock);
	UdbQueueId	id = udb_queue_id(rel, PG_GETARG_TEXT_PP(argno));

	table_close(rel, NoLock);
	return id;
}

UDB_FUNCTION(udb_next_job_seq);

/* _next_job_seq(queue) returns bigint: for a job that this transaction makes ready */
Datum
udb_next_job_seq(PG_FUNCTION_ARGS)
{
	udb_queue_touch_ready(queue_argument(fcinfo, 0));
	PG_RETURN_INT64(udb_job_seq_next());
}

UDB_FUNCTION(udb_job_delayed);

/* _job_delayed(queue, due_at) returns timestamptz, the same: this transaction delays a job */
Datum
udb_job_delayed(PG_FUNCTION_ARGS)
{
	udb_queue_touch_due(queue_argument(fcinfo, 0), PG_GETARG_TIMESTAMPTZ(1));
	PG_RETURN_DATUM(PG_GETARG_DATUM(1));
}

UDB_FUNCTION(udb_job_moved);

/* _job_moved(ready_seq) returns void: this transaction removes a job from there */
Datum
udb_job_moved(PG_FUNCTION_ARGS)
{
	udb_queue_touch_place(PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_lock_ordering_key);

/* _lock_ordering_key(queue, ordering_key, wait) returns boolean */
Datum
udb_lock_ordering_key(PG_FUNCTION_ARGS)
{
	text	   *queue = PG_GETARG_TEXT_PP(0);
	text	   *key = PG_GETARG_TEXT_PP(1);
	uint64		hash;
	LOCKTAG		tag;

	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(udb_errcode(ORDERING_NEEDS_FRESH_SNAPSHOT)),
				 errmsg("jobs with an ordering key cannot be sent or finished with a fixed snapshot"),
				 errhint("Use a transaction at isolation level READ COMMITTED.")));
	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(queue),
							   VARSIZE_ANY_EXHDR(queue), 0);
	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(key),
							   VARSIZE_ANY_EXHDR(key), hash);
	tag = udb_locktag(UDB_LOCK_JOB_KEY, hash);
	PG_RETURN_BOOL(LockAcquire(&tag, ExclusiveLock, false, !PG_GETARG_BOOL(2)) !=
				   LOCKACQUIRE_NOT_AVAIL);
}
