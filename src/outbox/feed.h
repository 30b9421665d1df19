/*-------------------------------------------------------------------------
 *
 * feed.h
 *	  Reading the log in order, up to the stable horizon.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_FEED_H
#define UDB_OUTBOX_FEED_H

#include "postgres.h"
#include "utils/snapshot.h"
#include "utils/tuplestore.h"

#include "outbox/consumer.h"
#include "outbox/state.h"
#include "outbox/topics.h"

/* This database's outbox, for whoever deals in positions.  UD005 on a standby. */
extern UdbOutbox *udb_feed_outbox(void);

/* The same for a reader.  Also throws UD006 where it cannot take a fresh snapshot. */
extern UdbOutbox *udb_feed_begin(void);

/*
 * Throw UD002 or UD003 if reading after this position would skip events that
 * have been dropped, or if the position is from another history.
 */
extern void udb_feed_check_position(UdbOutbox *outbox, uint64 after, Snapshot snapshot,
									const char *consumer);

/*
 * How many events of a consumer can be read, up to max.  With a tuplestore,
 * put them there and keep the locks on the segments that their values may
 * point into.
 */
extern int	udb_feed_consume(UdbOutbox *outbox, UdbConsumer *consumer, uint64 upto, int max,
							Snapshot snapshot, Tuplestorestate *store);

/* The last position that retention has dropped; 0 if it never has. */
extern uint64 udb_feed_dropped_through(Snapshot snapshot);

/* An int argument called max_events: throws if null. */
extern int	udb_feed_max_events(FunctionCallInfo fcinfo, int argno);

#endif							/* UDB_OUTBOX_FEED_H */
