-- The contract of the migration ledger, as every store has to keep it.
\set store ''
\getenv store UDB_STORE
SELECT set_config('udb_test.store', :'store', false) AS store \gset
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql STABLE
	AS $$ SELECT nullif(current_setting('udb_test.store'), '') $$;
-- no two runs of this test share a project
SELECT 'contract-' || udb.generate_uuidv7() AS project \gset
CREATE FUNCTION pg_temp.states() RETURNS text[] LANGUAGE sql IMMUTABLE
	AS $$ SELECT '{DRY_RUN,PREFLIGHT,APPLYING,VERIFYING,COMPLETED,ERROR,DEAD_LETTER}'::text[] $$;

SELECT plan(57);

-- beginning
SELECT udb.start_migration_run(:'project', 'v1', 'PREFLIGHT', 'sha256:abc', 'approved by ada', store => pg_temp.store()) AS run \gset
SELECT results_eq(format($$SELECT project_id, catalog_version, state, operations_hash, approval_token, finished_at, error
	FROM udb.get_migration_run(%L, pg_temp.store())$$, :'run'),
	format($$VALUES (%L, 'v1', 'PREFLIGHT', 'sha256:abc', 'approved by ada', NULL::timestamptz, NULL::text)$$, :'project'),
	'a run is as it was begun');
SELECT ok((SELECT run_id = :'run' AND started_at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 min'
	FROM udb.get_migration_run(:'run', pg_temp.store())), 'with the time at which it was');
SELECT lives_ok(format($$SELECT udb.start_migration_run(%L, 'every state', %L, store => pg_temp.store())$$, :'project', s),
	'it may begin as ' || s) FROM unnest(pg_temp.states()) s;
SELECT ok((SELECT bool_and(finished_at IS NULL AND approval_token IS NULL AND operations_hash = '')
	FROM udb.list_migration_runs(:'project', catalog_version => 'every state', store => pg_temp.store())),
	'has finished in none of them, and needs neither hash nor approval');
SELECT is_empty($$SELECT * FROM udb.get_migration_run(udb.generate_uuidv7(), pg_temp.store())$$, 'a missing run is no row');

-- operations
SELECT ok(udb.record_migration_op(:'run', 2, 'postgres', 'u2', 'k2', store => pg_temp.store())
	< udb.record_migration_op(:'run', 0, 'mysql', 'u0', 'k0', 'APPLIED', '{"undo": [1, "two"]}', store => pg_temp.store()),
	'operations are recorded with ids that grow');
SELECT lives_ok(format($$SELECT udb.record_migration_op(%L, %s, 'b', 'u', 'k', %L, NULL, 'e', pg_temp.store())$$, :'run', 10 + n, s),
	'an operation can be ' || s)
FROM unnest('{PENDING,APPLIED,VERIFIED,SKIPPED,FAILED,ROLLED_BACK}'::text[]) WITH ORDINALITY u(s, n);
SELECT results_eq(format($$SELECT operation_index, backend, resource_uri, operation_kind, status, rollback_json, error
	FROM udb.list_migration_ops(%L, pg_temp.store()) WHERE operation_index < 12$$, :'run'),
	$$VALUES (0, 'mysql', 'u0', 'k0', 'APPLIED', '{"undo": [1, "two"]}'::jsonb, NULL::text), (2, 'postgres', 'u2', 'k2', 'PENDING', NULL, NULL),
		(11, 'b', 'u', 'k', 'PENDING', NULL, 'e')$$, 'they are listed by operation_index, with what they were given');
SELECT ok((SELECT bool_and((applied_at IS NOT NULL) = (status = 'APPLIED')) FROM udb.list_migration_ops(:'run', pg_temp.store())),
	'applied_at is set for APPLIED only');
SELECT udb.record_migration_op(:'run', 2, 'postgres', 'u2', 'k2', 'FAILED', NULL, 'first', pg_temp.store()) AS id1,
	udb.record_migration_op(:'run', 2, 'postgres', 'u2', 'k2', 'APPLIED', NULL, NULL, pg_temp.store()) AS id2 \gset
SELECT results_eq(format($$SELECT status, error FROM udb.list_migration_ops(%L, pg_temp.store()) WHERE operation_index = 2$$, :'run'),
	$$VALUES ('PENDING', NULL::text), ('FAILED', 'first'), ('APPLIED', NULL)$$,
	'the same index again adds to what is known of it, in the order in which it was recorded');
SELECT ok((SELECT bool_and(run_id = :'run') AND count(*) = 10 AND count(DISTINCT id) = 10
	FROM udb.list_migration_ops(:'run', pg_temp.store())), 'nothing is lost, and nothing of another run listed');
SELECT is_empty($$SELECT * FROM udb.list_migration_ops(udb.generate_uuidv7(), pg_temp.store())$$, 'a missing run has none');

-- the end
SELECT lives_ok(format($$SELECT udb.finish_migration_run(%L, 'VERIFYING', NULL, pg_temp.store())$$, :'run'), 'a run can move on');
SELECT results_eq(format($$SELECT state, finished_at FROM udb.get_migration_run(%L, pg_temp.store())$$, :'run'),
	$$VALUES ('VERIFYING', NULL::timestamptz)$$, 'without having finished');
SELECT lives_ok(format($$SELECT udb.finish_migration_run(%L, 'ERROR', 'no room', pg_temp.store())$$, :'run'), 'it ends');
SELECT results_eq(format($$SELECT state, error, finished_at >= started_at FROM udb.get_migration_run(%L, pg_temp.store())$$, :'run'),
	$$VALUES ('ERROR', 'no room', true)$$, 'with state, error and time');
