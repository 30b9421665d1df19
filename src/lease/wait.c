/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Sessions that wait for a lease, and how they are woken.
 *
 * Each waiting session has a slot with the lease's key and a ticket.  Of those
 * with the same key, the lowest ticket is the head, and only the head tries.  It
 * sleeps until the lease expires, or until a transaction that has touched the
 * lease ends; the others sleep until it is their turn, as whoever leaves wakes
 * the new head.
 *
 * Transactions wake after their locks are released, since what they had
 * asserted cannot be taken before; that is later than commit callbacks run.
 *
 * What ends a transaction without that, which is COMMIT or ROLLBACK PREPARED, or
 * locks a row without touching the lease, which is somebody's SELECT FOR UPDATE,
 * is noticed only by looking again: the head does so now and then while it finds
 * the lease in the hands of a transaction.
 *
 * Locking: slots are written by their owner only, without a lock, in the order
 * that the barriers give.  A waiter publishes its slot and then looks at the
 * lease; who changes the lease looks at the slots after that.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "common/clock.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/shmem.h"
#include "lease/wait.h"

/* how long the head trusts in being woken by a transaction in progress */
#define LOOK_AGAIN_MS 1000

/* leases that a transaction remembers one by one */
#define MAX_TOUCHED 64

typedef struct Waiter
{
	pg_atomic_uint64 key;		/* of the lease; 0: does not wait */
	pg_atomic_uint64 ticket;
} Waiter;

typedef struct WaitArea
{
	pg_atomic_uint64 tickets;	/* handed out */
	pg_atomic_uint32 nwaiters;
	int			nslots;
	Waiter		slots[FLEXIBLE_ARRAY_MEMBER];	/* by proc number */
} WaitArea;

static WaitArea *area = NULL;

/* what this transaction has touched */
static uint64 touched[MAX_TOUCHED];
static int	ntouched = 0;
static bool touched_more = false;

static Size
wait_size(void)
{
	return add_size(offsetof(WaitArea, slots), mul_size(sizeof(Waiter), MaxBackends));
}

static void
wait_area_init(void *ptr)
{
	WaitArea   *a = ptr;

	pg_atomic_init_u64(&a->tickets, 0);
	pg_atomic_init_u32(&a->nwaiters, 0);
	a->nslots = MaxBackends;
	for (int i = 0; i < a->nslots; i++)
	{
		pg_atomic_init_u64(&a->slots[i].key, 0);
		pg_atomic_init_u64(&a->slots[i].ticket, 0);
	}
}

/* A lease's key among those of all databases. */
static uint64
wait_key(const UdbLeaseWho *who)
{
	uint64		key = who->key ^ ((uint64) MyDatabaseId * UINT64CONST(0x9E3779B97F4A7C15));

	return key != 0 ? key : 1;
}

/* The slot of who waits for this lease and comes first, or -1. */
static int
find_head(uint64 key)
{
	int			head = -1;
	uint64		lowest = 0;

	for (int i = 0; i < area->nslots; i++)
	{
		uint64		ticket;

		if (pg_atomic_read_u64(&area->slots[i].key) != key)
			continue;
		ticket = pg_atomic_read_u64(&area->slots[i].ticket);
		if (head < 0 || ticket < lowest)
		{
			head = i;
			lowest = ticket;
		}
	}
	return head;
}

static void
wake_head(uint64 key)
{
	int			head = find_head(key);

	if (head >= 0)
		SetLatch(&ProcGlobal->allProcs[head].procLatch);
}

void
udb_lease_wake(const UdbLeaseWho *who)
{
	pg_memory_barrier();
	if (pg_atomic_read_u32(&area->nwaiters) > 0)
		wake_head(wait_key(who));
}

int
udb_lease_waiters(const UdbLeaseWho *who)
{
	uint64		key = wait_key(who);
	int			n = 0;

	for (int i = 0; i < area->nslots; i++)
		n += pg_atomic_read_u64(&area->slots[i].key) == key;
	return n;
}

void
udb_lease_touch(const UdbLeaseWho *who)
{
	uint64		key = wait_key(who);

	if (ntouched > 0 && touched[ntouched - 1] == key)
		return;
	if (ntouched < MAX_TOUCHED)
		touched[ntouched++] = key;
	else
		touched_more = true;
}

