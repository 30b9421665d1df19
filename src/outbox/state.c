/*-------------------------------------------------------------------------
 *
 * state.c
 *	  Shared state of the outbox, and the counter that hands out positions.
 *
 * Positions come from a counter in shared memory, one atomic addition each,
 * that stays below what is reserved in the sequence udb.outbox_position.  A
 * sequence is logged ahead of use and replayed, so after a crash, a restart
 * or a failover the counter starts above everything ever handed out; the
 * price is a gap, which is harmless.
 *
 * Locking: reservations are serialized by a ShareUpdateExclusiveLock on the
 * sequence, held for the moment.  The area's lock serializes making a
 * database's state valid.
 *
 * Durability: a reservation is not flushed by who makes it; readers flush up
 * to flush_lsn before they show anything (see udb_horizon_durable).
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/twophase.h"
#include "access/xlog.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"
#include "utils/inval.h"

#include "common/database.h"
#include "common/errors.h"
#include "common/guc.h"
#include "common/shmem.h"
#include "outbox/horizon.h"
#include "outbox/state.h"

/* INCREMENT of udb.outbox_position: positions reserved by one nextval() */
#define POSITIONS_RESERVED 1024

UdbOutboxArea *udb_outbox_area = NULL;

static UdbRelation outbox_position = {"outbox_position"};
UdbRelation udb_outbox_events = {"outbox_events"};
UdbRelation udb_outbox_state = {"outbox_state"};
UdbRelation udb_consumers = {"consumers"};
UdbRelation udb_dead_events = {"dead_events"};

static int
max_prepared(void)
{
	/* backends in PREPARE may hold a slot each before they are counted */
	return max_prepared_xacts == 0 ? 0 : max_prepared_xacts + MaxBackends;
}

static Size
outbox_size(void)
{
	Size		size = CACHELINEALIGN(sizeof(UdbOutboxArea));

	size = add_size(size, CACHELINEALIGN(mul_size(sizeof(UdbOutbox), udb_max_databases)));
	size = add_size(size, CACHELINEALIGN(mul_size(sizeof(UdbOutboxProc), MaxBackends)));
	size = add_size(size, mul_size(sizeof(UdbOutboxPrepared), max_prepared()));
	return size;
}

static void
outbox_init(void *ptr)
{
	UdbOutboxArea *area = ptr;
	char	   *p = (char *) ptr + CACHELINEALIGN(sizeof(UdbOutboxArea));

	LWLockInitialize(&area->lock, udb_lwlock_tranche());
	pg_atomic_init_u32(&area->nprepared, 0);
	area->nprocs = MaxBackends;
	area->max_prepared = max_prepared();

	area->outboxes = (UdbOutbox *) p;
	p += CACHELINEALIGN(sizeof(UdbOutbox) * udb_max_databases);
	area->procs = (UdbOutboxProc *) p;
	p += CACHELINEALIGN(sizeof(UdbOutboxProc) * MaxBackends);
	area->prepared = (UdbOutboxPrepared *) p;

	for (int i = 0; i < udb_max_databases; i++)
	{
		UdbOutbox  *outbox = &area->outboxes[i];

		pg_atomic_init_u32(&outbox->seqrelid, InvalidOid);
		pg_atomic_init_u64(&outbox->counter, 0);
		pg_atomic_init_u64(&outbox->limit, 0);
		pg_atomic_init_u64(&outbox->stable, 0);
		pg_atomic_init_u64(&outbox->flush_lsn, 0);
		pg_atomic_init_u32(&outbox->nwaiters, 0);
		pg_atomic_init_u32(&outbox->wakes, 0);
		pg_atomic_init_u32(&outbox->notify_pending, 0);
		pg_atomic_init_u64(&outbox->segment_wanted, 0);
		ConditionVariableInit(&outbox->segment_cv);
	}
	for (int i = 0; i < area->nprocs; i++)
	{
		pg_atomic_init_u64(&area->procs[i].bound, 0);
		pg_atomic_init_u64(&area->procs[i].last, 0);
		pg_atomic_init_u64(&area->procs[i].waits_above, 0);
	}
}

void
udb_outbox_state_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb outbox",
		.size = outbox_size,
		.init = outbox_init,
		.pointer = (void **) &udb_outbox_area};

	udb_shmem_register(&desc);
}

/* The largest position that the sequence says may have been handed out. */
static uint64
sequence_reserved(Oid seqrelid)
{
	Relation	rel = relation_open(seqrelid, AccessShareLock);
	Buffer		buffer = ReadBuffer(rel, 0);
	Page		page;
	HeapTupleHeader tuple;
	Form_pg_sequence_data seq;
	int64		reserved;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	tuple = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, FirstOffsetNumber));
	seq = (Form_pg_sequence_data) ((char *) tuple + tuple->t_hoff);
	reserved = seq->is_called ? seq->last_value + POSITIONS_RESERVED - 1 : seq->last_value - 1;
	UnlockReleaseBuffer(buffer);
	relation_close(rel, AccessShareLock);
	return (uint64) reserved;
}

/*
 * The slot may have belonged to a database that was dropped, and copies of a
 * template have sequences of the same OID, so look at both.
 */
