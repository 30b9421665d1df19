/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  Segments: the partitions of udb.outbox_events.
 *
 * Segments are ordinary tables of the extension's owner, not members of the
 * extension, so that pg_dump dumps them like any table.  The partition bounds
 * in the catalog are the only record of which positions a segment holds.
 *
 * They are created ahead by demand: none before the first event, which also
 * keeps a restored dump's segments from colliding with one made too early.
 * An enqueuer that finds its segment missing asks the worker, whose
 * transaction is short; creating it in the enqueuer's own transaction would
 * make all others wait for that one's end.
 *
 * Locking: creation takes ShareUpdateExclusiveLock on the parent, which
 * conflicts with itself only.  Lookups hold AccessShareLock on the parent for
 * the moment, and keep only locks on the segments they use.  Sweeps that
 * create ahead of need do not wait for each other: they take a lease first.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/database.h"
#include "common/guc.h"
#include "common/spi.h"
#include "lease/sweep.h"
#include "outbox/segment.h"

/* how long an enqueuer waits for the worker before it helps itself */
#define WORKER_PATIENCE_MS 5000

int
udb_segments(UdbSegment **segments)
{
	Relation	parent;
	PartitionDesc desc;
	PartitionBoundInfo bounds;
	int			n = 0;

	/*
	 * Taking a lock that this transaction already has does not process
	 * invalidations, but new segments appear in spite of it.
	 */
	AcceptInvalidationMessages();
	parent = table_open(udb_relation_oid(&udb_outbox_events), AccessShareLock);
	desc = RelationGetPartitionDesc(parent, true);
	bounds = desc->boundinfo;

	*segments = palloc(sizeof(UdbSegment) * Max(desc->nparts, 1));

	/* indexes[i] is the partition whose upper bound is datums[i] */
	for (int i = 1; desc->nparts > 0 && i < bounds->ndatums; i++)
	{
		UdbSegment *segment = &(*segments)[n];

		if (bounds->indexes[i] < 0 ||
			bounds->kind[i - 1][0] != PARTITION_RANGE_DATUM_VALUE ||
			bounds->kind[i][0] != PARTITION_RANGE_DATUM_VALUE)
			continue;
		segment->relid = desc->oids[bounds->indexes[i]];
		segment->first = (uint64) DatumGetInt64(bounds->datums[i - 1][0]);
		segment->end = (uint64) DatumGetInt64(bounds->datums[i][0]);
		segment->newest = false;
		n++;
	}
	if (n > 0)
		(*segments)[n - 1].newest = true;
	table_close(parent, AccessShareLock);
	return n;
}

/* How many segments a snapshot taken now sees. */
static int
count_in_catalog(Oid parent)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	int			n = 0;

	ScanKeyInit(&key, Anum_pg_inherits_inhparent, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(parent));
	scan = systable_beginscan(inherits, InheritsParentIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(systable_getnext(scan)))
		n++;
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
	return n;
}

/* Whether the segments hold all positions from "first" to "last". */
static bool
cover(const UdbSegment *segments, int n, uint64 first, uint64 last)
{
	for (int i = 0; i < n && first <= last; i++)
	{
		if (segments[i].first > first)
			return false;
		first = Max(first, segments[i].end);
	}
	return first > last;
}

int
udb_segments_between(uint64 after, uint64 upto, UdbSegment **segments)
{
	Oid			parent = udb_relation_oid(&udb_outbox_events);
	int			n = udb_segments(segments);

	/*
	 * A transaction can be seen a moment before its invalidations are sent
	 * (see CommitTransaction).  If it has created a segment, what is in there
	 * can already be stable.
	 */
	if (!cover(*segments, n, after + 1, upto) && count_in_catalog(parent) > n)
	{
		pfree(*segments);
		InvalidateCatalogSnapshot();
		RelationCacheInvalidateEntry(parent);
		n = udb_segments(segments);
	}
	return n;
}

bool
udb_segment_find(uint64 position, UdbSegment *segment)
{
	UdbSegment *segments;
	int			n = udb_segments(&segments);
	bool		found = false;

	/* the newest one is asked for nearly always */
	for (int i = n - 1; i >= 0 && !found && position < segments[i].end; i--)
	{
		if (position >= segments[i].first)
		{
			*segment = segments[i];
			found = true;
		}
	}
	pfree(segments);
	return found;
}

Relation
udb_segment_open(Oid relid, LOCKMODE lockmode)
{
	return try_relation_open(relid, lockmode);
}

