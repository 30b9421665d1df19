/*-------------------------------------------------------------------------
 *
 * position.c
 *	  A position in the history of a PostgreSQL cluster.
 *
 * A bare LSN says too little: after a failover, a crash that lost the end of
 * the WAL, or a restore, the same number stands for another write.  So a
 * position also has the cluster, the timeline, and where that timeline begins,
 * which tells apart two standbys that were promoted to the same number.
 *
 * The value of a token is, in lower-case hexadecimal,
 *
 *	1.<system id, 16 digits>.<timeline>.<timeline begin>.<lsn>.d
 *	1.<system id, 16 digits>.<timeline>.<timeline begin>.<lsn>.a<run>
 *
 * where d means durable and a asynchronous; run is one life of the server's
 * shared memory, within which nothing that was inserted gets lost.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <unistd.h>

#include "access/timeline.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "common/errors.h"
#include "token/position.h"

#define FORMAT_VERSION 1

/* ---- text ------------------------------------------------------------------ */

/*
 * Append a number and the character that follows it.  By hand, as this is done
 * at each commit, and five numbers by snprintf take a microsecond.
 */
static char *
put_hex(char *text, uint64 number, int min_digits, char follows)
{
	int			digits = number == 0 ? 1 : pg_leftmost_one_pos64(number) / 4 + 1;

	for (int shift = 4 * (Max(digits, min_digits) - 1); shift >= 0; shift -= 4)
		*text++ = "0123456789abcdef"[(number >> shift) & 0xf];
	*text++ = follows;
	return text;
}

void
udb_position_format(const UdbPosition *p, char *text)
{
	text = put_hex(text, FORMAT_VERSION, 1, '.');
	text = put_hex(text, p->sysid, 16, '.');
	text = put_hex(text, p->tli, 1, '.');
	text = put_hex(text, p->tli_begin, 1, '.');
	text = put_hex(text, p->lsn, 1, '.');
	*text++ = p->durable ? 'd' : 'a';
	if (p->durable)
		*text = '\0';
	else
		(void) put_hex(text, p->run, 1, '\0');
}

/*
 * Read a number without superfluous zeros, or of exactly "fixed" digits, and
 * the character that has to follow it.
 */
static bool
parse_hex(const char **text, int max_digits, bool fixed, char follows, uint64 *number)
{
	const char *p = *text;
	int			digits = 0;
	uint64		n = 0;

	for (; (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'); p++)
	{
		if (++digits > max_digits)
			return false;
		n = (n << 4) | (uint64) (*p <= '9' ? *p - '0' : *p - 'a' + 10);
	}
	if (digits == 0 || (fixed && digits != max_digits) || (!fixed && digits > 1 && **text == '0') ||
		*p != follows)
		return false;
	*number = n;
	*text = follows == '\0' ? p : p + 1;
	return true;
}

bool
udb_position_parse(const char *text, UdbPosition *p, const char **why)
{
	uint64		version;
	uint64		tli;
	uint64		run = 0;

	if (!parse_hex(&text, 8, false, '.', &version))
	{
		*why = "It does not begin with a format version.";
		return false;
	}
	if (version != FORMAT_VERSION)
	{
		*why = "Its format version is not known here.";
		return false;
	}
	*why = "It is incomplete or damaged.";
	if (!parse_hex(&text, 16, true, '.', &p->sysid) || !parse_hex(&text, 8, false, '.', &tli) ||
		!parse_hex(&text, 16, false, '.', &p->tli_begin) ||
		!parse_hex(&text, 16, false, '.', &p->lsn))
		return false;
	p->tli = (TimeLineID) tli;
	p->durable = *text == 'd';
	if (*text != 'd' && *text != 'a')
		return false;
	text++;
	if (p->durable ? *text != '\0' : !parse_hex(&text, 8, false, '\0', &run))
		return false;
	p->run = (uint32) run;

	/* what no server has ever written */
	return p->tli != 0 && p->lsn != InvalidXLogRecPtr && p->tli_begin <= p->lsn;
}

/* ---- where this server is -------------------------------------------------- */

XLogRecPtr
udb_lsn_normalize(XLogRecPtr lsn)
{
	if (XLogSegmentOffset(lsn, wal_segment_size) == SizeOfXLogLongPHD)
		return lsn - SizeOfXLogLongPHD;
	if (lsn % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return lsn - SizeOfXLogShortPHD;
	return lsn;
}

void
udb_where(UdbWhere *where)
{
	where->recovering = RecoveryInProgress();
	if (where->recovering)
		where->lsn = GetXLogReplayRecPtr(&where->tli);
	else
	{
		/* GetXLogInsertEndRecPtr() says so directly, but early minor releases lack it */
		where->lsn = udb_lsn_normalize(GetXLogInsertRecPtr());
		where->tli = GetWALInsertionTimeLine();
	}
}

/* ---- timelines ------------------------------------------------------------- */

/* The ancestry of one timeline; it never changes, so it is read once. */
static struct
{
	TimeLineID	tli;			/* 0: none is loaded */
	bool		known;			/* there was a history file, or none is needed */
	int			n;
	TimeLineHistoryEntry *entries;	/* in TopMemoryContext */
} history;

void
udb_timeline_load(TimeLineID tli)
{
	char		path[MAXPGPATH];
	MemoryContext context;
	MemoryContext oldcontext;
	List	   *list;
	int			i = 0;
	ListCell   *cell;
	bool		known;

	if (likely(history.tli == tli))
		return;

	/* readTimeLineHistory takes a missing file for "no parents" */
	TLHistoryFilePath(path, tli);
	known = tli == 1 || access(path, R_OK) == 0;

	context = AllocSetContextCreate(CurrentMemoryContext, "udb timelines", ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(context);
	list = readTimeLineHistory(tli);
	history.tli = 0;
	if (history.entries != NULL)
		pfree(history.entries);
	history.entries = NULL;
	history.entries =
		MemoryContextAlloc(TopMemoryContext, sizeof(TimeLineHistoryEntry) * list_length(list));
	foreach(cell, list)
		history.entries[i++] = *(TimeLineHistoryEntry *) lfirst(cell);
	history.n = i;
	history.known = known;
	history.tli = tli;
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);
}

XLogRecPtr
udb_timeline_begin(TimeLineID tli)
{
	return history.tli == tli && history.n > 0 ? history.entries[0].begin : InvalidXLogRecPtr;
}

/* The entry of a timeline in the loaded history, or NULL. */
static TimeLineHistoryEntry *
ancestor(TimeLineID tli)
{
	for (int i = 0; i < history.n; i++)
		if (history.entries[i].tli == tli)
			return &history.entries[i];
	return NULL;
}

/* Two begins that are both known, and differ. */
static inline bool
begins_differ(XLogRecPtr a, XLogRecPtr b)
{
	return a != InvalidXLogRecPtr && b != InvalidXLogRecPtr && a != b;
}

/* The token's timeline is older than that of this server. */
static UdbPositionState
state_on_ancestor(const UdbPosition *p, XLogRecPtr lsn)
{
	TimeLineHistoryEntry *entry;

	if (!history.known)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FILE), errmsg("the history of timeline %u is not known", history.tli), errdetail("There is no file \"%08X.history\" in directory \"pg_wal\".", history.tli)));
	entry = ancestor(p->tli);
	if (entry == NULL || begins_differ(entry->begin, p->tli_begin))
		return UDB_POSITION_DIVERGED;

	/* whatever ends at the switch point is still part of the old timeline */
	return lsn <= entry->end ? UDB_POSITION_REACHED : UDB_POSITION_DIVERGED;
}

