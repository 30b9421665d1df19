/*-------------------------------------------------------------------------
 *
 * interval.h
 *	  Interval arguments as durations.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_INTERVAL_H
#define UDB_INTERVAL_H

#include "postgres.h"
#include "datatype/timestamp.h"

/*
 * Microseconds of an interval, a month taken as 30 days.  Throws, naming the
 * argument, if it is negative, infinite or too long to count.
 */
extern int64 udb_interval_usecs(const Interval *interval, const char *argument);

#endif							/* UDB_INTERVAL_H */
