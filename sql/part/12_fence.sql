-- Fences -----------------------------------------------------------------

-- token_reached(token): whether a query that starts now sees the write. Raises UD020 to UD024 for a
-- token that can never be reached here, UD027 in REPEATABLE READ and SERIALIZABLE.
CREATE FUNCTION udb.token_reached(token udb.token) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'udb_token_reached';
COMMENT ON FUNCTION udb.token_reached(udb.token) IS
	'Whether a query that starts now sees what the token stands for';

-- wait_for_token(token, timeout): wait until it is reached; false if it was not in time. Holds the
-- snapshot of its query, so it gives up with UD027 if replay waits for snapshots. The query that
-- calls it does not see the write, the next one does. Raises UD020 to UD024 and UD027.
CREATE FUNCTION udb.wait_for_token(token udb.token, timeout interval DEFAULT '5 seconds') RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_wait_for_token';
COMMENT ON FUNCTION udb.wait_for_token(udb.token, interval) IS
	'Wait inside of a query until a token is reached; false if it was not in time';

-- CALL wait_for(token, timeout): wait, with no snapshot, until it is reached. Raises UD026 if it was
-- not in time, UD020 to UD024, UD027 in REPEATABLE READ and SERIALIZABLE or with an open cursor,
-- UD028 inside of a function, procedure or DO block.
CREATE PROCEDURE udb.wait_for(token udb.token, timeout interval DEFAULT '5 seconds')
	LANGUAGE c AS 'MODULE_PATHNAME', 'udb_wait_for';
COMMENT ON PROCEDURE udb.wait_for(udb.token, interval) IS
	'Wait without a snapshot until a token is reached; an error if it was not in time';

-- fence_status(): how the last fence of this session ended, nulls if there was none. Outcomes are
-- reached, timed_out, other_cluster, diverged, future, newer_timeline and interrupted.
CREATE FUNCTION udb.fence_status(OUT outcome text, OUT token udb.token, OUT waited_ms double precision,
		OUT ended_at timestamptz)
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'udb_fence_status';
COMMENT ON FUNCTION udb.fence_status() IS 'Outcome and waited time of this session''s last fence';

CREATE FUNCTION udb._fence_waiters(OUT pid integer, OUT token udb.token, OUT since timestamptz)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_fence_waiters';
REVOKE EXECUTE ON FUNCTION udb._fence_waiters() FROM PUBLIC;
COMMENT ON FUNCTION udb._fence_waiters() IS 'Internal: rows of udb.fence_waiters';

CREATE VIEW udb.fence_waiters AS
	SELECT w.pid, a.datname, a.usename, a.application_name, w.token, w.since
	FROM udb._fence_waiters() w LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = w.pid;
COMMENT ON VIEW udb.fence_waiters IS 'Sessions of all databases that wait for a token now';
