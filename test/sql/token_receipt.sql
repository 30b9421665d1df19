-- Receipts: write_receipt() and wait_for_fence()
\set VERBOSITY terse
\pset null '(null)'
CREATE TABLE t (a int);
\c
\set VERBOSITY terse
\pset null '(null)'
-- nothing committed in this session
SELECT udb.write_receipt() - 'written_at_unix_ms' - 'outbox_seq';
INSERT INTO t VALUES (1);
SELECT udb.enqueue('receipt', '{}') AS position \gset
SELECT udb.write_receipt(ARRAY['a', 'b'], 'sum') AS receipt \gset
SELECT jsonb_object_keys(:'receipt'::jsonb);
SELECT (:'receipt'::jsonb->'source_token')::udb.token OPERATOR(udb.=) udb.last_commit_token() AS token,
	(:'receipt'::jsonb->>'outbox_seq')::bigint = :position AS outbox_seq,
	:'receipt'::jsonb->'projection_task_ids' AS tasks, :'receipt'::jsonb->'manifest_checksum' AS checksum,
	abs((:'receipt'::jsonb->>'written_at_unix_ms')::bigint - extract(epoch FROM clock_timestamp()) * 1000) < 60000 AS now;

-- the commit position does not exist before the commit
BEGIN;
SELECT udb.write_receipt() IS NOT NULL AS nothing_written;
INSERT INTO t VALUES (2);
\set VERBOSITY default
SELECT udb.write_receipt();
\set VERBOSITY terse
ROLLBACK;
SELECT udb.write_receipt(NULL);
SELECT udb.write_receipt('{}', NULL);
SELECT udb.write_receipt(ARRAY['a', NULL]);
SELECT udb.write_receipt(ARRAY['']);

-- it is durable even if the commit was not
SET synchronous_commit = off;
INSERT INTO t VALUES (3);
SELECT right(udb.write_receipt()->'source_token'->>'value', 2) AS flag;
RESET synchronous_commit;

-- cleared: the token, the empty fence, nulls
SELECT outcome, reason, detail, waited_ms < 1000 AS fast FROM udb.wait_for_fence(udb.write_receipt());
SELECT * FROM udb.wait_for_fence('{}');
SELECT * FROM udb.wait_for_fence('{"source_token": null, "projection_task_ids": []}', '0');
SELECT * FROM udb.wait_for_fence('{"source_token": null, "projection_task_ids": null, "unknown": 1}', '0');
SELECT outcome FROM udb.wait_for_fence(jsonb_build_object('source_token', udb.last_commit_token()::text), '0');

-- projection tasks, by key
CREATE FUNCTION pg_temp.tasks(ids text[]) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('projection_task_ids', (SELECT jsonb_agg('receipt:' || i) FROM unnest(ids) i)) $$;
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{a}'), '1 min');
SELECT count(udb.enqueue_projection_task('receipt:' || i, 'receipt', source_table => 't', target_backend => 'b'))
FROM unnest('{a,b,c,d,e}'::text[]) i;
SELECT count(*) FROM udb.claim_projection_tasks(4);
SELECT udb.complete_projection_task(task_id) FROM udb.projection_tasks WHERE idempotency_key = 'receipt:a';
SELECT udb.fail_projection_task(task_id, 1, 'DEAD_LETTER') FROM udb.projection_tasks WHERE idempotency_key = 'receipt:c';
SELECT udb.fail_projection_task(task_id, 12, 'FAILED') FROM udb.projection_tasks WHERE idempotency_key = 'receipt:d';
SELECT idempotency_key, status FROM udb.projection_tasks WHERE project_id = 'receipt' ORDER BY 1;
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{a}'), '1 min');
SELECT outcome, reason, detail, waited_ms BETWEEN 50 AND 900 AS waited FROM udb.wait_for_fence(pg_temp.tasks('{a,b}'), '50 ms');
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{a,e}'), '0');
-- what has failed is not waited for, but told when nothing is pending any more
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{a,d}'), '1 min');
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{d,e}'), '50 ms');
-- what is given up, or not there, at once
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{a,b,c}'), '1 min');
SELECT outcome, reason, detail FROM udb.wait_for_fence(pg_temp.tasks('{a,b,c,f}'), '1 min');
-- by id, however it is written; a key comes first
SELECT outcome, reason, detail FROM udb.projection_tasks, udb.wait_for_fence(
	jsonb_build_object('projection_task_ids', jsonb_build_array(task_id)), '1 min') WHERE idempotency_key = 'receipt:a';