void
udb_segment_check(Relation segment, bool exact)
{
	static const Oid types[Natts_event] = {
		INT8OID, UUIDOID, TEXTOID, TEXTOID, JSONBOID, JSONBOID, TIMESTAMPTZOID};
	TupleDesc	desc = RelationGetDescr(segment);
	bool		good = segment->rd_rel->relkind == RELKIND_RELATION &&
		(exact ? desc->natts == Natts_event : desc->natts >= Natts_event);

	/* a column that was dropped has no type */
	for (int i = 0; good && i < Natts_event; i++)
		good = TupleDescAttr(desc, i)->atttypid == types[i];
	if (!good)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("outbox segment \"%s\" is not a table with the columns of udb.outbox_events",
						RelationGetRelationName(segment)),
				 errhint("Undo what ALTER TABLE has changed.")));
}

/* The unique index over this one column, if there is one that rises. */
static Oid
find_index(Relation segment, AttrNumber attno)
{
	List	   *indexes = RelationGetIndexList(segment);
	ListCell   *cell;
	Oid			result = InvalidOid;

	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index index;
		int2vector *options;
		bool		isnull;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(cell));
		index = (Form_pg_index) GETSTRUCT(tuple);
		options = (int2vector *)
			DatumGetPointer(SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indoption, &isnull));
		if (index->indisunique && index->indisvalid && index->indnkeyatts == 1 &&
			index->indkey.values[0] == attno &&
			heap_attisnull(tuple, Anum_pg_index_indpred, NULL) &&
			(options->values[0] & INDOPTION_DESC) == 0)
			result = index->indexrelid;
		ReleaseSysCache(tuple);
		if (OidIsValid(result))
			break;
	}
	list_free(indexes);
	return result;
}

Oid
udb_segment_index(Relation segment, AttrNumber attno)
{
	Oid			result = find_index(segment, attno);

	if (!OidIsValid(result))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("outbox segment \"%s\" has no unique index on column \"%s\"",
						RelationGetRelationName(segment),
						get_attname(RelationGetRelid(segment), attno, false))));
	return result;
}

