/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming jobs, or looking whether there are any.
 *
 * A claim goes through the ready index, from the highest priority down and within
 * each from its cursor on (see hint.c), with a dirty snapshot: what that does not
 * show is dead for good, and what it shows as being changed by a transaction in
 * progress is left to that.  Jobs whose claim has run out keep their place in the
 * index, and are taken over there.
 *
 * A transaction with a fixed snapshot takes only what that shows, as it could not
 * update rows that were changed since, and buries nothing.
 *
 * Rows are locked one by one and never waited for.  The cursor does not pass what
 * this transaction itself has changed, as that may be rolled back.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "common/catalog.h"
#include "common/check.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/interval.h"
#include "common/spi.h"
#include "queue/claim.h"
#include "queue/hint.h"
#include "queue/queue.h"
#include "queue/row.h"
#include "queue/seq.h"
#include "queue/wait.h"

/* columns of udb.jobs_ready_idx and udb.jobs_due_idx */
#define Anum_idx_queue 1
#define Anum_idx_priority 2
#define Anum_idx_ready_seq 3
#define Anum_idx_due_at 2

/* delayed jobs that one claim makes ready, at least */
#define MAKE_READY 100

/* jobs that one claim finds to be over */
#define MAX_OVER 1000

/* Ready jobs of a priority that a look for what is over passes before it gives up. */
#define COLLECT_READY 100

/* When to look again for a job that a transaction in progress is changing. */
#define BUSY_USECS (100 * 1000)

/* A look at what time has brought takes at most one part in so many of the time. */
#define LOOK_SHARE 10

typedef struct Claim
{
	UdbJobTable table;
	const text *queue;
	UdbQueueId	id;
	UdbQueueHint hint;
	TimestampTz now;
	bool		fixed;			/* the transaction has a fixed snapshot */
	bool		full;			/* from the beginning, for claims that have run out */
	bool		peek;			/* only look whether there is one */
	bool		collect;		/* only look for what is over */

	IndexScanDesc scan;
	SnapshotData dirty;
	Buffer		buffer;			/* of the row that it is at */
	MemoryContext context;		/* for one job */
	int64		settled;		/* see udb_job_seq_settled() */
	bool		below;			/* the scan is below the cursor that others go by */
	TimestampTz next;			/* when the first claim that was seen runs out */

	int			batch;
	int			taken;
	int64		visibility;
	TimestampTz visible_until;
	int64		token;			/* 0: not needed yet */
	Datum		worker_id;
	Datum		claimed;		/* the word */
	Tuplestorestate *result;
	TupleDesc	desc;

	Datum		over[MAX_OVER]; /* ids of jobs that have expired, or have no attempt left */
	int			nover;
} Claim;

/* Take the job, unless somebody else is about to. */
static bool
take(Claim *c, HeapTuple tuple, UdbJobRow *row, bool ran_out)
{
	Datum		values[Natts_job_output];
	bool		nulls[Natts_job_output];

	if (c->token == 0)
	{
		c->token = udb_claim_token_next();
		c->visible_until = GetCurrentTimestamp() + c->visibility;
		udb_queue_touch_claimed(c->id);
	}
	udb_job_value(row, attempts) = Int32GetDatum(DatumGetInt32(udb_job_value(row, attempts)) + 1);
	udb_job_value(row, claim_token) = Int64GetDatum(c->token);
	udb_job_isnull(row, claim_token) = false;
	udb_job_value(row, visible_until) = TimestampTzGetDatum(c->visible_until);
	udb_job_isnull(row, visible_until) = false;
	udb_job_value(row, worker_id) = c->worker_id;
	udb_job_isnull(row, worker_id) = false;
	udb_job_value(row, state) = c->claimed;
	udb_job_isnull(row, expires_at) = true;
	if (ran_out)
	{
		udb_job_value(row, last_error) = CStringGetTextDatum("claim expired");
		udb_job_isnull(row, last_error) = false;
	}
	UDB_DEBUG_POINT("job-claim");
	if (!udb_job_try_update(&c->table, tuple, row))
		return false;

	udb_job_output(row, values, nulls);
	for (int i = 0; i < Natts_job_output; i++)
	{
		struct varlena *value = (struct varlena *) DatumGetPointer(values[i]);

		if (!nulls[i] && TupleDescAttr(c->desc, i)->attlen == -1 && VARATT_IS_EXTERNAL(value))
			values[i] = PointerGetDatum(detoast_external_attr(value));
	}
	tuplestore_putvalues(c->result, c->desc, values, nulls);
	return true;
}

