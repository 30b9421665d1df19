-- outbox_trigger(): what it writes for which change, and what it refuses
\set VERBOSITY terse
SELECT udb.create_consumer('t_trigger', ARRAY['t_trigger', 'Topic with ''quotes'' and spaces'], 'latest') >= 0 AS created;
CREATE FUNCTION pg_temp.drain() RETURNS TABLE (partition_key text, payload text) LANGUAGE sql AS $$
	WITH e AS MATERIALIZED (SELECT * FROM udb.read('t_trigger', 10000))
	SELECT e.partition_key, e.payload::text FROM e
		CROSS JOIN (SELECT udb.checkpoint('t_trigger', max(event_seq)) FROM e HAVING count(*) > 0) c
	ORDER BY e.event_seq
$$;
\x on

-- insert, update, delete; the key is that of the new row, or of the deleted one
CREATE TABLE t_trigger (id int PRIMARY KEY, name text, total numeric);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON t_trigger
	FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
INSERT INTO t_trigger VALUES (1, 'ada', 1.50), (2, NULL, NULL);
UPDATE t_trigger SET id = 10, name = 'eve' WHERE id = 1;
UPDATE t_trigger SET name = name WHERE id = 2;
DELETE FROM t_trigger WHERE id = 10;
INSERT INTO t_trigger VALUES (2, 'bob', 5) ON CONFLICT (id) DO UPDATE SET name = excluded.name;
INSERT INTO t_trigger VALUES (2, 'cyd', 6) ON CONFLICT DO NOTHING;
SELECT * FROM pg_temp.drain();

-- each event stands or falls with its row
BEGIN;
INSERT INTO t_trigger VALUES (3, 'dan', 3);
ROLLBACK;
BEGIN;
INSERT INTO t_trigger VALUES (4, 'kept', 4);
SAVEPOINT a;
INSERT INTO t_trigger VALUES (5, 'lost', 5);
ROLLBACK TO a;
COMMIT;
SELECT * FROM pg_temp.drain();

-- TRUNCATE has no rows, so it needs a trigger that this is none for
CREATE TRIGGER tr AFTER TRUNCATE ON t_trigger FOR EACH STATEMENT EXECUTE FUNCTION udb.outbox_trigger('t_trigger');
TRUNCATE t_trigger;
DROP TRIGGER tr ON t_trigger;
CREATE TRIGGER s AFTER INSERT ON t_trigger FOR EACH STATEMENT EXECUTE FUNCTION udb.outbox_trigger('t_trigger');
INSERT INTO t_trigger VALUES (6, 'no', 6);
DROP TRIGGER s ON t_trigger;
-- without a topic, or with one that will not do
CREATE TRIGGER n AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger();
INSERT INTO t_trigger VALUES (6, 'no', 6);
DROP TRIGGER n ON t_trigger;
CREATE TRIGGER n AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('');
INSERT INTO t_trigger VALUES (6, 'no', 6);
DROP TRIGGER n ON t_trigger;
-- with a column that is not there, or that is no column of the table's own
CREATE TRIGGER n AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id', 'nmae');
INSERT INTO t_trigger VALUES (6, 'no', 6);
DROP TRIGGER n ON t_trigger;
CREATE TRIGGER n AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'ctid');
INSERT INTO t_trigger VALUES (6, 'no', 6);
DROP TRIGGER n ON t_trigger;
CREATE TRIGGER n AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', '');
INSERT INTO t_trigger VALUES (6, 'no', 6);
-- nothing of all that has happened
SELECT count(*) FROM t_trigger WHERE id = 6;
SELECT * FROM pg_temp.drain();
DROP TABLE t_trigger;

-- several key columns of any type, a null among them, none at all; BEFORE as well as AFTER
CREATE TABLE t_trigger (a int, b date, c text, d bytea);
CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON t_trigger
	FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'c', 'a', 'b');
CREATE TRIGGER no_key AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger');
SET datestyle = 'ISO, YMD';
INSERT INTO t_trigger VALUES (1, '2026-02-03', 'x:y', '\x00ff');
INSERT INTO t_trigger VALUES (NULL, '2026-02-03', NULL);
UPDATE t_trigger SET a = 2 WHERE a = 1;
DELETE FROM t_trigger;
SELECT * FROM pg_temp.drain();
-- a BEFORE trigger passes the row on unchanged, so the changes above were made
SELECT count(*) FROM t_trigger;
-- the key column is dropped afterwards
ALTER TABLE t_trigger DROP COLUMN b;
INSERT INTO t_trigger VALUES (3, 'z');
DROP TRIGGER t ON t_trigger;
-- a dropped column is not in the rows, one that was added later is in the old ones too
INSERT INTO t_trigger VALUES (4, 'w');
ALTER TABLE t_trigger ADD COLUMN e int DEFAULT 7;
CREATE TRIGGER t AFTER UPDATE ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'e');
UPDATE t_trigger SET a = 5;
SELECT * FROM pg_temp.drain();
DROP TABLE t_trigger;

