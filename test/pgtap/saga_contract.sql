-- The contract of sagas, as every store has to keep it. UDB_STORE names the store; without it, it is this database.
-- What other runs have left in the store does not matter: this one has a tenant of its own.
\set store ''
\getenv store UDB_STORE
BEGIN;
SELECT plan(128);
SELECT set_config('contract.store', :'store', true) AS store \gset
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql STABLE AS $$ SELECT nullif(current_setting('contract.store'), '') $$;
SELECT set_config('contract.tenant', 'contract ' || gen_random_uuid(), true) AS tenant \gset
CREATE FUNCTION pg_temp.tenant() RETURNS text LANGUAGE sql STABLE AS $$ SELECT current_setting('contract.tenant') $$;

-- Sagas by the names that the tests give them.
CREATE TEMP TABLE named (name text PRIMARY KEY, saga_id uuid NOT NULL);
CREATE FUNCTION pg_temp.new(name text, status text, compensation_status text DEFAULT 'none') RETURNS text LANGUAGE sql AS $$
	INSERT INTO named VALUES ($1, udb.record_saga(tx_id => $1, tenant_id => pg_temp.tenant(), status => $2,
		compensation_status => $3, store => pg_temp.store())) RETURNING name
$$;
CREATE FUNCTION pg_temp.id(name text) RETURNS uuid LANGUAGE sql STABLE AS $$ SELECT saga_id FROM named n WHERE n.name = $1 $$;
CREATE FUNCTION pg_temp.saga(name text) RETURNS udb.saga LANGUAGE sql VOLATILE AS $$
	SELECT g FROM udb.get_saga(pg_temp.id($1), pg_temp.store()) g
$$;
CREATE FUNCTION pg_temp.status(name text) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT s.status || ' ' || s.compensation_status FROM pg_temp.saga($1) s
$$;
-- What a claim returns of this run's sagas, in its order.
CREATE FUNCTION pg_temp.claim(stale_after interval, row_limit bigint DEFAULT 1000) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT string_agg(c.tx_id, ' ' ORDER BY n) FROM udb.claim_recoverable_sagas($1, $2, pg_temp.store())
		WITH ORDINALITY c (saga_id, tx_id, tenant_id, correlation_id, status, backend_instance, operation, current_step,
			retry_count, recovery_attempts, compensation_status, steps, compensations, last_error, created_at, updated_at, n)
	WHERE c.tenant_id = pg_temp.tenant()
$$;
-- The same, until there is something.
CREATE FUNCTION pg_temp.claim_patiently(stale_after interval, row_limit bigint DEFAULT 1000) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	FOR i IN 1 .. 3000 LOOP
		result := pg_temp.claim($1, $2);
		EXIT WHEN result IS NOT NULL;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN result;
END
$$;
CREATE FUNCTION pg_temp.list(status text DEFAULT NULL, tx_id text DEFAULT NULL, correlation_id text DEFAULT NULL,
		row_limit bigint DEFAULT 100, row_offset bigint DEFAULT 0) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT string_agg(l.tx_id, ' ' ORDER BY n) FROM udb.list_sagas(pg_temp.tenant(), $1, $2, $3, $4, $5, pg_temp.store())
		WITH ORDINALITY l (saga_id, tx_id, tenant_id, correlation_id, status, backend_instance, operation, current_step,
			retry_count, recovery_attempts, compensation_status, steps, compensations, last_error, created_at, updated_at, n)
$$;

-- Until a saga was last touched longer than 1 ms ago.
CREATE FUNCTION pg_temp.older_than_a_moment(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT updated_at >= clock_timestamp() - interval '1 ms' FROM pg_temp.saga($1)) LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN true;
END
$$;

-- what is left of other runs is not in the way
SELECT count(*) >= 0 AS others FROM udb.claim_recoverable_sagas('1 day', 1000000, pg_temp.store()) \gset
CREATE TEMP TABLE summary_before AS SELECT * FROM udb.saga_summary(pg_temp.store());

-- ---- recording ----

SELECT is(pg_temp.new('plain', 'pending'), 'plain', 'a saga is recorded');
SELECT ok(pg_temp.id('plain') IS NOT NULL, 'and gets an id');
SELECT is(s.saga_id, pg_temp.id('plain'), 'by which it is found') FROM pg_temp.saga('plain') s;
SELECT is((tx_id, tenant_id, correlation_id, status, backend_instance, operation, current_step, retry_count,
		recovery_attempts, compensation_status, steps, compensations, last_error)::text,
	('plain'::text, pg_temp.tenant(), ''::text, 'pending'::text, ''::text, ''::text, 0, 0, 0, 'none'::text, '[]'::jsonb, '[]'::jsonb, ''::text)::text,
	'what was not given is empty') FROM pg_temp.saga('plain') s;
