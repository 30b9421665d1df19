-- enqueue() and enqueue_many(): what they write and return, and how they fit into transactions
SELECT udb.create_consumer('t_enqueue', ARRAY['t_enqueue'], 'latest') >= 0 AS created;

-- what the consumer has not read yet, in order; then it has
CREATE FUNCTION pg_temp.drain() RETURNS SETOF text LANGUAGE sql AS $$
	WITH e AS MATERIALIZED (SELECT * FROM udb.read('t_enqueue', 10000))
	SELECT e.payload::text FROM e
		CROSS JOIN (SELECT udb.checkpoint('t_enqueue', max(event_seq)) FROM e HAVING count(*) > 0) c
	ORDER BY e.event_seq
$$;

-- one event, with defaults: the position returned is the row's
SELECT udb.enqueue('t_enqueue', '{"a": [1, "x", null]}') AS seq \gset
SELECT topic, partition_key, payload, headers, event_id IS NOT NULL AS has_id,
	created_at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() AS recent
FROM udb.outbox_events WHERE event_seq = :seq;

-- with all arguments, by name
SELECT udb.enqueue(topic => 't_enqueue', payload => '[]', partition_key => 'key 1',
	event_id => '018f0000-0000-7000-8000-0000000000e1', headers => '{"trace": "t1"}') AS seq2 \gset
SELECT event_id, topic, partition_key, payload, headers FROM udb.outbox_events WHERE event_seq = :seq2;
SELECT :seq2 > :seq AS rises;
SELECT * FROM pg_temp.drain();

-- any JSON will do, and the longest topic and key
SELECT count(udb.enqueue('t_enqueue', j)) FROM unnest('{"null",true,1.50,"\"s\"","[]","{}"}'::jsonb[]) j;
SELECT * FROM pg_temp.drain();
BEGIN;
SELECT udb.enqueue(repeat('x', 255), '1', repeat('k', 1024)) IS NOT NULL AS ascii,
	udb.enqueue(repeat('語', 85), '1', repeat('語', 341)) IS NOT NULL AS multibyte;
ROLLBACK;

-- created_at is the clock's time, not the transaction's
BEGIN;
SELECT udb.enqueue('t_enqueue', '"first"') AS seq \gset
SELECT pg_sleep(0.01);
SELECT udb.enqueue('t_enqueue', '"second"') AS seq2 \gset
SELECT count(DISTINCT created_at) AS times, min(created_at) > now() AS after_begin
FROM udb.outbox_events WHERE event_seq IN (:seq, :seq2);
ROLLBACK;

-- many events: positions in the order of the array, keys and headers each with its event
SELECT udb.enqueue_many('t_enqueue', '{1,2,3}', '{k1,k2,k3}', NULL,
	ARRAY['{"h": 1}', NULL, '{"h": 3}']::jsonb[]) AS seqs \gset
SELECT array_agg(event_seq ORDER BY event_seq) = :'seqs' AS positions FROM udb.outbox_events
WHERE event_seq = ANY (:'seqs');
SELECT payload, partition_key, headers FROM udb.outbox_events
WHERE event_seq = ANY (:'seqs') ORDER BY event_seq;
SELECT * FROM pg_temp.drain();

-- none at all
SELECT udb.enqueue_many('t_enqueue', '{}'), udb.enqueue_many('t_enqueue', '{}', '{}', '{}', '{}');

-- some with an id of their own, some without
SELECT udb.enqueue_many('t_enqueue', '{1,2,3,4,5}', NULL,
	ARRAY[NULL, '018f0000-0000-7000-8000-0000000000e2', NULL, NULL,
	'018f0000-0000-7000-8000-0000000000e3']::uuid[]) AS seqs \gset
SELECT payload, right(event_id::text, 2) AS given, partition_key = '' AS no_key FROM udb.outbox_events
WHERE event_seq = ANY (:'seqs') AND event_id::text LIKE '018f0000-0000-7000-8000-%' ORDER BY event_seq;
SELECT string_agg(d, ' ') FROM pg_temp.drain() d;

-- bounds that do not begin at 1 are no trouble
SELECT cardinality(udb.enqueue_many('t_enqueue', '[7:9]={7,8,9}', '[0:2]={a,b,c}'));
SELECT string_agg(d, ' ') FROM pg_temp.drain() d;

-- more than are inserted at a time, some of them long enough to be stored out of line
SELECT udb.enqueue_many('t_enqueue', array_agg(jsonb_build_object('n', n, 'pad',
	CASE WHEN n % 100 = 0 THEN (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i) END)
	ORDER BY n)) AS seqs
FROM generate_series(1, 2500) n \gset
SELECT count(*) AS events, bool_and(event_seq = (:'seqs'::bigint[])[(payload ->> 'n')::int]) AS where_it_said,
	count(*) FILTER (WHERE length(payload ->> 'pad') = 16000) AS long_ones
