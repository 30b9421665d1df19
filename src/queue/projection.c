/*-------------------------------------------------------------------------
 *
 * projection.c
 *	  Projection tasks: claiming them, and what happens at the end of a
 *	  transaction that has changed some.
 *
 * Claimed tasks leave dead entries at the old end of the index of what is
 * pending, which is where the next claim begins.  While somebody holds an old
 * snapshot they stay, and each claim would walk over all of them.  So shared
 * memory remembers a mark for each set of filters: at or above it is every
 * pending task that a claim with these filters can get.
 *
 *	Claim:		read the mark, take a snapshot, claim from the mark upwards;
 *				raise it to the last task that was claimed, or to the time of
 *				the claim if there was nothing more.
 *	Others:		what a transaction makes pending lowers the marks to it when
 *				it commits, and what it has claimed when it rolls back.
 *
 * So tasks that a claim does not see, or that others hold, are no obstacle to
 * raising: if they become free, they lower the mark.  Those that have done so
 * since the claim read the mark are in a ring, and bound how far it is raised.
 * A claim with a fixed snapshot does not raise.
 *
 * The mark is a matter of speed.  What is made pending past the trigger of the
 * table is found since each mark is left aside every few seconds.
 *
 * Order, in xact.c of PostgreSQL 15 to 18: the callbacks for commit and abort
 * run when any new snapshot sees the transaction, or nobody any more.  They
 * neither throw nor allocate.  COMMIT PREPARED and ROLLBACK PREPARED have none
 * in the session that executes them, so the utility hook forgets all marks, and
 * wakes whoever waits.
 *
 * Locking: marks are under a spinlock for each database.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "common/check.h"
#include "common/compat.h"
#include "common/database.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/prepared.h"
#include "common/shmem.h"
#include "common/spi.h"
#include "queue/projection.h"
#include "token/tasks.h"

/* columns of udb.projection_tasks */
#define Anum_task_id 1
#define Anum_status 17
#define Anum_created_at 20

/* marks of a database; more sets of filters than that take turns */
#define NMARKS 8

/* how many lowerings are remembered one by one */
#define NLOWERED 64

/* how long a mark is trusted, in milliseconds */
#define TRUST_MS 10000

/* tasks that a transaction remembers one by one */
#define MAX_ENDED 64

typedef struct Mark
{
	uint64		key;			/* hash of the filters; 0: free */
	TimestampTz low;
	TimestampTz looked;			/* when a claim has begun without it */
} Mark;

typedef struct ProjectionState
{
	slock_t		mutex;
	Oid			dboid;			/* whose marks they are */
	int			next;			/* mark to reuse */
	uint64		nlowered;		/* how often marks were lowered */
	TimestampTz lowered[NLOWERED];	/* to what, the last times */
	Mark		marks[NMARKS];
} ProjectionState;

static ProjectionState *states = NULL;	/* by database slot */

/* what this transaction has done */
static int	my_slot = -1;		/* -1: nothing */
static TimestampTz made_pending = DT_NOEND;	/* oldest one */
static TimestampTz claimed = DT_NOEND;	/* likewise */
static uint64 ended[MAX_ENDED];
static int	nended = 0;
static bool ended_more = false;

static Size
projection_size(void)
{
	return mul_size(sizeof(ProjectionState), udb_max_databases);
}

static void
projection_area_init(void *ptr)
{
	ProjectionState *s = ptr;

	for (int i = 0; i < udb_max_databases; i++)
		SpinLockInit(&s[i].mutex);
}

/* ---- marks ----------------------------------------------------------------- */

/* With the lock held: forget what is another database's, or all. */
static void
forget_marks(ProjectionState *s)
{
	s->dboid = MyDatabaseId;
	memset(s->marks, 0, sizeof(s->marks));
}

/* With the lock held: the mark of these filters, or NULL. */
static Mark *
find_mark(ProjectionState *s, uint64 key)
{
	if (s->dboid != MyDatabaseId)
		forget_marks(s);
	for (int i = 0; i < NMARKS; i++)
		if (s->marks[i].key == key)
			return &s->marks[i];
	return NULL;
}

