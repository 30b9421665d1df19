/*-------------------------------------------------------------------------
 *
 * loop.c
 *	  The one loop of a worker: signals, latch, transactions, errors.
 *
 * Jobs do the work and know nothing of this; nobody else waits on the latch.
 *
 * Times are multiples of a job's interval after the start of the worker, so that
 * jobs with the same interval share one wake-up, and workers that have started
 * at different times do not all wake at once.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/backoff.h"
#include "common/compat.h"
#include "common/guc.h"
#include "common/spi.h"
#include "worker/status.h"
#include "worker/worker.h"

#define MAX_BACKOFF_MS (5 * 60 * 1000)

/* A job that is a function in SQL. */
static int64
run_sql(UdbJob *job)
{
	UdbSpi		spi;
	int64		changed;
	bool		isnull;

	udb_spi_begin(&spi);
	(void) udb_spi_execute(&job->plan, job->sql, 0, NULL, NULL, NULL, SPI_OK_SELECT);
	changed =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	udb_spi_end(&spi);
	return changed;
}

/* when the loop was entered */
static TimestampTz loop_started = 0;

/* When a job shall run again, if nothing makes it due before. */
static TimestampTz
next_time(const UdbJob *job)
{
	int			seconds = *job->interval < 0 ? udb_worker_interval : *job->interval;
	int64		usecs = (int64) seconds * USECS_PER_SEC;
	TimestampTz now = GetCurrentTimestamp();

	if (seconds == 0)
		return DT_NOEND;
	/* the clock may have been set back */
	if (now < loop_started)
		loop_started = now;
	return loop_started + ((now - loop_started) / usecs + 1) * usecs;
}

/*
 * Run a job in a transaction, which starts a run or goes on with it.  Returns
 * false if the worker has no more reason to live; *changed is what the job
 * returned.
 */
static bool
run_once(UdbJob *job, int i, bool (*alive)(void), int64 *changed)
{
	bool		live;

	*changed = 0;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, job->name);
	live = alive();
	if (live)
	{
		if (job->running == 0)
		{
			job->running = GetCurrentTimestamp();
			udb_status_started(i, job->running);
		}
		*changed = job->sql != NULL ? run_sql(job) : job->run();
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	if (live && job->committed != NULL)
		job->committed();
	return live;
}

/* Run one transaction of a job; errors are logged and counted. */
static bool
run_job(UdbJob *job, int i, bool (*alive)(void))
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool live = true;

	PG_TRY();
	{
		int64		changed;

		live = run_once(job, i, alive, &changed);
		if (live)
			udb_status_committed(i, job->running, changed);
		job->failures = 0;
		if (changed == 0 || job->once)
		{
			if (live)
				udb_status_ended(i, job->running, NULL);
			job->running = 0;
		}
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		errcontext("udb worker job \"%s\"", job->name);
		EmitErrorReport();
		error = CopyErrorData();
		AbortCurrentTransaction();
		FlushErrorState();
		job->failures++;
		udb_status_ended(i, job->running, error->message ? error->message : "missing error text");
		job->running = 0;
		job->not_before =
			TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
										udb_backoff_ms(job->failures, MAX_BACKOFF_MS));
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	job->next = job->failures > 0 ? job->not_before : next_time(job);
	udb_status_next(i, job->next);
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return live;
}

/* When a job shall run next. */
static TimestampTz
job_time(UdbJob *job)
{
	TimestampTz due;

	/* it has not finished what it had to do */
	if (job->running != 0)
		return 0;
	due = job->due != NULL ? job->due() : DT_NOEND;
	return Min(job->next, Max(due, job->not_before));
}

/* The intervals may be others than when the jobs ran. */
static void
reschedule(UdbJob *jobs, int njobs)
{
	for (int i = 0; i < njobs; i++)
	{
		if (jobs[i].failures > 0)
			continue;
		jobs[i].next = next_time(&jobs[i]);
		udb_status_next(i, jobs[i].next);
	}
}

void
udb_worker_loop(UdbJob *jobs, int njobs, bool (*alive)(void))
{
	static uint32 wait_event = 0;
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "udb worker loop",
												  ALLOCSET_DEFAULT_SIZES);

	loop_started = GetCurrentTimestamp();
	while (udb_worker_enabled)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz wake =
			TimestampTzPlusMilliseconds(now, (int64) udb_worker_interval * 1000);

		/* one transaction each, so that none has to wait for all that another one finds to do */
		for (int i = 0; i < njobs; i++)
		{
			UdbJob	   *job = &jobs[i];

			if (GetCurrentTimestamp() >= job_time(job))
			{
				MemoryContextSwitchTo(context);
				if (!run_job(job, i, alive))
					return;
				MemoryContextReset(context);
			}
			wake = Min(wake, job_time(job));
		}

		now = GetCurrentTimestamp();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 wake == 0 ? 0 : Max(TimestampDifferenceMilliseconds(now, wake), 1),
						 udb_wait_event(&wait_event, "UdbWorkerMain"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			reschedule(jobs, njobs);
		}
	}
}
