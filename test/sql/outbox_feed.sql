-- The feed: read, peek, checkpoint, seek, pause, resume, waiting. Positions are shown as numbers of events
-- of this test, since others may have been before.
\set VERBOSITY terse
SELECT udb.create_consumer('t_feed', '{t_feed,t_feed2}', 'latest') AS start \gset
SELECT position = :start AS there, topics, paused, last_checkpoint FROM udb.consumers WHERE name = 't_feed';
SELECT name, paused, lag_events, lag_seconds, parked_events, last_read, last_checkpoint, holds_retention
FROM udb.consumer_status WHERE name = 't_feed';

SELECT * FROM udb.read('t_feed');
SELECT udb.wait_for_events('t_feed', '0') AS at_once, udb.wait_for_events('t_feed', '10ms') AS later;

SELECT udb.enqueue_many('t_feed', '{1,2,3,4,5}', '{a,b,a,b,a}') AS p \gset
SELECT udb.enqueue('t_feed2', '6') > 0 AS ok, udb.enqueue('t_feed3', '7') > 0 AS ok;

-- read does not move anything; the order is that of the positions; topics that were not asked for are left out
SELECT topic, partition_key, payload, headers FROM udb.read('t_feed');
SELECT payload FROM udb.read('t_feed', 2);
SELECT payload FROM udb.read('t_feed', 2);
SELECT e.payload FROM udb.read('t_feed') AS e ORDER BY payload DESC LIMIT 1;
SELECT position = :start AS not_moved FROM udb.consumers WHERE name = 't_feed';
SELECT udb.wait_for_events('t_feed', '1h') AS ready;
CALL udb.await_events('t_feed', '1h');
SELECT lag_events, lag_seconds BETWEEN 0 AND 600 AS lag_seconds, last_read <= clock_timestamp() AS has_read
FROM udb.consumer_status WHERE name = 't_feed';

-- checkpoint moves forward, returns what is stored, and never goes back
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[2]) = (:'p'::bigint[])[2] AS moved;
SELECT payload FROM udb.read('t_feed');
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[1]) = (:'p'::bigint[])[2] AS stays;
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[2]) = (:'p'::bigint[])[2] AS stays;
SELECT udb.checkpoint('t_feed', 0) = (:'p'::bigint[])[2] AS stays;
SELECT payload FROM udb.read('t_feed', 1);
SELECT lag_events, last_checkpoint <= clock_timestamp() AS dated FROM udb.consumer_status WHERE name = 't_feed';

-- with the consumer's own work: both or neither
BEGIN;
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[4]) = (:'p'::bigint[])[4] AS moved;
SELECT payload FROM udb.read('t_feed');
ROLLBACK;
SELECT payload FROM udb.read('t_feed');
BEGIN;
SAVEPOINT a;
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[4]) = (:'p'::bigint[])[4] AS moved;
ROLLBACK TO a;
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[3]) = (:'p'::bigint[])[3] AS moved;
COMMIT;
SELECT payload FROM udb.read('t_feed');

-- Not above the horizon, which this transaction itself holds once it has enqueued
BEGIN;
SELECT udb.outbox_stable_seq() AS horizon \gset
SELECT udb.enqueue('t_feed', '8') AS mine \gset
SELECT udb.outbox_stable_seq() = :horizon AS stays, udb.outbox_stable_seq() < :mine AS below;
SELECT pid = pg_backend_pid() AS me, gid, usename, since <= clock_timestamp() AS dated, first_position = :mine AS first,
	last_position = :mine AS last, state, query ~ 'horizon_holder' AS query FROM udb.horizon_holder();
