/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for jobs, and what a transaction tells others when it ends.
 *
 * A session that waits for jobs of a queue has that queue's key in its slot, and
 * sleeps on its latch: until a transaction that has made a job ready or delayed one
 * has committed, or one that has claimed jobs was rolled back, or until the first
 * delayed job is due or the first claim runs out.
 *
 * A transaction remembers which queues it has touched, and tells when it has ended
 * and is out of the proc array, so that who is told sees what it did.  COMMIT and
 * ROLLBACK PREPARED do not know what the transaction had touched, and tell all.
 *
 * Locking: slots are written by their owner only, without a lock.  A waiter publishes
 * its slot and then looks for jobs; who has changed something looks at the slots
 * after that.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/check.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/interval.h"
#include "common/prepared.h"
#include "common/shmem.h"
#include "queue/claim.h"
#include "queue/hint.h"
#include "queue/queue.h"
#include "queue/seq.h"
#include "queue/wait.h"

/* queues that a transaction remembers one by one */
#define MAX_TOUCHED 32

typedef struct WaitArea
{
	pg_atomic_uint32 nwaiters;
	int			nslots;
	pg_atomic_uint64 slots[FLEXIBLE_ARRAY_MEMBER];	/* by proc number; 0: does not wait */
} WaitArea;

static WaitArea *area = NULL;

typedef struct Touched
{
	UdbQueueId	id;
	bool		ready;			/* who waits has to look when it commits */
	bool		claimed;		/* ... when it is rolled back */
	TimestampTz due;			/* of a job that it has delayed; DT_NOEND: none */
} Touched;

/* by this transaction */
static Touched touched[MAX_TOUCHED];
static int	ntouched = 0;
static bool touched_more = false;
static int64 floor_seq = PG_INT64_MAX;

static Size
wait_size(void)
{
	return add_size(offsetof(WaitArea, slots), mul_size(sizeof(pg_atomic_uint64), MaxBackends));
}

static void
wait_area_init(void *ptr)
{
	WaitArea   *a = ptr;

	pg_atomic_init_u32(&a->nwaiters, 0);
	a->nslots = MaxBackends;
	for (int i = 0; i < a->nslots; i++)
		pg_atomic_init_u64(&a->slots[i], 0);
}

UdbQueueId
udb_queue_id(Relation jobs, const text *queue)
{
	UdbQueueId	id;

	id.key = udb_queue_key(jobs, VARDATA_ANY(queue), VARSIZE_ANY_EXHDR(queue));
	id.wait_key = hash_bytes_extended((const unsigned char *) VARDATA_ANY(queue),
									  VARSIZE_ANY_EXHDR(queue), MyDatabaseId);
	if (id.wait_key == 0)
		id.wait_key = 1;
	return id;
}

static Touched *
touch(UdbQueueId id)
{
	Touched	   *t;

	for (int i = ntouched - 1; i >= 0; i--)
		if (touched[i].id.key == id.key)
			return &touched[i];
	if (ntouched == MAX_TOUCHED)
	{
		touched_more = true;
		return NULL;
	}
	t = &touched[ntouched];
	t->id = id;
	t->ready = false;
	t->claimed = false;
	t->due = DT_NOEND;
	ntouched++;
	return t;
}

void
udb_queue_touch_ready(UdbQueueId id)
{
	Touched	   *t = touch(id);

	if (t != NULL)
		t->ready = true;
}

void
udb_queue_touch_due(UdbQueueId id, TimestampTz due)
{
	Touched	   *t = touch(id);

	if (t != NULL)
		t->due = Min(t->due, due);
}

TimestampTz
udb_queue_touched_due(UdbQueueId id)
{
	if (touched_more)
		return DT_NOBEGIN;
	for (int i = 0; i < ntouched; i++)
		if (touched[i].id.key == id.key)
			return touched[i].due;
	return DT_NOEND;
}

void
udb_queue_touch_claimed(UdbQueueId id)
{
	Touched	   *t = touch(id);

	if (t != NULL)
		t->claimed = true;
}

void
udb_queue_touch_place(int64 ready_seq)
{
	floor_seq = Min(floor_seq, ready_seq);
}

int64
udb_queue_floor(void)
{
	return floor_seq;
}

/* Wake who waits for this queue, or for any if the key is 0. */
static void
wake(uint64 wait_key)
{
	for (int i = 0; i < area->nslots; i++)
	{
		uint64		waits_for = pg_atomic_read_u64(&area->slots[i]);

		if (waits_for != 0 && (wait_key == 0 || waits_for == wait_key))
			SetLatch(&ProcGlobal->allProcs[i].procLatch);
	}
}

/* Neither throws nor allocates. */
static void
tell(bool committed)
{
	if (committed)
	{
		/* before anybody is woken to look for it */
		for (int i = 0; i < ntouched; i++)
			if (touched[i].due != DT_NOEND)
				udb_queue_hint_due(touched[i].id.key, touched[i].due);
		if (touched_more)
			udb_queue_hint_all_due();
	}
	else
	{
		/* claims that it took over have run out again, and jobs that it made ready are delayed */
		for (int i = 0; i < ntouched; i++)
		{
			udb_queue_hint_claim(touched[i].id.key, DT_NOBEGIN);
			udb_queue_hint_due(touched[i].id.key, DT_NOBEGIN);
		}
		if (touched_more)
			udb_queue_hint_all_due();
	}
	pg_memory_barrier();
	if (pg_atomic_read_u32(&area->nwaiters) == 0)
		return;
	if (touched_more)
		wake(0);
	for (int i = 0; i < ntouched && !touched_more; i++)
		if (committed ? touched[i].ready || touched[i].due != DT_NOEND :
						touched[i].claimed || touched[i].ready)
			wake(touched[i].id.wait_key);
}

