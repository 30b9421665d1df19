-- Fences on a primary: what is reached, what is refused, and every way round the wait
\set VERBOSITY terse
\pset null '(null)'
CREATE TABLE t (a int);
INSERT INTO t VALUES (1);
SELECT udb.last_commit_token() AS token \gset
SELECT lpad(to_hex(system_identifier), 16, '0') AS sysid FROM pg_control_system() \gset
SELECT regexp_replace(:'token', '[^.]*\.[da][^.]*$', 'ffffff0000000000.d') AS future,
	'postgres:1.00000000000000ff.1.0.3017028.d' AS other_cluster,
	'postgres:1.' || :'sysid' || '.7.3000000.3017028.d' AS newer \gset

SELECT * FROM udb.fence_status();

-- a token of its own past is reached at once, in every form
SET udb.fence = :'token';
SELECT outcome, token::text = :'token' AS same, waited_ms, ended_at IS NOT NULL AS ended FROM udb.fence_status();
BEGIN; SET LOCAL udb.fence = :'token'; SELECT count(*) FROM t; COMMIT;
CALL udb.wait_for(:'token');
CALL udb.wait_for(:'token', '0');
SELECT udb.wait_for_token(:'token'), udb.wait_for_token(:'token', '0'), udb.token_reached(:'token');
SET udb.fence = '';
RESET udb.fence;
SET udb.fence TO DEFAULT;
SHOW udb.fence;

-- a case for each outcome
\set VERBOSITY sqlstate
SET udb.fence = :'future';
SELECT outcome FROM udb.fence_status();
SET udb.fence = :'other_cluster';
SELECT outcome FROM udb.fence_status();
SET udb.fence = :'newer';
SELECT outcome FROM udb.fence_status();
SET udb.fence = 'mysql:3E11FA47:23';
CALL udb.wait_for(:'future');
CALL udb.wait_for(:'other_cluster');
CALL udb.wait_for(:'newer');
CALL udb.wait_for('mysql:3E11FA47:23');
SELECT udb.wait_for_token(:'future');
SELECT udb.wait_for_token(:'other_cluster');
SELECT udb.wait_for_token(:'newer');
SELECT udb.wait_for_token('mysql:3E11FA47:23');
SELECT udb.token_reached(:'future');
SELECT udb.token_reached(:'other_cluster');
SELECT udb.token_reached(:'newer');
SELECT udb.token_reached('mysql:3E11FA47:23');
\set VERBOSITY terse
SET udb.fence = 'mysql:3E11FA47:23';
SHOW udb.fence;

-- the setting does not outlive a transaction that fails
BEGIN;
SET udb.fence = :'future';
ROLLBACK;
SHOW udb.fence;

-- bad arguments change nothing and name the argument
SET udb.fence = 'nonsense';
SELECT udb.wait_for_token(NULL);
SELECT udb.wait_for_token(:'token', NULL);
SELECT udb.wait_for_token(:'token', '-1 s');
SELECT udb.wait_for_token(:'token', '1000000 years');
SELECT udb.token_reached(NULL);
CALL udb.wait_for(NULL);
CALL udb.wait_for(:'token', NULL);
CALL udb.wait_for(:'token', '-1 s');
\set VERBOSITY sqlstate
SET udb.fence_timeout = -2;
\set VERBOSITY terse
SET udb.fence_timeout = -1;
RESET udb.fence_timeout;
SHOW udb.fence_timeout;

-- ways to set it without waiting
\set VERBOSITY default
SELECT set_config('udb.fence', :'token', false);
\set VERBOSITY terse
SELECT set_config('udb.fence', :'token', true);
SELECT set_config('udb.fence', '', false);
UPDATE pg_settings SET setting = :'token' WHERE name = 'udb.fence';
ALTER ROLE CURRENT_USER SET udb.fence = 'mysql:x';
ALTER DATABASE :DBNAME SET udb.fence = 'mysql:x';
ALTER SYSTEM SET udb.fence = 'mysql:x';
CREATE FUNCTION f() RETURNS int LANGUAGE sql SET udb.fence = 'mysql:x' AS 'SELECT 1';
SET udb.fence = :'token';
CREATE FUNCTION f() RETURNS int LANGUAGE sql SET udb.fence FROM CURRENT AS 'SELECT 1';
RESET udb.fence;
CREATE FUNCTION f(token text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN EXECUTE format('SET udb.fence = %L', token); RETURN 1; END $$;
SELECT f(:'token');
CREATE PROCEDURE p(token text) LANGUAGE plpgsql AS $$
BEGIN EXECUTE format('SET LOCAL udb.fence = %L', token); END $$;
CALL p(:'token');
\set VERBOSITY default
DO $$ BEGIN SET LOCAL udb.fence = 'mysql:x'; END $$;
\set VERBOSITY terse
SHOW udb.fence;

-- ways to call the procedure where it cannot let go of a snapshot
CREATE PROCEDURE q(token udb.token) LANGUAGE plpgsql AS $$ BEGIN CALL udb.wait_for(token); END $$;
CALL q(:'token');
BEGIN; CALL q(:'token'); ROLLBACK;
CREATE FUNCTION q2(token udb.token) RETURNS int LANGUAGE plpgsql AS $$ BEGIN CALL udb.wait_for(token); RETURN 1; END $$;
SELECT q2(:'token');
DO $$ BEGIN CALL udb.wait_for('mysql:x'); END $$;
BEGIN; CALL udb.wait_for(:'token'); SELECT count(*) FROM t; COMMIT;

-- after the first query of REPEATABLE READ it would be of no use
BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL udb.fence = :'token'; SELECT count(*) FROM t; COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t; SET LOCAL udb.fence = :'token'; ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t; SET LOCAL udb.fence = :'token'; ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ; CALL udb.wait_for(:'token'); ROLLBACK;
-- but outside of a block the next statement is another transaction
SET default_transaction_isolation = 'repeatable read';
CALL udb.wait_for(:'token');
RESET default_transaction_isolation;
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT udb.wait_for_token(:'token'); ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT udb.token_reached(:'token'); ROLLBACK;
\set VERBOSITY default
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SET LOCAL udb.fence = :'token'; ROLLBACK;
\set VERBOSITY terse

-- a parallel worker takes over what its leader has waited for
SET udb.fence = :'token';
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT count(*) FROM t;
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
RESET udb.fence;

-- page boundaries: where no record ends, but pg_current_wal_insert_lsn() can be
SELECT udb.wait_for_token(('postgres:1.' || :'sysid' || '.1.0.' || lsn || '.d')::udb.token, '0')
FROM (VALUES ('1000018'), ('1000028'), ('1002018')) v(lsn);

DROP FUNCTION f(text), q2(udb.token);
DROP PROCEDURE p(text), q(udb.token);
DROP TABLE t;
