/*-------------------------------------------------------------------------
 *
 * json.c
 *	  Canonical JSON: one text for each value, to be hashed and compared.
 *
 * jsonb has sorted keys as well, but the shorter ones first.  So the keys of an
 * object are collected and sorted anew, unless they are in order already; its
 * values, and an array's elements, are then found by their index.
 *
 * Values can be nested as deep as jsonb allows.  That depends on
 * max_stack_depth of the session that made them, which may be another one, so
 * the levels are kept in an array and not on the stack.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "common/json.h"

typedef struct Key
{
	const char *name;			/* in UTF-8 */
	int			len;
	uint32		index;			/* among the object's members */
} Key;

/* An array or object that is being written. */
typedef struct Level
{
	JsonbContainer *container;
	Key		   *keys;			/* sorted; NULL if their order is good as it is */
	uint32		count;			/* of elements or members */
	uint32		next;
} Level;

typedef struct Writer
{
	StringInfo	out;
	UdbJsonEncoding encoding;
	Level	   *levels;
	int			depth;			/* levels that are open */
	int			room;
} Writer;

void
udb_json_append_string(StringInfo out, const char *string, int len, UdbJsonEncoding encoding)
{
	const char *p;
	const char *end;
	const char *run;

	if (encoding == UDB_JSON_UTF8)
	{
		const char *utf8 = pg_server_to_any(string, len, PG_UTF8);

		if (utf8 != string)
			len = strlen(utf8);
		string = utf8;
	}
	end = string + len;
	appendStringInfoCharMacro(out, '"');
	for (p = run = string; p < end; p++)
	{
		unsigned char c = (unsigned char) *p;
		char		letter;

		/* bytes of longer characters have the high bit, in all server encodings */
		if (likely(c >= 0x20 && c != '"' && c != '\\'))
			continue;
		appendBinaryStringInfo(out, run, p - run);
		run = p + 1;
		switch (c)
		{
			case '\b':
				letter = 'b';
				break;
			case '\f':
				letter = 'f';
				break;
			case '\n':
				letter = 'n';
				break;
			case '\r':
				letter = 'r';
				break;
			case '\t':
				letter = 't';
				break;
			case '"':
			case '\\':
				letter = (char) c;
				break;
			default:
				appendBinaryStringInfo(out, "\\u00", 4);
				appendStringInfoCharMacro(out, c < 0x10 ? '0' : '1');
				appendStringInfoCharMacro(out, "0123456789abcdef"[c & 15]);
				continue;
		}
		appendStringInfoCharMacro(out, '\\');
		appendStringInfoCharMacro(out, letter);
	}
	appendBinaryStringInfo(out, run, end - run);
	appendStringInfoCharMacro(out, '"');
}

/* Where the values of a container begin, after its table of entries. */
static char *
values_of(JsonbContainer *container)
{
	uint32		entries = JsonContainerSize(container);

	if (JsonContainerIsObject(container))
		entries *= 2;			/* keys first, and then the values */
	return (char *) &container->children[entries];
}

static void
write_string_entry(Writer *w, JsonbContainer *container, uint32 entry)
{
	udb_json_append_string(w->out, values_of(container) + getJsonbOffset(container, entry),
						   getJsonbLength(container, entry), w->encoding);
}

static int
compare_keys(const void *a, const void *b)
{
	const Key  *ka = a;
	const Key  *kb = b;
	int			c = memcmp(ka->name, kb->name, Min(ka->len, kb->len));

	CHECK_FOR_INTERRUPTS();
	return c != 0 ? c : (ka->len > kb->len) - (ka->len < kb->len);
}

