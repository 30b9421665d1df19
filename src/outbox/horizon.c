/*-------------------------------------------------------------------------
 *
 * horizon.c
 *	  The stable horizon: up to which position the feed can be read.
 *
 * A position is taken at insert and its event appears at commit, so a reader
 * that only compares positions skips what commits late.  Kafka calls the
 * answer the last stable offset; it is kept here per database, in shared
 * memory.
 *
 *	Writer, at its first enqueue:	publish a bound (the counter) in its slot,
 *									then take positions.
 *	Reader:							read the counter, then the slots, then
 *									take a snapshot.
 *
 * If a writer has taken a position at or below the counter that the reader
 * saw, it had published its bound before, so the reader finds it; or the slot
 * is clear again, and then the writer is out of the proc array and any later
 * snapshot sees what it did.  With any other order there is a window.
 *
 * Terms: the bound of a transaction is a position that all of its positions
 * are above; the holder is the transaction with the lowest bound.
 *
 * Locking: slots are written by their owner only, without a lock, with full
 * barriers as marked.  prepared[] is protected by the area's lock.
 *
 * Durability: after a crash all slots are clear, rightly so, as the
 * transactions are gone too.  Prepared ones are not: each holds a heavyweight
 * lock with its bound in the lock tag, which two-phase recovery brings back.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "common/compat.h"
#include "common/database.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "outbox/horizon.h"

/* the outbox that this transaction has registered with */
static UdbOutbox *registered = NULL;

static inline UdbOutboxProc *
my_proc(void)
{
	return &udb_outbox_area->procs[udb_my_procno()];
}

void
udb_horizon_register(UdbOutbox *outbox)
{
	UdbOutboxProc *proc;

	if (likely(registered != NULL))
		return;

	proc = my_proc();
	proc->dboid = MyDatabaseId;
	proc->pid = MyProcPid;
	proc->since = GetCurrentTimestamp();
	pg_atomic_write_u64(&proc->last, 0);
	registered = outbox;
	pg_write_barrier();
	pg_atomic_write_u64(&proc->bound, pg_atomic_read_u64(&outbox->counter) + 1);

	/* the bound must be out before a position is taken */
	pg_memory_barrier();

	UDB_DEBUG_POINT("horizon-registered");
}

void
udb_horizon_taken(uint64 first, uint64 last)
{
	UdbOutboxProc *proc = my_proc();

	uint64		bound = pg_atomic_read_u64(&proc->bound);
	bool		raised = pg_atomic_read_u64(&proc->last) == 0 && bound != first;

	/*
	 * Between reading the counter and publishing the bound others may have
	 * gone on; now the exact bound is known.
	 */
	if (raised)
		pg_atomic_write_u64(&proc->bound, first);
	pg_atomic_write_u64(&proc->last, last);

	/*
	 * They may have committed by now, and this was all that held the horizon
	 * below them.  Pairs with the barrier in udb_horizon_wait.
	 */
	if (raised)
	{
		pg_memory_barrier();
		udb_horizon_wake(registered);
	}
}

/*
 * The horizon as far as running transactions hold it; "horizon" is what the
 * counter was before.
 */
static uint64
horizon_of_procs(UdbOutbox *outbox, uint64 horizon)
{
	UdbOutboxProc *procs = udb_outbox_area->procs;
	int			nprocs = udb_outbox_area->nprocs;

	pg_memory_barrier();
	for (int i = 0; i < nprocs; i++)
	{
		uint64		bound = pg_atomic_read_u64(&procs[i].bound);

		if (bound != 0 && procs[i].dboid == outbox->dboid && bound - 1 < horizon)
			horizon = bound - 1;
	}
	pg_memory_barrier();
	return horizon;
}

/*
 * Free the elements of prepared[] whose transactions have ended.  The caller
 * holds the lock exclusively.
 */
static void
reclaim_prepared(void)
{
	UdbOutboxArea *area = udb_outbox_area;
	uint32		used = pg_atomic_read_u32(&area->nprepared);

	for (uint32 i = 0; i < used; i++)
	{
		if (TransactionIdIsValid(area->prepared[i].xid) &&
			!TransactionIdIsInProgress(area->prepared[i].xid))
			area->prepared[i].xid = InvalidTransactionId;
	}
	while (used > 0 && !TransactionIdIsValid(area->prepared[used - 1].xid))
		used--;
	pg_atomic_write_u32(&area->nprepared, used);
}

