-- What a producer can rely on, within one transaction that is rolled back at the end.
BEGIN;
SELECT plan(51);

-- ---- the surface ----

SELECT has_schema('udb');
SELECT has_extension('udb');
SELECT has_function('udb', 'enqueue', ARRAY['text', 'jsonb', 'text', 'uuid', 'jsonb'], 'enqueue() is there');
SELECT function_returns('udb', 'enqueue', 'bigint', 'enqueue() returns a position');
SELECT volatility_is('udb', 'enqueue', 'volatile', 'enqueue() is volatile');
SELECT has_function('udb', 'enqueue_many', ARRAY['text', 'jsonb[]', 'text[]', 'uuid[]', 'jsonb[]'], 'enqueue_many() is there');
SELECT function_returns('udb', 'enqueue_many', 'bigint[]', 'enqueue_many() returns positions');
SELECT has_function('udb', 'outbox_trigger', ARRAY[]::text[], 'outbox_trigger() is there');
SELECT function_returns('udb', 'outbox_trigger', 'trigger', 'and is a trigger function');
SELECT is_partitioned('udb', 'outbox_events', 'the log is partitioned');
SELECT columns_are('udb', 'outbox_events',
	ARRAY['event_seq', 'event_id', 'topic', 'partition_key', 'payload', 'headers', 'created_at']);
SELECT col_not_null('udb', 'outbox_events', 'event_seq', 'there is no event without a position');
SELECT col_not_null('udb', 'outbox_events', 'payload', 'there is no event without a payload');
SELECT has_view('udb', 'error_codes', 'error_codes is there');

-- ---- one event ----

SELECT udb.enqueue('p_outbox', '{"n": 1}') AS seq \gset
SELECT cmp_ok(:seq::bigint, '>', 0::bigint, 'enqueue() returns a position above 0');
SELECT results_eq(format('SELECT topic, partition_key, payload, headers FROM udb.outbox_events WHERE event_seq = %s', :seq),
	$$VALUES ('p_outbox', '', '{"n": 1}'::jsonb, NULL::jsonb)$$, 'the event is in the table at this position, with defaults');
SELECT cmp_ok(udb.enqueue('p_outbox', '{"n": 2}'), '>', :seq::bigint, 'positions rise');
SELECT ok((SELECT created_at >= now() FROM udb.outbox_events WHERE event_seq = :seq), 'created_at is not before the transaction');
SELECT is((SELECT substr(event_id::text, 15, 1) FROM udb.outbox_events WHERE event_seq = :seq), '7',
	'without an event_id one of version 7 is made');

-- ---- the same event again ----

\set id '''018f0000-0000-7000-8000-000000000401'''
SELECT udb.enqueue('p_outbox', '{"a": 1, "b": 2}', 'k', :id) AS seq \gset
SELECT is(udb.enqueue('p_outbox', '{"b": 2, "a": 1}', 'k', :id), :seq::bigint, 'the same event again is the same position');
SELECT is(udb.enqueue_many('p_outbox', ARRAY['{"b": 2, "a": 1}']::jsonb[], '{k}', ARRAY[:id]::uuid[]), ARRAY[:seq::bigint],
	'also by enqueue_many()');
SELECT is((SELECT count(*) FROM udb.outbox_events WHERE event_id = :id), 1::bigint, 'and it is there once');
SELECT throws_ok(format('SELECT udb.enqueue(''p_other'', ''{"a": 1, "b": 2}'', ''k'', %L)', :id), 'UD001', NULL,
	'another topic under the same id is an error');
SELECT throws_ok(format('SELECT udb.enqueue(''p_outbox'', ''{"a": 1, "b": 2}'', ''l'', %L)', :id), 'UD001', NULL,
	'so is another key');
SELECT throws_ok(format('SELECT udb.enqueue(''p_outbox'', ''{"a": 1, "b": 3}'', ''k'', %L)', :id), 'UD001', NULL,
	'so is another payload');
SELECT throws_ok(format('SELECT udb.enqueue_many(''p_outbox'', ''{1,1}'', NULL, ARRAY[%1$L, %1$L]::uuid[])',
	'018f0000-0000-7000-8000-000000000402'), 'UD008', NULL, 'the same id twice in one call is an error');

-- ---- many events ----

SELECT udb.enqueue_many('p_many', ARRAY['1', '2', '3']::jsonb[], ARRAY['a', 'b', 'c'], NULL,
	ARRAY[NULL, '{"h": 2}', NULL]::jsonb[]) AS seqs \gset
