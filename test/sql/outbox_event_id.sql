-- event_id: the same event again is the event that is there already; another one under its id is an error
\set VERBOSITY sqlstate
SELECT udb.create_consumer('t_event_id', ARRAY['t_event_id', 't_event_id2'], 'latest') >= 0 AS created;
\set id '''018f0000-0000-7000-8000-000000000201'''
SELECT udb.enqueue('t_event_id', '{"a": 1, "b": 2.0}', 'k', :id, '{"h": 1}') AS seq \gset

-- the same content, however it is written; headers are no part of it
SELECT udb.enqueue('t_event_id', '{"b": 2.0, "a": 1}', 'k', :id, '{"h": 1}') = :seq AS same;
SELECT udb.enqueue('t_event_id', '{"b": 2, "a": 1.0}', 'k', :id, '{"h": 2}') = :seq AS same;
SELECT udb.enqueue('t_event_id', '{"b": 2, "a": 1}', 'k', :id) = :seq AS same;
SELECT udb.enqueue_many('t_event_id', '{"{\"b\": 2, \"a\": 1}"}', '{k}', ARRAY[:id]::uuid[]) = ARRAY[:seq::bigint] AS same;
-- the event stays as it was
SELECT payload, headers FROM udb.outbox_events WHERE event_id = :id;

-- other content
SELECT udb.enqueue('t_event_id2', '{"a": 1, "b": 2.0}', 'k', :id);
SELECT udb.enqueue('t_event_id', '{"a": 1, "b": 2.0}', 'k2', :id);
SELECT udb.enqueue('t_event_id', '{"a": 1, "b": 2.1}', 'k', :id);
SELECT udb.enqueue('t_event_id', '{"a": 1, "b": "2.0"}', 'k', :id);
SELECT udb.enqueue_many('t_event_id', '{1}', '{k}', ARRAY[:id]::uuid[]);
-- it says where, and in what it differs
\set VERBOSITY default
\pset format unaligned
DO $$
DECLARE
	message text;
	detail text;
	code text;
BEGIN
	PERFORM udb.enqueue('t_event_id', '3', 'k', '018f0000-0000-7000-8000-000000000201');
EXCEPTION WHEN SQLSTATE 'UD001' THEN
	GET STACKED DIAGNOSTICS message = message_text, detail = pg_exception_detail, code = returned_sqlstate;
	RAISE NOTICE '%: % / %', code, message, regexp_replace(detail, '[0-9]+', 'N');
END
$$;
\pset format aligned
\set VERBOSITY sqlstate

-- in the same transaction
BEGIN;
SELECT udb.enqueue('t_event_id', '1', event_id => '018f0000-0000-7000-8000-000000000202') AS seq2 \gset
SELECT udb.enqueue('t_event_id', '1', event_id => '018f0000-0000-7000-8000-000000000202') = :seq2 AS same;
SAVEPOINT a;
SELECT udb.enqueue('t_event_id', '2', event_id => '018f0000-0000-7000-8000-000000000202');
ROLLBACK TO a;
COMMIT;

-- an id whose event was rolled back is free again
BEGIN;
SELECT udb.enqueue('t_event_id', '1', event_id => '018f0000-0000-7000-8000-000000000203') > 0 AS ok;
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT udb.enqueue('t_event_id', '2', event_id => '018f0000-0000-7000-8000-000000000203') > 0 AS ok;
ROLLBACK TO a;
SELECT udb.enqueue('t_event_id', '3', event_id => '018f0000-0000-7000-8000-000000000203') > 0 AS ok;
COMMIT;
SELECT payload FROM udb.outbox_events WHERE event_id = '018f0000-0000-7000-8000-000000000203';

-- ids that are there already, among others
SELECT udb.enqueue_many('t_event_id', '{10,1,11}', NULL, ARRAY[NULL, '018f0000-0000-7000-8000-000000000202',
	'018f0000-0000-7000-8000-000000000204']::uuid[]) AS seqs \gset
SELECT (:'seqs'::bigint[])[2] = :seq2 AS known, (:'seqs'::bigint[])[1] > :seq2 AS new,
	(:'seqs'::bigint[])[3] > (:'seqs'::bigint[])[1] AS newer;
-- the same id twice in one call is a mistake, whatever the content
SELECT udb.enqueue_many('t_event_id', '{5,5}', NULL, ARRAY['018f0000-0000-7000-8000-000000000205',
	'018f0000-0000-7000-8000-000000000205']::uuid[]);

-- the consumer got each of them once
SELECT payload FROM udb.read('t_event_id') ORDER BY event_seq;

SELECT udb.drop_consumer('t_event_id');

-- Ids are known in all segments. In a database whose segments are small, and without a worker, whose time
-- is its own; settings that are reloaded hold for new sessions.
\set home :DBNAME
ALTER SYSTEM SET udb.worker = off;
ALTER SYSTEM SET udb.outbox_segment_size = 100;
SELECT pg_reload_conf();
CREATE DATABASE regress_udb_event_id;
\c regress_udb_event_id
CREATE EXTENSION udb;
\set id '''018f0000-0000-7000-8000-000000000206'''
SELECT udb.enqueue('t', '"first"', 'k', :id);
SELECT count(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 250) n;
SELECT count(*) FROM udb.outbox_segments;
-- in a transaction that has another segment open
BEGIN;
SELECT udb.enqueue('t', '1') > 200 AS ok;
SELECT udb.enqueue('t', '"first"', 'k', :id);
SELECT udb.enqueue('t', '1') > 200 AS ok;
SELECT udb.enqueue('t', '"not the first"', 'k', :id);
ROLLBACK;
SELECT udb.enqueue_many('t', '{"\"first\"",1}', '{k,k}', ARRAY[:id, NULL]::uuid[]);
-- one whose segment has been dropped is forgotten: nobody remembers ids for ever
ALTER SYSTEM SET udb.outbox_retention = 0;
SELECT pg_reload_conf();
\c -
SELECT udb.sweep_outbox_retention();
SELECT udb.enqueue('t', '"not the first"', 'k', :id) > 200 AS ok;

ALTER SYSTEM RESET udb.worker;
ALTER SYSTEM RESET udb.outbox_segment_size;
ALTER SYSTEM RESET udb.outbox_retention;
SELECT pg_reload_conf();
\c :home
DROP DATABASE regress_udb_event_id;
