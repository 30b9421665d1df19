/*-------------------------------------------------------------------------
 *
 * receipt.c
 *	  Receipts: what a writer hands to a reader who is to see the write.
 *
 * A receipt is a JSON object:
 *
 *	source_token			the token as {"backend_label", "value"}, durable;
 *							null if this session has committed nothing
 *	outbox_seq				position of the last committed event when the
 *							receipt was written, so at least that of the
 *							session's own; 0 if there is none
 *	projection_task_ids		as given: keys of projection tasks, or their ids
 *	manifest_checksum		as given
 *	written_at_unix_ms		by the wall clock
 *
 * outbox_seq is the whole log's and not the session's: that one would not be
 * known after COMMIT PREPARED, may belong to an event that a savepoint took
 * back, and buys nothing, since a consumer passes the events in order.
 *
 * Reading it waits, inside one deadline, for the token and for the projection
 * tasks (see tasks.c), in a query and with its snapshot (see fence.c).
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "common/compat.h"
#include "common/errors.h"
#include "common/interval.h"
#include "common/spi.h"
#include "token/commit.h"
#include "token/fence.h"
#include "token/tasks.h"
#include "token/type.h"

/* ---- writing --------------------------------------------------------------- */

static void
push_string(JsonbParseState **state, JsonbIteratorToken what, const char *text, int length)
{
	JsonbValue	v;

	v.type = jbvString;
	v.val.string.val = unconstify(char *, text);
	v.val.string.len = length;
	(void) pushJsonbValue(state, what, &v);
}

static void
push_key(JsonbParseState **state, const char *key)
{
	push_string(state, WJB_KEY, key, (int) strlen(key));
}

static void
push_int64(JsonbParseState **state, const char *key, int64 number)
{
	JsonbValue	v;

	push_key(state, key);
	v.type = jbvNumeric;
	v.val.numeric = int64_to_numeric(number);
	(void) pushJsonbValue(state, WJB_VALUE, &v);
}

static void
push_token(JsonbParseState **state, bool given, const UdbPosition *position)
{
	char		value[UDB_POSITION_TEXT];
	JsonbValue	v;

	push_key(state, "source_token");
	if (!given)
	{
		v.type = jbvNull;
		(void) pushJsonbValue(state, WJB_VALUE, &v);
		return;
	}
	(void) udb_position_format(position, value);
	(void) pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	push_key(state, "backend_label");
	push_string(state, WJB_VALUE, UDB_TOKEN_BACKEND, (int) strlen(UDB_TOKEN_BACKEND));
	push_key(state, "value");
	/* the text is looked at only when the whole is made */
	push_string(state, WJB_VALUE, pstrdup(value), (int) strlen(value));
	(void) pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* The elements of a text array that must not have nulls or empty strings. */
static int
task_ids(ArrayType *array, Datum **ids)
{
	int			n;
	bool	   *nulls;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, ids, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not contain nulls", "projection_task_ids")));
		if (VARSIZE_ANY_EXHDR(DatumGetPointer((*ids)[i])) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"%s\" must not contain empty strings",
							"projection_task_ids")));
	}
	return n;
}

/* As SQL, since the outbox is built on top of the tokens. */
static int64
outbox_max_seq(void)
{
	static SPIPlanPtr plan = NULL;
	UdbSpi		spi;
	bool		isnull;
	int64		position;

	udb_spi_begin(&spi);
	(void) udb_spi_execute(&plan, "SELECT udb.outbox_max_seq()", 0, NULL, NULL, NULL,
						   SPI_OK_SELECT);
	position =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	udb_spi_end(&spi);
	return position;
}

UDB_FUNCTION(udb_write_receipt);

/* write_receipt(projection_task_ids, manifest_checksum) returns jsonb */
Datum
udb_write_receipt(PG_FUNCTION_ARGS)
{
	JsonbParseState *state = NULL;
	UdbPosition position = {0};
	text	   *checksum;
	Datum	   *ids;
	int			nids;
	bool		given;
	int64		now;

	for (int i = 0; i < 2; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be null", i == 0 ? "projection_task_ids" : "manifest_checksum")));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(udb_errcode(COMMIT_NOT_YET)),
				 errmsg("write_receipt() cannot be called in a transaction that has written"),
				 errdetail("Where a transaction ends is known when it has committed."),
				 errhint("Call it after COMMIT, or set udb.report_token and use the token that "
						 "comes with the commit.")));

	nids = task_ids(PG_GETARG_ARRAYTYPE_P(0), &ids);
	checksum = PG_GETARG_TEXT_PP(1);
	given = udb_last_commit(&position);
	if (given)
		udb_position_flush(&position);
	now = GetCurrentTimestamp() / 1000 +
		INT64CONST(1000) * SECS_PER_DAY * (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE);

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_token(&state, given, &position);
	push_int64(&state, "outbox_seq", outbox_max_seq());
	push_key(&state, "projection_task_ids");
	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < nids; i++)
		push_string(&state, WJB_ELEM, VARDATA_ANY(DatumGetPointer(ids[i])),
					(int) VARSIZE_ANY_EXHDR(DatumGetPointer(ids[i])));
	(void) pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	push_key(&state, "manifest_checksum");
	push_string(&state, WJB_VALUE, VARDATA_ANY(checksum), (int) VARSIZE_ANY_EXHDR(checksum));
	push_int64(&state, "written_at_unix_ms", now);
	PG_RETURN_JSONB_P(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

/* ---- reading --------------------------------------------------------------- */

static void
bad_receipt(const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"receipt\" is not a receipt"), errdetail("%s", detail)));
}

