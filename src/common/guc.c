/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  Settings of udb: all are defined here, once, while being preloaded, but
 *	  for those that have hooks, which are with what the hooks work on.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <limits.h>

#include "utils/guc.h"

#include "common/guc.h"

/* How many databases of the cluster may use udb; sizes shared memory. */
int			udb_max_databases = 16;

/*
 * For how many consumers, over all databases, shared memory remembers where
 * to find their row and how far a topic filter has been scanned.  Consumers
 * beyond that work, only slower.
 */
int			udb_max_consumers = 256;

/*
 * For how many leases, over all databases, shared memory remembers where to
 * find their row.  Leases beyond that work, only slower.
 */
int			udb_max_leases = 8192;

/*
 * For how many queues, over all databases, shared memory remembers where claims
 * begin.  Queues beyond that work, only slower.
 */
int			udb_max_queues = 256;

/*
 * Whether background workers run.  Off is for the administrator who must rule
 * them out as the cause of something; enqueue and read go on working.
 */
bool		udb_worker_enabled = true;

/* How often a database worker looks for work that nobody woke it for. */
int			udb_worker_interval = 10;

/* The same for one sweep; -1 is udb.worker_interval, 0 is only when due. */
int			udb_sweep_outbox_segments_interval = -1;
int			udb_sweep_outbox_retention_interval = -1;
int			udb_sweep_dead_events_interval = -1;
int			udb_sweep_jobs_interval = -1;
int			udb_sweep_sagas_interval = -1;
int			udb_sweep_registries_interval = -1;
int			udb_sweep_projection_tasks_interval = -1;
int			udb_sweep_schedules_interval = -1;

/* Whether the worker sends NOTIFY udb_outbox, and how often at most. */
bool		udb_notify = true;
int			udb_notify_interval = 100;

/* Positions in a new segment. */
int			udb_outbox_segment_size = 1000000;

/* Age at which a segment that every consumer has passed is dropped. */
int			udb_outbox_retention = 7 * 24 * 60 * 60;

/* Largest payload, uncompressed; protects readers more than the writer. */
int			udb_outbox_max_payload = 16 * 1024;

/* After how long without a change a saga in progress is indeterminate. */
int			udb_saga_stale_after = 5 * 60;

/* Failed attempts to compensate a saga before it is left to people. */
int			udb_saga_poison_threshold = 5;
/* Age at which a projection task in progress is taken from who has claimed it. */
int			udb_projection_stale_after = 5 * 60;

/* Whether each commit's token is sent to the client as udb.last_token. */
bool		udb_report_token = false;

/* How long SET udb.fence waits, in milliseconds; -1 for ever, 0 not at all. */
int			udb_fence_timeout = 5000;

/*
 * Whether the startup process is made to wake sessions that wait for replay,
 * by wrapping the functions that apply WAL.  Off is for the administrator who
 * must rule it out as the cause of something; fences go on working, slower.
 */
bool		udb_replay_hook = true;

/*
 * Memory in which a session keeps the records that resolve() has read, in
 * kilobytes; 0 keeps none.
 */
int			udb_registry_cache = 16 * 1024;

