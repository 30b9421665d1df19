/*-------------------------------------------------------------------------
 *
 * append.c
 *	  Appending events to the outbox: enqueue() and enqueue_many().
 *
 * The tuple and its index entries are inserted directly, without SPI, plan or
 * executor.  The segment stays open, with its indexes, until the end of the
 * transaction; it is owned by the top transaction's resource owner, so that
 * subtransactions can come and go.  No bulk-insert state is kept from one call
 * to the next: its buffer pin would outlive errors caught in subtransactions,
 * and its ring would evict the pages that consumers are about to read.
 *
 * The same event_id in two transactions: a unique index can see only its own
 * segment, so an insert with a given event_id looks into all segments, with a
 * dirty snapshot, and does that and the insert under a short heavyweight lock
 * on the id, as two sessions could otherwise pass each other at the boundary
 * of two segments.  The lock is never held while waiting for a transaction.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/database.h"
#include "common/debugpoint.h"
#include "common/errors.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "common/uuid.h"
#include "outbox/append.h"
#include "outbox/horizon.h"
#include "outbox/index.h"
#include "outbox/segment.h"

#define MAX_TOPIC_BYTES 255
#define MAX_KEY_BYTES 1024

/* enqueue_many() flushes its tuples at this number or at this size */
#define BATCH_TUPLES 500
#define BATCH_BYTES 65536

/* The open segment; lives in a context below TopTransactionContext. */
typedef struct OpenSegment
{
	MemoryContext context;
	Relation	rel;
	ResultRelInfo *rri;
	EState	   *estate;
	TupleTableSlot **slots;		/* made as needed */
	int			nslots;
	uint64		first;
	uint64		end;
	uint64		alarm;			/* wake the worker from this position on */
	bool		created_here;	/* in this transaction */
	bool		plain_indexes;	/* see indexes_are_plain() */
} OpenSegment;

static OpenSegment *open_segment = NULL;

void
udb_append_check_topic(Datum topic)
{
	Size		len = VARSIZE_ANY_EXHDR(DatumGetPointer(topic));

	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("topic must not be empty")));
	if (len > MAX_TOPIC_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("topic of %zu bytes is too long", len),
				 errdetail("The limit is %d bytes.", MAX_TOPIC_BYTES)));
}

void
udb_append_check_key(Datum partition_key)
{
	Size		len = VARSIZE_ANY_EXHDR(DatumGetPointer(partition_key));

	if (len > MAX_KEY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("partition key of %zu bytes is too long", len),
				 errdetail("The limit is %d bytes.", MAX_KEY_BYTES)));
}

/* Before the value is detoasted, so that a huge one costs nothing. */
void
udb_append_check_payload(Datum payload)
{
	Size		size = toast_raw_datum_size(payload);

	if (size > (Size) udb_outbox_max_payload * 1024)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("payload of %zu bytes is too large", size),
				 errdetail("The limit is udb.outbox_max_payload, %d kB.", udb_outbox_max_payload)));
}

static void
check_headers(Datum headers)
{
	Size		size = toast_raw_datum_size(headers);

	if (size > (Size) udb_outbox_max_payload * 1024)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers of %zu bytes are too large", size),
				 errdetail("The limit is udb.outbox_max_payload, %d kB.", udb_outbox_max_payload)));
	if (!JB_ROOT_IS_OBJECT(DatumGetJsonbP(headers)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("headers must be a JSON object")));
}

static void
null_argument(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", name)));
}

/*
 * Close the open segment.  With CurrentResourceOwner set to the top
 * transaction's, which remembers all that is released here.
 */
void
udb_append_close(void)
{
	OpenSegment *seg = open_segment;
	ResourceOwner save = CurrentResourceOwner;

	if (seg == NULL)
		return;
	open_segment = NULL;
	CurrentResourceOwner = TopTransactionResourceOwner;
	for (int i = 0; i < seg->nslots; i++)
		ExecDropSingleTupleTableSlot(seg->slots[i]);
	if (seg->rri != NULL)
		ExecCloseIndices(seg->rri);
	FreeExecutorState(seg->estate);
	table_close(seg->rel, NoLock);
	CurrentResourceOwner = save;
	MemoryContextDelete(seg->context);
}

void
udb_append_forget(void)
{
	open_segment = NULL;
}

void
udb_append_subabort(void)
{
	if (open_segment != NULL && open_segment->created_here)
		udb_append_close();
}

