/*-------------------------------------------------------------------------
 *
 * registry.c
 *	  Writing registries: each change takes the next number of its registry.
 *
 * The number is in the registry's row, which stays locked until the
 * transaction ends.  So numbers are without gaps, are given out in the order of
 * the commits, and go back with a transaction that rolls back; and writers of
 * one registry stand in line.
 *
 * Whoever writes the tables past these functions, as a restore of a dump does,
 * is noticed by triggers.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "common/check.h"
#include "common/spi.h"
#include "reactor/inval.h"
#include "reactor/registry.h"
#include "reactor/table.h"
#include "reactor/wake.h"

/* a function of this file is writing the tables */
static bool writing = false;

/* The arguments that all have; also checks that it can run. */
static text *
registry_argument(FunctionCallInfo fcinfo, int store, const char *function)
{
	text	   *registry = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);

	udb_check_name("registry", registry, UDB_REGISTRY_NAME_MAX);
	udb_check_store(PG_ARGISNULL(store) ? NULL : PG_GETARG_TEXT_PP(store));
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	return registry;
}

static text *
key_argument(FunctionCallInfo fcinfo)
{
	text	   *key = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);

	udb_check_name("key", key, UDB_REGISTRY_KEY_MAX);
	return key;
}

static Datum
record_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"record\" must not be null")));
	return PG_GETARG_DATUM(2);
}

static int64
result_number(void)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* What is done to a registry, with its name and up to three more values. */
typedef int64 (*Change) (const text *registry, Datum *values);

/* Make a change, tell of it, and return its number, or 0 if there was nothing to change. */
static int64
change(const text *registry, Change how, Datum *values)
{
	UdbSpi		spi;
	int64		seq;

	/* what is needed after the commit must not fail there */
	udb_reactor_wake_prepare();
	values[0] = PointerGetDatum(registry);
	udb_spi_begin(&spi);
	writing = true;
	PG_TRY();
	{
		seq = how(registry, values);
	}
	PG_FINALLY();
	{
		writing = false;
	}
	PG_END_TRY();
	udb_spi_end(&spi);
	if (seq > 0)
	{
		udb_registry_changed();
		udb_reactor_touch(registry);
	}
	return seq;
}

/* Lock the registry, and return the number that a change would take. */
static int64
lock_registry(const text *registry, Datum *values)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID};

	if (udb_spi_execute(&plan, "SELECT watermark + 1 FROM udb.registries WHERE registry = $1 FOR NO KEY UPDATE",
						1, types, values, NULL, SPI_OK_SELECT) == 0)
		udb_registry_missing(registry);
	return result_number();
}

/* Take the next number. */
static int64
next_number(const text *registry, Datum *values)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID};

	if (udb_spi_execute(&plan,
						"UPDATE udb.registries SET watermark = watermark + 1 WHERE registry = $1"
						" RETURNING watermark",
						1, types, values, NULL, SPI_OK_UPDATE_RETURNING) == 0)
		udb_registry_missing(registry);
	return result_number();
}

static int64
put(const text *registry, Datum *values)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, JSONBOID, INT8OID};
	int64		seq = next_number(registry, values);

	values[3] = Int64GetDatum(seq);
	(void) udb_spi_execute(&plan,
						   "INSERT INTO udb.registry_records AS r (registry, key, record, seq)"
						   " VALUES ($1, $2, $3, $4) ON CONFLICT (registry, key) DO UPDATE"
						   " SET record = excluded.record, seq = excluded.seq,"
						   " updated_at = excluded.updated_at",
						   4, types, values, NULL, SPI_OK_INSERT);
	return seq;
}

static int64
update(const text *registry, Datum *values)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, JSONBOID, INT8OID};

	values[3] = Int64GetDatum(lock_registry(registry, values));
	if (udb_spi_execute(&plan,
						"UPDATE udb.registry_records SET record = $3, seq = $4,"
						" updated_at = clock_timestamp() WHERE registry = $1 AND key = $2",
						4, types, values, NULL, SPI_OK_UPDATE) == 0)
		return 0;
	return next_number(registry, values);
}

static int64
touch(const text *registry, Datum *values)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID, INT8OID};

	values[2] = Int64GetDatum(lock_registry(registry, values));
	if (udb_spi_execute(&plan,
						"UPDATE udb.registry_records SET seq = $3, updated_at = clock_timestamp()"
						" WHERE registry = $1 AND key = $2",
						3, types, values, NULL, SPI_OK_UPDATE) == 0)
		return 0;
	return next_number(registry, values);
}