SELECT payload FROM udb.read('t_feed');
SAVEPOINT a;
\set VERBOSITY sqlstate
SELECT udb.checkpoint('t_feed', :mine);
ROLLBACK TO a;
SELECT udb.seek_consumer('t_feed', :mine);
ROLLBACK TO a;
SELECT udb.create_consumer('t_feed4', NULL, :'mine');
ROLLBACK TO a;
SELECT udb.create_consumer('t_feed4', NULL, 'latest') = :horizon AS at_the_horizon;
-- still usable
SELECT udb.enqueue_many('t_feed', '{9,10}') IS NOT NULL AS ok;
SELECT first_position = :mine AS first, last_position = :mine + 2 AS last FROM udb.horizon_holder();
COMMIT;
SELECT * FROM udb.horizon_holder();
SELECT udb.outbox_stable_seq() >= :mine + 2 AS went_on;
SELECT payload FROM udb.read('t_feed4');
SELECT udb.drop_consumer('t_feed4');
\set VERBOSITY terse
SELECT udb.checkpoint('t_feed', :mine + 2) = :mine + 2 AS moved;
SELECT * FROM udb.read('t_feed');

-- seek goes back and forth
SELECT udb.seek_consumer('t_feed', (:'p'::bigint[])[3]) = (:'p'::bigint[])[3] AS back;
SELECT payload FROM udb.read('t_feed');
SELECT udb.seek_consumer('t_feed', 'latest') >= :mine + 2 AS forth;
SELECT payload FROM udb.read('t_feed');
SELECT udb.seek_consumer('t_feed', (:'p'::bigint[])[5]::text) = (:'p'::bigint[])[5] AS number_as_text;
SELECT payload FROM udb.read('t_feed');
SELECT udb.seek_consumer('t_feed', 'earliest') <= :start AS earliest;
SELECT payload FROM udb.read('t_feed', 1);
SELECT udb.seek_consumer('t_feed', :start) = :start AS there;

-- a consumer that begins at a position, at the beginning, at the end
SELECT udb.create_consumer('t_feed5', '{t_feed}', ((:'p'::bigint[])[4])::text) = (:'p'::bigint[])[4] AS there;
SELECT payload FROM udb.read('t_feed5');
SELECT udb.drop_consumer('t_feed5');
SELECT udb.create_consumer('t_feed5', '{t_feed2}') <= :start AS beginning;
SELECT payload FROM udb.read('t_feed5');
SELECT udb.drop_consumer('t_feed5');
-- one that is made again is a new one: what was remembered about the old one is not its own
SELECT udb.create_consumer('t_feed5', '{t_feed}', :'start') = :start AS there;
SELECT array_agg(payload) FROM udb.read('t_feed5');
SELECT last_checkpoint FROM udb.consumers WHERE name = 't_feed5';
SELECT udb.drop_consumer('t_feed5');
SELECT udb.read('t_feed5');

-- paused, it gets nothing but can be moved; resumed, it goes on
SELECT udb.pause_consumer('t_feed');
SELECT udb.pause_consumer('t_feed');
SELECT paused, lag_events FROM udb.consumer_status WHERE name = 't_feed';
SELECT * FROM udb.read('t_feed');
SELECT udb.wait_for_events('t_feed', '10ms') AS ready;
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[1]) = (:'p'::bigint[])[1] AS moved;
SELECT udb.resume_consumer('t_feed');
SELECT udb.resume_consumer('t_feed');
SELECT payload FROM udb.read('t_feed', 2);
SELECT udb.wait_for_events('t_feed', '10ms') AS ready;
-- what is done in a transaction holds if that commits
BEGIN;
SELECT udb.pause_consumer('t_feed');
SELECT count(*) FROM udb.read('t_feed');
ROLLBACK;
SELECT count(*) FROM udb.read('t_feed');

-- two consumers do not know of each other
SELECT udb.create_consumer('t_feed6', '{t_feed2}', :'start') = :start AS there;
SELECT udb.checkpoint('t_feed6', event_seq) = event_seq AS moved FROM udb.read('t_feed6');
SELECT payload FROM udb.read('t_feed6');
SELECT payload FROM udb.read('t_feed', 3);

