/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  Dropping segments that nobody needs any more.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_RETENTION_H
#define UDB_OUTBOX_RETENTION_H

#include "outbox/state.h"

/*
 * Drop the oldest segments that are old enough and passed by all consumers,
 * up to max of them.  Returns how many.  Waits for no lock.  The locks it
 * takes last until the end of the transaction, so keep that short.
 */
extern int	udb_retention_apply(UdbOutbox *outbox, int max);

/* Remove redriven events that their consumers have passed.  Returns how many. */
extern uint64 udb_retention_settle(void);

#endif							/* UDB_OUTBOX_RETENTION_H */
