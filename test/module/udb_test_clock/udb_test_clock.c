/*-------------------------------------------------------------------------
 *
 * udb_test_clock.c
 *	  A clock that tests can set, for all sessions of a server at once.
 *
 * Must be in shared_preload_libraries, as what it adds to the readings is in
 * shared memory.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "common/clock.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

typedef struct TestClock
{
	pg_atomic_uint64 elapsed;	/* microseconds that did not really go by */
	pg_atomic_uint64 step;		/* how much the time of day was set, as int64 */
} TestClock;

static TestClock *test_clock = NULL;
static shmem_request_hook_type prev_request = NULL;
static shmem_startup_hook_type prev_startup = NULL;

static void
read_test_clock(UdbClockReading *reading)
{
	int64		elapsed = (int64) pg_atomic_read_u64(&test_clock->elapsed);

	reading->elapsed += elapsed;
	reading->wall += elapsed + (int64) pg_atomic_read_u64(&test_clock->step);
}

static void
request(void)
{
	if (prev_request)
		prev_request();
	RequestAddinShmemSpace(sizeof(TestClock));
}

static void
startup(void)
{
	bool		found;

	if (prev_startup)
		prev_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	test_clock = ShmemInitStruct("udb test clock", sizeof(TestClock), &found);
	if (!found)
	{
		pg_atomic_init_u64(&test_clock->elapsed, 0);
		pg_atomic_init_u64(&test_clock->step, 0);
	}
	LWLockRelease(AddinShmemInitLock);
	*find_rendezvous_variable(UDB_CLOCK_VARIABLE) = (void *) read_test_clock;
}

void
_PG_init(void)
{
	prev_request = shmem_request_hook;
	shmem_request_hook = request;
	prev_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
}

static int64
interval_usecs(Interval *interval)
{
	return interval->time + (int64) interval->day * USECS_PER_DAY;
}

PG_FUNCTION_INFO_V1(test_clock_elapse);

Datum
test_clock_elapse(PG_FUNCTION_ARGS)
{
	pg_atomic_fetch_add_u64(&test_clock->elapsed, interval_usecs(PG_GETARG_INTERVAL_P(0)));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(test_clock_step);

Datum
test_clock_step(PG_FUNCTION_ARGS)
{
	pg_atomic_fetch_add_u64(&test_clock->step, interval_usecs(PG_GETARG_INTERVAL_P(0)));
	PG_RETURN_VOID();
}
