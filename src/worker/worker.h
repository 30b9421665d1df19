/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  Background workers: the launcher, and one worker a database.
 *
 * See README.md in this folder for who starts whom and when.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_WORKER_H
#define UDB_WORKER_H

#include "postgres.h"
#include "fmgr.h"
#include "datatype/timestamp.h"

#include "common/compat.h"

/* Call while being preloaded. */
extern void udb_worker_init(void);

/* Entry points of the processes. */
UDB_NORETURN extern UDB_EXPORT void udb_launcher_main(Datum arg);
UDB_NORETURN extern UDB_EXPORT void udb_database_worker_main(Datum arg);

/*
 * A job of a worker.  run() is called inside a transaction and returns how
 * much it has changed; unless that is 0, it is called again in another
 * transaction, when the other jobs have had their turn.  A job that is a
 * function in SQL has the query in "sql" instead, which returns that number and
 * is run as the extension's owner.  The other callbacks may be NULL, run outside
 * of transactions and must not throw.
 */
typedef struct UdbJob
{
	const char *name;
	int		   *interval;		/* setting, in seconds: -1 udb.worker_interval, 0 only when due */
	int64		(*run) (void);
	const char *sql;
	bool		once;			/* one transaction does all that there is to do */
	void		(*committed) (void);	/* after each commit of run() */
	TimestampTz (*due) (void);	/* at each wake-up: when there is work, DT_NOEND if none */

	/* owned by the loop */
	TimestampTz running;		/* start of the run that has more to do, or 0 */
	TimestampTz next;			/* when to run it in any case */
	TimestampTz not_before;		/* no sooner, after an error */
	int			failures;		/* in a row */
	struct _SPI_plan *plan;		/* of "sql" */
} UdbJob;

/*
 * Run jobs until the process is told to stop, or "alive", asked inside each
 * transaction before anything else, says no.
 */
extern void udb_worker_loop(UdbJob *jobs, int njobs, bool (*alive)(void));

/* The jobs of a database worker. */
extern UdbJob *udb_sweeps(int *njobs);

/* DROP DATABASE and the like. */
extern void udb_worker_hook_init(void);

#endif							/* UDB_WORKER_H */
