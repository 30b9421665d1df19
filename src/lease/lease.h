/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  Advisory leases: exclusive for a time, with fencing tokens.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_LEASE_H
#define UDB_LEASE_H

#include "postgres.h"
#include "datatype/timestamp.h"

#define UDB_LEASE_MAX_NAME 255 /* bytes, of a lease and of an owner */

/* Which lease, and for whom.  Make one with udb_lease_who(). */
typedef struct UdbLeaseWho
{
	char		name[UDB_LEASE_MAX_NAME + 1];
	char		owner[UDB_LEASE_MAX_NAME + 1];
	uint64		key;			/* hash of the name */
} UdbLeaseWho;

/* A lease as it was written. */
typedef struct UdbLease
{
	int64		fencing_token;
	TimestampTz acquired_at;
	TimestampTz expires_at;
} UdbLease;

typedef enum UdbLeaseResult
{
	UDB_LEASE_GOT,
	UDB_LEASE_HELD, /* by another owner, until lease->expires_at */
	UDB_LEASE_BUSY	/* a transaction in progress changes or has asserted it */
} UdbLeaseResult;

/* Call while being preloaded. */
extern void udb_lease_init(void);

/* Fill in *who; throws if a name is empty or too long. */
extern void udb_lease_who(UdbLeaseWho *who, const char *name, int name_len, const char *owner,
						  int owner_len);

/*
 * Take a lease that is free, or extend it if the owner has it, for this many
 * microseconds from now.  Does not wait for other owners; may wait for another
 * transaction of the same owner.  Throws serialization_failure where the
 * transaction's snapshot is too old to write the row.
 */
extern UdbLeaseResult udb_lease_try(const UdbLeaseWho *who, int64 ttl, UdbLease *lease);

/* The same, waiting up to so many microseconds.  False: not got in time. */
extern bool udb_lease_acquire(const UdbLeaseWho *who, int64 ttl, int64 wait, UdbLease *lease);

/* Extend a lease; false if the owner does not hold it with this token. */
extern bool udb_lease_renew(const UdbLeaseWho *who, int64 fencing_token, int64 ttl);

/* Let it expire now; false if somebody else has it, or nobody ever had. */
extern bool udb_lease_release(const UdbLeaseWho *who);

/*
 * Throw UD030 unless the owner holds the lease with this token, and keep
 * others from taking it until the end of the transaction.
 */
extern void udb_lease_assert(const UdbLeaseWho *who, int64 fencing_token);

#endif							/* UDB_LEASE_H */