static void
over(Claim *c, UdbJobRow *row)
{
	if (c->nover < MAX_OVER)
		c->over[c->nover++] = udb_job_value(row, job_id);
}

static bool
has_attempts_left(const UdbJobRow *row)
{
	return DatumGetInt32(udb_job_value(row, attempts)) <
		DatumGetInt32(udb_job_value(row, max_attempts));
}

/* Whether the fixed snapshot shows this version. */
static bool
in_snapshot(HeapTuple tuple, Buffer buffer)
{
	bool		visible;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	visible = HeapTupleSatisfiesVisibility(tuple, GetTransactionSnapshot(), buffer);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return visible;
}

/*
 * Deal with the entry that the scan is at.  False if the cursor must not pass it.
 */
static bool
visit(Claim *c)
{
	HeapTupleData tuple;
	UdbJobRow	row;
	bool		own;
	bool		all_dead = false;
	bool		ran_out = false;

	if (!udb_job_fetch(&c->table, &c->scan->xs_heaptid, &c->dirty, &tuple, &c->buffer, &all_dead))
	{
		/* the index need not show it again */
		c->scan->kill_prior_tuple = all_dead;
		return true;
	}
	if (TransactionIdIsValid(c->dirty.xmin) || TransactionIdIsValid(c->dirty.xmax))
	{
		/* if that is rolled back, nobody comes by below a cursor */
		if (c->below)
			c->next = Min(c->next, c->now + BUSY_USECS);
		return false;
	}
	if (c->fixed && !in_snapshot(&tuple, c->buffer))
		return false;
	own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple.t_data));
	udb_job_row(&c->table, &tuple, &row);
	if (udb_job_text_is(udb_job_value(&row, state), "claimed"))
	{
		TimestampTz until = DatumGetTimestampTz(udb_job_value(&row, visible_until));

		if (until > c->now)
		{
			c->next = Min(c->next, until);
			return !own;
		}
		ran_out = true;
		if (c->collect || !has_attempts_left(&row))
		{
			over(c, &row);
			return false;
		}
	}
	else if (!udb_job_isnull(&row, expires_at) &&
			 DatumGetTimestampTz(udb_job_value(&row, expires_at)) <= c->now)
	{
		over(c, &row);
		return false;
	}
	if (c->peek || c->collect || take(c, &tuple, &row, ran_out))
		c->taken++;
	return false;
}

/* All jobs of a priority, from its cursor on, until there are enough. */
static void
scan_priority(Claim *c, int32 priority)
{
	int64		known = udb_queue_hint_cursor(&c->hint, priority);
	int64		from = c->full ? 0 : known;
	int64		cursor = Min(c->settled, udb_queue_floor());
	bool		passing = true;
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], Anum_idx_queue, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(c->queue));
	ScanKeyInit(&keys[1], Anum_idx_priority, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(priority));
	ScanKeyInit(&keys[2], Anum_idx_ready_seq, BTGreaterEqualStrategyNumber, F_INT8GE,
				Int64GetDatum(from));
	index_rescan(c->scan, keys, 3, NULL, 0);
	while (c->taken < c->batch && index_getnext_tid(c->scan, ForwardScanDirection) != NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(c->context);
		bool		isnull;
		int64		ready_seq = DatumGetInt64(index_getattr(c->scan->xs_itup, Anum_idx_ready_seq,
													  c->scan->xs_itupdesc, &isnull));

		CHECK_FOR_INTERRUPTS();
		c->below = ready_seq < known;
		if (!visit(c) && passing)
		{
			passing = false;
			cursor = Min(cursor, ready_seq);
		}
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(c->context);
	}
	if (c->fixed || (cursor <= from && from > 0))
		return;

	/* what a claim holds below the cursor must be known before anything can go wrong */
	if (c->next != DT_NOEND)
		udb_queue_hint_claim(c->id.key, c->next);
	udb_queue_hint_advance(c->id.key, priority, cursor, from == 0);
}

