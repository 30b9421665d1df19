/*-------------------------------------------------------------------------
 *
 * type.c
 *	  Type udb.token.
 *
 * The part before the first colon says which kind of store the token is of,
 * the rest is that store's business.  Labels are compared without regard to
 * case.  Two tokens are equal or they are not; which one is later only their
 * store can tell, and only sometimes (see token_covers).
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"

#include "common/errors.h"
#include "token/type.h"

#define MAX_LABEL 63

/* Length of the label, or -1 if the text does not begin with one. */
static int
label_length(const char *token)
{
	int			n = 0;

	while ((token[n] >= 'a' && token[n] <= 'z') || (token[n] >= 'A' && token[n] <= 'Z') ||
		   (n > 0 && ((token[n] >= '0' && token[n] <= '9') || token[n] == '_' || token[n] == '-')))
		n++;
	return n > 0 && n <= MAX_LABEL && token[n] == ':' ? n : -1;
}

static inline bool
is_postgres(const char *token, int label)
{
	return label == sizeof(UDB_TOKEN_BACKEND) - 1 &&
		pg_strncasecmp(token, UDB_TOKEN_BACKEND, label) == 0;
}

bool
udb_token_valid(const char *token, const char **why)
{
	int			label = label_length(token);
	UdbPosition position;

	if (label < 0)
	{
		*why = "A token begins with the kind of its store and a colon.";
		return false;
	}
	if (token[label + 1] == '\0')
	{
		*why = "There is nothing after the colon.";
		return false;
	}
	if (strlen(token) > UDB_TOKEN_MAX)
	{
		*why = "It is too long.";
		return false;
	}
	for (const char *p = token + label + 1; *p; p++)
		if ((unsigned char) *p < ' ' || *p == 0x7f)
		{
			*why = "It contains a control character.";
			return false;
		}
	return !is_postgres(token, label) || udb_position_parse(token + label + 1, &position, why);
}

UdbToken *
udb_token_make(const char *token)
{
	const char *why = NULL;

	if (!udb_token_valid(token, &why))
	{
		int			shown = pg_mbcliplen(token, (int) strnlen(token, 200), 100);

		ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), errmsg("invalid input syntax for type %s: \"%.*s%s\"", "udb.token", shown, token, token[shown] ? "..." : ""), errdetail("%s", why)));
	}
	return cstring_to_text(token);
}

void
udb_token_format(const UdbPosition *position, char token[UDB_TOKEN_TEXT])
{
	memcpy(token, UDB_TOKEN_BACKEND ":", sizeof(UDB_TOKEN_BACKEND));
	udb_position_format(position, token + sizeof(UDB_TOKEN_BACKEND));
}

UdbToken *
udb_token_from_position(const UdbPosition *position)
{
	char		token[UDB_TOKEN_TEXT];

	udb_token_format(position, token);
	return cstring_to_text(token);
}

void
udb_token_position(const char *token, UdbPosition *position)
{
	int			label = label_length(token);
	const char *why;

	if (!is_postgres(token, label))
		ereport(ERROR,
				(errcode(udb_errcode(TOKEN_OTHER_BACKEND)),
				 errmsg("a token of %.*s cannot fence %s", label, token, UDB_TOKEN_BACKEND)));
	if (!udb_position_parse(token + label + 1, position, &why))
		elog(ERROR, "invalid token \"%s\"", token);
}

UDB_FUNCTION(udb_token_in);

Datum
udb_token_in(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(udb_token_make(PG_GETARG_CSTRING(0)));
}

UDB_FUNCTION(udb_token_out);

Datum
udb_token_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(TextDatumGetCString(PG_GETARG_DATUM(0)));
}

UDB_FUNCTION(udb_token_recv);

Datum
udb_token_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int			nbytes;
	char	   *token = pq_getmsgtext(buf, buf->len - buf->cursor, &nbytes);

	PG_RETURN_TEXT_P(udb_token_make(token));
}

UDB_FUNCTION(udb_token_send);

Datum
udb_token_send(PG_FUNCTION_ARGS)
{
	text	   *token = PG_GETARG_TEXT_PP(0);
	StringInfoData buf;

	pq_begintypsend(&buf);
	pq_sendtext(&buf, VARDATA_ANY(token), VARSIZE_ANY_EXHDR(token));
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}

UDB_FUNCTION(udb_token_eq);

/* token = token */
Datum
udb_token_eq(PG_FUNCTION_ARGS)
{
	char	   *a = TextDatumGetCString(PG_GETARG_DATUM(0));
	char	   *b = TextDatumGetCString(PG_GETARG_DATUM(1));
	int			label = label_length(a);

	PG_RETURN_BOOL(label == label_length(b) && pg_strncasecmp(a, b, label) == 0 &&
				   strcmp(a + label, b + label) == 0);
}

UDB_FUNCTION(udb_token_ne);

