/*-------------------------------------------------------------------------
 *
 * status.c
 *	  What a worker's jobs have done, for the view udb.worker_status.
 *
 * It is kept in shared memory, a row for each job in each database slot, so
 * that it outlives the worker, and telling costs no transaction.  It is about
 * one extension in one database: who finds the row of another one, as after
 * DROP and CREATE EXTENSION, takes it as never written.
 *
 * A run is all the transactions of a job until it has nothing left to do.
 *
 * Locking: the area's lock.  Only the worker of a slot writes there, and it
 * does so a few times for each run.
 *
 * Durability: none, a server that starts has not run anything yet.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "commands/extension.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "common/database.h"
#include "common/guc.h"
#include "common/shmem.h"
#include "worker/status.h"
#include "worker/worker.h"

#define Natts_status 12

typedef struct JobStatus
{
	int64		runs;			/* started, failed ones too */
	TimestampTz last_run;		/* start of the last one; 0: there was none */
	int64		last_duration;	/* microseconds; -1: it has not ended */
	int64		last_changed;
	int64		total_changed;
	int32		failures;		/* in a row */
	TimestampTz last_error_at;	/* 0: there was none */
	char		last_error[UDB_STATUS_ERROR_LEN];
	TimestampTz next_run;
} JobStatus;

typedef struct DatabaseStatus
{
	Oid			dboid;
	Oid			extension;
} DatabaseStatus;

typedef struct StatusArea
{
	LWLock		lock;
	DatabaseStatus databases[FLEXIBLE_ARRAY_MEMBER];
} StatusArea;

static StatusArea *area = NULL;

/* of the slot that this worker has attached to, -1: none yet */
static int	my_slot = -1;

static int
number_of_jobs(void)
{
	int			njobs;

	(void) udb_sweeps(&njobs);
	return njobs;
}

/* Those of all slots are behind the databases. */
static JobStatus *
jobs_of_slot(int slot)
{
	char	   *jobs = (char *) area +
		MAXALIGN(offsetof(StatusArea, databases) + sizeof(DatabaseStatus) * udb_max_databases);

	return (JobStatus *) jobs + (Size) slot * number_of_jobs();
}

static Size
status_size(void)
{
	Size		size = add_size(offsetof(StatusArea, databases),
						 mul_size(sizeof(DatabaseStatus), udb_max_databases));

	return add_size(MAXALIGN(size),
					mul_size(sizeof(JobStatus), mul_size(number_of_jobs(), udb_max_databases)));
}

static void
status_area_init(void *ptr)
{
	LWLockInitialize(&((StatusArea *) ptr)->lock, udb_lwlock_tranche());
}

void
udb_status_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb worker status",
		.size = status_size,
		.init = status_area_init,
		.pointer = (void **) &area};

	udb_shmem_register(&desc);
}

void
udb_status_attach(int slot, Oid extension)
{
	DatabaseStatus *db = &area->databases[slot];

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	if (db->dboid != MyDatabaseId || db->extension != extension)
	{
		memset(jobs_of_slot(slot), 0, sizeof(JobStatus) * number_of_jobs());
		db->dboid = MyDatabaseId;
		db->extension = extension;
	}
	LWLockRelease(&area->lock);
	my_slot = slot;
}

/*
 * The row of a job, with the lock.  NULL if the run that began at "start" is
 * one that has been forgotten meanwhile, because the extension is another.
 */
static JobStatus *
lock_job(int i, TimestampTz start)
{
	JobStatus  *job = &jobs_of_slot(my_slot)[i];

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	return job->last_run == start ? job : NULL;
}

void
udb_status_started(int i, TimestampTz start)
{
	JobStatus  *job = &jobs_of_slot(my_slot)[i];

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	job->runs++;
	job->last_run = start;
	job->last_duration = -1;
	job->last_changed = 0;
	LWLockRelease(&area->lock);
}

