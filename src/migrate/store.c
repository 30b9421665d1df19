/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The tables of migrations, read and written as their owner.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/errors.h"
#include "common/spi.h"
#include "migrate/migrate.h"

/* A column of the first row, palloc'd in "context", or NULL. */
static char *
column(int n, MemoryContext context)
{
	char	   *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, n);

	return value != NULL ? MemoryContextStrdup(context, value) : NULL;
}

void
udb_migration_check(const char *component)
{
	static SPIPlanPtr known_plan = NULL;
	static SPIPlanPtr changed_plan = NULL;
	static const Oid types[] = {TEXTOID};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[1] = {CStringGetTextDatum(component)};
	char	   *version = NULL;
	char	   *name = NULL;
	bool		known;
	UdbSpi		spi;

	PushActiveSnapshot(GetTransactionSnapshot());
	udb_spi_begin(&spi);
	known = udb_spi_execute(&known_plan,
							"SELECT FROM udb.migration_steps WHERE component = $1"
							" UNION ALL SELECT FROM udb.schema_stamps WHERE component = $1",
							1, types, values, NULL, SPI_OK_SELECT) > 0;
	if (udb_spi_execute(&changed_plan,
						"SELECT version, name FROM udb._migrations_changed WHERE component = $1"
						" ORDER BY version",
						1, types, values, NULL, SPI_OK_SELECT) > 0)
	{
		version = column(1, context);
		name = column(2, context);
	}
	udb_spi_end(&spi);
	PopActiveSnapshot();

	if (!known)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("component \"%s\" has no migration steps", component)));
	if (version != NULL)
		ereport(ERROR,
				(errcode(udb_errcode(MIGRATION_CHANGED)),
				 errmsg("step %s \"%s\" of component \"%s\" has been applied with other SQL",
						version, name, component),
				 errhint("Register what changes as a new version.")));
}

bool
udb_migration_next(const char *component, bool has_target, int32 target, UdbMigration *step)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, INT4OID};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[2];
	UdbSpi		spi;
	bool		found;

	values[0] = CStringGetTextDatum(component);
	values[1] = Int32GetDatum(target);

	/* what is read may be toasted, and is copied under this snapshot */
	PushActiveSnapshot(GetTransactionSnapshot());
	udb_spi_begin(&spi);
	found = udb_spi_execute(&plan,
							"SELECT version, name, sql, verify_sql, transactional"
							" FROM udb.migration_steps s"
							" WHERE component = $1 AND ($2 IS NULL OR version <= $2) AND version >"
							" coalesce((SELECT version FROM udb.schema_stamps WHERE component = $1), 0)"
							" ORDER BY version LIMIT 1",
							2, types, values, has_target ? "  " : " n", SPI_OK_SELECT) > 0;
	if (found)
	{
		step->component = MemoryContextStrdup(context, component);
		step->version = pg_strtoint32(column(1, context));
		step->name = column(2, context);
		step->sql = column(3, context);
		step->verify_sql = column(4, context);
		step->transactional = column(5, context)[0] == 't';
	}
	udb_spi_end(&spi);
	PopActiveSnapshot();
	return found;
}

void
udb_migration_stamp(const UdbMigration *step, bool healed, int64 usecs, const char *role)
{
	static SPIPlanPtr stamp_plan = NULL;
	static SPIPlanPtr history_plan = NULL;
	static const Oid types[] = {TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, INTERVALOID, TEXTOID};
	Datum		values[7];
	Interval	duration = {.time = usecs};
	UdbSpi		spi;

	values[0] = CStringGetTextDatum(step->component);
	values[1] = Int32GetDatum(step->version);
	values[2] = CStringGetTextDatum(step->name);
	values[3] = CStringGetTextDatum(healed ? "healed" : "applied");
	values[4] = CStringGetTextDatum(step->sql);
	values[5] = IntervalPGetDatum(&duration);
	values[6] = CStringGetTextDatum(role);
	udb_spi_begin(&spi);
	(void) udb_spi_execute(&stamp_plan,
						   "INSERT INTO udb.schema_stamps (component, version) VALUES ($1, $2)"
						   " ON CONFLICT (component) DO UPDATE"
						   " SET version = excluded.version, stamped_at = excluded.stamped_at",
						   2, types, values, NULL, SPI_OK_INSERT);
	(void) udb_spi_execute(&history_plan,
						   "INSERT INTO udb.migration_history"
						   " (component, version, name, outcome, checksum, duration, applied_by)"
						   " VALUES ($1, $2, $3, $4, udb._migration_checksum($5), $6, $7)",
						   7, types, values, NULL, SPI_OK_INSERT);
	udb_spi_end(&spi);
}
