/*-------------------------------------------------------------------------
 *
 * seq.c
 *	  Numbers of jobs, and claim tokens.
 *
 * Claims go through the ready index in the order of ready_seq and remember how
 * far all is dead (see hint.c).  A number that has been taken and has not entered
 * the index yet must not be passed.  So whoever takes numbers publishes a bound
 * first, below which it will take none, and keeps it until its transaction ends;
 * from then on at the latest its entries are in the index.  Claims read the
 * sequence, then the bounds, then the index: a number that the sequence had
 * handed out by then was taken under a bound that they find, or is in the index.
 *
 * Claim tokens grow, whatever happens.  The sequence makes them grow in the life
 * of the server.  What a crash or a failover has lost of an asynchronous commit
 * or of replication lag would be handed out again; so at the first use after a
 * start the sequence is set to the time of day in microseconds, if it is below
 * that.  Claims are fewer than microseconds.
 *
 * Locking: bounds are written by their owner only, without a lock.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "common/catalog.h"
#include "common/compat.h"
#include "common/database.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "common/shmem.h"
#include "common/spi.h"
#include "outbox/state.h"
#include "queue/seq.h"

typedef struct SeqProc
{
	pg_atomic_uint64 bound;		/* takes no number below it; 0: takes none */
	Oid			dboid;
} SeqProc;

typedef struct SeqArea
{
	int			nprocs;
	SeqProc		procs[FLEXIBLE_ARRAY_MEMBER];	/* by proc number */
} SeqArea;

static SeqArea *area = NULL;

/* the greatest token of each database since the server started; by slot */
static pg_atomic_uint64 *tokens = NULL;

static UdbRelation job_seq = {"job_seq"};
static UdbRelation job_claim_token = {"job_claim_token"};

static bool bounded = false;

static Size
seq_size(void)
{
	return add_size(offsetof(SeqArea, procs), mul_size(sizeof(SeqProc), MaxBackends));
}

static void
seq_init(void *ptr)
{
	SeqArea    *a = ptr;

	a->nprocs = MaxBackends;
	for (int i = 0; i < a->nprocs; i++)
		pg_atomic_init_u64(&a->procs[i].bound, 0);
}

static Size
tokens_size(void)
{
	return mul_size(sizeof(pg_atomic_uint64), udb_max_databases);
}

static void
tokens_init(void *ptr)
{
	pg_atomic_uint64 *t = ptr;

	for (int i = 0; i < udb_max_databases; i++)
		pg_atomic_init_u64(&t[i], 0);
}

void
udb_job_seq_init(void)
{
	static const UdbShmemArea seq_desc = {
		.name = "udb job numbers", .size = seq_size, .init = seq_init, .pointer = (void **) &area};
	static const UdbShmemArea tokens_desc = {.name = "udb claim tokens",
											 .size = tokens_size,
											 .init = tokens_init,
											 .pointer = (void **) &tokens};

	udb_shmem_register(&seq_desc);
	udb_shmem_register(&tokens_desc);
}

/* The number that the sequence will hand out next. */
static int64
read_sequence(void)
{
	Relation	rel = relation_open(udb_relation_oid(&job_seq), AccessShareLock);
	Buffer		buffer = ReadBuffer(rel, 0);
	Page		page;
	HeapTupleHeader tuple;
	Form_pg_sequence_data data;
	int64		next;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	tuple = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, FirstOffsetNumber));
	data = (Form_pg_sequence_data) ((char *) tuple + tuple->t_hoff);
	next = data->is_called ? data->last_value + 1 : data->last_value;
	UnlockReleaseBuffer(buffer);
	relation_close(rel, AccessShareLock);
	return next;
}

int64
udb_job_seq_next(void)
{
	if (!bounded)
	{
		SeqProc    *proc = &area->procs[udb_my_procno()];
		int64		bound = read_sequence();

		proc->dboid = MyDatabaseId;
		pg_write_barrier();
		bounded = true;
		pg_atomic_write_u64(&proc->bound, (uint64) bound);

		/* the bound must be out before a number is taken */
		pg_memory_barrier();
	}
	return nextval_internal(udb_relation_oid(&job_seq), false);
}

int64
udb_job_seq_settled(void)
{
	int64		settled = read_sequence();

	UDB_DEBUG_POINT("job-seq-read");
	pg_memory_barrier();
	for (int i = 0; i < area->nprocs; i++)
	{
		uint64		bound = pg_atomic_read_u64(&area->procs[i].bound);

		if (bound != 0 && area->procs[i].dboid == MyDatabaseId)
			settled = Min(settled, (int64) bound);
	}
	pg_memory_barrier();
	return settled;
}

void
udb_job_seq_xact_end(void)
{
	if (!bounded)
		return;
	bounded = false;
	pg_memory_barrier();
	pg_atomic_write_u64(&area->procs[udb_my_procno()].bound, 0);
}

/* Microseconds since 1970. */
static int64
clock_token(void)
{
	return GetCurrentTimestamp() +
		(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/* Let the sequence go on after this value. */
static void
set_sequence(int64 value)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {INT8OID};
	Datum		values[1];
	UdbSpi		spi;

	values[0] = Int64GetDatum(value);
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan, "SELECT pg_catalog.setval('udb.job_claim_token', $1)", 1, types,
						   values, NULL, SPI_OK_SELECT);
	udb_spi_end(&spi);
}

int64
udb_claim_token_next(void)
{
	pg_atomic_uint64 *last = &tokens[udb_database_slot()];
	Oid			relid = udb_relation_oid(&job_claim_token);
	int64		token = 0;
	uint64		before = pg_atomic_read_u64(last);

	if (before != 0)
		token = nextval_internal(relid, false);
	if (before == 0 || token <= (int64) before)
	{
		LOCKTAG		tag = udb_locktag(UDB_LOCK_CLAIM_TOKEN, 0);

		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		token = nextval_internal(relid, false);
		before = pg_atomic_read_u64(last);
		if (before == 0 || token <= (int64) before)
		{
			set_sequence(Max(Max(clock_token(), token), (int64) before));
			token = nextval_internal(relid, false);
		}
		udb_atomic_max(last, (uint64) token);
		LockRelease(&tag, ExclusiveLock, false);
	}
	else
		udb_atomic_max(last, (uint64) token);
	return token;
}
