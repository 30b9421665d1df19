/*-------------------------------------------------------------------------
 *
 * consumer.c
 *	  Consumers: finding their rows, and what shared memory caches about them.
 *
 * A cursor that moves fifty times a second while somebody holds an old
 * snapshot leaves thousands of dead versions of one row, and an index scan
 * visits all of them to find the live one.  So the cache remembers where the
 * live one was last; a look there under the reader's snapshot either finds it
 * or shows that the index must be asked.  It also remembers how far a topic
 * filter has been looked for in vain, so that a consumer of a rare topic does
 * not scan the log again at each poll.
 *
 * Locking: one lock for the cache, held for a few instructions.
 *
 * Durability: none needed; whatever the cache says is checked against the row.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "common/catalog.h"
#include "common/compat.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "common/shmem.h"
#include "outbox/consumer.h"
#include "outbox/state.h"

/* columns of udb.consumers */
#define Anum_consumers_name 1
#define Anum_consumers_topics 2
#define Anum_consumers_position 3
#define Anum_consumers_paused 4
#define Anum_consumers_created_at 5

/* entries a name can be in: the cache is a hash table without chains */
#define CACHE_WAYS 8

typedef struct CacheEntry
{
	Oid			dboid;			/* InvalidOid: free */
	char		name[NAMEDATALEN];
	Oid			generation;		/* of the outbox: see udb_outbox_generation() */
	TimestampTz created_at;		/* tells a consumer from a later namesake */
	ItemPointerData tid;		/* where its row was */
	uint64		position;		/* scanned is valid for this position only */
	uint64		scanned;
	TimestampTz last_read;
} CacheEntry;

typedef struct Cache
{
	LWLock		lock;
	CacheEntry	entries[FLEXIBLE_ARRAY_MEMBER];
} Cache;

static Cache *cache = NULL;

static UdbRelation consumers_pkey = {"consumers_pkey"};

static Size
cache_size(void)
{
	return add_size(offsetof(Cache, entries), mul_size(sizeof(CacheEntry), udb_max_consumers));
}

static void
cache_init(void *ptr)
{
	LWLockInitialize(&((Cache *) ptr)->lock, udb_lwlock_tranche());
}

void
udb_consumer_cache_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb consumers",
		.size = cache_size,
		.init = cache_init,
		.pointer = (void **) &cache};

	udb_shmem_register(&desc);
}

void
udb_consumer_name(text *name, char *buffer)
{
	Size		len;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("consumer name must not be null")));
	len = VARSIZE_ANY_EXHDR(name);
	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("consumer name must not be empty")));
	if (len >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("consumer name of %zu bytes is too long", len),
				 errdetail("The limit is %d bytes.", NAMEDATALEN - 1)));
	memset(buffer, 0, NAMEDATALEN);
	memcpy(buffer, VARDATA_ANY(name), len);
}

/*
 * The entry of a consumer of this database, or NULL.  With "enter", one is made
 * in place of the one of its ways that was not read for longest.  The caller
 * holds the lock, exclusively if it is going to write.
 */
static CacheEntry *
lookup(const char *name, bool enter)
{
	uint32		hash = hash_bytes((const unsigned char *) name, strlen(name)) ^ MyDatabaseId;
	CacheEntry *victim = NULL;

	for (int i = 0; i < CACHE_WAYS; i++)
	{
		CacheEntry *e = &cache->entries[(hash + i) % udb_max_consumers];

		if (e->dboid == MyDatabaseId && strcmp(e->name, name) == 0)
			return e;
		if (victim == NULL || !OidIsValid(e->dboid) ||
			(OidIsValid(victim->dboid) && e->last_read < victim->last_read))
			victim = e;
	}
	if (!enter)
		return NULL;
	memset(victim, 0, sizeof(CacheEntry));
	victim->dboid = MyDatabaseId;
	strlcpy(victim->name, name, NAMEDATALEN);
	ItemPointerSetInvalid(&victim->tid);
	return victim;
}

/* The same for a consumer whose row is at hand; forgets an older namesake. */
static CacheEntry *
enter(const UdbConsumer *consumer, Oid generation)
{
	CacheEntry *e = lookup(consumer->name, true);

	if (e->created_at != consumer->created_at || e->generation != generation)
	{
		e->generation = generation;
		e->created_at = consumer->created_at;
		ItemPointerSetInvalid(&e->tid);
		e->position = e->scanned = 0;
		e->last_read = 0;
	}
	return e;
}

void
udb_consumer_moved(UdbConsumer *consumer, ItemPointer tid, uint64 position)
{
	Oid			generation = udb_outbox_generation();
	CacheEntry *e;

	consumer->position = position;
	consumer->tid = *tid;
	LWLockAcquire(&cache->lock, LW_EXCLUSIVE);
	e = enter(consumer, generation);
	e->tid = *tid;
	LWLockRelease(&cache->lock);
}

