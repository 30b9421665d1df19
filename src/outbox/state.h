/*-------------------------------------------------------------------------
 *
 * state.h
 *	  Shared state of the outbox: one struct a database, one slot a process.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_STATE_H
#define UDB_OUTBOX_STATE_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#include "common/catalog.h"

/* A database's outbox; element udb_database_slot() of an array. */
typedef struct UdbOutbox
{
	Oid			dboid;
	int			slot;			/* udb_database_slot() */

	/*
	 * Valid together with dboid: databases made from one template have the
	 * same OIDs in them.
	 *
	 * OID of the sequence that counter and limit stand for; InvalidOid until
	 * they are valid.  It changes when the extension is dropped and created
	 * again.
	 */
	pg_atomic_uint32 seqrelid;

	pg_atomic_uint64 counter;	/* largest position handed out */
	pg_atomic_uint64 stable;	/* largest horizon that was found; that stays true */
	pg_atomic_uint64 limit;		/* largest position reserved in the sequence */

	/*
	 * End of the last WAL record without which something a reader may be
	 * shown could be lost or its position used twice: the commits of
	 * enqueuing transactions and the reservations of positions.
	 */
	pg_atomic_uint64 flush_lsn;

	pg_atomic_uint32 nwaiters;	/* sessions in wait_for_events */
	pg_atomic_uint32 wakes;		/* counts udb_horizon_wake_all() */
	pg_atomic_uint32 notify_pending;	/* the worker has been woken to NOTIFY */

	pg_atomic_uint64 segment_wanted;	/* somebody waits for this position's segment */
	ConditionVariable segment_cv;	/* and sleeps here */
} UdbOutbox;

/*
 * A process' slot, indexed by its proc number.  The first half is about a
 * transaction that has enqueued, the second about a wait for events.  Both
 * store their number plus one, so that zero means none.
 */
typedef struct UdbOutboxProc
{
	pg_atomic_uint64 bound;		/* all positions of the transaction are above */
	pg_atomic_uint64 last;		/* the last position it has taken */
	TimestampTz since;			/* when it enqueued first */
	Oid			dboid;
	int			pid;

	pg_atomic_uint64 waits_above;	/* wake when the horizon is above */
	Oid			wait_dboid;
	char		pad[20];
} UdbOutboxProc;

StaticAssertDecl(sizeof(UdbOutboxProc) == 64, "UdbOutboxProc shall fill a cache line");

/* A prepared transaction that has enqueued. */
typedef struct UdbOutboxPrepared
{
	TransactionId xid;			/* InvalidTransactionId: free */
	Oid			dboid;
	uint64		bound;			/* all its positions are above */
	uint64		last;			/* 0 when not known, after a restart */
	TimestampTz since;			/* 0 likewise */
} UdbOutboxPrepared;

typedef struct UdbOutboxArea
{
	LWLock		lock;			/* making an UdbOutbox valid; prepared[] */
	pg_atomic_uint32 nprepared; /* used elements of prepared[], an upper bound */
	int			nprocs;
	int			max_prepared;
	UdbOutbox  *outboxes;
	UdbOutboxProc *procs;
	UdbOutboxPrepared *prepared;
} UdbOutboxArea;

extern UdbOutboxArea *udb_outbox_area;

extern void udb_outbox_state_init(void);

/*
 * This database's outbox, with counter and limit valid.  May read the
 * catalogs and the sequence; throws UD009, undefined_table, or UD005 on a
 * standby.
 */
extern UdbOutbox *udb_outbox(void);

/*
 * Tells this outbox from one before DROP EXTENSION: what is remembered about
 * positions is worth nothing in another.
 */
extern Oid	udb_outbox_generation(void);

/*
 * Hand out n consecutive positions and return the first.  The caller must
 * have registered with the horizon.  May assign an xid and write WAL.
 */
extern uint64 udb_position_take(UdbOutbox *outbox, uint64 n);

/*
 * Notice that the sequence was set from outside, which is what restoring a
 * dump does, and continue above; all up to there then counts as handed out.
 */
extern void udb_position_resync(UdbOutbox *outbox);

/* Whether a position has been handed out, or reserved to be. */
extern bool udb_position_known(UdbOutbox *outbox, uint64 position);

/* Raise *target to at least value. */
static inline void
udb_atomic_max(pg_atomic_uint64 *target, uint64 value)
{
	uint64		old = pg_atomic_read_u64(target);

	while (old < value && !pg_atomic_compare_exchange_u64(target, &old, value))
		;
}

/* the extension's relations */
extern UdbRelation udb_outbox_events;
extern UdbRelation udb_outbox_state;
extern UdbRelation udb_consumers;
extern UdbRelation udb_dead_events;

#endif							/* UDB_OUTBOX_STATE_H */
