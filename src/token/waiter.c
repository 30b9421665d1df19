/*-------------------------------------------------------------------------
 *
 * waiter.c
 *	  Sessions that wait for replay to reach a position.
 *
 * PostgreSQL has a function for this from 19 on (WaitForLSN), and nothing in
 * 15 to 18.  The condition variable that cascading replication got in 16 is
 * broadcast after each record: with some thirty sleepers on it replay is ten
 * times slower.  Here each waiter publishes its target, and the startup
 * process wakes those whose target it has reached (see replay.c).
 *
 *	Waiter:		publish its target, lower "lowest" to it, barrier,
 *				look where replay is, sleep.
 *	Startup:	apply the record, publish "redone", barrier, look at "lowest".
 *				If that is reached: raise it to NOBODY, barrier, look at each
 *				target, take away and wake the due ones, and lower it to the
 *				least of the others.
 *
 * Of the two that write and then look, one must see the other, so no wake-up
 * is lost.  A target that is published while the startup process looks at the
 * others lowers "lowest" after it was raised, so it counts at the next record;
 * and its owner looks where replay is after that.
 *
 * "redone" is ahead of PostgreSQL's own replay position for the moment until
 * that is advanced.  Only the latter comes with its timeline, so a waiter that
 * is woken in that moment looks again a few microseconds later.
 *
 * Terms: a target is an LSN; NONE in a slot is one that does not wait, and
 * TURN one that waits for another timeline or a promotion, not for an LSN.
 *
 * Locking: none.  The startup process must not depend on any session to be
 * scheduled.  A slot's other fields are for the view only and may be read torn.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/errors.h"
#include "common/shmem.h"
#include "token/replay.h"
#include "token/type.h"
#include "token/waiter.h"

#define NONE UINT64CONST(0)
#define TURN (PG_UINT64_MAX - 1)
#define NOBODY PG_UINT64_MAX

/* Longest sleeps, in microseconds. */
#define SAFETY_TICK (1000 * 1000) /* in case that the startup process cannot wake us */
#define CONFLICT_TICK (50 * 1000) /* how often to look whether this session is in the way */
#define CONFLICTS 2			/* and how often in a row it has to be */
#define FIRST_TICK 1000		/* when nobody wakes us, doubled up to: */
#define LAST_TICK 8000

/* How often, and after how many microseconds, to look again while replay settles. */
#define SETTLE_TIMES 50
#define SETTLE_USECS 20

typedef struct UdbWaiter
{
	UdbPosition position;
	TimestampTz since;
	int			pid;
} UdbWaiter;

typedef struct UdbWaiterArea
{
	/* written for each record, so on a cache line of its own */
	pg_atomic_uint64 redone;
	char		pad1[PG_CACHE_LINE_SIZE - sizeof(pg_atomic_uint64)];

	pg_atomic_uint64 lowest;	/* no target is below */
	char		pad2[PG_CACHE_LINE_SIZE - sizeof(pg_atomic_uint64)];

	uint32		run;
	bool		hooked;			/* the startup process will wake */
	int			nslots;
	pg_atomic_uint64 *targets;	/* by proc number */
	UdbWaiter  *waiters;		/* likewise */
} UdbWaiterArea;

static UdbWaiterArea *area = NULL;

static Size
waiter_size(void)
{
	Size		size = CACHELINEALIGN(sizeof(UdbWaiterArea));

	size = add_size(size, CACHELINEALIGN(mul_size(sizeof(pg_atomic_uint64), MaxBackends)));
	return add_size(size, mul_size(sizeof(UdbWaiter), MaxBackends));
}

static void
waiter_area_init(void *ptr)
{
	UdbWaiterArea *a = ptr;
	char	   *p = (char *) ptr + CACHELINEALIGN(sizeof(UdbWaiterArea));

	pg_atomic_init_u64(&a->redone, 0);
	pg_atomic_init_u64(&a->lowest, NOBODY);
	a->nslots = MaxBackends;
	a->targets = (pg_atomic_uint64 *) p;
	p += CACHELINEALIGN(sizeof(pg_atomic_uint64) * MaxBackends);
	a->waiters = (UdbWaiter *) p;
	for (int i = 0; i < a->nslots; i++)
		pg_atomic_init_u64(&a->targets[i], NONE);

	do
	{
		if (!pg_strong_random(&a->run, sizeof(a->run)))
			a->run = pg_prng_uint32(&pg_global_prng_state);
	} while (a->run == 0);

	/* the first moment at which all libraries have been loaded */
	a->hooked = udb_replay_install();
}