/* Slot i; they are used, and so made, from 0 upwards. */
static TupleTableSlot *
segment_slot(OpenSegment *seg, int i)
{
	if (unlikely(i == seg->nslots))
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(seg->context);
		ResourceOwner save = CurrentResourceOwner;

		if (seg->slots == NULL)
			seg->slots = palloc(sizeof(TupleTableSlot *));
		else if (i == 1)
			seg->slots = repalloc(seg->slots, sizeof(TupleTableSlot *) * BATCH_TUPLES);
		CurrentResourceOwner = TopTransactionResourceOwner;
		seg->slots[i] = table_slot_create(seg->rel, NULL);
		seg->nslots++;
		CurrentResourceOwner = save;
		MemoryContextSwitchTo(oldcontext);
	}
	return seg->slots[i];
}

/*
 * Whether index entries can be made from an event's columns alone.  If any
 * index needs more, the executor's code enters the tuples into all of them.
 */
static bool
indexes_are_plain(ResultRelInfo *rri)
{
	for (int i = 0; i < rri->ri_NumIndices; i++)
	{
		Relation	index = rri->ri_IndexRelationDescs[i];
		IndexInfo  *info = rri->ri_IndexRelationInfo[i];

		if (info->ii_Expressions != NIL || info->ii_Predicate != NIL ||
			info->ii_ExclusionOps != NULL || !info->ii_ReadyForInserts ||
			!index->rd_index->indimmediate)
			return false;
		for (int k = 0; k < info->ii_NumIndexAttrs; k++)
			if (info->ii_IndexAttrNumbers[k] > Natts_event)
				return false;
	}
	return true;
}

/* Make the segment of "position" the open one. */
static OpenSegment *
use_segment(UdbOutbox *outbox, uint64 position)
{
	OpenSegment *seg = open_segment;
	UdbSegment	found;
	MemoryContext context;
	MemoryContext oldcontext;
	ResourceOwner save = CurrentResourceOwner;
	Relation	rel;

	if (likely(seg != NULL && position >= seg->first && position < seg->end))
		return seg;

	udb_append_close();
	udb_segment_need(outbox, position, &found);

	context = AllocSetContextCreate(TopTransactionContext, "udb outbox segment",
									ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(context);
	CurrentResourceOwner = TopTransactionResourceOwner;
	PG_TRY();
	{
		rel = udb_segment_open(found.relid, RowExclusiveLock);
		if (rel == NULL)
			elog(ERROR, "outbox segment of position " UINT64_FORMAT " is gone", position);
		seg = palloc0(sizeof(OpenSegment));
		seg->context = context;
		seg->rel = rel;
		seg->first = found.first;
		seg->end = found.end;
		seg->alarm = udb_segment_alarm(&found);
		seg->created_here = rel->rd_createSubid != InvalidSubTransactionId;
		seg->estate = CreateExecutorState();
		open_segment = seg;		/* from here on, closing undoes all */

		seg->rri = makeNode(ResultRelInfo);
		InitResultRelInfo(seg->rri, rel, 0, NULL, 0);
		ExecOpenIndices(seg->rri, false);
		seg->plain_indexes = indexes_are_plain(seg->rri);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = save;
		MemoryContextSwitchTo(oldcontext);
	}
	PG_END_TRY();
	return seg;
}

/* The columns of an event; only the pointers are copied. */
static void
event_columns(const UdbEventInput *event, uint64 position, const pg_uuid_t *event_id,
			  TimestampTz created_at, Datum *values, bool *nulls)
{
	memset(nulls, false, Natts_event * sizeof(bool));
	values[Anum_event_seq - 1] = Int64GetDatum((int64) position);
	values[Anum_event_id - 1] = UUIDPGetDatum(event_id);
	values[Anum_topic - 1] = event->topic;
	values[Anum_partition_key - 1] = event->partition_key;
	values[Anum_payload - 1] = event->payload;
	values[Anum_headers - 1] = event->headers;
	nulls[Anum_headers - 1] = event->headers_null;
	values[Anum_created_at - 1] = TimestampTzGetDatum(created_at);
}

/* Enter a tuple with these columns into index i, one of the plain ones. */
static void
insert_index_entry(OpenSegment *seg, int i, ItemPointer tid, const Datum *values, const bool *nulls)
{
	Relation	index = seg->rri->ri_IndexRelationDescs[i];
	IndexInfo  *info = seg->rri->ri_IndexRelationInfo[i];
	Datum		keys[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];

	for (int k = 0; k < info->ii_NumIndexAttrs; k++)
	{
		keys[k] = values[info->ii_IndexAttrNumbers[k] - 1];
		key_nulls[k] = nulls[info->ii_IndexAttrNumbers[k] - 1];
	}
	(void) index_insert(index, keys, key_nulls, tid, seg->rel,
						index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
						false, info);
}

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
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot enqueue during recovery")));
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	return udb_outbox();
}