/* How often a sweep runs when nothing makes it due. */
static void
define_interval(const char *name, int *seconds, const char *description)
{
	DefineCustomIntVariable(name, description,
							"-1 is udb.worker_interval; 0 runs it only when it is known to have work.",
							seconds, -1, -1, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
}

void
udb_guc_init(void)
{
	DefineCustomIntVariable("udb.max_databases",
							"Sets how many databases of this cluster can use udb.",
							NULL, &udb_max_databases, 16, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.max_consumers",
							"Sets for how many consumers read positions are cached in shared memory.",
							"Consumers beyond this number work, but scan more.",
							&udb_max_consumers, 256, 8, 100000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.max_leases",
							"Sets for how many leases shared memory remembers where their row is.",
							"Leases beyond this number work, but are looked up in the index.",
							&udb_max_leases, 8192, 64, 10000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.max_queues",
							"Sets for how many queues of jobs shared memory remembers where claims begin.",
							"Queues beyond this number work, but are looked through from the front.",
							&udb_max_queues, 256, 8, 100000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("udb.worker",
							 "Runs background workers.",
							 NULL, &udb_worker_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.worker_interval",
							"Sets how often a database worker looks for work unasked.",
							NULL, &udb_worker_interval, 10, 1, 3600,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	define_interval("udb.sweep_outbox_segments_interval", &udb_sweep_outbox_segments_interval,
					"Sets how often the worker looks for segments to make ahead.");
	define_interval("udb.sweep_outbox_retention_interval", &udb_sweep_outbox_retention_interval,
					"Sets how often the worker looks for segments to drop.");
	define_interval("udb.sweep_dead_events_interval", &udb_sweep_dead_events_interval,
					"Sets how often the worker drops parked events that have been handled.");
	define_interval("udb.sweep_jobs_interval", &udb_sweep_jobs_interval,
					"Sets how often the worker looks for claims that ran out and jobs that expire.");
	define_interval("udb.sweep_sagas_interval", &udb_sweep_sagas_interval,
					"Sets how often the worker looks for stale sagas and those that it compensates.");
	define_interval("udb.sweep_registries_interval", &udb_sweep_registries_interval,
					"Sets how often the worker looks for changes of registries that handlers have missed.");
	define_interval("udb.sweep_projection_tasks_interval", &udb_sweep_projection_tasks_interval,
					"Sets how often the worker looks for projection tasks in progress that are stale.");
	define_interval("udb.sweep_schedules_interval", &udb_sweep_schedules_interval,
					"Sets how often the worker looks for schedules that are due.");
	DefineCustomBoolVariable("udb.notify",
							 "Sends NOTIFY udb_outbox when new events can be read.",
							 NULL, &udb_notify, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.notify_interval",
							"Sets the shortest time between two notifications.",
							NULL, &udb_notify_interval, 100, 1, 60000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.outbox_segment_size",
							"Sets the number of positions in a new outbox segment.",
							NULL, &udb_outbox_segment_size, 1000000, 100, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.outbox_retention",
							"Sets the age at which outbox segments that all consumers have passed are dropped.",
							"-1 keeps events for ever.",
							&udb_outbox_retention, 7 * 24 * 60 * 60, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.outbox_max_payload",
							"Sets the largest payload that can be enqueued.",
							NULL, &udb_outbox_max_payload, 16 * 1024, 1, 128 * 1024,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.saga_stale_after",
							"Sets the time without a change after which a saga in progress is indeterminate.",
							"0 leaves them in progress for ever.",
							&udb_saga_stale_after, 5 * 60, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.saga_poison_threshold",
							"Sets after how many failed attempts to compensate a saga it is left to people.",
							NULL, &udb_saga_poison_threshold, 5, 1, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.projection_stale_after",
							"Sets the age at which a projection task in progress can be claimed again.",
							"-1 leaves that to reset_stale_projection_tasks().",
							&udb_projection_stale_after, 5 * 60, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomBoolVariable("udb.report_token",
							 "Sends the token of each commit to the client, as udb.last_token.",
							 NULL, &udb_report_token, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.fence_timeout",
							"Sets how long SET udb.fence waits at most.",
							"-1 waits without limit, 0 only looks.",
							&udb_fence_timeout, 5000, -1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("udb.replay_hook",
							 "Runs code in replay that wakes the sessions that wait for it.",
							 "When off, they look for themselves every few milliseconds.",
							 &udb_replay_hook, true,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("udb.registry_cache",
							"Sets how much memory a session uses to keep records of registries.",
							"0 keeps none: resolve() then reads each record when it is asked for.",
							&udb_registry_cache, 16 * 1024, 0, 1024 * 1024,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);
	MarkGUCPrefixReserved("udb");
}
