/*-------------------------------------------------------------------------
 *
 * database.c
 *	  The worker of one database.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"

#include "common/database.h"
#include "common/guc.h"
#include "common/locktag.h"
#include "worker/status.h"
#include "worker/worker.h"

/*
 * Whether this database still has the extension.  It may be another one than
 * last time.
 */
static bool
extension_exists(void)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_EXTENSION, 0);
	Oid			extension;

	/* until the end of the transaction: who drops it waits for that, and we for him */
	(void) LockAcquire(&tag, ShareLock, false, false);
	AcceptInvalidationMessages();
	extension = get_extension_oid(UDB_NAME, true);
	if (OidIsValid(extension))
		udb_status_attach(udb_database_slot(), extension);
	return OidIsValid(extension);
}

static bool
has_to_leave(void)
{
	return !udb_worker_enabled || udb_database_worker_asked(udb_database_slot());
}

static void
worker_exit(int code, Datum arg)
{
	udb_database_worker_stopped(DatumGetInt32(arg));
	udb_database_wake_launcher();
}

void
udb_database_worker_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);
	UdbJob	   *jobs;
	int			njobs;
	int			slot = -1;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);

	/* a reload between our fork and the handler above went unnoticed */
	ProcessConfigFile(PGC_SIGHUP);

	/* what sweeps do can be done again, so none of it is worth a flush */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("statement_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);

	/* a job that somebody's lock is in the way of is tried again, the others go on */
	SetConfigOption("lock_timeout", "10s", PGC_USERSET, PGC_S_OVERRIDE);

	StartTransactionCommand();
	if (OidIsValid(get_extension_oid(UDB_NAME, true)))
		slot = udb_database_slot();
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);

	if (slot >= 0)
	{
		before_shmem_exit(worker_exit, Int32GetDatum(slot));
		if (!udb_database_worker_started(slot))
			proc_exit(0);

		udb_database_wake_launcher();
		jobs = udb_sweeps(&njobs);
		if (udb_worker_loop(jobs, njobs, extension_exists, has_to_leave))
			udb_database_worker_left(slot);
		else
			udb_database_worker_finished(slot);
	}
	else if ((slot = udb_database_find(dboid)) >= 0)
		udb_database_worker_finished(slot);
	proc_exit(0);
}
