/*-------------------------------------------------------------------------
 *
 * digest.h
 *	  SHA-256, as hexadecimal digits.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_DIGEST_H
#define UDB_DIGEST_H

#include "postgres.h"

#define UDB_DIGEST_HEX 64 /* digits, without the terminating zero */

typedef struct UdbDigest UdbDigest;

/*
 * One can be used for many digests, one after the other.  It belongs to the
 * current resource owner, which lets go of it after an error.
 */
extern UdbDigest *udb_digest_create(void);
extern void udb_digest_free(UdbDigest *digest);

extern void udb_digest_start(UdbDigest *digest);
extern void udb_digest_add(UdbDigest *digest, const char *data, Size len);

/* Lower-case digits and a zero: hex has UDB_DIGEST_HEX + 1 bytes. */
extern void udb_digest_finish(UdbDigest *digest, char *hex);

#endif							/* UDB_DIGEST_H */