void
udb_waiter_init(void)
{
	static const UdbShmemArea desc = {.name = "udb waiters",
									  .size = waiter_size,
									  .init = waiter_area_init,
									  .pointer = (void **) &area};

	udb_shmem_register(&desc);
}

uint32
udb_run(void)
{
	return area->run;
}

static void
lower(uint64 target)
{
	uint64		lowest = pg_atomic_read_u64(&area->lowest);

	while (target < lowest && !pg_atomic_compare_exchange_u64(&area->lowest, &lowest, target))
		;
}

/* ---- in the startup process ------------------------------------------------ */

static void
wake(XLogRecPtr redone, bool all)
{
	uint64		lowest = NOBODY;

	pg_atomic_write_u64(&area->lowest, NOBODY);
	pg_memory_barrier();
	for (int i = 0; i < area->nslots; i++)
	{
		uint64		target = pg_atomic_read_u64(&area->targets[i]);

		if (target == NONE)
			continue;
		if (all || target <= redone)
		{
			/* whoever has changed it meanwhile has looked, or will, for itself */
			if (pg_atomic_compare_exchange_u64(&area->targets[i], &target, NONE))
				SetLatch(&ProcGlobal->allProcs[i].procLatch);
		}
		else if (target < lowest)
			lowest = target;
	}
	lower(lowest);
}

void
udb_waiter_replayed(XLogRecPtr lsn, bool all)
{
	pg_atomic_write_u64(&area->redone, lsn);
	pg_memory_barrier();
	if (unlikely(all || pg_atomic_read_u64(&area->lowest) <= lsn))
		wake(lsn, all);
}

/* ---- in the waiting session ------------------------------------------------ */

static void
stop_waiting(int code, Datum arg)
{
	/* "lowest" may stay too low, which costs one look at all slots */
	pg_atomic_write_u64(&area->targets[udb_my_procno()], NONE);
}

static void
publish(const UdbPosition *position, const UdbWhere *where)
{
	uint64		target = udb_lsn_normalize(position->lsn);

	/* beyond it already, but on another timeline: the LSN will tell nothing */
	if (where->lsn >= target)
		target = TURN;
	pg_atomic_write_u64(&area->targets[udb_my_procno()], target);
	lower(target);
	pg_memory_barrier();
}

/*
 * Whether replay waits until queries end that hold snapshots, or pages.  Only
 * the startup process ever reports these events; it is one of the auxiliary
 * processes, whose PGPROCs follow those of the backends.
 */
static bool
replay_waits_for_query(void)
{
	for (int i = 0; i < NUM_AUXILIARY_PROCS; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[MaxBackends + i];
		uint32		event = *(volatile uint32 *) &proc->wait_event_info;

		if (event == WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT || event == UDB_WAIT_BUFFER_PIN)
			return true;
	}
	return false;
}

/*
 * Whether replay waits for a lock that this session holds.  No other auxiliary
 * process waits for any.  What is read here without a lock may be about to
 * change, but is shared memory that stays.
 */
static bool
replay_waits_for_my_lock(void)
{
	for (int i = 0; i < NUM_AUXILIARY_PROCS; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[MaxBackends + i];
		LOCK	   *lock = *(LOCK *volatile *) &proc->waitLock;
		LOCKTAG		tag;

		if (lock == NULL)
			continue;
		tag = lock->tag;
		if (udb_lock_held_by_me(&tag))
			return true;
	}
	return false;
}

