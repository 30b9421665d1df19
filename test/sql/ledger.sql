-- The migration ledger: what is accepted, what is refused, and what CALL migrate() writes into it.
\set VERBOSITY terse
SET timezone = 'UTC';
CREATE SCHEMA led;
SET search_path = led, pg_catalog;

-- A run and its operations.
SELECT udb.start_migration_run('shop', 'v7', 'PREFLIGHT', 'abc', 'ok-by-ada') AS run \gset
SELECT project_id, catalog_version, state, operations_hash, approval_token, finished_at, error,
	started_at BETWEEN now() - interval '1 min' AND clock_timestamp() AS just_now
FROM udb.get_migration_run(:'run');
SELECT udb.record_migration_op(:'run', 1, 'mysql', 'mysql://a/b', 'create_table') > 0 AS recorded;
SELECT udb.record_migration_op(:'run', 0, 'postgres', 'postgres://a/c', 'create_index', 'APPLIED', '{"drop": "c"}') > 0 AS recorded;
SELECT udb.record_migration_op(:'run', 1, 'mysql', 'mysql://a/b', 'create_table', 'FAILED', NULL, 'no room') > 0 AS recorded;
-- by index, then in the order in which it was recorded; the time is that of what is applied
SELECT operation_index, backend, resource_uri, operation_kind, status, rollback_json, error, applied_at IS NOT NULL AS applied
FROM udb.list_migration_ops(:'run');
SELECT bool_and(run_id = :'run') AS of_this_run, count(DISTINCT id) FROM udb.list_migration_ops(:'run');

-- It moves on, ends, and may get another end, but does not begin again.
SELECT udb.finish_migration_run(:'run', 'VERIFYING');
SELECT state, finished_at, error FROM udb.get_migration_run(:'run');
SELECT udb.finish_migration_run(:'run', 'ERROR', 'no room');
SELECT state, finished_at >= started_at AS finished, error FROM udb.get_migration_run(:'run');
\set VERBOSITY sqlstate
SELECT udb.finish_migration_run(:'run', 'APPLYING');
\set VERBOSITY terse
SELECT udb.finish_migration_run(:'run', 'DEAD_LETTER', 'gave up');
SELECT state, error FROM udb.get_migration_run(:'run');
SELECT udb.record_migration_op(:'run', 0, 'postgres', 'postgres://a/c', 'create_index', 'ROLLED_BACK') > 0 AS recorded;
SELECT operation_index, status, applied_at IS NOT NULL AS applied FROM udb.list_migration_ops(:'run') WHERE operation_index = 0;
-- a dry run ends as one
SELECT udb.start_migration_run('shop', 'v8', 'DRY_RUN') AS dry \gset
SELECT udb.finish_migration_run(:'dry', 'DRY_RUN');
SELECT state, operations_hash = '' AS no_hash, approval_token, finished_at IS NOT NULL AS finished FROM udb.get_migration_run(:'dry');

-- Lists.
SELECT count(udb.start_migration_run('list', 'v' || i, CASE WHEN i % 2 = 0 THEN 'APPLYING' ELSE 'PREFLIGHT' END))
FROM generate_series(1, 5) i;
SELECT catalog_version FROM udb.list_migration_runs('list');
SELECT catalog_version FROM udb.list_migration_runs('list', 'APPLYING');
SELECT catalog_version FROM udb.list_migration_runs('list', catalog_version => 'v3');
SELECT catalog_version FROM udb.list_migration_runs('list', row_limit => 2, row_offset => 1);
SELECT catalog_version FROM udb.list_migration_runs('list', row_limit => 2, row_offset => -7);
SELECT count(*) FROM udb.list_migration_runs('list', row_limit => 0);
SELECT count(*) FROM udb.list_migration_runs('list', row_limit => -1);
SELECT count(*) FROM udb.list_migration_runs('list', row_offset => 5);
SELECT count(*) FROM udb.list_migration_runs(row_limit => 9223372036854775807, row_offset => -9223372036854775808);
SELECT count(*) FROM udb.list_migration_runs('no such');
SELECT count(*) FROM udb.get_migration_run('00000000-0000-7000-8000-000000000000');
SELECT count(*) FROM udb.list_migration_ops('00000000-0000-7000-8000-000000000000');

