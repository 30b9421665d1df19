/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  The job queue's entry for _PG_init, and small helpers of its SQL.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "commands/sequence.h"
#include "common/hashfn.h"

#include "common/catalog.h"
#include "common/locktag.h"

static UdbRelation job_seq = {"job_seq"};

UDB_FUNCTION(udb_next_job_seq);

/* _next_job_seq() returns bigint */
Datum
udb_next_job_seq(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(nextval_internal(udb_relation_oid(&job_seq), false));
}

UDB_FUNCTION(udb_lock_ordering_key);

/* _lock_ordering_key(queue, ordering_key) returns void */
Datum
udb_lock_ordering_key(PG_FUNCTION_ARGS)
{
	text	   *queue = PG_GETARG_TEXT_PP(0);
	text	   *key = PG_GETARG_TEXT_PP(1);
	uint64		hash;
	LOCKTAG		tag;

	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(queue),
							   VARSIZE_ANY_EXHDR(queue), 0);
	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(key),
							   VARSIZE_ANY_EXHDR(key), hash);
	tag = udb_locktag(UDB_LOCK_ORDERING_KEY, hash);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	PG_RETURN_VOID();
}
