/*-------------------------------------------------------------------------
 *
 * reactor.c
 *	  The reactor's entry for _PG_init.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "reactor/inval.h"
#include "reactor/reactor.h"
#include "reactor/wake.h"

void
udb_reactor_init(void)
{
	udb_registry_inval_init();
	udb_reactor_wake_init();
}
