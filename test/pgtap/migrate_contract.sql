-- The contract of migrations: steps in order, once, each with its stamp; and what the ledger says of it. CALL ends
-- transactions, so what has been tested is not rolled back: the component has a name that nobody else has.
SELECT 'contract-' || udb.generate_uuidv7() AS c \gset
SET search_path = pg_catalog, public, pg_temp;
CREATE TEMP TABLE ran (n int);
-- the sqlstate that a CALL ended with is in :SQLSTATE, '00000' if there was none
\set ON_ERROR_STOP 0
\set QUIET 1

SELECT plan(43);

-- fresh
SELECT is(udb.schema_stamp(:'c'), 0, 'no stamp is a fresh component');
SELECT is(udb.step_count(:'c'), 0, 'without steps');
SELECT throws_ok(format('SELECT udb.require_schema(%L)', :'c'), '42704', NULL, 'which nobody can require');
CALL udb.migrate(:'c');
SELECT is(:'SQLSTATE'::text, '42704', 'nor migrate');

-- registering
SELECT lives_ok(format($$SELECT udb.register_migration(%L, 3, 'three', 'INSERT INTO ran VALUES (3)')$$, :'c'), 'a step is registered');
SELECT lives_ok(format($$SELECT udb.register_migration(%L, 1, 'one', 'INSERT INTO ran VALUES (1)')$$, :'c'), 'in any order');
SELECT lives_ok(format($$SELECT udb.register_migration(%L, 1, 'one', 'INSERT INTO ran VALUES (1)')$$, :'c'), 'and again, which changes nothing');
SELECT is(udb.step_count(:'c'), 2, 'they are counted');
SELECT results_eq(format('SELECT * FROM udb.pending_migrations(%L)', :'c'),
	$$VALUES (1, 'one', true), (3, 'three', true)$$, 'all of them are pending, by version');
SELECT throws_ok(format('SELECT udb.require_schema(%L)', :'c'), 'UD032', NULL, 'so the schema is not current');

-- applying
CALL udb.migrate(:'c', 2);
SELECT is(:'SQLSTATE'::text, '00000', 'migrating up to a target');
SELECT results_eq('SELECT n FROM ran', 'VALUES (1)', 'applies the steps up to it');
SELECT is(udb.schema_stamp(:'c'), 1, 'and stamps the last one');
CALL udb.migrate(:'c');
SELECT results_eq('SELECT n FROM ran', 'VALUES (1), (3)', 'migrating applies the rest, in order');
SELECT is(udb.schema_stamp(:'c'), 3, 'and stamps it');
SELECT is_empty(format('SELECT * FROM udb.pending_migrations(%L)', :'c'), 'nothing is pending then');
SELECT lives_ok(format('SELECT udb.require_schema(%L)', :'c'), 'and the schema is current');
CALL udb.migrate(:'c');
CALL udb.migrate(:'c', 1);
SELECT results_eq('SELECT n FROM ran', 'VALUES (1), (3)', 'once more, or back, it does nothing');
SELECT is(udb.schema_stamp(:'c'), 3, 'to the stamp either');
SELECT results_eq(format($$SELECT catalog_version, state, error FROM udb.list_migration_runs(%L)$$, :'c'),
	$$VALUES ('3', 'COMPLETED', NULL::text), ('1', 'COMPLETED', NULL)$$, 'the ledger has a run for each call that had something to do');
SELECT results_eq(format($$SELECT operation_index, backend, resource_uri, status, applied_at IS NOT NULL
	FROM udb.list_migration_runs(%L) r, udb.list_migration_ops(r.run_id) WHERE catalog_version = '3'$$, :'c'),
	format($$VALUES (0, 'postgres', %L || '/3', 'APPLIED', true)$$, :'c'), 'with what it has done');

-- changing
SELECT throws_ok(format($$SELECT udb.register_migration(%L, 1, 'one', 'SELECT 1')$$, :'c'), 'UD031', NULL, 'what was applied does not change');
SELECT lives_ok(format($$SELECT udb.register_migration(%L, 4, 'four', 'SELECT 1')$$, :'c'), 'what was not');
SELECT lives_ok(format($$SELECT udb.register_migration(%L, 4, 'fourth', 'INSERT INTO ran VALUES (4)')$$, :'c'), 'does');

