/*-------------------------------------------------------------------------
 *
 * cron.h
 *	  When a schedule fires: "@every 5m", or five fields as in crontab.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_CRON_H
#define UDB_CRON_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "pgtime.h"

typedef struct UdbCron
{
	int64		every;			/* microseconds; 0: the fields count */

	/* sets of values, a bit each */
	uint64		minutes;
	uint32		hours;
	uint32		days;			/* of the month */
	uint32		months;
	uint32		weekdays;		/* 0 is Sunday */
	bool		either_day;		/* days and weekdays are both restricted: one is enough */
} UdbCron;

/* Throws 22023, naming the field, for what is not a spec. */
extern void udb_cron_parse(const char *spec, UdbCron *cron);

/* Throws 22023 unless the name is that of a time zone. */
extern pg_tz *udb_cron_time_zone(const char *name);

/*
 * The first firing after a time; "@every" counts from "anchor".  Throws 22023
 * if there is none, as on the 30th of February, and 22008 if it is out of range.
 */
extern TimestampTz udb_cron_next(const UdbCron *cron, const pg_tz *tz, TimestampTz after,
								 TimestampTz anchor);

#endif							/* UDB_CRON_H */
