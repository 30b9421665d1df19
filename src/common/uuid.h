/*-------------------------------------------------------------------------
 *
 * uuid.h
 *	  Time-ordered UUIDs (version 7).
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_UUID_H
#define UDB_UUID_H

#include "postgres.h"
#include "utils/uuid.h"

/*
 * Fill in a UUID that sorts after every one this backend made before, and by
 * time among backends.  Throws if the system has no randomness.
 */
extern void udb_uuid_v7(pg_uuid_t *uuid);

#endif							/* UDB_UUID_H */
