/*-------------------------------------------------------------------------
 *
 * term.c
 *	  Taking, extending, ending and asserting leases.
 *
 * Terms: a lease is held in terms.  A term starts when the lease is taken while
 * nobody holds it, and ends when it expires, which releasing makes it do.  The
 * fencing token counts the terms.  Extending a lease changes neither the token
 * nor acquired_at.
 *
 * Locking: whoever writes the row has the lease's lock at that moment, and
 * replaces the version that it has looked at, or looks again.  A new term must
 * also not start while a transaction in progress has asserted the last one, even
 * if that has expired by now.  So who asserts takes a RowShareLock until the end
 * of its transaction, and looks at the row after that; and who starts a term
 * takes an ExclusiveLock, without waiting.  That is kept only when the row is
 * new, as two transactions could otherwise both insert it.  Extending takes a
 * ShareUpdateExclusiveLock, so that it may go on while the lease is asserted.
 *
 * Durability: the start of a term is flushed whatever synchronous_commit says.
 * If it were lost in a crash, its token would be given to somebody else.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/table.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/timestamp.h"

#include "common/clock.h"
#include "common/debugpoint.h"
#include "common/errors.h"
#include "lease/row.h"
#include "lease/wait.h"

/* What came of one look at the row */
typedef enum Outcome
{
	DONE,
	HELD,
	BUSY,
	LOOK_AGAIN
} Outcome;

static void
copy_name(char *to, const char *name, int len, const char *what)
{
	if (len == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("%s must not be empty", what)));
	if (len > UDB_LEASE_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG), errmsg("%s of %d bytes is too long", what, len),
				 errdetail("The limit is %d bytes.", UDB_LEASE_MAX_NAME)));
	memcpy(to, name, len);
	to[len] = '\0';
}

void
udb_lease_who(UdbLeaseWho *who, const char *name, int name_len, const char *owner, int owner_len)
{
	copy_name(who->name, name, name_len, "lease name");
	copy_name(who->owner, owner, owner_len, "owner id");
	who->key = hash_bytes_extended((const unsigned char *) name, name_len, 0);
}

/*
 * The time, as far as this row is concerned.  After a restart the clock may be
 * behind what it was when the term started.
 */
static TimestampTz
row_now(const UdbLeaseRow *row)
{
	return Max(udb_clock_now(), row->lease.acquired_at);
}

/* Wait for the transaction, of the same owner, that is changing the row. */
static void
wait_for_owner(const UdbLeaseRow *row)
{
	XactLockTableWait(row->busy, NULL, NULL, XLTW_None);
}

/* Insert the row of a lease that nobody has ever taken. */
static Outcome
first_term(Relation rel, const UdbLeaseWho *who, int64 ttl, UdbLease *lease)
{
	LOCKTAG		tag = udb_lease_locktag(who);
	UdbLeaseRow row;

	udb_lease_touch(who);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return BUSY;
	UDB_DEBUG_POINT("lease-first-term");

	/*
	 * Whoever has inserted it had the lock until it committed, so that now it
	 * can be seen.
	 */
	if (udb_lease_find(rel, who, &row))
	{
		LockRelease(&tag, ExclusiveLock, false);
		udb_lease_wake(who);
		return LOOK_AGAIN;
	}
	lease->fencing_token = 1;
	lease->acquired_at = udb_clock_now();
	lease->expires_at = lease->acquired_at + ttl;
	udb_lease_insert(rel, who, lease);
	ForceSyncCommit();
	return DONE;
}

/* Start a term of a lease that has expired. */
static Outcome
next_term(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row, TimestampTz now, int64 ttl,
		  UdbLease *lease)
{
	LOCKTAG		tag = udb_lease_locktag(who);
	TM_Result	result;

	udb_lease_touch(who);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return BUSY;
	UDB_DEBUG_POINT("lease-next-term");
	lease->fencing_token = row->lease.fencing_token + 1;
	lease->acquired_at = now;
	lease->expires_at = now + ttl;
	result = udb_lease_update(rel, who, &row->tid, lease, false);
	LockRelease(&tag, ExclusiveLock, false);
	if (result == TM_Ok)
	{
		ForceSyncCommit();
		return DONE;
	}
	udb_lease_wake(who);
	return result == TM_BeingModified ? BUSY : LOOK_AGAIN;
}

/*
 * Let the owner's lease expire this long from now.  *wait starts as false, and
 * becomes true when the row is found to be locked: then that is waited for.
 * The lease's lock is not, for longer than somebody else takes to write: the
 * row is not new.
 */
static Outcome
set_expiry(Relation rel, const UdbLeaseWho *who, UdbLeaseRow *row, TimestampTz now, int64 ttl,
		   bool *wait)
{
	LOCKTAG		tag = udb_lease_locktag(who);
	TM_Result	result;

	row->lease.expires_at = now + ttl;
	udb_lease_touch(who);
	(void) LockAcquire(&tag, ShareUpdateExclusiveLock, false, false);
	result = udb_lease_update(rel, who, &row->tid, &row->lease, *wait);
	LockRelease(&tag, ShareUpdateExclusiveLock, false);
	if (result != TM_Ok)
	{
		udb_lease_wake(who);
		*wait = result == TM_BeingModified;
		return LOOK_AGAIN;
	}

	/* a row that was locked for longer than that: the lease is over again */
	return ttl > 0 && udb_clock_now() >= row->lease.expires_at ? LOOK_AGAIN : DONE;
}

