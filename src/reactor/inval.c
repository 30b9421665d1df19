/*-------------------------------------------------------------------------
 *
 * inval.c
 *	  How sessions learn that a registry has changed.
 *
 * By the server's own invalidation messages, as for catalogs.  Two empty tables
 * that nobody reads stand for the registries: a message about the first says
 * that some registry has another watermark, one about the second that the
 * tables were written past the functions.  Messages travel with the commit
 * record, so they come with COMMIT PREPARED and in replay on a standby as well,
 * are sent after the commit is visible and before it is confirmed, and are
 * dropped with the transaction or subtransaction that rolls back.  When a
 * session has fallen behind so far that messages were lost, the server says so.
 *
 * One message a transaction is enough, however much it writes: each costs room
 * in the commit record, and in the queue that all sessions of the server share.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "utils/inval.h"

#include "common/catalog.h"
#include "reactor/inval.h"

uint64		udb_registry_generation = 1;
uint64		udb_registry_resets = 1;

static UdbRelation changed_table = {"_registry_changed"};
static UdbRelation reset_table = {"_registry_reset"};

/* whose messages this session acts on; udb_relation_oid() forgets its own copy */
static Oid	changed_oid = InvalidOid;
static Oid	reset_oid = InvalidOid;

/* the subtransaction that has sent the message, if this transaction has */
static SubTransactionId sent_in = InvalidSubTransactionId;

/* Only counts: what is remembered may be in use further up the stack. */
static void
relcache_callback(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || relid == reset_oid)
		udb_registry_resets++;
	else if (relid == changed_oid)
		udb_registry_generation++;
}

void
udb_registry_listen(void)
{
	static bool registered = false;
	Oid			changed = udb_relation_oid(&changed_table);
	Oid			reset = udb_relation_oid(&reset_table);

	if (unlikely(!registered))
	{
		CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
		registered = true;
	}
	/* those of an extension that was created anew */
	if (unlikely(changed != changed_oid || reset != reset_oid))
	{
		changed_oid = changed;
		reset_oid = reset;
		udb_registry_resets++;
	}
}

void
udb_registry_changed(void)
{
	/* this session's own doubts need no message */
	udb_registry_generation++;
	if (sent_in != InvalidSubTransactionId)
		return;
	CacheInvalidateRelcacheByRelid(udb_relation_oid(&changed_table));
	sent_in = GetCurrentSubTransactionId();
}

void
udb_registry_reset(void)
{
	udb_registry_resets++;
	CacheInvalidateRelcacheByRelid(udb_relation_oid(&reset_table));
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			sent_in = InvalidSubTransactionId;
			break;
		default:
			break;
	}
}

/* The message goes with its subtransaction: up to the parent, or away. */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (sent_in != subid)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		sent_in = parent;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		sent_in = InvalidSubTransactionId;
}

void
udb_registry_inval_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
