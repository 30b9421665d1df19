/*-------------------------------------------------------------------------
 *
 * manage.c
 *	  Consumers: create, drop, seek, pause, resume, and move by checkpoint.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "common/errors.h"
#include "common/spi.h"
#include "outbox/consumer.h"
#include "outbox/feed.h"
#include "outbox/horizon.h"
#include "outbox/state.h"
#include "outbox/topics.h"
#include "outbox/xact.h"

static void
consumer_argument(FunctionCallInfo fcinfo, char *name)
{
	udb_consumer_name(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), name);
}

/* A position given by the caller: within what is retained and stable. */
static uint64
check_target(UdbOutbox *outbox, int64 position, Snapshot snapshot)
{
	uint64		horizon = udb_horizon_durable(outbox);

	if (position < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("position must not be negative")));
	udb_feed_check_position(outbox, (uint64) position, snapshot, NULL);
	if ((uint64) position > horizon)
		ereport(ERROR,
				(errcode(udb_errcode(POSITION_NOT_STABLE)),
				 errmsg("position " INT64_FORMAT " is above the stable horizon " UINT64_FORMAT,
						position, horizon),
				 errhint("udb.horizon_holder() shows which transactions hold it.")));
	return (uint64) position;
}

/* earliest, latest or a number */
static uint64
parse_start(UdbOutbox *outbox, const char *start, Snapshot snapshot)
{
	char	   *end;
	int64		position;

	if (strcmp(start, "earliest") == 0)
		return udb_feed_dropped_through(snapshot);
	if (strcmp(start, "latest") == 0)
		return udb_horizon_durable(outbox);

	errno = 0;
	position = strtoi64(start, &end, 10);
	if (end == start || *end != '\0' || errno != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid start position \"%s\"", start),
				 errhint("Use \"earliest\", \"latest\" or the number of a position.")));
	return check_target(outbox, position, snapshot);
}

UDB_FUNCTION(udb_create_consumer);

/* create_consumer(name, topics, start_at) returns bigint: where it starts */
Datum
udb_create_consumer(PG_FUNCTION_ARGS)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, TEXTARRAYOID, INT8OID};
	char		name[NAMEDATALEN];
	Datum		values[3];
	Snapshot	snapshot;
	UdbOutbox  *outbox;
	UdbSpi		spi;
	uint64		position;
	uint64		created;

	consumer_argument(fcinfo, name);
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"start_at\" must not be null")));
	if (!PG_ARGISNULL(1))
		(void) udb_topics(PG_GETARG_ARRAYTYPE_P(1));
	PreventCommandIfReadOnly("create_consumer()");
	outbox = udb_feed_outbox();
	udb_consumer_lock_retention();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	position = parse_start(outbox, text_to_cstring(PG_GETARG_TEXT_PP(2)), snapshot);
	UnregisterSnapshot(snapshot);

	values[0] = CStringGetTextDatum(name);
	values[1] = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	values[2] = Int64GetDatum((int64) position);
	udb_spi_begin(&spi);
	created = udb_spi_execute(&plan,
							  "INSERT INTO udb.consumers (name, topics, position) VALUES ($1, $2, $3)"
							  " ON CONFLICT DO NOTHING",
							  3, types, values, PG_ARGISNULL(1) ? " n " : NULL, SPI_OK_INSERT);
	udb_spi_end(&spi);
	if (created == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("consumer \"%s\" already exists", name)));
	PG_RETURN_INT64((int64) position);
}

/* Throw undefined_object if an UPDATE or DELETE of this consumer found none. */
static void
check_found(uint64 rows, const char *name)
{
	if (rows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("consumer \"%s\" does not exist", name)));
}

UDB_FUNCTION(udb_drop_consumer);

/* drop_consumer(name) returns void; its parked events go with it */
Datum
udb_drop_consumer(PG_FUNCTION_ARGS)
{
	static SPIPlanPtr plan = NULL;
	static SPIPlanPtr dead_plan = NULL;
	static const Oid types[] = {TEXTOID};
	char		name[NAMEDATALEN];
	Datum		values[1];
	UdbSpi		spi;

	consumer_argument(fcinfo, name);
	PreventCommandIfReadOnly("drop_consumer()");
	values[0] = CStringGetTextDatum(name);
	udb_spi_begin(&spi);
	check_found(udb_spi_execute(&plan, "DELETE FROM udb.consumers WHERE name = $1",
								1, types, values, NULL, SPI_OK_DELETE),
				name);
	/* in this order, as who parks an event locks the consumer's row first */
	(void) udb_spi_execute(&dead_plan, "DELETE FROM udb.dead_events WHERE consumer = $1",
						   1, types, values, NULL, SPI_OK_DELETE);
	udb_spi_end(&spi);
	udb_outbox_wake_all_at_commit(udb_outbox());	/* who waits for it has to know */
	PG_RETURN_VOID();
}