FROM udb.outbox_events WHERE event_seq = ANY (:'seqs');
SELECT count(*) AS events, bool_and((d::jsonb ->> 'n')::bigint = n) AS in_order
FROM (SELECT d, row_number() OVER () AS n FROM pg_temp.drain() d) x;

-- rolled back, there is nothing; the writer sees its own event in the table, and nobody in the feed
BEGIN;
SELECT udb.enqueue('t_enqueue', '"given up"') AS seq \gset
SELECT payload FROM udb.outbox_events WHERE event_seq = :seq;
SELECT count(*) AS in_the_feed FROM udb.read('t_enqueue');
ROLLBACK;
SELECT count(*) AS rows FROM udb.outbox_events WHERE event_seq = :seq;
SELECT * FROM pg_temp.drain();

-- savepoints
BEGIN;
SELECT udb.enqueue('t_enqueue', '"before"') IS NOT NULL AS ok;
SAVEPOINT a;
SELECT udb.enqueue('t_enqueue', '"rolled back"') IS NOT NULL AS ok;
SELECT udb.enqueue_many('t_enqueue', '{"\"too\""}') IS NOT NULL AS ok;
ROLLBACK TO a;
SELECT udb.enqueue('t_enqueue', '"after"') IS NOT NULL AS ok;
SAVEPOINT b;
SELECT udb.enqueue('t_enqueue', '"released"') IS NOT NULL AS ok;
RELEASE b;
COMMIT;
SELECT * FROM pg_temp.drain();

-- the first of a transaction in a savepoint that is rolled back
BEGIN;
SAVEPOINT a;
SELECT udb.enqueue('t_enqueue', '"rolled back"') IS NOT NULL AS ok;
ROLLBACK TO a;
SELECT udb.enqueue('t_enqueue', '"kept"') IS NOT NULL AS ok;
COMMIT;
SELECT * FROM pg_temp.drain();

-- exception blocks, nested, and many of them
DO $$
BEGIN
	PERFORM udb.enqueue('t_enqueue', '"outer"');
	BEGIN
		PERFORM udb.enqueue('t_enqueue', '"inner, lost"');
		BEGIN
			PERFORM udb.enqueue('t_enqueue', '"innermost, lost"');
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
			PERFORM udb.enqueue('t_enqueue', '"handler, lost"');
		END;
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM udb.enqueue('t_enqueue', '"handler"');
	END;
	FOR i IN 1 .. 500 LOOP
		BEGIN
			PERFORM udb.enqueue('t_enqueue', to_jsonb(i));
			IF i % 100 <> 0 THEN
				RAISE division_by_zero;
			END IF;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END
$$;
SELECT * FROM pg_temp.drain();

-- an error of enqueue() itself, caught; the transaction goes on
DO $$
BEGIN
	PERFORM udb.enqueue('t_enqueue', '1');
	BEGIN
		PERFORM udb.enqueue('', '2');
	EXCEPTION WHEN invalid_parameter_value THEN
		PERFORM udb.enqueue('t_enqueue', '3');
	END;
END
$$;
SELECT * FROM pg_temp.drain();

-- in triggers, of a row and of a statement, where the row is taken back too
CREATE TABLE t_enqueue_order (id int PRIMARY KEY CHECK (id < 10));
CREATE FUNCTION t_enqueue_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM udb.enqueue('t_enqueue', jsonb_build_object('row', new.id));
	RETURN new;
END
$$;
CREATE FUNCTION t_enqueue_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM udb.enqueue_many('t_enqueue', array_agg(jsonb_build_object('statement', id) ORDER BY id)) FROM added;
	RETURN NULL;
END
$$;
CREATE TRIGGER r BEFORE INSERT ON t_enqueue_order FOR EACH ROW EXECUTE FUNCTION t_enqueue_row();
CREATE TRIGGER s AFTER INSERT ON t_enqueue_order REFERENCING NEW TABLE AS added
	FOR EACH STATEMENT EXECUTE FUNCTION t_enqueue_statement();
\set VERBOSITY sqlstate
INSERT INTO t_enqueue_order VALUES (1), (2);
INSERT INTO t_enqueue_order VALUES (3), (10);
INSERT INTO t_enqueue_order VALUES (4);
SELECT * FROM pg_temp.drain();

-- a deferred constraint trigger, which runs while the transaction commits
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON t_enqueue_order DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION t_enqueue_row();
INSERT INTO t_enqueue_order VALUES (5);
SELECT * FROM pg_temp.drain();
DROP TABLE t_enqueue_order;
DROP FUNCTION t_enqueue_row(), t_enqueue_statement();

-- any isolation level, and without waiting for the disk
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT udb.enqueue('t_enqueue', '"repeatable read"') IS NOT NULL AS ok;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT udb.enqueue('t_enqueue', '"serializable"') IS NOT NULL AS ok;
COMMIT;
BEGIN;
SET LOCAL synchronous_commit = off;
SELECT udb.enqueue('t_enqueue', '"asynchronous"') IS NOT NULL AS ok;
COMMIT;
SELECT * FROM pg_temp.drain();

