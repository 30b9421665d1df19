/*-------------------------------------------------------------------------
 *
 * database.h
 *	  One shared-memory slot for each database that uses udb.
 *
 * Parts keep their own arrays of udb_max_databases elements and index them by
 * slot number; the slot itself holds only what every part needs, which is who
 * the database is and how to wake its worker.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_DATABASE_H
#define UDB_DATABASE_H

#include "postgres.h"
#include "datatype/timestamp.h"

typedef struct UdbDatabase
{
	Oid			dboid;			/* InvalidOid: slot is free */
	int			worker_pid;		/* 0: no worker is running */
	int			worker_procno;	/* valid while worker_pid is not 0 */
	TimestampTz worker_started_at;	/* the same */
	bool		worker_wanted;	/* somebody has asked for a worker */
	bool		worker_expected;	/* there is one, or was until it failed */
	TimestampTz worker_hold_until;	/* the launcher shall not, until then */
} UdbDatabase;

extern void udb_database_init(void);

/*
 * This database's slot; claims one at the first call of a backend.  Throws
 * UD009 when all are taken.
 */
extern int	udb_database_slot(void);

/* A copy of slot i, or false when it is free. */
extern bool udb_database_get(int slot, UdbDatabase *copy);

/* The slot of a database, or -1. */
extern int	udb_database_find(Oid dboid);

/*
 * Wake the worker of a slot, or the launcher if none runs.  Takes no lock and
 * cannot throw, so that commit callbacks can call it.
 */
extern void udb_database_wake_worker(int slot);
extern bool udb_database_has_worker(int slot);

/*
 * For the launcher and the workers.  A worker that has started is told false
 * if there is one already, or if somebody needs the database for himself: it
 * has to leave.
 */
extern bool udb_database_worker_started(int slot);
extern void udb_database_worker_stopped(int slot);
extern void udb_database_worker_finished(int slot);
extern void udb_database_want_worker(int slot, bool wanted);
extern void udb_database_hold_worker(int slot, TimestampTz until);
extern bool udb_database_new_wanted(void);
extern void udb_database_launcher_started(void);
extern void udb_database_launcher_stopped(void);
extern void udb_database_wake_launcher(void);

#endif							/* UDB_DATABASE_H */