bool
udb_segment_last_event(Relation rel, Snapshot snapshot, int64 *position, TimestampTz *created_at)
{
	Relation	index = index_open(udb_segment_index(rel, Anum_event_seq), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = udb_index_beginscan(rel, index, snapshot, 0);
	bool		found;

	index_rescan(scan, NULL, 0, NULL, 0);
	found = index_getnext_slot(scan, BackwardScanDirection, slot);
	if (found)
	{
		slot_getallattrs(slot);
		*position = DatumGetInt64(slot->tts_values[Anum_event_seq - 1]);
		*created_at = DatumGetTimestampTz(slot->tts_values[Anum_created_at - 1]);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	return found;
}

/* Bounds for a new segment that holds "position". */
static UdbSegment
new_bounds(uint64 position, const UdbSegment *segments, int n)
{
	UdbSegment	result = {.first = 1};
	uint64		size = (uint64) udb_outbox_segment_size;
	int			i = 0;

	while (i < n && segments[i].end <= position)
		result.first = segments[i++].end;

	/* after a gap in the positions, as a crash leaves it, skip whole segments */
	if (position >= result.first + size)
		result.first += (position - result.first) / size * size;
	result.end = result.first + size;
	if (i < n && result.end > segments[i].first)
		result.end = segments[i].first;
	return result;
}

/* A name for a new segment; its own may be taken, as by one that was detached. */
static char *
new_name(uint64 first)
{
	Oid			schema = get_namespace_oid(UDB_SCHEMA, false);
	char	   *name = psprintf("outbox_events_" UINT64_FORMAT, first);

	for (int i = 2; OidIsValid(get_relname_relid(name, schema)); i++)
		name = psprintf("outbox_events_" UINT64_FORMAT "_%d", first, i);
	return name;
}

/*
 * The constraints that a new segment needs, unless the parent has been given
 * some that came with it.  NULL if there is nothing to add.
 */
static char *
missing_constraints(const char *name)
{
	Oid			relid = get_relname_relid(name, get_namespace_oid(UDB_SCHEMA, false));
	Relation	rel = table_open(relid, NoLock);
	StringInfoData sql;
	int			n = 0;

	initStringInfo(&sql);
	appendStringInfo(&sql, "ALTER TABLE udb.%s", name);
	if (!OidIsValid(find_index(rel, Anum_event_seq)))
	{
		/* find_index() has made rd_pkindex valid */
		appendStringInfo(&sql, " ADD %s (event_seq)",
						 OidIsValid(rel->rd_pkindex) ? "UNIQUE" : "PRIMARY KEY");
		n++;
	}
	if (!OidIsValid(find_index(rel, Anum_event_id)))
		appendStringInfo(&sql, "%s ADD UNIQUE (event_id)", n++ > 0 ? "," : "");
	table_close(rel, NoLock);
	return n > 0 ? sql.data : NULL;
}

/*
 * Create the segment of a position, unless it exists.  Waits for whoever is
 * creating one.  Returns whether it did.
 */
static bool
create_segment(uint64 position)
{
	Oid			parent = udb_relation_oid(&udb_outbox_events);
	UdbSegment	segment;
	UdbSegment *segments;
	UdbSpi		spi;
	char	   *name;
	char	   *constraints;
	int			n;

	LockRelationOid(parent, ShareUpdateExclusiveLock);
	/* this must not go by anything but the catalog, and happens rarely */
	RelationCacheInvalidateEntry(parent);
	if (udb_segment_find(position, &segment))
		return false;
	n = udb_segments(&segments);
	segment = new_bounds(position, segments, n);
	pfree(segments);

	udb_spi_begin(&spi);
	/* it shall not depend on the session that happens to need it */
	(void) set_config_option("default_tablespace", "", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("default_table_access_method", "heap", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	name = new_name(segment.first);
	udb_spi_subcommand(psprintf("CREATE TABLE udb.%s (LIKE udb.outbox_events INCLUDING ALL)", name));
	constraints = missing_constraints(name);
	if (constraints != NULL)
		udb_spi_subcommand(constraints);
	udb_spi_subcommand(psprintf("ALTER TABLE udb.outbox_events ATTACH PARTITION udb.%s"
								" FOR VALUES FROM (" UINT64_FORMAT ") TO (" UINT64_FORMAT ")",
								name, segment.first, segment.end));
	udb_spi_end(&spi);
	return true;
}

void
udb_segment_ask(UdbOutbox *outbox, uint64 position)
{
	udb_atomic_max(&outbox->segment_wanted, position);
	udb_database_wake_worker(outbox->slot);
}

/* Ask the worker for the segment of a position, and wait for it a while. */
static bool
ask_worker(UdbOutbox *outbox, uint64 position, UdbSegment *segment)
{
	static uint32 wait_event = 0;
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), WORKER_PATIENCE_MS);
	bool		found = false;

	ConditionVariablePrepareToSleep(&outbox->segment_cv);
	while (!found && udb_database_has_worker(outbox->slot) && GetCurrentTimestamp() < deadline)
	{
		udb_segment_ask(outbox, position);
		(void) ConditionVariableTimedSleep(&outbox->segment_cv, 100,
										   udb_wait_event(&wait_event, "UdbOutboxSegment"));
		found = udb_segment_find(position, segment);
	}
	ConditionVariableCancelSleep();
	return found;
}

void
udb_segment_need(UdbOutbox *outbox, uint64 position, UdbSegment *segment)
{
	if (likely(udb_segment_find(position, segment)))
		return;
	if (ask_worker(outbox, position, segment))
		return;
	(void) create_segment(position);
	if (!udb_segment_find(position, segment))
		elog(ERROR, "outbox segment of position " UINT64_FORMAT " is missing", position);
}

uint64
udb_segment_alarm(const UdbSegment *segment)
{
	return segment->newest ? segment->first + (segment->end - segment->first) / 2 : segment->end;
}

/* A position of the segment that it is time to make ahead of need, or 0. */
static uint64
next_segment(UdbOutbox *outbox)
{
	UdbSegment *segments;
	int			n = udb_segments(&segments);
	uint64		position = 0;

	if (n > 0 && pg_atomic_read_u64(&outbox->counter) >= udb_segment_alarm(&segments[n - 1]))
		position = segments[n - 1].end;
	pfree(segments);
	return position;
}

int
udb_segments_create_ahead(UdbOutbox *outbox)
{
	uint64		wanted = pg_atomic_exchange_u64(&outbox->segment_wanted, 0);
	UdbSegment	segment;
	int			created = 0;

	if (wanted != 0 && udb_segment_find(wanted, &segment))
		wanted = 0;
	if (wanted == 0 && next_segment(outbox) == 0)
		return 0;

	/* whoever has the lease makes the same, and enqueuers that miss it ask again */
	if (!udb_sweep_once("outbox_segments"))
		return 0;
	if (wanted != 0 && create_segment(wanted))
		created++;
	wanted = next_segment(outbox);
	if (wanted != 0 && create_segment(wanted))
		created++;
	return created;
}

void
udb_segments_created(UdbOutbox *outbox)
{
	ConditionVariableBroadcast(&outbox->segment_cv);
}

UDB_FUNCTION(udb_sweep_outbox_segments);

/* sweep_outbox_segments() returns integer: how many segments it created */
Datum
udb_sweep_outbox_segments(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sweep_outbox_segments()");
	PG_RETURN_INT32(udb_segments_create_ahead(udb_outbox()));
}