/* The highest priority that has entries, below "limit" if that is given. */
static bool
next_priority(Claim *c, const int32 *limit, int32 *priority)
{
	ScanKeyData keys[3];
	bool		found;
	bool		isnull;

	/* a scan has the same number of keys each time; the last one says nothing */
	ScanKeyInit(&keys[0], Anum_idx_queue, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(c->queue));
	if (limit != NULL)
		ScanKeyInit(&keys[1], Anum_idx_priority, BTLessStrategyNumber, F_INT4LT,
					Int32GetDatum(*limit));
	else
		ScanKeyInit(&keys[1], Anum_idx_priority, BTLessEqualStrategyNumber, F_INT4LE,
					Int32GetDatum(PG_INT32_MAX));
	ScanKeyInit(&keys[2], Anum_idx_ready_seq, BTGreaterEqualStrategyNumber, F_INT8GE,
				Int64GetDatum(0));
	index_rescan(c->scan, keys, 3, NULL, 0);

	/* an entry that is dead tells as well, and before any that is not may be many */
	c->scan->ignore_killed_tuples = false;
	found = index_getnext_tid(c->scan, ForwardScanDirection) != NULL;
	c->scan->ignore_killed_tuples = true;
	if (!found)
		return false;
	*priority = DatumGetInt32(
		index_getattr(c->scan->xs_itup, Anum_idx_priority, c->scan->xs_itupdesc, &isnull));
	return true;
}

/* When to look again after a look that began at "start". */
static TimestampTz
pause_until(TimestampTz start)
{
	TimestampTz end = GetCurrentTimestamp();

	return end + (end - start) * LOOK_SHARE;
}

/* Go through the ready index, and tell what was learned. */
static void
scan_queue(Claim *c)
{
	int32		priority;
	int32	   *limit = NULL;
	bool		end = false;

	c->full = !c->fixed && c->now >= c->hint.claims && c->now >= c->hint.claims_pause;
	if (c->full)
		udb_queue_hint_look_claims(c->id.key, &c->hint);
	c->settled = udb_job_seq_settled();
	c->next = DT_NOEND;

	InitDirtySnapshot(c->dirty);
	c->buffer = InvalidBuffer;
	c->context = AllocSetContextCreate(CurrentMemoryContext, "udb claim", ALLOCSET_SMALL_SIZES);
	c->scan = udb_index_beginscan(c->table.rel, c->table.ready, &c->dirty, 3);
	c->scan->xs_want_itup = true;
	while (c->taken < c->batch)
	{
		end = !next_priority(c, limit, &priority);
		if (end)
			break;
		scan_priority(c, priority);
		limit = &priority;
		if (c->collect)
			c->taken = 0;
	}

	/* what is left of a look from the beginning is below the last priority */
	if (c->full && !end)
		end = !next_priority(c, limit, &priority);
	index_endscan(c->scan);
	if (BufferIsValid(c->buffer))
		ReleaseBuffer(c->buffer);
	MemoryContextDelete(c->context);

	if (c->token != 0)
		c->next = Min(c->next, c->visible_until);

	/* those stay until the sweep has dealt with them; it looks again */
	if (c->collect && c->nover > 0)
		c->next = c->now;
	if (c->next != DT_NOEND)
		udb_queue_hint_claim(c->id.key, c->next);
	if (c->full)
		udb_queue_hint_looked_claims(c->id.key, &c->hint, end ? c->next : c->now,
									 pause_until(c->now));
}

/*
 * The same with a fixed snapshot: of the delayed jobs that it shows and nobody has
 * changed since, those that are due; true if there are any.  *next is when the first
 * of the others is due.  An UPDATE would throw if it met one that was changed.
 */
static bool
make_ready_fixed(Claim *c, TimestampTz *next)
{
	static UdbRelation jobs_due_idx = {"jobs_due_idx"};
	Relation	index = index_open(udb_relation_oid(&jobs_due_idx), AccessShareLock);
	IndexScanDesc scan;
	Buffer		buffer = InvalidBuffer;
	int			max = c->peek ? 1 : Max(c->batch, MAKE_READY);
	int			n = 0;
	ScanKeyData key;

	*next = DT_NOEND;
	InitDirtySnapshot(c->dirty);
	scan = udb_index_beginscan(c->table.rel, index, &c->dirty, 1);
	ScanKeyInit(&key, Anum_idx_queue, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(c->queue));
	scan->xs_want_itup = true;
	index_rescan(scan, &key, 1, NULL, 0);
	while (n < max && index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		HeapTupleData tuple;
		UdbJobRow	row;
		bool		all_dead = false;
		TimestampTz due;

		CHECK_FOR_INTERRUPTS();
		if (!udb_job_fetch(&c->table, &scan->xs_heaptid, &c->dirty, &tuple, &buffer, &all_dead))
		{
			scan->kill_prior_tuple = all_dead;
			continue;
		}
		if (TransactionIdIsValid(c->dirty.xmin) || TransactionIdIsValid(c->dirty.xmax) ||
			!in_snapshot(&tuple, buffer))
			continue;
		udb_job_row(&c->table, &tuple, &row);
		due = DatumGetTimestampTz(udb_job_value(&row, due_at));
		if (due > c->now)
		{
			*next = due;
			break;
		}
		if (!c->peek)
		{
			udb_job_value(&row, ready_seq) = Int64GetDatum(udb_job_seq_next());
			udb_job_isnull(&row, ready_seq) = false;
			udb_job_isnull(&row, due_at) = true;
			udb_job_value(&row, state) = CStringGetTextDatum("ready");
			if (!udb_job_try_update(&c->table, &tuple, &row))
				continue;
			udb_queue_touch_ready(c->id);
		}
		n++;
	}
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	index_endscan(scan);
	index_close(index, NoLock);
	if (n > 0 && !c->peek)
		CommandCounterIncrement();
	return n > 0;
}

