/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  SHA-256, as hexadecimal digits.
 *
 * PostgreSQL's own interface to it, which is OpenSSL's implementation where
 * the server was built with that.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "miscadmin.h"

#include "common/digest.h"

/* so much at a time, so that a long one can be cancelled */
#define CHUNK (1024 * 1024)

struct UdbDigest
{
	pg_cryptohash_ctx *context;
};

static void
check(UdbDigest *digest, int result)
{
	if (result < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute SHA-256: %s", pg_cryptohash_error(digest->context))));
}

UdbDigest *
udb_digest_create(void)
{
	UdbDigest  *digest = palloc(sizeof(UdbDigest));

	digest->context = pg_cryptohash_create(PG_SHA256);
	if (digest->context == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return digest;
}

void
udb_digest_free(UdbDigest *digest)
{
	pg_cryptohash_free(digest->context);
	pfree(digest);
}

void
udb_digest_start(UdbDigest *digest)
{
	check(digest, pg_cryptohash_init(digest->context));
}

void
udb_digest_add(UdbDigest *digest, const char *data, Size len)
{
	while (len > 0)
	{
		Size		now = Min(len, CHUNK);

		CHECK_FOR_INTERRUPTS();
		check(digest, pg_cryptohash_update(digest->context, (const uint8 *) data, now));
		data += now;
		len -= now;
	}
}

void
udb_digest_finish(UdbDigest *digest, char *hex)
{
	static const char digits[] = "0123456789abcdef";
	uint8		raw[PG_SHA256_DIGEST_LENGTH];

	check(digest, pg_cryptohash_final(digest->context, raw, sizeof(raw)));
	for (int i = 0; i < PG_SHA256_DIGEST_LENGTH; i++)
	{
		*hex++ = digits[raw[i] >> 4];
		*hex++ = digits[raw[i] & 15];
	}
	*hex = '\0';
}