-- What is refused, and changes nothing.
\set VERBOSITY default
SELECT udb.start_migration_run('shop', 'v7', 'RUNNING');
SELECT udb.record_migration_op(:'run', 2, 'postgres', 'x', 'k', 'DONE');
\set VERBOSITY terse
SELECT udb.start_migration_run(NULL, 'v7', 'APPLYING');
SELECT udb.start_migration_run('', 'v7', 'APPLYING');
SELECT udb.start_migration_run(repeat('x', 256), 'v7', 'APPLYING');
SELECT udb.start_migration_run('shop', NULL, 'APPLYING');
SELECT udb.start_migration_run('shop', '', 'APPLYING');
SELECT udb.start_migration_run('shop', 'v7', NULL);
SELECT udb.start_migration_run('shop', 'v7', 'APPLYING', NULL);
SELECT udb.start_migration_run('shop', 'v7', 'APPLYING', store => 'elsewhere');
SELECT udb.record_migration_op(NULL, 0, 'b', 'u', 'k');
SELECT udb.record_migration_op(:'run', NULL, 'b', 'u', 'k');
SELECT udb.record_migration_op(:'run', -1, 'b', 'u', 'k');
SELECT udb.record_migration_op(:'run', 0, '', 'u', 'k');
SELECT udb.record_migration_op(:'run', 0, NULL, 'u', 'k');
SELECT udb.record_migration_op(:'run', 0, 'b', '', 'k');
SELECT udb.record_migration_op(:'run', 0, 'b', repeat('x', 8193), 'k');
SELECT udb.record_migration_op(:'run', 0, 'b', 'u', NULL);
SELECT udb.record_migration_op(:'run', 0, 'b', 'u', 'k', NULL);
SELECT udb.record_migration_op(:'run', 0, 'b', 'u', 'k', store => 'elsewhere');
SELECT udb.record_migration_op('00000000-0000-7000-8000-000000000000', 0, 'b', 'u', 'k');
SELECT udb.finish_migration_run('00000000-0000-7000-8000-000000000000', 'COMPLETED');
SELECT udb.finish_migration_run(NULL, 'COMPLETED');
SELECT udb.finish_migration_run(:'run', NULL);
SELECT udb.finish_migration_run(:'run', 'DONE');
SELECT udb.finish_migration_run(:'run', 'COMPLETED', store => 'elsewhere');
SELECT udb.get_migration_run(NULL);
SELECT udb.get_migration_run(:'run', 'elsewhere');
SELECT udb.list_migration_ops(NULL);
SELECT udb.list_migration_ops(:'run', 'elsewhere');
SELECT udb.list_migration_runs(state => 'DONE');
SELECT udb.list_migration_runs(row_limit => NULL);
SELECT udb.list_migration_runs(row_offset => NULL);
SELECT udb.list_migration_runs(store => 'elsewhere');
SELECT (SELECT state FROM udb.get_migration_run(:'run')), (SELECT count(*) FROM udb.list_migration_ops(:'run')),
	(SELECT count(*) FROM udb.list_migration_runs(row_limit => 1000));

-- CALL migrate(): a run for each call that has something to do, a line for each step.
CREATE VIEW runs AS SELECT catalog_version AS version, state, finished_at IS NOT NULL AS finished, error,
	(SELECT string_agg(format('%s:%s %s%s%s', operation_index, resource_uri, status, CASE WHEN applied_at IS NOT NULL THEN ' at' END,
		' ' || o.error), ', ' ORDER BY o.id) FROM udb.list_migration_ops(run_id) o) AS ops
	FROM udb.migration_runs WHERE project_id = 'app' ORDER BY started_at;
SELECT udb.register_migration('app', v, 'step ' || v, format('CREATE TABLE step_%s ()', v)) FROM unnest('{1,2,3}'::int[]) v;
CALL udb.migrate('app', 2);
SELECT * FROM runs;
SELECT approval_token, operations_hash = encode(sha256(convert_to((SELECT string_agg(version || ' ' || checksum, E'\n' ORDER BY version)
	FROM udb.migration_history WHERE component = 'app'), 'UTF8')), 'hex') AS hash FROM udb.migration_runs WHERE project_id = 'app';
