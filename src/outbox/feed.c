/*-------------------------------------------------------------------------
 *
 * feed.c
 *	  Reading the log in order, up to the stable horizon: read() and peek().
 *
 * Everything is read with one fresh snapshot, taken after the horizon has been
 * (see horizon.c).  REPEATABLE READ and SERIALIZABLE transactions would have
 * to use an older one and could skip events, so they are refused.
 *
 * A consumer's events are those of the log that match its topics and are not
 * parked, merged by position with those of its parked events that have been
 * given a new position by redrive_dead_letters().
 *
 * Locking: AccessShareLock on a segment while it is read; until the end of the
 * transaction if values were handed out, as they may point into its TOAST
 * table.  None on the parent, which retention needs to lock.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "common/compat.h"
#include "common/errors.h"
#include "outbox/dead.h"
#include "outbox/feed.h"
#include "outbox/horizon.h"
#include "outbox/segment.h"

/* A batch being collected. */
typedef struct Batch
{
	int			max;
	int			n;
	Tuplestorestate *store;		/* NULL: only count */
	UdbDeadEvents *dead;		/* NULL: no consumer */
	uint64		first_match;	/* first event that the topics match, or 0 */
} Batch;

UdbOutbox *
udb_feed_outbox(void)
{
	UdbOutbox  *outbox;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(udb_errcode(FEED_NOT_SERVED)),
				 errmsg("the feed is not served on a standby"),
				 errdetail("Which transactions are still open is known only to the primary."),
				 errhint("Connect to the primary.")));
	outbox = udb_outbox();
	udb_position_resync(outbox);
	return outbox;
}

UdbOutbox *
udb_feed_begin(void)
{
	UdbOutbox  *outbox = udb_feed_outbox();

	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(udb_errcode(FEED_NEEDS_FRESH_SNAPSHOT)),
				 errmsg("cannot read the feed in a transaction with a fixed snapshot"),
				 errdetail("Its snapshot may be older than the events that are to be read."),
				 errhint("Use READ COMMITTED.")));
	return outbox;
}

uint64
udb_feed_dropped_through(Snapshot snapshot)
{
	Relation	rel = table_open(udb_relation_oid(&udb_outbox_state), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	uint64		result = 0;

	if (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;

		result = (uint64) DatumGetInt64(slot_getattr(slot, 2, &isnull));
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	return result;
}

void
udb_feed_check_position(UdbOutbox *outbox, uint64 after, Snapshot snapshot, const char *consumer)
{
	UdbSegment *segments;
	int			n;

	if (!udb_position_known(outbox, after))
		ereport(ERROR,
				(errcode(udb_errcode(POSITION_UNKNOWN)),
				 errmsg("position " UINT64_FORMAT " has never been handed out", after),
				 consumer ? errdetail("It is the position of consumer \"%s\".", consumer) : 0,
				 errhint("If this database was restored from an older backup, decide from where to go on and set it with seek_consumer().")));

	n = udb_segments(&segments);
	if (n == 0 || after + 1 < segments[0].first)
	{
		uint64		dropped = udb_feed_dropped_through(snapshot);

		if (after < dropped)
			ereport(ERROR,
					(errcode(udb_errcode(POSITION_DROPPED)),
					 errmsg("events after position " UINT64_FORMAT " have been dropped", after),
					 errdetail("Retention has dropped all up to position " UINT64_FORMAT ".", dropped),
					 errhint("Read after position " UINT64_FORMAT " to skip them.", dropped)));
	}
	pfree(segments);
}

/* Put redriven events with positions below "before" into the batch. */
static void
emit_redriven(Batch *batch, uint64 before)
{
	HeapTuple	tuple;

	while (batch->dead != NULL && batch->n < batch->max &&
		   (tuple = udb_dead_next_redriven(batch->dead, before)) != NULL)
	{
		if (batch->store != NULL)
			tuplestore_puttuple(batch->store, tuple);
		batch->n++;
	}
}

/* Put an event into the batch, unless it is parked.  False when that is full. */
static bool
emit_event(Batch *batch, TupleTableSlot *event, uint64 position)
{
	if (batch->first_match == 0)
		batch->first_match = position;
	if (batch->dead != NULL)
	{
		emit_redriven(batch, position);
		if (udb_dead_is_parked(batch->dead, position))
			return true;
	}
	if (batch->n < batch->max)
	{
		if (batch->store != NULL)
			tuplestore_puttupleslot(batch->store, event);
		batch->n++;
	}
	return batch->n < batch->max;
}

/*
 * Put the events of one segment in (after, upto] into the batch.  Returns false
 * when that is full.
 */
static bool
scan_segment(Relation rel, uint64 after, uint64 upto, const UdbTopics *topics, Snapshot snapshot,
			 Batch *batch)
{
	Relation	index = index_open(udb_segment_index(rel, Anum_event_seq), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = udb_index_beginscan(rel, index, snapshot, 2);
	ScanKeyData keys[2];
	bool		more = true;

	udb_segment_check(rel, false);
	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum((int64) after));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum((int64) upto));
	index_rescan(scan, keys, 2, NULL, 0);
	while (more && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		slot_getsomeattrs(slot, Anum_topic);
		if (topics == NULL || udb_topics_match(topics, slot->tts_values[Anum_topic - 1]))
			more = emit_event(batch, slot,
							  (uint64) DatumGetInt64(slot->tts_values[Anum_event_seq - 1]));
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	return more;
}

/* The same for all segments. */
static void
scan_log(uint64 after, uint64 upto, const UdbTopics *topics, Snapshot snapshot,
		 Batch *batch)
{
	UdbSegment *segments;
	int			n = udb_segments_between(after, upto, &segments);
	bool		more = true;

	for (int i = 0; i < n && more; i++)
	{
		Relation	rel;
		int			emitted;

		if (segments[i].end <= after + 1 || segments[i].first > upto)
			continue;
		rel = udb_segment_open(segments[i].relid, AccessShareLock);
		if (rel == NULL)
			ereport(ERROR,
					(errcode(udb_errcode(POSITION_DROPPED)),
					 errmsg("events after position " UINT64_FORMAT " have just been dropped", after)));
		emitted = batch->n;
		more = scan_segment(rel, after, upto, topics, snapshot, batch);
		table_close(rel, batch->store != NULL && batch->n > emitted ? NoLock : AccessShareLock);
	}
	pfree(segments);
}

int
udb_feed_consume(UdbOutbox *outbox, UdbConsumer *consumer, uint64 upto, int max,
				 Snapshot snapshot, Tuplestorestate *store)
{
	Batch		batch = {.max = max, .store = store};
	uint64		after = Max(consumer->position, consumer->scanned);

	udb_feed_check_position(outbox, consumer->position, snapshot, consumer->name);
	if (upto <= consumer->position)
		return 0;

	batch.dead = udb_dead_load(consumer->name, consumer->position, upto, snapshot);
	if (upto > after)
		scan_log(after, upto, consumer->topics, snapshot, &batch);
	emit_redriven(&batch, upto + 1);

	if (consumer->topics != NULL && upto > after)
		udb_consumer_scanned(consumer, batch.first_match != 0 ? batch.first_match - 1 : upto);
	return batch.n;
}

int
udb_feed_max_events(FunctionCallInfo fcinfo, int argno)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"max_events\" must not be null")));
	return PG_GETARG_INT32(argno);
}

