/*-------------------------------------------------------------------------
 *
 * position.h
 *	  A position in the history of a PostgreSQL cluster: what the value of a
 *	  token says, and how it relates to where this server is.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_POSITION_H
#define UDB_TOKEN_POSITION_H

#include "postgres.h"
#include "access/xlogdefs.h"

typedef struct UdbPosition
{
	uint64		sysid;			/* system identifier of the cluster */
	TimeLineID	tli;
	XLogRecPtr	tli_begin;		/* where tli begins; 0: the first, or not known */
	XLogRecPtr	lsn;			/* end of a WAL record */
	bool		durable;		/* was flushed where it was written */
	uint32		run;			/* if not: udb_run() of the server that wrote it */
} UdbPosition;

/* How a position relates to this server. */
typedef enum UdbPositionState
{
	UDB_POSITION_REACHED,
	UDB_POSITION_PENDING, /* on a standby: can still come */
	UDB_POSITION_OTHER_CLUSTER,
	UDB_POSITION_DIVERGED,	 /* not in this server's history, and never will be */
	UDB_POSITION_FUTURE,	 /* a primary has not written that far */
	UDB_POSITION_LEFT_BEHIND /* this primary is on an older timeline */
} UdbPositionState;

/* Where this server is. */
typedef struct UdbWhere
{
	bool		recovering;
	TimeLineID	tli;
	XLogRecPtr	lsn;			/* replayed, or inserted on a primary */
} UdbWhere;

/* enough for any value, with its zero byte */
#define UDB_POSITION_TEXT 80

/* Write the value of a token.  Neither allocates nor throws. */
extern void udb_position_format(const UdbPosition *position, char *text);

/*
 * Read it.  Only what udb_position_format writes is accepted, so that equal
 * positions are equal texts.  False: *why says what is wrong.
 */
extern bool udb_position_parse(const char *text, UdbPosition *position, const char **why);

/* May read a timeline history file, and throw if it cannot; no catalog access. */
extern UdbPositionState udb_position_state(const UdbPosition *position, UdbWhere *where);

/* Throw the error of a state that is neither REACHED nor PENDING. */
extern void udb_position_refuse(UdbPositionState state, const UdbPosition *position,
								const UdbWhere *where);

/* Where this server is now. */
extern void udb_where(UdbWhere *where);

/*
 * Where a timeline begins, if it is known.  load() makes it known, reading the
 * history file at the first call of a backend; begin() never does any I/O.
 */
extern void udb_timeline_load(TimeLineID tli);
extern XLogRecPtr udb_timeline_begin(TimeLineID tli);

/*
 * The insert position, and what pg_current_wal_insert_lsn() gives, can lie
 * behind a page header, where no record ends; step back before it.
 */
extern XLogRecPtr udb_lsn_normalize(XLogRecPtr lsn);

#endif							/* UDB_TOKEN_POSITION_H */
