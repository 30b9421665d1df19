/*-------------------------------------------------------------------------
 *
 * waiter.h
 *	  Sessions that wait for replay to reach a position.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_WAITER_H
#define UDB_TOKEN_WAITER_H

#include "postgres.h"

#include "token/position.h"

/* Call while being preloaded. */
extern void udb_waiter_init(void);

/* A random number for this life of shared memory, never 0. */
extern uint32 udb_run(void);

/* no limit, in udb_waiter_wait */
#define UDB_WAIT_FOREVER (-1)

/*
 * Wait until the position is not pending any more, or the time is over.
 * *waited is in microseconds.  The wait is given up with an error when replay
 * waits for a lock of this session, and, with "in_the_way", when it waits for a
 * snapshot or a page: the caller's transaction has or had one.
 */
extern UdbPositionState udb_waiter_wait(const UdbPosition *position, int64 timeout, bool in_the_way,
										UdbWhere *where, int64 *waited);

/*
 * For the startup process: everything up to this position has been applied.
 * With "all" every waiter is to look again.  Takes no lock, allocates nothing
 * and cannot throw.
 */
extern void udb_waiter_replayed(XLogRecPtr lsn, bool all);

#endif							/* UDB_TOKEN_WAITER_H */
