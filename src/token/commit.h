/*-------------------------------------------------------------------------
 *
 * commit.h
 *	  Where this session's last commit ended, and telling the client.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_COMMIT_H
#define UDB_TOKEN_COMMIT_H

#include "postgres.h"

#include "token/position.h"

/* Call while being preloaded, before the prefix udb is reserved. */
extern void udb_commit_init(void);

/* The session's last commit; false if there was none. */
extern bool udb_last_commit(UdbPosition *position);

/*
 * Make a position of this server durable.  Throws if that cannot be vouched
 * for.
 */
extern void udb_position_flush(UdbPosition *position);

/* For the utility hook: this statement ends a prepared transaction. */
extern void udb_commit_prepared_begins(void);

#endif							/* UDB_TOKEN_COMMIT_H */
