/*-------------------------------------------------------------------------
 *
 * guc.h
 *	  Settings of udb.  Each variable's meaning is told in guc.c.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_GUC_H
#define UDB_GUC_H

#include "postgres.h"

extern int	udb_max_databases;
extern int	udb_max_consumers;
extern int	udb_max_leases;
extern int	udb_max_queues;
extern bool udb_worker_enabled;
extern int	udb_worker_interval;
extern int	udb_sweep_outbox_segments_interval;
extern int	udb_sweep_outbox_retention_interval;
extern int	udb_sweep_dead_events_interval;
extern int	udb_sweep_jobs_interval;
extern int	udb_sweep_sagas_interval;
extern int	udb_sweep_registries_interval;
extern int	udb_sweep_projection_tasks_interval;
extern int	udb_projection_stale_after;
extern int	udb_sweep_schedules_interval;
extern bool udb_notify;
extern int	udb_notify_interval;
extern int	udb_outbox_segment_size;
extern int	udb_outbox_retention;
extern int	udb_outbox_max_payload;
extern int	udb_saga_stale_after;
extern int	udb_saga_poison_threshold;
extern bool udb_report_token;
extern int	udb_fence_timeout;
extern bool udb_replay_hook;
extern int	udb_registry_cache;

extern void udb_guc_init(void);

#endif							/* UDB_GUC_H */
