-- Leases -----------------------------------------------------------------

-- Written often, by place and without the executor: half of each page is left for new versions, and the
-- library knows the columns and the index.
CREATE TABLE udb.advisory_leases (
	lease_name text COLLATE "C" NOT NULL CONSTRAINT advisory_leases_pkey PRIMARY KEY
		CHECK (octet_length(lease_name) BETWEEN 1 AND 255),
	owner_id text NOT NULL CHECK (octet_length(owner_id) BETWEEN 1 AND 255),
	expires_at timestamptz NOT NULL,
	fencing_token bigint NOT NULL CHECK (fencing_token > 0),
	acquired_at timestamptz NOT NULL
) USING heap WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0,
	autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE udb.advisory_leases IS
	'Leases, one row a name, never deleted; change them with the functions only';
COMMENT ON COLUMN udb.advisory_leases.lease_name IS 'What is leased; 1 to 255 bytes';
COMMENT ON COLUMN udb.advisory_leases.owner_id IS 'Who holds it, or has held it last';
COMMENT ON COLUMN udb.advisory_leases.expires_at IS
	'When it ends unless it is renewed, by lease_clock(); releasing it sets this to now';
COMMENT ON COLUMN udb.advisory_leases.fencing_token IS
	'Grows each time that the lease is taken by somebody after it was free';
COMMENT ON COLUMN udb.advisory_leases.acquired_at IS 'When it was taken; renewing does not change this';
SELECT pg_catalog.pg_extension_config_dump('udb.advisory_leases', '');

CREATE TYPE udb.lease AS (
	name text,
	owner text,
	fencing_token bigint,
	acquired_at timestamptz,
	expires_at timestamptz
);
COMMENT ON TYPE udb.lease IS 'A lease as udb.acquire_lease() returns it';

-- lease_clock(): the clock that leases go by. Like clock_timestamp(), but it never goes back, and follows
-- a step of the system's clock slowly.
CREATE FUNCTION udb.lease_clock() RETURNS timestamptz
	LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_lease_clock';
COMMENT ON FUNCTION udb.lease_clock() IS
	'The clock that leases go by: like clock_timestamp(), but it never goes back';

-- try_acquire_lease(lease_name, owner_id, ttl): take a lease that is free, or extend it if this owner has
-- it already. False, at once, if another owner has it, or is taking it in a transaction in progress.
-- Waits only for another transaction of the same owner. A ttl of 0 gives a lease that is free again.
-- Raises 22004 for nulls, 42602 and 42622 for a bad name, 22023 for a negative ttl, 25006 where it cannot
-- write, 40001 in REPEATABLE READ if the lease was changed since the snapshot. Writes advisory_leases.
CREATE FUNCTION udb.try_acquire_lease(lease_name text, owner_id text, ttl interval) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_try_acquire_lease';
REVOKE EXECUTE ON FUNCTION udb.try_acquire_lease(text, text, interval) FROM PUBLIC;
COMMENT ON FUNCTION udb.try_acquire_lease(text, text, interval) IS
	'Take a lease or extend one''s own; false at once if another owner has it';

-- acquire_lease(lease_name, owner_id, ttl, wait): the same, but returns the lease, with its fencing token,
-- or null. Waits up to so long, woken when the lease is released or expires; first come, first served.
-- Raises what try_acquire_lease() raises.
CREATE FUNCTION udb.acquire_lease(lease_name text, owner_id text, ttl interval, wait interval DEFAULT '0')
	RETURNS udb.lease
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_acquire_lease';
REVOKE EXECUTE ON FUNCTION udb.acquire_lease(text, text, interval, interval) FROM PUBLIC;
COMMENT ON FUNCTION udb.acquire_lease(text, text, interval, interval) IS
	'Take a lease, waiting for it if asked to; null if it was not got in time';

-- renew_lease(lease_name, owner_id, fencing_token, ttl): let a lease that is held expire this long from
-- now. False if this owner does not hold it with this token any more. Raises what try_acquire_lease() does.
CREATE FUNCTION udb.renew_lease(lease_name text, owner_id text, fencing_token bigint, ttl interval)
	RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_renew_lease';
REVOKE EXECUTE ON FUNCTION udb.renew_lease(text, text, bigint, interval) FROM PUBLIC;
COMMENT ON FUNCTION udb.renew_lease(text, text, bigint, interval) IS
	'Extend a lease; false if it is not held by this owner with this token';

-- release_lease(lease_name, owner_id): let it expire now. True also if it had expired before; false if
-- this is not its last owner. Raises what try_acquire_lease() raises.
CREATE FUNCTION udb.release_lease(lease_name text, owner_id text) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_release_lease';
REVOKE EXECUTE ON FUNCTION udb.release_lease(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.release_lease(text, text) IS
	'End a lease; false if this owner was not the last to have it';

-- assert_lease(lease_name, owner_id, fencing_token): raise UD030 lease_lost unless this owner holds the
-- lease with this token; if it does, nobody else can take it before this transaction ends. Waits for no
-- other owner. Raises 22004, 42602, 42622, 25006 on a standby.
CREATE FUNCTION udb.assert_lease(lease_name text, owner_id text, fencing_token bigint) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_assert_lease';
REVOKE EXECUTE ON FUNCTION udb.assert_lease(text, text, bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb.assert_lease(text, text, bigint) IS
	'Raise lease_lost unless the lease is held; if it is, it stays so until this transaction ends';

CREATE FUNCTION udb._lease_waiting(lease_name text) RETURNS integer
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_lease_waiting';
REVOKE EXECUTE ON FUNCTION udb._lease_waiting(text) FROM PUBLIC;
COMMENT ON FUNCTION udb._lease_waiting(text) IS 'Internal: column waiting of udb.lease_status';

CREATE VIEW udb.lease_status AS
	SELECT l.lease_name, l.owner_id, l.fencing_token, l.acquired_at, l.expires_at,
		l.expires_at > greatest(c.now, l.acquired_at) AS held,
		greatest(l.expires_at - greatest(c.now, l.acquired_at), interval '0') AS remaining,
		udb._lease_waiting(l.lease_name) AS waiting
	FROM udb.advisory_leases l, (SELECT udb.lease_clock() AS now OFFSET 0) c;
COMMENT ON VIEW udb.lease_status IS
	'Leases: who has them, or had them last, and for how much longer';
COMMENT ON COLUMN udb.lease_status.held IS 'Whether the owner still has it';
COMMENT ON COLUMN udb.lease_status.waiting IS 'Sessions that wait for it in acquire_lease()';
