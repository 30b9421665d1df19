-- Segments: where they begin and end, how they are made ahead and dropped. In a database of its own, where
-- positions begin at 1, and without a worker, whose time is its own.
\set VERBOSITY terse
\set home :DBNAME
ALTER SYSTEM SET udb.worker = off;
ALTER SYSTEM SET udb.outbox_segment_size = 100;
SELECT pg_reload_conf();
CREATE DATABASE regress_udb_segment;
\c regress_udb_segment
CREATE EXTENSION udb;
CREATE VIEW segments AS
	SELECT segment, first_position, end_position, last_event_seq, last_created_at IS NOT NULL AS dated, expired
	FROM udb.outbox_segments ORDER BY first_position;

-- none before the first event, and nothing to do
SELECT * FROM segments;
SELECT udb.sweep_outbox_segments() AS segments, udb.sweep_outbox_retention() AS retention;
SELECT udb.outbox_max_seq(), udb.outbox_stable_seq();
SELECT * FROM udb.peek(0);

-- the first event makes the first one
SELECT udb.enqueue('t', '1');
SELECT * FROM segments;
SELECT udb.outbox_max_seq(), udb.outbox_stable_seq();

-- the next one is made ahead when the newest is half full, not before, and once
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(2, 50) n;
SELECT udb.sweep_outbox_segments();
SELECT udb.enqueue('t', '51');
SELECT udb.sweep_outbox_segments();
SELECT udb.sweep_outbox_segments();
SELECT * FROM segments;

-- up to the boundary, and over it
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(52, 100) n;
SELECT last_event_seq FROM segments WHERE first_position = 1;
SELECT udb.enqueue('t', '101');
SELECT tableoid::regclass, payload FROM udb.outbox_events WHERE event_seq BETWEEN 100 AND 101 ORDER BY event_seq;

-- many at once, over several segments that are not there yet
SELECT (udb.enqueue_many('t', (SELECT array_agg(to_jsonb(n) ORDER BY n) FROM generate_series(102, 450) n)))[349];
SELECT first_position, end_position, last_event_seq FROM segments;
SELECT count(*), bool_and(payload = to_jsonb(event_seq)) FROM udb.outbox_events;

-- a reader does not notice the boundaries
SELECT count(*), min(event_seq), max(event_seq), bool_and(event_seq = n)
FROM (SELECT event_seq, row_number() OVER () AS n FROM udb.peek(0, 1000)) e;
SELECT event_seq FROM udb.peek(98, 5);
SELECT event_seq FROM udb.peek(100, 1);

-- a segment that is made in a transaction which is rolled back, or in a savepoint, is made again
BEGIN;
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(451, 501) n;
SELECT count(*) FROM segments;
ROLLBACK;
SELECT count(*) FROM segments;
BEGIN;
SAVEPOINT a;
SELECT udb.enqueue('t', '502');
ROLLBACK TO a;
SELECT count(*) FROM segments;
SELECT udb.enqueue('t', '503');
COMMIT;
SELECT * FROM segments WHERE first_position > 300;

-- a new size is for new segments
ALTER SYSTEM SET udb.outbox_segment_size = 250;
SELECT pg_reload_conf();
\c -
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(504, 601) n;
SELECT segment, first_position, end_position FROM segments WHERE first_position > 400;

-- Retention: nothing by default, all but the newest segment when everything is too old
SELECT udb.sweep_outbox_retention();
SELECT udb.create_consumer('all');
SELECT udb.create_consumer('paused', NULL, '99');
SELECT udb.pause_consumer('paused');
SELECT udb.create_consumer('other_topics', '{nothing}', '0');
ALTER SYSTEM SET udb.outbox_retention = 0;
SELECT pg_reload_conf();
\c -
SELECT first_position, expired FROM segments;
SELECT name, lag_events, holds_retention FROM udb.consumer_status ORDER BY name;
SELECT udb.sweep_outbox_retention() AS nobody_has_passed;
-- position 99 is not the end of the first segment, whose last is 100
SELECT udb.checkpoint('all', 250);
SELECT udb.sweep_outbox_retention() AS paused_has_not;
SELECT udb.seek_consumer('paused', 100);
SELECT udb.sweep_outbox_retention() AS one;
SELECT min(first_position) FROM segments;
-- who reads none of what is dropped is moved along
SELECT name, position, holds_retention FROM udb.consumer_status ORDER BY name;
SELECT udb.checkpoint('paused', 601);
SELECT udb.sweep_outbox_retention() AS one_more;
SELECT udb.checkpoint('all', 601);
SELECT udb.sweep_outbox_retention() AS all_but_the_newest;
SELECT segment, first_position, end_position, expired FROM segments;
SELECT udb.sweep_outbox_retention() AS no_more;
SELECT name, position, holds_retention FROM udb.consumer_status ORDER BY name;