-- a rare topic: what has been looked through is remembered, and nothing of it missed
SELECT count(udb.enqueue('t_feed', '0')) FROM generate_series(1, 300);
SELECT count(*) FROM udb.read('t_feed6');
SELECT udb.enqueue('t_feed2', '"rare"') > 0 AS ok;
SELECT payload FROM udb.read('t_feed6');
SELECT payload FROM udb.read('t_feed6');
SELECT udb.seek_consumer('t_feed6', :start) = :start AS back;
SELECT payload FROM udb.read('t_feed6');
SELECT udb.drop_consumer('t_feed6');

-- peek: no consumer, no memory
SELECT topic, payload FROM udb.peek(:start, 7);
SELECT payload FROM udb.peek(:start, 2);
SELECT payload FROM udb.peek(:start, topics => '{t_feed2,nothing}');
SELECT payload FROM udb.peek((:'p'::bigint[])[4], 10, '{t_feed2,t_feed2}');
SELECT count(*) FROM udb.peek(udb.outbox_stable_seq());
SELECT count(*) AS default_limit FROM udb.peek(:start);
SELECT count(*) AS default_limit FROM udb.read('t_feed');

-- reading is allowed in a read-only transaction, moving is not
BEGIN READ ONLY;
SELECT payload FROM udb.read('t_feed', 1);
SELECT payload FROM udb.peek(:start, 1);
SELECT udb.wait_for_events('t_feed', '0') AS ready;
SELECT udb.outbox_stable_seq() >= udb.outbox_max_seq() AS all_stable;
\set VERBOSITY sqlstate
SELECT udb.checkpoint('t_feed', (:'p'::bigint[])[5]);
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.seek_consumer('t_feed', 'latest');
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.pause_consumer('t_feed');
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.create_consumer('t_feed7');
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.drop_consumer('t_feed');
ROLLBACK;

-- not with a snapshot that may be older than the events, even if it is not
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM udb.read('t_feed');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM udb.peek(0);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT udb.wait_for_events('t_feed', '0');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT udb.sweep_outbox_retention();
ROLLBACK;
\set VERBOSITY default
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM udb.read('t_feed');
ROLLBACK;
-- setting a position reads no events, so that is another matter
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT udb.create_consumer('t_feed7', NULL, 'latest') >= :start AS ok, udb.seek_consumer('t_feed', :start) = :start AS ok,
	udb.checkpoint('t_feed', (:'p'::bigint[])[1]) = (:'p'::bigint[])[1] AS ok;
ROLLBACK;
-- READ UNCOMMITTED is READ COMMITTED
BEGIN ISOLATION LEVEL READ UNCOMMITTED;
SELECT payload FROM udb.read('t_feed', 1);
COMMIT;

-- await_events ends its transaction, so it cannot be in somebody else's
BEGIN;
CALL udb.await_events('t_feed', '0');
ROLLBACK;
CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	ready boolean;
BEGIN
	CALL udb.await_events('t_feed', '0', ready);
END
$$;
\set VERBOSITY sqlstate
SELECT pg_temp.f();
\set VERBOSITY terse
-- in a DO block at top level, a loop of a consumer
DO $$
DECLARE
	ready boolean;
	seen int := 0;
	n int;
	batch bigint;
BEGIN
	LOOP
		CALL udb.await_events('t_feed', '0', ready);
		EXIT WHEN NOT ready;
		SELECT count(*), max(event_seq) INTO n, batch FROM udb.read('t_feed', 50);
		PERFORM udb.checkpoint('t_feed', batch);
		COMMIT;
		seen := seen + n;
	END LOOP;
	RAISE NOTICE '% events', seen;
END
$$;
SELECT udb.wait_for_events('t_feed', '0') AS ready;

-- a batch can be joined, and its values outlive the statement
CREATE TEMP TABLE copy AS SELECT * FROM udb.peek(:start, 400);
SELECT count(*), count(DISTINCT event_id), bool_and(created_at <= clock_timestamp()) FROM copy;
SELECT pg_typeof(e) FROM udb.peek(:start, 1) e;

SELECT udb.drop_consumer('t_feed');
SELECT count(*) FROM udb.consumers WHERE name LIKE 't\_feed%';
