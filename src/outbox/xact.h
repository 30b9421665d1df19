/*-------------------------------------------------------------------------
 *
 * xact.h
 *	  What the outbox does at the end of a transaction.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_XACT_H
#define UDB_OUTBOX_XACT_H

#include "outbox/state.h"

extern void udb_outbox_xact_init(void);

/* At commit, wake every session of this database that waits for events. */
extern void udb_outbox_wake_all_at_commit(UdbOutbox *outbox);

#endif							/* UDB_OUTBOX_XACT_H */
