/*-------------------------------------------------------------------------
 *
 * backoff.h
 *	  How long to wait after the n-th failure in a row.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_BACKOFF_H
#define UDB_BACKOFF_H

#include "postgres.h"

/*
 * Milliseconds: 1 s doubled for each failure after the first, at most max_ms,
 * less up to a quarter at random so that failing workers do not keep step.
 */
extern int64 udb_backoff_ms(int failures, int64 max_ms);

#endif							/* UDB_BACKOFF_H */