/* Where a claim can begin.  *seen is for raise_mark(). */
static TimestampTz
read_mark(int slot, uint64 key, TimestampTz now, uint64 *seen)
{
	ProjectionState *s = &states[slot];
	TimestampTz low = DT_NOBEGIN;
	Mark	   *m;

	SpinLockAcquire(&s->mutex);
	m = find_mark(s, key);
	if (m != NULL && now >= m->looked && now - m->looked < INT64CONST(1000) * TRUST_MS)
		low = m->low;
	*seen = s->nlowered;
	SpinLockRelease(&s->mutex);
	/* what this transaction has made pending is not committed yet */
	return Min(low, made_pending);
}

/* A claim that began at "from" has found nothing else below "low". */
static void
raise_mark(int slot, uint64 key, TimestampTz from, TimestampTz low, TimestampTz now, uint64 seen)
{
	ProjectionState *s = &states[slot];
	Mark	   *m;

	SpinLockAcquire(&s->mutex);
	m = find_mark(s, key);
	if (m == NULL)
	{
		m = &s->marks[s->next];
		s->next = (s->next + 1) % NMARKS;
		m->key = key;
		m->low = DT_NOBEGIN;
		m->looked = now;
	}
	else if (TIMESTAMP_IS_NOBEGIN(from))
	{
		m->looked = now;
		m->low = DT_NOBEGIN;
	}
	if (s->nlowered - seen > NLOWERED)
		low = DT_NOBEGIN;
	else
		for (uint64 i = seen; i < s->nlowered; i++)
			low = Min(low, s->lowered[i % NLOWERED]);
	/* others may have claimed more than we have */
	m->low = Max(m->low, low);
	SpinLockRelease(&s->mutex);
}

static void
lower_marks(int slot, TimestampTz low)
{
	ProjectionState *s = &states[slot];

	SpinLockAcquire(&s->mutex);
	s->lowered[s->nlowered++ % NLOWERED] = low;
	for (int i = 0; i < NMARKS; i++)
		s->marks[i].low = Min(s->marks[i].low, low);
	SpinLockRelease(&s->mutex);
}

/* ---- the end of a transaction ---------------------------------------------- */

static void
end_of_transaction(bool committed)
{
	if (likely(my_slot < 0))
		return;
	if (committed && made_pending != DT_NOEND)
		lower_marks(my_slot, made_pending);
	else if (!committed && claimed != DT_NOEND)
		lower_marks(my_slot, claimed);
	if (committed && ended_more)
		udb_tasks_ended(0);
	else if (committed)
		for (int i = 0; i < nended; i++)
			udb_tasks_ended(ended[i]);
	my_slot = -1;
	made_pending = DT_NOEND;
	claimed = DT_NOEND;
	nended = 0;
	ended_more = false;
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			end_of_transaction(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE: /* the claims stay; marks are forgotten in the end */
			end_of_transaction(false);
			break;
		default:
			break;
	}
}

/*
 * What is rolled back here may have been claimed here.  The rest is kept until
 * the end: too low a mark, or a wake-up for nothing, does no harm.
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && my_slot >= 0 && claimed != DT_NOEND)
		lower_marks(my_slot, claimed);
}

static void
prepared_ended(bool committed)
{
	int			slot = udb_database_find(MyDatabaseId);

	if (slot >= 0)
	{
		lower_marks(slot, DT_NOBEGIN);
		udb_tasks_ended(0);
	}
}

void
udb_projection_init(void)
{
	static const UdbShmemArea desc = {.name = "udb projection tasks",
									  .size = projection_size,
									  .init = projection_area_init,
									  .pointer = (void **) &states};

	udb_shmem_register(&desc);
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
	udb_on_prepared_end(prepared_ended);
}

UDB_FUNCTION(udb_projection_task_changed);

/* Trigger of the table: see 32_projection.sql for when it is called. */
Datum
udb_projection_task_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	HeapTuple	tuple;
	TupleDesc	desc;
	bool		isnull;
	bool		deleted;
	Datum		status;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("_projection_task_changed() can only be the trigger of its table")));
	deleted = TRIGGER_FIRED_BY_DELETE(trigdata->tg_event);
	tuple = trigdata->tg_trigtuple;
	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		tuple = trigdata->tg_newtuple;
	desc = RelationGetDescr(trigdata->tg_relation);
	status = heap_getattr(tuple, Anum_status, desc, &isnull);
	my_slot = udb_database_slot();
	if (!deleted && VARSIZE_ANY_EXHDR(DatumGetPointer(status)) == 7 &&
		memcmp(VARDATA_ANY(DatumGetPointer(status)), "PENDING", 7) == 0)
	{
		TimestampTz created =
			DatumGetTimestampTz(heap_getattr(tuple, Anum_created_at, desc, &isnull));

		made_pending = Min(made_pending, created);
	}
	else if (nended < MAX_ENDED)
		ended[nended++] =
			udb_tasks_key(DatumGetUUIDP(heap_getattr(tuple, Anum_task_id, desc, &isnull)));
	else
		ended_more = true;
	PG_RETURN_POINTER(NULL);
}

