/*-------------------------------------------------------------------------
 *
 * udb_test.c
 *	  Stops a backend at a named point of udb, for the tests.
 *
 * The backend takes and releases an advisory lock there, so that another
 * session stops it by holding that lock, and whoever looks at pg_locks sees
 * that it waits.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/resowner.h"

#include "common/debugpoint.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(udb_test_pause_at);
PG_FUNCTION_INFO_V1(udb_test_no_pause);
PG_FUNCTION_INFO_V1(udb_test_hold_notify);

static char pause_point[NAMEDATALEN];
static int64 pause_lock;
static int	pause_after;		/* let it pass so many times before */

static void
wait_for_lock(bool session)
{
	LOCKTAG		tag;

	/* the same tag as pg_advisory_lock(bigint) */
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (pause_lock >> 32), (uint32) pause_lock, 1);
	(void) LockAcquire(&tag, ExclusiveLock, session, false);
	LockRelease(&tag, ExclusiveLock, session);
}

static void
pause_here(const char *name)
{
	if (strcmp(name, pause_point) == 0 && pause_after-- <= 0)
		wait_for_lock(false);
}

/*
 * The point "committed": udb's commit callbacks have run, but the invalidation
 * messages have not been sent.  See CommitTransaction().
 */
static void
pause_at_release(ResourceReleasePhase phase, bool commit, bool top, void *arg)
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS && commit && top &&
		strcmp(pause_point, "committed") == 0)
		wait_for_lock(true);
}

static void
set_hook(UdbDebugPointHook hook)
{
	*find_rendezvous_variable(UDB_DEBUG_POINT_VARIABLE) = (void *) hook;
}

/* pause_at(point text, lock bigint, after integer) returns void: in this session */
Datum
udb_test_pause_at(PG_FUNCTION_ARGS)
{
	static bool registered = false;

	if (!registered)
		RegisterResourceReleaseCallback(pause_at_release, NULL);
	registered = true;
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(0), pause_point, sizeof(pause_point));
	pause_lock = PG_GETARG_INT64(1);
	pause_after = PG_GETARG_INT32(2);
	set_hook(pause_here);
	PG_RETURN_VOID();
}

/* no_pause() returns void */
Datum
udb_test_no_pause(PG_FUNCTION_ARGS)
{
	pause_point[0] = '\0';
	set_hook(NULL);
	PG_RETURN_VOID();
}

/*
 * hold_notify() returns void: until the end of this transaction, every other
 * one that has used NOTIFY stops in its COMMIT, after the pre-commit callbacks
 * and before its commit record.  This is the lock of PreCommit_Notify().
 */
Datum
udb_test_hold_notify(PG_FUNCTION_ARGS)
{
	LockSharedObject(DatabaseRelationId, InvalidOid, 0, AccessExclusiveLock);
	PG_RETURN_VOID();
}
