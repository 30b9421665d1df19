/*-------------------------------------------------------------------------
 *
 * append.c
 *	  Appending events to the outbox: enqueue() and enqueue_many().
 *
 * The tuple and its index entries are inserted directly, without SPI, plan or
 * executor.  The segment stays open, with its indexes, until the end of the
 * transaction.  All that this holds on to belongs to a resource owner of its
 * own, a child of the top transaction's, so that subtransactions can come and
 * go; one that aborts may have left things half done, so the segment is then
 * dropped whole and opened again when needed.  No bulk-insert state is kept:
 * its ring would evict the pages that consumers are about to read.
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
#include "utils/resowner.h"
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
	ResourceOwner owner;
	Relation	rel;
	ResultRelInfo *rri;
	EState	   *estate;
	TupleTableSlot **slots;		/* made as needed */
	int			nslots;
	uint64		first;
	uint64		end;
	uint64		alarm;			/* wake the worker from this position on */
	int			inserting;		/* nest level of who is inserting; 0: nobody */
} OpenSegment;

static OpenSegment *open_segment = NULL;

/* the outbox that this call takes positions of: see udb_outbox_generation() */
static Oid	generation = InvalidOid;

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

/* Let go of all that an open segment holds: quietly, after an error. */
static void
release_owner(ResourceOwner owner, bool commit)
{
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, commit, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_LOCKS, commit, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_AFTER_LOCKS, commit, false);
	ResourceOwnerDelete(owner);
}

void
udb_append_close(void)
{
	OpenSegment *seg = open_segment;
	ResourceOwner save = CurrentResourceOwner;

	if (seg == NULL)
		return;
	open_segment = NULL;
	CurrentResourceOwner = seg->owner;
	for (int i = 0; i < seg->nslots; i++)
		ExecDropSingleTupleTableSlot(seg->slots[i]);
	ExecCloseIndices(seg->rri);
	FreeExecutorState(seg->estate);
	table_close(seg->rel, NoLock);
	CurrentResourceOwner = save;
	release_owner(seg->owner, true);
	MemoryContextDelete(seg->context);
}

void
udb_append_forget(void)
{
	/* abort releases the top transaction's resource owner, with its children */
	open_segment = NULL;
}

void
udb_append_subabort(void)
{
	OpenSegment *seg = open_segment;

	if (seg == NULL)
		return;

	/*
	 * Not if the insert itself has run it: an index on an expression may call
	 * a function with an exception block.  The insert then goes on.
	 */
	if (seg->inserting != 0 && GetCurrentTransactionNestLevel() > seg->inserting)
		return;
	open_segment = NULL;
	release_owner(seg->owner, false);
	MemoryContextDelete(seg->context);
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
		CurrentResourceOwner = seg->owner;
		seg->slots[i] = table_slot_create(seg->rel, NULL);
		seg->nslots++;
		CurrentResourceOwner = save;
		MemoryContextSwitchTo(oldcontext);
	}
	return seg->slots[i];
}

/* Open a segment for inserts; the caller has set the resource owner and context. */
static OpenSegment *
open_for_insert(const UdbSegment *found)
{
	OpenSegment *seg = palloc0(sizeof(OpenSegment));

	seg->rel = udb_segment_open(found->relid, NoLock);
	if (seg->rel == NULL)
		elog(ERROR, "outbox segment of position " UINT64_FORMAT " is gone", found->first);
	udb_segment_check(seg->rel, true);
	seg->context = CurrentMemoryContext;
	seg->owner = CurrentResourceOwner;
	seg->first = found->first;
	seg->end = found->end;
	seg->alarm = udb_segment_alarm(found);
	seg->estate = CreateExecutorState();
	seg->rri = makeNode(ResultRelInfo);
	InitResultRelInfo(seg->rri, seg->rel, 0, NULL, 0);
	ExecOpenIndices(seg->rri, false);
	return seg;
}