/* ---- claiming -------------------------------------------------------------- */

/* A filter of a claim. */
typedef struct Filter
{
	const char *column;
	Datum		value;
	bool		given;
} Filter;

#define NFILTERS 3

/*
 * What is claimable, in order, is looked at without locks, and then locked one
 * by one until there are enough, so that nothing is locked that is not claimed.
 * The lock follows a row to its newest version and asks again, as it may have
 * changed since the snapshot.  OFFSET 0 keeps each ORDER BY, so that the two are
 * merged and not sorted together.
 */
static char *
claim_query(const Filter *filters)
{
	StringInfoData where;

	initStringInfo(&where);
	for (int i = 0; i < NFILTERS; i++)
		if (filters[i].given)
			appendStringInfo(&where, " AND t.%s = $%d", filters[i].column, 5 + i);
	return psprintf(
		"WITH picked AS MATERIALIZED ("
		"  SELECT l.task_id, c.was_pending FROM ("
		"    (SELECT t.task_id, t.created_at, true AS was_pending FROM udb.projection_tasks t"
		"    WHERE t.status = 'PENDING' AND t.created_at >= $3%s"
		"    ORDER BY t.created_at, t.task_id OFFSET 0)"
		"    UNION ALL"
		"    (SELECT t.task_id, t.created_at, false FROM udb.projection_tasks t"
		"    WHERE t.status = 'FAILED' AND t.next_retry_at <= $4 AND t.retry_count < $2%s"
		"    ORDER BY t.created_at, t.task_id OFFSET 0)"
		"    ORDER BY created_at, task_id) c,"
		"  LATERAL (SELECT t.task_id FROM udb.projection_tasks t WHERE t.task_id = c.task_id"
		"    AND (t.status = 'PENDING'"
		"      OR t.status = 'FAILED' AND t.next_retry_at <= $4 AND t.retry_count < $2)"
		"    FOR UPDATE OF t SKIP LOCKED) l"
		"  LIMIT $1),"
		" claimed AS ("
		"  UPDATE udb.projection_tasks t SET status = 'IN_PROGRESS',"
		"    claim_token = t.claim_token + 1, next_retry_at = NULL,"
		"    updated_at = pg_catalog.clock_timestamp()"
		"  FROM picked p WHERE t.task_id = p.task_id RETURNING t.*, p.was_pending)"
		" SELECT * FROM claimed ORDER BY created_at, task_id",
		where.data, where.data);
}

/*
 * The indexes are in the order that is asked for, so nothing is to be sorted but
 * the few that are to be tried again, and nothing scanned as a whole.  The
 * planner, which does not know the limit, would think otherwise of a big table.
 */