/* An object's keys in their order, or NULL if they are in order already. */
static Key *
sorted_keys(JsonbContainer *container)
{
	uint32		count = JsonContainerSize(container);
	char	   *base = values_of(container);
	uint32		offset = 0;
	bool		sorted = true;
	Key		   *keys;

	if (count < 2)
		return NULL;
	keys = palloc(sizeof(Key) * count);
	for (uint32 i = 0; i < count; i++)
	{
		int			len = getJsonbLength(container, i);
		char	   *name = base + offset;
		char	   *utf8 = pg_server_to_any(name, len, PG_UTF8);

		keys[i].name = utf8;
		keys[i].len = utf8 != name ? strlen(utf8) : len;
		keys[i].index = i;
		offset += len;
		if (sorted && i > 0 && compare_keys(&keys[i - 1], &keys[i]) > 0)
			sorted = false;
	}
	if (sorted)
	{
		pfree(keys);
		return NULL;
	}
	qsort(keys, count, sizeof(Key), compare_keys);
	return keys;
}

static void
open_level(Writer *w, JsonbContainer *container)
{
	Level	   *level;

	if (w->depth == w->room)
	{
		w->room *= 2;
		w->levels = repalloc(w->levels, sizeof(Level) * w->room);
	}
	level = &w->levels[w->depth++];
	level->container = container;
	level->count = JsonContainerSize(container);
	level->next = 0;
	level->keys = JsonContainerIsObject(container) ? sorted_keys(container) : NULL;
	if (!JsonContainerIsScalar(container))
		appendStringInfoCharMacro(w->out, JsonContainerIsObject(container) ? '{' : '[');
}

static void
close_level(Writer *w)
{
	Level	   *level = &w->levels[--w->depth];

	if (!JsonContainerIsScalar(level->container))
		appendStringInfoCharMacro(w->out, JsonContainerIsObject(level->container) ? '}' : ']');
	if (level->keys != NULL)
		pfree(level->keys);
}

/* Write the value at this entry, or open its level. */
static void
write_entry(Writer *w, JsonbContainer *container, uint32 entry)
{
	JEntry		type = container->children[entry];
	char	   *value;

	if (JBE_ISSTRING(type))
		write_string_entry(w, container, entry);
	else if (JBE_ISNULL(type))
		appendBinaryStringInfo(w->out, "null", 4);
	else if (JBE_ISBOOL_TRUE(type))
		appendBinaryStringInfo(w->out, "true", 4);
	else if (JBE_ISBOOL_FALSE(type))
		appendBinaryStringInfo(w->out, "false", 5);
	else
	{
		/* numbers and containers are aligned, the rest is not */
		value = values_of(container) + INTALIGN(getJsonbOffset(container, entry));
		if (JBE_ISNUMERIC(type))
		{
			Datum		number = PointerGetDatum(value);
			char	   *digits = DatumGetCString(DirectFunctionCall1(numeric_out, number));

			appendStringInfoString(w->out, digits);
			pfree(digits);
		}
		else
			open_level(w, (JsonbContainer *) value);
	}
}

void
udb_json_append(StringInfo out, Jsonb *value, UdbJsonEncoding encoding)
{
	Writer		w = {.out = out, .encoding = encoding, .room = 8};

	w.levels = palloc(sizeof(Level) * w.room);
	open_level(&w, &value->root);
	while (w.depth > 0)
	{
		Level	   *level = &w.levels[w.depth - 1];
		JsonbContainer *container = level->container;
		uint32		i = level->next;

		CHECK_FOR_INTERRUPTS();
		if (i == level->count)
		{
			close_level(&w);
			continue;
		}
		level->next++;
		if (i > 0)
			appendStringInfoCharMacro(out, ',');
		if (JsonContainerIsObject(container))
		{
			if (level->keys != NULL)
				i = level->keys[i].index;
			write_string_entry(&w, container, i);
			appendStringInfoCharMacro(out, ':');
			i += level->count;
		}
		write_entry(&w, container, i);
	}
	pfree(w.levels);
}

UDB_FUNCTION(udb_canonical_json);

/* canonical_json(value) returns text */
Datum
udb_canonical_json(PG_FUNCTION_ARGS)
{
	Jsonb	   *value = PG_GETARG_JSONB_P(0);
	StringInfoData out;

	initStringInfo(&out);
	udb_json_append(&out, value, UDB_JSON_SERVER);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
