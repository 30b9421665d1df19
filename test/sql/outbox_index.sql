-- enqueue_many() adds to the pages of B-trees itself where it can: the indexes have to be as sound as ever
CREATE EXTENSION IF NOT EXISTS amcheck;
-- one more of each kind that could be mistaken for one to append to
CREATE INDEX outbox_index_desc ON udb.outbox_events (event_seq DESC);
CREATE INDEX outbox_index_topic ON udb.outbox_events (topic, event_seq);
CREATE FUNCTION pg_temp.many(n int) RETURNS bigint[]
	RETURN udb.enqueue_many('t_index', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, n) i));
-- batches of every size around the limits, with single events, given ids and rollbacks between them
SELECT sum(cardinality(pg_temp.many(n))) FROM unnest('{1,7,8,9,100,499,500,501,1000,1500}'::int[]) n;
SELECT count(udb.enqueue('t_index', to_jsonb(i))) FROM generate_series(1, 300) i;
BEGIN;
SELECT cardinality(pg_temp.many(700));
ROLLBACK;
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		BEGIN
			PERFORM udb.enqueue_many('t_index', (SELECT array_agg(to_jsonb(j)) FROM generate_series(1, 50 * i) j));
			PERFORM udb.enqueue('t_index', to_jsonb(i), event_id => gen_random_uuid());
			IF i % 3 = 0 THEN
				RAISE EXCEPTION 'undo';
			END IF;
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
	END LOOP;
END
$$;
-- an index that needs the executor
CREATE INDEX outbox_index_partial ON udb.outbox_events (event_id) WHERE topic = 't_index';
SELECT cardinality(pg_temp.many(600));
DROP INDEX udb.outbox_index_partial;
SELECT cardinality(pg_temp.many(600));
-- ids from the future make the end of one index another place than that of the other
SELECT udb.enqueue('t_index', '0', event_id => 'ffffffff-ffff-7fff-bfff-ffffffffffff') > 0 AS last_id;
SELECT sum(cardinality(pg_temp.many(n))) FROM unnest('{10,600}'::int[]) n;
-- every entry is where it belongs, and every row has its entries
SELECT count(*) >= 4 AS some, count(bt_index_check(i.indexrelid, true)) >= 0 AS sound
FROM pg_index i JOIN udb.outbox_segments s ON s.segment = i.indrelid
	JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE a.amname = 'btree';
SELECT count(*) AS events, count(DISTINCT event_seq) AS positions, count(DISTINCT event_id) AS ids
FROM udb.outbox_events WHERE topic = 't_index';
SET enable_seqscan = off;
SELECT count(*) FROM udb.outbox_events WHERE event_seq > 0 AND topic = 't_index';
RESET enable_seqscan;
DROP INDEX udb.outbox_index_desc, udb.outbox_index_topic;
DROP EXTENSION amcheck;