SELECT throws_ok(format($$SELECT udb.finish_migration_run(%L, %L, NULL, pg_temp.store())$$, :'run', s), '55000', NULL,
	'and does not go back to ' || s) FROM unnest('{PREFLIGHT,APPLYING,VERIFYING}'::text[]) s;
SELECT lives_ok(format($$SELECT udb.finish_migration_run(%L, 'DEAD_LETTER', 'gave up', pg_temp.store())$$, :'run'), 'but can get another end');
SELECT results_eq(format($$SELECT state, error FROM udb.get_migration_run(%L, pg_temp.store())$$, :'run'),
	$$VALUES ('DEAD_LETTER', 'gave up')$$, 'which replaces the first one');
SELECT lives_ok(format($$SELECT udb.record_migration_op(%L, 2, 'postgres', 'u2', 'k2', 'ROLLED_BACK', NULL, NULL, pg_temp.store())$$, :'run'),
	'what is rolled back later can be recorded');
SELECT udb.start_migration_run(:'project', 'v2', 'APPLYING', store => pg_temp.store()) AS good,
	udb.start_migration_run(:'project', 'v2', 'DRY_RUN', store => pg_temp.store()) AS dry \gset
SELECT lives_ok(format($$SELECT udb.finish_migration_run(%L, 'COMPLETED', store => pg_temp.store())$$, :'good'), 'a run can be completed');
SELECT lives_ok(format($$SELECT udb.finish_migration_run(%L, 'DRY_RUN', store => pg_temp.store())$$, :'dry'), 'and a dry one ends as it began');
SELECT results_eq(format($$SELECT state, error, finished_at IS NOT NULL
	FROM udb.list_migration_runs(%L, catalog_version => 'v2', store => pg_temp.store())$$, :'project'),
	$$VALUES ('DRY_RUN', NULL::text, true), ('COMPLETED', NULL, true)$$, 'both have finished');

-- lists
SELECT is((SELECT count(*) FROM udb.list_migration_runs(:'project', store => pg_temp.store())), 10::bigint, 'all runs of a project are listed');
SELECT ok((SELECT bool_and(started_at <= before) FROM (SELECT started_at, lag(started_at) OVER () AS before
	FROM udb.list_migration_runs(:'project', store => pg_temp.store())) l), 'newest first');
SELECT is((SELECT array_agg(run_id) FROM udb.list_migration_runs(:'project', 'COMPLETED', store => pg_temp.store())
	WHERE catalog_version = 'v2'), ARRAY[:'good'::uuid], 'of one state');
SELECT is((SELECT count(*) FROM udb.list_migration_runs(:'project', 'DRY_RUN', 'v2', store => pg_temp.store())), 1::bigint, 'and of one version');
SELECT results_eq(format($$SELECT run_id FROM udb.list_migration_runs(%L, row_limit => 3, row_offset => 2, store => pg_temp.store())$$, :'project'),
	format($$SELECT run_id FROM (SELECT run_id, row_number() OVER () n
		FROM udb.list_migration_runs(%L, store => pg_temp.store())) l WHERE n IN (3, 4, 5)$$, :'project'), 'page by page');
SELECT results_eq(format($$SELECT run_id FROM udb.list_migration_runs(%L, row_limit => 1, row_offset => -5, store => pg_temp.store())$$, :'project'),
	format($$SELECT run_id FROM udb.list_migration_runs(%L, row_limit => 1, store => pg_temp.store())$$, :'project'), 'a negative offset is 0');
SELECT is_empty(format($$SELECT * FROM udb.list_migration_runs(%L, row_limit => %s, store => pg_temp.store())$$, :'project', n),
	'a limit of ' || n || ' gives none') FROM unnest('{0,-1}'::int[]) n;
SELECT is_empty(format($$SELECT * FROM udb.list_migration_runs(%L, row_offset => 10, store => pg_temp.store())$$, :'project'),
	'nor does an offset behind the last');

-- errors
SELECT throws_ok($$SELECT udb.record_migration_op(udb.generate_uuidv7(), 0, 'b', 'u', 'k', store => pg_temp.store())$$, '42704', NULL,
	'nothing can be recorded of a missing run');
SELECT throws_ok($$SELECT udb.finish_migration_run(udb.generate_uuidv7(), 'COMPLETED', store => pg_temp.store())$$, '42704', NULL,
	'which cannot be finished either');
SELECT throws_ok(format(statement, :'run'), code, NULL, what) FROM (VALUES
	($$SELECT udb.start_migration_run('p', 'v', 'DONE', store => pg_temp.store())$$, '22023', 'a state is one of the words'),
	($$SELECT udb.finish_migration_run(%L, 'completed', store => pg_temp.store())$$, '22023', 'as they are written'),
	($$SELECT udb.record_migration_op(%L, 0, 'b', 'u', 'k', 'DONE', store => pg_temp.store())$$, '22023', 'so is a status'),
	($$SELECT udb.list_migration_runs(state => 'DONE', store => pg_temp.store())$$, '22023', 'also where it is looked for'),
	($$SELECT udb.record_migration_op(%L, -1, 'b', 'u', 'k', store => pg_temp.store())$$, '22023', 'an index is not negative'),
	($$SELECT udb.start_migration_run(NULL, 'v', 'APPLYING', store => pg_temp.store())$$, '22004', 'a project is needed'),
	($$SELECT udb.start_migration_run('', 'v', 'APPLYING', store => pg_temp.store())$$, '42602', 'and is not empty'),
	($$SELECT udb.record_migration_op(%L, 0, NULL, 'u', 'k', store => pg_temp.store())$$, '22004', 'so is a backend'),
	($$SELECT udb.get_migration_run(NULL, store => pg_temp.store())$$, '22004', 'and a run'),
	($$SELECT udb.list_migration_runs(store => 'no such store')$$, '42704', 'and a store that exists')
) v(statement, code, what);

SELECT * FROM finish();
