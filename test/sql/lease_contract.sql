-- Leases in one session: who gets what, tokens, and what is refused.
\set VERBOSITY terse
SET timezone = 'UTC';

-- A lease that nobody ever had is free; its token starts at 1.
SELECT udb.try_acquire_lease('job', 'a', '1 min');
SELECT owner_id, fencing_token, held, remaining > '50 s' AS more_than_50_s, waiting
FROM udb.lease_status WHERE lease_name = 'job';

-- Others are refused, and change nothing.
SELECT lease_name, owner_id, expires_at, fencing_token, acquired_at FROM udb.advisory_leases
WHERE lease_name = 'job' \gset before_
SELECT udb.try_acquire_lease('job', 'b', '1 min');
SELECT udb.acquire_lease('job', 'b', '1 min') IS NULL AS refused;
SELECT udb.release_lease('job', 'b');
SELECT udb.renew_lease('job', 'b', 1, '1 min');
SELECT (lease_name, owner_id, expires_at, fencing_token, acquired_at) =
	(:'before_lease_name', :'before_owner_id', :'before_expires_at', :before_fencing_token, :'before_acquired_at')
	AS unchanged FROM udb.advisory_leases WHERE lease_name = 'job';

-- The owner extends it: same token, same acquired_at, later end; or shortens it.
SELECT name, owner, fencing_token, acquired_at = :'before_acquired_at' AS same_start,
	expires_at > :'before_expires_at' AS later_end
FROM udb.acquire_lease('job', 'a', '2 min');
SELECT udb.renew_lease('job', 'a', 1, '30 s');
SELECT fencing_token, acquired_at = :'before_acquired_at' AS same_start,
	expires_at < :'before_expires_at' AS sooner_end FROM udb.advisory_leases
WHERE lease_name = 'job';

-- Renewing takes the right token.
SELECT udb.renew_lease('job', 'a', 0, '1 min'), udb.renew_lease('job', 'a', 2, '1 min'),
	udb.renew_lease('job', 'a', -1, '1 min'), udb.renew_lease('no such', 'a', 1, '1 min');

-- Released, it is free at once, and the row stays. Releasing again changes nothing.
SELECT udb.release_lease('job', 'a'), udb.release_lease('no such', 'a');
SELECT owner_id, fencing_token, held, remaining FROM udb.lease_status WHERE lease_name = 'job';
SELECT expires_at FROM udb.advisory_leases WHERE lease_name = 'job' \gset released_
SELECT udb.release_lease('job', 'a');
SELECT expires_at = :'released_expires_at' AS unchanged FROM udb.advisory_leases WHERE lease_name = 'job';
SELECT udb.renew_lease('job', 'a', 1, '1 min') AS renewed_after_release;

-- The next owner gets the next token, and the last one has lost it.
SELECT fencing_token, acquired_at = expires_at - interval '1 min' AS ends_a_minute_later
FROM udb.acquire_lease('job', 'b', '1 min');
SELECT udb.release_lease('job', 'a'), udb.renew_lease('job', 'a', 1, '1 min');

-- A new term of the same owner has a new token too: what went before may have been lost.
SELECT udb.release_lease('job', 'b');
SELECT fencing_token FROM udb.acquire_lease('job', 'b', '1 min');

-- ttl 0: acquired, and at once takeable.
SELECT udb.try_acquire_lease('zero', 'a', '0');
SELECT udb.try_acquire_lease('zero', 'b', '0');
SELECT fencing_token, held FROM udb.lease_status WHERE lease_name = 'zero';
SELECT fencing_token FROM udb.acquire_lease('zero', 'a', '1 min');
SELECT udb.renew_lease('zero', 'a', 3, '0');
SELECT udb.try_acquire_lease('zero', 'b', '1 min');

-- Two in one command.
SELECT udb.try_acquire_lease('twice', 'a', '1 min'), udb.try_acquire_lease('twice', 'b', '1 min'),
	udb.release_lease('twice', 'a'), udb.try_acquire_lease('twice', 'b', '1 min');
SELECT owner_id, fencing_token FROM udb.advisory_leases WHERE lease_name = 'twice';
SELECT count(*) FILTER (WHERE udb.try_acquire_lease('same' || i % 3, 'o' || i, '1 min')) FROM generate_series(1, 30) i;

-- Rolled back, it leaves nothing.
BEGIN;
SELECT udb.try_acquire_lease('rolled back', 'a', '1 min');
ROLLBACK;
SELECT count(*) FROM udb.advisory_leases WHERE lease_name = 'rolled back';
BEGIN;
SELECT udb.try_acquire_lease('savepoint', 'a', '1 min');
SAVEPOINT s;
SELECT udb.release_lease('savepoint', 'a'), udb.try_acquire_lease('savepoint', 'b', '1 min');
ROLLBACK TO s;
SELECT udb.try_acquire_lease('savepoint', 'b', '1 min');
SELECT udb.assert_lease('savepoint', 'a', 1);
COMMIT;
SELECT owner_id, fencing_token FROM udb.advisory_leases WHERE lease_name = 'savepoint';

