/*-------------------------------------------------------------------------
 *
 * sweeps.c
 *	  The jobs of a database worker.
 *
 * Each does its work through a function that can be called from SQL too; what
 * is here decides when.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "commands/async.h"
#include "utils/timestamp.h"

#include "common/guc.h"
#include "outbox/horizon.h"
#include "outbox/retention.h"
#include "outbox/segment.h"
#include "outbox/state.h"
#include "saga/runner.h"
#include "reactor/wake.h"
#include "queue/schedule.h"
#include "worker/worker.h"

#define NOTIFY_CHANNEL "udb_outbox"

/* this database's outbox; the worker attaches before it runs jobs */
static UdbOutbox *outbox = NULL;

/* the horizon that listeners know about, and when they may be told again */
static uint64 notified = 0;
static uint64 notifying = 0;	/* in the transaction that is under way */
static TimestampTz notify_again = 0;

static TimestampTz
notify_due(void)
{
	if (outbox == NULL || !udb_notify || pg_atomic_read_u32(&outbox->notify_pending) == 0)
		return DT_NOEND;
	return notify_again;
}

/* One empty notification for all that has become readable since the last. */
static int64
notify_run(void)
{
	static Oid	generation = InvalidOid;
	uint64		horizon;

	outbox = udb_outbox();
	if (generation != udb_outbox_generation())
	{
		generation = udb_outbox_generation();
		notified = 0;
	}
	notifying = 0;
	pg_atomic_write_u32(&outbox->notify_pending, 0);
	pg_memory_barrier();
	horizon = udb_horizon(outbox);
	/* lower than before after DROP and CREATE EXTENSION */
	if (horizon != notified && udb_notify)
	{
		Async_Notify(NOTIFY_CHANNEL, "");
		notifying = horizon;
		return 1;
	}
	return 0;
}

static void
notify_committed(void)
{
	if (notifying == 0)
		return;
	notified = notifying;
	notify_again = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), udb_notify_interval);
}

static TimestampTz
segments_due(void)
{
	if (outbox == NULL || pg_atomic_read_u64(&outbox->segment_wanted) == 0)
		return DT_NOEND;
	return 0;
}

static int64
segments_run(void)
{
	outbox = udb_outbox();
	return udb_segments_create_ahead(outbox);
}

static void
segments_committed(void)
{
	udb_segments_created(outbox);
}

/* One segment a transaction, as the locks are held until its end. */
static int64
retention_run(void)
{
	outbox = udb_outbox();
	return udb_retention_apply(outbox, 1);
}

static int64
dead_run(void)
{
	return (int64) udb_retention_settle();
}

UdbJob *
udb_sweeps(int *njobs)
{
	static UdbJob jobs[] = {
		{.name = "outbox segments", .interval = &udb_sweep_outbox_segments_interval, .run = segments_run, .committed = segments_committed, .due = segments_due},
		{.name = "outbox notify", .interval = &udb_worker_interval, .run = notify_run, .once = true, .committed = notify_committed, .due = notify_due},
		{.name = "outbox retention", .interval = &udb_sweep_outbox_retention_interval, .run = retention_run},
		{.name = "dead events", .interval = &udb_sweep_dead_events_interval, .run = dead_run, .once = true},
		{.name = "jobs", .interval = &udb_sweep_jobs_interval, .sql = "SELECT udb.sweep_jobs()"},
		{.name = "sagas", .interval = &udb_sweep_sagas_interval, .run = udb_sagas_run, .due = udb_sagas_due},
		{.name = "registry notify", .interval = &udb_worker_interval, .run = udb_reactor_notify_run, .once = true, .committed = udb_reactor_notify_committed, .due = udb_reactor_notify_due},
		{.name = "registries", .interval = &udb_sweep_registries_interval, .run = udb_reactor_sweep_run, .due = udb_reactor_sweep_due},
		{.name = "projection tasks", .interval = &udb_sweep_projection_tasks_interval, .sql = "SELECT udb.sweep_projection_tasks()"},
		{.name = "schedules", .interval = &udb_sweep_schedules_interval, .run = udb_schedules_run, .committed = udb_schedules_committed, .due = udb_schedules_due},
	};

	*njobs = lengthof(jobs);
	return jobs;
}
