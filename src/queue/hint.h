/*-------------------------------------------------------------------------
 *
 * hint.h
 *	  What shared memory knows about a queue, so that claims need not look.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_HINT_H
#define UDB_QUEUE_HINT_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"

/* priorities of a queue for which it is known where to begin */
#define UDB_HINT_PRIORITIES 64

typedef struct UdbQueueHint
{
	/* jobs with a ready_seq below the cursor are dead, or claimed */
	int			npriorities;
	int32		priority[UDB_HINT_PRIORITIES];
	int64		cursor[UDB_HINT_PRIORITIES];

	/* no delayed job is due before this time, and no claim below a cursor runs out */
	TimestampTz due;
	TimestampTz claims;
	TimestampTz due_since;		/* the lowest that was told since the last look began */
	TimestampTz claims_since;
	uint32		due_look;		/* which look that is */
	uint32		claims_look;

	/* do not look again before */
	TimestampTz due_pause;
	TimestampTz claims_pause;

	TimestampTz forget;			/* who comes after this time shall look at all */
} UdbQueueHint;

extern void udb_queue_hint_init(void);

/* A queue's key among those of all databases; jobs is the table. */
extern uint64 udb_queue_key(Relation jobs, const char *queue, int len);

/* A copy of what is known; of nothing, if nothing is. */
extern void udb_queue_hint_get(uint64 key, TimestampTz now, UdbQueueHint *copy);

/* The cursor of a priority, 0 if it is not known. */
extern int64 udb_queue_hint_cursor(const UdbQueueHint *hint, int32 priority);

/* All below "cursor" is dead, or claimed; "exactly" if that was seen from the beginning. */
extern void udb_queue_hint_advance(uint64 key, int32 priority, int64 cursor, bool exactly);

/* Something is due at this time, and can be seen.  Does not throw. */
extern void udb_queue_hint_due(uint64 key, TimestampTz due);
extern void udb_queue_hint_claim(uint64 key, TimestampTz until);

/*
 * A look for what is due: call the first before taking a snapshot, the second with
 * the time before which nothing was, and when to look again at the earliest.
 */
extern void udb_queue_hint_look_due(uint64 key, UdbQueueHint *copy);
extern void udb_queue_hint_looked_due(uint64 key, const UdbQueueHint *copy, TimestampTz due,
									  TimestampTz pause);
extern void udb_queue_hint_look_claims(uint64 key, UdbQueueHint *copy);
extern void udb_queue_hint_looked_claims(uint64 key, const UdbQueueHint *copy, TimestampTz until,
										 TimestampTz pause);

/* Something may be due in any queue.  Does not throw. */
extern void udb_queue_hint_all_due(void);

#endif							/* UDB_QUEUE_HINT_H */
