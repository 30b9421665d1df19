/*-------------------------------------------------------------------------
 *
 * fence.h
 *	  Waiting for a token.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_FENCE_H
#define UDB_TOKEN_FENCE_H

#include "postgres.h"

/* Call while being preloaded, before the prefix udb is reserved. */
extern void udb_fence_init(void);

/*
 * Wait for a token inside of a query.  timeout is in microseconds.  False when
 * it is over; *waited is set in any case.  Throws for a token that can never
 * be reached here.
 */
extern bool udb_fence_in_query(const char *function, const char *token, int64 timeout,
							   int64 *waited);

/* Throw if later queries of this transaction could not see more than earlier ones. */
extern void udb_refuse_fixed_snapshot(const char *what);

#endif							/* UDB_TOKEN_FENCE_H */
