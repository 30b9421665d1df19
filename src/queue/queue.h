/*-------------------------------------------------------------------------
 *
 * queue.h
 *	  The job queue's entry for _PG_init, and what its functions share.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_H
#define UDB_QUEUE_H

#include "postgres.h"
#include "fmgr.h"

/* Call while being preloaded. */
extern void udb_queue_init(void);

/* Throw 22004 if the argument is NULL. */
extern void udb_queue_not_null(FunctionCallInfo fcinfo, int argno, const char *name);

/* Throw 25006 where jobs cannot be written. */
extern void udb_queue_check_writable(const char *function);

/* The same on a standby, where none can be claimed; a read-only transaction is fine. */
extern void udb_queue_check_served(const char *function);

#endif							/* UDB_QUEUE_H */
