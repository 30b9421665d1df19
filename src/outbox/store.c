/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Storing events: the open segment, its table and its indexes.
 *
 * The tuple and its index entries are inserted directly, without SPI, plan or
 * executor.  The segment stays open, with its indexes, until the end of the
 * transaction.  All that this holds on to belongs to a resource owner of its
 * own, a child of the top transaction's, so that subtransactions can come and
 * go; one that aborts may have left things half done, so the segment is then
 * dropped whole and opened again when needed.  No bulk-insert state is kept:
 * its ring would evict the pages that consumers are about to read.
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
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/uuid.h"
#include "outbox/index.h"
#include "outbox/segment.h"
#include "outbox/store.h"

/* udb_store_batch() takes no more tuples at a time, and not many more bytes */
#define BATCH_TUPLES 500
#define BATCH_BYTES 65536

/*
 * Events go to the end.  The free-space map would send small ones into what is
 * left on old pages, far from their neighbours and at the price of logging
 * these pages again.
 */
#define INSERT_OPTIONS TABLE_INSERT_SKIP_FSM

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
	bool		plain_indexes;	/* see indexes_are_plain() */
	int			inserting;		/* nest level of who is inserting; 0: nobody */
} OpenSegment;

static OpenSegment *open_segment = NULL;

/* the outbox that this call takes positions of: see udb_outbox_generation() */
static Oid	generation = InvalidOid;

void
udb_store_begin(UdbOutbox *outbox)
{
	generation = pg_atomic_read_u32(&outbox->seqrelid);
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
udb_store_close(void)
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
udb_store_forget(void)
{
	/* abort releases the top transaction's resource owner, with its children */
	open_segment = NULL;
}

void
udb_store_subabort(void)
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
	seg->plain_indexes = indexes_are_plain(seg->rri);
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

	udb_store_close();
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

/* Wake the worker for the next segment, once, when this one is half full. */
static void
look_ahead(UdbOutbox *outbox, OpenSegment *seg, uint64 position)
{
	if (likely(position < seg->alarm))
		return;
	seg->alarm = PG_UINT64_MAX;
	udb_segment_ask(outbox, seg->end);
}

void
udb_store_event(UdbOutbox *outbox, const UdbEventInput *event, const pg_uuid_t *event_id,
				uint64 position)
{
	OpenSegment *seg = use_segment(outbox, position);
	TupleTableSlot *slot = segment_slot(seg, 0);
	MemoryContext oldcontext = MemoryContextSwitchTo(GetPerTupleMemoryContext(seg->estate));
	ResourceOwner save = CurrentResourceOwner;
	Datum		values[Natts_event];
	bool		nulls[Natts_event];

	event_columns(event, position, event_id, GetCurrentTimestamp(), values, nulls);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, values, sizeof(values));
	memcpy(slot->tts_isnull, nulls, sizeof(nulls));
	ExecStoreVirtualTuple(slot);

	/* index access methods may keep buffers pinned from one insert to the next */
	CurrentResourceOwner = seg->owner;
	seg->inserting = GetCurrentTransactionNestLevel();
	table_tuple_insert(seg->rel, slot, GetCurrentCommandId(true), INSERT_OPTIONS, NULL);
	if (likely(seg->plain_indexes))
	{
		for (int i = 0; i < seg->rri->ri_NumIndices; i++)
			insert_index_entry(seg, i, &slot->tts_tid, values, nulls);
	}
	else
		udb_insert_index_tuples(seg->rri, slot, seg->estate);
	seg->inserting = 0;
	CurrentResourceOwner = save;

	ExecClearTuple(slot);
	ResetPerTupleExprContext(seg->estate);
	MemoryContextSwitchTo(oldcontext);
	look_ahead(outbox, seg, position);
	UDB_DEBUG_POINT("event-inserted");
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

int
udb_store_batch(UdbOutbox *outbox, const UdbEventInput *events, int n, uint64 first)
{
	OpenSegment *seg = use_segment(outbox, first);
	Batch		batch = {.events = events, .first = first, .created_at = GetCurrentTimestamp()};
	Size		bytes = 0;
	MemoryContext oldcontext;
	ResourceOwner save = CurrentResourceOwner;

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
	CurrentResourceOwner = seg->owner;
	seg->inserting = GetCurrentTransactionNestLevel();
	table_multi_insert(seg->rel, seg->slots, batch.n, GetCurrentCommandId(true), INSERT_OPTIONS,
					   NULL);
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
	seg->inserting = 0;
	CurrentResourceOwner = save;

	for (int j = 0; j < batch.n; j++)
		ExecClearTuple(seg->slots[j]);
	ResetPerTupleExprContext(seg->estate);
	MemoryContextSwitchTo(oldcontext);
	look_ahead(outbox, seg, first + batch.n - 1);
	return batch.n;
}