void
udb_status_committed(int i, TimestampTz start, int64 changed)
{
	JobStatus  *job = lock_job(i, start);

	if (job != NULL)
	{
		job->last_changed += changed;
		job->total_changed += changed;
	}
	LWLockRelease(&area->lock);
}

void
udb_status_ended(int i, TimestampTz start, const char *error)
{
	TimestampTz now = GetCurrentTimestamp();
	JobStatus  *job;

	/* it may have failed before it could look for the extension */
	if (my_slot < 0)
		return;
	job = lock_job(i, start);
	if (job != NULL)
		job->last_duration = Max(now - start, 0);
	if (error != NULL)
	{
		int			len = pg_mbcliplen(error, strlen(error), UDB_STATUS_ERROR_LEN - 1);

		job = &jobs_of_slot(my_slot)[i];
		memcpy(job->last_error, error, len);
		job->last_error[len] = '\0';
		job->last_error_at = now;
		job->failures++;
	}
	else if (job != NULL)
		job->failures = 0;
	LWLockRelease(&area->lock);
}

void
udb_status_next(int i, TimestampTz next)
{
	JobStatus  *job;

	if (my_slot < 0)
		return;
	job = &jobs_of_slot(my_slot)[i];
	/* nobody else writes it */
	if (job->next_run == next)
		return;
	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	job->next_run = next;
	LWLockRelease(&area->lock);
}

/* The values of a row after the first, for a job that was tried at least once. */
static void
job_values(const JobStatus *job, Datum *values, bool *nulls)
{
	Interval   *duration = palloc0(sizeof(Interval));

	duration->time = job->last_duration;
	values[1] = Int64GetDatum(job->runs);
	values[2] = TimestampTzGetDatum(job->last_run);
	values[3] = IntervalPGetDatum(duration);
	values[4] = Int64GetDatum(job->last_changed);
	values[5] = Int64GetDatum(job->total_changed);
	values[6] = Int32GetDatum(job->failures);
	values[7] = CStringGetTextDatum(job->last_error);
	values[8] = TimestampTzGetDatum(job->last_error_at);
	values[9] = TimestampTzGetDatum(job->next_run);
	nulls[2] = nulls[4] = job->last_run == 0;
	nulls[3] = job->last_run == 0 || job->last_duration < 0;
	nulls[7] = nulls[8] = job->last_error_at == 0;
	nulls[9] = job->next_run == 0 || job->next_run == DT_NOEND;
}

UDB_FUNCTION(udb_worker_status);

/* _worker_status() returns SETOF record: rows of udb.worker_status */
Datum
udb_worker_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			slot = udb_database_find(MyDatabaseId);
	Oid			extension = get_extension_oid(UDB_NAME, true);
	int			njobs;
	UdbJob	   *jobs = udb_sweeps(&njobs);
	JobStatus  *copies = palloc0(sizeof(JobStatus) * njobs);
	UdbDatabase db = {.worker_pid = 0};

	if (slot >= 0 && (!udb_database_get(slot, &db) || db.dboid != MyDatabaseId))
		slot = -1;
	if (slot >= 0)
	{
		LWLockAcquire(&area->lock, LW_SHARED);
		if (area->databases[slot].dboid == MyDatabaseId &&
			area->databases[slot].extension == extension)
			memcpy(copies, jobs_of_slot(slot), sizeof(JobStatus) * njobs);
		LWLockRelease(&area->lock);
	}
	else
		db.worker_pid = 0;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < njobs; i++)
	{
		Datum		values[Natts_status];
		bool		nulls[Natts_status] = {false};

		values[0] = CStringGetTextDatum(jobs[i].name);
		job_values(&copies[i], values, nulls);
		values[10] = Int32GetDatum(db.worker_pid);
		values[11] = TimestampTzGetDatum(db.worker_started_at);
		if (db.worker_pid == 0)
			nulls[9] = nulls[10] = nulls[11] = true;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
