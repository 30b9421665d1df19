/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  Sweeps that must not run twice at once.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_LEASE_SWEEP_H
#define UDB_LEASE_SWEEP_H

#include "postgres.h"

/*
 * Keep everybody else from this sweep until the end of the transaction, by the
 * lease "udb.sweep.<name>".  False, without waiting, if another transaction has
 * done the same, or if somebody holds that lease.  Call it when there is work
 * to do, not before: it writes.
 */
extern bool udb_sweep_once(const char *name);

#endif							/* UDB_LEASE_SWEEP_H */
