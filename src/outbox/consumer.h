/*-------------------------------------------------------------------------
 *
 * consumer.h
 *	  Consumers: named cursors over the feed.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_CONSUMER_H
#define UDB_OUTBOX_CONSUMER_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

#include "outbox/topics.h"

/* A row of udb.consumers, and what the cache knows about it. */
typedef struct UdbConsumer
{
	char		name[NAMEDATALEN];
	uint64		position;
	bool		paused;
	TimestampTz created_at;
	UdbTopics  *topics;			/* NULL: all */
	ItemPointerData tid;
	uint64		scanned;		/* no event of these topics in (position, scanned] */
} UdbConsumer;

extern void udb_consumer_cache_init(void);

/* Copy a consumer's name; throws if it is NULL, empty or too long. */
extern void udb_consumer_name(text *name, char *buffer);

/*
 * Read a consumer's row with this snapshot.  Throws undefined_object if there
 * is none.  Holds no lock afterwards; topics are palloc'd.
 */
extern void udb_consumer_get(const char *name, Snapshot snapshot, UdbConsumer *consumer);

/* The same, but returns false if there is none. */
extern bool udb_consumer_find(const char *name, Snapshot snapshot, UdbConsumer *consumer);

/* Note in the cache where the row is now, and the cursor's position. */
extern void udb_consumer_moved(UdbConsumer *consumer, ItemPointer tid, uint64 position);

/* Note that the topics have been looked for up to here. */
extern void udb_consumer_scanned(UdbConsumer *consumer, uint64 scanned);

/* Note that the consumer has just read. */
extern void udb_consumer_has_read(const UdbConsumer *consumer);

/*
 * Keep retention off until the end of the transaction, as a cursor may be set
 * to what it is about to drop.
 */
extern void udb_consumer_lock_retention(void);

#endif							/* UDB_OUTBOX_CONSUMER_H */
