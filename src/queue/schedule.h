/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Jobs that are sent at certain times.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_SCHEDULE_H
#define UDB_SCHEDULE_H

#include "postgres.h"
#include "datatype/timestamp.h"

/* Call while being preloaded. */
extern void udb_schedule_init(void);

/* For the worker, as in UdbJob: fire what is due, and know what comes next. */
extern int64 udb_schedules_run(void);
extern void udb_schedules_committed(void);
extern TimestampTz udb_schedules_due(void);

#endif							/* UDB_SCHEDULE_H */
