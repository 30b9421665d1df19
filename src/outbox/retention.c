/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Dropping segments that nobody needs any more.
 *
 * A segment goes when its last event is older than udb.outbox_retention and
 * every consumer, paused ones included, has passed it.  A consumer has also
 * passed where nothing is left for it to read, because its topics leave it out,
 * it is parked or the positions were never used; its cursor is then moved
 * along.  The newest segment stays.
 *
 * Locking: dropping a partition needs AccessExclusiveLock on the parent.  A
 * lock request that waits makes everybody else wait behind it, so all locks
 * are taken only if they are free at once (PgQ rotates its tables so); if not,
 * the next round tries again.  UDB_LOCK_RETENTION keeps off transactions that
 * set a cursor to a place that is about to go, and a second sweep; that one
 * also meets the sweep's lease, which is taken when there is something to drop.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <limits.h>

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "common/spi.h"
#include "lease/sweep.h"
#include "outbox/consumer.h"
#include "outbox/feed.h"
#include "outbox/horizon.h"
#include "outbox/retention.h"
#include "outbox/segment.h"

/* Whether all that is in the segment is older than the retention. */
static bool
is_expired(const UdbSegment *segment)
{
	Relation	rel;
	Snapshot	snapshot;
	int64		position;
	TimestampTz created_at;
	bool		expired;

	if (udb_outbox_retention < 0)
		return false;
	rel = udb_segment_open(segment->relid, AccessShareLock);
	if (rel == NULL)
		return false;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	expired = !udb_segment_last_event(rel, snapshot, &position, &created_at) ||
		created_at < GetCurrentTimestamp() - (int64) udb_outbox_retention * USECS_PER_SEC;
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return expired;
}

/*
 * Whether every consumer has passed the segment.  Moves those along that have
 * nothing to read in the rest of it, and locks their rows.
 */
static bool
all_have_passed(UdbOutbox *outbox, const UdbSegment *segment)
{
	static SPIPlanPtr behind_plan = NULL;
	static SPIPlanPtr move_plan = NULL;
	static const Oid types[] = {INT8OID, TEXTOID};
	Datum		values[2];
	uint64		last = segment->end - 1;
	UdbSpi		spi;
	SPITupleTable *rows;
	uint64		n;
	bool		passed = true;

	values[0] = Int64GetDatum((int64) last);
	udb_spi_begin(&spi);
	n = udb_spi_execute(&behind_plan, "SELECT name FROM udb.consumers WHERE position < $1",
						1, types, values, NULL, SPI_OK_SELECT);
	rows = SPI_tuptable;
	UDB_DEBUG_POINT("consumers-listed");
	for (uint64 i = 0; i < n && passed; i++)
	{
		UdbConsumer consumer;
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		/* one that was dropped meanwhile is in nobody's way */
		if (!udb_consumer_find(SPI_getvalue(rows->vals[i], rows->tupdesc, 1), snapshot, &consumer))
		{
			UnregisterSnapshot(snapshot);
			continue;
		}
		passed = udb_feed_consume(outbox, &consumer, last, 1, snapshot, NULL) == 0;
		UnregisterSnapshot(snapshot);
		values[1] = CStringGetTextDatum(consumer.name);
		if (passed)
			passed = udb_spi_execute(&move_plan,
									 "UPDATE udb.consumers SET position = $1 WHERE name = $2 AND ctid IN"
									 " (SELECT ctid FROM udb.consumers WHERE name = $2 AND position < $1"
									 " FOR UPDATE SKIP LOCKED)",
									 2, types, values, NULL, SPI_OK_UPDATE) > 0;
	}
	udb_spi_end(&spi);
	return passed;
}

/* The TOAST table, which autovacuum, for one, locks alone. */
static Oid
toast_table(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			result;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	result = ((Form_pg_class) GETSTRUCT(tuple))->reltoastrelid;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Lock all of the relations exclusively, or none of them: never wait for one
 * while holding another that enqueuers need.
 */
static bool
lock_all(const Oid *relids, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (!OidIsValid(relids[i]) || ConditionalLockRelationOid(relids[i], AccessExclusiveLock))
			continue;
		while (--i >= 0)
			if (OidIsValid(relids[i]))
				UnlockRelationOid(relids[i], AccessExclusiveLock);
		return false;
	}
	return true;
}

/* Drop it if that needs no waiting. */
static bool
drop_segment(const UdbSegment *segment)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {INT8OID};
	Oid			relids[] = {
		udb_relation_oid(&udb_outbox_events), segment->relid, toast_table(segment->relid)};
	ObjectAddress object;
	Datum		values[1];
	UdbSpi		spi;

	if (!lock_all(relids, lengthof(relids)))
		return false;

	values[0] = Int64GetDatum((int64) segment->end - 1);
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan,
						   "INSERT INTO udb.outbox_state (singleton, dropped_through) VALUES (true, $1)"
						   " ON CONFLICT (singleton) DO UPDATE"
						   " SET dropped_through = excluded.dropped_through",
						   1, types, values, NULL, SPI_OK_INSERT);
	udb_spi_end(&spi);

	/* restricted: somebody's view on a segment is an error, not a loss */
	ObjectAddressSet(object, RelationRelationId, segment->relid);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
	return true;
}

int
udb_retention_apply(UdbOutbox *outbox, int max)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_RETENTION, 0);
	UdbSegment *segments;
	int			dropped = 0;
	int			n;

	if (udb_outbox_retention < 0 ||
		LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return 0;

	n = udb_segments(&segments);
	while (dropped < n - 1 && dropped < max)
	{
		const UdbSegment *segment = &segments[dropped];

		if (segment->end - 1 > udb_horizon_durable(outbox) || !is_expired(segment) ||
			!all_have_passed(outbox, segment) ||
			(dropped == 0 && !udb_sweep_once("outbox_retention")) || !drop_segment(segment))
			break;
		dropped++;
	}
	pfree(segments);
	return dropped;
}

uint64
udb_retention_settle(void)
{
	static SPIPlanPtr plan = NULL;
	UdbSpi		spi;
	uint64		n;

	udb_spi_begin(&spi);
	n = udb_spi_execute(&plan,
						"DELETE FROM udb.dead_events d USING udb.consumers c"
						" WHERE c.name = d.consumer AND d.redrive_seq <= c.position",
						0, NULL, NULL, NULL, SPI_OK_DELETE);
	udb_spi_end(&spi);
	return n;
}

UDB_FUNCTION(udb_sweep_outbox_retention);

/*
 * sweep_outbox_retention() returns integer: how many segments it dropped.  With
 * a fixed snapshot it would not see a consumer that was made or moved back
 * since, and drop what that one still has to read.
 */
Datum
udb_sweep_outbox_retention(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sweep_outbox_retention()");
	PG_RETURN_INT32(udb_retention_apply(udb_feed_begin(), INT_MAX));
}

UDB_FUNCTION(udb_sweep_dead_events);

/* sweep_dead_events() returns bigint: how many settled events it removed */
Datum
udb_sweep_dead_events(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sweep_dead_events()");
	PG_RETURN_INT64((int64) udb_retention_settle());
}
