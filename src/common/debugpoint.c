/*-------------------------------------------------------------------------
 *
 * debugpoint.c
 *	  Named places at which a test can stop a backend.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "common/debugpoint.h"

void	  **udb_debug_point_hook = NULL;

void
udb_debug_point_init(void)
{
	udb_debug_point_hook = find_rendezvous_variable(UDB_DEBUG_POINT_VARIABLE);
}
