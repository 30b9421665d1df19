/*-------------------------------------------------------------------------
 *
 * dead.c
 *	  Events that a consumer could not apply: parking and redriving them.
 *
 * Terms: a parked event is a copy of the event in udb.dead_events, which its
 * consumer's reads leave out from then on.  Redriving gives the copy a new
 * position, from the same counter as all events, at which that consumer alone
 * reads it again, with the same event_id.  Passing that position settles it,
 * and a sweep removes it.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "common/compat.h"
#include "common/errors.h"
#include "common/spi.h"
#include "outbox/append.h"
#include "outbox/consumer.h"
#include "outbox/dead.h"
#include "outbox/feed.h"
#include "outbox/horizon.h"
#include "outbox/segment.h"
#include "outbox/state.h"

/* columns of udb.dead_events; event_id to created_at are as in udb.event */
#define Anum_dead_event_seq 2
#define Anum_dead_redrive_seq 3
#define Anum_dead_event_id 4

/* Positions, rising, and for redriven events their rows. */
typedef struct DeadArray
{
	int			n;
	int			size;
	uint64	   *positions;
	HeapTuple  *tuples;
} DeadArray;

struct UdbDeadEvents
{
	DeadArray	parked;
	DeadArray	redriven;
	int			next;			/* first of redriven not yet given out */
};

static UdbRelation dead_pkey = {"dead_events_pkey"};
static UdbRelation dead_redrive_key = {"dead_events_redrive_key"};

/* A row of dead_events as a row of udb.event at its new position. */
static HeapTuple
event_of(TupleTableSlot *slot, TupleDesc event_desc)
{
	Datum		values[Natts_event];
	bool		nulls[Natts_event];

	slot_getallattrs(slot);
	values[0] = slot->tts_values[Anum_dead_redrive_seq - 1];
	nulls[0] = false;
	memcpy(&values[1], &slot->tts_values[Anum_dead_event_id - 1],
		   (Natts_event - 1) * sizeof(Datum));
	memcpy(&nulls[1], &slot->tts_isnull[Anum_dead_event_id - 1],
		   (Natts_event - 1) * sizeof(bool));
	return heap_form_tuple(event_desc, values, nulls);
}

static void
add(DeadArray *array, uint64 position, HeapTuple tuple)
{
	if (array->n >= array->size)
	{
		array->size = Max(16, array->size * 2);
		if (array->positions == NULL)
		{
			array->positions = palloc(array->size * sizeof(uint64));
			array->tuples = palloc(array->size * sizeof(HeapTuple));
		}
		else
		{
			array->positions = repalloc(array->positions, array->size * sizeof(uint64));
			array->tuples = repalloc(array->tuples, array->size * sizeof(HeapTuple));
		}
	}
	array->positions[array->n] = position;
	array->tuples[array->n++] = tuple;
}

/*
 * Collect the rows of a consumer whose column attno, the second of the index,
 * is in (after, upto]; with their events if event_desc is given.
 */
static void
load(DeadArray *array, Relation rel, Oid indexoid, AttrNumber attno, TupleDesc event_desc,
	 const char *consumer, uint64 after, uint64 upto, Snapshot snapshot)
{
	Relation	index = index_open(indexoid, AccessShareLock);
	IndexScanDesc scan = udb_index_beginscan(rel, index, snapshot, 3);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(consumer));
	ScanKeyInit(&keys[1], 2, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum((int64) after));
	ScanKeyInit(&keys[2], 2, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum((int64) upto));
	index_rescan(scan, keys, 3, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		int64		position = DatumGetInt64(slot_getattr(slot, attno, &isnull));

		CHECK_FOR_INTERRUPTS();
		add(array, (uint64) position, event_desc == NULL ? NULL : event_of(slot, event_desc));
	}
	ExecDropSingleTupleTableSlot(slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
}

UdbDeadEvents *
udb_dead_load(const char *consumer, uint64 after, uint64 upto, Snapshot snapshot)
{
	Relation	rel = table_open(udb_relation_oid(&udb_dead_events), AccessShareLock);
	UdbDeadEvents *dead = NULL;
	LOCKMODE	unlock = AccessShareLock;

	if (RelationGetNumberOfBlocks(rel) > 0)
	{
		Relation	events = table_open(udb_relation_oid(&udb_outbox_events), AccessShareLock);

		dead = palloc0(sizeof(UdbDeadEvents));
		load(&dead->parked, rel, udb_relation_oid(&dead_pkey), Anum_dead_event_seq, NULL,
			 consumer, after, upto, snapshot);
		load(&dead->redriven, rel, udb_relation_oid(&dead_redrive_key), Anum_dead_redrive_seq,
			 RelationGetDescr(events), consumer, after, upto, snapshot);
		table_close(events, AccessShareLock);

		/* values may point into the TOAST table */
		if (dead->redriven.n > 0)
			unlock = NoLock;
	}
	table_close(rel, unlock);
	return dead;
}