SELECT DISTINCT backend, operation_kind, rollback_json, error FROM udb.migration_op_ledger WHERE resource_uri LIKE 'app/%';
CALL udb.migrate('app', 2);
CALL udb.migrate('app', 0);
CALL udb.migrate('app');
CALL udb.migrate('app');
SELECT * FROM runs OFFSET 1;
-- a step that fails is rolled back, but the ledger has it; so has a step that was done already, and one that runs alone
SELECT udb.register_migration('app', 4, 'four', 'CREATE TABLE step_4 ()');
SELECT udb.register_migration('app', 5, 'five', 'CREATE TABLE step_5 (); SELECT 1/0');
CALL udb.migrate('app');
SELECT udb.schema_stamp('app'), to_regclass('step_5');
SELECT * FROM runs OFFSET 2;
SELECT udb.register_migration('app', 5, 'five', 'CREATE TABLE step_4 ()', 'SELECT true');
SELECT udb.register_migration('app', 6, 'six', 'VACUUM udb.schema_stamps', 'SELECT true', false);
SELECT udb.register_migration('app', 7, 'seven', 'VACUUM udb.schema_stamps', 'SELECT false', false);
CALL udb.migrate('app');
SELECT * FROM runs OFFSET 3;
SELECT operation_kind FROM udb.migration_op_ledger WHERE resource_uri = 'app/7';
-- one that fails when it commits, and at isolation levels above READ COMMITTED
SELECT udb.register_migration('app', 7, 'seven',
	'CREATE TABLE late_check (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO late_check VALUES (1), (1)');
SET default_transaction_isolation = serializable;
CALL udb.migrate('app');
RESET default_transaction_isolation;
SELECT udb.schema_stamp('app'), to_regclass('late_check');
SELECT * FROM runs OFFSET 4;
-- what cannot be begun, and what fails before there is something to do, leaves no run
SET default_transaction_read_only = on;
CALL udb.migrate('app');
RESET default_transaction_read_only;
UPDATE udb.migration_steps SET sql = 'SELECT 2' WHERE component = 'app' AND version = 1;
CALL udb.migrate('app');
SELECT count(*) FROM runs;
UPDATE udb.migration_steps SET sql = 'CREATE TABLE step_1 ()' WHERE component = 'app' AND version = 1;
-- one whose step makes the ledger unwritable: the step's error is not hidden
SELECT udb.register_migration('app', 7, 'seven', 'SET default_transaction_read_only = on; SELECT 1/0');
CALL udb.migrate('app');
SELECT * FROM runs OFFSET 5;
ALTER TABLE udb.migration_op_ledger ADD CONSTRAINT no_failures CHECK (status <> 'FAILED') NOT VALID;
CALL udb.migrate('app');
ALTER TABLE udb.migration_op_ledger DROP CONSTRAINT no_failures;
SELECT * FROM runs OFFSET 6;
-- which the next call ends; no lock of the session's is left
SELECT udb.register_migration('app', 7, 'seven', 'SELECT 1');
CALL udb.migrate('app');
SELECT * FROM runs OFFSET 6;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT count(*) FROM udb._migration_calls;
-- runs of others are left alone, whatever their project is
SELECT udb.start_migration_run('app', '9', 'APPLYING') AS other \gset
SELECT udb.register_migration('app', 8, 'eight', 'SELECT 1');
CALL udb.migrate('app');
CALL udb.migrate('app');
SELECT state FROM udb.get_migration_run(:'other');

-- Who may do it, and that nobody writes the tables.
CREATE ROLE regress_ledger;
SET ROLE regress_ledger;
SELECT udb.start_migration_run('shop', 'v7', 'APPLYING');
SELECT udb.list_migration_runs();
SELECT * FROM udb.migration_runs;
RESET ROLE;
SELECT udb.grant_role('regress_ledger', 'monitor');
SET ROLE regress_ledger;
SELECT count(*) > 0 AS listed FROM udb.list_migration_runs();
SELECT udb.finish_migration_run(:'other', 'COMPLETED');
RESET ROLE;
SELECT udb.grant_role('regress_ledger', 'admin');
SET ROLE regress_ledger;
SELECT udb.finish_migration_run(:'other', 'COMPLETED');
UPDATE udb.migration_runs SET error = 'x';
DELETE FROM udb.migration_op_ledger;
RESET ROLE;
DROP OWNED BY regress_ledger;
DROP ROLE regress_ledger;
SET client_min_messages = warning;
DROP SCHEMA led CASCADE;
