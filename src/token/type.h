/*-------------------------------------------------------------------------
 *
 * type.h
 *	  Type udb.token: "backend:value", opaque to everybody but that backend.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_TYPE_H
#define UDB_TOKEN_TYPE_H

#include "postgres.h"
#include "fmgr.h"

#include "token/position.h"

/* the label of PostgreSQL's own tokens */
#define UDB_TOKEN_BACKEND "postgres"

/* enough for any token of PostgreSQL, with its zero byte */
#define UDB_TOKEN_TEXT (sizeof(UDB_TOKEN_BACKEND) + UDB_POSITION_TEXT)

/* the longest token of all */
#define UDB_TOKEN_MAX 8192

/* A token is stored as its text. */
typedef text UdbToken;

/* Whether this is a token; if not, *why is a sentence. */
extern bool udb_token_valid(const char *token, const char **why);

/* The token in palloc'd memory; throws invalid_text_representation. */
extern UdbToken *udb_token_make(const char *token);

extern UdbToken *udb_token_from_position(const UdbPosition *position);

/* Write the token; neither allocates nor throws. */
extern void udb_token_format(const UdbPosition *position, char token[UDB_TOKEN_TEXT]);

/* The position that it stands for; throws UD020 if it is not PostgreSQL's. */
extern void udb_token_position(const char *token, UdbPosition *position);

#endif							/* UDB_TOKEN_TYPE_H */