-- names that need quotes
CREATE SCHEMA "Odd ""schema";
CREATE TABLE "Odd ""schema"."Table, odd" ("Key ""one" int, "ключ" text);
CREATE TRIGGER "odd ""trigger" AFTER INSERT ON "Odd ""schema"."Table, odd" FOR EACH ROW
	EXECUTE FUNCTION udb.outbox_trigger('Topic with ''quotes'' and spaces', 'Key "one', 'ключ');
INSERT INTO "Odd ""schema"."Table, odd" VALUES (1, 'знач "ение"');
SELECT topic FROM udb.read('t_trigger');
SELECT * FROM pg_temp.drain();
-- the name of a column is taken as it is, not folded
CREATE TRIGGER folded AFTER INSERT ON "Odd ""schema"."Table, odd" FOR EACH ROW
	EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'key "one');
INSERT INTO "Odd ""schema"."Table, odd" VALUES (2, '');
DROP SCHEMA "Odd ""schema" CASCADE;

-- values that are stored out of line, also where the update does not touch them
CREATE TABLE t_trigger (id int, long text, doc jsonb, n int);
ALTER TABLE t_trigger ALTER long SET STORAGE EXTERNAL, ALTER doc SET STORAGE EXTERNAL;
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON t_trigger
	FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
INSERT INTO t_trigger SELECT 1, repeat('long ', 20000), jsonb_build_object('doc', repeat('d', 50000)), 0;
UPDATE t_trigger SET n = 1;
DELETE FROM t_trigger;
SELECT payload::jsonb ->> 'op' AS op,
	length(payload::jsonb #>> '{old,long}') AS old_long, length(payload::jsonb #>> '{new,long}') AS new_long,
	length(payload::jsonb #>> '{old,doc,doc}') AS old_doc, length(payload::jsonb #>> '{new,doc,doc}') AS new_doc
FROM pg_temp.drain();
-- a key that is too long is refused with the row, and so is a row that is too large
CREATE TRIGGER k AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'long');
INSERT INTO t_trigger VALUES (2, repeat('k', 1024));
INSERT INTO t_trigger VALUES (3, repeat('k', 1025));
DROP TRIGGER k ON t_trigger;
SET udb.outbox_max_payload = '1kB';
INSERT INTO t_trigger VALUES (4, repeat('x', 1024));
RESET udb.outbox_max_payload;
SELECT array_agg(id) FROM t_trigger;
SELECT count(*) FROM pg_temp.drain();
DROP TABLE t_trigger;

-- types that JSON has no name for, generated columns, composite and array columns
CREATE TYPE t_trigger_pair AS (x int, y text);
CREATE DOMAIN t_trigger_positive AS int CHECK (value > 0);
CREATE TABLE t_trigger (id t_trigger_positive, twice int GENERATED ALWAYS AS (id * 2) STORED, pair t_trigger_pair,
	tags text[], r int4range, at timestamptz, ok boolean, f float8);
CREATE TRIGGER t AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id', 'pair');
SET timezone = 'UTC';
INSERT INTO t_trigger VALUES (1, DEFAULT, '(5,"a b")', '{a,NULL}', '[1,5)', '2026-01-02 03:04:05+00', true, 'NaN');
SELECT * FROM pg_temp.drain();
DROP TABLE t_trigger;
DROP TYPE t_trigger_pair;
DROP DOMAIN t_trigger_positive;

-- partitions: the table is the partition that has the row
CREATE TABLE t_trigger (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE t_trigger_low PARTITION OF t_trigger FOR VALUES FROM (0) TO (10);
CREATE TABLE t_trigger_high PARTITION OF t_trigger FOR VALUES FROM (10) TO (20);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON t_trigger
	FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
INSERT INTO t_trigger VALUES (1, 'a');
UPDATE t_trigger SET id = 11;
SELECT * FROM pg_temp.drain();
DROP TABLE t_trigger;

-- an INSTEAD OF trigger of a view, and one with a condition
CREATE VIEW t_trigger AS SELECT 1 AS id, 'v'::text AS v;
CREATE TRIGGER t INSTEAD OF INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
INSERT INTO t_trigger VALUES (7, 'into the view');
SELECT * FROM pg_temp.drain();
DROP VIEW t_trigger;
CREATE TABLE t_trigger (id int, v text);
CREATE TRIGGER t AFTER UPDATE OF v ON t_trigger FOR EACH ROW WHEN (old.v IS DISTINCT FROM new.v)
	EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
INSERT INTO t_trigger VALUES (1, 'a'), (2, 'b');
UPDATE t_trigger SET v = 'b';
SELECT * FROM pg_temp.drain();

-- who makes the trigger needs the right to, who fires it does not
CREATE ROLE regress_udb_clerk;
GRANT INSERT ON t_trigger TO regress_udb_clerk;
CREATE TRIGGER i AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
SET ROLE regress_udb_clerk;
INSERT INTO t_trigger VALUES (3, 'c');
CREATE TEMP TABLE t_trigger_own (id int);
CREATE TRIGGER i AFTER INSERT ON t_trigger_own FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('t_trigger', 'id');
RESET ROLE;
SELECT * FROM pg_temp.drain();
DROP TABLE t_trigger, t_trigger_own;
DROP ROLE regress_udb_clerk;

SELECT udb.drop_consumer('t_trigger');
