/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting for events without polling and without LISTEN.
 *
 * A waiting session sleeps on its latch until a commit, or an abort, moves the
 * horizon above what the session has seen (see horizon.c).  The function form
 * runs inside a query, whose snapshot it cannot drop; the procedure ends its
 * transaction first and waits with no snapshot at all.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "common/debugpoint.h"
#include "common/interval.h"
#include "outbox/consumer.h"
#include "outbox/feed.h"
#include "outbox/horizon.h"

/*
 * Whether the consumer has something to read, and up to which position that
 * was looked at.
 */
static bool
has_events(UdbOutbox *outbox, const char *name, uint64 *horizon)
{
	UdbConsumer consumer;
	Snapshot	snapshot;
	bool		result;

	*horizon = udb_horizon(outbox);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	udb_consumer_get(name, snapshot, &consumer);
	result = !consumer.paused &&
		udb_feed_consume(outbox, &consumer, *horizon, 1, snapshot, NULL) > 0;
	UnregisterSnapshot(snapshot);
	return result;
}

static bool
wait_for_events(const char *name, int64 usecs)
{
	TimestampTz deadline = GetCurrentTimestamp() + usecs;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "udb wait",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(context);
	bool		ready;

	for (;;)
	{
		/* each time, as the extension may be dropped and created again */
		UdbOutbox  *outbox = udb_feed_begin();
		uint32		wakes = pg_atomic_read_u32(&outbox->wakes);
		uint64		horizon;

		ready = has_events(outbox, name, &horizon);
		if (ready)
			break;
		UDB_DEBUG_POINT("nothing-to-read");
		if (!udb_horizon_wait(outbox, horizon, wakes, deadline))
			break;
		MemoryContextReset(context);
	}

	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);
	return ready;
}

static int64
timeout_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"timeout\" must not be null")));
	return udb_interval_usecs(PG_GETARG_INTERVAL_P(1), "timeout");
}

UDB_FUNCTION(udb_wait_for_events);

/* wait_for_events(consumer, timeout) returns boolean */
Datum
udb_wait_for_events(PG_FUNCTION_ARGS)
{
	char		name[NAMEDATALEN];

	udb_consumer_name(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), name);
	PG_RETURN_BOOL(wait_for_events(name, timeout_argument(fcinfo)));
}

UDB_FUNCTION(udb_await_events);

/* CALL await_events(consumer, timeout, INOUT ready) */
Datum
udb_await_events(PG_FUNCTION_ARGS)
{
	char		name[NAMEDATALEN];
	int64		usecs;
	TupleDesc	desc;
	Datum		values[1];
	bool		nulls[1] = {false};

	udb_consumer_name(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), name);
	usecs = timeout_argument(fcinfo);

	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("await_events() cannot run inside a transaction block or a function"),
				 errhint("For short waits use wait_for_events().")));

	/* now, as the procedure may be dropped during the wait */
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);

	/*
	 * Ends the transaction, and with it the snapshot that CALL holds.  What
	 * waits below is in a new transaction that has taken none.
	 */
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	SPI_commit();
	values[0] = BoolGetDatum(wait_for_events(name, usecs));
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
