/*-------------------------------------------------------------------------
 *
 * token.h
 *	  The tokens' entry for _PG_init.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_H
#define UDB_TOKEN_H

/* Call while being preloaded, before the prefix udb is reserved. */
extern void udb_token_init(void);

#endif							/* UDB_TOKEN_H */
