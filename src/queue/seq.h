/*-------------------------------------------------------------------------
 *
 * seq.h
 *	  Numbers of jobs, and claim tokens.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_SEQ_H
#define UDB_QUEUE_SEQ_H

#include "postgres.h"

extern void udb_job_seq_init(void);

/* The next number.  Until the transaction ends, udb_job_seq_settled() is not above it. */
extern int64 udb_job_seq_next(void);

/*
 * All numbers below this have entered the ready index, or never will.  Holds for a
 * scan that starts after the call.
 */
extern int64 udb_job_seq_settled(void);

/* A token greater than any before. */
extern int64 udb_claim_token_next(void);

/* The transaction has ended, or is prepared.  Does not throw. */
extern void udb_job_seq_xact_end(void);

#endif							/* UDB_QUEUE_SEQ_H */