/* Set a cursor to wherever the caller likes. */
static uint64
seek(const char *name, bool by_text, Datum target)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, INT8OID};
	Datum		values[2];
	Snapshot	snapshot;
	UdbOutbox  *outbox;
	UdbSpi		spi;
	uint64		position;

	PreventCommandIfReadOnly("seek_consumer()");
	outbox = udb_feed_outbox();
	udb_consumer_lock_retention();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	position = by_text ? parse_start(outbox, TextDatumGetCString(target), snapshot) :
						 check_target(outbox, DatumGetInt64(target), snapshot);
	UnregisterSnapshot(snapshot);

	values[0] = CStringGetTextDatum(name);
	values[1] = Int64GetDatum((int64) position);
	udb_spi_begin(&spi);
	check_found(udb_spi_execute(&plan,
								"UPDATE udb.consumers SET position = $2 WHERE name = $1",
								2, types, values, NULL, SPI_OK_UPDATE),
				name);
	udb_spi_end(&spi);
	udb_outbox_wake_all_at_commit(outbox);
	return position;
}

UDB_FUNCTION(udb_seek_consumer);

/* seek_consumer(name, position bigint or text) returns bigint */
Datum
udb_seek_consumer(PG_FUNCTION_ARGS)
{
	char		name[NAMEDATALEN];

	consumer_argument(fcinfo, name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"position\" must not be null")));
	PG_RETURN_INT64((int64) seek(name, get_fn_expr_argtype(fcinfo->flinfo, 1) == TEXTOID,
								 PG_GETARG_DATUM(1)));
}

static void
set_paused(FunctionCallInfo fcinfo, const char *function, bool paused)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {TEXTOID, BOOLOID};
	char		name[NAMEDATALEN];
	Datum		values[2];
	UdbSpi		spi;

	consumer_argument(fcinfo, name);
	PreventCommandIfReadOnly(function);
	values[0] = CStringGetTextDatum(name);
	values[1] = BoolGetDatum(paused);
	udb_spi_begin(&spi);
	check_found(udb_spi_execute(&plan, "UPDATE udb.consumers SET paused = $2 WHERE name = $1",
								2, types, values, NULL, SPI_OK_UPDATE),
				name);
	udb_spi_end(&spi);
	udb_outbox_wake_all_at_commit(udb_outbox());
}

UDB_FUNCTION(udb_pause_consumer);

/* pause_consumer(name) returns void */
Datum
udb_pause_consumer(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, "pause_consumer()", true);
	PG_RETURN_VOID();
}

UDB_FUNCTION(udb_resume_consumer);

/* resume_consumer(name) returns void */
Datum
udb_resume_consumer(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, "resume_consumer()", false);
	PG_RETURN_VOID();
}

/*
 * Move the cursor of a consumer forward, at the remembered place of its row or,
 * if somebody else has moved it meanwhile, by name.  Returns where it is then.
 */
static uint64
move_forward(UdbConsumer *consumer, uint64 position)
{
	static SPIPlanPtr at_plan = NULL;
	static SPIPlanPtr name_plan = NULL;
	static const Oid types[] = {TEXTOID, INT8OID, TIDOID};
	Datum		values[3];
	UdbSpi		spi;
	bool		isnull;

	values[0] = CStringGetTextDatum(consumer->name);
	values[1] = Int64GetDatum((int64) position);
	values[2] = PointerGetDatum(&consumer->tid);

	udb_spi_begin(&spi);
	if (udb_spi_execute(&at_plan,
						"UPDATE udb.consumers SET position = $2, last_checkpoint = clock_timestamp()"
						" WHERE ctid = $3 AND name = $1 AND position < $2"
						" RETURNING ctid, position",
						3, types, values, NULL, SPI_OK_UPDATE_RETURNING) > 0 ||
		udb_spi_execute(&name_plan,
						"UPDATE udb.consumers SET position = greatest(position, $2),"
						" last_checkpoint = clock_timestamp()"
						" WHERE name = $1 RETURNING ctid, position",
						2, types, values, NULL, SPI_OK_UPDATE_RETURNING) > 0)
	{
		ItemPointer tid = (ItemPointer)
			DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, 1, &isnull));

		position = (uint64) DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
														SPI_tuptable->tupdesc, 2, &isnull));
		udb_consumer_moved(consumer, tid, position);
	}
	else
		check_found(0, consumer->name);
	udb_spi_end(&spi);
	return position;
}

UDB_FUNCTION(udb_checkpoint);

/* checkpoint(consumer, event_seq) returns bigint: the stored position */
Datum
udb_checkpoint(PG_FUNCTION_ARGS)
{
	char		name[NAMEDATALEN];
	int64		position;
	uint64		horizon;
	UdbConsumer consumer;
	UdbOutbox  *outbox;
	Snapshot	snapshot;

	consumer_argument(fcinfo, name);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"event_seq\" must not be null")));
	position = PG_GETARG_INT64(1);
	outbox = udb_feed_outbox();
	PreventCommandIfReadOnly("checkpoint()");

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	udb_consumer_get(name, snapshot, &consumer);
	UnregisterSnapshot(snapshot);
	if (position <= (int64) consumer.position)
		PG_RETURN_INT64((int64) consumer.position);

	horizon = udb_horizon_durable(outbox);
	if ((uint64) position > horizon)
		ereport(ERROR,
				(errcode(udb_errcode(POSITION_NOT_STABLE)),
				 errmsg("position " INT64_FORMAT " is above the stable horizon " UINT64_FORMAT,
						position, horizon),
				 errdetail("Consumer \"%s\" stays at position " UINT64_FORMAT ".", name, consumer.position)));
	PG_RETURN_INT64((int64) move_forward(&consumer, (uint64) position));
}
