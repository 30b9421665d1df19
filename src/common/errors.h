/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  SQLSTATEs of class UD, in one table.
 *
 * The table generates the ERRCODE_UDB_* macros, the view udb.error_codes and,
 * through that view, a test of README's table.  A standard SQLSTATE is used
 * wherever one fits; class UD holds only what has no standard name.  The SQL
 * standard leaves classes that begin with I to Z to implementations.
 *
 * Codes are never reused or renumbered: applications branch on them.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_ERRORS_H
#define UDB_ERRORS_H

#include "postgres.h"

/* X(symbol, five-character code, condition name, description) */
#define UDB_ERROR_MAP(X) \
	X(EVENT_ID_REUSED, "UD001", "event_id_reused", \
	  "an event with this event_id and different content exists") \
	X(POSITION_DROPPED, "UD002", "position_dropped", \
	  "events right after this position have been dropped by retention") \
	X(POSITION_UNKNOWN, "UD003", "position_unknown", \
	  "this position has never been handed out, as after a restore of an older dump") \
	X(POSITION_NOT_STABLE, "UD004", "position_not_stable", \
	  "this position is above the stable horizon, so events below it can still appear") \
	X(FEED_NOT_SERVED, "UD005", "feed_not_served", \
	  "the feed is not served on a standby") \
	X(FEED_NEEDS_FRESH_SNAPSHOT, "UD006", "feed_needs_fresh_snapshot", \
	  "the feed cannot be read with a fixed snapshot (REPEATABLE READ, SERIALIZABLE)") \
	X(EVENT_NOT_FOUND, "UD007", "event_not_found", \
	  "there is no event at this position") \
	X(DUPLICATE_EVENT_ID, "UD008", "duplicate_event_id", \
	  "the same event_id is given twice in one call") \
	X(TOO_MANY_DATABASES, "UD009", "too_many_databases", \
	  "more databases use udb than udb.max_databases allows") \
	X(TOKEN_OTHER_BACKEND, "UD020", "token_other_backend", \
	  "the token is of another kind of store") \
	X(TOKEN_OTHER_CLUSTER, "UD021", "token_other_cluster", \
	  "the token is from a PostgreSQL cluster with another system identifier") \
	X(TOKEN_DIVERGED, "UD022", "token_diverged", \
	  "the token's write is not in this server's history, as after a failover or restore that lost it") \
	X(TOKEN_FUTURE, "UD023", "token_future", \
	  "the token is ahead of what this primary has written") \
	X(TOKEN_NEWER_TIMELINE, "UD024", "token_newer_timeline", \
	  "the token is from a later timeline than this primary, which was left behind by a failover") \
	X(TOKEN_UNCERTAIN, "UD025", "token_uncertain", \
	  "whether this asynchronous write has survived a restart of its server cannot be known") \
	X(FENCE_TIMED_OUT, "UD026", "fence_timed_out", \
	  "the token was not reached in time") \
	X(FENCE_HOLDS_SNAPSHOT, "UD027", "fence_holds_snapshot", \
	  "a fence cannot wait, or would be of no use, with the snapshot that is held") \
	X(FENCE_BYPASSED, "UD028", "fence_bypassed", \
	  "udb.fence was set, or wait_for() called, in a way in which nothing would wait") \
	X(COMMIT_NOT_YET, "UD029", "commit_not_yet", \
	  "this transaction has written, and its position exists only after it has committed") \
	X(LEASE_LOST, "UD030", "lease_lost", \
	  "the lease is not held by this owner with this fencing token") \
	X(MIGRATION_CHANGED, "UD031", "migration_changed", \
	  "a migration step has been applied with other SQL than is registered") \
	X(SCHEMA_NOT_CURRENT, "UD032", "schema_not_current", \
	  "a component's schema has not been migrated to the last registered version") \
	X(MIGRATION_NOT_VERIFIED, "UD033", "migration_not_verified", \
	  "a migration step has run, but its verify query is not true") \
	X(ORDERING_NEEDS_FRESH_SNAPSHOT, "UD040", "ordering_needs_fresh_snapshot", \
	  "jobs with an ordering key cannot be sent or finished with a fixed snapshot (REPEATABLE READ, SERIALIZABLE)")

#define UDB_SQLSTATE(s) MAKE_SQLSTATE((s)[0], (s)[1], (s)[2], (s)[3], (s)[4])

/* ERRCODE_UDB_<symbol>: not enum constants, as (s)[0] is no constant expression in C99 */
#define UDB_ERROR_ENUM(sym, code, name, doc) UDB_ERROR_##sym,
typedef enum UdbErrorIndex
{
	UDB_ERROR_MAP(UDB_ERROR_ENUM)
	UDB_ERROR_COUNT
} UdbErrorIndex;
#undef UDB_ERROR_ENUM

typedef struct UdbErrorCode
{
	const char *code;			/* SQLSTATE */
	const char *name;			/* condition name */
	const char *doc;			/* what it means */
} UdbErrorCode;

extern const UdbErrorCode udb_error_codes[UDB_ERROR_COUNT];

/* for use inside errcode(): udb_errcode(EVENT_ID_REUSED) */
#define udb_errcode(sym) UDB_SQLSTATE(udb_error_codes[UDB_ERROR_##sym].code)

#endif							/* UDB_ERRORS_H */
