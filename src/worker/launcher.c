/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The launcher: starts a worker in each database that has the extension.
 *
 * It is connected to no database, so it cannot know where the extension is.
 * At its start it sends a worker into every database, one after the other;
 * those that find no extension leave.  Later it is told: claiming a database
 * slot, which CREATE EXTENSION does at commit, asks for a worker.
 *
 * Workers are never restarted by the postmaster but by the launcher, which
 * waits longer after each failure.  If max_worker_processes does not allow for
 * all of them, databases are served in turn.  The launcher itself is restarted by the
 * postmaster, and starts at the end of recovery, so that a standby has none.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/backoff.h"
#include "common/compat.h"
#include "common/database.h"
#include "common/guc.h"
#include "worker/worker.h"

#define SCAN_INTERVAL_MS 60000 /* look for new databases this often */
#define PROBE_INTERVAL_MS 100  /* while a worker is starting */
#define MAX_BACKOFF_MS (5 * 60 * 1000)
#define STARTING_MS 5000	   /* this long others wait for one that is starting */
#define NO_SLOT_RETRY_MS 30000 /* when max_worker_processes is reached */
#define TURN_MS 20000		   /* what a worker has at least, when others wait */
#define RECENT_SCAN_MS 1000	   /* what was seen then still exists, mostly */

/* a worker that lived this long has not failed to start */
#define LONG_LIFE_MS 60000

/* What the launcher knows about a database. */
typedef struct LauncherEntry
{
	Oid			dboid;			/* hash key */
	BackgroundWorkerHandle *handle;	/* NULL: none is running */
	TimestampTz started;
	TimestampTz not_before;
	int			failures;		/* short lives in a row */
	bool		probed;			/* a worker has been there */
	bool		seen;			/* in pg_database */
} LauncherEntry;

static HTAB *entries = NULL;

/* max_worker_processes is reached: when to try again */
static TimestampTz no_slot_until = 0;

/* last look at pg_database, and whether another one is due before its time */
static TimestampTz scanned = 0;
static bool scan_again = false;

/* Bring the entries in line with pg_database. */
static void
scan_databases(void)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	HASH_SEQ_STATUS status;
	LauncherEntry *entry;

	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
		entry->seen = false;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database db = (Form_pg_database) GETSTRUCT(tuple);
		bool		found;

		/* a worker in a template would be in the way of CREATE DATABASE */
		if (!db->datallowconn || db->datistemplate)
			continue;
		entry = hash_search(entries, &db->oid, HASH_ENTER, &found);
		if (!found)
			memset((char *) entry + sizeof(Oid), 0, sizeof(LauncherEntry) - sizeof(Oid));
		entry->seen = true;
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);

	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (!entry->seen && entry->handle == NULL)
			(void) hash_search(entries, &entry->dboid, HASH_REMOVE, NULL);
	scanned = GetCurrentTimestamp();
	scan_again = false;
}

/* Notice that a worker has gone. */
static void
reap(LauncherEntry *entry, const UdbDatabase *db)
{
	TimestampTz now = GetCurrentTimestamp();
	pid_t		pid;

	if (entry->handle == NULL ||
		GetBackgroundWorkerPid(entry->handle, &pid) != BGWH_STOPPED)
		return;
	pfree(entry->handle);
	entry->handle = NULL;
	entry->probed = true;

	/* there may be room for another one */
	no_slot_until = 0;
	if (db == NULL || !db->worker_expected || db->worker_left)
	{
		/* it left by itself */
		entry->failures = 0;
		entry->not_before = 0;
		return;
	}
	if (TimestampDifferenceExceeds(entry->started, now, LONG_LIFE_MS))
		entry->failures = 0;
	entry->failures++;
	entry->not_before =
		TimestampTzPlusMilliseconds(now, udb_backoff_ms(entry->failures, MAX_BACKOFF_MS));
}

/* Start a worker.  False if there is no room for one. */
static bool
start(LauncherEntry *entry)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "udb worker for database %u", entry->dboid);
	snprintf(worker.bgw_type, BGW_MAXLEN, "udb worker");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), UDB_NAME);
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "udb_database_worker_main");
	worker.bgw_main_arg = ObjectIdGetDatum(entry->dboid);
	worker.bgw_notify_pid = MyProcPid;

	if (!RegisterDynamicBackgroundWorker(&worker, &entry->handle))
		return false;
	entry->started = GetCurrentTimestamp();
	return true;
}

/* The slot of a database and a copy of it, or -1. */
static int
find_slot(const LauncherEntry *entry, UdbDatabase *db)
{
	int			slot = udb_database_find(entry->dboid);

	return slot >= 0 && udb_database_get(slot, db) && db->dboid == entry->dboid ? slot : -1;
}

/*
 * There is no room for all.  Ask workers that have had their turn to leave, as
 * many as others wait.  Those are started first, as they were last longer ago.
 */
