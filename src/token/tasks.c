/*-------------------------------------------------------------------------
 *
 * tasks.c
 *	  Waiting for projection tasks to end.
 *
 * A session that waits for some tasks sleeps on one of them that is pending.
 * When a transaction that has ended this one commits, it is woken, looks at all
 * of them again, and sleeps on another one if there still is one.
 *
 *	Waiter:		publish the task in its slot, barrier, look, sleep.
 *	Committer:	become visible, barrier, look at the slots; clear and wake.
 *
 * Of the two that write and then look, one must see the other, so no wake-up is
 * lost.  What ends a task without passing the trigger of the table (a session
 * with session_replication_role = replica, the apply worker of logical
 * replication) is noticed by looking again now and then.
 *
 * On a standby nobody commits: tasks end by replay, which knows nothing of
 * tasks.  There a session looks again when replay has moved, which it asks for
 * every few milliseconds.
 *
 * Terms: a task has ended when it is COMPLETED, FAILED, DEAD_LETTER or gone.
 *
 * Locking: none.  A slot is set by its owner, and cleared by it or by whoever
 * wakes it.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"

#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/shmem.h"
#include "common/spi.h"
#include "token/tasks.h"
#include "token/waiter.h"

/* how long to trust in being woken, in milliseconds */
#define LOOK_AGAIN_MS 1000

/* how often to ask how far replay is, and to look for it waiting for us */
#define REPLAY_MS 10
#define CONFLICT_MS 50

typedef struct TaskWaiter
{
	pg_atomic_uint64 key;		/* of the task slept on; 0: woken, or not waiting */
	Oid			dboid;			/* where it waits; InvalidOid: it does not */
} TaskWaiter;

typedef struct TaskWaiterArea
{
	pg_atomic_uint32 nwaiters;	/* of all databases */
	int			nslots;
	TaskWaiter	slots[FLEXIBLE_ARRAY_MEMBER];	/* by proc number */
} TaskWaiterArea;

static TaskWaiterArea *area = NULL;

static Size
tasks_size(void)
{
	return add_size(offsetof(TaskWaiterArea, slots), mul_size(sizeof(TaskWaiter), MaxBackends));
}

static void
tasks_area_init(void *ptr)
{
	TaskWaiterArea *a = ptr;

	pg_atomic_init_u32(&a->nwaiters, 0);
	a->nslots = MaxBackends;
	for (int i = 0; i < a->nslots; i++)
		pg_atomic_init_u64(&a->slots[i].key, 0);
}

void
udb_tasks_init(void)
{
	static const UdbShmemArea desc = {.name = "udb task waiters",
									  .size = tasks_size,
									  .init = tasks_area_init,
									  .pointer = (void **) &area};

	udb_shmem_register(&desc);
}

uint64
udb_tasks_key(const pg_uuid_t *task_id)
{
	uint64		key = hash_bytes_extended(task_id->data, UUID_LEN, MyDatabaseId);

	return key != 0 ? key : 1;
}

void
udb_tasks_ended(uint64 key)
{
	pg_memory_barrier();
	if (likely(pg_atomic_read_u32(&area->nwaiters) == 0))
		return;
	for (int i = 0; i < area->nslots; i++)
	{
		TaskWaiter *slot = &area->slots[i];
		uint64		waits = pg_atomic_read_u64(&slot->key);

		if (waits == 0)
			continue;
		if (key != 0 ? waits != key : *(volatile Oid *) &slot->dboid != MyDatabaseId)
			continue;
		/* whoever has changed it meanwhile has looked, or will, for itself */
		if (pg_atomic_compare_exchange_u64(&slot->key, &waits, 0))
			SetLatch(&ProcGlobal->allProcs[i].procLatch);
	}
}

/*
 * The worst of the tasks, with a sentence about it, and the key of one that is
 * pending.  They may end at any time, hence a new snapshot each time.
 */
