/*-------------------------------------------------------------------------
 *
 * row.h
 *	  A lease's row: finding it, and writing it without the executor.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_LEASE_ROW_H
#define UDB_LEASE_ROW_H

#include "postgres.h"
#include "access/tableam.h"
#include "storage/itemptr.h"
#include "storage/lock.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "lease/lease.h"

/* The newest version of a row, committed or not. */
typedef struct UdbLeaseRow
{
	ItemPointerData tid;
	bool		same_owner;		/* as in UdbLeaseWho */
	UdbLease	lease;

	/*
	 * Valid if another transaction, still in progress, has written this
	 * version or one that replaces it.
	 */
	TransactionId busy;
} UdbLeaseRow;

extern void udb_lease_row_init(void);

/* Open the table for reading and writing. */
extern Relation udb_lease_open(void);

/* The newest version of the lease's row; false if there is none. */
extern bool udb_lease_find(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row);

/*
 * The committed version, or this transaction's own; false if there is none.
 * Never busy.
 */
extern bool udb_lease_find_committed(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row);

/* Insert the first version.  The caller makes sure that there is none. */
extern void udb_lease_insert(Relation rel, const UdbLeaseWho *who, const UdbLease *lease);

/*
 * Replace the version at *tid, which udb_lease_find() has returned as not busy.
 * The caller has the lease's lock, so that no other function is doing the same.
 * TM_Updated: somebody has replaced it since.  TM_BeingModified: somebody who
 * does not use the functions has locked it; with "wait" that is waited for.
 */
extern TM_Result udb_lease_update(Relation rel, const UdbLeaseWho *who, ItemPointer tid,
								  const UdbLease *lease, bool wait);

/*
 * The heavyweight lock of a lease.  Whoever writes the row has it, in mode
 * ExclusiveLock to start a term and in ShareUpdateExclusiveLock for the rest;
 * neither is held for longer than that, except when the row is new.  Whoever has
 * asserted the lease holds RowShareLock, until the end of its transaction.
 */
extern LOCKTAG udb_lease_locktag(const UdbLeaseWho *who);

#endif							/* UDB_LEASE_ROW_H */
