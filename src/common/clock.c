/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The clock that leases go by: it never goes back.
 *
 * The time of day can be set.  If it is set back, a lease that has expired and
 * gone to somebody else would seem not to have expired, and a renewal would
 * shorten what it should extend; if it is set forth, leases end before the time
 * that their owners were promised.  So this clock goes at the rate of the
 * machine's monotonic clock, and follows the time of day: at once as long as
 * they are close, and after a step of the time of day slowly, by going a
 * little too fast or too slow until they meet.
 *
 * Terms: a step is a difference between both of more than STEP_USECS.
 *
 * Durability: after a restart, or a crash, the clock starts with the time of
 * day.  Who stores times must cope with stored ones in the future.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <time.h>

#include "storage/spin.h"
#include "utils/timestamp.h"

#include "common/clock.h"
#include "common/shmem.h"

/* How far the time of day may be away and still be taken as it is. */
#define STEP_USECS INT64CONST(250000)

/* After a step the clock goes one part in so many too fast or too slow. */
#define SLEW 64

typedef struct ClockArea
{
	slock_t		mutex;
	TimestampTz now;			/* 0: not read yet */
	int64		elapsed;		/* the monotonic clock at that time */
} ClockArea;

static ClockArea *area = NULL;
static void **hook = NULL;

static Size
clock_size(void)
{
	return sizeof(ClockArea);
}

static void
clock_area_init(void *ptr)
{
	SpinLockInit(&((ClockArea *) ptr)->mutex);
}

void
udb_clock_init(void)
{
	static const UdbShmemArea desc = {.name = "udb clock",
									  .size = clock_size,
									  .init = clock_area_init,
									  .pointer = (void **) &area};

	hook = find_rendezvous_variable(UDB_CLOCK_VARIABLE);
	udb_shmem_register(&desc);
}

static void
read_clocks(UdbClockReading *reading)
{
	struct timespec ts;

	(void) clock_gettime(CLOCK_MONOTONIC, &ts);
	reading->elapsed = (int64) ts.tv_sec * USECS_PER_SEC + ts.tv_nsec / 1000;
	reading->wall = GetCurrentTimestamp();
	if (unlikely(*hook != NULL))
		((UdbClockHook) *hook)(reading);
}

/* What follows "now" after some microseconds, if the time of day is "wall". */
static TimestampTz
advance(TimestampTz now, int64 usecs, TimestampTz wall)
{
	TimestampTz expected = now + usecs;
	int64		ahead = wall - expected;

	if (ahead >= -STEP_USECS && ahead <= STEP_USECS)
		return Max(now, wall);
	return ahead > 0 ? Min(expected + usecs / SLEW, wall) : Max(expected - usecs / SLEW, wall);
}

TimestampTz
udb_clock_now(void)
{
	UdbClockReading reading;
	TimestampTz now;

	read_clocks(&reading);
	SpinLockAcquire(&area->mutex);
	if (area->now == 0)
	{
		area->now = reading.wall;
		area->elapsed = reading.elapsed;
	}
	else if (reading.elapsed > area->elapsed)
	{
		area->now = advance(area->now, reading.elapsed - area->elapsed, reading.wall);
		area->elapsed = reading.elapsed;
	}
	now = area->now;
	SpinLockRelease(&area->mutex);
	return now;
}
