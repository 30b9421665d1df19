/*-------------------------------------------------------------------------
 *
 * index.h
 *	  Entering many events into a B-tree index at once.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_INDEX_H
#define UDB_OUTBOX_INDEX_H

#include "postgres.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

/*
 * Whether udb_index_append_right() can be used: a B-tree over one column in
 * its usual order.  The column must have a fixed length.
 */
extern bool udb_index_can_append(Relation index);

/*
 * Append entries whose keys strictly rise to the rightmost leaf page, as far
 * as they come after all that is there and fit.  Returns how many it did,
 * which is 0 whenever there is any reason to do it the usual way.  Leaves
 * garbage in the current memory context.
 */
extern int	udb_index_append_right(Relation index, int n, const Datum *keys,
								  const ItemPointerData *tids);

#endif							/* UDB_OUTBOX_INDEX_H */
