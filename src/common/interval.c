/*-------------------------------------------------------------------------
 *
 * interval.c
 *	  Interval arguments as durations.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/int.h"

#include "common/interval.h"

/* a thousand years: a deadline that far away still is a timestamp */
#define MAX_DURATION_USECS (INT64CONST(1000) * 365 * USECS_PER_DAY)

int64
udb_interval_usecs(const Interval *interval, const char *argument)
{
	int64		days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	int64		usecs;

	/* an infinite interval of PostgreSQL 17 overflows here, as it should */
	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &usecs) ||
		pg_add_s64_overflow(usecs, interval->time, &usecs) ||
		usecs > MAX_DURATION_USECS)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"%s\" is out of range", argument)));
	if (usecs < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must not be negative", argument)));
	return usecs;
}