/*
 * Insert an event that is known to be new.  Index insertion and toasting
 * palloc, so do it in the per-tuple context.
 */
static uint64
insert_event(UdbOutbox *outbox, const UdbEventInput *event, const pg_uuid_t *event_id)
{
	uint64		position = udb_append_positions(outbox, 1);
	OpenSegment *seg = use_segment(outbox, position);
	TupleTableSlot *slot = segment_slot(seg, 0);
	MemoryContext oldcontext = MemoryContextSwitchTo(GetPerTupleMemoryContext(seg->estate));
	Datum		values[Natts_event];
	bool		nulls[Natts_event];

	event_columns(event, position, event_id, GetCurrentTimestamp(), values, nulls);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, values, sizeof(values));
	memcpy(slot->tts_isnull, nulls, sizeof(nulls));
	ExecStoreVirtualTuple(slot);

	table_tuple_insert(seg->rel, slot, GetCurrentCommandId(true), 0, NULL);
	if (likely(seg->plain_indexes))
	{
		for (int i = 0; i < seg->rri->ri_NumIndices; i++)
			insert_index_entry(seg, i, &slot->tts_tid, values, nulls);
	}
	else
		udb_insert_index_tuples(seg->rri, slot, seg->estate);
	ExecClearTuple(slot);
	ResetPerTupleExprContext(seg->estate);
	MemoryContextSwitchTo(oldcontext);

	if (unlikely(position >= seg->alarm))
	{
		seg->alarm = seg->end;
		udb_segment_ask(outbox, seg->end);
	}
	UDB_DEBUG_POINT("event-inserted");
	return position;
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
	}			compare[] = {
		{Anum_topic, texteq, "topic"},
		{Anum_partition_key, texteq, "partition_key"},
		{Anum_payload, jsonb_eq, "payload"}
	};
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

/* Append an event whose event_id was given. */
static uint64
append_with_id(UdbOutbox *outbox, const UdbEventInput *event)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_EVENT_ID,
								  hash_bytes_extended(event->event_id->data, UUID_LEN, 0));

	for (;;)
	{
		TransactionId wait_for = InvalidTransactionId;
		uint64		position = 0;
		UdbSegment *segments;
		int			n;

		(void) LockAcquire(&tag, ExclusiveLock, false, false);

		n = udb_segments(&segments);
		for (int i = n - 1; i >= 0 && position == 0 && !TransactionIdIsValid(wait_for); i--)
			position = find_event_id(segments[i].relid, event, &wait_for);
		pfree(segments);

		if (position == 0 && !TransactionIdIsValid(wait_for))
			position = insert_event(outbox, event, event->event_id);

		LockRelease(&tag, ExclusiveLock, false);
		if (position != 0)
			return position;
		XactLockTableWait(wait_for, NULL, NULL, XLTW_None);
	}
}

int64
udb_append(const UdbEventInput *event)
{
	UdbOutbox  *outbox = udb_append_begin("enqueue()");
	pg_uuid_t	event_id;

	if (event->event_id != NULL)
		return (int64) append_with_id(outbox, event);
	udb_uuid_v7(&event_id);
	return (int64) insert_event(outbox, event, &event_id);
}

UDB_FUNCTION(udb_enqueue);

/* enqueue(topic, payload, partition_key, event_id, headers) returns bigint */
Datum
udb_enqueue(PG_FUNCTION_ARGS)
{
	UdbEventInput event = {0};

	if (PG_ARGISNULL(0))
		null_argument("topic");
	if (PG_ARGISNULL(1))
		null_argument("payload");
	if (PG_ARGISNULL(2))
		null_argument("partition_key");

	event.topic = PointerGetDatum(PG_GETARG_TEXT_PP(0));
	event.payload = PG_GETARG_DATUM(1);
	event.partition_key = PointerGetDatum(PG_GETARG_TEXT_PP(2));
	event.event_id = PG_ARGISNULL(3) ? NULL : PG_GETARG_UUID_P(3);
	event.headers_null = PG_ARGISNULL(4);
	if (!event.headers_null)
	{
		event.headers = PG_GETARG_DATUM(4);
		check_headers(event.headers);
	}
	udb_append_check_topic(event.topic);
	udb_append_check_key(event.partition_key);
	udb_append_check_payload(event.payload);

	PG_RETURN_INT64(udb_append(&event));
}