UDB_FUNCTION(udb_read);

/* read(consumer, max_events) returns SETOF udb.event */
Datum
udb_read(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char		name[NAMEDATALEN];
	int			max = udb_feed_max_events(fcinfo, 1);
	UdbOutbox  *outbox;
	UdbConsumer consumer;
	uint64		horizon;
	Snapshot	snapshot;

	udb_consumer_name(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), name);
	outbox = udb_feed_begin();
	InitMaterializedSRF(fcinfo, 0);

	horizon = udb_horizon_durable(outbox);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	udb_consumer_get(name, snapshot, &consumer);
	if (max > 0 && !consumer.paused)
		(void) udb_feed_consume(outbox, &consumer, horizon, max, snapshot, rsinfo->setResult);
	udb_consumer_has_read(&consumer);
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}

UDB_FUNCTION(udb_peek);

/* peek(after, max_events, topics) returns SETOF udb.event */
Datum
udb_peek(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Batch		batch = {.max = udb_feed_max_events(fcinfo, 1)};
	UdbTopics  *topics = udb_topics(PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2));
	UdbOutbox  *outbox;
	int64		after;
	uint64		horizon;
	Snapshot	snapshot;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"after\" must not be null")));
	after = Max(PG_GETARG_INT64(0), 0);
	outbox = udb_feed_begin();
	InitMaterializedSRF(fcinfo, 0);
	batch.store = rsinfo->setResult;

	horizon = udb_horizon_durable(outbox);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	udb_feed_check_position(outbox, (uint64) after, snapshot, NULL);
	if (batch.max > 0 && horizon > (uint64) after)
		scan_log((uint64) after, horizon, topics, snapshot, &batch);
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}

UDB_FUNCTION(udb_outbox_stable_seq);

/* outbox_stable_seq() returns bigint */
Datum
udb_outbox_stable_seq(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) udb_horizon_durable(udb_feed_outbox()));
}

UDB_FUNCTION(udb_outbox_max_seq);

/* outbox_max_seq() returns bigint */
Datum
udb_outbox_max_seq(PG_FUNCTION_ARGS)
{
	UdbSegment *segments;
	int			n = udb_segments(&segments);
	int64		position = 0;
	TimestampTz created_at;

	for (int i = n - 1; i >= 0 && position == 0; i--)
	{
		Relation	rel = udb_segment_open(segments[i].relid, AccessShareLock);

		if (rel == NULL)
			continue;
		(void) udb_segment_last_event(rel, GetActiveSnapshot(), &position, &created_at);
		table_close(rel, AccessShareLock);
	}
	PG_RETURN_INT64(position);
}

UDB_FUNCTION(udb_outbox_segments);

/*
 * _outbox_segments() returns SETOF (segment, first_position, end_position,
 * last_event_seq, last_created_at)
 */
Datum
udb_outbox_segments(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	UdbSegment *segments;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = udb_segments(&segments);
	for (int i = 0; i < n; i++)
	{
		Relation	rel = udb_segment_open(segments[i].relid, AccessShareLock);
		int64		position = 0;
		TimestampTz created_at = 0;
		Datum		values[5];
		bool		nulls[5] = {0};

		if (rel == NULL)
			continue;
		nulls[3] = nulls[4] = !udb_segment_last_event(rel, GetActiveSnapshot(), &position,
													  &created_at);
		table_close(rel, AccessShareLock);
		values[0] = ObjectIdGetDatum(segments[i].relid);
		values[1] = Int64GetDatum((int64) segments[i].first);
		values[2] = Int64GetDatum((int64) segments[i].end);
		values[3] = Int64GetDatum(position);
		values[4] = TimestampTzGetDatum(created_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