static void
take_turns(int waiting)
{
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	LauncherEntry *entry;

	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		UdbDatabase db;
		int			slot = find_slot(entry, &db);

		if (waiting > 0 && slot >= 0 && db.worker_pid != 0 &&
			TimestampDifferenceExceeds(db.worker_started_at, now, TURN_MS))
		{
			udb_database_ask_worker_to_leave(slot);
			waiting--;
		}
	}
}

static void
complain(const LauncherEntry *entry, int waiting)
{
	static TimestampTz complained = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(complained, now, NO_SLOT_RETRY_MS))
		return;
	complained = now;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a udb worker for database %u: no free background worker slot",
					entry->dboid),
			 errdetail("Databases that wait for one: %d.", waiting),
			 errhint("Increase max_worker_processes (currently %d).", max_worker_processes)));
}

/*
 * Start a worker for the entry, which has waited longest.  Returns when to come
 * again.
 */
static TimestampTz
start_next(LauncherEntry *entry, int waiting)
{
	TimestampTz now = GetCurrentTimestamp();
	UdbDatabase db;
	int			slot = find_slot(entry, &db);

	/* the last worker may have left because the database was dropped */
	if (entry->probed && TimestampDifferenceExceeds(scanned, now, RECENT_SCAN_MS))
	{
		scan_again = true;
		return now;
	}
	if (slot >= 0)
		udb_database_want_worker(slot, false);
	if (start(entry))
		return TimestampTzPlusMilliseconds(now, PROBE_INTERVAL_MS);
	if (slot >= 0)
		udb_database_worker_finished(slot);
	entry->probed = false;
	no_slot_until = TimestampTzPlusMilliseconds(now, NO_SLOT_RETRY_MS);
	complain(entry, waiting);
	take_turns(waiting);
	return no_slot_until;
}

/*
 * Reap, and start what is due, one at a time: the next one when this one has
 * said who it is, has gone, or takes too long for that.  Returns how long to
 * sleep.
 */
static long
launch(void)
{
	HASH_SEQ_STATUS status;
	LauncherEntry *entry;
	LauncherEntry *next = NULL;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz wake = TimestampTzPlusMilliseconds(now, SCAN_INTERVAL_MS);
	bool		starting = false;
	int			waiting = 0;

	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		UdbDatabase db;
		bool		known = find_slot(entry, &db) >= 0;
		bool		needed = known && (db.worker_wanted || db.worker_expected);
		TimestampTz not_before;

		reap(entry, known ? &db : NULL);
		if (entry->handle != NULL)
		{
			if ((!known || db.worker_pid == 0) &&
				!TimestampDifferenceExceeds(entry->started, now, STARTING_MS))
				starting = true;
			continue;
		}

		/* one that an earlier launcher has started; wakes this one when it leaves */
		if (known && db.worker_pid != 0)
		{
			entry->probed = true;
			continue;
		}
		if (!entry->seen || (entry->probed && !needed))
			continue;
		not_before = known ? Max(entry->not_before, db.worker_hold_until) : entry->not_before;
		if (now < not_before)
		{
			wake = Min(wake, not_before);
			continue;
		}
		waiting++;
		if (next == NULL || entry->started < next->started)
			next = entry;
	}

	if (starting)
		wake = Min(wake, TimestampTzPlusMilliseconds(now, PROBE_INTERVAL_MS));
	else if (next != NULL && now < no_slot_until)
		wake = Min(wake, no_slot_until);
	else if (next != NULL)
	{
		TimestampTz again = start_next(next, waiting);

		wake = Min(wake, again);
	}
	return TimestampDifferenceMilliseconds(now, wake);
}

static void
launcher_exit(int code, Datum arg)
{
	udb_database_launcher_stopped();
}

void
udb_launcher_main(Datum arg)
{
	static uint32 wait_event = 0;
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(LauncherEntry)};

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/* a reload between our fork and the handler above went unnoticed */
	ProcessConfigFile(PGC_SIGHUP);

	entries = hash_create("udb launcher", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "udb launcher",
												ALLOCSET_DEFAULT_SIZES));
	before_shmem_exit(launcher_exit, (Datum) 0);
	udb_database_launcher_started();

	for (;;)
	{
		long		timeout = SCAN_INTERVAL_MS;

		if (udb_worker_enabled)
		{
			if (udb_database_new_wanted() || scan_again ||
				TimestampDifferenceExceeds(scanned, GetCurrentTimestamp(), SCAN_INTERVAL_MS - 1))
				scan_databases();
			timeout = launch();
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(timeout, 1), udb_wait_event(&wait_event, "UdbLauncherMain"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

void
udb_worker_init(void)
{
	BackgroundWorker worker;

	udb_worker_hook_init();

	/* pg_upgrade wants nobody else in its databases */
	if (IsBinaryUpgrade)
		return;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "udb launcher");
	snprintf(worker.bgw_type, BGW_MAXLEN, "udb launcher");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), UDB_NAME);
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "udb_launcher_main");
	RegisterBackgroundWorker(&worker);
}
