-- Which transactions give a token, and what it says. Positions differ, so only relations are shown.
\set VERBOSITY terse
\pset null '(null)'
CREATE TABLE t (a int);
\c
-- nothing yet
SELECT udb.last_commit_token();
-- whether the last commit's token has changed since it was asked for last
CREATE FUNCTION pg_temp.is_new() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	token text := udb.last_commit_token();
	old text := current_setting('my.token', true);
BEGIN
	PERFORM set_config('my.token', token, false);
	RETURN CASE WHEN token IS NULL THEN 'none' WHEN token IS DISTINCT FROM old THEN 'new' ELSE 'same' END;
END $$;
SELECT pg_temp.is_new() AS after_ddl;
SELECT count(*) FROM t;
SELECT pg_temp.is_new() AS after_read;
INSERT INTO t VALUES (1);
SELECT pg_temp.is_new() AS after_insert;
BEGIN; INSERT INTO t VALUES (2); SELECT pg_temp.is_new() AS before_commit; COMMIT;
SELECT pg_temp.is_new() AS after_commit;
BEGIN; INSERT INTO t VALUES (3); ROLLBACK;
SELECT pg_temp.is_new() AS after_rollback;
BEGIN; INSERT INTO t VALUES (3); SELECT 1/0; COMMIT;
SELECT pg_temp.is_new() AS after_error;
BEGIN; SAVEPOINT s; INSERT INTO t VALUES (3); RELEASE s; COMMIT;
SELECT pg_temp.is_new() AS after_savepoint;
DO $$ BEGIN FOR i IN 1..3 LOOP INSERT INTO t VALUES (i); COMMIT; END LOOP; END $$;
SELECT pg_temp.is_new() AS after_do_with_commits;
BEGIN; INSERT INTO t VALUES (4); PREPARE TRANSACTION 'token_commit';
SELECT pg_temp.is_new() AS after_prepare;
COMMIT PREPARED 'token_commit';
SELECT pg_temp.is_new() AS after_commit_prepared;
BEGIN; INSERT INTO t VALUES (5); PREPARE TRANSACTION 'token_commit';
ROLLBACK PREPARED 'token_commit';
SELECT pg_temp.is_new() AS after_rollback_prepared;
-- a read that prunes pages writes WAL, but nothing that could be waited for
CREATE TABLE pruned (a int) WITH (autovacuum_enabled = off);
INSERT INTO pruned SELECT generate_series(1, 2000);
DELETE FROM pruned;
SELECT pg_temp.is_new() AS after_delete;
SELECT count(*) FROM pruned;
SELECT pg_temp.is_new() AS after_read;

-- also not after a statement that would have given a token without writing in a transaction of its own
INSERT INTO pruned SELECT generate_series(1, 2000);
BEGIN; DELETE FROM pruned; PREPARE TRANSACTION 'token_commit';
COMMIT PREPARED 'token_commit';
SELECT pg_temp.is_new() AS after_commit_prepared;
SELECT count(*) FROM pruned;
SELECT pg_temp.is_new() AS after_read;
INSERT INTO pruned SELECT generate_series(1, 2000);
DELETE FROM pruned;
SELECT pg_temp.is_new() AS after_delete;
COMMIT PREPARED 'token_commit';
SELECT count(*) FROM pruned;
SELECT pg_temp.is_new() AS after_read;

-- a token is the end of the commit record: nothing of it is above, and later it is covered
INSERT INTO t VALUES (6);
SELECT udb.token_covers(udb.current_token(), udb.last_commit_token()) AS covered,
	udb.token_reached(udb.last_commit_token()) AS reached,
	split_part(udb.token_value(udb.last_commit_token()), '.', 2)
		= lpad(to_hex(system_identifier), 16, '0') AS sysid,
	split_part(udb.token_value(udb.last_commit_token()), '.', 3) AS timeline,
	split_part(udb.token_value(udb.last_commit_token()), '.', 4) AS timeline_begin,
	split_part(udb.token_value(udb.last_commit_token()), '.', 6) AS flag
FROM pg_control_system();

-- the report is of the commit itself
SET udb.report_token = on;
INSERT INTO t VALUES (7);
SELECT right(current_setting('udb.last_token'), 2) AS synchronous,
	current_setting('udb.last_token') = udb.last_commit_token()::text AS the_same;
SET udb.report_token = off;
INSERT INTO t VALUES (8);
SELECT current_setting('udb.last_token') = udb.last_commit_token()::text AS reported_when_off;
SET udb.last_token = '1';
SELECT set_config('udb.last_token', '1', false);

-- durable already
SELECT udb.durable_token(udb.last_commit_token()) OPERATOR(udb.=) udb.last_commit_token() AS durable;
SELECT udb.durable_token('mysql:x');
SELECT udb.durable_token('postgres:1.00000000000000ff.1.0.3017028.a1');
-- not given by this server since it was started
SELECT udb.durable_token(regexp_replace(udb.last_commit_token()::text, 'd$', 'a1')::udb.token);
-- made up, beyond what was written
SELECT udb.durable_token(regexp_replace(udb.last_commit_token()::text, '[^.]*\.d$', 'ffffff0000000000.a1')::udb.token);
SELECT udb.durable_token(NULL);

DROP TABLE t, pruned;
