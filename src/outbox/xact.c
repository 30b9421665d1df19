/*-------------------------------------------------------------------------
 *
 * xact.c
 *	  What the outbox does at the end of a transaction.
 *
 * Order, in xact.c of PostgreSQL 15 to 18: CommitTransaction calls PRE_COMMIT
 * before the commit record is written, and COMMIT after ProcArrayEndTransaction,
 * so that the slot is cleared only when any new snapshot sees the transaction.
 * AbortTransaction is alike.  The callbacks after commit neither throw nor
 * allocate: everything they touch exists since server start.
 *
 * The callbacks are registered in the postmaster and inherited, so that no
 * backend has to allocate them at an awkward moment.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"

#include "common/prepared.h"
#include "outbox/horizon.h"
#include "outbox/store.h"
#include "outbox/xact.h"

/* whose waiting sessions are to look again if this transaction commits */
static UdbOutbox *wake_all = NULL;

void
udb_outbox_wake_all_at_commit(UdbOutbox *outbox)
{
	wake_all = outbox;
}

static void
end_of_transaction(bool committed)
{
	udb_store_forget();
	if (udb_horizon_registered())
		udb_horizon_clear();
	if (wake_all != NULL && committed)
		udb_horizon_wake_all(wake_all);
	wake_all = NULL;
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			udb_store_close();
			break;
		case XACT_EVENT_PRE_PREPARE:
			udb_store_close();
			if (udb_horizon_registered())
				udb_horizon_prepare();
			break;
		case XACT_EVENT_COMMIT:
			/* before the slot is cleared: see udb_horizon_durable */
			udb_horizon_committed(XactLastCommitEnd);
			end_of_transaction(true);
			break;
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			end_of_transaction(false);
			break;
		default: /* parallel workers do not enqueue */
			break;
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		udb_store_subabort();
}

/*
 * COMMIT PREPARED and ROLLBACK PREPARED end a transaction without its
 * callbacks, so wake here whom its end concerns.
 */
static void
prepared_ended(bool committed)
{
	udb_horizon_prepared_ended();
}

void
udb_outbox_xact_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
	udb_on_prepared_end(prepared_ended);
}