static void
forget(void)
{
	ntouched = 0;
	touched_more = false;
	floor_seq = PG_INT64_MAX;
	udb_job_seq_xact_end();
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (ntouched > 0)
				tell(true);
			forget();
			break;
		case XACT_EVENT_ABORT:
			if (ntouched > 0)
				tell(false);
			forget();
			break;
		case XACT_EVENT_PREPARE:
			forget();
			break;
		default:
			break;
	}
}

/* What it has claimed is free again; what else it did still may be there. */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && ntouched > 0)
		tell(false);
}

static void
prepared_ended(bool committed)
{
	udb_queue_hint_all_due();
	pg_memory_barrier();
	wake(0);
}

void
udb_queue_wait_init(void)
{
	static const UdbShmemArea desc = {.name = "udb job waiters",
									  .size = wait_size,
									  .init = wait_area_init,
									  .pointer = (void **) &area};

	udb_shmem_register(&desc);
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
	udb_on_prepared_end(prepared_ended);
}

static void
start_waiting(const text *queue)
{
	uint64		key = hash_bytes_extended((const unsigned char *) VARDATA_ANY(queue),
									 VARSIZE_ANY_EXHDR(queue), MyDatabaseId);

	pg_atomic_write_u64(&area->slots[udb_my_procno()], key != 0 ? key : 1);
	pg_atomic_fetch_add_u32(&area->nwaiters, 1);
	pg_memory_barrier();
}

/* Leave, however the wait ends. */
static void
stop_waiting(int code, Datum arg)
{
	pg_atomic_uint64 *slot = &area->slots[udb_my_procno()];

	if (pg_atomic_exchange_u64(slot, 0) != 0)
		pg_atomic_fetch_sub_u32(&area->nwaiters, 1);
}

/* Sleep until woken, but not beyond that time, nor for longer than WaitLatch() can. */
static void
sleep_until(TimestampTz until)
{
	static uint32 wait_event = 0;
	TimestampTz now = GetCurrentTimestamp();
	int64		usecs = until > now ? Min(until, now + USECS_PER_DAY) - now : 0;

	/* a catalog snapshot would pin the vacuum horizon */
	InvalidateCatalogSnapshot();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, usecs / 1000 + 1,
					 udb_wait_event(&wait_event, "UdbWaitForJobs"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static bool
look_until(const text *queue, TimestampTz deadline)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "udb wait", ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(context);
	bool		ready;

	for (;;)
	{
		TimestampTz next;

		ready = udb_queue_has_jobs(queue, &next);
		MemoryContextReset(context);
		if (ready || GetCurrentTimestamp() >= deadline)
			break;
		UDB_DEBUG_POINT("no-jobs");
		sleep_until(Min(next, deadline));
	}
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);
	return ready;
}

static bool
wait_for_jobs(const text *queue, int64 usecs)
{
	bool		ready;

	PG_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	{
		start_waiting(queue);
		ready = look_until(queue, GetCurrentTimestamp() + usecs);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	stop_waiting(0, (Datum) 0);
	return ready;
}

/* The arguments of both: queue, timeout, store; the queue as a copy. */
static text *
arguments(FunctionCallInfo fcinfo, int store, const char *function, int64 *usecs)
{
	text	   *queue = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_P_COPY(0);

	udb_check_store(PG_ARGISNULL(store) ? NULL : PG_GETARG_TEXT_PP(store));
	udb_check_name("queue", queue, 255);
	udb_queue_not_null(fcinfo, 1, "timeout");
	*usecs = udb_interval_usecs(PG_GETARG_INTERVAL_P(1), "timeout");
	udb_queue_check_served(function);
	return queue;
}

UDB_FUNCTION(udb_wait_for_jobs);

/* wait_for_jobs(queue, timeout, store) returns boolean */
Datum
udb_wait_for_jobs(PG_FUNCTION_ARGS)
{
	int64		usecs;
	text	   *queue = arguments(fcinfo, 2, "wait_for_jobs()", &usecs);

	PG_RETURN_BOOL(wait_for_jobs(queue, usecs));
}

UDB_FUNCTION(udb_await_jobs);

/* CALL await_jobs(queue, timeout, INOUT ready, store) */
Datum
udb_await_jobs(PG_FUNCTION_ARGS)
{
	int64		usecs;
	text	   *queue;
	TupleDesc	desc;
	Datum		values[1];
	bool		nulls[1] = {false};

	queue = arguments(fcinfo, 3, "await_jobs()", &usecs);
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("await_jobs() cannot run inside a transaction block or a function"),
				 errhint("For short waits use wait_for_jobs().")));

	/* now, as the procedure may be dropped during the wait */
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);

	/* ends the transaction, and with it the snapshot that CALL holds */
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	SPI_commit();

	/* whoever claims after this has a new snapshot, whatever the session's default is */
	XactIsoLevel = XACT_READ_COMMITTED;
	values[0] = BoolGetDatum(wait_for_jobs(queue, usecs));
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
