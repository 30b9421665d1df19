/*-------------------------------------------------------------------------
 *
 * status.h
 *	  What a worker's jobs have done, for the view udb.worker_status.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_WORKER_STATUS_H
#define UDB_WORKER_STATUS_H

#include "postgres.h"
#include "datatype/timestamp.h"

/* bytes of an error's message that are kept, and the zero after them */
#define UDB_STATUS_ERROR_LEN 256

/* Call while being preloaded. */
extern void udb_status_init(void);

/*
 * For the worker of the database in this slot.  What is there is kept if it is
 * about the same extension of the same database, and else forgotten.
 */
extern void udb_status_attach(int slot, Oid extension);

/* A run of job number i starts, inside its first transaction. */
extern void udb_status_started(int i, TimestampTz start);

/* One of the run's transactions has committed. */
extern void udb_status_committed(int i, TimestampTz start, int64 changed);

/* The run is over; the message is NULL unless an error has ended it. */
extern void udb_status_ended(int i, TimestampTz start, const char *error);

/* When it shall run next, DT_NOEND if only when it is due. */
extern void udb_status_next(int i, TimestampTz next);

#endif							/* UDB_WORKER_STATUS_H */
