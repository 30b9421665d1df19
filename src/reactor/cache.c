/*-------------------------------------------------------------------------
 *
 * cache.c
 *	  resolve(): a record by its key, from what this session has read before.
 *
 * Of each registry the session keeps the records that it has read, in a hash
 * table, with the watermark at which they are right.  A small registry is read
 * whole at its first use; of a larger one each record when it is asked for, and
 * so is the news that there is none.
 *
 * When a registry may have changed, its row is read, which is one.  If the
 * watermark is the same, all stays.  If it has moved, the records that have
 * changed since are read, which their seq tells; only a removal leaves no trace
 * and makes the session forget the registry.
 *
 * What is kept is always committed.  While this transaction has changes of its
 * own to a registry, which it may roll back and number anew, its records are
 * read from the table; nobody else can change them then.
 *
 * Why it is never stale: a message about a change is in the queue before the
 * commit is confirmed, and is received before we look.  One that comes while we
 * read makes what was read doubtful again, as "checked" is the generation of
 * before.
 *
 * Memory: all in one context; when it is larger than udb.registry_cache, all is
 * forgotten and begins anew.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "common/check.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "reactor/inval.h"
#include "reactor/registry.h"
#include "reactor/table.h"

/* a registry with more records than this is not read whole */
#define WHOLE_MAX 1000

/* more numbers than this are not caught up with one record at a time */
#define CATCH_UP_MAX 1000

/* a record larger than this part of udb.registry_cache is not kept */
#define LARGE_PART 8

typedef struct Bytes
{
	const char *data;
	int			len;
} Bytes;

static inline uint32
name_hash(Bytes name)
{
	return hash_bytes((const unsigned char *) name.data, name.len);
}

