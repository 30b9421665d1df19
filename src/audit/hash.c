/*-------------------------------------------------------------------------
 *
 * hash.c
 *	  What a row's hash is computed of.
 *
 * A column that is null is the value null, which is not the empty string.  The
 * one of jsonb has a null of its own and is never null itself; if somebody has
 * made it so, it has no value here, and no hash fits.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "utils/builtins.h"

#include "audit/audit.h"
#include "common/json.h"

typedef struct Member
{
	const char *name;
	int			column;
} Member;

/* The members in the order of their names, with previous_hash between the two. */
static const Member members_before[] = {
	{"actor", Anum_actor},
	{"correlation_id", Anum_correlation_id},
	{"external_anchor", Anum_external_anchor},
	{"operation", Anum_operation}};
static const Member members_after[] = {
	{"project_id", Anum_project_id},
	{"request_json", Anum_request_json},
	{"result", Anum_result},
	{"signer_key_id", Anum_signer_key_id},
	{"target", Anum_target},
	{"tenant_id", Anum_tenant_id}};

static void
append_member(StringInfo out, const Member *member, const Datum *values, const bool *nulls)
{
	Datum		value = values[member->column - 1];

	appendStringInfo(out, "\"%s\":", member->name);
	if (nulls[member->column - 1])
		appendStringInfoString(out, member->column == Anum_request_json ? "" : "null");
	else if (member->column == Anum_request_json)
		udb_json_append(out, DatumGetJsonbP(value), UDB_JSON_UTF8);
	else
	{
		text	   *string = DatumGetTextPP(value);

		udb_json_append_string(out, VARDATA_ANY(string), VARSIZE_ANY_EXHDR(string), UDB_JSON_UTF8);
	}
}

void
udb_audit_text(UdbAuditText *text, const Datum *values, const bool *nulls)
{
	initStringInfo(&text->before);
	appendStringInfoChar(&text->before, '{');
	for (int i = 0; i < lengthof(members_before); i++)
	{
		append_member(&text->before, &members_before[i], values, nulls);
		appendStringInfoChar(&text->before, ',');
	}
	appendStringInfoString(&text->before, "\"previous_hash\":");

	initStringInfo(&text->after);
	for (int i = 0; i < lengthof(members_after); i++)
	{
		appendStringInfoChar(&text->after, ',');
		append_member(&text->after, &members_after[i], values, nulls);
	}
	appendStringInfoChar(&text->after, '}');
}

void
udb_audit_hash(UdbDigest *digest, const UdbAuditText *text, const char *previous_hash,
			   int previous_len, char *hex)
{
	StringInfoData previous;

	initStringInfo(&previous);
	udb_json_append_string(&previous, previous_hash, previous_len, UDB_JSON_UTF8);
	udb_digest_start(digest);
	udb_digest_add(digest, text->before.data, text->before.len);
	udb_digest_add(digest, previous.data, previous.len);
	udb_digest_add(digest, text->after.data, text->after.len);
	udb_digest_finish(digest, hex);
	pfree(previous.data);
}
