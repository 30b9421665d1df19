-- The background worker of a database: there when it should be, gone when it should not
CREATE FUNCTION t_worker_wait(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	met boolean;
BEGIN
	FOR i IN 1 .. 6000 LOOP
		EXECUTE 'SELECT ' || condition INTO met;
		EXIT WHEN met;
		PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
	END LOOP;
	RETURN met;
END
$$;
CREATE VIEW t_worker AS SELECT pid, backend_type, datname FROM pg_stat_activity WHERE backend_type LIKE 'udb %';

-- one a database, and one launcher
SELECT t_worker_wait('EXISTS (SELECT FROM t_worker WHERE datname = current_database())') AS running;
SELECT count(*) FROM t_worker WHERE datname = current_database();
SELECT count(*), count(datname) FROM t_worker WHERE backend_type = 'udb launcher';

-- switched off and on again, it comes back by itself, whoever uses udb meanwhile
SELECT udb.outbox_stable_seq() >= 0 AS uses_udb;
ALTER SYSTEM SET udb.worker = off;
SELECT pg_reload_conf();
SELECT t_worker_wait('NOT EXISTS (SELECT FROM t_worker WHERE datname = current_database())') AS gone;
SELECT udb.enqueue('t_worker', '1') > 0 AS works_without;
ALTER SYSTEM RESET udb.worker;
SELECT pg_reload_conf();
SELECT t_worker_wait('EXISTS (SELECT FROM t_worker WHERE datname = current_database())') AS running;

-- a new launcher finds the workers that are there, and they it
SELECT pid AS launcher FROM t_worker WHERE backend_type = 'udb launcher' \gset
SELECT pid AS worker FROM t_worker WHERE datname = current_database() \gset
SELECT pg_terminate_backend(:launcher);
SELECT t_worker_wait(format(
	'EXISTS (SELECT FROM t_worker WHERE backend_type = ''udb launcher'' AND pid <> %s)', :launcher)) AS new_launcher;
-- it has looked into all databases when it has found one that it did not know
\set home :DBNAME
CREATE DATABASE regress_udb_worker;
\c regress_udb_worker
CREATE EXTENSION udb;
\c :home
SELECT t_worker_wait(
	'EXISTS (SELECT FROM t_worker WHERE datname = ''regress_udb_worker'')') AS found;
SELECT pid = :worker AS same, count(*) OVER () AS workers FROM t_worker
WHERE datname = current_database();
SELECT pg_terminate_backend(:worker);
SELECT t_worker_wait(format('EXISTS (SELECT FROM t_worker
	WHERE datname = current_database() AND pid <> %s)', :worker)) AS another_one;
DROP DATABASE regress_udb_worker;

-- it is not in the way of those who need a database for themselves, also while it is just starting
\set VERBOSITY terse
CREATE DATABASE regress_udb_worker;
\c regress_udb_worker
CREATE EXTENSION udb;
\c :home
DROP DATABASE regress_udb_worker;
CREATE DATABASE regress_udb_worker;
\c regress_udb_worker
CREATE EXTENSION udb;
\c :home
ALTER DATABASE regress_udb_worker RENAME TO regress_udb_worker2;
CREATE DATABASE regress_udb_worker TEMPLATE regress_udb_worker2;
DROP DATABASE regress_udb_worker2;
DROP DATABASE regress_udb_worker;

-- what sweeps call that must not run twice at once; it leaves no lease that is held, and respects one that is
SELECT udb._sweep_once('t_worker');
SELECT lease_name, held FROM udb.lease_status WHERE lease_name = 'udb.sweep.t_worker';
SELECT udb._sweep_once('t_worker'), udb.try_acquire_lease('udb.sweep.t_worker', 'admin', '1 h');
SELECT udb._sweep_once('t_worker'), udb.release_lease('udb.sweep.t_worker', 'admin');
SELECT udb._sweep_once('t_worker'), udb._sweep_once('t_worker');
SELECT udb._sweep_once(repeat('x', 300));
DROP VIEW t_worker;
DROP FUNCTION t_worker_wait;
