/*-------------------------------------------------------------------------
 *
 * commit.c
 *	  Where this session's last commit ended, and telling the client.
 *
 * Order, in CommitTransaction of PostgreSQL 15 to 18: RecordTransactionCommit
 * sets XactLastCommitEnd to the end of the commit record, the transaction
 * leaves the proc array, and then the callback here runs, with the top xid
 * still readable.  The end of a record is what a standby's replay position is
 * compared with.
 *
 * A transaction without an xid has written nothing that could be waited for,
 * although it may move XactLastCommitEnd (pruning a page writes WAL).  COMMIT
 * PREPARED is the exception: it runs in a transaction without an xid.
 *
 * Errors: an error after the commit record is a PANIC, so the callback does
 * not allocate, throw or look anything up.  The report goes through an integer
 * setting whose show hook returns a static buffer: set as a reset value, it
 * takes no memory and no place on the stack of settings.  The history file is
 * read before the commit record is written, when it is needed at all.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "common/errors.h"
#include "common/guc.h"
#include "token/commit.h"
#include "token/type.h"
#include "token/waiter.h"

/* the session's last commit; lsn 0: none yet */
static UdbPosition last_commit;

/* this transaction is the one that COMMIT or ROLLBACK PREPARED runs in */
static bool ends_prepared = false;

/* what udb.last_token shows: the token sent to the client last */
static char reported[UDB_TOKEN_TEXT];
static int	report_count = 0;

void
udb_commit_prepared_begins(void)
{
	ends_prepared = true;
}

static bool
writes(void)
{
	return ends_prepared || TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static void
commit_ended(void)
{
	/* without an xid, the end has moved only if something was written */
	if (!writes() || XactLastCommitEnd == last_commit.lsn)
		return;

	last_commit.sysid = GetSystemIdentifier();
	last_commit.tli = GetWALInsertionTimeLine();
	last_commit.tli_begin = udb_timeline_begin(last_commit.tli);
	last_commit.lsn = XactLastCommitEnd;
	last_commit.durable = GetFlushRecPtr(NULL) >= last_commit.lsn;
	last_commit.run = udb_run();

	if (udb_report_token)
	{
		udb_token_format(&last_commit, reported);
		/* the value only has to change something; see show_last_token */
		SetConfigOption("udb.last_token", (report_count++ & 1) ? "1" : "2", PGC_INTERNAL,
						PGC_S_OVERRIDE);
	}
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (udb_report_token && writes())
				udb_timeline_load(GetWALInsertionTimeLine());
			break;
		case XACT_EVENT_COMMIT:
			commit_ended();
			ends_prepared = false;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			ends_prepared = false;
			break;
		default: /* the leader commits for its parallel workers */
			break;
	}
}

static const char *
show_last_token(void)
{
	return reported;
}

void
udb_commit_init(void)
{
	static int	last_token = 0;

	DefineCustomIntVariable(
		"udb.last_token", "Shows the token of the last commit that was reported.",
		"Set udb.report_token to have it sent with each commit.", &last_token, 0, 0, 2,
		PGC_INTERNAL, GUC_REPORT | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL,
		show_last_token);
	RegisterXactCallback(xact_callback, NULL);
}

bool
udb_last_commit(UdbPosition *position)
{
	if (last_commit.lsn == InvalidXLogRecPtr)
		return false;
	*position = last_commit;
	udb_timeline_load(position->tli);
	position->tli_begin = udb_timeline_begin(position->tli);
	if (!position->durable)
		position->durable = last_commit.durable = GetFlushRecPtr(NULL) >= position->lsn;
	return true;
}

void
udb_position_flush(UdbPosition *position)
{
	UdbWhere	where;
	UdbPositionState state;

	if (position->durable)
		return;
	if (RecoveryInProgress())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("a standby cannot make a token durable"), errhint("Ask the server that gave the token.")));
	state = udb_position_state(position, &where);
	if (state != UDB_POSITION_REACHED)
		udb_position_refuse(state, position, &where);

	/*
	 * After a crash the same position may hold something else, written since.
	 */
	if (position->run != udb_run())
		ereport(ERROR,
				(errcode(udb_errcode(TOKEN_UNCERTAIN)),
				 errmsg("the server has been restarted since it gave this asynchronous token"),
				 errdetail("Whether the write at %X/%X was lost is not known.",
						   LSN_FORMAT_ARGS(position->lsn)),
				 errhint("Look for what was written, or write it again.")));
	XLogFlush(position->lsn);
	position->durable = true;
}

UDB_FUNCTION(udb_last_commit_token);

/* last_commit_token() returns token, null if this session has committed nothing */
Datum
udb_last_commit_token(PG_FUNCTION_ARGS)
{
	UdbPosition position;

	if (!udb_last_commit(&position))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(udb_token_from_position(&position));
}

UDB_FUNCTION(udb_current_token);

/*
 * current_token() returns token: visible is what has been inserted into the
 * WAL, not only what has been flushed, and not in the order of commits.
 */
Datum
udb_current_token(PG_FUNCTION_ARGS)
{
	UdbWhere	where;
	UdbPosition position = {0};

	udb_where(&where);
	udb_timeline_load(where.tli);
	position.sysid = GetSystemIdentifier();
	position.tli = where.tli;
	position.tli_begin = udb_timeline_begin(where.tli);
	position.lsn = udb_lsn_normalize(where.lsn);
	/* what a standby has replayed had been flushed before it was sent */
	position.durable = where.recovering || GetFlushRecPtr(NULL) >= position.lsn;
	position.run = udb_run();
	PG_RETURN_TEXT_P(udb_token_from_position(&position));
}

UDB_FUNCTION(udb_durable_token);

/* durable_token(token) returns token */
Datum
udb_durable_token(PG_FUNCTION_ARGS)
{
	UdbPosition position;

	udb_token_position(TextDatumGetCString(PG_GETARG_DATUM(0)), &position);
	udb_position_flush(&position);
	PG_RETURN_TEXT_P(udb_token_from_position(&position));
}
