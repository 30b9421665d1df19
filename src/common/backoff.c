/*-------------------------------------------------------------------------
 *
 * backoff.c
 *	  How long to wait after the n-th failure in a row.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/pg_prng.h"

#include "common/backoff.h"

int64
udb_backoff_ms(int failures, int64 max_ms)
{
	int64		ms = INT64CONST(1000) << Min(Max(failures - 1, 0), 20);

	ms = Min(ms, max_ms);
	return ms - (int64) (pg_prng_double(&pg_global_prng_state) * (double) ms / 4);
}