-- not in a read-only transaction
BEGIN READ ONLY;
SELECT udb.enqueue('t_enqueue', '1');
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.enqueue_many('t_enqueue', '{1}');
ROLLBACK;

-- a role that can do nothing else, whatever its search_path
CREATE ROLE regress_udb_writer;
GRANT EXECUTE ON FUNCTION udb.enqueue(text, jsonb, text, uuid, jsonb),
	udb.enqueue_many(text, jsonb[], text[], uuid[], jsonb[]) TO regress_udb_writer;
CREATE SCHEMA t_enqueue_trap AUTHORIZATION regress_udb_writer;
SET ROLE regress_udb_writer;
SET search_path = t_enqueue_trap, pg_catalog;
CREATE FUNCTION t_enqueue_trap.texteq(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0 > 0';
SELECT udb.enqueue('t_enqueue', '"one"') IS NOT NULL AS ok, current_user;
SELECT udb.enqueue('t_enqueue', '"with id"', event_id => '018f0000-0000-7000-8000-0000000000e4') IS NOT NULL AS ok;
SELECT cardinality(udb.enqueue_many('t_enqueue', '{"\"many\""}'));
SELECT count(*) FROM udb.outbox_events;
INSERT INTO udb.outbox_events SELECT 1, gen_random_uuid(), 't_enqueue', '', '{}', NULL, now();
SELECT * FROM udb.read('t_enqueue');
RESET ROLE;
RESET search_path;
DROP SCHEMA t_enqueue_trap CASCADE;
DROP OWNED BY regress_udb_writer;
DROP ROLE regress_udb_writer;
SELECT * FROM pg_temp.drain();

-- labelled parallel unsafe, so a query that calls it has no parallel plan ...
CREATE TABLE t_enqueue_big AS SELECT n FROM generate_series(1, 10000) n;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
CREATE FUNCTION pg_temp.is_parallel(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan ~ 'Gather';
END
$$;
SELECT pg_temp.is_parallel('SELECT n FROM t_enqueue_big WHERE n % 1000 = 0') AS without,
	pg_temp.is_parallel($$SELECT udb.enqueue('t_enqueue', '1') FROM t_enqueue_big WHERE n % 1000 = 0$$) AS "with",
	pg_temp.is_parallel($$SELECT udb.enqueue_many('t_enqueue', '{1}') FROM t_enqueue_big WHERE n % 1000 = 0$$)
	AS "with many";
-- ... and one that lies about it is caught
CREATE FUNCTION t_enqueue_liar(n int) RETURNS bigint PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN
	RETURN udb.enqueue('t_enqueue', to_jsonb(n));
END
$$;
SELECT pg_temp.is_parallel('SELECT t_enqueue_liar(n) FROM t_enqueue_big WHERE n % 1000 = 0') AS lies;
SELECT t_enqueue_liar(n) FROM t_enqueue_big WHERE n % 1000 = 0;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
DROP FUNCTION t_enqueue_liar;
DROP TABLE t_enqueue_big;
SELECT * FROM pg_temp.drain();

-- from a query that changes other things, from a cursor, from a prepared statement
CREATE TABLE t_enqueue_log (n int, seq bigint);
WITH w AS (INSERT INTO t_enqueue_log SELECT n, udb.enqueue('t_enqueue', to_jsonb(n)) FROM generate_series(1, 3) n
	RETURNING n, seq)
SELECT count(*) FROM w;
SELECT array_agg(n ORDER BY seq) FROM t_enqueue_log;
BEGIN;
DECLARE c CURSOR FOR SELECT udb.enqueue('t_enqueue', to_jsonb(n)) IS NOT NULL AS ok FROM generate_series(11, 20) n;
FETCH 2 FROM c;
COMMIT;
PREPARE p(jsonb) AS SELECT udb.enqueue('t_enqueue', $1) IS NOT NULL AS ok;
EXECUTE p('"prepared"');
DEALLOCATE p;
DROP TABLE t_enqueue_log;
SELECT * FROM pg_temp.drain();

-- the table can be replicated: its changes are in the write-ahead log as those of any table
CREATE PUBLICATION t_enqueue FOR TABLE udb.outbox_events WITH (publish_via_partition_root = true);
SELECT slot_name FROM pg_create_logical_replication_slot('t_enqueue', 'pgoutput');
SELECT udb.enqueue('t_enqueue', '{"to be": "replicated"}') IS NOT NULL AS ok,
	udb.enqueue_many('t_enqueue', '{"{\"and\": \"many\"}"}') IS NOT NULL AS ok;
SELECT substring(encode(data, 'escape') FROM '{".*}') AS payload
FROM pg_logical_slot_get_binary_changes('t_enqueue', NULL, NULL, 'proto_version', '1', 'publication_names', 't_enqueue')
WHERE get_byte(data, 0) = ascii('I');
SELECT pg_drop_replication_slot('t_enqueue');
DROP PUBLICATION t_enqueue;

SELECT udb.drop_consumer('t_enqueue');
