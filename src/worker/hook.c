/*-------------------------------------------------------------------------
 *
 * hook.c
 *	  Commands that concern a database's worker.
 *
 * CREATE EXTENSION asks for a worker, at commit, when it can see the extension.
 * DROP EXTENSION asks it to leave, then; the next one looks whether there is an
 * extension.  What drops it in another way is noticed at the worker's next job.
 *
 * DROP DATABASE and its like refuse while anybody is connected, and only wait
 * a few seconds for others to leave.  So the worker is told to leave before,
 * and the launcher not to send another one for a while.  If the command fails,
 * the worker is back after that while.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <signal.h>

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/database.h"
#include "common/locktag.h"
#include "worker/worker.h"

#define HOLD_MS 10000

static ProcessUtility_hook_type prev_process_utility = NULL;

/* this transaction has created or dropped the extension, in the database of this slot */
static int	created_in = -1;
static int	dropped_in = -1;

static DefElem *
has_option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem	   *option = lfirst(cell);

		if (strcmp(option->defname, name) == 0)
			return option;
	}
	return NULL;
}

/* The database that a statement needs for itself, or NULL. */
static const char *
exclusive_database(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_DropdbStmt:
			return ((DropdbStmt *) stmt)->dbname;
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
				return ((RenameStmt *) stmt)->subname;
			return NULL;
		case T_AlterDatabaseStmt:
			if (has_option(((AlterDatabaseStmt *) stmt)->options, "tablespace") != NULL)
				return ((AlterDatabaseStmt *) stmt)->dbname;
			return NULL;
		case T_CreatedbStmt:
		{
			DefElem	   *option = has_option(((CreatedbStmt *) stmt)->options, "template");

			return option != NULL && option->arg != NULL ? defGetString(option) : NULL;
		}
		default:
			return NULL;
	}
}

static bool
drops_extension(Node *stmt)
{
	ListCell   *cell;

	if (!IsA(stmt, DropStmt) || ((DropStmt *) stmt)->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, ((DropStmt *) stmt)->objects)
		if (strcmp(strVal(lfirst(cell)), UDB_NAME) == 0)
			return true;
	return false;
}

/* Returns the database's slot, or -1 if there is nobody to dismiss. */
static int
dismiss_worker(const char *dbname)
{
	Oid			dboid = get_database_oid(dbname, true);
	int			slot;
	UdbDatabase db;

	/* whoever may not do this gets the error from the command itself */
	if (!OidIsValid(dboid) || !udb_database_owner_check(dboid))
		return -1;
	slot = udb_database_find(dboid);
	if (slot < 0)
		return -1;

	/* hold first: one that is just starting looks for that after it has said who it is */
	udb_database_hold_worker(slot, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), HOLD_MS));
	if (udb_database_get(slot, &db) && db.dboid == dboid && db.worker_pid != 0)
		(void) kill(db.worker_pid, SIGTERM);
	return db.worker_expected ? slot : -1;
}

static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	const char *dbname = exclusive_database(pstmt->utilityStmt);
	bool		creates = IsA(pstmt->utilityStmt, CreateExtensionStmt) &&
		strcmp(((CreateExtensionStmt *) pstmt->utilityStmt)->extname, UDB_NAME) == 0;
	bool		drops = IsA(pstmt->utilityStmt, DropdbStmt);
	bool		uncreates = drops_extension(pstmt->utilityStmt);
	int			dismissed = dbname != NULL ? dismiss_worker(dbname) : -1;

	/*
	 * Sweeps lock tables in another order than it does, so wait for the one
	 * that is at work, and let no other begin.
	 */
	if (uncreates)
	{
		LOCKTAG		tag = udb_locktag(UDB_LOCK_EXTENSION, 0);

		(void) LockAcquire(&tag, ExclusiveLock, false, false);
	}

	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);

	/* it has what it needed, and others wait at the command's own lock */
	if (dismissed >= 0 && !drops)
	{
		udb_database_hold_worker(dismissed, 0);
		udb_database_want_worker(dismissed, true);
	}
	if (creates)
		created_in = udb_database_slot();
	if (uncreates)
		dropped_in = udb_database_find(MyDatabaseId);
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (dropped_in >= 0 && event == XACT_EVENT_COMMIT)
		udb_database_ask_worker_to_leave(dropped_in);
	if (created_in >= 0 && event == XACT_EVENT_COMMIT)
		udb_database_want_worker(created_in, true);
	created_in = dropped_in = -1;
}

void
udb_worker_hook_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
