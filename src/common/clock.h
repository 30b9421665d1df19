/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock that leases go by: it never goes back.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_CLOCK_H
#define UDB_CLOCK_H

#include "postgres.h"
#include "datatype/timestamp.h"

/* What the machine's clocks say. */
typedef struct UdbClockReading
{
	TimestampTz wall;			/* time of day; can be set, forth and back */
	int64		elapsed;		/* microseconds since some fixed point */
} UdbClockReading;

/*
 * A test module can set this rendezvous variable to a function that changes
 * the readings; in production it costs one load and a branch.
 */
#define UDB_CLOCK_VARIABLE "udb_clock"

typedef void (*UdbClockHook) (UdbClockReading *reading);

/* Call while being preloaded. */
extern void udb_clock_init(void);

/*
 * The time by this server's clock.  Within the life of the server it is never
 * less than what was returned to anybody before.  Takes a spinlock.
 */
extern TimestampTz udb_clock_now(void);

#endif							/* UDB_CLOCK_H */
