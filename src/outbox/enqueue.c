/*-------------------------------------------------------------------------
 *
 * enqueue.c
 *	  enqueue() and enqueue_many(): their arguments.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"

#include "common/errors.h"
#include "common/guc.h"
#include "outbox/append.h"

#define MAX_TOPIC_BYTES 255
#define MAX_KEY_BYTES 1024

void
udb_append_check_topic(Datum topic)
{
	Size		len = VARSIZE_ANY_EXHDR(DatumGetPointer(topic));

	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("topic must not be empty")));
	if (len > MAX_TOPIC_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("topic of %zu bytes is too long", len),
				 errdetail("The limit is %d bytes.", MAX_TOPIC_BYTES)));
}

void
udb_append_check_key(Datum partition_key)
{
	Size		len = VARSIZE_ANY_EXHDR(DatumGetPointer(partition_key));

	if (len > MAX_KEY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("partition key of %zu bytes is too long", len),
				 errdetail("The limit is %d bytes.", MAX_KEY_BYTES)));
}

/* Before the value is detoasted, so that a huge one costs nothing. */
void
udb_append_check_payload(Datum payload)
{
	Size		size = toast_raw_datum_size(payload);

	if (size > (Size) udb_outbox_max_payload * 1024)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("payload of %zu bytes is too large", size),
				 errdetail("The limit is udb.outbox_max_payload, %d kB.", udb_outbox_max_payload)));
}

static void
check_headers(Datum headers)
{
	Size		size = toast_raw_datum_size(headers);

	if (size > (Size) udb_outbox_max_payload * 1024)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers of %zu bytes are too large", size),
				 errdetail("The limit is udb.outbox_max_payload, %d kB.", udb_outbox_max_payload)));
	if (!JB_ROOT_IS_OBJECT(DatumGetJsonbP(headers)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("headers must be a JSON object")));
}

static void
null_argument(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", name)));
}

UDB_FUNCTION(udb_enqueue);

/* enqueue(topic, payload, partition_key, event_id, headers) returns bigint */
Datum
udb_enqueue(PG_FUNCTION_ARGS)
{
	UdbEventInput event = {0};

	if (PG_ARGISNULL(0))
		null_argument("topic");
	if (PG_ARGISNULL(1))
		null_argument("payload");
	if (PG_ARGISNULL(2))
		null_argument("partition_key");

	event.topic = PointerGetDatum(PG_GETARG_TEXT_PP(0));
	event.payload = PG_GETARG_DATUM(1);
	event.partition_key = PointerGetDatum(PG_GETARG_TEXT_PP(2));
	event.event_id = PG_ARGISNULL(3) ? NULL : PG_GETARG_UUID_P(3);
	event.headers_null = PG_ARGISNULL(4);
	if (!event.headers_null)
	{
		event.headers = PG_GETARG_DATUM(4);
		check_headers(event.headers);
	}
	udb_append_check_topic(event.topic);
	udb_append_check_key(event.partition_key);
	udb_append_check_payload(event.payload);

	PG_RETURN_INT64(udb_append(&event));
}

/* An array argument of enqueue_many(). */
typedef struct ManyArray
{
	const char *name;
	Datum	   *values;			/* NULL: the argument is null */
	bool	   *nulls;
} ManyArray;

static ManyArray
many_array(FunctionCallInfo fcinfo, int argno, const char *name, Oid type, int16 typlen,
		   char typalign, int *n)
{
	ManyArray	result = {.name = name};
	ArrayType  *array;
	int			length;

	if (PG_ARGISNULL(argno))
		return result;
	array = PG_GETARG_ARRAYTYPE_P(argno);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("argument \"%s\" must be a one-dimensional array", name)));
	deconstruct_array(array, type, typlen, false, typalign, &result.values, &result.nulls, &length);
	if (*n < 0)
		*n = length;
	else if (*n != length)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("argument \"%s\" has %d elements, but \"payloads\" has %d",
						name, length, *n)));
	return result;
}

static int
compare_uuid(const void *a, const void *b)
{
	return memcmp(*(const pg_uuid_t *const *) a, *(const pg_uuid_t *const *) b, UUID_LEN);
}

static void
check_distinct_ids(const ManyArray *ids, int n)
{
	const pg_uuid_t **sorted = palloc(sizeof(pg_uuid_t *) * n);
	int			given = 0;

	for (int i = 0; i < n; i++)
		if (!ids->nulls[i])
			sorted[given++] = DatumGetUUIDP(ids->values[i]);
	qsort(sorted, given, sizeof(pg_uuid_t *), compare_uuid);
	for (int i = 1; i < given; i++)
		if (compare_uuid(&sorted[i - 1], &sorted[i]) == 0)
			ereport(ERROR,
					(errcode(udb_errcode(DUPLICATE_EVENT_ID)),
					 errmsg("event id \"%s\" is given twice",
							DatumGetCString(DirectFunctionCall1(uuid_out,
																UUIDPGetDatum(sorted[i]))))));
	pfree(sorted);
}

static void
no_null_elements(const ManyArray *array, int n)
{
	for (int i = 0; array->values != NULL && i < n; i++)
		if (array->nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of \"%s\" must not be null", i + 1, array->name)));
}

UDB_FUNCTION(udb_enqueue_many);

/* enqueue_many(topic, payloads, partition_keys, event_ids, headers) returns bigint[] */
Datum
udb_enqueue_many(PG_FUNCTION_ARGS)
{
	int			n = -1;
	Datum		topic;
	Datum		empty_key = CStringGetTextDatum("");
	ManyArray	payloads;
	ManyArray	keys;
	ManyArray	ids;
	ManyArray	headers;
	UdbEventInput *events;
	Datum	   *positions;
	UdbOutbox  *outbox;

	if (PG_ARGISNULL(0))
		null_argument("topic");
	if (PG_ARGISNULL(1))
		null_argument("payloads");
	topic = PointerGetDatum(PG_GETARG_TEXT_PP(0));
	udb_append_check_topic(topic);

	payloads = many_array(fcinfo, 1, "payloads", JSONBOID, -1, TYPALIGN_INT, &n);
	keys = many_array(fcinfo, 2, "partition_keys", TEXTOID, -1, TYPALIGN_INT, &n);
	ids = many_array(fcinfo, 3, "event_ids", UUIDOID, UUID_LEN, TYPALIGN_CHAR, &n);
	headers = many_array(fcinfo, 4, "headers", JSONBOID, -1, TYPALIGN_INT, &n);
	no_null_elements(&payloads, n);
	no_null_elements(&keys, n);
	if (ids.values != NULL)
		check_distinct_ids(&ids, n);
	if (n == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(INT8OID));

	events = palloc0(sizeof(UdbEventInput) * n);
	positions = palloc(sizeof(Datum) * n);
	for (int i = 0; i < n; i++)
	{
		UdbEventInput *event = &events[i];

		event->topic = topic;
		event->payload = payloads.values[i];
		event->partition_key = keys.values != NULL ? keys.values[i] : empty_key;
		event->headers_null = headers.values == NULL || headers.nulls[i];
		if (ids.values != NULL && !ids.nulls[i])
			event->event_id = DatumGetUUIDP(ids.values[i]);
		udb_append_check_payload(event->payload);
		udb_append_check_key(event->partition_key);
		if (!event->headers_null)
		{
			event->headers = headers.values[i];
			check_headers(event->headers);
		}
	}

	outbox = udb_append_begin("enqueue_many()");
	udb_append_many(outbox, events, n, positions);
	PG_RETURN_ARRAYTYPE_P(construct_array(positions, n, INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