/* When the first delayed job is due that a new snapshot shows, DT_NOEND if there is none. */
static TimestampTz
next_due(Claim *c, Snapshot snapshot)
{
	static UdbRelation jobs_due_idx = {"jobs_due_idx"};
	Relation	index = index_open(udb_relation_oid(&jobs_due_idx), AccessShareLock);
	IndexScanDesc scan = udb_index_beginscan(c->table.rel, index, snapshot, 2);
	TupleTableSlot *slot = table_slot_create(c->table.rel, NULL);
	ScanKeyData keys[2];
	TimestampTz result = DT_NOEND;
	bool		isnull;

	ScanKeyInit(&keys[0], Anum_idx_queue, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(c->queue));
	ScanKeyInit(&keys[1], Anum_idx_due_at, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(c->hint.due));
	index_rescan(scan, keys, 2, NULL, 0);
	if (index_getnext_slot(scan, ForwardScanDirection, slot))
		result = DatumGetTimestampTz(slot_getattr(slot, Anum_job_due_at, &isnull));
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	return result;
}

/* Make delayed jobs of the queue ready that are due. */
static void
make_ready(Claim *c)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TIMESTAMPTZOID, INT4OID};
	Datum		values[3];
	UdbSpi		spi;

	values[0] = PointerGetDatum(c->queue);
	values[1] = TimestampTzGetDatum(c->hint.due);
	values[2] = Int32GetDatum(Max(c->batch, MAKE_READY));
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan, "SELECT udb._make_due_ready($1, $2, $3)", 3, types, values, NULL,
						   SPI_OK_SELECT);
	udb_spi_end(&spi);
}

/*
 * Look for delayed jobs that are due, if that may be; true if there are any.
 * *next is when to look again.
 */
static bool
look_for_due(Claim *c, TimestampTz *next)
{
	Snapshot	snapshot;
	TimestampTz due = c->hint.due;

	if (c->fixed)
		return make_ready_fixed(c, next);
	if (c->now < due || c->now < c->hint.due_pause)
	{
		*next = Max(due, c->hint.due_pause);
		return false;
	}
	udb_queue_hint_look_due(c->id.key, &c->hint);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	due = next_due(c, snapshot);
	UnregisterSnapshot(snapshot);
	if (due <= c->now && !c->peek)
	{
		make_ready(c);
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		due = next_due(c, snapshot);
		UnregisterSnapshot(snapshot);
	}
	UDB_DEBUG_POINT("job-due-looked");
	udb_queue_hint_looked_due(c->id.key, &c->hint, due,
							  due <= c->now ? c->now : pause_until(c->now));
	*next = due;
	return due <= c->now;
}

/* What the scan found to be over dies. */
static void
bury(Claim *c)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {INT8ARRAYOID};
	Datum		values[1];
	UdbSpi		spi;

	if (c->nover == 0 || c->fixed)
		return;
	values[0] = PointerGetDatum(construct_array(c->over, c->nover, INT8OID, sizeof(int64),
												FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan, "SELECT udb._settle_jobs($1)", 1, types, values, NULL,
						   SPI_OK_SELECT);
	udb_spi_end(&spi);
}

static void
begin(Claim *c, const text *queue, LOCKMODE lockmode)
{
	TimestampTz own;

	memset(c, 0, offsetof(Claim, over));
	c->nover = 0;
	c->queue = queue;
	c->now = GetCurrentTimestamp();
	c->fixed = IsolationUsesXactSnapshot();
	udb_job_table_open(&c->table, lockmode);
	c->id = udb_queue_id(c->table.rel, queue);
	udb_queue_hint_get(c->id.key, c->now, &c->hint);

	/* what this transaction has delayed, only it can see, and others are not told yet */
	own = udb_queue_touched_due(c->id);
	if (own < c->hint.due)
		c->hint.due = own;
}

