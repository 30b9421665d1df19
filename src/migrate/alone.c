/*-------------------------------------------------------------------------
 *
 * alone.c
 *	  Steps that cannot run in a transaction.
 *
 * Commands like CREATE INDEX CONCURRENTLY must come from a client, not from
 * inside another command, so CALL migrate() cannot run them itself.  A
 * background worker does, as a session of its own: with the session user, role
 * and search_path of the caller, who waits for it.  If the caller is
 * interrupted, it takes the worker along.
 *
 * The statements and the answer are in a dynamic shared memory segment.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "mb/pg_wchar.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "common/compat.h"
#include "migrate/migrate.h"

#define MAX_TEXT 1024

typedef struct AloneRequest
{
	Oid			dboid;
	Oid			session_user;
	NameData	role;
	Size		sql_offset;		/* in data, after the search_path */

	/* the answer */
	bool		done;			/* all statements have run */
	int			sqlerrcode;		/* 0: no error has been reported */
	char		message[MAX_TEXT];
	char		detail[MAX_TEXT];	/* empty: none */
	char		hint[MAX_TEXT];

	char		data[FLEXIBLE_ARRAY_MEMBER];
} AloneRequest;

static dsm_segment *
make_request(const char *sql)
{
	const char *path = GetConfigOption("search_path", false, false);
	Size		path_size = strlen(path) + 1;
	Size		sql_size = strlen(sql) + 1;
	dsm_segment *segment = dsm_create(add_size(offsetof(AloneRequest, data),
											   add_size(path_size, sql_size)),
									  0);
	AloneRequest *request = dsm_segment_address(segment);

	memset(request, 0, offsetof(AloneRequest, data));
	request->dboid = MyDatabaseId;
	request->session_user = GetSessionUserId();
	strlcpy(NameStr(request->role), GetUserNameFromId(GetUserId(), false), NAMEDATALEN);
	request->sql_offset = path_size;
	memcpy(request->data, path, path_size);
	memcpy(request->data + path_size, sql, sql_size);
	return segment;
}

/* Start a worker and wait until it is gone. */
static void
run_worker(dsm_segment *segment)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "udb migration in database %u", MyDatabaseId);
	snprintf(worker.bgw_type, BGW_MAXLEN, "udb migration");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), UDB_NAME);
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "udb_migration_alone_main");
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment));
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start a worker for a migration step that runs alone"),
				 errhint("Increase max_worker_processes (currently %d).", max_worker_processes)));

	PG_TRY();
	{
		if (WaitForBackgroundWorkerShutdown(handle) == BGWH_POSTMASTER_DIED)
			proc_exit(1);
	}
	PG_CATCH();
	{
		TerminateBackgroundWorker(handle);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

static char *
text_or_null(const char *text)
{
	return text[0] != '\0' ? pstrdup(text) : NULL;
}

ErrorData *
udb_migration_run_alone(const char *sql)
{
	dsm_segment *segment = make_request(sql);
	AloneRequest *request = dsm_segment_address(segment);
	ErrorData  *error = NULL;

	/* the statements may wait for all snapshots that are older than theirs */
	InvalidateCatalogSnapshot();
	Assert(!ActiveSnapshotSet());
	run_worker(segment);
	AcceptInvalidationMessages();

	if (!request->done)
	{
		error = palloc0(sizeof(ErrorData));
		error->elevel = ERROR;
		error->assoc_context = CurrentMemoryContext;
		if (request->sqlerrcode != 0)
		{
			error->sqlerrcode = request->sqlerrcode;
			error->message = pstrdup(request->message);
			error->detail = text_or_null(request->detail);
			error->hint = text_or_null(request->hint);
		}
		else
		{
			error->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
			error->message = pstrdup("worker for a migration step has ended before the step has");
			error->hint = pstrdup("The server's log says why.");
		}
	}
	dsm_detach(segment);
	return error;
}

/* In the worker: run one statement as if a client had sent it. */
static void
run_statement(RawStmt *statement, const char *sql)
{
	List	   *queries;
	List	   *plans;
	Portal		portal;
	bool		pushed = false;

	if (IsA(statement->stmt, TransactionStmt))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("cannot end or start a transaction in a migration step")));
	if (analyze_requires_snapshot(statement))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		pushed = true;
	}
	queries = pg_analyze_and_rewrite_fixedparams(statement, sql, NULL, 0, NULL);
	plans = pg_plan_queries(queries, sql, CURSOR_OPT_PARALLEL_OK, NULL);
	if (pushed)
		PopActiveSnapshot();

	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, sql, CreateCommandTag(statement->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	udb_portal_run(portal);
	PortalDrop(portal, false);
}

static void
run_statements(const char *sql)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "udb migration",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *statements;
	ListCell   *cell;

	MemoryContextSwitchTo(context);
	debug_query_string = sql;
	pgstat_report_activity(STATE_RUNNING, sql);
	statements = pg_parse_query(sql);
	foreach(cell, statements)
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		MemoryContextSwitchTo(context);
		run_statement(lfirst_node(RawStmt, cell), sql);
		CommitTransactionCommand();
		MemoryContextSwitchTo(context);
	}
}

/* Be who the caller is, and find what it finds. */
static void
adopt_session(const AloneRequest *request)
{
	StartTransactionCommand();
	if (strcmp(NameStr(request->role), GetUserNameFromId(GetUserId(), false)) != 0)
		SetConfigOption("role", NameStr(request->role), PGC_USERSET, PGC_S_SESSION);
	SetConfigOption("search_path", request->data, PGC_USERSET, PGC_S_SESSION);
	CommitTransactionCommand();
}

static void
copy_text(char *to, const char *text)
{
	if (text != NULL)
		strlcpy(to, text, pg_mbcliplen(text, strlen(text), MAX_TEXT - 1) + 1);
}

void
udb_migration_alone_main(Datum arg)
{
	dsm_segment *segment;
	AloneRequest *request;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "udb migration");
	segment = dsm_attach(DatumGetUInt32(arg));
	if (segment == NULL)
		proc_exit(0);			/* the caller is gone */
	dsm_pin_mapping(segment);
	request = dsm_segment_address(segment);
	BackgroundWorkerInitializeConnectionByOid(request->dboid, request->session_user, 0);

	PG_TRY();
	{
		adopt_session(request);
		run_statements(request->data + request->sql_offset);
		request->done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(TopMemoryContext);
		error = CopyErrorData();
		FlushErrorState();
		copy_text(request->message, error->message);
		copy_text(request->detail, error->detail);
		copy_text(request->hint, error->hint);
		request->sqlerrcode = error->sqlerrcode;
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pgstat_report_stat(true);
	proc_exit(0);
}
