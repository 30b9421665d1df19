/*-------------------------------------------------------------------------
 *
 * row.c
 *	  A lease's row: finding it, and writing it without the executor.
 *
 * Leases are written often and are few.  While somebody holds an old snapshot
 * their dead versions cannot go, and an index scan, or a uniqueness check,
 * visits all of them.  So shared memory remembers where the newest version of
 * each lease is: a look there with a dirty snapshot either finds it or shows
 * that the index must be asked.  What is found by the index goes by a snapshot
 * too: a dirty one can miss a row that moves while it is being looked for.  And
 * as an update never changes the name, its index entry, if it needs one, is
 * made without the check.
 *
 * Writing goes to the newest version, whatever the snapshot of the transaction.
 * Only a transaction with a fixed snapshot that cannot see that version must
 * not replace it, or it would see the row twice.
 *
 * Locking: elements of the cache are two words without a lock; whatever they
 * say is checked against the row.
 *
 * Durability: none needed for the cache; the rest is the heap's.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/catalog.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "common/shmem.h"
#include "lease/row.h"

/* columns of udb.advisory_leases */
#define Anum_lease_name 1
#define Anum_owner_id 2
#define Anum_expires_at 3
#define Anum_fencing_token 4
#define Anum_acquired_at 5
#define Natts_lease 5

/* entries a lease can be in: the cache is a hash table without chains */
#define CACHE_WAYS 8

/* prune a page when less than this is free */
#define PRUNE_BELOW (BLCKSZ / 4)

typedef struct CacheEntry
{
	pg_atomic_uint64 key;		/* of the lease and its table; 0: free */
	pg_atomic_uint64 tid;		/* block number and, in the low 16 bits, offset */
} CacheEntry;

static CacheEntry *cache = NULL;

static UdbRelation advisory_leases = {"advisory_leases"};
static UdbRelation advisory_leases_pkey = {"advisory_leases_pkey"};

static Size
cache_size(void)
{
	return mul_size(sizeof(CacheEntry), udb_max_leases);
}

static void
cache_init(void *ptr)
{
	CacheEntry *entries = ptr;

	for (int i = 0; i < udb_max_leases; i++)
	{
		pg_atomic_init_u64(&entries[i].key, 0);
		pg_atomic_init_u64(&entries[i].tid, 0);
	}
}

void
udb_lease_row_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb leases",
		.size = cache_size,
		.init = cache_init,
		.pointer = (void **) &cache};

	udb_shmem_register(&desc);
}

Relation
udb_lease_open(void)
{
	/* it keeps a version that has been found from making room for another row */
	Assert(ActiveSnapshotSet());
	return table_open(udb_relation_oid(&advisory_leases), RowExclusiveLock);
}

LOCKTAG
udb_lease_locktag(const UdbLeaseWho *who)
{
	return udb_locktag(UDB_LOCK_LEASE, who->key);
}

/* A lease's key in the cache, which all databases share. */
static uint64
cache_key(Relation rel, const UdbLeaseWho *who)
{
	uint64		table = ((uint64) MyDatabaseId << 32) | RelationGetRelid(rel);
	uint64		key = who->key ^ (table * UINT64CONST(0x9E3779B97F4A7C15));

	return key != 0 ? key : 1;
}

static CacheEntry *
cache_entry(uint64 key, int way)
{
	return &cache[(key + way) % udb_max_leases];
}

static bool
cache_get(uint64 key, ItemPointer tid)
{
	for (int i = 0; i < CACHE_WAYS; i++)
	{
		CacheEntry *e = cache_entry(key, i);

		if (pg_atomic_read_u64(&e->key) == key)
		{
			uint64		packed = pg_atomic_read_u64(&e->tid);

			ItemPointerSet(tid, (BlockNumber) (packed >> 16), (OffsetNumber) (packed & 0xFFFF));
			return ItemPointerIsValid(tid);
		}
	}
	return false;
}

static void
cache_put(uint64 key, ItemPointer tid)
{
	CacheEntry *victim = NULL;
	uint64 packed =
		((uint64) ItemPointerGetBlockNumber(tid) << 16) | ItemPointerGetOffsetNumber(tid);

	for (int i = 0; i < CACHE_WAYS; i++)
	{
		CacheEntry *e = cache_entry(key, i);
		uint64		used = pg_atomic_read_u64(&e->key);

		if (used == key)
		{
			pg_atomic_write_u64(&e->tid, packed);
			return;
		}
		if (victim == NULL && used == 0)
			victim = e;
	}
	if (victim == NULL)
		victim = cache_entry(key, (int) ((key >> 32) % CACHE_WAYS));
	pg_atomic_write_u64(&victim->tid, packed);
	pg_atomic_write_u64(&victim->key, key);
}

static bool
same_text(Datum value, const char *string)
{
	struct varlena *text = (struct varlena *) DatumGetPointer(value);
	Size		len = strlen(string);

	return VARSIZE_ANY_EXHDR(text) == len && memcmp(VARDATA_ANY(text), string, len) == 0;
}

