/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  Waiting for jobs, and what a transaction tells others when it ends.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_WAIT_H
#define UDB_QUEUE_WAIT_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"

extern void udb_queue_wait_init(void);

/* Which queue, for hints and for those who wait. */
typedef struct UdbQueueId
{
	uint64		key;			/* see udb_queue_key() */
	uint64		wait_key;
} UdbQueueId;

extern UdbQueueId udb_queue_id(Relation jobs, const text *queue);

/* This transaction has made a job ready, or delayed it until a time. */
extern void udb_queue_touch_ready(UdbQueueId id);
extern void udb_queue_touch_due(UdbQueueId id, TimestampTz due);

/* The earliest of these times; DT_NOEND if there is none. */
extern TimestampTz udb_queue_touched_due(UdbQueueId id);

/* It has claimed one, which is free again if it is rolled back. */
extern void udb_queue_touch_claimed(UdbQueueId id);

/*
 * It is removing a job, or moving it in the ready index.  Until the transaction
 * ends this place is not to be passed; see udb_queue_floor().
 */
extern void udb_queue_touch_place(int64 ready_seq);

/* The lowest of these places. */
extern int64 udb_queue_floor(void);

#endif							/* UDB_QUEUE_WAIT_H */
