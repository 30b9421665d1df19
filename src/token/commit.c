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
 * not allocate, throw or look anything up; it writes the report into a static
 * buffer and leaves it there.  The history file is read before the commit
 * record is written, when it is needed at all.
 *
 * The report is a ParameterStatus message, as PostgreSQL itself sends it for a
 * setting that is marked so, and at the same place: before ReadyForQuery.  But
 * to set such a setting at each commit costs a tenth of a small transaction,
 * most of it spent on looking at all settings there are.  So the message is
 * sent from a wrapper around the function that puts messages into the send
 * buffer, which PostgreSQL replaces as well, in parallel workers.  It is
 * installed by the first commit that has something to report.
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
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "common/errors.h"
#include "common/guc.h"
#include "token/commit.h"
#include "token/type.h"
#include "token/waiter.h"

/*
 * For PqCommMethods.  To describe a struct that is of no interest here, this
 * header includes those of two libraries, which the server's development
 * package does not bring along.
 */
#undef ENABLE_GSS
#undef USE_OPENSSL
#include "libpq/libpq.h"

/* the session's last commit; lsn 0: none yet */
static UdbPosition last_commit;

/* this transaction is the one that COMMIT PREPARED runs in */
static bool ends_prepared = false;

#define LAST_TOKEN_SETTING "udb.last_token"

/* the body of the message: name and value, each with its zero byte */
static char report[sizeof(LAST_TOKEN_SETTING) + UDB_TOKEN_TEXT] = LAST_TOKEN_SETTING;

/* the token in it, which is what udb.last_token shows */
static char *const reported = report + sizeof(LAST_TOKEN_SETTING);

/* it has not been sent yet */
static bool report_due = false;

/* what puts messages into the send buffer; NULL: not wrapped */
static const PQcommMethods *wrapped_methods = NULL;
static PQcommMethods wrapping_methods;

void
udb_commit_prepared_begins(void)
{
	ends_prepared = true;
}

/* Put a message into the send buffer; before ReadyForQuery the report, if due. */
static int
put_message(char msgtype, const char *s, size_t len)
{
	if (msgtype == 'Z' && report_due)
	{
		report_due = false;
		if (wrapped_methods->putmessage('S', report,
										sizeof(LAST_TOKEN_SETTING) + strlen(reported) + 1) != 0)
			return EOF;
	}
	return wrapped_methods->putmessage(msgtype, s, len);
}

static void
wrap_methods(void)
{
	wrapped_methods = PqCommMethods;
	wrapping_methods = *PqCommMethods;
	wrapping_methods.putmessage = put_message;
	PqCommMethods = &wrapping_methods;
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
	last_commit.durable = false;	/* whoever asks looks again */
	last_commit.run = udb_run();

	if (udb_report_token && whereToSendOutput == DestRemote)
	{
		last_commit.durable = GetFlushRecPtr(NULL) >= last_commit.lsn;
		udb_token_format(&last_commit, reported);
		report_due = true;
		if (unlikely(wrapped_methods == NULL))
			wrap_methods();
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

	/* the variable itself is of no use; see show_last_token */
	DefineCustomIntVariable(
		LAST_TOKEN_SETTING, "Shows the token of the last commit that was reported.",
		"Set udb.report_token to have it sent with each commit.", &last_token, 0, 0, 0,
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

	/*
	 * Unless a commit asks for it, the end of the WAL may not be flushed for
	 * long, and only what is flushed is sent to a standby.
	 */
	if (!position.durable)
		XLogSetAsyncXactLSN(position.lsn);
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