/* The horizon as far as prepared transactions hold it. */
static uint64
horizon_of_prepared(UdbOutbox *outbox, uint64 horizon)
{
	UdbOutboxArea *area = udb_outbox_area;
	bool		ended = false;

	if (likely(pg_atomic_read_u32(&area->nprepared) == 0))
		return horizon;

	LWLockAcquire(&area->lock, LW_SHARED);
	for (uint32 i = 0; i < pg_atomic_read_u32(&area->nprepared); i++)
	{
		UdbOutboxPrepared *p = &area->prepared[i];

		if (!TransactionIdIsValid(p->xid) || p->dboid != outbox->dboid)
			continue;

		/*
		 * Nobody tells us when it ends.  Once it is not in progress it is out
		 * of the proc array, so that a snapshot taken later sees its result.
		 */
		if (!TransactionIdIsInProgress(p->xid))
			ended = true;
		else if (p->bound < horizon)
			horizon = p->bound;
	}
	LWLockRelease(&area->lock);

	if (ended)
	{
		LWLockAcquire(&area->lock, LW_EXCLUSIVE);
		reclaim_prepared();
		LWLockRelease(&area->lock);
	}
	return horizon;
}

uint64
udb_horizon(UdbOutbox *outbox)
{
	uint32		generation = pg_atomic_read_u32(&outbox->seqrelid);
	uint64		horizon;
	uint64		stable;

	UDB_DEBUG_POINT("horizon-wanted");
	pg_read_barrier();
	stable = pg_atomic_read_u64(&outbox->stable);
	horizon = pg_atomic_read_u64(&outbox->counter);
	UDB_DEBUG_POINT("counter-read");

	/*
	 * Slots before prepared[]: a transaction that moves from one to the other
	 * enters the second before it leaves the first.
	 */
	horizon = horizon_of_procs(outbox, horizon);
	UDB_DEBUG_POINT("slots-read");
	horizon = horizon_of_prepared(outbox, horizon);

	/*
	 * Once found, a horizon stays true: later writers take later positions.
	 * But one that was interrupted between reading the counter and publishing
	 * what it read makes us find a lower one for a moment.  It must not be
	 * kept for the log of another extension, which begins from the beginning.
	 */
	horizon = Max(horizon, stable);
	if (pg_atomic_read_u64(&outbox->stable) < horizon)
	{
		LWLockAcquire(&udb_outbox_area->lock, LW_SHARED);
		if (pg_atomic_read_u32(&outbox->seqrelid) == generation)
			udb_atomic_max(&outbox->stable, horizon);
		LWLockRelease(&udb_outbox_area->lock);
	}
	pg_memory_barrier();
	UDB_DEBUG_POINT("horizon-read");
	return horizon;
}

uint64
udb_horizon_durable(UdbOutbox *outbox)
{
	uint64		horizon = udb_horizon(outbox);
	XLogRecPtr	lsn = pg_atomic_read_u64(&outbox->flush_lsn);

	/*
	 * An asynchronous commit is visible before it is durable.  Whoever
	 * cleared its slot had raised flush_lsn before.
	 */
	if (lsn != InvalidXLogRecPtr)
		XLogFlush(lsn);
	return horizon;
}

bool
udb_horizon_registered(void)
{
	return registered != NULL;
}

/*
 * Before PREPARE: let prepared[] hold the horizon in place of the slot, and
 * take the lock by which it is found after a restart.  If PREPARE fails, the
 * element is freed like that of any transaction that has ended.
 */
void
udb_horizon_prepare(void)
{
	UdbOutboxArea *area = udb_outbox_area;
	UdbOutboxProc *proc = my_proc();
	uint64		bound = pg_atomic_read_u64(&proc->bound) - 1;
	TransactionId xid = GetTopTransactionId();
	LOCKTAG		tag = udb_locktag(UDB_LOCK_PREPARED, bound);
	UdbOutboxPrepared *p = NULL;

	UDB_DEBUG_POINT("preparing");
	(void) LockAcquire(&tag, ShareLock, false, false);

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	reclaim_prepared();
	for (int i = 0; i < area->max_prepared && p == NULL; i++)
	{
		if (TransactionIdIsValid(area->prepared[i].xid))
			continue;
		p = &area->prepared[i];
		p->dboid = MyDatabaseId;
		p->bound = bound;
		p->last = pg_atomic_read_u64(&proc->last);
		p->since = proc->since;
		p->xid = xid;
		if ((uint32) i >= pg_atomic_read_u32(&area->nprepared))
			pg_atomic_write_u32(&area->nprepared, i + 1);
	}
	LWLockRelease(&area->lock);

	/* with prepared transactions disabled PREPARE itself says so */
	if (p == NULL && area->max_prepared > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("cannot prepare a transaction that has enqueued: all %d slots are in use",
						area->max_prepared),
				 errhint("Increase max_prepared_transactions (currently %d).",
						 max_prepared_xacts)));
}

