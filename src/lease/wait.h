/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  Sessions that wait for a lease, and how they are woken.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_LEASE_WAIT_H
#define UDB_LEASE_WAIT_H

#include "postgres.h"

#include "lease/lease.h"

extern void udb_lease_wait_init(void);

/*
 * The transaction is about to change this lease, or to keep others from it:
 * wake who waits for it when that is over.
 */
extern void udb_lease_touch(const UdbLeaseWho *who);

/* Wake who waits for the lease and comes first.  Does not throw. */
extern void udb_lease_wake(const UdbLeaseWho *who);

/* How many sessions wait for it. */
extern int	udb_lease_waiters(const UdbLeaseWho *who);

#endif							/* UDB_LEASE_WAIT_H */