/* token <> token */
Datum
udb_token_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!DatumGetBool(udb_token_eq(fcinfo)));
}

/* The token with its label in lower case, for hashing. */
static char *
folded(Datum token, int *length)
{
	char	   *copy = TextDatumGetCString(token);
	int			label = label_length(copy);

	for (int i = 0; i < label; i++)
		copy[i] = (char) pg_ascii_tolower((unsigned char) copy[i]);
	*length = (int) strlen(copy);
	return copy;
}

UDB_FUNCTION(udb_token_hash);

Datum
udb_token_hash(PG_FUNCTION_ARGS)
{
	int			length;
	char	   *copy = folded(PG_GETARG_DATUM(0), &length);

	return hash_any((unsigned char *) copy, length);
}

UDB_FUNCTION(udb_token_hash_extended);

Datum
udb_token_hash_extended(PG_FUNCTION_ARGS)
{
	int			length;
	char	   *copy = folded(PG_GETARG_DATUM(0), &length);

	return hash_any_extended((unsigned char *) copy, length, (uint64) PG_GETARG_INT64(1));
}

UDB_FUNCTION(udb_token_backend);

/* token_backend(token) returns text */
Datum
udb_token_backend(PG_FUNCTION_ARGS)
{
	char	   *token = TextDatumGetCString(PG_GETARG_DATUM(0));

	PG_RETURN_TEXT_P(cstring_to_text_with_len(token, label_length(token)));
}

UDB_FUNCTION(udb_token_value);

/* token_value(token) returns text */
Datum
udb_token_value(PG_FUNCTION_ARGS)
{
	char	   *token = TextDatumGetCString(PG_GETARG_DATUM(0));

	PG_RETURN_TEXT_P(cstring_to_text(token + label_length(token) + 1));
}

UDB_FUNCTION(udb_token_covers);

/* token_covers(a, b) returns boolean: null where only the server could tell */
Datum
udb_token_covers(PG_FUNCTION_ARGS)
{
	UdbPosition a;
	UdbPosition b;

	if (DatumGetBool(udb_token_eq(fcinfo)))
		PG_RETURN_BOOL(true);
	udb_token_position(TextDatumGetCString(PG_GETARG_DATUM(0)), &a);
	udb_token_position(TextDatumGetCString(PG_GETARG_DATUM(1)), &b);
	if (a.sysid != b.sysid || a.tli != b.tli || a.tli_begin != b.tli_begin)
		PG_RETURN_NULL();
	PG_RETURN_BOOL(a.lsn >= b.lsn);
}

static void
push_member(JsonbParseState **state, const char *key, const char *value, int length)
{
	JsonbValue	v;

	v.type = jbvString;
	v.val.string.val = unconstify(char *, key);
	v.val.string.len = (int) strlen(key);
	(void) pushJsonbValue(state, WJB_KEY, &v);
	v.val.string.val = unconstify(char *, value);
	v.val.string.len = length;
	(void) pushJsonbValue(state, WJB_VALUE, &v);
}

UDB_FUNCTION(udb_token_to_jsonb);

/* cast of token to jsonb */
Datum
udb_token_to_jsonb(PG_FUNCTION_ARGS)
{
	char	   *token = TextDatumGetCString(PG_GETARG_DATUM(0));
	int			label = label_length(token);
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_member(&state, "backend_label", token, label);
	push_member(&state, "value", token + label + 1, (int) strlen(token + label + 1));
	PG_RETURN_JSONB_P(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

/* A member that has to be a string. */
static JsonbValue *
string_member(Jsonb *object, const char *key)
{
	JsonbValue *v = getKeyJsonValueFromContainer(&object->root, key, (int) strlen(key), NULL);

	if (v == NULL || v->type != jbvString)
		ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), errmsg("cannot cast this jsonb to type %s", "udb.token"), errdetail("\"%s\" has to be a string.", key)));
	return v;
}

UDB_FUNCTION(udb_token_from_jsonb);

/* cast of jsonb to token */
Datum
udb_token_from_jsonb(PG_FUNCTION_ARGS)
{
	Jsonb	   *object = PG_GETARG_JSONB_P(0);
	JsonbValue *label;
	JsonbValue *value;

	if (!JB_ROOT_IS_OBJECT(object))
		ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), errmsg("cannot cast this jsonb to type %s", "udb.token"), errdetail("It has to be an object with \"backend_label\" and \"value\".")));
	label = string_member(object, "backend_label");
	value = string_member(object, "value");

	/* a label that has a colon would move the border */
	if (memchr(label->val.string.val, ':', label->val.string.len) != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), errmsg("cannot cast this jsonb to type %s", "udb.token"), errdetail("\"%s\" must not contain a colon.", "backend_label")));
	PG_RETURN_TEXT_P(
		udb_token_make(psprintf("%.*s:%.*s", label->val.string.len, label->val.string.val,
								value->val.string.len, value->val.string.val)));
}
