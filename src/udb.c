/*-------------------------------------------------------------------------
 *
 * udb.c
 *	  Module entry: load-time check and the initialization of each part.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "common/compat.h"
#include "common/clock.h"
#include "common/database.h"
#include "common/debugpoint.h"
#include "common/guc.h"
#include "common/shmem.h"
#include "lease/lease.h"
#include "outbox/outbox.h"
#include "queue/projection.h"
#include "queue/queue.h"
#include "saga/runner.h"
#include "reactor/reactor.h"
#include "queue/schedule.h"
#include "token/token.h"
#include "worker/status.h"
#include "worker/worker.h"

UDB_MODULE_MAGIC(UDB_NAME, UDB_VERSION);

UDB_EXPORT void _PG_init(void);

void
_PG_init(void)
{
	/*
	 * Everything rests on shared memory that exists before the first backend
	 * does, so there is no way to work without being preloaded.
	 */
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("udb must be loaded via shared_preload_libraries"),
				 errhint("Add this line to postgresql.conf and restart the server: shared_preload_libraries = 'udb'")));

	/* it has settings with hooks, and guc_init closes the prefix */
	udb_token_init();
	udb_guc_init();
	udb_debug_point_init();
	udb_shmem_init();
	udb_database_init();
	udb_clock_init();
	udb_lease_init();
	udb_outbox_init();
	udb_saga_init();
	udb_status_init();
	udb_queue_init();
	udb_reactor_init();
	udb_projection_init();
	udb_schedule_init();
	udb_worker_init();
}

UDB_FUNCTION(udb_version);

/* version() returns text: the version of the loaded library. */
Datum
udb_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(UDB_VERSION));
}
