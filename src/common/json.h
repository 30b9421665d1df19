/*-------------------------------------------------------------------------
 *
 * json.h
 *	  Canonical JSON: one text for each value, to be hashed and compared.
 *
 * Keys of objects are sorted by their bytes in UTF-8, at every level.  There is
 * no white space.  Strings have the escapes \" \\ \b \f \n \r \t, other control
 * characters are \u00xx in lower case, and all else stands for itself.  Numbers
 * are as jsonb prints them: 1.0 and 1.00 differ, although jsonb takes them for
 * equal.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_JSON_H
#define UDB_JSON_H

#include "postgres.h"
#include "lib/stringinfo.h"
#include "utils/jsonb.h"

typedef enum UdbJsonEncoding
{
	UDB_JSON_SERVER, /* that of the database */
	UDB_JSON_UTF8
} UdbJsonEncoding;

/*
 * Append a value, or a string in the database's encoding as a JSON string.
 * What is allocated besides is freed with the current memory context.
 */
extern void udb_json_append(StringInfo out, Jsonb *value, UdbJsonEncoding encoding);
extern void udb_json_append_string(StringInfo out, const char *string, int len,
								   UdbJsonEncoding encoding);

#endif							/* UDB_JSON_H */