static void
plan_for_few(void)
{
	static const char *const settings[][2] = {{"plan_cache_mode", "force_generic_plan"},
											  {"enable_seqscan", "off"},
											  {"enable_bitmapscan", "off"},
											  {"enable_hashjoin", "off"},
											  {"enable_mergejoin", "off"},
											  {"enable_sort", "off"},
											  {"jit", "off"}};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* A hash of the filters, never 0. */
static uint64
filters_key(const Filter *filters)
{
	uint64		key = 1;

	for (int i = 0; i < NFILTERS; i++)
	{
		key = key * UINT64CONST(0x9E3779B97F4A7C15) + 1;
		if (filters[i].given)
			key = hash_bytes_extended(
				(unsigned char *) VARDATA_ANY(DatumGetPointer(filters[i].value)),
				VARSIZE_ANY_EXHDR(DatumGetPointer(filters[i].value)), key);
	}
	return key != 0 ? key : 1;
}

static void
claim(int batch, int max_retries, const Filter *filters, ReturnSetInfo *rsinfo)
{
	static SPIPlanPtr plans[1 << NFILTERS];
	Oid			types[4 + NFILTERS] = {INT8OID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[4 + NFILTERS];
	char		nulls[4 + NFILTERS];
	uint64		key = filters_key(filters);
	int			slot = udb_database_slot();
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz before = claimed;
	TimestampTz first = DT_NOEND;
	TimestampTz last = DT_NOBEGIN;
	TimestampTz from;
	uint64		seen;
	uint64		n;
	int			which = 0;
	UdbSpi		spi;

	from = read_mark(slot, key, now, &seen);
	/* what it has locked when it fails half-way */
	my_slot = slot;
	claimed = Min(claimed, from);
	UDB_DEBUG_POINT("projection-mark-read");
	memset(nulls, ' ', sizeof(nulls));
	values[0] = Int64GetDatum(batch);
	values[1] = Int32GetDatum(max_retries);
	values[2] = TimestampTzGetDatum(from);
	values[3] = TimestampTzGetDatum(now);
	for (int i = 0; i < NFILTERS; i++)
	{
		types[4 + i] = TEXTOID;
		values[4 + i] = filters[i].value;
		if (filters[i].given)
			which |= 1 << i;
		else
			nulls[4 + i] = 'n';
	}

	udb_spi_begin(&spi);
	plan_for_few();
	n = udb_spi_execute(&plans[which], plans[which] == NULL ? claim_query(filters) : "",
						4 + NFILTERS, types, values, nulls, SPI_OK_SELECT);
	for (uint64 i = 0; i < n; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		Datum	   *columns = palloc(sizeof(Datum) * desc->natts);
		bool	   *isnull = palloc(sizeof(bool) * desc->natts);
		TimestampTz created;

		heap_deform_tuple(row, desc, columns, isnull);
		created = DatumGetTimestampTz(columns[Anum_created_at - 1]);
		if (DatumGetBool(columns[desc->natts - 1]))
		{
			first = Min(first, created);
			last = Max(last, created);
		}
		/* but for the last column, they are those of the table */
		Assert(rsinfo->setDesc->natts == desc->natts - 1);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, columns, isnull);
		pfree(columns);
		pfree(isnull);
	}
	udb_spi_end(&spi);
	claimed = Min(before, first);
	UDB_DEBUG_POINT("projection-claimed");

	/* all that is older is taken, or will lower the mark */
	if (n < batch)
		last = now;
	if (!IsolationUsesXactSnapshot() && last != DT_NOBEGIN)
		raise_mark(slot, key, from, last, now, seen);
}

UDB_FUNCTION(udb_claim_projection_tasks);

/* claim_projection_tasks(batch_size, max_retries, ... filters, store) returns SETOF */
Datum
udb_claim_projection_tasks(PG_FUNCTION_ARGS)
{
	static const char *const columns[] = {"target_backend", "target_instance", "project_id"};
	Filter		filters[NFILTERS];

	udb_check_store(PG_ARGISNULL(5) ? NULL : PG_GETARG_TEXT_PP(5));
	for (int i = 0; i < 2; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not be null",
							i == 0 ? "batch_size" : "max_retries")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", "claim_projection_tasks()"),
				 errhint("Connect to the primary.")));
	PreventCommandIfReadOnly("claim_projection_tasks()");
	PreventCommandIfParallelMode("claim_projection_tasks()");
	for (int i = 0; i < NFILTERS; i++)
	{
		filters[i].column = columns[i];
		filters[i].given = !PG_ARGISNULL(2 + i);
		filters[i].value =
			filters[i].given ? PointerGetDatum(PG_GETARG_TEXT_PP(2 + i)) : (Datum) 0;
	}

	InitMaterializedSRF(fcinfo, 0);
	if (PG_GETARG_INT32(0) > 0)
		claim(PG_GETARG_INT32(0), PG_GETARG_INT32(1), filters,
			  (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}
