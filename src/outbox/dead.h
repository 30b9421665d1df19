/*-------------------------------------------------------------------------
 *
 * dead.h
 *	  Parked events of a consumer, for its reads.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_DEAD_H
#define UDB_OUTBOX_DEAD_H

#include "postgres.h"
#include "access/htup.h"
#include "utils/snapshot.h"

typedef struct UdbDeadEvents UdbDeadEvents;

/*
 * The parked and redriven events of a consumer with positions in (after,
 * upto], palloc'd; NULL if there are none.
 */
extern UdbDeadEvents *udb_dead_load(const char *consumer, uint64 after, uint64 upto,
									Snapshot snapshot);

/* Whether the event at this position is parked. */
extern bool udb_dead_is_parked(const UdbDeadEvents *dead, uint64 position);

/*
 * The next redriven event with a position below "before", as a row of type
 * udb.event, or NULL.
 */
extern HeapTuple udb_dead_next_redriven(UdbDeadEvents *dead, uint64 before);

#endif							/* UDB_OUTBOX_DEAD_H */
