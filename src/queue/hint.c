/*-------------------------------------------------------------------------
 *
 * hint.c
 *	  What shared memory knows about a queue, so that claims need not look.
 *
 * Jobs that are done leave dead entries in the ready index, and while somebody
 * holds an old snapshot nothing can remove these.  A claim that began at the
 * front would pass all of them.  So for each queue and priority there is a cursor:
 * entries below it are dead for good, or of jobs that have been claimed, which
 * keep their place.  Another entry never appears there (see seq.c).
 *
 * Claimed jobs below the cursor come back when their claims run out.  The hint
 * has a time before which none does; when it has come, the next claim goes
 * through all from the beginning, and finds out the next time.  Likewise for
 * delayed jobs.  So both scans happen about once in the time that such a job
 * waits.
 *
 * All of this may be lost at any time: then the next claim looks, and knows again.
 * It is forgotten every FORGET_USECS on purpose, so that nothing that nobody
 * thought of can hide a job for ever.
 *
 * Locking: each element has a spinlock; the area's lock is held to claim one.
 *
 * Durability: none needed.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/rel.h"

#include "common/guc.h"
#include "common/shmem.h"
#include "queue/hint.h"

#define FORGET_USECS (60 * USECS_PER_SEC)

/* elements a queue can be in: the table is one without chains */
#define WAYS 8

typedef struct Element
{
	slock_t		mutex;
	uint64		key;			/* 0: free */
	TimestampTz used;
	UdbQueueHint hint;
} Element;

typedef struct HintArea
{
	LWLock		lock;
	Element		elements[FLEXIBLE_ARRAY_MEMBER];
} HintArea;

static HintArea *area = NULL;

static Size
hint_size(void)
{
	return add_size(offsetof(HintArea, elements), mul_size(sizeof(Element), udb_max_queues));
}

static void
hint_init(void *ptr)
{
	HintArea   *a = ptr;

	LWLockInitialize(&a->lock, udb_lwlock_tranche());
	for (int i = 0; i < udb_max_queues; i++)
		SpinLockInit(&a->elements[i].mutex);
}

void
udb_queue_hint_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb queues", .size = hint_size, .init = hint_init, .pointer = (void **) &area};

	udb_shmem_register(&desc);
}

uint64
udb_queue_key(Relation jobs, const char *queue, int len)
{
	/* the file, as TRUNCATE or another extension begins from the beginning */
	uint64		table = ((uint64) MyDatabaseId << 32) | jobs->rd_rel->relfilenode;
	uint64		key = hash_bytes_extended((const unsigned char *) queue, len, table);

	return key != 0 ? key : 1;
}

static void
know_nothing(UdbQueueHint *hint, TimestampTz now)
{
	memset(hint, 0, sizeof(UdbQueueHint));
	hint->due = DT_NOBEGIN;
	hint->claims = DT_NOBEGIN;
	hint->due_pause = DT_NOBEGIN;
	hint->claims_pause = DT_NOBEGIN;
	hint->forget = now + FORGET_USECS;
}

/* The queue's element, with its spinlock held, or NULL. */
static Element *
lock_element(uint64 key)
{
	for (int i = 0; i < WAYS; i++)
	{
		Element	   *e = &area->elements[(key + i) % udb_max_queues];

		/* a key that is just being written is as good as none */
		if (*(volatile uint64 *) &e->key != key)
			continue;
		SpinLockAcquire(&e->mutex);
		if (e->key == key)
			return e;
		SpinLockRelease(&e->mutex);
	}
	return NULL;
}

