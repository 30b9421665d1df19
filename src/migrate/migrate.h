/*-------------------------------------------------------------------------
 *
 * migrate.h
 *	  Migrations: steps of a component's schema, applied once and in order.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_MIGRATE_H
#define UDB_MIGRATE_H

#include "postgres.h"
#include "fmgr.h"
#include "utils/uuid.h"

#include "common/compat.h"

/* A registered step; palloc'd. */
typedef struct UdbMigration
{
	char	   *component;
	int32		version;
	char	   *name;
	char	   *sql;
	char	   *verify_sql;		/* or NULL */
	bool		transactional;
} UdbMigration;

/* What a pending step is, or that there is none. */
extern bool udb_migration_next(const char *component, bool has_target, int32 target,
							   UdbMigration *step);

/* Throw if this component cannot be migrated. */
extern void udb_migration_check(const char *component);

/* Move the stamp and write the history, in the current transaction. */
extern void udb_migration_stamp(const UdbMigration *step, bool healed, int64 usecs,
								const char *role);

/*
 * The ledger, written in the current transaction.  A run that was begun holds a
 * lock of the session, by which others know that it has not been cut off; the
 * caller releases it after the run's end, or its beginning's failure.
 */
extern void udb_ledger_begin(const char *component, bool has_target, int32 target,
							 pg_uuid_t *run_id);
extern void udb_ledger_record(const pg_uuid_t *run_id, int32 index, const UdbMigration *step,
							  const char *status, const char *error);
extern void udb_ledger_finish(const pg_uuid_t *run_id, const char *state, const char *error);

/* End the runs of this component whose sessions have gone without doing so. */
extern void udb_ledger_finish_lost(const char *component);

extern void udb_ledger_lock(const pg_uuid_t *run_id);
extern void udb_ledger_unlock(const pg_uuid_t *run_id);

/*
 * Run statements one by one outside of transactions, in a background worker, as
 * the current user.  Returns NULL, or the error, palloc'd, whose elevel is that
 * of the worker.  The caller must hold no snapshot.
 */
extern ErrorData *udb_migration_run_alone(const char *sql);

UDB_NORETURN extern UDB_EXPORT void udb_migration_alone_main(Datum arg);

#endif							/* UDB_MIGRATE_H */