void
udb_consumer_scanned(UdbConsumer *consumer, uint64 scanned)
{
	Oid			generation = udb_outbox_generation();
	CacheEntry *e;

	consumer->scanned = scanned;
	LWLockAcquire(&cache->lock, LW_EXCLUSIVE);
	e = enter(consumer, generation);
	if (e->position != consumer->position || e->scanned < scanned)
	{
		e->position = consumer->position;
		e->scanned = scanned;
	}
	LWLockRelease(&cache->lock);
}

void
udb_consumer_has_read(const UdbConsumer *consumer)
{
	Oid			generation = udb_outbox_generation();
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(&cache->lock, LW_EXCLUSIVE);
	enter(consumer, generation)->last_read = now;
	LWLockRelease(&cache->lock);
}

/* Fetch the row at a remembered place; false if the live one is elsewhere. */
static bool
fetch_at(Relation rel, const char *name, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	bool		isnull;

	/* the table may have been truncated since */
	if (ItemPointerGetBlockNumber(tid) >= RelationGetNumberOfBlocks(rel) ||
		!table_tuple_fetch_row_version(rel, tid, snapshot, slot))
		return false;
	return strcmp(TextDatumGetCString(slot_getattr(slot, Anum_consumers_name, &isnull)), name) == 0;
}

static bool
fetch_by_index(Relation rel, const char *name, Snapshot snapshot, TupleTableSlot *slot)
{
	Relation	index = index_open(udb_relation_oid(&consumers_pkey), AccessShareLock);
	IndexScanDesc scan = udb_index_beginscan(rel, index, snapshot, 1);
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
		ExecMaterializeSlot(slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return found;
}

bool
udb_consumer_find(const char *name, Snapshot snapshot, UdbConsumer *consumer)
{
	Relation	rel = table_open(udb_relation_oid(&udb_consumers), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Oid			generation = udb_outbox_generation();
	CacheEntry	cached = {0};
	CacheEntry *e;
	Datum	   *values;
	Datum		topics;
	bool		found;

	LWLockAcquire(&cache->lock, LW_SHARED);
	e = lookup(name, false);
	if (e != NULL && e->generation == generation)
		cached = *e;
	else
		e = NULL;
	LWLockRelease(&cache->lock);

	found = e != NULL && ItemPointerIsValid(&cached.tid) &&
		fetch_at(rel, name, &cached.tid, snapshot, slot);
	if (!found && !fetch_by_index(rel, name, snapshot, slot))
	{
		ExecDropSingleTupleTableSlot(slot);
		table_close(rel, AccessShareLock);
		return false;
	}

	slot_getallattrs(slot);
	strlcpy(consumer->name, name, NAMEDATALEN);
	values = slot->tts_values;
	consumer->position = (uint64) DatumGetInt64(values[Anum_consumers_position - 1]);
	consumer->paused = DatumGetBool(values[Anum_consumers_paused - 1]);
	consumer->created_at = DatumGetTimestampTz(values[Anum_consumers_created_at - 1]);
	topics = values[Anum_consumers_topics - 1];
	if (slot->tts_isnull[Anum_consumers_topics - 1])
		consumer->topics = NULL;
	else
		consumer->topics = udb_topics(DatumGetArrayTypePCopy(topics));
	consumer->tid = slot->tts_tid;
	consumer->scanned = 0;
	if (e != NULL && cached.created_at == consumer->created_at &&
		cached.position == consumer->position)
		consumer->scanned = cached.scanned;
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);

	if (!found)
		udb_consumer_moved(consumer, &consumer->tid, consumer->position);
	return true;
}

void
udb_consumer_get(const char *name, Snapshot snapshot, UdbConsumer *consumer)
{
	if (!udb_consumer_find(name, snapshot, consumer))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("consumer \"%s\" does not exist", name)));
}

void
udb_consumer_lock_retention(void)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_RETENTION, 0);

	(void) LockAcquire(&tag, ShareLock, false, false);
}

UDB_FUNCTION(udb_consumer_reads);

/* _consumer_reads() returns SETOF (name, last_read), as far as known */
Datum
udb_consumer_reads(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	CacheEntry *entries = palloc(sizeof(CacheEntry) * udb_max_consumers);

	InitMaterializedSRF(fcinfo, 0);
	LWLockAcquire(&cache->lock, LW_SHARED);
	memcpy(entries, cache->entries, sizeof(CacheEntry) * udb_max_consumers);
	LWLockRelease(&cache->lock);

	for (int i = 0; i < udb_max_consumers; i++)
	{
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		if (entries[i].dboid != MyDatabaseId || entries[i].last_read == 0)
			continue;
		values[0] = CStringGetTextDatum(entries[i].name);
		values[1] = TimestampTzGetDatum(entries[i].created_at);
		values[2] = TimestampTzGetDatum(entries[i].last_read);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
