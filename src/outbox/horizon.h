/*-------------------------------------------------------------------------
 *
 * horizon.h
 *	  The stable horizon: up to which position the feed can be read.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_HORIZON_H
#define UDB_OUTBOX_HORIZON_H

#include "postgres.h"
#include "access/xlogdefs.h"
#include "nodes/pg_list.h"

#include "outbox/state.h"

/*
 * Register this transaction as one that takes positions.  To be called before
 * it takes the first; later calls are cheap.
 */
extern void udb_horizon_register(UdbOutbox *outbox);

/* Tell that positions up to "last" have been taken from "first" on. */
extern void udb_horizon_taken(uint64 first, uint64 last);

/*
 * The horizon: everything at or below it is decided.  A snapshot taken after
 * this call sees every event at or below it that was committed.  Throws.
 */
extern uint64 udb_horizon(UdbOutbox *outbox);

/* The same, with all that a reader may see up to it flushed to disk. */
extern uint64 udb_horizon_durable(UdbOutbox *outbox);

/*
 * At the end of a transaction, in this order; none throws or allocates, except
 * udb_horizon_prepare, which runs before the end.
 */
extern bool udb_horizon_registered(void);
extern void udb_horizon_prepare(void);
extern void udb_horizon_committed(XLogRecPtr commit_end);
extern void udb_horizon_clear(void);

/* A prepared transaction of this database has been committed or rolled back. */
extern void udb_horizon_prepared_ended(void);

/* Wake those whose wait is over, or all sessions that wait in this database. */
extern void udb_horizon_wake(UdbOutbox *outbox);
extern void udb_horizon_wake_all(UdbOutbox *outbox);

/*
 * Wait until the horizon is above "position", somebody has called
 * udb_horizon_wake_all since outbox->wakes was read, or the deadline has passed
 * (false).  Holds no lock.  Throws on cancel.
 */
extern bool udb_horizon_wait(UdbOutbox *outbox, uint64 position, uint32 wakes,
							 TimestampTz deadline);

/* Prepared transactions that the server found when it started; for state.c. */
extern List *udb_prepared_recovered(void);
extern void udb_prepared_adopt(List *recovered);

#endif							/* UDB_OUTBOX_HORIZON_H */