static UdbTasksState
look(ArrayType *ids, uint64 *key, char **detail)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTARRAYOID};
	MemoryContext context = CurrentMemoryContext;
	UdbTasksState state = UDB_TASKS_DONE;
	Datum		values[1];
	UdbSpi		spi;

	values[0] = PointerGetDatum(ids);
	udb_spi_begin(&spi);
	if (udb_spi_execute(
			&plan,
			"SELECT i.id, t.status, t.task_id, t.status IN ('PENDING', 'IN_PROGRESS')"
			" FROM pg_catalog.unnest($1) i(id) LEFT JOIN LATERAL ("
			"  SELECT p.task_id, p.status FROM udb.projection_tasks p WHERE p.idempotency_key = i.id"
			"  UNION ALL"
			"  SELECT p.task_id, p.status FROM udb.projection_tasks p WHERE p.task_id = CASE WHEN i.id ~"
			"   '^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$' THEN i.id::pg_catalog.uuid END"
			"  LIMIT 1) t ON true"
			" WHERE t.status IS DISTINCT FROM 'COMPLETED'"
			" ORDER BY CASE t.status WHEN 'FAILED' THEN 4 WHEN 'PENDING' THEN 3"
			"  WHEN 'IN_PROGRESS' THEN 3 WHEN 'DEAD_LETTER' THEN 2 ELSE 1 END, i.id COLLATE \"C\" LIMIT 1",
			1, types, values, NULL, SPI_OK_SELECT) > 0)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		char	   *id = SPI_getvalue(row, desc, 1);
		char	   *status = SPI_getvalue(row, desc, 2);
		MemoryContext oldcontext;
		bool		isnull;
		Datum		task_id;

		task_id = SPI_getbinval(row, desc, 3, &isnull);
		if (!isnull)
			*key = udb_tasks_key(DatumGetUUIDP(task_id));
		state = UDB_TASKS_MISSING;
		if (status != NULL && DatumGetBool(SPI_getbinval(row, desc, 4, &isnull)))
			state = UDB_TASKS_PENDING;
		oldcontext = MemoryContextSwitchTo(context);
		if (status == NULL)
			*detail = psprintf("Projection task \"%s\" does not exist.", id);
		else
			*detail = psprintf("Projection task \"%s\" is %s.", id, status);
		MemoryContextSwitchTo(oldcontext);
	}
	udb_spi_end(&spi);
	return state;
}

static void
start_waiting(void)
{
	area->slots[udb_my_procno()].dboid = MyDatabaseId;
	pg_atomic_fetch_add_u32(&area->nwaiters, 1);
}

/* Leave, however the wait ends. */
static void
stop_waiting(int code, Datum arg)
{
	TaskWaiter *slot = &area->slots[udb_my_procno()];

	if (!OidIsValid(slot->dboid))
		return;
	pg_atomic_write_u64(&slot->key, 0);
	slot->dboid = InvalidOid;
	pg_atomic_fetch_sub_u32(&area->nwaiters, 1);
}

static int64
elapsed(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/*
 * Sleep until there is a reason to look again, or the time is over.  "replayed"
 * is where replay was before the last look.
 */
static void
sleep_on_task(instr_time start, int64 timeout, XLogRecPtr replayed)
{
	static uint32 wait_event = 0;
	TaskWaiter *slot = &area->slots[udb_my_procno()];
	int64		slept = elapsed(start);
	int64		look_again = slept + (int64) LOOK_AGAIN_MS * 1000;
	int64		next_check = slept + CONFLICT_MS * 1000;
	int			conflicts = 0;

	while (pg_atomic_read_u64(&slot->key) != 0 && slept < Min(timeout, look_again))
	{
		bool		standby = RecoveryInProgress();
		int64		left = Min(timeout, look_again) - slept;

		if (standby && slept >= next_check)
		{
			/* replay may wait for this very query, whose snapshot is in its way */
			udb_waiter_check_conflict(true, &conflicts);
			next_check = slept + CONFLICT_MS * 1000;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) Min((left + 999) / 1000, standby ? REPLAY_MS : LOOK_AGAIN_MS),
						 udb_wait_event(&wait_event, "UdbFenceProjection"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		slept = elapsed(start);
		/* after the sleep, or a busy replay would keep us busy, too */
		if (standby && GetXLogReplayRecPtr(NULL) != replayed)
			break;
	}
}

UdbTasksState
udb_tasks_wait(ArrayType *ids, int64 timeout, char **detail)
{
	UdbTasksState state;
	instr_time	start;
	uint64		key = 0;

	INSTR_TIME_SET_CURRENT(start);
	state = look(ids, &key, detail);
	if (state != UDB_TASKS_PENDING || timeout <= 0)
		return state;

	PG_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	{
		TaskWaiter *slot = &area->slots[udb_my_procno()];

		start_waiting();
		do
		{
			XLogRecPtr	replayed = InvalidXLogRecPtr;
			uint64		published = key;

			if (RecoveryInProgress())
				replayed = GetXLogReplayRecPtr(NULL);
			pg_atomic_write_u64(&slot->key, published);
			pg_memory_barrier();
			state = look(ids, &key, detail);
			if (state != UDB_TASKS_PENDING)
				break;
			/* it has ended meanwhile, and another one is the worst now */
			if (key != published)
				continue;
			UDB_DEBUG_POINT("fence-projection");
			sleep_on_task(start, timeout, replayed);
		} while (elapsed(start) < timeout);
		if (state == UDB_TASKS_PENDING)
			state = look(ids, &key, detail);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	stop_waiting(0, (Datum) 0);
	return state;
}
