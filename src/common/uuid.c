/*-------------------------------------------------------------------------
 *
 * uuid.c
 *	  Time-ordered UUIDs: RFC 9562 version 7, with the sub-millisecond clock
 *	  in rand_a (the RFC's method 3, which PostgreSQL 18's uuidv7() uses too).
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <time.h>

#include "port/pg_bswap.h"

#include "common/uuid.h"

#define NS_PER_MS INT64CONST(1000000)
#define NS_PER_S INT64CONST(1000000000)

/* the smallest step that 12 bits of a millisecond can tell apart, rounded up */
#define MIN_STEP_NS (NS_PER_MS / 4096 + 1)

/* random bytes are fetched in bulk: a call costs more than the UUID does */
#define RANDOM_POOL 512

/* Nanoseconds since 1970, always more than at the previous call. */
static int64
rising_clock(void)
{
	static int64 last = 0;
	struct timespec ts;
	int64		now;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = (int64) ts.tv_sec * NS_PER_S + ts.tv_nsec;
	if (now < last + MIN_STEP_NS)
		now = last + MIN_STEP_NS;
	last = now;
	return now;
}

void
udb_uuid_v7(pg_uuid_t *uuid)
{
	static uint8 pool[RANDOM_POOL];
	static int	used = RANDOM_POOL;
	int64		ns = rising_clock();
	uint64		ms = (uint64) (ns / NS_PER_MS);
	uint32		fraction = (uint32) ((ns % NS_PER_MS) * 4096 / NS_PER_MS);

	if (used >= RANDOM_POOL)
	{
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		used = 0;
	}

	for (int i = 0; i < 6; i++)
		uuid->data[i] = (uint8) (ms >> (40 - 8 * i));
	uuid->data[6] = (uint8) (0x70 | (fraction >> 8));
	uuid->data[7] = (uint8) fraction;
	memcpy(&uuid->data[8], pool + used, 8);
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;	/* variant 10 */
	used += 8;
}

UDB_FUNCTION(udb_generate_uuidv7);

/* generate_uuidv7() returns uuid */
Datum
udb_generate_uuidv7(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));

	udb_uuid_v7(uuid);
	PG_RETURN_UUID_P(uuid);
}
