/*-------------------------------------------------------------------------
 *
 * replay.c
 *	  Being told by the startup process what it has applied.
 *
 * PostgreSQL 15 to 18 have no hook for this.  But ApplyWalRecord calls
 * GetRmgr(rmid).rm_redo through the exported, writable array RmgrTable, so the
 * functions in it can be wrapped before the startup process is forked.  That
 * is not supported by anybody: the wrapper is a few lines, chains to what it
 * has found, and udb.replay_hook = off leaves the array alone; waiting
 * sessions then look for themselves every few milliseconds.
 *
 * When a resource manager's redo function returns, its record is applied: for
 * a commit pg_xact, the known-assigned xids, invalidations and locks are done
 * in xact_redo.  A change of timeline comes with one of two records of the
 * XLOG resource manager, and a promotion ends with the startup process leaving,
 * after it has set SharedRecoveryState.
 *
 * Errors: an ERROR in the startup process is FATAL and takes the server down.
 * What runs here besides the wrapped function takes no lock, allocates nothing
 * and cannot throw; it works on shared memory that exists for good.
 * on_shmem_exit uses a fixed array, of which the startup process leaves half
 * unused.  It is preferred to before_shmem_exit, whose callbacks have to be
 * cancelled in reverse order by whoever might be active.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/rmgr.h"
#include "access/xlogreader.h"
#include "access/xlog_internal.h"
#include "catalog/pg_control.h"
#include "storage/ipc.h"

#include "common/guc.h"
#include "token/replay.h"
#include "token/waiter.h"

static void (*wrapped[RM_MAX_ID + 1])(XLogReaderState *record);
static bool installed = false;

/* the end of what this process has applied last */
static XLogRecPtr applied = InvalidXLogRecPtr;

/* The startup process leaves: the server is promoted, or shuts down. */
static void
wake_all_at_exit(int code, Datum arg)
{
	udb_waiter_replayed(applied, true);
}

static void
redo(XLogReaderState *record)
{
	static bool registered = false;
	RmgrId		rmid = XLogRecGetRmid(record);
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	XLogRecPtr	end = record->EndRecPtr;
	bool		turns;

	if (unlikely(!registered))
	{
		on_shmem_exit(wake_all_at_exit, (Datum) 0);
		registered = true;
	}

	wrapped[rmid](record);

	applied = end;
	turns = rmid == RM_XLOG_ID &&
		(info == XLOG_CHECKPOINT_SHUTDOWN || info == XLOG_END_OF_RECOVERY);
	udb_waiter_replayed(end, turns);
}

bool
udb_replay_install(void)
{
	/* the array survives a crash of the server's other processes */
	if (installed || !udb_replay_hook)
		return installed;
	for (int rmid = 0; rmid <= RM_MAX_ID; rmid++)
	{
		if (!RmgrIdExists(rmid) || RmgrTable[rmid].rm_redo == NULL)
			continue;
		wrapped[rmid] = RmgrTable[rmid].rm_redo;
		RmgrTable[rmid].rm_redo = redo;
	}
	installed = true;
	return true;
}
