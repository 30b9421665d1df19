/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The only place that knows how PostgreSQL 15, 16, 17 and 18 differ.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_COMPAT_H
#define UDB_COMPAT_H

#include "postgres.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_database.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "utils/acl.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "udb supports PostgreSQL 15 to 18"
#endif

/* 18 lets a module tell its name and version (pg_get_loaded_modules()). */
#if PG_VERSION_NUM >= 180000
#define UDB_MODULE_MAGIC(n, v) PG_MODULE_MAGIC_EXT(.name = (n), .version = (v))
#else
#define UDB_MODULE_MAGIC(n, v) PG_MODULE_MAGIC
#endif

/* 18 put the mark of a function that does not return before it. */
#if PG_VERSION_NUM >= 180000
#define UDB_NORETURN pg_noreturn
#else
#define UDB_NORETURN __attribute__((noreturn))
#endif

/* 17 replaced MyProc->pgprocno by MyProcNumber. */
static inline int
udb_my_procno(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/* 16 added onlySummarizing, for updates that touch only BRIN columns. */
static inline void
udb_insert_index_tuples(ResultRelInfo *rri, TupleTableSlot *slot, EState *estate)
{
#if PG_VERSION_NUM >= 160000
	(void) ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL, false);
#else
	(void) ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL);
#endif
}

/*
 * 16 tells by an argument whether an update needs index entries; before, that
 * is so unless the new version is a heap-only tuple.
 */
static inline TM_Result
udb_heap_update(Relation rel, ItemPointer tid, HeapTuple tuple, CommandId cid, Snapshot crosscheck,
				bool wait, TM_FailureData *failure, bool *update_indexes)
{
	LockTupleMode mode;
	TM_Result	result;

#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update;

	result = heap_update(rel, tid, tuple, cid, crosscheck, wait, failure, &mode, &update);
	*update_indexes = result == TM_Ok && update != TU_None;
#else
	result = heap_update(rel, tid, tuple, cid, crosscheck, wait, failure, &mode);
	*update_indexes = result == TM_Ok && !HeapTupleIsHeapOnly(tuple);
#endif
	return result;
}

/* 18 dropped run_once. */
static inline void
udb_portal_run(Portal portal)
{
#if PG_VERSION_NUM >= 180000
	(void) PortalRun(portal, FETCH_ALL, true, None_Receiver, None_Receiver, NULL);
#else
	(void) PortalRun(portal, FETCH_ALL, true, true, None_Receiver, None_Receiver, NULL);
#endif
}

/* 18 added a place for the index scan's instrumentation. */
static inline IndexScanDesc
udb_index_beginscan(Relation heap, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

/* 17 added custom wait events; before, all extensions share one. */
static inline uint32
udb_wait_event(uint32 *cache, const char *name)
{
#if PG_VERSION_NUM >= 170000
	if (*cache == 0)
		*cache = WaitEventExtensionNew(name);
	return *cache;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* What a process waits for that needs a page for itself; 17 renamed it. */
#if PG_VERSION_NUM >= 170000
#define UDB_WAIT_BUFFER_PIN WAIT_EVENT_BUFFER_PIN
#else
#define UDB_WAIT_BUFFER_PIN PG_WAIT_BUFFER_PIN
#endif

/* Whether this session has the lock, in any mode; 17 can ask for that. */
static inline bool
udb_lock_held_by_me(const LOCKTAG *tag)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, AccessShareLock, true);
#else
	for (LOCKMODE mode = AccessShareLock; mode <= MaxLockMode; mode++)
		if (LockHeldByMe(tag, mode))
			return true;
	return false;
#endif
}

/*
 * The xid of a lock's holder when that is a prepared transaction which was
 * recovered at server start, else InvalidTransactionId.  See
 * MarkAsPreparingGuts() in twophase.c: recovery stores the xid in place of the
 * local transaction id; a transaction prepared since then keeps the virtual
 * id of its session.
 */
static inline TransactionId
udb_lock_recovered_xid(const LockInstanceData *lock)
{
#if PG_VERSION_NUM >= 170000
	if (lock->pid != 0 || lock->vxid.procNumber != INVALID_PROC_NUMBER)
		return InvalidTransactionId;
	return (TransactionId) lock->vxid.localTransactionId;
#else
	if (lock->pid != 0 || lock->backend != InvalidBackendId)
		return InvalidTransactionId;
	return (TransactionId) lock->lxid;
#endif
}

/* 16 merged the per-object ownership checks into one. */
static inline bool
udb_database_owner_check(Oid dboid)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, dboid, GetUserId());
#else
	return pg_database_ownercheck(dboid, GetUserId());
#endif
}

#endif							/* UDB_COMPAT_H */
