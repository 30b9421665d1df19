/*-------------------------------------------------------------------------
 *
 * database.c
 *	  One shared-memory slot for each database that uses udb.
 *
 * Locking: the lock protects claiming and freeing of slots.  Fields about the
 * worker are single words, written by the worker, the launcher or an
 * administrator's DROP DATABASE, and read without a lock; a stale value costs
 * one superfluous wake-up, or one that the worker's own timer makes good.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/database.h"
#include "common/errors.h"
#include "common/guc.h"
#include "common/shmem.h"

typedef struct UdbDatabaseArea
{
	LWLock		lock;
	int			launcher_procno;	/* -1: no launcher is running */
	bool		new_wanted;		/* perhaps in a database the launcher does not know */
	UdbDatabase slots[FLEXIBLE_ARRAY_MEMBER];
} UdbDatabaseArea;

static UdbDatabaseArea *area = NULL;

/* this backend's slot; a backend never changes its database */
static int	my_slot = -1;

static Size
database_size(void)
{
	return add_size(offsetof(UdbDatabaseArea, slots),
					mul_size(sizeof(UdbDatabase), udb_max_databases));
}

static void
database_init(void *ptr)
{
	UdbDatabaseArea *a = ptr;

	LWLockInitialize(&a->lock, udb_lwlock_tranche());
	a->launcher_procno = -1;
}

void
udb_database_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb databases",
		.size = database_size,
		.init = database_init,
		.pointer = (void **) &area};

	udb_shmem_register(&desc);
}

/* Find dboid's slot, or claim a free one.  Caller holds the lock exclusively. */
static int
claim_slot(Oid dboid)
{
	int			free_slot = -1;

	for (int i = 0; i < udb_max_databases; i++)
	{
		if (area->slots[i].dboid == dboid)
			return i;
		if (free_slot < 0 && !OidIsValid(area->slots[i].dboid))
			free_slot = i;
	}
	if (free_slot >= 0)
	{
		memset(&area->slots[free_slot], 0, sizeof(UdbDatabase));
		area->slots[free_slot].dboid = dboid;
	}
	return free_slot;
}

/* Free the slots of databases that are gone. */
static void
free_dropped(void)
{
	for (int i = 0; i < udb_max_databases; i++)
	{
		Oid			dboid = area->slots[i].dboid;

		/* the catalog lookup may do I/O, so not under the lock */
		if (!OidIsValid(dboid) ||
			SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(dboid)))
			continue;
		LWLockAcquire(&area->lock, LW_EXCLUSIVE);
		if (area->slots[i].dboid == dboid && area->slots[i].worker_pid == 0)
			area->slots[i].dboid = InvalidOid;
		LWLockRelease(&area->lock);
	}
}

int
udb_database_slot(void)
{
	if (likely(my_slot >= 0))
		return my_slot;

	for (int attempt = 0; attempt < 2 && my_slot < 0; attempt++)
	{
		if (attempt > 0)
			free_dropped();
		LWLockAcquire(&area->lock, LW_EXCLUSIVE);
		my_slot = claim_slot(MyDatabaseId);
		LWLockRelease(&area->lock);
	}
	if (my_slot < 0)
		ereport(ERROR,
				(errcode(udb_errcode(TOO_MANY_DATABASES)),
				 errmsg("cannot use udb in more than %d databases of this cluster",
						udb_max_databases),
				 errhint("Raise udb.max_databases and restart the server.")));
	if (area->slots[my_slot].worker_pid == 0)
		udb_database_want_worker(my_slot, true);
	return my_slot;
}

bool
udb_database_get(int slot, UdbDatabase *copy)
{
	LWLockAcquire(&area->lock, LW_SHARED);
	*copy = area->slots[slot];
	LWLockRelease(&area->lock);
	return OidIsValid(copy->dboid);
}

int
udb_database_find(Oid dboid)
{
	int			found = -1;

	LWLockAcquire(&area->lock, LW_SHARED);
	for (int i = 0; i < udb_max_databases && found < 0; i++)
		if (area->slots[i].dboid == dboid)
			found = i;
	LWLockRelease(&area->lock);
	return found;
}

void
udb_database_wake_worker(int slot)
{
	volatile UdbDatabase *db = &area->slots[slot];

	if (db->worker_pid != 0)
		SetLatch(&ProcGlobal->allProcs[db->worker_procno].procLatch);
	else
		udb_database_wake_launcher();
}

bool
udb_database_has_worker(int slot)
{
	return ((volatile UdbDatabase *) &area->slots[slot])->worker_pid != 0;
}

bool
udb_database_worker_started(int slot)
{
	UdbDatabase *db = &area->slots[slot];
	bool		welcome;

	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	welcome = db->worker_pid == 0;
	if (welcome)
	{
		db->worker_procno = udb_my_procno();
		db->worker_started_at = GetCurrentTimestamp();
		pg_write_barrier();
		db->worker_pid = MyProcPid;
		db->worker_wanted = false;
		db->worker_expected = true;
		welcome = GetCurrentTimestamp() >= db->worker_hold_until;
	}
	LWLockRelease(&area->lock);
	return welcome;
}

void
udb_database_worker_stopped(int slot)
{
	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	if (area->slots[slot].worker_pid == MyProcPid)
		area->slots[slot].worker_pid = 0;
	LWLockRelease(&area->lock);
}

/* The worker leaves because it is not needed, or could not be started. */
void
udb_database_worker_finished(int slot)
{
	area->slots[slot].worker_expected = false;
}

void
udb_database_want_worker(int slot, bool wanted)
{
	area->slots[slot].worker_wanted = wanted;
	if (wanted)
	{
		area->new_wanted = true;
		udb_database_wake_launcher();
	}
}

void
udb_database_hold_worker(int slot, TimestampTz until)
{
	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	area->slots[slot].worker_hold_until = until;
	LWLockRelease(&area->lock);
}

/* Whether a worker was asked for since this was called last. */
bool
udb_database_new_wanted(void)
{
	bool		wanted = area->new_wanted;

	area->new_wanted = false;
	return wanted;
}

void
udb_database_launcher_started(void)
{
	area->launcher_procno = udb_my_procno();
}

void
udb_database_launcher_stopped(void)
{
	area->launcher_procno = -1;
}

void
udb_database_wake_launcher(void)
{
	int			procno = *(volatile int *) &area->launcher_procno;

	if (procno >= 0)
		SetLatch(&ProcGlobal->allProcs[procno].procLatch);
}
