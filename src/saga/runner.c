/*-------------------------------------------------------------------------
 *
 * runner.c
 *	  When the worker looks after sagas.
 *
 * The work is done in SQL, by udb.sweep_sagas().  It is due when somebody has
 * asked for the compensation of a saga, which he tells through a flag in
 * shared memory after his commit.  While some are under way the worker looks
 * whether their jobs are done: soon after something has moved, then less and
 * less often, down to the interval of the sweep.
 *
 * A lost flag, as of a transaction that was prepared, costs one interval.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "common/database.h"
#include "common/guc.h"
#include "common/shmem.h"
#include "common/spi.h"
#include "saga/runner.h"

/* how soon the worker looks again after something has moved */
#define MIN_PAUSE_MS 50

/* For each database, whether somebody wants the worker to look. */
static pg_atomic_uint32 *wanted = NULL;

/* This transaction wants it, for this slot; -1 if not. */
static int	wake_slot = -1;

/* In the worker: when to look again, and how long the pause before is. */
static TimestampTz look_at = DT_NOEND;
static int	pause_ms = MIN_PAUSE_MS;

static Size
saga_size(void)
{
	return mul_size(sizeof(pg_atomic_uint32), udb_max_databases);
}

static void
saga_shmem_init(void *area)
{
	for (int i = 0; i < udb_max_databases; i++)
		pg_atomic_init_u32((pg_atomic_uint32 *) area + i, 0);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (wake_slot >= 0)
			{
				pg_atomic_write_u32(&wanted[wake_slot], 1);
				udb_database_wake_worker(wake_slot);
			}
			wake_slot = -1;
			break;
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			wake_slot = -1;
			break;
		default:
			break;
	}
}

void
udb_saga_init(void)
{
	static const UdbShmemArea desc = {
		.name = "udb sagas",
		.size = saga_size,
		.init = saga_shmem_init,
		.pointer = (void **) &wanted};

	udb_shmem_register(&desc);
	RegisterXactCallback(xact_callback, NULL);
}

UDB_FUNCTION(udb_wake_sagas);

/* _wake_sagas() returns void */
Datum
udb_wake_sagas(PG_FUNCTION_ARGS)
{
	wake_slot = udb_database_slot();
	PG_RETURN_VOID();
}

int64
udb_sagas_run(void)
{
	static SPIPlanPtr plan = NULL;
	UdbSpi		spi;
	int64		changed;
	bool		asked;
	bool		active;
	bool		isnull;

	/* a full barrier: who asks from now on may not be seen below */
	asked = pg_atomic_exchange_u32(&wanted[udb_database_slot()], 0) != 0;

	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan,
						   "SELECT udb.sweep_sagas(),"
						   " EXISTS (SELECT FROM udb.sagas WHERE runner = 'active')",
						   0, NULL, NULL, NULL, SPI_OK_SELECT);
	changed =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	active = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	udb_spi_end(&spi);

	pause_ms = Min(pause_ms * 2, udb_worker_interval * 1000);
	if (asked || changed != 0)
		pause_ms = MIN_PAUSE_MS;
	look_at = active ? TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause_ms) : DT_NOEND;
	return changed;
}

TimestampTz
udb_sagas_due(void)
{
	return pg_atomic_read_u32(&wanted[udb_database_slot()]) != 0 ? 0 : look_at;
}
