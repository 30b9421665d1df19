/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Walking the audit log from its first row, looking for the first one that
 *	  is not as it was written.
 *
 * All is read with one snapshot, which is a new one whatever the isolation
 * level: rows that the transaction has appended itself link to rows that an
 * older one does not show.
 *
 * Rows come by a cursor, some at a time, and go before the next ones come;
 * values that are stored out of line are only read when it is their turn.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "audit/audit.h"
#include "common/check.h"
#include "common/spi.h"

/* columns of the query that come after the log's; all null where the witness has no such row */
#define Anum_query_audit_id (Natts_audit + 1)
#define Anum_query_created_at (Natts_audit + 2)
#define Anum_query_hash (Natts_audit + 3)
#define Natts_query (Natts_audit + 3)

/* columns of the result */
#define Anum_outcome 1
#define Anum_checked_count 2
#define Anum_last_hash 3
#define Anum_first_broken_audit_id 4
#define Anum_reason 5
#define Anum_expected_hash 6
#define Anum_actual_hash 7
#define Natts_result 7

/* rows at a time: of at most a page each */
#define BATCH 256

/* The witness comes by a join that needs neither memory nor a sort. */
static const char walk_sql[] =
	"SELECT l.audit_id, l.actor, l.operation, l.target, l.request_json, l.result, l.tenant_id,"
	" l.project_id, l.correlation_id, l.previous_hash, l.current_hash, l.signer_key_id,"
	" l.external_anchor, l.created_at, l.chain_position, w.audit_id, w.created_at, w.current_hash"
	" FROM udb.admin_audit_log l"
	" LEFT JOIN udb.admin_audit_witness w ON w.chain_position = l.chain_position"
	" ORDER BY l.chain_position";

static const char rest_sql[] =
	"SELECT audit_id, current_hash FROM udb.admin_audit_witness WHERE chain_position > $1"
	" ORDER BY chain_position LIMIT 1";

typedef struct Walk
{
	MemoryContext context;		/* of the caller, for what is returned */
	int64		limit;			/* rows to check at most */
	int64		checked;		/* rows that are good */
	char		last_hash[UDB_DIGEST_HEX + 1];	/* of the last of them */

	/* the first that is not, if reason is not NULL */
	const char *reason;
	pg_uuid_t	audit_id;
	bool		audit_id_null;
	const char *expected;		/* either may be NULL */
	const char *actual;
} Walk;

static char *
text_column(const Datum *values, const bool *nulls, int column)
{
	return nulls[column - 1] ? NULL : TextDatumGetCString(values[column - 1]);
}

static void
broken(Walk *w, const char *reason, Datum audit_id, bool id_null, const char *expected,
	   const char *actual)
{
	w->reason = reason;
	w->audit_id_null = id_null;
	if (!id_null)
		w->audit_id = *DatumGetUUIDP(audit_id);
	w->expected = expected != NULL ? MemoryContextStrdup(w->context, expected) : NULL;
	w->actual = actual != NULL ? MemoryContextStrdup(w->context, actual) : NULL;
}

/*
 * Whether the witness has seen this row as it is.  Columns are not taken to be
 * not null: who has changed rows may have dropped constraints as well.
 */
static bool
witnessed(Walk *w, const Datum *values, const bool *nulls, const char *current, const char *seen)
{
	if (nulls[Anum_chain_position - 1] || nulls[Anum_audit_id - 1] || nulls[Anum_created_at - 1] ||
		nulls[Anum_query_audit_id - 1] || nulls[Anum_query_created_at - 1])
		return false;
	return DatumGetInt64(values[Anum_chain_position - 1]) == w->checked + 1 && seen != NULL &&
		strcmp(seen, current) == 0 &&
		memcmp(DatumGetUUIDP(values[Anum_audit_id - 1])->data,
			   DatumGetUUIDP(values[Anum_query_audit_id - 1])->data, UUID_LEN) == 0 &&
		DatumGetTimestampTz(values[Anum_created_at - 1]) ==
		DatumGetTimestampTz(values[Anum_query_created_at - 1]);
}

/* Check the next row, in a memory context of its own. */
static void
check_row(Walk *w, UdbDigest *digest, const Datum *values, const bool *nulls)
{
	Datum		audit_id = values[Anum_audit_id - 1];
	bool		id_null = nulls[Anum_audit_id - 1];
	char	   *previous = text_column(values, nulls, Anum_previous_hash);
	char	   *current = text_column(values, nulls, Anum_current_hash);
	char	   *seen = text_column(values, nulls, Anum_query_hash);
	char		computed[UDB_DIGEST_HEX + 1];
	UdbAuditText content;

	if (previous == NULL || strcmp(previous, w->last_hash) != 0)
	{
		broken(w, "previous_hash_mismatch", audit_id, id_null, w->last_hash, previous);
		return;
	}
	udb_audit_text(&content, values, nulls);
	udb_audit_hash(digest, &content, previous, strlen(previous), computed);
	if (current == NULL || *current == '\0')
		broken(w, "missing_current_hash", audit_id, id_null, computed, current);
	else if (strcmp(current, computed) != 0)
		broken(w, "current_hash_mismatch", audit_id, id_null, computed, current);
	else if (!witnessed(w, values, nulls, current, seen))
		broken(w, "current_hash_mismatch", audit_id, id_null, seen, current);
	else
	{
		w->checked++;
		strlcpy(w->last_hash, current, sizeof(w->last_hash));
	}
}

