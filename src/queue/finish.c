/*-------------------------------------------------------------------------
 *
 * finish.c
 *	  Jobs that are done.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/check.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/spi.h"
#include "queue/queue.h"
#include "queue/row.h"
#include "queue/wait.h"

/* The jobs of one call, while they are looked up. */
typedef struct Lookup
{
	UdbJobTable table;
	BlockNumber nblocks;		/* of the table */
	Snapshot	snapshot;		/* newer than all that was found to be changed */
	IndexScanDesc scan;
	HeapTupleData tuple;		/* what was found, in the buffer */
	Buffer		buffer;
	MemoryContext context;		/* of all this */
} Lookup;

static void
begin_scan(Lookup *l)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(l->context);

	l->snapshot = RegisterSnapshot(GetLatestSnapshot());
	l->scan = udb_index_beginscan(l->table.rel, l->table.pkey, l->snapshot, 1);
	MemoryContextSwitchTo(oldcontext);
}

static void
end_scan(Lookup *l)
{
	index_endscan(l->scan);
	UnregisterSnapshot(l->snapshot);
}

/* The job's row, in l->tuple; false if there is none. */
static bool
find(Lookup *l, int64 job_id)
{
	MemoryContext oldcontext;
	ScanKeyData key;
	bool		found = false;

	if (udb_job_fetch_claimed(&l->table, job_id, l->nblocks, l->snapshot, &l->tuple, &l->buffer))
		return true;

	oldcontext = MemoryContextSwitchTo(l->context);
	/* what the scan allocates at its first use lives as long as the scan */
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job_id));
	index_rescan(l->scan, &key, 1, NULL, 0);
	while (!found && index_getnext_tid(l->scan, ForwardScanDirection) != NULL)
	{
		bool		all_dead = false;

		found = udb_job_fetch(&l->table, &l->scan->xs_heaptid, l->snapshot, &l->tuple, &l->buffer,
							  &all_dead);
		l->scan->kill_prior_tuple = all_dead;
	}
	MemoryContextSwitchTo(oldcontext);
	return found;
}

static bool
in_snapshot(Lookup *l, Snapshot snapshot)
{
	bool		visible;

	LockBuffer(l->buffer, BUFFER_LOCK_SHARE);
	visible = HeapTupleSatisfiesVisibility(&l->tuple, snapshot, l->buffer);
	LockBuffer(l->buffer, BUFFER_LOCK_UNLOCK);
	return visible;
}

/* Whether the row is held by this claim. */
static bool
is_claimed(const UdbJobRow *row, int64 claim_token)
{
	return udb_job_text_is(udb_job_value(row, state), "claimed") &&
		DatumGetInt64(udb_job_value(row, claim_token)) == claim_token &&
		DatumGetTimestampTz(udb_job_value(row, visible_until)) > GetCurrentTimestamp();
}

/* The next job of the key may run. */
static void
unblock(const UdbJobRow *row)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID};
	Datum		values[2];
	UdbSpi		spi;

	values[0] = udb_job_value(row, queue);
	values[1] = udb_job_value(row, ordering_key);
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan, "SELECT udb._unblock($1, $2)", 2, types, values, NULL,
						   SPI_OK_SELECT);
	udb_spi_end(&spi);
}

/* Remove a job if this claim holds it. */
static bool
ack(Lookup *l, int64 job_id, int64 claim_token)
{
	for (;;)
	{
		UdbJobRow	row;
		TM_FailureData failure;
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		if (!find(l, job_id))
			return false;
		udb_job_row(&l->table, &l->tuple, &row);
		if (!is_claimed(&row, claim_token))
			return false;
		if (IsolationUsesXactSnapshot() && !in_snapshot(l, GetTransactionSnapshot()))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access to job " INT64_FORMAT
							" due to concurrent update",
							job_id)));
		UDB_DEBUG_POINT("job-ack");
		udb_queue_touch_place(DatumGetInt64(udb_job_value(&row, ready_seq)));
		result = heap_delete(l->table.rel, &l->tuple.t_self, GetCurrentCommandId(true),
							 InvalidSnapshot, true, &failure, false);
		switch (result)
		{
			case TM_Ok:
				if (!udb_job_isnull(&row, ordering_key))
				{
					CommandCounterIncrement();
					unblock(&row);
				}
				return true;
			case TM_SelfModified:
				return false;	/* twice in the array */
			case TM_Updated:
			case TM_Deleted:
				end_scan(l);
				begin_scan(l);
				break;
			default:
				elog(ERROR, "unexpected result %d of removing a job", (int) result);
		}
	}
}

static int64
ack_all(const Datum *job_ids, const bool *nulls, int n, int64 claim_token)
{
	Lookup		l;
	int64		done = 0;
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "udb ack", ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext;

	udb_job_table_open(&l.table, RowExclusiveLock);
	l.nblocks = RelationGetNumberOfBlocks(l.table.rel);
	l.buffer = InvalidBuffer;
	l.context = CurrentMemoryContext;
	begin_scan(&l);
	oldcontext = MemoryContextSwitchTo(context);
	for (int i = 0; i < n; i++)
	{
		if (nulls == NULL || !nulls[i])
			done += ack(&l, DatumGetInt64(job_ids[i]), claim_token);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);
	end_scan(&l);
	if (BufferIsValid(l.buffer))
		ReleaseBuffer(l.buffer);
	udb_job_table_close(&l.table);
	if (done > 0)
		CommandCounterIncrement();
	return done;
}

UDB_FUNCTION(udb_ack_job);

/* ack_job(job_id, claim_token, store) returns boolean */
Datum
udb_ack_job(PG_FUNCTION_ARGS)
{
	Datum		job_id = PG_GETARG_DATUM(0);

	udb_check_store(PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2));
	udb_queue_not_null(fcinfo, 0, "job_id");
	udb_queue_not_null(fcinfo, 1, "claim_token");
	udb_queue_check_writable("ack_job()");
	PG_RETURN_BOOL(ack_all(&job_id, NULL, 1, PG_GETARG_INT64(1)) == 1);
}

UDB_FUNCTION(udb_ack_jobs);

/* ack_jobs(job_ids, claim_token, store) returns bigint */
Datum
udb_ack_jobs(PG_FUNCTION_ARGS)
{
	Datum	   *job_ids;
	bool	   *nulls;
	int			n;

	udb_check_store(PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2));
	udb_queue_not_null(fcinfo, 0, "job_ids");
	udb_queue_not_null(fcinfo, 1, "claim_token");
	udb_queue_check_writable("ack_jobs()");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &job_ids, &nulls, &n);
	PG_RETURN_INT64(ack_all(job_ids, nulls, n, PG_GETARG_INT64(1)));
}
