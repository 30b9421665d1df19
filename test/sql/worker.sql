-- The background worker of a database: there when it should be, gone when it should not
CREATE FUNCTION pg_temp.wait_for_worker(wanted boolean) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		IF wanted = EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = current_database()) THEN
			RETURN CASE WHEN wanted THEN 'running' ELSE 'gone' END;
		END IF;
		PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
	END LOOP;
	RETURN 'waited for a minute in vain';
END
$$;
-- one a database, and one launcher
SELECT pg_temp.wait_for_worker(true);
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = current_database();
SELECT count(*), count(datname) FROM pg_stat_activity WHERE backend_type = 'udb launcher';

-- switched off and on again, it comes back by itself, whoever uses udb meanwhile
SELECT udb.outbox_stable_seq() >= 0 AS uses_udb;
ALTER SYSTEM SET udb.worker = off;
SELECT pg_reload_conf();
SELECT pg_temp.wait_for_worker(false);
SELECT udb.enqueue('t_worker', '1') > 0 AS works_without;
ALTER SYSTEM RESET udb.worker;
SELECT pg_reload_conf();
SELECT pg_temp.wait_for_worker(true);

-- it is not in the way of those who need a database for themselves, also while it is just starting
\set home :DBNAME
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
