/*-------------------------------------------------------------------------
 *
 * row.c
 *	  A job's row: its columns, and writing it without the executor.
 *
 * A claim locks the row before it updates it, as heap_update() cannot be asked not
 * to wait.  It changes no indexed column and so, as long as the page has room, makes
 * no index entries; if it has none, the executor's way is good enough.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/rel.h"

#include "common/catalog.h"
#include "common/compat.h"
#include "queue/row.h"

/* jobs whose place is remembered; a power of two */
#define CLAIMED_PLACES 1024

typedef struct ClaimedPlace
{
	int64		job_id;
	ItemPointerData tid;
} ClaimedPlace;

/* by the low bits of the job's id; what is said there is checked before it is believed */
static ClaimedPlace places[CLAIMED_PLACES];

static UdbRelation jobs = {"jobs"};
static UdbRelation jobs_pkey = {"jobs_pkey"};
static UdbRelation jobs_ready_idx = {"jobs_ready_idx"};

void
udb_job_table_open(UdbJobTable *table, LOCKMODE lockmode)
{
	memset(table, 0, sizeof(UdbJobTable));
	table->context = CurrentMemoryContext;
	table->rel = table_open(udb_relation_oid(&jobs), lockmode);
	table->ready = index_open(udb_relation_oid(&jobs_ready_idx), lockmode);
	table->pkey = index_open(udb_relation_oid(&jobs_pkey), lockmode);
}

void
udb_job_table_close(UdbJobTable *table)
{
	if (table->rri != NULL)
	{
		ExecCloseIndices(table->rri);
		FreeExecutorState(table->estate);
	}
	index_close(table->pkey, NoLock);
	index_close(table->ready, NoLock);
	table_close(table->rel, NoLock);
}

bool
udb_job_fetch(UdbJobTable *table, ItemPointer tid, Snapshot snapshot, HeapTuple tuple,
			  Buffer *buffer, bool *all_dead)
{
	ItemPointerData self = *tid;
	bool		found;

	*buffer = ReleaseAndReadBuffer(*buffer, table->rel, ItemPointerGetBlockNumber(tid));
	if (PageIsFull(BufferGetPage(*buffer)))
		heap_page_prune_opt(table->rel, *buffer);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	found = heap_hot_search_buffer(&self, table->rel, *buffer, snapshot, tuple, all_dead, true);
	LockBuffer(*buffer, BUFFER_LOCK_UNLOCK);
	return found;
}

static void
remember_claimed(int64 job_id, ItemPointer tid)
{
	ClaimedPlace *place = &places[job_id & (CLAIMED_PLACES - 1)];

	place->job_id = job_id;
	place->tid = *tid;
}

bool
udb_job_fetch_claimed(UdbJobTable *table, int64 job_id, BlockNumber nblocks, Snapshot snapshot,
					  HeapTuple tuple, Buffer *buffer)
{
	ClaimedPlace *place = &places[job_id & (CLAIMED_PLACES - 1)];
	OffsetNumber offset;
	Page		page;
	ItemId		item;
	bool		found = false;
	bool		isnull;

	if (place->job_id != job_id || !ItemPointerIsValid(&place->tid) ||
		ItemPointerGetBlockNumber(&place->tid) >= nblocks)
		return false;
	offset = ItemPointerGetOffsetNumber(&place->tid);
	*buffer =
		ReleaseAndReadBuffer(*buffer, table->rel, ItemPointerGetBlockNumber(&place->tid));
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(*buffer);
	if (offset <= PageGetMaxOffsetNumber(page) &&
		ItemIdIsNormal(item = PageGetItemId(page, offset)))
	{
		tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple->t_len = ItemIdGetLength(item);
		tuple->t_tableOid = RelationGetRelid(table->rel);
		tuple->t_self = place->tid;
		found = HeapTupleSatisfiesVisibility(tuple, snapshot, *buffer) &&
			DatumGetInt64(heap_getattr(tuple, Anum_job_job_id, RelationGetDescr(table->rel),
									   &isnull)) == job_id;
	}
	LockBuffer(*buffer, BUFFER_LOCK_UNLOCK);
	return found;
}

void
udb_job_row(UdbJobTable *table, HeapTuple tuple, UdbJobRow *row)
{
	heap_deform_tuple(tuple, RelationGetDescr(table->rel), row->values, row->nulls);
}

bool
udb_job_text_is(Datum value, const char *word)
{
	struct varlena *text = (struct varlena *) DatumGetPointer(value);
	Size		len = strlen(word);

	return VARSIZE_ANY_EXHDR(text) == len && memcmp(VARDATA_ANY(text), word, len) == 0;
}

/* Enter a version into all indexes. */
static void
index_row(UdbJobTable *table, HeapTuple tuple)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsHeapTuple);

	if (table->rri == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(table->context);

		table->estate = CreateExecutorState();
		table->rri = makeNode(ResultRelInfo);
		InitResultRelInfo(table->rri, table->rel, 0, NULL, 0);
		ExecOpenIndices(table->rri, false);
		MemoryContextSwitchTo(oldcontext);
	}
	ExecStoreHeapTuple(tuple, slot, false);
	slot->tts_tid = tuple->t_self;
	udb_insert_index_tuples(table->rri, slot, table->estate);
	ResetPerTupleExprContext(table->estate);
	ExecDropSingleTupleTableSlot(slot);
}

bool
udb_job_try_update(UdbJobTable *table, HeapTuple tuple, UdbJobRow *row)
{
	CommandId	cid = GetCurrentCommandId(true);
	HeapTupleData old = *tuple;
	HeapTuple	newer;
	Buffer		buffer;
	TM_FailureData failure;
	TM_Result	result;
	bool		update_indexes;

	result = heap_lock_tuple(table->rel, &old, cid, LockTupleNoKeyExclusive, LockWaitSkip, false,
							 &buffer, &failure);
	ReleaseBuffer(buffer);
	if (result != TM_Ok)
		return false;

	newer = heap_form_tuple(RelationGetDescr(table->rel), row->values, row->nulls);
	result = udb_heap_update(table->rel, &tuple->t_self, newer, cid, InvalidSnapshot, true,
							 &failure, &update_indexes);
	if (result != TM_Ok)
		elog(ERROR, "unexpected result %d of updating a job that is locked", (int) result);
	if (update_indexes)
		index_row(table, newer);
	remember_claimed(DatumGetInt64(udb_job_value(row, job_id)), &newer->t_self);
	heap_freetuple(newer);
	return true;
}

void
udb_job_output(const UdbJobRow *row, Datum *values, bool *nulls)
{
	static const AttrNumber columns[Natts_job_output - 1] = {
		Anum_job_job_id, Anum_job_queue, Anum_job_payload, Anum_job_state,
		Anum_job_priority, Anum_job_attempts, Anum_job_max_attempts, Anum_job_unique_key,
		Anum_job_ordering_key, Anum_job_claim_token, Anum_job_worker_id, Anum_job_visible_until,
		Anum_job_run_at, Anum_job_expires_at, Anum_job_last_error, Anum_job_created_at};

	for (int i = 0; i < Natts_job_output - 1; i++)
	{
		values[i] = row->values[columns[i] - 1];
		nulls[i] = row->nulls[columns[i] - 1];
	}
	values[Natts_job_output - 1] = (Datum) 0;	/* died_at */
	nulls[Natts_job_output - 1] = true;
}
