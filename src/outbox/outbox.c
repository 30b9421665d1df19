/*-------------------------------------------------------------------------
 *
 * outbox.c
 *	  The outbox's entry for _PG_init.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "outbox/consumer.h"
#include "outbox/outbox.h"
#include "outbox/state.h"
#include "outbox/xact.h"

void
udb_outbox_init(void)
{
	udb_outbox_state_init();
	udb_consumer_cache_init();
	udb_outbox_xact_init();
}