-- assert_lease: what it accepts and what it does not.
\set VERBOSITY default
SELECT udb.try_acquire_lease('asserted', 'a', '1 min');
SELECT udb.assert_lease('asserted', 'a', 1);
SELECT udb.assert_lease('asserted', 'b', 1);
SELECT udb.assert_lease('asserted', 'a', 2);
SELECT udb.assert_lease('never', 'a', 1);
\set VERBOSITY sqlstate
SELECT udb.release_lease('asserted', 'a');
SELECT udb.assert_lease('asserted', 'a', 1);
\set VERBOSITY terse

-- Bad arguments change nothing.
SELECT udb.try_acquire_lease(NULL, 'a', '1 min');
SELECT udb.try_acquire_lease('bad', NULL, '1 min');
SELECT udb.try_acquire_lease('bad', 'a', NULL);
SELECT udb.try_acquire_lease('', 'a', '1 min');
SELECT udb.try_acquire_lease('bad', '', '1 min');
SELECT udb.try_acquire_lease(repeat('x', 256), 'a', '1 min');
SELECT udb.try_acquire_lease('bad', repeat('x', 256), '1 min');
SELECT udb.try_acquire_lease('bad', 'a', '-1 us');
SELECT udb.try_acquire_lease('bad', 'a', '178000000 years');
SELECT udb.acquire_lease('bad', 'a', '1 min', NULL);
SELECT udb.acquire_lease('bad', 'a', '1 min', '-1 s');
SELECT udb.renew_lease('bad', 'a', NULL, '1 min');
SELECT udb.renew_lease('bad', 'a', 1, '-1 s');
SELECT udb.renew_lease('bad', 'a', 1, NULL);
SELECT udb.release_lease(NULL, 'a');
SELECT udb.release_lease('', 'a');
SELECT udb.assert_lease('bad', 'a', NULL);
SELECT udb.assert_lease('bad', '', 1);
SELECT count(*) FROM udb.advisory_leases WHERE lease_name IN ('', 'bad');
BEGIN READ ONLY;
SELECT udb.try_acquire_lease('bad', 'a', '1 min');
ROLLBACK;

-- The longest names there are, and any character.
SELECT udb.try_acquire_lease(repeat('x', 255), repeat('y', 255), '1 min');
SELECT udb.try_acquire_lease(repeat('x', 255), 'other', '1 min');
SELECT fencing_token FROM udb.acquire_lease('O''Reilly "ü" \ %', 'ö', '1 month');

-- Another index on the table is kept up to date.
CREATE INDEX more ON udb.advisory_leases (owner_id);
SELECT count(udb.try_acquire_lease('indexed' || i % 7, 'o' || i, '0')) FROM generate_series(1, 700) i;
SET enable_seqscan = off;
SELECT count(*) FROM udb.advisory_leases WHERE owner_id LIKE 'o%' AND owner_id IN ('o694', 'o700', 'o1');
RESET enable_seqscan;
DROP INDEX udb.more;

-- Rights.
CREATE ROLE regress_lease_none;
CREATE ROLE regress_lease_worker;
CREATE ROLE regress_lease_monitor;
SELECT udb.grant_role('regress_lease_worker', 'worker'), udb.grant_role('regress_lease_monitor', 'monitor');
SET ROLE regress_lease_none;
SELECT udb.try_acquire_lease('rights', 'a', '1 min');
SELECT udb.assert_lease('rights', 'a', 1);
SELECT count(*) FROM udb.lease_status;
SELECT udb.lease_clock() > '2020-01-01';
SET ROLE regress_lease_worker;
SELECT udb.try_acquire_lease('rights', 'a', '1 min'), udb.renew_lease('rights', 'a', 1, '1 min'),
	udb.assert_lease('rights', 'a', 1), udb.release_lease('rights', 'a');
UPDATE udb.advisory_leases SET owner_id = 'me';
SET ROLE regress_lease_monitor;
SELECT held, waiting FROM udb.lease_status WHERE lease_name = 'rights';
SELECT udb.try_acquire_lease('rights', 'b', '1 min');
RESET ROLE;
SELECT udb.lease_clock() <= udb.lease_clock() AS forward,
	abs(extract(epoch FROM udb.lease_clock() - clock_timestamp())) < 1 AS close;
DROP OWNED BY regress_lease_worker, regress_lease_monitor;
DROP ROLE regress_lease_none, regress_lease_worker, regress_lease_monitor;
