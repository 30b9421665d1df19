/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  Jobs that are sent at certain times.
 *
 * The worker knows the next firing of its database and sleeps until then.  Who
 * changes a schedule adds to a counter in shared memory when the transaction
 * commits, and wakes the worker, which looks again if the counter is not what it
 * was before it looked last.  COMMIT PREPARED does not tell; what it brings is
 * noticed by the worker's own timer.
 *
 * Durability: a firing is one transaction, which sends the job and moves the
 * schedule on.  It is flushed even where the worker's other work is not: a job
 * that a crash takes back might have been done by then, and would be sent again.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "common/database.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/shmem.h"
#include "common/spi.h"
#include "queue/cron.h"
#include "queue/schedule.h"

/* when the worker looks again for a schedule that somebody has locked */
#define LOCKED_AGAIN_MS 1000

/* how often schedules were changed, for each database */
static pg_atomic_uint64 *changes = NULL;

/* of the database whose schedules this transaction has changed, or -1 */
static int	changed_slot = -1;

/* what the worker knows, and what it will if its transaction commits */
typedef struct Knowledge
{
	int			slot;			/* -1: it has not looked yet */
	uint64		changes;
	TimestampTz next;			/* DT_NOEND if there is none */
} Knowledge;

static Knowledge known = {.slot = -1};
static Knowledge found = {.slot = -1};

static Size
schedule_size(void)
{
	return mul_size(sizeof(pg_atomic_uint64), udb_max_databases);
}

static void
schedule_area_init(void *ptr)
{
	pg_atomic_uint64 *counters = ptr;

	for (int i = 0; i < udb_max_databases; i++)
		pg_atomic_init_u64(&counters[i], 0);
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (likely(changed_slot < 0))
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			pg_atomic_fetch_add_u64(&changes[changed_slot], 1);
			udb_database_wake_worker(changed_slot);
			changed_slot = -1;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			changed_slot = -1;
			break;
		default:
			break;
	}
}

void
udb_schedule_init(void)
{
	static const UdbShmemArea desc = {.name = "udb schedules",
									  .size = schedule_size,
									  .init = schedule_area_init,
									  .pointer = (void **) &changes};

	udb_shmem_register(&desc);
	RegisterXactCallback(xact_callback, NULL);
}

TimestampTz
udb_schedules_due(void)
{
	if (known.slot < 0 || pg_atomic_read_u64(&changes[known.slot]) != known.changes)
		return 0;
	return known.next;
}

int64
udb_schedules_run(void)
{
	static SPIPlanPtr sweep_plan = NULL;
	static SPIPlanPtr next_plan = NULL;
	static const Oid types[] = {TIMESTAMPTZOID};
	UdbSpi		spi;
	int64		changed;
	bool		isnull;
	Datum		now;
	Datum		next;

	found.slot = udb_database_slot();
	/* before the snapshots below, so that no change falls in between */
	found.changes = pg_atomic_read_u64(&changes[found.slot]);
	pg_memory_barrier();

	udb_spi_begin(&spi);
	(void) udb_spi_execute(&sweep_plan, "SELECT udb.sweep_schedules()", 0, NULL, NULL, NULL,
						   SPI_OK_SELECT);
	changed =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));

	/* what is due already, and has not been fired, is locked */
	now = TimestampTzGetDatum(GetCurrentTimestamp());
	(void) udb_spi_execute(&next_plan,
						   "SELECT min(CASE WHEN t.due > $1 THEN t.due ELSE $1 END) FROM"
						   " (SELECT greatest(next_run_at, retry_at) AS due FROM udb.schedules) t",
						   1, types, &now, NULL, SPI_OK_SELECT);
	next = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	found.next = isnull ? DT_NOEND : DatumGetTimestampTz(next);
	if (!isnull && next == now)
		found.next = TimestampTzPlusMilliseconds(found.next, LOCKED_AGAIN_MS);
	udb_spi_end(&spi);
	return changed;
}

void
udb_schedules_committed(void)
{
	known = found;
}

/* ---- SQL ---- */

static void
check_not_null(FunctionCallInfo fcinfo, int n, const char *argument)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", argument)));
}

UDB_FUNCTION(udb_next_firing);

/* next_firing(spec, time_zone, after, anchor) returns timestamptz; without an anchor it is "after" */
Datum
udb_next_firing(PG_FUNCTION_ARGS)
{
	UdbCron		cron;
	pg_tz	   *tz;
	TimestampTz after;
	TimestampTz anchor;

	check_not_null(fcinfo, 0, "spec");
	check_not_null(fcinfo, 1, "time_zone");
	check_not_null(fcinfo, 2, "after");
	after = PG_GETARG_TIMESTAMPTZ(2);
	anchor = PG_NARGS() > 3 ? PG_GETARG_TIMESTAMPTZ(3) : after;
	udb_cron_parse(text_to_cstring(PG_GETARG_TEXT_PP(0)), &cron);
	tz = udb_cron_time_zone(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	UDB_DEBUG_POINT("next-firing");
	PG_RETURN_TIMESTAMPTZ(udb_cron_next(&cron, tz, after, anchor));
}

UDB_FUNCTION(udb_schedule_time_zone);

/* _schedule_time_zone(name) returns text: as the time zone database writes it */
Datum
udb_schedule_time_zone(PG_FUNCTION_ARGS)
{
	check_not_null(fcinfo, 0, "time_zone");
	PG_RETURN_TEXT_P(cstring_to_text(pg_get_timezone_name(
		udb_cron_time_zone(text_to_cstring(PG_GETARG_TEXT_PP(0))))));
}

UDB_FUNCTION(udb_schedules_changed);

/* _schedules_changed() returns void: tell the worker when this transaction commits */
Datum
udb_schedules_changed(PG_FUNCTION_ARGS)
{
	changed_slot = udb_database_slot();
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_flush_at_commit);

/*
 * _flush_at_commit() returns void.  The setting would not do: the worker has it
 * from a source that a SET does not override.
 */
Datum
udb_flush_at_commit(PG_FUNCTION_ARGS)
{
	ForceSyncCommit();
	PG_RETURN_VOID();
}