/*
 * Read the version at row->tid if the snapshot shows it and it is of this
 * lease.  If another transaction has replaced it and is in progress, *next is
 * where the replacement is, else it is invalid.
 */
static bool
fetch(Relation rel, const UdbLeaseWho *who, Snapshot snapshot, UdbLeaseRow *row, ItemPointer next)
{
	HeapTupleData tuple;
	Buffer		buffer;
	Datum		values[Natts_lease];
	bool		nulls[Natts_lease];
	bool		found;

	tuple.t_self = row->tid;
	/* the table may have been truncated since */
	if (ItemPointerGetBlockNumber(&row->tid) >= RelationGetNumberOfBlocks(rel) ||
		!heap_fetch(rel, snapshot, &tuple, &buffer, false))
		return false;

	heap_deform_tuple(&tuple, RelationGetDescr(rel), values, nulls);
	found = same_text(values[Anum_lease_name - 1], who->name);
	if (found)
	{
		row->same_owner = same_text(values[Anum_owner_id - 1], who->owner);
		row->lease.expires_at = DatumGetTimestampTz(values[Anum_expires_at - 1]);
		row->lease.fencing_token = DatumGetInt64(values[Anum_fencing_token - 1]);
		row->lease.acquired_at = DatumGetTimestampTz(values[Anum_acquired_at - 1]);
		row->busy = InvalidTransactionId;
		ItemPointerSetInvalid(next);
		if (snapshot->snapshot_type == SNAPSHOT_DIRTY)
			row->busy = TransactionIdIsValid(snapshot->xmin) ? snapshot->xmin : snapshot->xmax;
		if (TransactionIdIsValid(row->busy))
		{
			LockBuffer(buffer, BUFFER_LOCK_SHARE);
			if (!ItemPointerEquals(&tuple.t_data->t_ctid, &row->tid))
				*next = tuple.t_data->t_ctid;
			LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		}
	}
	ReleaseBuffer(buffer);
	return found;
}

/* Read the newest version, starting at row->tid. */
static bool
fetch_newest(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row)
{
	SnapshotData dirty;
	ItemPointerData next;
	UdbLeaseRow newer;

	InitDirtySnapshot(dirty);
	if (!fetch(rel, who, &dirty, row, &next))
		return false;
	while (ItemPointerIsValid(&next))
	{
		CHECK_FOR_INTERRUPTS();
		newer.tid = next;
		if (!fetch(rel, who, &dirty, &newer, &next))
			break;				/* taken back meanwhile */
		*row = newer;
	}
	return true;
}

/* Where the index says that the version visible to a new snapshot is. */
static bool
find_by_index(Relation rel, const UdbLeaseWho *who, Snapshot snapshot, ItemPointer tid)
{
	Relation	index = index_open(udb_relation_oid(&advisory_leases_pkey), AccessShareLock);
	IndexScanDesc scan = udb_index_beginscan(rel, index, snapshot, 1);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Datum		name = CStringGetTextDatum(who->name);
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ, name);
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
		*tid = slot->tts_tid;
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	pfree(DatumGetPointer(name));
	return found;
}

bool
udb_lease_find(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row)
{
	uint64		key = cache_key(rel, who);
	bool		found;

	if (cache_get(key, &row->tid) && fetch_newest(rel, who, row))
		return true;
	do
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		CHECK_FOR_INTERRUPTS();
		found = find_by_index(rel, who, snapshot, &row->tid);
		UnregisterSnapshot(snapshot);
		UDB_DEBUG_POINT("lease-looked-up");
		if (!found)
			return false;

		/* or it has been replaced since: look again */
	} while (!fetch_newest(rel, who, row));
	cache_put(key, &row->tid);
	return true;
}

bool
udb_lease_find_committed(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ItemPointerData next;
	bool		found;

	found = find_by_index(rel, who, snapshot, &row->tid) && fetch(rel, who, snapshot, row, &next);
	UnregisterSnapshot(snapshot);
	return found;
}

static HeapTuple
form_row(Relation rel, const UdbLeaseWho *who, const UdbLease *lease)
{
	Datum		values[Natts_lease];
	bool		nulls[Natts_lease] = {false};
	HeapTuple	tuple;

	values[Anum_lease_name - 1] = CStringGetTextDatum(who->name);
	values[Anum_owner_id - 1] = CStringGetTextDatum(who->owner);
	values[Anum_expires_at - 1] = TimestampTzGetDatum(lease->expires_at);
	values[Anum_fencing_token - 1] = Int64GetDatum(lease->fencing_token);
	values[Anum_acquired_at - 1] = TimestampTzGetDatum(lease->acquired_at);
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	pfree(DatumGetPointer(values[Anum_lease_name - 1]));
	pfree(DatumGetPointer(values[Anum_owner_id - 1]));
	return tuple;
}

