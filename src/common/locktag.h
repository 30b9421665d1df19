/*-------------------------------------------------------------------------
 *
 * locktag.h
 *	  Heavyweight locks of udb's own.
 *
 * They share the lock method and type of advisory locks, so that pg_locks can
 * show them, but no SQL function can take or collide with them: those use
 * only 1 and 2 in field 4 (see SET_LOCKTAG_INT64 in lockfuncs.c).
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_LOCKTAG_H
#define UDB_LOCKTAG_H

#include "postgres.h"
#include "miscadmin.h"
#include "storage/lock.h"

typedef enum UdbLockKind
{
	UDB_LOCK_EVENT_ID = 0x7501, /* one event_id is being looked up or inserted */
	UDB_LOCK_PREPARED,			/* a prepared transaction holds the horizon */
	UDB_LOCK_RETENTION,			/* cursors are set back, or segments dropped */
	UDB_LOCK_LEASE = 0x7510,	/* a lease is asserted, or about to change its term */
	UDB_LOCK_MIGRATE,			/* a component is being migrated */
	UDB_LOCK_RUN,				/* a run of migrate() has not been cut off */
	UDB_LOCK_JOB_KEY = 0x7520,	/* jobs of an ordering key are sent or finished */
	UDB_LOCK_JOB_TOKEN,			/* the sequence of claim tokens is being set */
	UDB_LOCK_AUDIT = 0x7560,	/* rows are appended to the audit log */
	UDB_LOCK_EXTENSION = 0x7570 /* DROP EXTENSION keeps sweeps off, and they it */
} UdbLockKind;

static inline LOCKTAG
udb_locktag(UdbLockKind kind, uint64 value)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (value >> 32), (uint32) value, kind);
	return tag;
}

#endif							/* UDB_LOCKTAG_H */