static int64
take_out(const text *registry, Datum *values)
{
	static SPIPlanPtr delete_plan = NULL;
	static SPIPlanPtr number_plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTOID};

	(void) lock_registry(registry, values);
	if (udb_spi_execute(&delete_plan,
						"DELETE FROM udb.registry_records WHERE registry = $1 AND key = $2",
						2, types, values, NULL, SPI_OK_DELETE) == 0)
		return 0;
	(void) udb_spi_execute(&number_plan,
						   "UPDATE udb.registries SET watermark = watermark + 1,"
						   " last_removal = watermark + 1 WHERE registry = $1 RETURNING watermark",
						   1, types, values, NULL, SPI_OK_UPDATE_RETURNING);
	return result_number();
}

static int64
drop(const text *registry, Datum *values)
{
	static SPIPlanPtr registry_plan = NULL;
	static SPIPlanPtr consumer_plan = NULL;
	static SPIPlanPtr records_plan = NULL;
	static const Oid types[] = {TEXTOID};

	/* waits for who is just registering a consumer */
	if (udb_spi_execute(&registry_plan, "DELETE FROM udb.registries WHERE registry = $1", 1, types,
						values, NULL, SPI_OK_DELETE) == 0)
		udb_registry_missing(registry);
	if (udb_spi_execute(&consumer_plan,
						"SELECT FROM udb.registry_consumers WHERE registry = $1 LIMIT 1",
						1, types, values, NULL, SPI_OK_SELECT) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("registry \"%s\" still has consumers", text_to_cstring(registry)),
				 errhint("Drop them first with drop_registry_consumer().")));
	(void) udb_spi_execute(&records_plan, "DELETE FROM udb.registry_records WHERE registry = $1", 1,
						   types, values, NULL, SPI_OK_DELETE);
	return 1;
}

/* A number, or null if nothing was changed. */
#define RETURN_NUMBER(seq) \
	do \
	{ \
		int64 seq_ = (seq); \
\
		if (seq_ == 0) \
			PG_RETURN_NULL(); \
		PG_RETURN_INT64(seq_); \
	} while (0)

UDB_FUNCTION(udb_put_record);

/* put_record(registry, key, record, store) returns bigint */
Datum
udb_put_record(PG_FUNCTION_ARGS)
{
	text	   *registry = registry_argument(fcinfo, 3, "put_record()");
	Datum		values[4];

	values[1] = PointerGetDatum(key_argument(fcinfo));
	values[2] = record_argument(fcinfo);
	PG_RETURN_INT64(change(registry, put, values));
}

UDB_FUNCTION(udb_update_record);

/* update_record(registry, key, record, store) returns bigint or null */
Datum
udb_update_record(PG_FUNCTION_ARGS)
{
	text	   *registry = registry_argument(fcinfo, 3, "update_record()");
	Datum		values[4];

	values[1] = PointerGetDatum(key_argument(fcinfo));
	values[2] = record_argument(fcinfo);
	RETURN_NUMBER(change(registry, update, values));
}

UDB_FUNCTION(udb_remove_record);

/* remove_record(registry, key, store) returns bigint or null */
Datum
udb_remove_record(PG_FUNCTION_ARGS)
{
	text	   *registry = registry_argument(fcinfo, 2, "remove_record()");
	Datum		values[4];

	values[1] = PointerGetDatum(key_argument(fcinfo));
	RETURN_NUMBER(change(registry, take_out, values));
}

UDB_FUNCTION(udb_touch_record);

/* touch_record(registry, key, store) returns bigint or null */
Datum
udb_touch_record(PG_FUNCTION_ARGS)
{
	text	   *registry = registry_argument(fcinfo, 2, "touch_record()");
	Datum		values[4];

	values[1] = PointerGetDatum(key_argument(fcinfo));
	RETURN_NUMBER(change(registry, touch, values));
}

UDB_FUNCTION(udb_drop_registry);

/* drop_registry(registry, store) returns void */
Datum
udb_drop_registry(PG_FUNCTION_ARGS)
{
	text	   *registry = registry_argument(fcinfo, 1, "drop_registry()");
	Datum		values[4];

	(void) change(registry, drop, values);
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_registry_trigger);

/* _registry_trigger() returns trigger: after statements that write the tables */
Datum
udb_registry_trigger(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("_registry_trigger() was not called as a trigger")));
	if (!writing)
		udb_registry_reset();
	return PointerGetDatum(NULL);
}
