-- Handlers: who may register which, as whom they run, and what happens when they fail. In transactions that are
-- rolled back, so that the worker has no part in it.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
CREATE ROLE regress_udb_admin;
CREATE ROLE regress_udb_owner;
SELECT udb.grant_role('regress_udb_admin', 'admin');
CREATE SCHEMA t_handler AUTHORIZATION regress_udb_owner;
GRANT USAGE ON SCHEMA t_handler TO regress_udb_admin;
SET ROLE regress_udb_owner;
CREATE TABLE t_handler.calls (n serial, consumer text, records text, removals boolean, who text, path text);
CREATE FUNCTION t_handler.note(consumer text, records udb.registry_record[], removals boolean) RETURNS void
	LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t_handler.calls (consumer, records, removals, who, path)
	SELECT consumer, (SELECT string_agg(format('%s=%s@%s', r.key, r.record, r.seq), ' ') FROM unnest(records) r),
		removals, current_user, current_setting('search_path');
END
$$;
CREATE FUNCTION t_handler.run(consumer text, records udb.registry_record[], removals boolean) RETURNS void
	LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE records[1].record ->> 0;
END
$$;
CREATE FUNCTION t_handler.few(consumer text, records udb.registry_record[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION t_handler.many(consumer text, records udb.registry_record[], removals boolean) RETURNS SETOF int
	LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION t_handler.other(consumer text, records text[], removals boolean) RETURNS void LANGUAGE sql AS 'SELECT';
RESET ROLE;

-- what is no handler, and who may not register one
BEGIN;
SELECT udb.create_registry('t_handler');
SAVEPOINT s;
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.few(text, udb.registry_record[])');
ROLLBACK TO s;
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.many(text, udb.registry_record[], boolean)');
ROLLBACK TO s;
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.other(text, text[], boolean)');
ROLLBACK TO s;
SELECT udb.create_registry_consumer('h', 't_handler', 123456789::oid::regprocedure);
ROLLBACK TO s;
SET LOCAL ROLE regress_udb_admin;
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
ROLLBACK TO s;
SET LOCAL ROLE regress_udb_owner;
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
ROLLBACK TO s;
RESET ROLE;
GRANT regress_udb_owner TO regress_udb_admin;
SET LOCAL ROLE regress_udb_admin;
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
ROLLBACK;

-- it gets what it has missed, as its owner
BEGIN;
SELECT udb.create_registry('t_handler');
SELECT udb.sweep_registries();
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
SELECT udb.sweep_registries();
SELECT udb.put_record('t_handler', 'a', '1'), udb.put_record('t_handler', 'b', '2');
SELECT udb.sweep_registries();
SELECT udb.sweep_registries();
SELECT udb.remove_record('t_handler', 'a'), udb.touch_record('t_handler', 'b');
SELECT udb.sweep_registries(), udb.remove_record('t_handler', 'b');
SELECT udb.sweep_registries();
SELECT * FROM t_handler.calls;
SELECT consumer, applied, watermark, lag, removals, handler, failures FROM udb.registry_consumer_status;
SELECT current_user = session_user, current_setting('search_path');
ROLLBACK;

-- in batches of 1000; removals are told of when all before them has been
BEGIN;
SELECT udb.create_registry('t_handler');
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
INSERT INTO udb.registry_records SELECT 't_handler', 'k' || i, '0', i FROM generate_series(1, 1500) i;
UPDATE udb.registries SET watermark = 1500 WHERE registry = 't_handler';
SELECT udb.remove_record('t_handler', 'k1');
SELECT udb.sweep_registries();
SELECT udb.sweep_registries();
SELECT udb.sweep_registries();
SELECT removals, split_part(records, ' ', 1), split_part(records, ' ', -1) FROM t_handler.calls ORDER BY n;
ROLLBACK;

-- one that fails is tried later, and is in nobody's way; what it has done is undone
BEGIN;
SELECT udb.create_registry('t_handler');
SELECT udb.create_registry_consumer('bad', 't_handler', 't_handler.run(text, udb.registry_record[], boolean)');
SELECT udb.create_registry_consumer('good', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
SELECT udb.put_record('t_handler', 'a', '"INSERT INTO t_handler.calls (consumer) VALUES (''undone''); SELECT 1 / 0"');
SELECT udb.sweep_registries(), udb.sweep_registries(), udb.sweep_registries();
SELECT consumer FROM t_handler.calls;
SELECT consumer, lag, failures, last_error, not_before - clock_timestamp() BETWEEN '0.5 s' AND '1 s' FROM udb.registry_consumer_status ORDER BY 1;
SELECT udb.sweep_registries();
UPDATE udb.registry_consumers SET not_before = clock_timestamp(), failures = 3 WHERE consumer = 'bad';
SELECT udb.sweep_registries();
SELECT failures, not_before - clock_timestamp() BETWEEN '7.5 s' AND '8 s' FROM udb.registry_consumer_status WHERE consumer = 'bad';
UPDATE udb.registry_consumers SET not_before = clock_timestamp(), failures = 1000 WHERE consumer = 'bad';
SELECT udb.sweep_registries();
SELECT failures, not_before - clock_timestamp() BETWEEN '299 s' AND '300 s' FROM udb.registry_consumer_status WHERE consumer = 'bad';
-- mended, it gets what it has missed, and the error is forgotten
UPDATE udb.registry_consumers SET not_before = clock_timestamp() WHERE consumer = 'bad';
SELECT udb.put_record('t_handler', 'a', '"SELECT 1"');
SELECT udb.sweep_registries(), udb.sweep_registries(), udb.sweep_registries();
SELECT consumer, lag, failures, last_error, not_before FROM udb.registry_consumer_status ORDER BY 1;
ROLLBACK;

-- an assertion is an error like any other; what cancels the call itself is not kept back
BEGIN;
SELECT udb.create_registry('t_handler');
SELECT udb.create_registry_consumer('bad', 't_handler', 't_handler.run(text, udb.registry_record[], boolean)');
SELECT udb.create_registry_consumer('good', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
SELECT udb.put_record('t_handler', 'a', '"DO $$ BEGIN ASSERT false, ''not so''; END $$"');
SELECT udb.sweep_registries(), udb.sweep_registries(), udb.sweep_registries();
SELECT consumer, lag, last_error FROM udb.registry_consumer_status ORDER BY 1;
UPDATE udb.registry_consumers SET not_before = NULL;
SELECT udb.put_record('t_handler', 'a', '"SELECT pg_sleep(600)"');
SET LOCAL statement_timeout = 50;
SELECT udb.sweep_registries();
ROLLBACK;

-- one that cannot do so many at once gets half as many each time
BEGIN;
SELECT udb.create_registry('t_handler');
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
INSERT INTO udb.registry_records SELECT 't_handler', 'k' || i, '0', i FROM generate_series(1, 1200) i;
UPDATE udb.registries SET watermark = 1200 WHERE registry = 't_handler';
ALTER TABLE t_handler.calls ADD CONSTRAINT few CHECK (length(records) < 5000);
CREATE FUNCTION pg_temp.again() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	UPDATE udb.registry_consumers SET not_before = NULL;
	PERFORM udb.sweep_registries();
	RETURN (SELECT format('%s %s', applied, failures) FROM udb.registry_consumers);
END
$$;
SELECT pg_temp.again(), pg_temp.again(), pg_temp.again(), pg_temp.again();
UPDATE udb.registry_consumers SET failures = 1000;
SELECT pg_temp.again();
ROLLBACK;

-- what somebody's function must not do in a process that could do anything
CREATE FUNCTION pg_temp.does(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM udb.create_registry('t_handler');
	PERFORM udb.create_registry_consumer('h', 't_handler', 't_handler.run(text, udb.registry_record[], boolean)');
	PERFORM udb.put_record('t_handler', 'a', to_jsonb(statement));
	PERFORM udb.sweep_registries();
	SELECT coalesce(last_error, 'ok') INTO result FROM udb.registry_consumers;
	PERFORM udb.drop_registry_consumer('h'), udb.drop_registry('t_handler');
	RETURN result;
END
$$;
BEGIN;
SELECT pg_temp.does('SELECT 1'), pg_temp.does('RESET ROLE'), pg_temp.does('SET SESSION AUTHORIZATION DEFAULT');
SELECT pg_temp.does('CREATE TEMP TABLE x ()'), pg_temp.does('SELECT * FROM pg_authid');
SELECT pg_temp.does('UPDATE udb.registries SET watermark = 0'), pg_temp.does('SELECT udb.create_registry(''x'')');
-- not even when the transaction ends
CREATE TABLE t_handler.late (x int);
CREATE FUNCTION t_handler.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'as %', current_user; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON t_handler.late INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION t_handler.late();
ALTER TABLE t_handler.late OWNER TO regress_udb_owner;
SELECT pg_temp.does('INSERT INTO t_handler.late VALUES (1)');
-- what it sets is set back
SELECT pg_temp.does('SET datestyle = german'), current_setting('datestyle') ~ 'German';
ROLLBACK;

-- a handler that is not there any more, or another one by now
BEGIN;
SELECT udb.create_registry('t_handler');
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler.note(text, udb.registry_record[], boolean)');
SELECT udb.put_record('t_handler', 'a', '1');
DROP FUNCTION t_handler.note;
SELECT udb.sweep_registries();
SELECT last_error FROM udb.registry_consumers;
UPDATE udb.registry_consumers SET not_before = NULL;
CREATE FUNCTION t_handler.note(consumer text, records udb.registry_record[], removals boolean) RETURNS SETOF int
	LANGUAGE sql AS 'SELECT 1';
SELECT udb.sweep_registries();
SELECT last_error FROM udb.registry_consumers;
ROLLBACK;

-- a name that needs quotes
BEGIN;
SELECT udb.create_registry('t_handler');
ALTER FUNCTION t_handler.note RENAME TO "Odd ""name""";
SELECT udb.create_registry_consumer('h', 't_handler', 't_handler."Odd ""name"""(text, udb.registry_record[], boolean)');
SELECT udb.put_record('t_handler', 'a', '1');
SELECT udb.sweep_registries();
SELECT records FROM t_handler.calls;
ROLLBACK;

DROP OWNED BY regress_udb_admin, regress_udb_owner CASCADE;
DROP ROLE regress_udb_admin, regress_udb_owner;