void
udb_horizon_committed(XLogRecPtr commit_end)
{
	if (registered != NULL)
		udb_atomic_max(&registered->flush_lsn, commit_end);
}

void
udb_horizon_prepared_ended(void)
{
	int			slot = udb_database_find(MyDatabaseId);

	UDB_DEBUG_POINT("prepared-ended");

	/* also so that no xid stays here until it is used again */
	if (pg_atomic_read_u32(&udb_outbox_area->nprepared) > 0)
	{
		LWLockAcquire(&udb_outbox_area->lock, LW_EXCLUSIVE);
		reclaim_prepared();
		LWLockRelease(&udb_outbox_area->lock);
	}

	/*
	 * Not only if prepared[] has elements: a reader may just have freed this
	 * one's, and it may have had other reasons to wake somebody.
	 */
	if (slot >= 0)
	{
		udb_horizon_wake_all(&udb_outbox_area->outboxes[slot]);
		udb_horizon_wake(&udb_outbox_area->outboxes[slot]);
	}
}

/*
 * The transaction has ended or is prepared.  Runs in commit and abort
 * callbacks, after the transaction is out of the proc array.
 */
void
udb_horizon_clear(void)
{
	UdbOutbox  *outbox = registered;

	registered = NULL;
	pg_atomic_write_u64(&my_proc()->bound, 0);

	/* pairs with the one in udb_horizon_wait */
	pg_memory_barrier();
	udb_horizon_wake(outbox);
}

void
udb_horizon_wake(UdbOutbox *outbox)
{
	if (pg_atomic_read_u32(&outbox->nwaiters) > 0)
	{
		/*
		 * Prepared transactions are left out, as asking for them can
		 * allocate; who is woken in vain looks again and sleeps on.
		 */
		uint64		horizon = horizon_of_procs(outbox, pg_atomic_read_u64(&outbox->counter));

		for (int i = 0; i < udb_outbox_area->nprocs; i++)
		{
			UdbOutboxProc *proc = &udb_outbox_area->procs[i];
			uint64		above = pg_atomic_read_u64(&proc->waits_above);

			if (above != 0 && proc->wait_dboid == outbox->dboid && above - 1 < horizon &&
				pg_atomic_compare_exchange_u64(&proc->waits_above, &above, 0))
			{
				pg_atomic_fetch_sub_u32(&outbox->nwaiters, 1);
				SetLatch(&ProcGlobal->allProcs[i].procLatch);
			}
		}
	}

	if (udb_notify && pg_atomic_read_u32(&outbox->notify_pending) == 0 &&
		pg_atomic_exchange_u32(&outbox->notify_pending, 1) == 0)
		udb_database_wake_worker(outbox->slot);
}

void
udb_horizon_wake_all(UdbOutbox *outbox)
{
	/* pairs with the barrier in udb_horizon_wait */
	pg_atomic_fetch_add_u32(&outbox->wakes, 1);
	for (int i = 0; i < udb_outbox_area->nprocs; i++)
	{
		UdbOutboxProc *proc = &udb_outbox_area->procs[i];

		/* the waiter itself finds out that there is nothing, if so */
		if (pg_atomic_read_u64(&proc->waits_above) != 0 && proc->wait_dboid == outbox->dboid)
			SetLatch(&ProcGlobal->allProcs[i].procLatch);
	}
}

/* Leave the wait, however it ends. */
static void
stop_waiting(int code, Datum arg)
{
	UdbOutbox  *outbox = (UdbOutbox *) DatumGetPointer(arg);
	UdbOutboxProc *proc = my_proc();
	uint64		above = pg_atomic_read_u64(&proc->waits_above);

	if (above != 0 && pg_atomic_compare_exchange_u64(&proc->waits_above, &above, 0))
		pg_atomic_fetch_sub_u32(&outbox->nwaiters, 1);
}

bool
udb_horizon_wait(UdbOutbox *outbox, uint64 position, uint32 wakes, TimestampTz deadline)
{
	static uint32 wait_event = 0;
	UdbOutboxProc *proc = my_proc();
	bool		in_time;

	PG_ENSURE_ERROR_CLEANUP(stop_waiting, PointerGetDatum(outbox));
	{
		proc->wait_dboid = MyDatabaseId;
		pg_write_barrier();
		pg_atomic_write_u64(&proc->waits_above, position + 1);
		pg_atomic_fetch_add_u32(&outbox->nwaiters, 1);

		/* registered first, looked second: no wake-up can be missed */
		pg_memory_barrier();
		if (udb_horizon(outbox) <= position && pg_atomic_read_u32(&outbox->wakes) == wakes)
		{
			long		timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

			/* a catalog snapshot would pin the vacuum horizon */
			InvalidateCatalogSnapshot();
			if (timeout > 0)
				(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								 Min(timeout, INT_MAX),
								 udb_wait_event(&wait_event, "UdbWaitForEvents"));
			ResetLatch(MyLatch);
		}
		CHECK_FOR_INTERRUPTS();
		in_time = GetCurrentTimestamp() < deadline;
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_waiting, PointerGetDatum(outbox));
	stop_waiting(0, PointerGetDatum(outbox));
	return in_time;
}

