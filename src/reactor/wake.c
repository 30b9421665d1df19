/*-------------------------------------------------------------------------
 *
 * wake.c
 *	  Who is woken when a registry has changed, or something was announced.
 *
 * Sessions in wait_for_registry() at once, by a condition variable; registries
 * share 32 of them, so that others are seldom woken for nothing.  Everybody else
 * by the worker, which sends one empty NOTIFY for all that has happened, and
 * calls the handlers of consumers.
 *
 * That is after the invalidation messages have been sent, which is later than
 * commit callbacks run: whoever is woken and then calls resolve() must not find
 * what was there before.  COMMIT PREPARED runs no callbacks, so it wakes all.
 *
 * Locking: none; all are atomic words and condition variables.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "commands/async.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/database.h"
#include "common/guc.h"
#include "common/prepared.h"
#include "common/shmem.h"
#include "common/spi.h"
#include "reactor/wake.h"

#define CHANNEL "udb_registry"

#define GROUPS 32

typedef struct WakeSlot
{
	pg_atomic_uint64 changes;	/* transactions that have changed something */
	pg_atomic_uint32 notify_pending;	/* the worker has been woken to NOTIFY */
	pg_atomic_uint32 sweep_pending;	/* and to call handlers */
	ConditionVariable groups[GROUPS];
} WakeSlot;

static WakeSlot *slots = NULL;	/* by database slot */

/* the groups that this transaction has touched, as bits */
static uint32 touched = 0;

/* of the worker: what listeners have been told, and when things may be done again */
static uint64 notified = 0;
static uint64 notifying = 0;
static TimestampTz notify_again = 0;
static TimestampTz sweep_again = 0;

static Size
wake_size(void)
{
	return mul_size(sizeof(WakeSlot), udb_max_databases);
}

static void
wake_area_init(void *ptr)
{
	WakeSlot   *area = ptr;

	for (int i = 0; i < udb_max_databases; i++)
	{
		pg_atomic_init_u64(&area[i].changes, 0);
		pg_atomic_init_u32(&area[i].notify_pending, 0);
		pg_atomic_init_u32(&area[i].sweep_pending, 0);
		for (int j = 0; j < GROUPS; j++)
			ConditionVariableInit(&area[i].groups[j]);
	}
}

static uint32
group_of(const text *registry)
{
	return hash_bytes((const unsigned char *) VARDATA_ANY(registry), VARSIZE_ANY_EXHDR(registry)) %
		GROUPS;
}

void
udb_reactor_wake_prepare(void)
{
	(void) udb_database_slot();
}

void
udb_reactor_touch(const text *registry)
{
	touched |= UINT32_C(1) << group_of(registry);
}

/* Neither throws nor allocates. */
static void
wake(uint32 groups)
{
	int			slot = udb_database_slot();
	WakeSlot   *area = &slots[slot];
	bool		wake_worker;

	pg_atomic_fetch_add_u64(&area->changes, 1);
	for (int i = 0; i < GROUPS; i++)
		if (groups & (UINT32_C(1) << i))
			ConditionVariableBroadcast(&area->groups[i]);
	wake_worker = pg_atomic_exchange_u32(&area->sweep_pending, 1) == 0;
	if (pg_atomic_exchange_u32(&area->notify_pending, 1) == 0 || wake_worker)
		udb_database_wake_worker(slot);
}

/* Locks have been released, and before that the messages were sent. */
static void
release_callback(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	uint32		groups = touched;

	if (likely(groups == 0) || phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level)
		return;
	touched = 0;
	if (is_commit)
		wake(groups);
}

static void
prepared_ended(bool committed)
{
	/* databases that do not use udb have no slot, and need none */
	if (committed && udb_database_find(MyDatabaseId) >= 0)
	{
		(void) udb_database_slot();
		wake(~UINT32_C(0));
	}
}

void
udb_reactor_wake_init(void)
{
	static const UdbShmemArea desc = {.name = "udb reactor",
									  .size = wake_size,
									  .init = wake_area_init,
									  .pointer = (void **) &slots};

	udb_shmem_register(&desc);
	RegisterResourceReleaseCallback(release_callback, NULL);
	udb_on_prepared_end(prepared_ended);
}

/* ---- waiting ---- */

void
udb_reactor_wait_begin(const text *registry)
{
	ConditionVariablePrepareToSleep(&slots[udb_database_slot()].groups[group_of(registry)]);
}

bool
udb_reactor_wait(const text *registry, TimestampTz deadline)
{
	static uint32 wait_event = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now >= deadline)
		return false;
	/* a catalog snapshot would pin the vacuum horizon */
	InvalidateCatalogSnapshot();
	(void) ConditionVariableTimedSleep(&slots[udb_database_slot()].groups[group_of(registry)],
									   Min((deadline - now) / 1000 + 1, INT_MAX),
									   udb_wait_event(&wait_event, "UdbWaitForRegistry"));
	return true;
}

void
udb_reactor_wait_end(void)
{
	ConditionVariableCancelSleep();
}

/* ---- jobs of the worker ---- */

TimestampTz
udb_reactor_notify_due(void)
{
	if (!udb_notify || pg_atomic_read_u32(&slots[udb_database_slot()].notify_pending) == 0)
		return DT_NOEND;
	return notify_again;
}

/* One empty notification for all that has changed since the last. */
int64
udb_reactor_notify_run(void)
{
	WakeSlot   *area = &slots[udb_database_slot()];
	uint64		changes;

	pg_atomic_write_u32(&area->notify_pending, 0);
	pg_memory_barrier();
	changes = pg_atomic_read_u64(&area->changes);
	notifying = 0;
	if (changes != notified && udb_notify)
	{
		Async_Notify(CHANNEL, "");
		notifying = changes;
	}
	return 0;
}

void
udb_reactor_notify_committed(void)
{
	if (notifying == 0)
		return;
	notified = notifying;
	notify_again = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), udb_notify_interval);
}

TimestampTz
udb_reactor_sweep_due(void)
{
	if (pg_atomic_read_u32(&slots[udb_database_slot()].sweep_pending) == 0)
		return DT_NOEND;
	return sweep_again;
}

/* One call of a handler. */
int64
udb_reactor_sweep_run(void)
{
	static SPIPlanPtr plan = NULL;
	WakeSlot   *area = &slots[udb_database_slot()];
	UdbSpi		spi;
	bool		isnull;
	int64		changed;

	pg_atomic_write_u32(&area->sweep_pending, 0);
	pg_memory_barrier();
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan, "SELECT udb.sweep_registries()", 0, NULL, NULL, NULL,
						   SPI_OK_SELECT);
	changed =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	udb_spi_end(&spi);

	/* more of it is done at once, but not more often than that when it comes anew */
	if (changed == 0)
		sweep_again = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), udb_notify_interval);
	return changed;
}