static inline bool
name_equal(Bytes a, Bytes b)
{
	return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

typedef struct CachedRecord
{
	Bytes		key;
	uint32		hash;
	char		status;
	struct varlena *record;		/* NULL: there is none with this key */
} CachedRecord;

#define SH_PREFIX records
#define SH_ELEMENT_TYPE CachedRecord
#define SH_KEY_TYPE Bytes
#define SH_KEY key
#define SH_HASH_KEY(table, key) name_hash(key)
#define SH_EQUAL(table, a, b) name_equal(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct CachedRegistry
{
	Bytes		name;
	uint32		hash;
	char		status;
	MemoryContext context;		/* of its records */
	records_hash *records;
	TimestampTz created_at;
	int64		watermark;		/* at which the records are right */
	uint64		checked;		/* generation for which that is known */
	bool		whole;			/* what is not here is not there */
} CachedRegistry;

#define SH_PREFIX registries
#define SH_ELEMENT_TYPE CachedRegistry
#define SH_KEY_TYPE Bytes
#define SH_KEY name
#define SH_HASH_KEY(table, key) name_hash(key)
#define SH_EQUAL(table, a, b) name_equal(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) (entry)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static MemoryContext cache_context = NULL;
static registries_hash *cache = NULL;
static uint64 cache_resets = 0; /* udb_registry_resets for which it is good */

static void
forget_all(void)
{
	if (cache_context != NULL)
		MemoryContextReset(cache_context);
	cache = NULL;
	cache_resets = udb_registry_resets;
}

static void
forget(CachedRegistry *cached)
{
	MemoryContext context = cached->context;

	/* its name is in there; and another entry may move to its place */
	(void) registries_delete(cache, cached->name);
	MemoryContextDelete(context);
}

static CachedRegistry *
find(Bytes name)
{
	return cache != NULL ? registries_lookup(cache, name) : NULL;
}

/* A registry of which nothing has been read yet. */
static CachedRegistry *
remember(Bytes name, const UdbRegistry *registry)
{
	MemoryContext context;
	records_hash *records;
	CachedRegistry *cached;
	char	   *copy;
	bool		found;

	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(TopMemoryContext, "udb registries",
											  ALLOCSET_SMALL_SIZES);
	if (cache == NULL)
		cache = registries_create(cache_context, 16, NULL);

	/* what can fail comes first, so that nothing half-made is found later */
	context = AllocSetContextCreate(cache_context, "udb registry", ALLOCSET_SMALL_SIZES);
	records = records_create(context, 16, NULL);
	copy = MemoryContextAlloc(context, name.len);
	memcpy(copy, name.data, name.len);
	name.data = copy;
	cached = registries_insert(cache, name, &found);
	Assert(!found);
	cached->context = context;
	cached->records = records;
	cached->created_at = registry->created_at;
	cached->watermark = registry->watermark;
	cached->checked = 0;
	cached->whole = false;
	return cached;
}

/*
 * Keep a record, or with NULL that there is none, in place of what was kept.
 * Returns false if it is too large.
 */
static bool
keep(CachedRegistry *cached, Bytes key, struct varlena *record)
{
	Size		size = record != NULL ? VARSIZE_ANY(record) : 0;
	struct varlena *copy = NULL;
	CachedRecord *entry;
	bool		found;

	entry = records_lookup(cached->records, key);
	if (size > (Size) udb_registry_cache * 1024 / LARGE_PART)
	{
		if (entry != NULL)
			(void) records_delete(cached->records, key);
		cached->whole = false;
		return false;
	}
	if (record != NULL)
	{
		copy = MemoryContextAlloc(cached->context, size);
		memcpy(copy, record, size);
	}
	if (entry == NULL)
	{
		char	   *data = MemoryContextAlloc(cached->context, Max(key.len, 1));

		memcpy(data, key.data, key.len);
		key.data = data;
		entry = records_insert(cached->records, key, &found);
	}
	else if (entry->record != NULL)
		pfree(entry->record);
	entry->record = copy;
	return true;
}

static bool
cache_full(int part)
{
	return MemoryContextMemAllocated(cache_context, true) > (Size) udb_registry_cache * 1024 / part;
}

/*
 * Read the records with a seq above "since".  Of a registry that is not whole
 * only those matter that are kept.  Can be done again when it was interrupted.
 */
static void
read_since(CachedRegistry *cached, const text *registry, int64 since, Snapshot snapshot)
{
	UdbRecordScan scan;
	UdbRecord	record;

	udb_records_begin(&scan, registry, NULL, since, snapshot);
	while (udb_records_next(&scan, &record))
	{
		Bytes		key = {record.key, record.keylen};
		struct varlena *value;

		CHECK_FOR_INTERRUPTS();
		if (!cached->whole && records_lookup(cached->records, key) == NULL)
			continue;
		value = PG_DETOAST_DATUM(record.record);
		(void) keep(cached, key, value);
		if ((Pointer) value != DatumGetPointer(record.record))
			pfree(value);
	}
	udb_records_end(&scan);
}

/*
 * Read all records, unless those are too many or too large.  If this ends in an
 * error, what has been read is right all the same.
 */
static void
read_whole(CachedRegistry *cached, const text *registry, Snapshot snapshot)
{
	UdbRecordScan scan;
	UdbRecord	record;
	bool		whole = true;
	int			n = 0;

	udb_records_begin(&scan, registry, NULL, 0, snapshot);
	while (whole && udb_records_next(&scan, &record))
	{
		Bytes		key = {record.key, record.keylen};
		struct varlena *value = PG_DETOAST_DATUM(record.record);

		CHECK_FOR_INTERRUPTS();
		whole = keep(cached, key, value) && ++n <= WHOLE_MAX && !cache_full(2);
		if ((Pointer) value != DatumGetPointer(record.record))
			pfree(value);
	}
	udb_records_end(&scan);
	cached->whole = whole;
}

/* Whether reading what has changed since is enough, and not too much. */
static bool
can_catch_up(const CachedRegistry *cached, const UdbRegistry *now)
{
	if (cached->created_at != now->created_at || cached->watermark > now->watermark)
		return false;
	if (cached->watermark < now->last_removal)
		return false;
	return now->watermark - cached->watermark <= CATCH_UP_MAX;
}

/*
 * Find out how a registry is now, and bring what is kept of it up to date.
 * NULL if nothing can be kept.  Throws 42704 if it does not exist.
 */
static CachedRegistry *
refresh(const text *registry)
{
	Bytes		name = {VARDATA_ANY(registry), VARSIZE_ANY_EXHDR(registry)};
	uint64		generation;
	CachedRegistry *cached;
	UdbRegistry now;
	Snapshot	snapshot;

	udb_registry_listen();
	if (cache_resets != udb_registry_resets)
		forget_all();
	generation = udb_registry_generation;
	snapshot = udb_registry_snapshot();
	cached = find(name);
	if (!udb_registry_get(registry, snapshot, &now))
	{
		if (cached != NULL)
			forget(cached);
		UnregisterSnapshot(snapshot);
		udb_registry_missing(registry);
	}
	UDB_DEBUG_POINT("registry-read");
	if (now.own || udb_registry_cache == 0)
	{
		UnregisterSnapshot(snapshot);
		return NULL;
	}
	if (cached != NULL && !can_catch_up(cached, &now))
	{
		forget(cached);
		cached = NULL;
	}
	if (cached == NULL)
	{
		cached = remember(name, &now);
		read_whole(cached, registry, snapshot);
	}
	else if (cached->watermark != now.watermark)
		read_since(cached, registry, cached->watermark, snapshot);
	UnregisterSnapshot(snapshot);
	UDB_DEBUG_POINT("registry-loaded");
	cached->watermark = now.watermark;
	cached->checked = generation;
	if (cache_full(1))
		cache_resets = 0;		/* from the next call on */
	return cached;
}

/* Read one record from its row; keep it, if it can be kept. */
static struct varlena *
read_one(CachedRegistry *cached, const text *registry, const text *key)
{
	Bytes		name = {VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)};
	Snapshot	snapshot = udb_registry_snapshot();
	UdbRecordScan scan;
	UdbRecord	record;
	struct varlena *result = NULL;

	udb_records_begin(&scan, registry, key, 0, snapshot);
	if (udb_records_next(&scan, &record))
		result = PG_DETOAST_DATUM_COPY(record.record);
	udb_records_end(&scan);
	UnregisterSnapshot(snapshot);
	UDB_DEBUG_POINT("registry-record-read");

	/*
	 * It may be newer than the watermark, which does no harm: what has changed
	 * since that is read again anyway.  Not so if the table has been written by
	 * other means.
	 */
	if (cached != NULL && cache_resets == udb_registry_resets)
	{
		(void) keep(cached, name, result);

		/* from the next call on, as the caller has a pointer to it */
		if (cache_full(1))
			cache_resets = 0;
	}
	return result;
}

