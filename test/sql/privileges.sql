-- Rights: nobody gets anything by himself, and each kind of role what it needs and no more
\set VERBOSITY terse
CREATE ROLE regress_udb_nobody;
CREATE ROLE regress_udb_producer;
CREATE ROLE regress_udb_consumer;
CREATE ROLE regress_udb_worker;
CREATE ROLE regress_udb_monitor;
CREATE ROLE regress_udb_admin;
SELECT udb.grant_role(('regress_udb_' || kind)::regrole, kind)
FROM unnest('{producer,consumer,worker,monitor,admin}'::text[]) kind;

-- what anybody may call: what tells nothing about events, and changes nothing
SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'udb'::regnamespace
	AND has_function_privilege('regress_udb_nobody', oid, 'EXECUTE') ORDER BY oid::regprocedure::text COLLATE "C";
SELECT oid::regclass, relkind FROM pg_class WHERE relnamespace = 'udb'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
	AND has_table_privilege('regress_udb_nobody', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT has_schema_privilege('regress_udb_nobody', 'udb', 'USAGE') AS usage, has_schema_privilege('regress_udb_nobody', 'udb', 'CREATE') AS "create";

-- the whole matrix; functions whose names begin with _ are parts of views
SELECT p.oid::regprocedure AS function, string_agg(substr(r.rolname, 13), ', ' ORDER BY r.rolname) AS roles
FROM pg_proc p LEFT JOIN pg_roles r ON r.rolname LIKE 'regress\_udb\_%' AND r.rolname <> 'regress_udb_nobody'
	AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
WHERE p.pronamespace = 'udb'::regnamespace AND NOT has_function_privilege('regress_udb_nobody', p.oid, 'EXECUTE')
GROUP BY p.oid ORDER BY p.oid::regprocedure::text COLLATE "C";
SELECT c.oid::regclass AS relation, string_agg(substr(r.rolname, 13), ', ' ORDER BY r.rolname) AS may_select
FROM pg_class c LEFT JOIN pg_roles r ON r.rolname LIKE 'regress\_udb\_%' AND has_table_privilege(r.oid, c.oid, 'SELECT')
WHERE c.relnamespace = 'udb'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND NOT c.relispartition
GROUP BY c.oid ORDER BY c.oid::regclass::text COLLATE "C";
-- tables are written by functions only, whoever calls them
SELECT c.oid::regclass, r.rolname FROM pg_class c, pg_roles r
WHERE c.relnamespace = 'udb'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND r.rolname LIKE 'regress\_udb\_%'
	AND has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');

-- each at work: the sqlstate, or ok
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END
$$;
CREATE FUNCTION pg_temp.rights() RETURNS TABLE (does text, result text) LANGUAGE sql AS $$
	SELECT does, pg_temp.try(statement) FROM (VALUES
		(1, 'produce', 'SELECT udb.enqueue(''t_privileges'', ''1'')'),
		(2, 'produce many', 'SELECT udb.enqueue_many(''t_privileges'', ''{1}'')'),
		(3, 'with an id', 'SELECT udb.enqueue(''t_privileges'', ''1'', event_id => ''018f0000-0000-7000-8000-000000000301'')'),
		(4, 'read', 'SELECT count(*) FROM udb.read(''t_privileges'')'),
		(5, 'peek', 'SELECT count(*) FROM udb.peek(0, 1)'),
		(6, 'wait', 'SELECT udb.wait_for_events(''t_privileges'', ''0'')'),
		(7, 'checkpoint', 'SELECT udb.checkpoint(''t_privileges'', udb.outbox_stable_seq())'),
		(8, 'park', 'SELECT udb.dead_letter_event(''t_privileges'', udb.outbox_max_seq())'),
		(9, 'redrive', 'SELECT udb.redrive_dead_letters(''t_privileges'')'),
		(10, 'create consumer', 'SELECT udb.create_consumer(''t_privileges2'')'),
		(11, 'seek', 'SELECT udb.seek_consumer(''t_privileges'', 0), udb.seek_consumer(''t_privileges'', ''latest'')'),
		(12, 'pause', 'SELECT udb.pause_consumer(''t_privileges''), udb.resume_consumer(''t_privileges'')'),
		(13, 'sweep', 'SELECT udb.sweep_outbox_segments(), udb.sweep_outbox_retention(), udb.sweep_dead_events()'),
		(14, 'holders', 'SELECT count(*) FROM udb.horizon_holder()'),
		(15, 'status', 'SELECT * FROM udb.consumer_status'),
		(16, 'segments', 'SELECT * FROM udb.outbox_segments'),
		(17, 'tables', 'SELECT * FROM udb.consumers, udb.dead_events, udb.outbox_events'),
		(18, 'write tables', 'UPDATE udb.consumers SET position = 0'),
		(19, 'write events', 'DELETE FROM udb.outbox_events'),
		(20, 'sequence', 'SELECT nextval(''udb.outbox_position'')'),
		(21, 'grant', 'SELECT udb.grant_role(''regress_udb_nobody'', ''admin'')'),
		(22, 'drop consumer', 'SELECT udb.drop_consumer(''t_privileges'')')
	) AS v(n, does, statement) ORDER BY n
$$;
GRANT EXECUTE ON FUNCTION pg_temp.try(text), pg_temp.rights() TO PUBLIC;
SELECT udb.create_consumer('t_privileges', NULL, 'latest') >= 0 AS created, udb.enqueue('t_privileges', '1') > 0 AS enqueued;
BEGIN;
SET LOCAL ROLE regress_udb_nobody;
SELECT * FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_udb_producer;
SELECT * FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_udb_consumer;
SELECT * FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_udb_worker;
SELECT * FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_udb_monitor;
SELECT * FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_udb_admin;
SELECT * FROM pg_temp.rights() WHERE result <> 'ok';
ROLLBACK;

-- await_events is a procedure, which ends transactions
SET ROLE regress_udb_consumer;
CALL udb.await_events('t_privileges', '0');
SET ROLE regress_udb_producer;
CALL udb.await_events('t_privileges', '0');
RESET ROLE;

-- a monitor sees other sessions' queries in horizon_holder, for which it is
BEGIN;
SELECT udb.enqueue('t_privileges', '2') > 0 AS enqueued;
SET LOCAL ROLE regress_udb_monitor;
SELECT usename = session_user AS whose, state, query ~ 'horizon_holder' AS query FROM udb.horizon_holder();
ROLLBACK;

-- names that need quotes; and again, which changes nothing
CREATE ROLE "regress_udb Odd ""name""; DROP TABLE x; --";
SELECT udb.grant_role('"regress_udb Odd ""name""; DROP TABLE x; --"', 'producer');
SELECT udb.grant_role('"regress_udb Odd ""name""; DROP TABLE x; --"', 'producer');
SET ROLE "regress_udb Odd ""name""; DROP TABLE x; --";
SELECT udb.enqueue('t_privileges', '3') > 0 AS enqueued;
SELECT udb.read('t_privileges');
RESET ROLE;
CREATE ROLE "regress_udb and ""public""";
SELECT udb.grant_role('"regress_udb and ""public"""', 'monitor');
SET ROLE "regress_udb and ""public""";
SELECT count(*) FROM udb.horizon_holder();
RESET ROLE;
-- not to everybody at once
SELECT udb.grant_role('public', 'producer');

-- udb's own statements run as the owner of the extension with a search_path of their own, and give both back
CREATE SCHEMA t_privileges AUTHORIZATION regress_udb_consumer;
SET ROLE regress_udb_consumer;
CREATE TABLE t_privileges.consumers (name text, "position" bigint);
CREATE FUNCTION t_privileges.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
SET search_path = t_privileges, pg_catalog, udb;
SELECT udb.checkpoint('t_privileges', udb.outbox_stable_seq()) > 0 AS moved;
SELECT current_user, current_setting('search_path');
RESET search_path;
RESET ROLE;

SELECT udb.drop_consumer('t_privileges');
DROP SCHEMA t_privileges CASCADE;
DROP OWNED BY regress_udb_producer, regress_udb_consumer, regress_udb_worker, regress_udb_monitor, regress_udb_admin,
	"regress_udb Odd ""name""; DROP TABLE x; --", "regress_udb and ""public""" CASCADE;
DROP ROLE regress_udb_nobody, regress_udb_producer, regress_udb_consumer, regress_udb_worker, regress_udb_monitor,
	regress_udb_admin, "regress_udb Odd ""name""; DROP TABLE x; --", "regress_udb and ""public""";