/* A plan that is kept for the session. */
static SPIPlanPtr
kept_plan(const char *sql, int nargs, const Oid *types)
{
	SPIPlanPtr	plan;

	plan = SPI_prepare_cursor(sql, nargs, unconstify(Oid *, types), CURSOR_OPT_NO_SCROLL);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	return plan;
}

/* Check rows until there are no more, one is broken, or the limit is reached. */
static void
walk(Walk *w)
{
	static SPIPlanPtr plan = NULL;
	MemoryContext row_context =
		AllocSetContextCreate(CurrentMemoryContext, "udb audit row", ALLOCSET_DEFAULT_SIZES);
	UdbDigest  *digest = udb_digest_create();
	Portal		portal;
	uint64		rows;

	if (plan == NULL)
		plan = kept_plan(walk_sql, 0, NULL);
	/* "read only" means the active snapshot, not a new one */
	portal = SPI_cursor_open(NULL, plan, NULL, NULL, true);
	do
	{
		SPI_cursor_fetch(portal, true, BATCH);
		rows = SPI_processed;
		for (uint64 i = 0; i < rows && w->reason == NULL && w->checked < w->limit; i++)
		{
			MemoryContext oldcontext = MemoryContextSwitchTo(row_context);
			Datum		values[Natts_query];
			bool		nulls[Natts_query];

			CHECK_FOR_INTERRUPTS();
			heap_deform_tuple(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, values, nulls);
			check_row(w, digest, values, nulls);
			MemoryContextSwitchTo(oldcontext);
			MemoryContextReset(row_context);
		}
		SPI_freetuptable(SPI_tuptable);
	} while (rows == BATCH && w->reason == NULL && w->checked < w->limit);
	SPI_cursor_close(portal);
	udb_digest_free(digest);
	MemoryContextDelete(row_context);
}

/* The log has ended: has the witness, too? */
static void
check_rest(Walk *w)
{
	static SPIPlanPtr plan = NULL;
	static const Oid types[] = {INT8OID};
	Datum		values[1] = {Int64GetDatum(w->checked)};
	int			rc;

	if (plan == NULL)
		plan = kept_plan(rest_sql, 1, types);
	rc = SPI_execute_plan(plan, values, NULL, true, 1);
	if (rc != SPI_OK_SELECT)
		elog(ERROR, "unexpected SPI result: %s", SPI_result_code_string(rc));
	if (SPI_processed > 0)
	{
		bool		isnull;
		Datum		id = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		char	   *hash = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

		broken(w, "missing_current_hash", id, isnull, hash, NULL);
	}
}

static void
text_result(Datum *values, bool *nulls, int column, const char *string)
{
	nulls[column - 1] = string == NULL;
	if (string != NULL)
		values[column - 1] = CStringGetTextDatum(string);
}

UDB_FUNCTION(udb_verify_admin_audit_chain);

/*
 * verify_admin_audit_chain(row_limit, store) returns (outcome, checked_count,
 * last_hash, first_broken_audit_id, reason, expected_hash, actual_hash)
 */
Datum
udb_verify_admin_audit_chain(PG_FUNCTION_ARGS)
{
	Walk		w = {.context = CurrentMemoryContext, .limit = PG_INT64_MAX};
	TupleDesc	desc;
	Datum		values[Natts_result] = {0};
	bool		nulls[Natts_result] = {false};
	UdbSpi		spi;

	udb_check_store(PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1));
	if (!PG_ARGISNULL(0))
		w.limit = Max(PG_GETARG_INT64(0), 0);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	PushActiveSnapshot(GetLatestSnapshot());
	udb_spi_begin(&spi);
	if (w.limit > 0)
		walk(&w);
	if (w.reason == NULL && w.checked < w.limit)
		check_rest(&w);
	udb_spi_end(&spi);
	PopActiveSnapshot();

	text_result(values, nulls, Anum_outcome, w.reason == NULL ? "passed" : "failed");
	values[Anum_checked_count - 1] = Int64GetDatum(w.checked);
	text_result(values, nulls, Anum_last_hash, w.last_hash);
	values[Anum_first_broken_audit_id - 1] = UUIDPGetDatum(&w.audit_id);
	nulls[Anum_first_broken_audit_id - 1] = w.reason == NULL || w.audit_id_null;
	text_result(values, nulls, Anum_reason, w.reason);
	text_result(values, nulls, Anum_expected_hash, w.expected);
	text_result(values, nulls, Anum_actual_hash, w.actual);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