-- what was dropped is not passed over in silence
\set VERBOSITY default
SELECT * FROM udb.peek(0);
\set VERBOSITY sqlstate
SELECT * FROM udb.peek(100);
SELECT udb.seek_consumer('all', 99);
SELECT udb.create_consumer('late', NULL, '1');
-- the earliest that is left
SELECT udb.create_consumer('late');
SELECT event_seq FROM udb.read('late');
SELECT udb.seek_consumer('all', 'earliest') = position AS moved FROM udb.consumers WHERE name = 'late';
SELECT udb.outbox_max_seq(), udb.outbox_stable_seq();

-- no retention at all, so nothing is ever expired
ALTER SYSTEM SET udb.outbox_retention = -1;
SELECT pg_reload_conf();
\c -
SELECT udb.sweep_outbox_retention();
SELECT count(udb.enqueue('t', '1')) FROM generate_series(1, 300) n;
SELECT count(*) > 1 AS several, count(*) FILTER (WHERE NOT expired) = count(*) AS none_expired FROM segments;

-- events that the topics leave out hold nothing back, those that they let in do
ALTER SYSTEM SET udb.outbox_retention = 0;
SELECT pg_reload_conf();
\c -
SELECT udb.drop_consumer(name) FROM udb.consumers;
SELECT udb.create_consumer('wants_b', '{b}', 'latest') AS start \gset
SELECT count(udb.enqueue('a', '1')) FROM generate_series(1, 200) n;
SELECT udb.enqueue('b', '2') > 0 AS ok;
SELECT count(udb.enqueue('a', '1')) FROM generate_series(1, 600) n;
SELECT count(*) FROM segments;
SELECT udb.sweep_outbox_retention();
SELECT topic, payload FROM udb.read('wants_b');
SELECT udb.checkpoint('wants_b', event_seq) = event_seq AS moved FROM udb.read('wants_b');
SELECT udb.sweep_outbox_retention();
SELECT count(*) FROM segments;

-- a view of somebody's on a segment is an error, not lost
SELECT udb.drop_consumer('wants_b');
SELECT count(udb.enqueue('a', '1')) FROM generate_series(1, 300) n;
SELECT segment AS oldest FROM segments LIMIT 1 \gset
CREATE VIEW mine AS SELECT * FROM :oldest;
SELECT udb.sweep_outbox_retention();
DROP VIEW mine;
SELECT udb.sweep_outbox_retention() > 0 AS dropped;

-- in a read-only transaction no sweep does anything
BEGIN READ ONLY;
SELECT udb.sweep_outbox_retention();
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.sweep_outbox_segments();
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.sweep_dead_events();
ROLLBACK;

-- DROP EXTENSION takes the segments along, and a new one begins from the beginning, in the same session
DROP EXTENSION udb CASCADE;
SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%';
CREATE EXTENSION udb;
SELECT udb.create_consumer('again'), udb.enqueue('t', '1'), udb.outbox_max_seq();
SELECT event_seq, payload FROM udb.read('again');
SELECT udb.checkpoint('again', 1);

ALTER SYSTEM RESET udb.worker;
ALTER SYSTEM RESET udb.outbox_segment_size;
ALTER SYSTEM RESET udb.outbox_retention;
SELECT pg_reload_conf();
\c :home
DROP DATABASE regress_udb_segment;