UdbPositionState
udb_position_state(const UdbPosition *p, UdbWhere *where)
{
	XLogRecPtr	lsn = udb_lsn_normalize(p->lsn);

	if (p->sysid != GetSystemIdentifier())
		return UDB_POSITION_OTHER_CLUSTER;

	udb_where(where);
	udb_timeline_load(where->tli);

	if (p->tli < where->tli)
		return state_on_ancestor(p, lsn);
	if (p->tli > where->tli)
	{
		if (!where->recovering)
			return UDB_POSITION_LEFT_BEHIND;

		/*
		 * A standby can follow to another timeline only from a point that it
		 * has not passed, and no ancestor of the token's begins later.
		 */
		if (p->tli_begin != InvalidXLogRecPtr && where->lsn > p->tli_begin)
			return UDB_POSITION_DIVERGED;
		return UDB_POSITION_PENDING;
	}
	if (begins_differ(udb_timeline_begin(where->tli), p->tli_begin))
		return UDB_POSITION_DIVERGED;
	if (lsn <= where->lsn)
		return UDB_POSITION_REACHED;
	return where->recovering ? UDB_POSITION_PENDING : UDB_POSITION_FUTURE;
}

void
udb_position_refuse(UdbPositionState state, const UdbPosition *p, const UdbWhere *where)
{
	switch (state)
	{
		case UDB_POSITION_OTHER_CLUSTER:
			ereport(ERROR, (errcode(udb_errcode(TOKEN_OTHER_CLUSTER)), errmsg("the token is from another cluster"), errdetail("Its system identifier is " UINT64_FORMAT ", that of this cluster is " UINT64_FORMAT ".", p->sysid, GetSystemIdentifier())));
			break;
		case UDB_POSITION_DIVERGED:
			ereport(
				ERROR,
				(errcode(udb_errcode(TOKEN_DIVERGED)),
				 errmsg("the token's write is not in the history of this server"),
				 errdetail(
					 "The token is at %X/%X on timeline %u, the server at %X/%X on timeline %u.",
					 LSN_FORMAT_ARGS(p->lsn), p->tli, LSN_FORMAT_ARGS(where->lsn), where->tli)));
			break;
		case UDB_POSITION_FUTURE:
			ereport(ERROR, (errcode(udb_errcode(TOKEN_FUTURE)), errmsg("the token is ahead of what this primary has written"), errdetail("The token is at %X/%X on timeline %u, the server at %X/%X.", LSN_FORMAT_ARGS(p->lsn), p->tli, LSN_FORMAT_ARGS(where->lsn)), errhint("The write was lost in a crash, or the server was restored to "
																																																																			  "an earlier state.")));
			break;
		case UDB_POSITION_LEFT_BEHIND:
			ereport(ERROR, (errcode(udb_errcode(TOKEN_NEWER_TIMELINE)), errmsg("the token is from a later timeline than that of this primary"), errdetail("The token is on timeline %u, the server on timeline %u.", p->tli, where->tli), errhint("Another server was promoted; connect to that one.")));
			break;
		case UDB_POSITION_REACHED:
		case UDB_POSITION_PENDING:
			break;
	}
}