/* An array argument of enqueue_many(). */
typedef struct ManyArray
{
	const char *name;
	Datum	   *values;			/* NULL: the argument is null */
	bool	   *nulls;
} ManyArray;

static ManyArray
many_array(FunctionCallInfo fcinfo, int argno, const char *name, Oid type, int16 typlen,
		   char typalign, int *n)
{
	ManyArray	result = {.name = name};
	ArrayType  *array;
	int			length;

	if (PG_ARGISNULL(argno))
		return result;
	array = PG_GETARG_ARRAYTYPE_P(argno);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("argument \"%s\" must be a one-dimensional array", name)));
	deconstruct_array(array, type, typlen, false, typalign, &result.values, &result.nulls, &length);
	if (*n < 0)
		*n = length;
	else if (*n != length)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("argument \"%s\" has %d elements, but \"payloads\" has %d",
						name, length, *n)));
	return result;
}

static int
compare_uuid(const void *a, const void *b)
{
	return memcmp(*(const pg_uuid_t *const *) a, *(const pg_uuid_t *const *) b, UUID_LEN);
}

static void
check_distinct_ids(const ManyArray *ids, int n)
{
	const pg_uuid_t **sorted = palloc(sizeof(pg_uuid_t *) * n);
	int			given = 0;

	for (int i = 0; i < n; i++)
		if (!ids->nulls[i])
			sorted[given++] = DatumGetUUIDP(ids->values[i]);
	qsort(sorted, given, sizeof(pg_uuid_t *), compare_uuid);
	for (int i = 1; i < given; i++)
		if (compare_uuid(&sorted[i - 1], &sorted[i]) == 0)
			ereport(ERROR,
					(errcode(udb_errcode(DUPLICATE_EVENT_ID)),
					 errmsg("event id \"%s\" is given twice",
							DatumGetCString(DirectFunctionCall1(uuid_out,
																UUIDPGetDatum(sorted[i]))))));
	pfree(sorted);
}

static void
no_null_elements(const ManyArray *array, int n)
{
	for (int i = 0; array->values != NULL && i < n; i++)
		if (array->nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of \"%s\" must not be null", i + 1, array->name)));
}

/* Events without a given event_id, while they are being inserted. */
typedef struct Batch
{
	const UdbEventInput *events;
	int			n;
	uint64		first;			/* position of the first; the others follow */
	TimestampTz created_at;
	pg_uuid_t	ids[BATCH_TUPLES];
} Batch;

static void
batch_columns(const Batch *batch, int i, Datum *values, bool *nulls)
{
	event_columns(&batch->events[i], batch->first + i, &batch->ids[i], batch->created_at,
				  values, nulls);
}

/*
 * Enter a batch into index i, one of the plain ones.  What is ordered by
 * position or by id goes to its end, many entries at a time; that is given up
 * for this batch when others have been there with greater ones.
 */
static void
index_batch(OpenSegment *seg, int i, const Batch *batch)
{
	Relation	index = seg->rri->ri_IndexRelationDescs[i];
	AttrNumber	column = seg->rri->ri_IndexRelationInfo[i]->ii_IndexAttrNumbers[0];
	bool		at_end = (column == Anum_event_seq || column == Anum_event_id) &&
		udb_index_can_append(index);
	Datum		keys[BATCH_TUPLES];
	ItemPointerData tids[BATCH_TUPLES];
	int			misses = 0;
	int			done;

	for (int j = 0; j < batch->n && at_end; j++)
	{
		keys[j] = column == Anum_event_seq ? Int64GetDatum((int64) (batch->first + j)) :
			UUIDPGetDatum(&batch->ids[j]);
		tids[j] = seg->slots[j]->tts_tid;
	}
	for (int j = 0; j < batch->n; j += done)
	{
		Datum		values[Natts_event];
		bool		nulls[Natts_event];

		done = 0;
		if (at_end && misses < 2)
			done = udb_index_append_right(index, batch->n - j, &keys[j], &tids[j]);
		misses = done > 0 ? 0 : misses + 1;
		if (done == 0)
		{
			batch_columns(batch, j, values, nulls);
			insert_index_entry(seg, i, &seg->slots[j]->tts_tid, values, nulls);
			done = 1;
		}
	}
}

/*
 * Insert events[0..n-1], none with a given event_id, at consecutive positions
 * from "first" on, as far as they are in the same segment.  Returns how many.
 */