/*
 * Prepared transactions of this database that came from recovery, by the locks
 * they hold: a list of palloc'd UdbOutboxPrepared.
 */
List *
udb_prepared_recovered(void)
{
	List	   *result = NIL;
	LockData   *locks;

	if (max_prepared_xacts == 0)
		return NIL;

	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];
		TransactionId xid = udb_lock_recovered_xid(lock);
		UdbOutboxPrepared *p;

		if (!TransactionIdIsValid(xid) ||
			lock->locktag.locktag_type != LOCKTAG_ADVISORY ||
			lock->locktag.locktag_field4 != UDB_LOCK_PREPARED ||
			lock->locktag.locktag_field1 != MyDatabaseId)
			continue;
		p = palloc0(sizeof(UdbOutboxPrepared));
		p->xid = xid;
		p->dboid = MyDatabaseId;
		p->bound = ((uint64) lock->locktag.locktag_field2 << 32) | lock->locktag.locktag_field3;
		result = lappend(result, p);
	}
	pfree(locks->locks);
	pfree(locks);
	return result;
}

/* Enter them into prepared[].  The caller holds the area's lock exclusively. */
void
udb_prepared_adopt(List *recovered)
{
	UdbOutboxArea *area = udb_outbox_area;
	ListCell   *cell;

	foreach(cell, recovered)
	{
		UdbOutboxPrepared *p = lfirst(cell);
		int			to = -1;
		bool		known = false;

		for (int i = 0; i < area->max_prepared && !known; i++)
		{
			if (area->prepared[i].xid == p->xid)
				known = true;
			else if (to < 0 && !TransactionIdIsValid(area->prepared[i].xid))
				to = i;
		}
		if (known)
			continue;
		if (to < 0)
			elog(ERROR, "no slot for a prepared transaction that holds the horizon");
		area->prepared[to] = *p;
		if ((uint32) to >= pg_atomic_read_u32(&area->nprepared))
			pg_atomic_write_u32(&area->nprepared, to + 1);
	}
}

UDB_FUNCTION(udb_horizon_holders);

/*
 * _horizon_holders() returns SETOF (pid, xid, since, first_position,
 * last_position): every transaction that has enqueued and not ended.
 */
Datum
udb_horizon_holders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	UdbOutboxArea *area = udb_outbox_area;
	UdbOutboxPrepared *prepared;
	int			nprepared = 0;

	InitMaterializedSRF(fcinfo, 0);
	(void) udb_outbox();		/* finds recovered prepared transactions */

	for (int i = 0; i < area->nprocs; i++)
	{
		UdbOutboxProc *proc = &area->procs[i];
		uint64		bound = pg_atomic_read_u64(&proc->bound);
		uint64		last = pg_atomic_read_u64(&proc->last);
		Datum		values[5] = {0};
		bool		nulls[5] = {false, true, false, false, false};

		if (bound == 0 || proc->dboid != MyDatabaseId)
			continue;
		values[0] = Int32GetDatum(proc->pid);
		values[2] = TimestampTzGetDatum(proc->since);
		values[3] = Int64GetDatum((int64) bound);
		values[4] = Int64GetDatum((int64) last);
		nulls[4] = last == 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}

	prepared = palloc(mul_size(sizeof(UdbOutboxPrepared), Max(area->max_prepared, 1)));
	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	reclaim_prepared();
	for (uint32 i = 0; i < pg_atomic_read_u32(&area->nprepared); i++)
		if (TransactionIdIsValid(area->prepared[i].xid) && area->prepared[i].dboid == MyDatabaseId)
			prepared[nprepared++] = area->prepared[i];
	LWLockRelease(&area->lock);

	for (int i = 0; i < nprepared; i++)
	{
		Datum		values[5] = {0};
		bool		nulls[5] = {true, false, false, false, false};

		values[1] = TransactionIdGetDatum(prepared[i].xid);
		values[2] = TimestampTzGetDatum(prepared[i].since);
		nulls[2] = prepared[i].since == 0;
		values[3] = Int64GetDatum((int64) prepared[i].bound + 1);
		values[4] = Int64GetDatum((int64) prepared[i].last);
		nulls[4] = prepared[i].last == 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
