/*-------------------------------------------------------------------------
 *
 * row.h
 *	  A job's row: its columns, and writing it without the executor.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_ROW_H
#define UDB_QUEUE_ROW_H

#include "postgres.h"
#include "access/htup.h"
#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "storage/block.h"
#include "storage/buf.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* columns of udb.jobs */
#define Anum_job_job_id 1
#define Anum_job_ready_seq 2
#define Anum_job_created_at 3
#define Anum_job_run_at 4
#define Anum_job_due_at 5
#define Anum_job_expires_at 6
#define Anum_job_priority 7
#define Anum_job_max_attempts 8
#define Anum_job_queue 9
#define Anum_job_unique_key 10
#define Anum_job_ordering_key 11
#define Anum_job_payload 12
#define Anum_job_last_error 13
#define Anum_job_attempts 14
#define Anum_job_claim_token 15
#define Anum_job_visible_until 16
#define Anum_job_worker_id 17
#define Anum_job_state 18
#define Natts_job 18

/* The columns of a row; pointers go into the tuple. */
typedef struct UdbJobRow
{
	Datum		values[Natts_job];
	bool		nulls[Natts_job];
} UdbJobRow;

#define udb_job_value(row, column) ((row)->values[Anum_job_##column - 1])
#define udb_job_isnull(row, column) ((row)->nulls[Anum_job_##column - 1])

/* udb.jobs while a function works on it. */
typedef struct UdbJobTable
{
	Relation	rel;
	Relation	ready;			/* the ready index */
	Relation	pkey;
	ResultRelInfo *rri;			/* made when a new version needs index entries */
	EState	   *estate;
	MemoryContext context;		/* of these two */
} UdbJobTable;

extern void udb_job_table_open(UdbJobTable *table, LOCKMODE lockmode);

/* Locks are kept. */
extern void udb_job_table_close(UdbJobTable *table);

/*
 * The version that the snapshot shows of the row whose index entry points to *tid; in
 * *buffer, which stays pinned.  Unlike an index scan it does not prune the page unless
 * that is full: the versions that claims leave behind go with the job, soon.  If there
 * is none, *all_dead tells if the index entry is of no use to anybody.
 */
extern bool udb_job_fetch(UdbJobTable *table, ItemPointer tid, Snapshot snapshot, HeapTuple tuple,
						  Buffer *buffer, bool *all_dead);

/*
 * The session remembers where it has put the jobs that it claimed last, since it is
 * going to acknowledge them soon.  True if it knows that of this job and the snapshot
 * shows what is there; else the index has to be asked.  nblocks is the table's size,
 * looked up under the lock on it.
 */
extern bool udb_job_fetch_claimed(UdbJobTable *table, int64 job_id, BlockNumber nblocks,
								  Snapshot snapshot, HeapTuple tuple, Buffer *buffer);

extern void udb_job_row(UdbJobTable *table, HeapTuple tuple, UdbJobRow *row);

/* Whether the column holds this word. */
extern bool udb_job_text_is(Datum value, const char *word);

/*
 * Replace the version by one with these columns, unless another transaction has
 * it, or has replaced it (false).  Never waits.
 */
extern bool udb_job_try_update(UdbJobTable *table, HeapTuple tuple, UdbJobRow *row);

/* The row as udb.job. */
extern void udb_job_output(const UdbJobRow *row, Datum *values, bool *nulls);
#define Natts_job_output 17

#endif							/* UDB_QUEUE_ROW_H */
