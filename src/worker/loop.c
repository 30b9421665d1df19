/*-------------------------------------------------------------------------
 *
 * loop.c
 *	  The one loop of a worker: signals, latch, transactions, errors.
 *
 * Jobs do the work and know nothing of this; nobody else waits on the latch.
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

/* When a job that has run shall run again, if nothing makes it due before. */
static TimestampTz
next_time(const UdbJob *job)
{
	int			seconds = *job->interval < 0 ? udb_worker_interval : *job->interval;

	if (seconds == 0)
		return DT_NOEND;
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), (int64) seconds * 1000);
}

/*
 * Run a job in a transaction.  Returns false if the worker has no more reason
 * to live; *changed is what the job returned.
 */
static bool
run_once(UdbJob *job, bool (*alive)(void), int64 *changed)
{
	bool		live;

	*changed = 0;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, job->name);
	live = alive();
	if (live)
		*changed = job->sql != NULL ? run_sql(job) : job->run();
	PopActiveSnapshot();
	CommitTransactionCommand();
	if (live && job->committed != NULL)
		job->committed();
	return live;
}

/* Run a job until it has nothing more to do; errors are logged and counted. */
static bool
run_job(UdbJob *job, bool (*alive)(void))
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool live = true;
	volatile int64 changed = 1;

	while (live && changed != 0 && !ShutdownRequestPending)
	{
		CHECK_FOR_INTERRUPTS();
		PG_TRY();
		{
			int64		n;

			live = run_once(job, alive, &n);
			changed = n;
			job->failures = 0;
			job->next = next_time(job);
		}
		PG_CATCH();
		{
			HOLD_INTERRUPTS();
			MemoryContextSwitchTo(context);
			errcontext("udb worker job \"%s\"", job->name);
			EmitErrorReport();
			AbortCurrentTransaction();
			FlushErrorState();
			changed = 0;
			job->failures++;
			job->not_before =
				TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
											udb_backoff_ms(job->failures, MAX_BACKOFF_MS));
			job->next = job->not_before;
			RESUME_INTERRUPTS();
		}
		PG_END_TRY();
	}
	MemoryContextSwitchTo(context);
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return live;
}

/* When a job shall run next. */
static TimestampTz
job_time(UdbJob *job)
{
	TimestampTz due = job->due != NULL ? job->due() : DT_NOEND;

	return Min(job->next, Max(due, job->not_before));
}

void
udb_worker_loop(UdbJob *jobs, int njobs, bool (*alive)(void))
{
	static uint32 wait_event = 0;
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "udb worker loop",
												  ALLOCSET_DEFAULT_SIZES);

	while (udb_worker_enabled)
	{
		TimestampTz wake = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													   (int64) udb_worker_interval * 1000);

		for (int i = 0; i < njobs; i++)
		{
			UdbJob	   *job = &jobs[i];

			if (GetCurrentTimestamp() >= job_time(job))
			{
				MemoryContextSwitchTo(context);
				if (!run_job(job, alive))
					return;
				MemoryContextReset(context);
			}
			wake = Min(wake, job_time(job));
		}

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), wake), 1),
						 udb_wait_event(&wait_event, "UdbWorkerMain"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}
