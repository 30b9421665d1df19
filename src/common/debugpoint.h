/*-------------------------------------------------------------------------
 *
 * debugpoint.h
 *	  Named places at which a test can stop a backend.
 *
 * The hook is a rendezvous variable that only the test module sets; in
 * production a point costs one load and a branch.  Idea: TimescaleDB's
 * DEBUG_WAITPOINT; PostgreSQL 17's injection points need a special build.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_DEBUGPOINT_H
#define UDB_DEBUGPOINT_H

#include "postgres.h"

#define UDB_DEBUG_POINT_VARIABLE "udb_debug_point"

typedef void (*UdbDebugPointHook) (const char *name);

/* address of the hook; set by udb_debug_point_init() */
extern void **udb_debug_point_hook;

extern void udb_debug_point_init(void);

/* Not where an LWLock or spinlock is held, nor in a commit callback. */
#define UDB_DEBUG_POINT(name) \
	do \
	{ \
		if (unlikely(*udb_debug_point_hook != NULL)) \
			((UdbDebugPointHook) *udb_debug_point_hook)(name); \
	} while (0)

#endif							/* UDB_DEBUGPOINT_H */