SELECT outcome, reason, detail FROM udb.projection_tasks, udb.wait_for_fence(
	jsonb_build_object('projection_task_ids', jsonb_build_array(upper(task_id::text))), '1 min') WHERE idempotency_key = 'receipt:a';
SELECT outcome, reason, detail FROM udb.wait_for_fence(
	'{"projection_task_ids": ["00000000-0000-0000-0000-00000000000a"]}', '1 min');
SELECT udb.enqueue_projection_task(task_id::text, 'receipt', source_table => 't', target_backend => 'b') <> task_id AS made
FROM udb.projection_tasks WHERE idempotency_key = 'receipt:a';
SELECT outcome, reason FROM udb.projection_tasks, udb.wait_for_fence(
	jsonb_build_object('projection_task_ids', jsonb_build_array(task_id)), '0') WHERE idempotency_key = 'receipt:a';
SELECT outcome, reason, detail FROM udb.wait_for_fence('{"projection_task_ids": ["no uuid"]}', '1 min');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT udb.wait_for_fence(pg_temp.tasks('{a}'));
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM udb.wait_for_fence('{}');
ROLLBACK;
DELETE FROM udb.projection_tasks WHERE project_id = 'receipt';

-- another store's token is refused, a wrong receipt too
SELECT udb.wait_for_fence('{"source_token": {"backend_label": "mysql", "value": "x"}}');
SELECT udb.wait_for_fence('{"source_token": "mysql:x"}');
SELECT udb.wait_for_fence('{"source_token": "nonsense"}');
SELECT udb.wait_for_fence('{"source_token": 1}');
SELECT udb.wait_for_fence('{"source_token": []}');
SELECT udb.wait_for_fence('{"source_token": {"backend_label": "mysql"}}');
SELECT udb.wait_for_fence('{"projection_task_ids": "x"}');
SELECT udb.wait_for_fence('{"projection_task_ids": [1]}');
SELECT udb.wait_for_fence('{"projection_task_ids": [["x"]]}');
SELECT udb.wait_for_fence('{"projection_task_ids": {"x": "y"}}');
SELECT udb.wait_for_fence('[]');
SELECT udb.wait_for_fence('1');
SELECT udb.wait_for_fence(NULL);
SELECT udb.wait_for_fence('{}', NULL);
SELECT udb.wait_for_fence('{}', '-1 s');

-- rights
CREATE ROLE regress_token_nobody;
CREATE ROLE regress_token_producer;
CREATE ROLE regress_token_monitor;
SELECT udb.grant_role('regress_token_producer', 'producer'), udb.grant_role('regress_token_monitor', 'monitor');
SET ROLE regress_token_nobody;
SELECT udb.write_receipt();
SELECT udb.durable_token('mysql:x');
SELECT * FROM udb.fence_waiters;
SELECT udb.last_commit_token() IS NOT NULL AS token;
SELECT outcome FROM udb.wait_for_fence('{}');
SET udb.fence = '';
SET ROLE regress_token_producer;
SELECT udb.write_receipt() IS NOT NULL AS receipt;
SET ROLE regress_token_monitor;
SELECT count(*) FROM udb.fence_waiters;
RESET ROLE;
DROP OWNED BY regress_token_producer, regress_token_monitor;
DROP ROLE regress_token_nobody, regress_token_producer, regress_token_monitor;
DROP TABLE t;
