/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  Claiming jobs, or looking whether there are any.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_CLAIM_H
#define UDB_QUEUE_CLAIM_H

#include "postgres.h"
#include "datatype/timestamp.h"

/*
 * Whether a claim would get something now; if not, *next is when one could without
 * anybody doing anything, DT_NOEND if never.
 */
extern bool udb_queue_has_jobs(const text *queue, TimestampTz *next);

#endif							/* UDB_QUEUE_CLAIM_H */