-- failing
SELECT udb.register_migration(:'c', 5, 'five', 'INSERT INTO ran VALUES (5); SELECT 1/0', 'SELECT false') AS x \gset
SELECT udb.register_migration(:'c', 6, 'six', 'INSERT INTO ran VALUES (6)') AS x \gset
CALL udb.migrate(:'c');
SELECT is(:'SQLSTATE'::text, '22012', 'a step that fails raises its error');
SELECT results_eq('SELECT n FROM ran', 'VALUES (1), (3), (4)', 'what was before it stays, it leaves nothing, and nothing after it is run');
SELECT is(udb.schema_stamp(:'c'), 4, 'nor stamped');
CALL udb.migrate(:'c');
SELECT is(:'SQLSTATE'::text, '22012', 'each call raises it');
SELECT results_eq(format($$SELECT state, error FROM udb.list_migration_runs(%L, row_limit => 2)$$, :'c'),
	$$VALUES ('ERROR', 'division by zero'), ('ERROR', 'division by zero')$$, 'the ledger has the error');
SELECT results_eq(format($$SELECT operation_index, resource_uri, status, error, applied_at IS NOT NULL
	FROM (SELECT run_id FROM udb.list_migration_runs(%L, row_limit => 1, row_offset => 1)) r, udb.list_migration_ops(r.run_id)$$, :'c'),
	format($$VALUES (0, %L || '/4', 'APPLIED', NULL::text, true), (1, %L || '/5', 'FAILED', 'division by zero', false)$$, :'c', :'c'),
	'and what had been done before');

-- healing
SELECT udb.register_migration(:'c', 5, 'five', 'SELECT 1/0', 'SELECT true') AS x \gset
SET client_min_messages = warning;
CALL udb.migrate(:'c');
RESET client_min_messages;
SELECT is(:'SQLSTATE'::text, '00000', 'a step that fails, but has taken effect, is no error');
SELECT is(udb.schema_stamp(:'c'), 6, 'heals the stamp, and what comes after it is run');
SELECT results_eq('SELECT n FROM ran', 'VALUES (1), (3), (4), (6)', 'as it should');
SELECT results_eq(format($$SELECT status, error FROM (SELECT run_id FROM udb.list_migration_runs(%L, row_limit => 1)) r,
	udb.list_migration_ops(r.run_id)$$, :'c'),
	$$VALUES ('SKIPPED', 'division by zero'), ('APPLIED', NULL::text)$$, 'the ledger says which it was');

-- what cannot run in a transaction
SELECT throws_ok(format($$SELECT udb.register_migration(%L, 7, 'seven', 'VACUUM pg_am', NULL, false)$$, :'c'), '22023', NULL,
	'a step that runs alone needs a verify query');
SELECT udb.register_migration(:'c', 7, 'seven', 'VACUUM pg_am', 'SELECT false', false) AS x \gset
CALL udb.migrate(:'c');
SELECT is(:'SQLSTATE'::text, 'UD033', 'which has to be true');
SELECT is(udb.schema_stamp(:'c'), 6, 'or the step is not stamped');
SELECT udb.register_migration(:'c', 7, 'seven', 'VACUUM pg_am', 'SELECT true', false) AS x \gset
CALL udb.migrate(:'c');
SELECT is(udb.schema_stamp(:'c'), 7, 'else it is');

-- where it cannot run
BEGIN;
CALL udb.migrate(:'c');
\set in_block :SQLSTATE
ROLLBACK;
SELECT is(:'in_block'::text, '2D000', 'not inside a transaction block');
CALL udb.migrate(NULL);
SELECT is(:'SQLSTATE'::text, '22004', 'not without a component');
SELECT throws_ok($$SELECT udb.register_migration('', 1, 'n', 's')$$, '42602', NULL, 'which has a name');
SELECT throws_ok(format($$SELECT udb.register_migration(%L, 0, 'n', 's')$$, :'c'), '22023', NULL, 'and versions above zero');
SELECT throws_ok(format($$SELECT udb.register_migration(%L, 8, 'n', ' ')$$, :'c'), '22023', NULL, 'whose SQL is not empty');

SELECT * FROM finish();