static int
compare_position(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

bool
udb_dead_is_parked(const UdbDeadEvents *dead, uint64 position)
{
	return dead->parked.n > 0 &&
		bsearch(&position, dead->parked.positions, dead->parked.n, sizeof(uint64),
				compare_position) != NULL;
}

HeapTuple
udb_dead_next_redriven(UdbDeadEvents *dead, uint64 before)
{
	if (dead->next >= dead->redriven.n || dead->redriven.positions[dead->next] >= before)
		return NULL;
	return dead->redriven.tuples[dead->next++];
}

UDB_FUNCTION(udb_dead_letter_event);

/* dead_letter_event(consumer, event_seq, error) returns void */
Datum
udb_dead_letter_event(PG_FUNCTION_ARGS)
{
	static SPIPlanPtr lock_plan = NULL;
	static SPIPlanPtr again_plan = NULL;
	static SPIPlanPtr park_plan = NULL;
	static const Oid types[] = {TEXTOID, INT8OID, TEXTOID};
	char		name[NAMEDATALEN];
	Datum		values[3];
	const char *nulls;
	Snapshot	snapshot;
	UdbConsumer consumer;
	UdbSpi		spi;
	int64		position;

	udb_consumer_name(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"event_seq\" must not be null")));
	position = PG_GETARG_INT64(1);
	PreventCommandIfReadOnly("dead_letter_event()");
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	udb_consumer_get(name, snapshot, &consumer);
	UnregisterSnapshot(snapshot);

	values[0] = CStringGetTextDatum(name);
	values[1] = Int64GetDatum(position);
	values[2] = PG_ARGISNULL(2) ? (Datum) 0 : PG_GETARG_DATUM(2);
	nulls = PG_ARGISNULL(2) ? "  n" : NULL;

	udb_spi_begin(&spi);
	/* keeps drop_consumer() off, which removes what is parked */
	if (udb_spi_execute(&lock_plan, "SELECT FROM udb.consumers WHERE name = $1 FOR KEY SHARE",
						3, types, values, nulls, SPI_OK_SELECT) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("consumer \"%s\" does not exist", name)));
	/* an event that was parked before, and redriven, or is reported twice */
	if (udb_spi_execute(&again_plan,
						"UPDATE udb.dead_events SET redrive_seq = NULL, error = $3,"
						" attempts = attempts + 1, parked_at = clock_timestamp()"
						" WHERE consumer = $1 AND (redrive_seq = $2 OR event_seq = $2)",
						3, types, values, nulls, SPI_OK_UPDATE) == 0 &&
		udb_spi_execute(&park_plan,
						"INSERT INTO udb.dead_events (consumer, event_seq, event_id, topic,"
						" partition_key, payload, headers, created_at, error)"
						" SELECT $1, event_seq, event_id, topic, partition_key, payload, headers,"
						" created_at, $3 FROM udb.outbox_events WHERE event_seq = $2"
						" ON CONFLICT (consumer, event_seq) DO UPDATE SET error = excluded.error,"
						" attempts = dead_events.attempts + 1, parked_at = excluded.parked_at",
						3, types, values, nulls, SPI_OK_INSERT) == 0)
		ereport(ERROR,
				(errcode(udb_errcode(EVENT_NOT_FOUND)),
				 errmsg("there is no event at position " INT64_FORMAT, position)));
	udb_spi_end(&spi);
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_redrive_dead_letters);

/* redrive_dead_letters(consumer) returns bigint: how many */
Datum
udb_redrive_dead_letters(PG_FUNCTION_ARGS)
{
	static SPIPlanPtr lock_plan = NULL;
	static SPIPlanPtr move_plan = NULL;
	static const Oid lock_types[] = {TEXTOID};
	static const Oid move_types[] = {TEXTOID, INT8ARRAYOID, INT8OID};
	char		name[NAMEDATALEN];
	Datum		values[3];
	Snapshot	snapshot;
	UdbConsumer consumer;
	UdbOutbox  *outbox;
	UdbSpi		spi;
	Datum	   *parked;
	uint64		n;

	udb_consumer_name(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), name);
	outbox = udb_append_begin("redrive_dead_letters()");
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	udb_consumer_get(name, snapshot, &consumer);
	UnregisterSnapshot(snapshot);

	values[0] = CStringGetTextDatum(name);
	udb_spi_begin(&spi);
	n = udb_spi_execute(&lock_plan,
						"SELECT event_seq FROM udb.dead_events"
						" WHERE consumer = $1 AND redrive_seq IS NULL"
						" ORDER BY event_seq FOR UPDATE",
						1, lock_types, values, NULL, SPI_OK_SELECT);
	if (n > 0)
	{
		parked = palloc(sizeof(Datum) * n);
		for (uint64 i = 0; i < n; i++)
		{
			bool		isnull;

			parked[i] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);
		}
		values[1] = PointerGetDatum(construct_array(parked, (int) n, INT8OID, sizeof(int64),
													FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
		values[2] = Int64GetDatum((int64) udb_append_positions(outbox, n) - 1);
		(void) udb_spi_execute(&move_plan,
							   "UPDATE udb.dead_events d SET redrive_seq = $3 + p.n"
							   " FROM unnest($2) WITH ORDINALITY AS p (event_seq, n)"
							   " WHERE d.consumer = $1 AND d.event_seq = p.event_seq",
							   3, move_types, values, NULL, SPI_OK_UPDATE);
	}
	udb_spi_end(&spi);
	PG_RETURN_INT64((int64) n);
}