static JsonbValue *
member(JsonbContainer *object, const char *key)
{
	JsonbValue *v = getKeyJsonValueFromContainer(object, key, (int) strlen(key), NULL);

	return v == NULL || v->type == jbvNull ? NULL : v;
}

/* The token of a receipt, or NULL.  A token as one string will do too. */
static char *
receipt_token(Jsonb *receipt)
{
	JsonbValue *v = member(&receipt->root, "source_token");
	JsonbValue *label;
	JsonbValue *value;

	if (v == NULL)
		return NULL;
	if (v->type == jbvString)
		return TextDatumGetCString(
			PointerGetDatum(udb_token_make(pnstrdup(v->val.string.val, v->val.string.len))));
	if (v->type != jbvBinary || !JsonContainerIsObject(v->val.binary.data))
		bad_receipt("\"source_token\" has to be a token.");
	label = member(v->val.binary.data, "backend_label");
	value = member(v->val.binary.data, "value");
	if (label == NULL || label->type != jbvString || value == NULL || value->type != jbvString)
		bad_receipt("\"source_token\" has to be a token.");
	return TextDatumGetCString(PointerGetDatum(
		udb_token_make(psprintf("%.*s:%.*s", label->val.string.len, label->val.string.val,
								value->val.string.len, value->val.string.val))));
}

/* The task ids of a receipt, as a text array, or NULL if there are none. */
static ArrayType *
receipt_tasks(Jsonb *receipt)
{
	JsonbValue *v = member(&receipt->root, "projection_task_ids");
	JsonbIterator *it;
	JsonbValue	elem;
	JsonbIteratorToken what;
	Datum	   *ids;
	int			n = 0;

	if (v == NULL)
		return NULL;
	if (v->type != jbvBinary || !JsonContainerIsArray(v->val.binary.data))
		bad_receipt("\"projection_task_ids\" has to be an array of strings.");
	if (JsonContainerSize(v->val.binary.data) == 0)
		return NULL;
	ids = palloc(sizeof(Datum) * JsonContainerSize(v->val.binary.data));
	it = JsonbIteratorInit(v->val.binary.data);
	while ((what = JsonbIteratorNext(&it, &elem, true)) != WJB_DONE)
	{
		if (what != WJB_ELEM)
			continue;
		if (elem.type != jbvString)
			bad_receipt("\"projection_task_ids\" has to be an array of strings.");
		ids[n++] =
			PointerGetDatum(cstring_to_text_with_len(elem.val.string.val, elem.val.string.len));
	}
	return construct_array(ids, n, TEXTOID, -1, false, TYPALIGN_INT);
}

static int64
elapsed(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Fill in the row for a fence that has not cleared. */
static void
stale(Datum *values, bool *nulls, const char *reason, const char *detail)
{
	values[0] = CStringGetTextDatum("stale");
	values[1] = CStringGetTextDatum(reason);
	nulls[1] = false;
	values[2] = CStringGetTextDatum(detail);
	nulls[2] = false;
}

UDB_FUNCTION(udb_wait_for_fence);

/* wait_for_fence(receipt, timeout) returns (outcome, reason, detail, waited_ms) */
Datum
udb_wait_for_fence(PG_FUNCTION_ARGS)
{
	Datum		values[4] = {0};
	bool		nulls[4] = {false, true, true, false};
	Jsonb	   *receipt;
	TupleDesc	desc;
	char	   *token;
	ArrayType  *tasks;
	int64		timeout;
	int64		waited = 0;
	instr_time	start;
	char	   *detail = NULL;

	INSTR_TIME_SET_CURRENT(start);
	for (int i = 0; i < 2; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not be null", i == 0 ? "receipt" : "timeout")));
	receipt = PG_GETARG_JSONB_P(0);
	timeout = udb_interval_usecs(PG_GETARG_INTERVAL_P(1), "timeout");
	if (!JB_ROOT_IS_OBJECT(receipt))
		bad_receipt("It has to be an object.");
	token = receipt_token(receipt);
	tasks = receipt_tasks(receipt);

	if (tasks != NULL)
		udb_refuse_fixed_snapshot("wait_for_fence()");

	values[0] = CStringGetTextDatum("cleared");
	if (token != NULL && !udb_fence_in_query("wait_for_fence()", token, timeout, &waited))
		stale(values, nulls, "fence_timed_out", "The source token was not reached.");
	else if (tasks != NULL)
	{
		UdbTasksState state = udb_tasks_wait(tasks, timeout - elapsed(start), &detail);

		if (state != UDB_TASKS_DONE)
			stale(values, nulls,
				  state == UDB_TASKS_MISSING ? "projection_missing" : "fence_timed_out", detail);
	}
	values[3] =
		Float8GetDatum((token == NULL && tasks == NULL) ? 0 : (double) elapsed(start) / 1000);

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
