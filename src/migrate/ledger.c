/*-------------------------------------------------------------------------
 *
 * ledger.c
 *	  What CALL migrate() writes into the migration ledger.
 *
 * It goes through the functions that everybody uses, as their owner.  Which runs
 * are those of migrate(), of which component, and have not finished, is in
 * udb._migration_calls besides: only these may be ended by another session.
 *
 * Locking: the session of a run holds its lock from before the run is committed
 * until after its end is.  Whoever gets the lock, and then still finds the run's
 * row, knows that the session has gone, or could not record the end.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "common/locktag.h"
#include "common/spi.h"
#include "migrate/migrate.h"

#define LEDGER_BACKEND "postgres"

static LOCKTAG
run_locktag(const pg_uuid_t *run_id)
{
	return udb_locktag(UDB_LOCK_RUN,
					   hash_bytes_extended(run_id->data, UUID_LEN, 0));
}

void
udb_ledger_lock(const pg_uuid_t *run_id)
{
	LOCKTAG		tag = run_locktag(run_id);

	(void) LockAcquire(&tag, ExclusiveLock, true, false);
}

void
udb_ledger_unlock(const pg_uuid_t *run_id)
{
	LOCKTAG		tag = run_locktag(run_id);

	(void) LockRelease(&tag, ExclusiveLock, true);
}

void
udb_ledger_begin(const char *component, bool has_target, int32 target, pg_uuid_t *run_id)
{
	static SPIPlanPtr run_plan = NULL;
	static SPIPlanPtr call_plan = NULL;
	static const Oid run_types[] = {TEXTOID, INT4OID};
	static const Oid call_types[] = {TEXTOID, UUIDOID};
	Datum		values[2];
	UdbSpi		spi;
	bool		isnull;

	values[0] = CStringGetTextDatum(component);
	values[1] = Int32GetDatum(target);
	PushActiveSnapshot(GetTransactionSnapshot());
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&run_plan,
						   "SELECT udb.start_migration_run($1, max(version)::text, 'APPLYING',"
						   " encode(sha256(convert_to(string_agg(version || ' ' ||"
						   " udb._migration_checksum(sql), E'\\n' ORDER BY version), 'UTF8')), 'hex'))"
						   " FROM udb.migration_steps"
						   " WHERE component = $1 AND ($2 IS NULL OR version <= $2)"
						   " AND version > udb.schema_stamp($1)",
						   2, run_types, values, has_target ? "  " : " n", SPI_OK_SELECT);
	*run_id = *DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
										   &isnull));
	values[1] = UUIDPGetDatum(run_id);
	(void) udb_spi_execute(&call_plan,
						   "INSERT INTO udb._migration_calls (component, run_id) VALUES ($1, $2)",
						   2, call_types, values, NULL, SPI_OK_INSERT);
	udb_spi_end(&spi);
	PopActiveSnapshot();
}

void
udb_ledger_record(const pg_uuid_t *run_id, int32 index, const UdbMigration *step,
				  const char *status, const char *error)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {UUIDOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID};
	Datum		values[7];
	UdbSpi		spi;

	values[0] = UUIDPGetDatum(run_id);
	values[1] = Int32GetDatum(index);
	values[2] = CStringGetTextDatum(LEDGER_BACKEND);
	values[3] = CStringGetTextDatum(psprintf("%s/%d", step->component, step->version));
	values[4] = CStringGetTextDatum(step->transactional ? "migrate_step" : "migrate_step_alone");
	values[5] = CStringGetTextDatum(status);
	values[6] = error != NULL ? CStringGetTextDatum(error) : (Datum) 0;
	PushActiveSnapshot(GetTransactionSnapshot());
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan,
						   "SELECT udb.record_migration_op($1, $2, $3, $4, $5, $6, NULL, $7)",
						   7, types, values, error != NULL ? NULL : "      n", SPI_OK_SELECT);
	udb_spi_end(&spi);
	PopActiveSnapshot();
}

void
udb_ledger_finish(const pg_uuid_t *run_id, const char *state, const char *error)
{
	static SPIPlanPtr finish_plan = NULL;
	static SPIPlanPtr call_plan = NULL;
	static const Oid types[] = {UUIDOID, TEXTOID, TEXTOID};
	Datum		values[3];
	UdbSpi		spi;

	values[0] = UUIDPGetDatum(run_id);
	values[1] = CStringGetTextDatum(state);
	values[2] = error != NULL ? CStringGetTextDatum(error) : (Datum) 0;
	PushActiveSnapshot(GetTransactionSnapshot());
	udb_spi_begin(&spi);
	if (udb_spi_execute(&call_plan, "DELETE FROM udb._migration_calls WHERE run_id = $1",
						1, types, values, NULL, SPI_OK_DELETE) > 0)
		(void) udb_spi_execute(&finish_plan, "SELECT udb.finish_migration_run($1, $2, $3)",
							   3, types, values, error != NULL ? NULL : "  n", SPI_OK_SELECT);
	udb_spi_end(&spi);
	PopActiveSnapshot();
}

/* The runs of a component that have not finished, palloc'd. */
static pg_uuid_t *
unfinished_runs(const char *component, uint64 *nruns)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[1] = {CStringGetTextDatum(component)};
	pg_uuid_t  *runs;
	UdbSpi		spi;

	PushActiveSnapshot(GetTransactionSnapshot());
	udb_spi_begin(&spi);
	*nruns = udb_spi_execute(&plan,
							 "SELECT run_id FROM udb._migration_calls WHERE component = $1",
							 1, types, values, NULL, SPI_OK_SELECT);
	runs = MemoryContextAlloc(context, sizeof(pg_uuid_t) * (*nruns + 1));
	for (uint64 i = 0; i < *nruns; i++)
	{
		bool		isnull;

		runs[i] = *DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1,
											   &isnull));
	}
	udb_spi_end(&spi);
	PopActiveSnapshot();
	return runs;
}

void
udb_ledger_finish_lost(const char *component)
{
	uint64		nruns;
	pg_uuid_t  *runs = unfinished_runs(component, &nruns);

	for (uint64 i = 0; i < nruns; i++)
	{
		LOCKTAG		tag = run_locktag(&runs[i]);

		if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
			continue;

		/* looks for the row again, now that nobody else can end the run */
		udb_ledger_finish(&runs[i], "ERROR", "the run was cut off before it could record its end");
	}
}
