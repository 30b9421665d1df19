/*-------------------------------------------------------------------------
 *
 * wake.h
 *	  Who is woken when a registry has changed, or something was announced.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_REACTOR_WAKE_H
#define UDB_REACTOR_WAKE_H

#include "postgres.h"
#include "datatype/timestamp.h"

extern void udb_reactor_wake_init(void);

/* Call before touching: throws if this database has no slot in shared memory. */
extern void udb_reactor_wake_prepare(void);

/* When this transaction commits, wake who waits for this registry, and the worker. */
extern void udb_reactor_touch(const text *registry);

/*
 * Sleep until a transaction that has touched the registry commits, or the time
 * is over; false then.  May return true for no reason.  Call begin first, then
 * look whether there is something, then sleep; and end.
 */
extern void udb_reactor_wait_begin(const text *registry);
extern bool udb_reactor_wait(const text *registry, TimestampTz deadline);
extern void udb_reactor_wait_end(void);

/* The worker's job "registry notify", and when the job "registries" is due. */
extern TimestampTz udb_reactor_notify_due(void);
extern int64 udb_reactor_notify_run(void);
extern void udb_reactor_notify_committed(void);
extern TimestampTz udb_reactor_sweep_due(void);
extern int64 udb_reactor_sweep_run(void);

#endif							/* UDB_REACTOR_WAKE_H */
