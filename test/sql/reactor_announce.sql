-- Announcements: what fails does not take the rest along
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on

-- all three
BEGIN;
SELECT published, notified, enqueued_job_id > 0 FROM udb.announce('t_announce', 'k', '{"n": 1}');
SELECT topic, partition_key, payload FROM udb.outbox_events WHERE topic = 't_announce';
SELECT queue, payload FROM udb.jobs WHERE payload ->> 'topic' = 't_announce';
ROLLBACK;

-- no event
BEGIN;
SET LOCAL udb.outbox_max_payload = '1kB';
SELECT published, notified, enqueued_job_id > 0 FROM udb.announce('t_announce', 'k', to_jsonb(repeat('x', 2000)));
SELECT count(*) FROM udb.outbox_events WHERE topic = 't_announce';
SELECT count(*) FROM udb.jobs WHERE payload ->> 'topic' = 't_announce';
ROLLBACK;

-- nobody notified
BEGIN;
ALTER FUNCTION udb._announce_wake RENAME TO _announce_wake_not;
SELECT published, notified, enqueued_job_id > 0 FROM udb.announce('t_announce', 'k', '{"n": 2}');
ROLLBACK;

-- no job, of which nothing stays
BEGIN;
CREATE FUNCTION t_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no jobs today'; END $$;
CREATE TRIGGER refuse AFTER INSERT ON udb.jobs FOR EACH ROW EXECUTE FUNCTION t_refuse();
SELECT published, notified, enqueued_job_id FROM udb.announce('t_announce', 'k', '{"n": 3}');
SELECT payload FROM udb.outbox_events WHERE topic = 't_announce';
SELECT count(*) FROM udb.jobs WHERE payload -> 'payload' = '{"n": 3}';
ROLLBACK;

-- none of them
BEGIN;
ALTER FUNCTION udb._announce_wake RENAME TO _announce_wake_not;
CREATE FUNCTION t_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no jobs today'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON udb.jobs FOR EACH ROW EXECUTE FUNCTION t_refuse();
SET LOCAL udb.outbox_max_payload = '1kB';
SELECT * FROM udb.announce('t_announce', 'k', to_jsonb(repeat('x', 2000)));
ROLLBACK;

-- a cancelled query is not one that has failed
BEGIN;
CREATE FUNCTION t_sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN new; END $$;
CREATE TRIGGER sleep BEFORE INSERT ON udb.jobs FOR EACH ROW EXECUTE FUNCTION t_sleep();
SET LOCAL statement_timeout = '200ms';
SELECT * FROM udb.announce('t_announce', 'k', '{"n": 4}');
ROLLBACK;

-- whoever has no rights to the parts
CREATE ROLE regress_udb_producer;
SELECT udb.grant_role('regress_udb_producer', 'producer');
BEGIN;
SET LOCAL ROLE regress_udb_producer;
SELECT published, notified, enqueued_job_id > 0 FROM udb.announce('t_announce', 'k', '{"n": 5}');
SELECT udb._announce_wake('t');
ROLLBACK;
DROP OWNED BY regress_udb_producer;
DROP ROLE regress_udb_producer;