static void
check_arguments(const text *registry, const text *key)
{
	udb_check_name("registry", registry, UDB_REGISTRY_NAME_MAX);
	udb_check_name("key", key, UDB_REGISTRY_KEY_MAX);
}

UDB_FUNCTION(udb_resolve);

/* resolve(registry, key, store) returns jsonb */
Datum
udb_resolve(PG_FUNCTION_ARGS)
{
	text	   *registry = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	text	   *key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	CachedRegistry *cached;
	struct varlena *record;
	struct varlena *result;

	if (unlikely(registry == NULL || key == NULL))
		check_arguments(registry, key);
	if (unlikely(!PG_ARGISNULL(2)))
		udb_check_store(PG_GETARG_TEXT_PP(2));

	/* all that was committed before this call has sent its messages */
	AcceptInvalidationMessages();
	if (unlikely(cache_resets != udb_registry_resets))
		forget_all();
	cached = find((Bytes){VARDATA_ANY(registry), VARSIZE_ANY_EXHDR(registry)});
	if (unlikely(cached == NULL || cached->checked != udb_registry_generation))
	{
		check_arguments(registry, key);
		cached = refresh(registry);
	}
	if (likely(cached != NULL))
	{
		CachedRecord *entry =
			records_lookup(cached->records, (Bytes){VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)});

		if (likely(entry != NULL))
		{
			if (entry->record == NULL)
				PG_RETURN_NULL();
			record = entry->record;
			result = palloc(VARSIZE_ANY(record));
			memcpy(result, record, VARSIZE_ANY(record));
			PG_RETURN_POINTER(result);
		}
		check_arguments(registry, key);
		if (cached->whole)
			PG_RETURN_NULL();
	}
	result = read_one(cached, registry, key);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(result);
}