static Outcome
try_once(Relation rel, const UdbLeaseWho *who, int64 ttl, UdbLease *lease, bool *wait)
{
	UdbLeaseRow row;
	TimestampTz now;
	Outcome		outcome;

	if (!udb_lease_find(rel, who, &row))
		return first_term(rel, who, ttl, lease);
	if (TransactionIdIsValid(row.busy))
	{
		if (!row.same_owner)
			return BUSY;
		wait_for_owner(&row);
		return LOOK_AGAIN;
	}
	now = row_now(&row);
	if (now >= row.lease.expires_at)
		return next_term(rel, who, &row, now, ttl, lease);
	if (row.same_owner)
		outcome = set_expiry(rel, who, &row, now, ttl, wait);
	else
		outcome = HELD;
	*lease = row.lease;
	return outcome;
}

UdbLeaseResult
udb_lease_try(const UdbLeaseWho *who, int64 ttl, UdbLease *lease)
{
	Relation	rel = udb_lease_open();
	bool		wait = false;
	Outcome		outcome;

	do
	{
		CHECK_FOR_INTERRUPTS();
		outcome = try_once(rel, who, ttl, lease, &wait);
	} while (outcome == LOOK_AGAIN);
	table_close(rel, outcome == DONE ? NoLock : RowExclusiveLock);
	if (outcome == DONE)
		return UDB_LEASE_GOT;
	return outcome == HELD ? UDB_LEASE_HELD : UDB_LEASE_BUSY;
}

/*
 * Change the expiry of a lease that the owner holds.  fencing_token 0 stands
 * for any.  False if it does not hold it; *expired tells if it had it last.
 */
static bool
change_expiry(const UdbLeaseWho *who, int64 fencing_token, int64 ttl, bool *expired)
{
	Relation	rel = udb_lease_open();
	bool		wait = false;
	Outcome		outcome = LOOK_AGAIN;

	*expired = false;
	while (outcome == LOOK_AGAIN)
	{
		UdbLeaseRow row;
		TimestampTz now;

		CHECK_FOR_INTERRUPTS();
		if (!udb_lease_find(rel, who, &row) || !row.same_owner ||
			(fencing_token != 0 && fencing_token != row.lease.fencing_token))
			break;
		if (TransactionIdIsValid(row.busy))
		{
			wait_for_owner(&row);
			continue;
		}
		now = row_now(&row);
		*expired = now >= row.lease.expires_at;
		if (*expired)
			break;
		outcome = set_expiry(rel, who, &row, now, ttl, &wait);
	}
	table_close(rel, outcome == DONE ? NoLock : RowExclusiveLock);
	return outcome == DONE;
}

bool
udb_lease_renew(const UdbLeaseWho *who, int64 fencing_token, int64 ttl)
{
	bool		expired;

	return fencing_token > 0 && change_expiry(who, fencing_token, ttl, &expired);
}

bool
udb_lease_release(const UdbLeaseWho *who)
{
	bool		expired;

	return change_expiry(who, 0, 0, &expired) || expired;
}

/* Whether the version makes the owner a holder with this token. */
static bool
holds(const UdbLeaseRow *row, int64 fencing_token)
{
	return row->same_owner && row->lease.fencing_token == fencing_token &&
		row_now(row) < row->lease.expires_at;
}

/* Throw UD030; row is NULL if there is none. */
static void
lease_lost(const UdbLeaseWho *who, int64 fencing_token, const UdbLeaseRow *row)
{
	const char *why;

	if (row == NULL)
		why = "It has never been acquired.";
	else if (!row->same_owner)
		why = "Another owner has it, or had it last.";
	else if (row->lease.fencing_token != fencing_token)
		why = psprintf("Its fencing token is " INT64_FORMAT ".", row->lease.fencing_token);
	else
		why = psprintf("It has expired at %s.", timestamptz_to_str(row->lease.expires_at));
	ereport(ERROR,
			(errcode(udb_errcode(LEASE_LOST)),
			 errmsg("lease \"%s\" is not held by owner \"%s\" with fencing token " INT64_FORMAT,
					who->name, who->owner, fencing_token),
			 errdetail_internal("%s", why)));
}

/* Throw UD030 unless the owner holds the lease with this token. */
static void
check_held(Relation rel, const UdbLeaseWho *who, int64 fencing_token)
{
	for (;;)
	{
		UdbLeaseRow row;
		UdbLeaseRow committed;

		CHECK_FOR_INTERRUPTS();
		if (!udb_lease_find(rel, who, &row))
			lease_lost(who, fencing_token, NULL);
		if (!TransactionIdIsValid(row.busy))
		{
			if (!holds(&row, fencing_token))
				lease_lost(who, fencing_token, &row);
			return;
		}

		/*
		 * The owner is extending it in another transaction.  That is no reason
		 * to wait, unless without it the lease has expired.
		 */
		if (!row.same_owner || row.lease.fencing_token != fencing_token)
			lease_lost(who, fencing_token, &row);
		if (udb_lease_find_committed(rel, who, &committed) && holds(&committed, fencing_token))
			return;
		wait_for_owner(&row);
	}
}

void
udb_lease_assert(const UdbLeaseWho *who, int64 fencing_token)
{
	Relation	rel = udb_lease_open();
	LOCKTAG		tag = udb_lease_locktag(who);

	/* without the lock first, so that who has lost it does not wait for it */
	check_held(rel, who, fencing_token);
	udb_lease_touch(who);
	(void) LockAcquire(&tag, RowShareLock, false, false);
	UDB_DEBUG_POINT("lease-asserted");
	check_held(rel, who, fencing_token);
	table_close(rel, NoLock);
}
