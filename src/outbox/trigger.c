/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  A row trigger that enqueues what happened to the row.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "outbox/append.h"

/* to_jsonb() of a row: that function learns the type from its call's expression. */
static Jsonb *
row_to_jsonb(HeapTuple tuple, TupleDesc desc)
{
	FmgrInfo	flinfo;
	Const	   *arg = makeNullConst(desc->tdtypeid, desc->tdtypmod, InvalidOid);

	fmgr_info(F_TO_JSONB, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, list_make1(arg),
											 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL),
					   &flinfo);
	return DatumGetJsonbP(FunctionCall1(&flinfo, heap_copy_tuple_as_datum(tuple, desc)));
}

static void
push_key(JsonbParseState **state, const char *key)
{
	JsonbValue	v = {.type = jbvString};

	v.val.string.val = unconstify(char *, key);
	v.val.string.len = (int) strlen(key);
	(void) pushJsonbValue(state, WJB_KEY, &v);
}

static void
push_string(JsonbParseState **state, const char *key, const char *value)
{
	JsonbValue	v = {.type = jbvString};

	push_key(state, key);
	v.val.string.val = unconstify(char *, value);
	v.val.string.len = (int) strlen(value);
	(void) pushJsonbValue(state, WJB_VALUE, &v);
}

static void
push_row(JsonbParseState **state, const char *key, HeapTuple tuple, TupleDesc desc)
{
	JsonbValue	v;

	push_key(state, key);
	if (tuple == NULL)
		v.type = jbvNull;
	else
	{
		Jsonb	   *row = row_to_jsonb(tuple, desc);

		v.type = jbvBinary;
		v.val.binary.data = &row->root;
		v.val.binary.len = (int) (VARSIZE(row) - VARHDRSZ);
	}
	(void) pushJsonbValue(state, WJB_VALUE, &v);
}

/* The key columns' values as text, joined by ':'; a null is empty. */
static text *
partition_key(Trigger *trigger, HeapTuple tuple, Relation rel)
{
	StringInfoData key;

	initStringInfo(&key);
	for (int i = 1; i < trigger->tgnargs; i++)
	{
		int			attno = SPI_fnumber(RelationGetDescr(rel), trigger->tgargs[i]);
		char	   *value;

		if (attno <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							trigger->tgargs[i], RelationGetRelationName(rel)),
					 errdetail("Trigger \"%s\" names it as a key column.", trigger->tgname)));
		value = SPI_getvalue(tuple, RelationGetDescr(rel), attno);
		if (i > 1)
			appendStringInfoChar(&key, ':');
		if (value != NULL)
			appendStringInfoString(&key, value);
	}
	return cstring_to_text_with_len(key.data, key.len);
}

UDB_FUNCTION(udb_outbox_trigger);

/* outbox_trigger('topic' [, 'key column' ...]), for INSERT, UPDATE and DELETE */
Datum
udb_outbox_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	JsonbParseState *state = NULL;
	UdbEventInput event = {.headers_null = true};
	HeapTuple	old_row = NULL;
	HeapTuple	new_row = NULL;
	HeapTuple	result;
	TupleDesc	desc;
	const char *op;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called by a trigger", "udb.outbox_trigger")));
	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" must be fired for each row", data->tg_trigger->tgname)));
	if (data->tg_trigger->tgnargs < 1)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" must name a topic", data->tg_trigger->tgname),
				 errhint("EXECUTE FUNCTION udb.outbox_trigger('topic', 'key column')")));

	if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
	{
		op = "INSERT";
		result = new_row = data->tg_trigtuple;
	}
	else if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
	{
		op = "UPDATE";
		old_row = data->tg_trigtuple;
		result = new_row = data->tg_newtuple;
	}
	else
	{
		op = "DELETE";
		result = old_row = data->tg_trigtuple;
	}

	desc = RelationGetDescr(data->tg_relation);
	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_string(&state, "op", op);
	push_string(&state, "schema", get_namespace_name(RelationGetNamespace(data->tg_relation)));
	push_string(&state, "table", RelationGetRelationName(data->tg_relation));
	push_row(&state, "old", old_row, desc);
	push_row(&state, "new", new_row, desc);

	event.topic = CStringGetTextDatum(data->tg_trigger->tgargs[0]);
	event.partition_key = PointerGetDatum(partition_key(data->tg_trigger, result,
														data->tg_relation));
	event.payload = JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	udb_append_check_topic(event.topic);
	udb_append_check_key(event.partition_key);
	udb_append_check_payload(event.payload);
	(void) udb_append(&event);
	return PointerGetDatum(result);
}
