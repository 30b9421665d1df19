-- The contract of projection tasks, as every store has to keep it.
\set store ''
\getenv store UDB_STORE
BEGIN;
SELECT plan(85);
SELECT set_config('udb_contract.store', :'store', true);
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql STABLE AS
	$$ SELECT nullif(current_setting('udb_contract.store'), '') $$;

-- A task by the end of its key, and back.
CREATE TEMP TABLE id (name text PRIMARY KEY, task_id uuid);
CREATE FUNCTION pg_temp.id(name text) RETURNS uuid LANGUAGE sql AS
	$$ SELECT i.task_id FROM id i WHERE i.name = $1 $$;
CREATE FUNCTION pg_temp.put(name text, project text DEFAULT 'p', backend text DEFAULT 'neo4j',
		instance text DEFAULT 'main', source_table text DEFAULT 'orders', kind text DEFAULT 'graph') RETURNS void
	LANGUAGE sql AS $$
	INSERT INTO id SELECT $1, udb.enqueue_projection_task('contract:' || $1, $2, 'sum', 'shop.Order', 'public', $5,
		jsonb_build_object('id', $1), 'upsert', $3, $4, $6, 'Order', '{"label": "Order"}', '{"total": 1.50}', 'md5',
		store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.claim(batch_size int DEFAULT 50, max_retries int DEFAULT 5, backend text DEFAULT NULL,
		instance text DEFAULT NULL, project text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(substr(c.idempotency_key, 10), ' ' ORDER BY c.n) FROM udb.claim_projection_tasks($1, $2, $3, $4, $5,
		pg_temp.store()) WITH ORDINALITY c(task_id, idempotency_key, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14,
		c15, c16, c17, c18, c19, c20, c21, c22, c23, c24, c25, n) $$;
CREATE FUNCTION pg_temp.complete(name text) RETURNS boolean LANGUAGE sql AS
	$$ SELECT udb.complete_projection_task(pg_temp.id($1), store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.fail(name text, n int, status text DEFAULT 'FAILED', repairable boolean DEFAULT true)
	RETURNS boolean LANGUAGE sql AS
	$$ SELECT udb.fail_projection_task(pg_temp.id($1), $2, $3, 'because', $4, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.task(name text) RETURNS udb.projection_tasks LANGUAGE sql AS
	$$ SELECT t FROM udb.get_projection_task(pg_temp.id($1), pg_temp.store()) t $$;
CREATE FUNCTION pg_temp.status(name text) RETURNS text LANGUAGE sql AS $$ SELECT (pg_temp.task($1)).status $$;
CREATE FUNCTION pg_temp.pending(names text) RETURNS bigint LANGUAGE sql AS $$
	SELECT udb.pending_projection_task_count(
		(SELECT array_agg('contract:' || n) FROM unnest(string_to_array($1, ' ')) n), pg_temp.store()) $$;

-- enqueue
SELECT pg_temp.put('a');
SELECT isnt(pg_temp.id('a'), NULL, 'a task has an id');
SELECT is(udb.enqueue_projection_task('contract:a', 'other', source_table => 't', target_backend => 'b',
	store => pg_temp.store()), pg_temp.id('a'), 'the same key again gives the same id');
SELECT results_eq($$
	SELECT idempotency_key, project_id, manifest_checksum, message_type, source_schema, source_table, source_row_key,
		operation, target_backend, target_instance, projection_kind, resource_name, target_options, source_payload,
		source_checksum, status, retry_count, last_error, next_retry_at, completed_at, claim_token, repairable
	FROM udb.get_projection_task(pg_temp.id('a'), pg_temp.store())$$, $$
	VALUES ('contract:a' COLLATE "C", 'p' COLLATE "C", 'sum', 'shop.Order', 'public' COLLATE "C", 'orders' COLLATE "C",
		'{"id": "a"}'::jsonb, 'upsert', 'neo4j' COLLATE "C", 'main' COLLATE "C", 'graph' COLLATE "C", 'Order',
		'{"label": "Order"}'::jsonb, '{"total": 1.50}'::jsonb, 'md5', 'PENDING', 0, NULL::text, NULL::timestamptz,
		NULL::timestamptz, 0::bigint, true)$$, 'and the task is as the first one has made it');
SELECT ok((pg_temp.task('a')).created_at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp(),
	'it was created now');
SELECT is_empty($$SELECT * FROM udb.get_projection_task('00000000-0000-0000-0000-000000000000', pg_temp.store())$$,
	'an unknown task is no row');
SELECT is(pg_temp.pending('a nothing'), 1::bigint, 'it is pending, a key without a task is not');

-- claim
SELECT is(pg_temp.claim(), 'a', 'it can be claimed');
SELECT is(pg_temp.status('a'), 'IN_PROGRESS', 'and is in progress');
SELECT is((pg_temp.task('a')).claim_token, 1::bigint, 'with a token');
SELECT is(pg_temp.claim(), NULL, 'it is not claimed twice');
SELECT is(pg_temp.pending('a'), 1::bigint, 'and still pending');

-- complete
SELECT ok(NOT udb.complete_projection_task(pg_temp.id('a'), 2::bigint, pg_temp.store()), 'a token that is none is refused');
SELECT ok(NOT udb.complete_projection_task(pg_temp.id('a'), 0::bigint, pg_temp.store()), 'so is one of before');
SELECT is(pg_temp.status('a'), 'IN_PROGRESS', 'and changes nothing');
SELECT ok(udb.complete_projection_task(pg_temp.id('a'), 1::bigint, pg_temp.store()), 'the claim completes the task');
SELECT is(pg_temp.status('a'), 'COMPLETED', 'which is completed');
SELECT ok((pg_temp.task('a')).completed_at <= clock_timestamp(), 'at a time');
SELECT ok(NOT pg_temp.complete('a'), 'once only');
SELECT ok(NOT pg_temp.fail('a', 1), 'and cannot fail any more');
SELECT is(pg_temp.status('a'), 'COMPLETED', 'at all');
SELECT is(pg_temp.pending('a'), 0::bigint, 'it is not pending');
SELECT is(udb.enqueue_projection_task('contract:a', 'p', source_table => 't', target_backend => 'b',
	store => pg_temp.store()), pg_temp.id('a'), 'its key is known');
SELECT is(pg_temp.status('a'), 'COMPLETED', 'and does not bring it back');
SELECT ok(NOT udb.complete_projection_task('00000000-0000-0000-0000-000000000000', store => pg_temp.store()),
	'a task that is not there cannot be completed');

-- not without a claim
SELECT pg_temp.put('b');
SELECT ok(NOT pg_temp.complete('b'), 'nor one that nobody has claimed');
SELECT ok(NOT pg_temp.fail('b', 1), 'nor can it fail');
SELECT is(pg_temp.status('b'), 'PENDING', 'it stays pending');

-- fail and retry
SELECT is(pg_temp.claim(), 'b', 'once claimed');
SELECT ok(pg_temp.fail('b', 1), 'it can fail');
SELECT is(pg_temp.status('b'), 'FAILED', 'and is FAILED');
SELECT is((pg_temp.task('b')).last_error, 'because', 'with the error');
SELECT is((pg_temp.task('b')).retry_count, 1, 'and the count');
SELECT is(pg_temp.pending('b'), 0::bigint, 'that is not pending');
SELECT is(pg_temp.claim(), NULL, 'not to be claimed before its time');
SELECT is((SELECT string_agg(round(extract(epoch FROM (t).next_retry_at - (t).updated_at))::text, ' ' ORDER BY n)
	FROM (SELECT n, pg_temp.put('r' || n), pg_temp.claim(), pg_temp.fail('r' || n, n), pg_temp.task('r' || n) AS t
		FROM generate_series(0, 13) n OFFSET 0) s), '1 1 2 4 8 16 32 64 128 256 512 1024 2048 2048',
	'the delay doubles up to the twelfth time');
SELECT pg_sleep(greatest(0, extract(epoch FROM (pg_temp.task('r1')).next_retry_at - clock_timestamp()) + 0.001));
SELECT is(pg_temp.claim(max_retries => 1, project => 'p'), 'r0', 'when it has come, not if it has failed that often');
SELECT is(pg_temp.claim(max_retries => 2), 'b r1', 'but if it may fail more often, oldest first');
SELECT is((pg_temp.task('b')).claim_token, 2::bigint, 'with a higher token');
SELECT ok(NOT udb.complete_projection_task(pg_temp.id('b'), 1::bigint, pg_temp.store()), 'the former claim is lost');
SELECT ok(NOT udb.fail_projection_task(pg_temp.id('b'), 2, 'FAILED', 'e', 1::bigint, store => pg_temp.store()),
	'for failing too');
SELECT ok(NOT udb.heartbeat_projection_task(pg_temp.id('b'), 1, pg_temp.store()), 'and for a heartbeat');
SELECT is((pg_temp.task('b')).last_error, 'because', 'which have changed nothing');
SELECT ok(udb.heartbeat_projection_task(pg_temp.id('b'), 2, pg_temp.store()), 'the present one is not lost');
SELECT ok(udb.fail_projection_task(pg_temp.id('b'), 5, 'DEAD_LETTER', 'too often', 2::bigint, store => pg_temp.store()),
	'and can give up');
SELECT is((pg_temp.task('b')).status || (pg_temp.task('b')).retry_count, 'DEAD_LETTER5', 'for good');
SELECT is((pg_temp.task('b')).next_retry_at, NULL, 'without another time');
SELECT is(pg_temp.pending('b'), 0::bigint, 'that is not pending either');
SELECT is((SELECT count(*) FROM generate_series(0, 1) n WHERE pg_temp.complete('r' || n)), 2::bigint,
	'the others are completed');

-- order and filters
SELECT pg_temp.put('c1', backend => 'x'), pg_temp.put('c2', project => 'q'), pg_temp.put('c3', instance => 'second'),
	pg_temp.put('c4'), pg_temp.put('c5', backend => 'x', instance => 'second', project => 'q');
SELECT is(pg_temp.claim(batch_size => 0), NULL, 'no task if none is asked for');
SELECT is(pg_temp.claim(batch_size => -1), NULL, 'nor for less');
SELECT is(pg_temp.claim(backend => 'y'), NULL, 'none of another backend');
SELECT is(pg_temp.claim(1, backend => 'neo4j'), 'c2', 'the oldest of a backend');
SELECT is(pg_temp.claim(1, instance => 'second'), 'c3', 'of an instance');
SELECT is(pg_temp.claim(backend => 'x', instance => 'second', project => 'q'), 'c5', 'of all three');
SELECT is(pg_temp.claim(backend => 'x', instance => 'second', project => 'q'), NULL, 'once');
SELECT is(pg_temp.claim(project => 'p'), 'c1 c4', 'of a project');

-- stale
SELECT is(udb.reset_stale_projection_tasks('1 hour', pg_temp.store()), 0::bigint, 'none is stale');
SELECT ok(pg_temp.complete('c1'), 'one is completed');
SELECT is(udb.reset_stale_projection_tasks('0', pg_temp.store()), 4::bigint, 'those in progress are taken back');
SELECT is((pg_temp.task('c4')).status || ': ' || (pg_temp.task('c4')).last_error,
	'PENDING: stale in-progress reconciliation', 'with a note');
SELECT is(pg_temp.status('c1'), 'COMPLETED', 'not the one that is completed');
SELECT ok(NOT udb.complete_projection_task(pg_temp.id('c4'), 1::bigint, pg_temp.store()), 'their claims are lost');
SELECT ok(NOT udb.heartbeat_projection_task(pg_temp.id('c4'), 1, pg_temp.store()), 'all of them');
SELECT is(pg_temp.claim(), 'c2 c3 c4 c5', 'they can be claimed, oldest first');
SELECT is((pg_temp.task('c4')).claim_token, 2::bigint, 'with a token that goes on');

-- dead letters
SELECT is((SELECT count(*) FROM (VALUES ('c2'), ('c3'), ('c4')) v(name) WHERE pg_temp.fail(name, 3, 'DEAD_LETTER')),
	3::bigint, 'three give up');
SELECT ok(pg_temp.fail('c5', 3, 'DEAD_LETTER', repairable => false), 'one beyond repair');
SELECT results_eq($$SELECT project_id, source_table, target_backend, target_instance, task_count
	FROM udb.dead_letter_groups(store => pg_temp.store())$$,
	$$VALUES ('p', 'orders', 'neo4j', 'main', 2::bigint), ('p', 'orders', 'neo4j', 'second', 1),
		('q', 'orders', 'neo4j', 'main', 1)$$, 'groups of those that can be repaired');
SELECT is((SELECT count(*) FROM udb.dead_letter_groups(1, pg_temp.store())), 1::bigint, 'so many of them');
SELECT is((SELECT count(*) FROM udb.dead_letter_groups(0, pg_temp.store())), 0::bigint, 'or none');
SELECT is(udb.requeue_dead_letter_by_source('q', 'orders', 'x', 'second', pg_temp.store()), 0::bigint,
	'what is beyond repair is not repaired');
SELECT is(udb.requeue_dead_letter_by_source('p', 'orders', 'neo4j', 'main', pg_temp.store()), 2::bigint,
	'a group is repaired');
SELECT is((pg_temp.task('c4')).status || (pg_temp.task('c4')).retry_count || (pg_temp.task('c4')).last_error,
	'PENDING0reconciliation repair', 'with a note');
SELECT is(pg_temp.status('c2') || ' ' || pg_temp.status('c3'), 'DEAD_LETTER DEAD_LETTER',
	'but no other project, and no other instance');
SELECT is(udb.requeue_dead_letter_tasks('x', pg_temp.store()), 1::bigint,
	'an operator puts back those of a backend, what was beyond repair too');
SELECT is(udb.requeue_dead_letter_tasks(store => pg_temp.store()), 2::bigint, 'or all');
SELECT is((pg_temp.task('c3')).status || (pg_temp.task('c3')).retry_count, 'PENDING0', 'as new');

-- numbers
SELECT is((SELECT array[s.pending, s.in_progress, s.completed, s.failed, s.dead_letter]
	FROM udb.projection_task_summary(pg_temp.store()) s), '{5,0,4,12,0}', 'the summary');
SELECT results_eq($$SELECT project_id, target_backend, target_instance, projection_kind, pending_count
	FROM udb.pending_task_metrics(store => pg_temp.store())$$,
	$$VALUES ('p', 'neo4j', 'main', 'graph', 2::bigint), ('q', 'neo4j', 'main', 'graph', 1),
		('p', 'neo4j', 'second', 'graph', 1), ('q', 'x', 'second', 'graph', 1)$$, 'what is pending, the oldest first');
SELECT ok(bool_and(m.oldest_age_seconds BETWEEN 0 AND 60), 'with the age of the oldest')
	FROM udb.pending_task_metrics(store => pg_temp.store()) m;
SELECT is((SELECT count(*) FROM udb.pending_task_metrics(2, pg_temp.store())), 2::bigint, 'so many of them');

-- errors
SELECT throws_ok($$SELECT udb.fail_projection_task(pg_temp.id('c4'), 1, 'COMPLETED', 'e', store => pg_temp.store())$$,
	'22023', NULL, 'a task cannot fail as COMPLETED');
SELECT throws_ok($$SELECT udb.enqueue_projection_task('k', 'p', source_table => 't', operation => 'merge',
	target_backend => 'b', store => pg_temp.store())$$, '22023', NULL, 'an unknown operation is an error');
SELECT throws_ok($$SELECT udb.enqueue_projection_task(NULL, 'p', source_table => 't', target_backend => 'b',
	store => pg_temp.store())$$, '22004', NULL, 'so is no key');
SELECT throws_ok($$SELECT udb.claim_projection_tasks(NULL, store => pg_temp.store())$$, '22004', NULL, 'or no number');

SELECT * FROM finish();
ROLLBACK;
