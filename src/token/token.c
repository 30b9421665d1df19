/*-------------------------------------------------------------------------
 *
 * token.c
 *	  The tokens' entry for _PG_init.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "token/commit.h"
#include "token/fence.h"
#include "token/tasks.h"
#include "token/token.h"
#include "token/waiter.h"

void
udb_token_init(void)
{
	udb_waiter_init();
	udb_tasks_init();
	udb_commit_init();
	udb_fence_init();
}
