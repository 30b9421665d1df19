/*-------------------------------------------------------------------------
 *
 * append.c
 *	  Appending events to the outbox: positions, and the same event twice.
 *
 * The same event_id in two transactions: a unique index can see only its own
 * segment, so an insert with a given event_id looks into all segments, with a
 * dirty snapshot, and does that and the insert under a short heavyweight lock
 * on the id, as two sessions could otherwise pass each other at the boundary
 * of two segments.  The lock is never held while waiting for a transaction, or
 * for a segment.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"

#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/errors.h"
#include "common/locktag.h"
#include "common/uuid.h"
#include "outbox/append.h"
#include "outbox/horizon.h"
#include "outbox/segment.h"

uint64
udb_append_positions(UdbOutbox *outbox, uint64 n)
{
	uint64		first;

	if (!udb_horizon_registered())
	{
		udb_position_resync(outbox);
		udb_horizon_register(outbox);
	}
	first = udb_position_take(outbox, n);
	udb_horizon_taken(first, first + n - 1);
	UDB_DEBUG_POINT("position-taken");
	return first;
}

UdbOutbox *
udb_append_begin(const char *function)
{
	UdbOutbox  *outbox;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot enqueue during recovery")));
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	outbox = udb_outbox();
	udb_store_begin(outbox);
	return outbox;
}

/* Throw UD001 unless the stored event has the same content. */
static void
check_same_event(TupleTableSlot *stored, const UdbEventInput *event)
{
	static const struct
	{
		AttrNumber	attno;
		PGFunction	eq;
		const char *column;
	} compare[] = {
		{Anum_topic, texteq, "topic"},
		{Anum_partition_key, texteq, "partition_key"},
		{Anum_payload, jsonb_eq, "payload"}};
	Datum		given[] = {event->topic, event->partition_key, event->payload};

	slot_getallattrs(stored);
	for (int i = 0; i < (int) lengthof(compare); i++)
	{
		Datum		value = stored->tts_values[compare[i].attno - 1];

		if (!DatumGetBool(DirectFunctionCall2Coll(compare[i].eq, C_COLLATION_OID, value, given[i])))
			ereport(ERROR,
					(errcode(udb_errcode(EVENT_ID_REUSED)),
					 errmsg("event id \"%s\" reused with different content",
							DatumGetCString(DirectFunctionCall1(uuid_out,
																UUIDPGetDatum(event->event_id)))),
					 errdetail("The event at position " INT64_FORMAT " differs in %s.",
							   DatumGetInt64(stored->tts_values[Anum_event_seq - 1]),
							   compare[i].column)));
	}
}

/*
 * Look for an event_id in one segment, committed or not.  Returns the position
 * if the event is there, 0 if it is not; sets *wait_for if another transaction
 * that has inserted it is still in progress.
 */
static uint64
find_event_id(Oid relid, const UdbEventInput *event, TransactionId *wait_for)
{
	Relation	rel = udb_segment_open(relid, AccessShareLock);
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData key;
	SnapshotData dirty;
	TupleTableSlot *slot;
	uint64		position = 0;

	if (rel == NULL)
		return 0;				/* retention has dropped it, with its ids */

	index = index_open(udb_segment_index(rel, Anum_event_id), AccessShareLock);
	slot = table_slot_create(rel, NULL);
	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(event->event_id));
	scan = udb_index_beginscan(rel, index, &dirty, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	if (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		if (TransactionIdIsValid(dirty.xmin))
			*wait_for = dirty.xmin;
		else
		{
			check_same_event(slot, event);
			position = (uint64) DatumGetInt64(slot->tts_values[Anum_event_seq - 1]);
		}
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return position;
}

static bool
in_segments(uint64 position, const UdbSegment *segments, int n)
{
	for (int i = n - 1; i >= 0; i--)
		if (position >= segments[i].first && position < segments[i].end)
			return true;
	return false;
}

/*
 * Append an event whose event_id was given.
 *
 * A transaction that has had to create a segment shows it to nobody before it
 * ends, and its events neither.  But then our own position is beyond the
 * segments that we know of as well, so wait for that segment before looking
 * again; an unused position is only a gap.
 */
static uint64
append_with_id(UdbOutbox *outbox, const UdbEventInput *event)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_EVENT_ID,
							  hash_bytes_extended(event->event_id->data, UUID_LEN, 0));
	uint64		position = 0;

	for (;;)
	{
		TransactionId wait_for = InvalidTransactionId;
		uint64		found = 0;
		UdbSegment *segments;
		UdbSegment	segment;
		int			n;

		(void) LockAcquire(&tag, ExclusiveLock, false, false);

		n = udb_segments(&segments);
		for (int i = n - 1; i >= 0 && found == 0 && !TransactionIdIsValid(wait_for); i--)
			found = find_event_id(segments[i].relid, event, &wait_for);

		if (found == 0 && !TransactionIdIsValid(wait_for))
		{
			if (position == 0)
				position = udb_append_positions(outbox, 1);
			if (in_segments(position, segments, n))
			{
				udb_store_event(outbox, event, event->event_id, position);
				found = position;
			}
		}
		pfree(segments);

		LockRelease(&tag, ExclusiveLock, false);
		if (found != 0)
			return found;
		if (TransactionIdIsValid(wait_for))
			XactLockTableWait(wait_for, NULL, NULL, XLTW_None);
		else
			udb_segment_need(outbox, position, &segment);
	}
}

int64
udb_append(const UdbEventInput *event)
{
	UdbOutbox  *outbox = udb_append_begin("enqueue()");
	pg_uuid_t	event_id;
	uint64		position;

	if (event->event_id != NULL)
		return (int64) append_with_id(outbox, event);
	udb_uuid_v7(&event_id);
	position = udb_append_positions(outbox, 1);
	udb_store_event(outbox, event, &event_id, position);
	return (int64) position;
}

void
udb_append_many(UdbOutbox *outbox, const UdbEventInput *events, int n, Datum *positions)
{
	for (int i = 0; i < n;)
	{
		int			run = 0;
		uint64		first;

		if (events[i].event_id != NULL)
		{
			CHECK_FOR_INTERRUPTS();
			positions[i] = Int64GetDatum((int64) append_with_id(outbox, &events[i]));
			i++;
			continue;
		}
		while (i + run < n && events[i + run].event_id == NULL)
			run++;
		first = udb_append_positions(outbox, run);
		for (int j = 0; j < run; j++)
			positions[i + j] = Int64GetDatum((int64) (first + j));
		while (run > 0)
		{
			int			stored = udb_store_batch(outbox, &events[i], run, first);

			CHECK_FOR_INTERRUPTS();
			i += stored;
			run -= stored;
			first += stored;
		}
	}
}