/* Make the segment of "position" the open one. */
static OpenSegment *
use_segment(UdbOutbox *outbox, uint64 position)
{
	UdbSegment	found;
	MemoryContext context;
	MemoryContext oldcontext;
	ResourceOwner owner;
	ResourceOwner save = CurrentResourceOwner;
	OpenSegment *seg;

	if (unlikely(open_segment != NULL && open_segment->inserting != 0))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot enqueue from an index expression of the outbox")));
	if (likely(open_segment != NULL &&
			   position >= open_segment->first && position < open_segment->end))
		return open_segment;

	udb_append_close();
	udb_segment_need(outbox, position, &found);

	/* the lock is the transaction's, whatever becomes of the rest */
	CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelationOid(found.relid, RowExclusiveLock);
	CurrentResourceOwner = save;
	if (udb_outbox_generation() != generation)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("extension \"%s\" has just been dropped and created again", UDB_NAME)));

	owner = ResourceOwnerCreate(TopTransactionResourceOwner, "udb outbox segment");
	context = AllocSetContextCreate(TopTransactionContext, "udb outbox segment",
									ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	PG_TRY();
	{
		seg = open_for_insert(&found);
	}
	PG_CATCH();
	{
		CurrentResourceOwner = save;
		MemoryContextSwitchTo(oldcontext);
		release_owner(owner, false);
		MemoryContextDelete(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	CurrentResourceOwner = save;
	MemoryContextSwitchTo(oldcontext);
	open_segment = seg;
	return seg;
}

/* Fill slot i with an event; only the pointers are copied. */
static TupleTableSlot *
fill_slot(OpenSegment *seg, int i, const UdbEventInput *event, uint64 position,
		  const pg_uuid_t *event_id)
{
	TupleTableSlot *slot = segment_slot(seg, i);

	ExecClearTuple(slot);
	memset(slot->tts_isnull, false, Natts_event * sizeof(bool));
	slot->tts_values[Anum_event_seq - 1] = Int64GetDatum((int64) position);
	slot->tts_values[Anum_event_id - 1] = UUIDPGetDatum(event_id);
	slot->tts_values[Anum_topic - 1] = event->topic;
	slot->tts_values[Anum_partition_key - 1] = event->partition_key;
	slot->tts_values[Anum_payload - 1] = event->payload;
	slot->tts_values[Anum_headers - 1] = event->headers;
	slot->tts_isnull[Anum_headers - 1] = event->headers_null;
	slot->tts_values[Anum_created_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	ExecStoreVirtualTuple(slot);
	return slot;
}

/* Enter a tuple that is in the heap into the indexes. */
static void
index_slot(OpenSegment *seg, TupleTableSlot *slot)
{
	udb_insert_index_tuples(seg->rri, slot, seg->estate);
	ResetPerTupleExprContext(seg->estate);
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
	UdbOutbox  *outbox;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot enqueue during recovery")));
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	outbox = udb_outbox();
	generation = pg_atomic_read_u32(&outbox->seqrelid);
	return outbox;
}

/*
 * Insert an event that is known to be new.  Index insertion and toasting
 * palloc, so do it in the per-tuple context.
 */
static void
insert_event(UdbOutbox *outbox, const UdbEventInput *event, const pg_uuid_t *event_id,
			 uint64 position)
{
	OpenSegment *seg = use_segment(outbox, position);
	TupleTableSlot *slot = fill_slot(seg, 0, event, position, event_id);
	MemoryContext oldcontext = MemoryContextSwitchTo(GetPerTupleMemoryContext(seg->estate));
	ResourceOwner save = CurrentResourceOwner;

	/* index access methods may keep buffers pinned from one insert to the next */
	CurrentResourceOwner = seg->owner;
	seg->inserting = GetCurrentTransactionNestLevel();
	table_tuple_insert(seg->rel, slot, GetCurrentCommandId(true), 0, NULL);
	index_slot(seg, slot);
	seg->inserting = 0;
	CurrentResourceOwner = save;
	ExecClearTuple(slot);
	MemoryContextSwitchTo(oldcontext);

	if (unlikely(position >= seg->alarm))
	{
		seg->alarm = seg->end;
		udb_segment_ask(outbox, seg->end);
	}
	UDB_DEBUG_POINT("event-inserted");
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
				insert_event(outbox, event, event->event_id, position);
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
	insert_event(outbox, event, &event_id, position);
	return (int64) position;
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

/*
 * Insert events[0..n-1], none with a given event_id, at consecutive positions
 * from "first" on, as far as they are in the same segment.  Returns how many.
 */
static int
insert_batch(UdbOutbox *outbox, const UdbEventInput *events, int n, uint64 first)
{
	OpenSegment *seg = use_segment(outbox, first);
	pg_uuid_t	ids[BATCH_TUPLES];
	Size		bytes = 0;
	int			filled = 0;
	MemoryContext oldcontext;
	ResourceOwner save = CurrentResourceOwner;

	while (filled < n && filled < BATCH_TUPLES && bytes < BATCH_BYTES && first + filled < seg->end)
	{
		udb_uuid_v7(&ids[filled]);
		fill_slot(seg, filled, &events[filled], first + filled, &ids[filled]);
		bytes += VARSIZE_ANY(DatumGetPointer(events[filled].payload));
		filled++;
	}

	oldcontext = MemoryContextSwitchTo(GetPerTupleMemoryContext(seg->estate));
	CurrentResourceOwner = seg->owner;
	seg->inserting = GetCurrentTransactionNestLevel();
	table_multi_insert(seg->rel, seg->slots, filled, GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < filled; i++)
	{
		udb_insert_index_tuples(seg->rri, seg->slots[i], seg->estate);
		ExecClearTuple(seg->slots[i]);
	}
	seg->inserting = 0;
	CurrentResourceOwner = save;
	ResetPerTupleExprContext(seg->estate);
	MemoryContextSwitchTo(oldcontext);

	if (first + filled > seg->alarm && seg->alarm < seg->end)
	{
		seg->alarm = seg->end;
		udb_segment_ask(outbox, seg->end);
	}
	return filled;
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
