/*-------------------------------------------------------------------------
 *
 * table.c
 *	  Reading rows of registries, without a plan.
 *
 * As catalogs are read: by index, with a snapshot of what is committed now and
 * of what this transaction has written, so also in a transaction whose own
 * snapshot is older, and in one that runs in parallel.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/catalog.h"
#include "reactor/table.h"

/* columns of udb.registries */
#define Anum_registries_registry 1
#define Anum_registries_watermark 2
#define Anum_registries_last_removal 3
#define Anum_registries_created_at 4

/* columns of udb.registry_records */
#define Anum_records_registry 1
#define Anum_records_key 2
#define Anum_records_record 3
#define Anum_records_seq 4

/* columns of udb.registry_consumers */
#define Anum_consumers_consumer 1
#define Anum_consumers_registry 2
#define Anum_consumers_applied 3

static UdbRelation registries = {"registries"};
static UdbRelation registries_pkey = {"registries_pkey"};
static UdbRelation registry_records = {"registry_records"};
static UdbRelation registry_records_pkey = {"registry_records_pkey"};
static UdbRelation registry_records_seq_key = {"registry_records_seq_key"};
static UdbRelation registry_consumers = {"registry_consumers"};
static UdbRelation registry_consumers_pkey = {"registry_consumers_pkey"};

Snapshot
udb_registry_snapshot(void)
{
	return RegisterSnapshot(GetCatalogSnapshot(udb_relation_oid(&registries)));
}

void
udb_registry_missing(const text *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("registry \"%s\" does not exist", text_to_cstring(name))));
}

static int64
int64_column(HeapTuple tuple, int attno, TupleDesc desc)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, attno, desc, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

bool
udb_registry_get(const text *name, Snapshot snapshot, UdbRegistry *registry)
{
	Relation	table = table_open(udb_relation_oid(&registries), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(table);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_registries_registry, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(name));
	scan = systable_beginscan(table, udb_relation_oid(&registries_pkey), true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		registry->watermark = int64_column(tuple, Anum_registries_watermark, desc);
		registry->last_removal = int64_column(tuple, Anum_registries_last_removal, desc);
		registry->created_at = int64_column(tuple, Anum_registries_created_at, desc);
		registry->own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

bool
udb_registry_consumer_get(const text *consumer, Snapshot snapshot, text **registry, int64 *applied)
{
	Relation	table = table_open(udb_relation_oid(&registry_consumers), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(table);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_consumers_consumer, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(consumer));
	scan = systable_beginscan(table, udb_relation_oid(&registry_consumers_pkey), true, snapshot, 1,
							  &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		name = heap_getattr(tuple, Anum_consumers_registry, desc, &isnull);

		*registry = DatumGetTextPCopy(name);
		*applied = int64_column(tuple, Anum_consumers_applied, desc);
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

void
udb_records_begin(UdbRecordScan *scan, const text *registry, const text *key, int64 since,
				  Snapshot snapshot)
{
	UdbRelation *index = key != NULL ? &registry_records_pkey : &registry_records_seq_key;
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_records_registry, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(registry));
	if (key != NULL)
		ScanKeyInit(&keys[1], Anum_records_key, BTEqualStrategyNumber, F_TEXTEQ,
					PointerGetDatum(key));
	else
		ScanKeyInit(&keys[1], Anum_records_seq, BTGreaterStrategyNumber, F_INT8GT,
					Int64GetDatum(since));
	scan->table = table_open(udb_relation_oid(&registry_records), AccessShareLock);
	scan->scan = systable_beginscan(scan->table, udb_relation_oid(index), true, snapshot, 2, keys);
}

bool
udb_records_next(UdbRecordScan *scan, UdbRecord *record)
{
	HeapTuple	tuple = systable_getnext(scan->scan);
	TupleDesc	desc = RelationGetDescr(scan->table);
	bool		isnull;
	text	   *key;

	if (!HeapTupleIsValid(tuple))
		return false;
	/* a column with plain storage */
	key = (text *) DatumGetPointer(heap_getattr(tuple, Anum_records_key, desc, &isnull));
	Assert(!VARATT_IS_EXTENDED(key) || VARATT_IS_SHORT(key));
	record->key = VARDATA_ANY(key);
	record->keylen = VARSIZE_ANY_EXHDR(key);
	record->record = heap_getattr(tuple, Anum_records_record, desc, &isnull);
	return true;
}

void
udb_records_end(UdbRecordScan *scan)
{
	systable_endscan(scan->scan);
	table_close(scan->table, AccessShareLock);
}