SELECT is(cardinality(:'seqs'::bigint[]), 3, 'enqueue_many() returns a position for each event');
SELECT results_eq(format('SELECT payload, partition_key, headers FROM udb.outbox_events WHERE event_seq = ANY (%L)
	ORDER BY array_position(%1$L, event_seq)', :'seqs'::bigint[]),
	$$VALUES ('1'::jsonb, 'a', NULL::jsonb), ('2', 'b', '{"h": 2}'), ('3', 'c', NULL)$$,
	'each event is where its position says, with its key and headers');
SELECT is((SELECT array_agg(event_seq ORDER BY event_seq) FROM udb.outbox_events WHERE topic = 'p_many'), :'seqs'::bigint[],
	'the order is that of the array');
SELECT is(udb.enqueue_many('p_many', '{}'), '{}'::bigint[], 'no events, no positions');

-- ---- rollback ----

SAVEPOINT s;
SELECT udb.enqueue('p_rollback', '1') AS seq \gset
ROLLBACK TO s;
SELECT is_empty('SELECT 1 FROM udb.outbox_events WHERE topic = ''p_rollback''', 'what is rolled back is not there');
SELECT cmp_ok(udb.enqueue('p_rollback', '2'), '>', :seq::bigint, 'and its position is not used again');

-- ---- bad input ----

SELECT throws_ok($$SELECT udb.enqueue(NULL, '1')$$, '22004', 'argument "topic" must not be null');
SELECT throws_ok($$SELECT udb.enqueue('t', NULL)$$, '22004', 'argument "payload" must not be null');
SELECT throws_ok($$SELECT udb.enqueue('t', '1', NULL)$$, '22004', 'argument "partition_key" must not be null');
SELECT throws_ok($$SELECT udb.enqueue('', '1')$$, '22023', 'topic must not be empty');
SELECT throws_ok($$SELECT udb.enqueue(repeat('x', 256), '1')$$, '22023', 'topic of 256 bytes is too long');
SELECT lives_ok($$SELECT udb.enqueue(repeat('x', 255), '1')$$, 'a topic of 255 bytes will do');
SELECT throws_ok($$SELECT udb.enqueue('t', '1', headers => '[1]')$$, '22023', 'headers must be a JSON object');
SELECT throws_ok($$SELECT udb.enqueue_many('t', '{1,2}', '{k}')$$, '2202E', NULL, 'keys of another length');
SELECT throws_ok($$SELECT udb.enqueue_many('t', '{1,NULL}')$$, '22004', NULL, 'a null among the payloads');
SELECT is_empty($$SELECT 1 FROM udb.outbox_events WHERE topic = 't'$$, 'and nothing came of it');

-- ---- the trigger ----

CREATE TABLE p_orders (id int PRIMARY KEY, region text, total numeric);
CREATE TRIGGER outbox AFTER INSERT OR UPDATE OR DELETE ON p_orders
	FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('p_orders', 'region', 'id');
INSERT INTO p_orders VALUES (1, 'eu', 10);
UPDATE p_orders SET total = 20;
DELETE FROM p_orders;
SELECT is((SELECT array_agg(payload ->> 'op' ORDER BY event_seq) FROM udb.outbox_events WHERE topic = 'p_orders'),
	ARRAY['INSERT', 'UPDATE', 'DELETE'], 'an event for each change');
SELECT is((SELECT array_agg(DISTINCT partition_key) FROM udb.outbox_events WHERE topic = 'p_orders'), ARRAY['eu:1'],
	'the key is made of the key columns');
SELECT is((SELECT payload FROM udb.outbox_events WHERE topic = 'p_orders' AND payload ->> 'op' = 'UPDATE'),
	jsonb_build_object('op', 'UPDATE', 'schema', 'public', 'table', 'p_orders', 'old',
		'{"id": 1, "region": "eu", "total": 10}'::jsonb, 'new', '{"id": 1, "region": "eu", "total": 20}'::jsonb),
	'the payload has op, schema, table, old and new');
SELECT throws_ok('SELECT udb.outbox_trigger()', '39P01', NULL, 'it is not to be called otherwise');

-- ---- who holds the horizon ----

SELECT is((SELECT count(*) FROM udb.horizon_holder() WHERE pid = pg_backend_pid()), 1::bigint,
	'this transaction is named, once');
SELECT ok((SELECT first_position <= :seq AND last_position > :seq FROM udb.horizon_holder() WHERE pid = pg_backend_pid()),
	'with its positions');
SELECT cmp_ok(udb.outbox_stable_seq(), '<', (SELECT first_position FROM udb.horizon_holder() WHERE pid = pg_backend_pid()),
	'and the horizon is below them');
SELECT cmp_ok(udb.outbox_max_seq(), '>', udb.outbox_stable_seq(), 'although it sees its own events');
SELECT throws_ok(format('SELECT udb.create_consumer(''p_outbox'', NULL, %L)', :seq), 'UD004', NULL,
	'nobody can be told to start above the horizon');

SELECT * FROM finish();
ROLLBACK;