/* How long to sleep at most, in milliseconds; left is what remains, or -1. */
static long
sleep_time(int64 left, bool looks_out, bool settling, int64 *tick)
{
	int64		usecs = SAFETY_TICK;

	/*
	 * The startup process has its hand in only once it has applied a record,
	 * and could be told to promote before.
	 */
	if (settling)
		usecs = FIRST_TICK;
	else if (!area->hooked || pg_atomic_read_u64(&area->redone) == 0)
	{
		usecs = *tick;
		*tick = Min(*tick * 2, LAST_TICK);
	}
	if (looks_out)
		usecs = Min(usecs, CONFLICT_TICK);
	if (left != UDB_WAIT_FOREVER)
		usecs = Min(usecs, left);
	return (long) ((usecs + 999) / 1000);
}

static int64
elapsed(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Throw if replay has been waiting for this session for some time. */
static void
check_conflict(bool in_the_way, int *conflicts)
{
	bool		lock = replay_waits_for_my_lock();

	if (!lock && !(in_the_way && replay_waits_for_query()))
		*conflicts = 0;
	else if (++*conflicts < CONFLICTS)
		;
	else if (lock)
		ereport(ERROR,
				(errcode(udb_errcode(FENCE_HOLDS_SNAPSHOT)),
				 errmsg("cannot go on waiting: replay waits for a lock of this transaction"),
				 errhint("Use SET udb.fence as the first statement of a transaction, "
						 "or CALL udb.wait_for() outside of one.")));
	else
		ereport(ERROR,
				(errcode(udb_errcode(FENCE_HOLDS_SNAPSHOT)),
				 errmsg("cannot go on waiting: replay waits for queries on this standby to end"),
				 errdetail("This transaction may be one of them, since it has run a query."),
				 errhint("Use SET udb.fence as the first statement of a transaction, "
						 "or CALL udb.wait_for() outside of one.")));
}

UdbPositionState
udb_waiter_wait(const UdbPosition *position, int64 timeout, bool in_the_way, UdbWhere *where,
				int64 *waited)
{
	static uint32 wait_event = 0;
	UdbWaiter  *me = &area->waiters[udb_my_procno()];
	UdbPositionState state;
	int64		tick = FIRST_TICK;
	int			settled = 0;
	int			conflicts = 0;
	int64		next_check = CONFLICT_TICK;
	bool		looks_out = in_the_way || IsTransactionBlock();
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	*waited = 0;
	me->pid = MyProcPid;
	me->since = GetCurrentTimestamp();
	me->position = *position;

	PG_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	{
		state = udb_position_state(position, where);
		while (state == UDB_POSITION_PENDING)
		{
			bool		settling;
			int64		left = UDB_WAIT_FOREVER;

			publish(position, where);
			UDB_DEBUG_POINT("fence-published");
			state = udb_position_state(position, where);
			*waited = elapsed(start);
			if (timeout != UDB_WAIT_FOREVER)
				left = timeout - *waited;
			if (state != UDB_POSITION_PENDING || (timeout != UDB_WAIT_FOREVER && left <= 0))
				break;
			if (looks_out && *waited >= next_check)
			{
				check_conflict(in_the_way, &conflicts);
				next_check = *waited + CONFLICT_TICK;
			}
			settling = where->recovering && pg_atomic_read_u64(&area->redone) > where->lsn;

			if (settling && settled++ < SETTLE_TIMES)
			{
				pg_usleep(SETTLE_USECS);
				CHECK_FOR_INTERRUPTS();
				continue;
			}
			settled = 0;

			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 sleep_time(left, looks_out, settling, &tick),
							 udb_wait_event(&wait_event, "UdbFence"));
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			state = udb_position_state(position, where);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_waiting, (Datum) 0);
	stop_waiting(0, (Datum) 0);
	*waited = elapsed(start);
	return state;
}

UDB_FUNCTION(udb_fence_waiters);

/* _fence_waiters() returns SETOF (pid, token, since) */
Datum
udb_fence_waiters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < area->nslots; i++)
	{
		UdbWaiter	copy = area->waiters[i];
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		if (pg_atomic_read_u64(&area->targets[i]) == NONE)
			continue;
		values[0] = Int32GetDatum(copy.pid);
		values[1] = PointerGetDatum(udb_token_from_position(&copy.position));
		values[2] = TimestampTzGetDatum(copy.since);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
