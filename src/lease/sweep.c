/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Sweeps that must not run twice at once.
 *
 * A sweep can be called by anybody who may, any number of times, while the
 * worker does the same.  Those that would only get in each other's way take a
 * lease first.  Its time to live is 0: the lease is free again when it is
 * there to be seen, so what keeps others off is its row, which this
 * transaction has locked by writing it; trying to take such a lease fails at
 * once.  That ends with the transaction, however it ends, so that nothing has
 * to be released, and no lease is left behind by a crash.
 *
 * And as it is a lease, an administrator can take it to keep a sweep from
 * running for a while.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "lease/lease.h"
#include "lease/sweep.h"

bool
udb_sweep_once(const char *name)
{
	UdbLeaseWho who;
	UdbLease	lease;
	char	   *lease_name = psprintf("udb.sweep.%s", name);
	char		owner[64];

	/* as %c in log_line_prefix: never another transaction's that could be waited for */
	snprintf(owner, sizeof(owner), "%lx.%x", (long) MyStartTime, MyProcPid);
	udb_lease_who(&who, lease_name, strlen(lease_name), owner, strlen(owner));
	return udb_lease_try(&who, 0, &lease) == UDB_LEASE_GOT;
}

UDB_FUNCTION(udb_sweep_once_sql);

/* _sweep_once(sweep) returns boolean */
Datum
udb_sweep_once_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(udb_sweep_once(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}