static int
insert_batch(UdbOutbox *outbox, const UdbEventInput *events, int n, uint64 first)
{
	OpenSegment *seg = use_segment(outbox, first);
	Batch		batch = {.events = events, .first = first, .created_at = GetCurrentTimestamp()};
	Size		bytes = 0;
	MemoryContext oldcontext;

	n = Min(n, BATCH_TUPLES);
	while (batch.n < n && bytes < BATCH_BYTES && first + batch.n < seg->end)
	{
		TupleTableSlot *slot = segment_slot(seg, batch.n);

		udb_uuid_v7(&batch.ids[batch.n]);
		ExecClearTuple(slot);
		batch_columns(&batch, batch.n, slot->tts_values, slot->tts_isnull);
		ExecStoreVirtualTuple(slot);
		bytes += VARSIZE_ANY(DatumGetPointer(events[batch.n].payload));
		batch.n++;
	}

	oldcontext = MemoryContextSwitchTo(GetPerTupleMemoryContext(seg->estate));
	table_multi_insert(seg->rel, seg->slots, batch.n, GetCurrentCommandId(true), 0, NULL);
	if (likely(seg->plain_indexes))
	{
		for (int i = 0; i < seg->rri->ri_NumIndices; i++)
			index_batch(seg, i, &batch);
	}
	else
	{
		for (int j = 0; j < batch.n; j++)
			udb_insert_index_tuples(seg->rri, seg->slots[j], seg->estate);
	}
	for (int j = 0; j < batch.n; j++)
		ExecClearTuple(seg->slots[j]);
	ResetPerTupleExprContext(seg->estate);
	MemoryContextSwitchTo(oldcontext);

	if (first + batch.n > seg->alarm && seg->alarm < seg->end)
	{
		seg->alarm = seg->end;
		udb_segment_ask(outbox, seg->end);
	}
	return batch.n;
}

UDB_FUNCTION(udb_enqueue_many);

/* enqueue_many(topic, payloads, partition_keys, event_ids, headers) returns bigint[] */
Datum
udb_enqueue_many(PG_FUNCTION_ARGS)
{
	int			n = -1;
	Datum		topic;
	Datum		empty_key = CStringGetTextDatum("");
	ManyArray	payloads;
	ManyArray	keys;
	ManyArray	ids;
	ManyArray	headers;
	UdbEventInput *events;
	Datum	   *positions;
	UdbOutbox  *outbox;

	if (PG_ARGISNULL(0))
		null_argument("topic");
	if (PG_ARGISNULL(1))
		null_argument("payloads");
	topic = PointerGetDatum(PG_GETARG_TEXT_PP(0));
	udb_append_check_topic(topic);

	payloads = many_array(fcinfo, 1, "payloads", JSONBOID, -1, TYPALIGN_INT, &n);
	keys = many_array(fcinfo, 2, "partition_keys", TEXTOID, -1, TYPALIGN_INT, &n);
	ids = many_array(fcinfo, 3, "event_ids", UUIDOID, UUID_LEN, TYPALIGN_CHAR, &n);
	headers = many_array(fcinfo, 4, "headers", JSONBOID, -1, TYPALIGN_INT, &n);
	no_null_elements(&payloads, n);
	no_null_elements(&keys, n);
	if (ids.values != NULL)
		check_distinct_ids(&ids, n);
	if (n == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(INT8OID));

	events = palloc0(sizeof(UdbEventInput) * n);
	positions = palloc(sizeof(Datum) * n);
	for (int i = 0; i < n; i++)
	{
		UdbEventInput *event = &events[i];

		event->topic = topic;
		event->payload = payloads.values[i];
		event->partition_key = keys.values != NULL ? keys.values[i] : empty_key;
		event->headers_null = headers.values == NULL || headers.nulls[i];
		if (ids.values != NULL && !ids.nulls[i])
			event->event_id = DatumGetUUIDP(ids.values[i]);
		udb_append_check_payload(event->payload);
		udb_append_check_key(event->partition_key);
		if (!event->headers_null)
		{
			event->headers = headers.values[i];
			check_headers(event->headers);
		}
	}

	outbox = udb_append_begin("enqueue_many()");
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
			int			inserted = insert_batch(outbox, &events[i], run, first);

			CHECK_FOR_INTERRUPTS();
			i += inserted;
			run -= inserted;
			first += inserted;
		}
	}
	PG_RETURN_ARRAYTYPE_P(construct_array(positions, n, INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