static inline bool
is_valid(UdbOutbox *outbox, Oid seqrelid)
{
	bool		mine = *(volatile Oid *) &outbox->dboid == MyDatabaseId;
	bool		valid;

	/* pair with the barriers in make_valid */
	pg_read_barrier();
	valid = pg_atomic_read_u32(&outbox->seqrelid) == seqrelid;
	pg_read_barrier();
	return mine && valid;
}

static void
make_valid(UdbOutbox *outbox, int slot, Oid seqrelid)
{
	uint64		reserved;
	List	   *prepared;

	/*
	 * What is valid now would be wrong after promotion: the sequence moves on
	 * by replay, and prepared transactions hold no locks yet.
	 */
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(udb_errcode(FEED_NOT_SERVED)),
				 errmsg("the stable horizon is not known on a standby"),
				 errhint("Connect to the primary.")));

	/* both may do I/O, so before taking the lock */
	reserved = sequence_reserved(seqrelid);
	prepared = udb_prepared_recovered();

	LWLockAcquire(&udb_outbox_area->lock, LW_EXCLUSIVE);
	if (!is_valid(outbox, seqrelid))
	{
		/* whoever sees the new database must not see the old sequence */
		pg_atomic_write_u32(&outbox->seqrelid, InvalidOid);
		pg_memory_barrier();
		outbox->dboid = MyDatabaseId;
		outbox->slot = slot;
		udb_prepared_adopt(prepared);
		pg_atomic_write_u64(&outbox->counter, reserved);
		pg_atomic_write_u64(&outbox->limit, reserved);
		pg_atomic_write_u64(&outbox->stable, 0);
		pg_atomic_write_u32(&outbox->notify_pending, 0);
		pg_atomic_write_u64(&outbox->segment_wanted, 0);
		pg_memory_barrier();
		pg_atomic_write_u32(&outbox->seqrelid, seqrelid);

		/* who still waits for a position of a dropped extension's outbox */
		udb_horizon_wake_all(outbox);
	}
	LWLockRelease(&udb_outbox_area->lock);
	list_free_deep(prepared);
}

Oid
udb_outbox_generation(void)
{
	return udb_relation_oid(&outbox_position);
}

UdbOutbox *
udb_outbox(void)
{
	int			slot = udb_database_slot();
	UdbOutbox  *outbox = &udb_outbox_area->outboxes[slot];
	Oid			seqrelid;

	/* the extension may have been dropped and created again */
	AcceptInvalidationMessages();
	seqrelid = udb_outbox_generation();
	while (unlikely(!is_valid(outbox, seqrelid)))
	{
		/* just being dropped and created again: that is over with the lock */
		LockRelationOid(seqrelid, AccessShareLock);
		if (udb_outbox_generation() == seqrelid)
			make_valid(outbox, slot, seqrelid);
		UnlockRelationOid(seqrelid, AccessShareLock);
		seqrelid = udb_outbox_generation();
	}
	return outbox;
}

/* Reserve until position "wanted", unless somebody else just has. */
static void
reserve(UdbOutbox *outbox, uint64 wanted)
{
	Oid			seqrelid = udb_relation_oid(&outbox_position);

	LockRelationOid(seqrelid, ShareUpdateExclusiveLock);
	while (pg_atomic_read_u64(&outbox->limit) < wanted ||
		   pg_atomic_read_u64(&outbox->limit) < sequence_reserved(seqrelid))
	{
		uint64		limit = pg_atomic_read_u64(&outbox->limit);
		uint64		first = (uint64) nextval_internal(seqrelid, false);

		/*
		 * Positions between the old limit and this reservation belong to
		 * nobody we know of: leave them out, before making more available.
		 */
		if (first != limit + 1)
		{
			udb_atomic_max(&outbox->counter, first - 1);
			if (wanted < first)
				wanted = first;
		}
		udb_atomic_max(&outbox->flush_lsn, XactLastRecEnd);
		udb_atomic_max(&outbox->limit, first + POSITIONS_RESERVED - 1);
	}
	UnlockRelationOid(seqrelid, ShareUpdateExclusiveLock);
}

uint64
udb_position_take(UdbOutbox *outbox, uint64 n)
{
	for (;;)
	{
		uint64		counter = pg_atomic_read_u64(&outbox->counter);

		if (unlikely(counter + n > pg_atomic_read_u64(&outbox->limit)))
			reserve(outbox, counter + n);
		else if (pg_atomic_compare_exchange_u64(&outbox->counter, &counter, counter + n))
			return counter + 1;
	}
}

void
udb_position_resync(UdbOutbox *outbox)
{
	Oid			seqrelid = udb_relation_oid(&outbox_position);
	uint64		reserved;

	if (likely(sequence_reserved(seqrelid) <= pg_atomic_read_u64(&outbox->limit)))
		return;

	/* with the lock nobody is between his nextval and raising the limit */
	LockRelationOid(seqrelid, ShareUpdateExclusiveLock);
	reserved = sequence_reserved(seqrelid);
	if (reserved > pg_atomic_read_u64(&outbox->limit))
	{
		udb_atomic_max(&outbox->counter, reserved);
		udb_atomic_max(&outbox->limit, reserved);
	}
	UnlockRelationOid(seqrelid, ShareUpdateExclusiveLock);
}

bool
udb_position_known(UdbOutbox *outbox, uint64 position)
{
	return position <= pg_atomic_read_u64(&outbox->counter) ||
		position <= sequence_reserved(udb_relation_oid(&outbox_position));
}