/* Make an element the queue's, if need be in place of the one used least. */
static void
claim_element(uint64 key, TimestampTz now)
{
	Element	   *e;
	uint32		due_look;
	uint32		claims_look;

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	e = lock_element(key);
	if (e == NULL)
	{
		e = &area->elements[key % udb_max_queues];
		for (int i = 1; i < WAYS; i++)
		{
			Element	   *other = &area->elements[(key + i) % udb_max_queues];

			if (e->key != 0 && (other->key == 0 || other->used < e->used))
				e = other;
		}
		SpinLockAcquire(&e->mutex);
		e->key = key;
		e->used = now;
		due_look = e->hint.due_look;
		claims_look = e->hint.claims_look;
		know_nothing(&e->hint, now);

		/* looks that are under way are not this queue's */
		e->hint.due_look = due_look + 1;
		e->hint.claims_look = claims_look + 1;
	}
	SpinLockRelease(&e->mutex);
	LWLockRelease(&area->lock);
}

void
udb_queue_hint_get(uint64 key, TimestampTz now, UdbQueueHint *copy)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
	{
		claim_element(key, now);
		e = lock_element(key);
	}
	if (e == NULL)
	{
		know_nothing(copy, now);
		return;
	}
	e->used = now;
	*copy = e->hint;
	if (now >= e->hint.forget)
	{
		/* this one looks at all; the others go on as they are */
		e->hint.forget = now + FORGET_USECS;
		know_nothing(copy, now);
	}
	SpinLockRelease(&e->mutex);
}

int64
udb_queue_hint_cursor(const UdbQueueHint *hint, int32 priority)
{
	for (int i = 0; i < hint->npriorities; i++)
		if (hint->priority[i] == priority)
			return hint->cursor[i];
	return 0;
}

void
udb_queue_hint_advance(uint64 key, int32 priority, int64 cursor, bool exactly)
{
	Element	   *e = lock_element(key);
	UdbQueueHint *hint;
	int			i = 0;

	if (e == NULL)
		return;
	hint = &e->hint;
	while (i < hint->npriorities && hint->priority[i] != priority)
		i++;
	if (i < hint->npriorities)
	{
		if (exactly || cursor > hint->cursor[i])
			hint->cursor[i] = cursor;
	}
	else if (exactly)
	{
		/* with too many, they take turns */
		if (i == UDB_HINT_PRIORITIES)
			i = (uint32) cursor % UDB_HINT_PRIORITIES;
		else
			hint->npriorities++;
		hint->priority[i] = priority;
		hint->cursor[i] = cursor;
	}
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_due(uint64 key, TimestampTz due)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
		return;
	e->hint.due = Min(e->hint.due, due);
	e->hint.due_since = Min(e->hint.due_since, due);
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_claim(uint64 key, TimestampTz until)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
		return;
	e->hint.claims = Min(e->hint.claims, until);
	e->hint.claims_since = Min(e->hint.claims_since, until);
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_look_due(uint64 key, UdbQueueHint *copy)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
		return;
	e->hint.due_since = DT_NOEND;
	copy->due_look = ++e->hint.due_look;
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_looked_due(uint64 key, const UdbQueueHint *copy, TimestampTz due, TimestampTz pause)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
		return;
	if (e->hint.due_look == copy->due_look)
	{
		e->hint.due = Min(due, e->hint.due_since);
		e->hint.due_pause = pause;
	}
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_look_claims(uint64 key, UdbQueueHint *copy)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
		return;
	e->hint.claims_since = DT_NOEND;
	copy->claims_look = ++e->hint.claims_look;
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_looked_claims(uint64 key, const UdbQueueHint *copy, TimestampTz until,
							 TimestampTz pause)
{
	Element	   *e = lock_element(key);

	if (e == NULL)
		return;
	if (e->hint.claims_look == copy->claims_look)
	{
		e->hint.claims = Min(until, e->hint.claims_since);
		e->hint.claims_pause = pause;
	}
	SpinLockRelease(&e->mutex);
}

void
udb_queue_hint_all_due(void)
{
	for (int i = 0; i < udb_max_queues; i++)
	{
		Element	   *e = &area->elements[i];

		SpinLockAcquire(&e->mutex);
		e->hint.due = DT_NOBEGIN;
		e->hint.due_since = DT_NOBEGIN;
		e->hint.claims = DT_NOBEGIN;
		e->hint.claims_since = DT_NOBEGIN;
		SpinLockRelease(&e->mutex);
	}
}
