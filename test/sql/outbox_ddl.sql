-- What somebody may do to the log with DDL must not lose, reorder or wedge anything. In databases of their
-- own, where positions begin at 1, and without a worker, whose time is its own.
\set VERBOSITY terse
\set home :DBNAME
ALTER SYSTEM SET udb.worker = off;
ALTER SYSTEM SET udb.outbox_segment_size = 100;
SELECT pg_reload_conf();
CREATE DATABASE regress_udb_ddl;
\c regress_udb_ddl
CREATE EXTENSION udb;
SELECT udb.create_consumer('c');

-- an index on an expression that fails in an exception block: a subtransaction aborts within the insert
CREATE FUNCTION number_of(j jsonb) RETURNS numeric LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN (j ->> 'n')::numeric;
EXCEPTION WHEN invalid_text_representation THEN
	RETURN NULL;
END $$;
CREATE INDEX number ON udb.outbox_events (number_of(payload));
BEGIN;
SELECT udb.enqueue('t', '{"n": 1}'), udb.enqueue('t', '{"n": "x"}'), udb.enqueue('t', '{"n": "y"}');
SAVEPOINT a;
SELECT udb.enqueue('t', '{"n": "z"}');
ROLLBACK TO a;
SELECT udb.enqueue_many('t', ARRAY['{"n": "x"}', '{"n": 2}', '{"n": "y"}']::jsonb[]);
COMMIT;
SELECT event_seq, payload FROM udb.read('c');
SET enable_seqscan = off;
SELECT event_seq FROM udb.outbox_events WHERE number_of(payload) = 2;
RESET enable_seqscan;

-- one that fails for good fails the statement and nothing else
BEGIN;
SAVEPOINT a;
SELECT udb.enqueue('t', '{"n": "1e200000"}');
ROLLBACK TO a;
SELECT udb.enqueue('t', '{"n": 3}');
COMMIT;

-- one that enqueues itself
CREATE FUNCTION enqueues(j jsonb) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN CASE WHEN j ? 'again' THEN udb.enqueue('t', '{}') END;
END $$;
CREATE INDEX again ON udb.outbox_events (enqueues(payload));
SELECT udb.enqueue('t', '{"again": 1}');
SELECT udb.enqueue('t', '{"n": 4}');
DROP INDEX udb.again, udb.number;

-- constraints on the log itself, which new segments then have already
ALTER TABLE udb.outbox_events ADD PRIMARY KEY (event_seq);
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 100) n;
SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE contype IN ('p', 'u') AND conrelid::regclass::text LIKE 'udb.outbox_events\_%' ORDER BY 1, 2;

-- a segment that was detached keeps its name
SELECT segment AS newest FROM udb.outbox_segments ORDER BY first_position DESC LIMIT 1 \gset
ALTER TABLE udb.outbox_events DETACH PARTITION :newest;
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 100) n;
SELECT segment, first_position FROM udb.outbox_segments ORDER BY 2;

-- an event trigger that enqueues, or one that forbids, is not asked about segments
CREATE DATABASE regress_udb_ddl_2;
\c regress_udb_ddl_2
CREATE EXTENSION udb;
ALTER TABLE udb.outbox_events ADD PRIMARY KEY (event_seq, event_id);
CREATE FUNCTION audit() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM udb.enqueue('ddl', to_jsonb(tg_event || ' ' || tg_tag));
END $$;
CREATE EVENT TRIGGER audit_start ON ddl_command_start EXECUTE FUNCTION audit();
CREATE EVENT TRIGGER audit_end ON ddl_command_end EXECUTE FUNCTION audit();
CREATE TABLE audited (i int);
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 60) n;
SELECT udb.sweep_outbox_segments();
SELECT event_seq, payload FROM udb.peek(0, topics => '{ddl}');
SELECT count(*) FROM udb.outbox_segments;

DROP EVENT TRIGGER audit_start;
DROP EVENT TRIGGER audit_end;
SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE contype IN ('p', 'u') AND conrelid::regclass::text LIKE 'udb.outbox_events\_%' ORDER BY 1, 2;

-- an index the other way round is not the one to read by, also where it comes first
CREATE UNIQUE INDEX falling ON udb.outbox_events (event_seq DESC);
SELECT count(*), min(s), max(s) FROM (SELECT udb.enqueue('t', to_jsonb(n)) AS s FROM generate_series(1, 110) n) x;
SELECT event_seq FROM udb.peek(160, 3);
SELECT last_event_seq FROM udb.outbox_segments ORDER BY 1;

-- columns of another type: an error, not a crash
ALTER TABLE udb.outbox_events ALTER COLUMN payload TYPE integer USING 1;
SELECT udb.enqueue('t', '{"n": 1}');
SELECT udb.peek(0, 1);
ALTER TABLE udb.outbox_events ALTER COLUMN payload TYPE jsonb USING '{}';
SELECT event_seq, payload FROM udb.peek(0, 1);

\c :home
ALTER SYSTEM RESET udb.worker;
ALTER SYSTEM RESET udb.outbox_segment_size;
SELECT pg_reload_conf();
DROP DATABASE regress_udb_ddl;
DROP DATABASE regress_udb_ddl_2;