bool
udb_queue_has_jobs(const text *queue, TimestampTz *next)
{
	Claim	   *c = palloc(sizeof(Claim));
	Snapshot	snapshot;
	bool		found;

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	begin(c, queue, AccessShareLock);
	c->peek = true;
	c->batch = 1;
	found = look_for_due(c, next);
	if (!found)
	{
		scan_queue(c);
		found = c->taken > 0;
		*next = Min(*next, c->next);
		if (!c->full && !c->fixed)
			*next = Min(*next, Max(c->hint.claims, c->hint.claims_pause));
	}
	udb_job_table_close(&c->table);
	UnregisterSnapshot(snapshot);
	pfree(c);
	return found;
}

/* The first queue after this one, or of all, that has entries in the ready index; NULL if none. */
static text *
next_queue(UdbJobTable *table, Snapshot snapshot, const text *after)
{
	IndexScanDesc scan = udb_index_beginscan(table->rel, table->ready, snapshot, 1);
	ScanKeyData key;
	text	   *result = NULL;
	bool		isnull;

	ScanKeyInit(&key, Anum_idx_queue, BTGreaterStrategyNumber, F_TEXT_GT, PointerGetDatum(after));
	scan->xs_want_itup = true;
	scan->ignore_killed_tuples = false;
	index_rescan(scan, &key, 1, NULL, 0);
	if (index_getnext_tid(scan, ForwardScanDirection) != NULL)
		result = DatumGetTextPCopy(
			index_getattr(scan->xs_itup, Anum_idx_queue, scan->xs_itupdesc, &isnull));
	index_endscan(scan);
	return result;
}

UDB_FUNCTION(udb_overdue_jobs);

/*
 * _overdue_jobs() returns SETOF bigint: jobs whose claim has run out, or that have
 * expired, as far as they are near where claims begin.  Goes through queues for which
 * something may have run out only.
 */
Datum
udb_overdue_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	text	   *queue = cstring_to_text("");
	Claim	   *c = palloc(sizeof(Claim));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (;;)
	{
		bool		nulls[1] = {false};

		CHECK_FOR_INTERRUPTS();
		begin(c, queue, AccessShareLock);
		queue = next_queue(&c->table, snapshot, queue);
		udb_job_table_close(&c->table);
		if (queue == NULL)
			break;
		begin(c, queue, AccessShareLock);
		c->collect = true;
		c->batch = COLLECT_READY;
		if (c->now >= c->hint.claims)
			scan_queue(c);
		udb_job_table_close(&c->table);
		for (int i = 0; i < c->nover; i++)
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &c->over[i], nulls);
	}
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}

UDB_FUNCTION(udb_claim_jobs);

/* claim_jobs(queue, worker_id, batch, visibility, store) returns SETOF udb.job */
Datum
udb_claim_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	text	   *queue = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	text	   *worker_id = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	int64		visibility;
	TimestampTz next;
	Claim	   *c;

	udb_check_store(PG_ARGISNULL(4) ? NULL : PG_GETARG_TEXT_PP(4));
	udb_check_name("queue", queue, 255);
	udb_check_name("worker_id", worker_id, 255);
	udb_queue_not_null(fcinfo, 2, "batch");
	udb_queue_not_null(fcinfo, 3, "visibility");
	visibility = udb_interval_usecs(PG_GETARG_INTERVAL_P(3), "visibility");
	if (visibility == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"visibility\" must be greater than zero")));
	udb_queue_check_writable("claim_jobs()");
	InitMaterializedSRF(fcinfo, 0);
	if (PG_GETARG_INT32(2) <= 0)
		return (Datum) 0;

	c = palloc(sizeof(Claim));
	begin(c, queue, RowExclusiveLock);
	c->batch = PG_GETARG_INT32(2);
	c->visibility = visibility;
	c->worker_id = PointerGetDatum(worker_id);
	c->claimed = CStringGetTextDatum("claimed");
	c->result = rsinfo->setResult;
	c->desc = rsinfo->setDesc;
	(void) look_for_due(c, &next);
	scan_queue(c);
	if (c->taken > 0)
		CommandCounterIncrement();
	bury(c);
	udb_job_table_close(&c->table);
	return (Datum) 0;
}