SELECT ok(created_at <= clock_timestamp() AND created_at > clock_timestamp() - interval '1 min' AND updated_at = created_at,
	'it was created now') FROM pg_temp.saga('plain');
INSERT INTO named SELECT 'full', udb.record_saga('018f0000-0000-4000-8000-000000000001', 'full', pg_temp.tenant(), 'corr', 'in_doubt',
	'pg-1', 'transfer', 2, 3, 4, 'retry_requested', '[{"step": "debit"}, 1, null]', '[{"a": {"b": [1.50]}}]', 'oops "ü" \', pg_temp.store())
	ON CONFLICT DO NOTHING;
SELECT is((saga_id, tx_id, tenant_id, correlation_id, status, backend_instance, operation, current_step, retry_count,
		recovery_attempts, compensation_status, steps, compensations, last_error)::text,
	('018f0000-0000-4000-8000-000000000001'::uuid, 'full'::text, pg_temp.tenant(), 'corr'::text, 'in_doubt'::text, 'pg-1'::text,
		'transfer'::text, 2, 3, 4, 'retry_requested'::text, '[{"step": "debit"}, 1, null]'::jsonb, '[{"a": {"b": [1.50]}}]'::jsonb,
		'oops "ü" \'::text)::text,
	'what was given is there as it was') FROM pg_temp.saga('full') s;
SELECT is_empty($$ SELECT * FROM udb.get_saga('018f0000-0000-4000-8000-00000000dead', pg_temp.store()) $$,
	'a saga that is missing gives no row');

-- the same again
SELECT is(udb.record_saga(pg_temp.id('plain'), 'plain', pg_temp.tenant(), store => pg_temp.store()), pg_temp.id('plain'),
	'the same saga_id again returns it');
SELECT lives_ok($$ SELECT udb.update_saga_status(pg_temp.id('plain'), 'committed', store => pg_temp.store()) $$, 'when it has moved on');
SELECT is(udb.record_saga(pg_temp.id('plain'), 'plain', pg_temp.tenant(), store => pg_temp.store()), pg_temp.id('plain'), 'too');
SELECT is(pg_temp.status('plain'), 'committed none', 'and that changes nothing');
SELECT throws_ok($$ SELECT udb.record_saga(pg_temp.id('plain'), 'other', pg_temp.tenant(), store => pg_temp.store()) $$, 'UD056', NULL,
	'for another saga it is an error');
SELECT throws_ok($$ SELECT udb.record_saga(pg_temp.id('plain'), 'plain', pg_temp.tenant(), compensations => '[1]', store => pg_temp.store()) $$,
	'UD056', NULL, 'also if only the compensations differ');
SELECT is((SELECT tx_id FROM pg_temp.saga('plain')), 'plain', 'and changes nothing');
SELECT isnt(udb.record_saga(tx_id => 'plain', tenant_id => pg_temp.tenant(), store => pg_temp.store()), pg_temp.id('plain'),
	'several sagas can have the same tx_id');
SELECT is(pg_temp.list(tx_id => 'plain'), 'plain plain', 'and are found by it');

-- ---- words ----

SELECT lives_ok(format($$ SELECT pg_temp.new(%L, %L) $$, 'word ' || w, w), w || ' is a status')
FROM unnest('{indeterminate,in_progress,pending,committed,compensated,failed,in_doubt,failed_compensation,manual_review}'::text[]) w;
SELECT lives_ok(format($$ SELECT pg_temp.new(%L, 'pending', %L) $$, 'compensation ' || w, w), w || ' is a compensation_status')
FROM unnest('{none,completed,manual_review,retry_requested}'::text[]) w;
SELECT throws_ok(format($$ SELECT pg_temp.new('bad', %L) $$, w), '22023', NULL, format('"%s" is no status', w))
FROM unnest('{running,INDETERMINATE,""}'::text[]) w;
SELECT throws_ok($$ SELECT pg_temp.new('bad', 'pending', 'committed') $$, '22023', NULL, 'a status is no compensation_status');

-- ---- summary ----

SELECT is((n.indeterminate - b.indeterminate, n.in_progress - b.in_progress, n.pending - b.pending, n.committed - b.committed,
	n.compensated - b.compensated, n.failed - b.failed, n.in_doubt - b.in_doubt, n.failed_compensation - b.failed_compensation,
	n.manual_review - b.manual_review)::text, '(1,1,6,2,1,1,2,1,1)', 'the summary counts each status')
FROM udb.saga_summary(pg_temp.store()) n, summary_before b;
SELECT is((SELECT count(*) FROM jsonb_object_keys(to_jsonb((SELECT s FROM udb.saga_summary(pg_temp.store()) s)))), 9::bigint,
	'of which there are nine');

-- ---- lists ----

SELECT is(pg_temp.list(status => 'in_doubt'), 'word in_doubt full', 'a list by status, newest first');
SELECT is(pg_temp.list(correlation_id => 'corr'), 'full', 'by correlation_id');
SELECT is(pg_temp.list(status => 'committed', tx_id => 'full'), NULL, 'by all that is given');
SELECT is(pg_temp.list(tx_id => ''), NULL, 'an empty filter is not the same as none');
SELECT is(pg_temp.list(), (SELECT string_agg(tx_id, ' ' ORDER BY created_at DESC, saga_id DESC)
	FROM udb.list_sagas(pg_temp.tenant(), store => pg_temp.store())), 'all of a tenant, newest first');
SELECT is(split_part(pg_temp.list(), ' ', 1) || split_part(pg_temp.list(), ' ', 2), 'compensationretry_requested', 'the last one that was recorded first');
SELECT is(pg_temp.list(row_limit => 2, status => 'pending'), 'compensation retry_requested compensation manual_review', 'as many as are asked for');
SELECT is(pg_temp.list(row_limit => 1, row_offset => 2, status => 'pending'), 'compensation completed', 'from where it is asked for');
SELECT is(string_agg(p, ' ' ORDER BY i), pg_temp.list(), 'page by page it is the same')
FROM generate_series(0, 100) i, LATERAL pg_temp.list(row_limit => 1, row_offset => i) p WHERE p IS NOT NULL;
SELECT is(pg_temp.list(row_limit => 0), NULL, 'none are asked for');
SELECT is(pg_temp.list(row_limit => -1), NULL, 'less than none');
SELECT is(pg_temp.list(row_limit => -9223372036854775808), NULL, 'far less');
SELECT is(pg_temp.list(row_limit => 9223372036854775807), pg_temp.list(), 'as many as there can be');
SELECT is(pg_temp.list(row_offset => -5), pg_temp.list(), 'a negative offset is none');
SELECT is(pg_temp.list(row_offset => 9223372036854775807), NULL, 'far behind the end there is nothing');
SELECT throws_ok($$ SELECT * FROM udb.list_sagas(status => 'running', store => pg_temp.store()) $$, '22023', NULL, 'an unknown status is an error');
SELECT throws_ok($$ SELECT * FROM udb.list_sagas(row_limit => NULL, store => pg_temp.store()) $$, '22004', NULL, 'so is no limit');
SELECT throws_ok($$ SELECT * FROM udb.list_sagas(row_offset => NULL, store => pg_temp.store()) $$, '22004', NULL, 'and no offset');

-- ---- status ----

SELECT is(pg_temp.new('u1', 'pending') || pg_temp.new('u2', 'pending') || pg_temp.new('u3', 'pending'), 'u1u2u3', 'three more');
SELECT updated_at AS before FROM pg_temp.saga('u1') \gset
SELECT lives_ok($$ SELECT udb.update_saga_status(pg_temp.id('u1'), 'failed_compensation', 'retry_requested', pg_temp.store()) $$, 'status and compensation_status are set');
SELECT is(pg_temp.status('u1'), 'failed_compensation retry_requested', 'both of them');
SELECT ok(updated_at > :'before', 'which touches the saga') FROM pg_temp.saga('u1');
SELECT lives_ok($$ SELECT udb.update_saga_status(pg_temp.id('u1'), 'committed', store => pg_temp.store()) $$, 'the status alone is set');
SELECT is(pg_temp.status('u1'), 'committed retry_requested', 'and leaves the other as it was');
SELECT is(pg_temp.status('u2'), 'pending none', 'other sagas too');
SELECT is(udb.update_saga_status(ARRAY[pg_temp.id('u2'), pg_temp.id('u3'), pg_temp.id('u2'), '018f0000-0000-4000-8000-00000000dead', NULL],
	'compensated', 'completed', pg_temp.store()), 2::bigint, 'several at once: as many as there are');
SELECT is(pg_temp.status('u2') || ', ' || pg_temp.status('u3'), 'compensated completed, compensated completed', 'all of them');
SELECT is(udb.update_saga_status('{}'::uuid[], 'failed', store => pg_temp.store()), 0::bigint, 'none at once');
SELECT throws_ok($$ SELECT udb.update_saga_status('018f0000-0000-4000-8000-00000000dead'::uuid, 'failed', store => pg_temp.store()) $$, 'UD055', NULL, 'a missing one is an error');
SELECT throws_ok($$ SELECT udb.update_saga_status(pg_temp.id('u1'), 'done', store => pg_temp.store()) $$, '22023', NULL, 'so is an unknown status');
SELECT throws_ok($$ SELECT udb.update_saga_status(ARRAY[pg_temp.id('u1')], 'failed', 'done', pg_temp.store()) $$, '22023', NULL, 'or compensation_status');
SELECT throws_ok($$ SELECT udb.update_saga_status(pg_temp.id('u1'), NULL, store => pg_temp.store()) $$, '22004', NULL, 'or none');
SELECT is(pg_temp.status('u1'), 'committed retry_requested', 'which changes nothing');

-- ---- people ----

SELECT lives_ok($$ SELECT udb.mark_saga_manual_review(pg_temp.id('u1'), pg_temp.store()) $$, 'a saga is left to people');
SELECT is(pg_temp.status('u1'), 'manual_review manual_review', 'and says so');
SELECT throws_ok($$ SELECT udb.mark_saga_manual_review('018f0000-0000-4000-8000-00000000dead', pg_temp.store()) $$, 'UD055', NULL, 'if there is one');
SELECT lives_ok($$ SELECT udb.request_saga_recompensation(pg_temp.id('u1'), pg_temp.store()) $$, 'they have it compensated again');
SELECT is(pg_temp.status('u1'), 'indeterminate retry_requested', 'which puts it back');
SELECT is((SELECT retry_count FROM pg_temp.saga('u1')), 1, 'and is counted');
SELECT throws_ok($$ SELECT udb.request_saga_recompensation(pg_temp.id('u1'), pg_temp.store()) $$, 'UD057', NULL, 'not twice');
SELECT throws_ok(format($$ SELECT udb.request_saga_recompensation(pg_temp.id(%L), pg_temp.store()) $$, 'word ' || w), 'UD057', NULL, 'nor while it is ' || w)
FROM unnest('{indeterminate,in_progress,pending,committed,compensated,failed,in_doubt}'::text[]) w;
SELECT is(pg_temp.status('word failed'), 'failed none', 'which changes nothing');
SELECT lives_ok($$ SELECT udb.request_saga_recompensation(pg_temp.id('word failed_compensation'), pg_temp.store()) $$, 'but after a failed compensation');
SELECT throws_ok($$ SELECT udb.request_saga_recompensation('018f0000-0000-4000-8000-00000000dead', pg_temp.store()) $$, 'UD055', NULL, 'and only if there is one');

-- ---- attempts ----

SELECT is(udb.increment_recovery_attempts(pg_temp.id('u2'), 'first', pg_temp.store()), 1::bigint, 'attempts are counted');
SELECT is(udb.increment_recovery_attempts(pg_temp.id('u2'), 'second', pg_temp.store()), 2::bigint, 'one after the other');
SELECT is((SELECT recovery_attempts || last_error FROM pg_temp.saga('u2')), '2second', 'with the last error');
SELECT throws_ok($$ SELECT udb.increment_recovery_attempts('018f0000-0000-4000-8000-00000000dead', 'x', pg_temp.store()) $$, 'UD055', NULL, 'of sagas that are there');

-- ---- recovery ----

SELECT udb.update_saga_status(array_agg(saga_id), 'committed', store => pg_temp.store()) > 0 AS all_over FROM named \gset
SELECT is(pg_temp.claim('1 ms'), NULL, 'nothing is to be recovered of what is over');
SELECT count(pg_temp.new('r' || n, w)) FROM unnest('{indeterminate,in_progress,pending,committed,compensated,failed,in_doubt,failed_compensation,manual_review}'::text[])
	WITH ORDINALITY u (w, n) \gset
SELECT pg_temp.new('r10', 'failed_compensation', 'retry_requested') \gset
SELECT is(pg_temp.claim('1 h'), 'r1 r7 r10', 'what is indeterminate, in doubt, or has to be compensated again; oldest first');
SELECT is(pg_temp.status('r1') || ', ' || pg_temp.status('r7') || ', ' || pg_temp.status('r10'),
	'indeterminate none, in_doubt none, failed_compensation retry_requested', 'each as what it was');
SELECT pg_temp.older_than_a_moment('r2') \gset
SELECT is(pg_temp.claim('1 ms'), 'r2', 'others do not get these, but what was in progress for too long');
SELECT lives_ok($$ SELECT udb.update_saga_status(pg_temp.id('r2'), 'committed', store => pg_temp.store()) $$, 'and which may be finished all the same');
SELECT pg_temp.new('c1', 'indeterminate') \gset
SELECT is(pg_temp.claim('1 ms'), 'c1', 'a claim for a short time');
SELECT is(pg_temp.claim_patiently('1 h'), 'c1', 'after which another one gets the saga, if nothing has become of it');
SELECT is(pg_temp.claim('1 ms'), NULL, 'and keeps it');
SELECT lives_ok($$ SELECT udb.update_saga_status(pg_temp.id('r1'), 'in_doubt', store => pg_temp.store()) $$, 'a recoverer that sets the status gives it back');
SELECT is(pg_temp.claim('1 h'), 'r1', 'and it can be claimed at once');
SELECT is(udb.increment_recovery_attempts(pg_temp.id('r1'), 'again', pg_temp.store()), 1::bigint, 'a failed attempt');
SELECT is(pg_temp.claim('1 h'), NULL, 'does not give it back');
SELECT count(pg_temp.new('l' || n, 'in_doubt')) FROM generate_series(1, 5) n \gset
SELECT is(pg_temp.claim('1 h', 0), NULL, 'none are asked for');
SELECT is(pg_temp.claim('1 h', -1), NULL, 'or less than none');
SELECT is(pg_temp.claim('1 h', 2), 'l1 l2', 'two at a time');
SELECT is(pg_temp.claim('1 h', 9223372036854775807), 'l3 l4 l5', 'or all that there are');
SELECT throws_ok(format($$ SELECT pg_temp.claim(%L) $$, d), '22023', NULL, format('%s is no time to wait', d)) FROM unnest('{0,-1 s}'::text[]) d;
SELECT throws_ok($$ SELECT pg_temp.claim(NULL) $$, '22004', NULL, 'nor is null');
SELECT throws_ok($$ SELECT pg_temp.claim('1 h', NULL) $$, '22004', NULL, 'and null is no limit');

-- stale ones
SELECT pg_temp.new('s1', 'in_progress') \gset
SELECT is(udb.mark_stale_sagas_indeterminate('1 h', pg_temp.store()), 0::bigint, 'nothing is in progress for so long');
SELECT pg_temp.older_than_a_moment('s1') \gset
SELECT ok(udb.mark_stale_sagas_indeterminate('1 ms', pg_temp.store()) >= 1, 'but for this long');
SELECT is(pg_temp.status('s1'), 'indeterminate none', 'it is indeterminate then');
SELECT is(pg_temp.status('r3'), 'pending none', 'and others are what they were');
SELECT is(pg_temp.claim('1 h'), 's1', 'so it can be claimed');
SELECT throws_ok(format($$ SELECT udb.mark_stale_sagas_indeterminate(%L, pg_temp.store()) $$, d), '22023', NULL, format('%s is no time to wait', d)) FROM unnest('{0,-1 s}'::text[]) d;
SELECT throws_ok($$ SELECT udb.mark_stale_sagas_indeterminate(NULL, pg_temp.store()) $$, '22004', NULL, 'nor is null');

-- ---- stores ----

SELECT throws_ok(format($$ SELECT %s $$, call), '42704', NULL, 'an unknown store is an error in ' || call) FROM unnest(ARRAY[
	$$udb.record_saga(store => 'no such store')$$,
	$$udb.get_saga(pg_temp.id('u1'), 'no such store')$$,
	$$udb.list_sagas(store => 'no such store')$$,
	$$udb.update_saga_status(pg_temp.id('u1'), 'failed', store => 'no such store')$$,
	$$udb.update_saga_status('{}'::uuid[], 'failed', store => 'no such store')$$,
	$$udb.mark_saga_manual_review(pg_temp.id('u1'), 'no such store')$$,
	$$udb.request_saga_recompensation(pg_temp.id('u1'), 'no such store')$$,
	$$udb.increment_recovery_attempts(pg_temp.id('u1'), 'x', 'no such store')$$,
	$$udb.claim_recoverable_sagas('1 s', 1, 'no such store')$$,
	$$udb.mark_stale_sagas_indeterminate('1 s', 'no such store')$$,
	$$udb.saga_summary('no such store')$$]) call;

SELECT * FROM finish();
ROLLBACK;
