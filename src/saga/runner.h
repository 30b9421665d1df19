/*-------------------------------------------------------------------------
 *
 * runner.h
 *	  When the worker looks after sagas.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_SAGA_RUNNER_H
#define UDB_SAGA_RUNNER_H

#include "postgres.h"
#include "datatype/timestamp.h"

/* Call while being preloaded. */
extern void udb_saga_init(void);

/* The worker's job: see UdbJob. */
extern int64 udb_sagas_run(void);
extern TimestampTz udb_sagas_due(void);

#endif							/* UDB_SAGA_RUNNER_H */