/* Enter a version into the index of names. */
static void
index_by_name(Relation rel, HeapTuple tuple, IndexUniqueCheck check)
{
	Relation	index = index_open(udb_relation_oid(&advisory_leases_pkey), RowExclusiveLock);
	IndexInfo  *info = BuildIndexInfo(index);
	Datum		values[1];
	bool		nulls[1];

	values[0] = heap_getattr(tuple, Anum_lease_name, RelationGetDescr(rel), &nulls[0]);
	(void) index_insert(index, values, nulls, &tuple->t_self, rel, check, check == UNIQUE_CHECK_NO,
						info);
	pfree(info);
	index_close(index, RowExclusiveLock);
}

/*
 * Enter a version into all indexes.  There is only one, unless somebody has
 * made another, to which the executor's way is good enough.
 */
static void
index_row(Relation rel, HeapTuple tuple, IndexUniqueCheck check)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		only = list_length(indexes) == 1;

	list_free(indexes);
	if (likely(only))
		index_by_name(rel, tuple, check);
	else
	{
		EState	   *estate = CreateExecutorState();
		ResultRelInfo *rri = makeNode(ResultRelInfo);
		TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);

		InitResultRelInfo(rri, rel, 0, NULL, 0);
		ExecOpenIndices(rri, false);
		ExecStoreHeapTuple(tuple, slot, false);
		slot->tts_tid = tuple->t_self;
		udb_insert_index_tuples(rri, slot, estate);
		ExecCloseIndices(rri);
		ExecDropSingleTupleTableSlot(slot);
		FreeExecutorState(estate);
	}
}

/* After writing: later lookups shall find it, in this command too. */
static void
written(Relation rel, const UdbLeaseWho *who, HeapTuple tuple)
{
	cache_put(cache_key(rel, who), &tuple->t_self);
	CommandCounterIncrement();
	heap_freetuple(tuple);
}

void
udb_lease_insert(Relation rel, const UdbLeaseWho *who, const UdbLease *lease)
{
	HeapTuple	tuple = form_row(rel, who, lease);

	heap_insert(rel, tuple, GetCurrentCommandId(true), 0, NULL);
	index_row(rel, tuple, UNIQUE_CHECK_YES);
	written(rel, who, tuple);
}

/*
 * Make room on the page, which reading by place does not do as an index scan
 * would.  Not each time that the fill factor would allow it: it costs WAL.
 */
static void
prune(Relation rel, ItemPointer tid)
{
	Buffer		buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	Page		page = BufferGetPage(buffer);

	if (PageIsFull(page) || PageGetHeapFreeSpace(page) < PRUNE_BELOW)
		heap_page_prune_opt(rel, buffer);
	ReleaseBuffer(buffer);
}

/* Throw unless the transaction may replace this version. */
static void
check_visible(Relation rel, const UdbLeaseWho *who, ItemPointer tid)
{
	UdbLeaseRow row = {.tid = *tid};
	ItemPointerData next;

	if (IsolationUsesXactSnapshot() && !fetch(rel, who, GetTransactionSnapshot(), &row, &next))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access to lease \"%s\" due to concurrent update",
						who->name),
				 errhint("Use leases in transactions at isolation level READ COMMITTED.")));
}

/*
 * What an update of this version would meet.  heap_update() cannot be asked not
 * to wait.
 */
static TM_Result
update_state(Relation rel, ItemPointer tid)
{
	Buffer		buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	Page		page = BufferGetPage(buffer);
	ItemId		item;
	HeapTupleData tuple;
	TM_Result	result;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	item = PageGetItemId(page, ItemPointerGetOffsetNumber(tid));
	Assert(ItemIdIsNormal(item));
	tuple.t_self = *tid;
	tuple.t_tableOid = RelationGetRelid(rel);
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple.t_len = ItemIdGetLength(item);
	result = HeapTupleSatisfiesUpdate(&tuple, GetCurrentCommandId(false), buffer);
	UnlockReleaseBuffer(buffer);
	return result;
}

TM_Result
udb_lease_update(Relation rel, const UdbLeaseWho *who, ItemPointer tid, const UdbLease *lease,
				 bool wait)
{
	HeapTuple	tuple;
	TM_FailureData failure;
	TM_Result	result;
	bool		update_indexes;

	check_visible(rel, who, tid);
	prune(rel, tid);
	result = update_state(rel, tid);
	if (result == TM_Ok || (result == TM_BeingModified && wait))
	{
		tuple = form_row(rel, who, lease);
		UDB_DEBUG_POINT("lease-update");
		result = udb_heap_update(rel, tid, tuple, GetCurrentCommandId(true), InvalidSnapshot, true,
								 &failure, &update_indexes);
		if (result == TM_Ok)
		{
			if (update_indexes)
				index_row(rel, tuple, UNIQUE_CHECK_NO);
			written(rel, who, tuple);
			return TM_Ok;
		}
		heap_freetuple(tuple);
	}
	switch (result)
	{
		case TM_BeingModified:
			return TM_BeingModified;
		case TM_Updated:
		case TM_Deleted:
			return TM_Updated;
		default:
			elog(ERROR, "unexpected result %d of updating lease \"%s\"", (int) result, who->name);
	}
}