static void
wake_touched(void)
{
	pg_memory_barrier();
	if (likely(pg_atomic_read_u32(&area->nwaiters) == 0))
		return;
	if (!touched_more)
	{
		for (int i = 0; i < ntouched; i++)
			wake_head(touched[i]);
		return;
	}
	for (int i = 0; i < area->nslots; i++)
		if (pg_atomic_read_u64(&area->slots[i].key) != 0)
			SetLatch(&ProcGlobal->allProcs[i].procLatch);
}

/*
 * Locks have been released, at the end of a transaction, or of one inside of it
 * that was rolled back, which may have touched something.
 */
static void
release_callback(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (likely(ntouched == 0) || phase != RESOURCE_RELEASE_AFTER_LOCKS ||
		(is_commit && !is_top_level))
		return;
	wake_touched();
	if (is_top_level)
	{
		ntouched = 0;
		touched_more = false;
	}
}

void
udb_lease_wait_init(void)
{
	static const UdbShmemArea desc = {.name = "udb lease waiters",
									  .size = wait_size,
									  .init = wait_area_init,
									  .pointer = (void **) &area};

	udb_shmem_register(&desc);
	RegisterResourceReleaseCallback(release_callback, NULL);
}

static void
start_waiting(uint64 key)
{
	Waiter	   *slot = &area->slots[udb_my_procno()];

	pg_atomic_write_u64(&slot->ticket, pg_atomic_fetch_add_u64(&area->tickets, 1));
	pg_write_barrier();
	pg_atomic_write_u64(&slot->key, key);
	pg_atomic_fetch_add_u32(&area->nwaiters, 1);
	pg_memory_barrier();
}

/* Leave, however the wait ends, and let the next one look. */
static void
stop_waiting(int code, Datum arg)
{
	Waiter	   *slot = &area->slots[udb_my_procno()];
	uint64		key = pg_atomic_read_u64(&slot->key);

	if (key == 0)
		return;
	pg_atomic_write_u64(&slot->key, 0);
	pg_atomic_fetch_sub_u32(&area->nwaiters, 1);
	pg_memory_barrier();
	if (pg_atomic_read_u32(&area->nwaiters) > 0)
		wake_head(key);
}

/* Microseconds of "wait" that are left. */
static int64
time_left(instr_time start, int64 wait)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return wait - (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Sleep until woken, but so many microseconds at most. */
static void
sleep_for(int64 usecs)
{
	static uint32 wait_event = 0;

	/* a catalog snapshot would pin the vacuum horizon */
	InvalidateCatalogSnapshot();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(Max(usecs, 0) / 1000 + 1, INT_MAX),
					 udb_wait_event(&wait_event, "UdbWaitForLease"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* In line: try whenever it is our turn and there is a chance. */
static bool
wait_in_line(const UdbLeaseWho *who, int64 ttl, int64 wait, UdbLease *lease)
{
	uint64		key = wait_key(who);
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "udb lease wait", ALLOCSET_SMALL_SIZES);
	instr_time	start;
	int64		left;

	INSTR_TIME_SET_CURRENT(start);
	while ((left = time_left(start, wait)) > 0)
	{
		if (find_head(key) == udb_my_procno())
		{
			MemoryContext oldcontext = MemoryContextSwitchTo(context);
			UdbLeaseResult result = udb_lease_try(who, ttl, lease);

			MemoryContextSwitchTo(oldcontext);
			MemoryContextReset(context);
			if (result == UDB_LEASE_GOT)
				break;
			if (result == UDB_LEASE_HELD)
				left = Min(left, lease->expires_at - udb_clock_now());
			else
				left = Min(left, LOOK_AGAIN_MS * 1000);
		}
		UDB_DEBUG_POINT("lease-wait");
		sleep_for(left);
	}
	MemoryContextDelete(context);
	return left > 0;
}

bool
udb_lease_acquire(const UdbLeaseWho *who, int64 ttl, int64 wait, UdbLease *lease)
{
	bool		got;

	/* who has to wait does not pass those who are waiting */
	if (wait <= 0 || find_head(wait_key(who)) < 0)
	{
		if (udb_lease_try(who, ttl, lease) == UDB_LEASE_GOT)
			return true;
		if (wait <= 0)
			return false;
	}
	PG_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	{
		start_waiting(wait_key(who));
		got = wait_in_line(who, ttl, wait, lease);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	stop_waiting(0, (Datum) 0);
	return got;
}
