-- Projection tasks: what is refused, rights, forms, and what the sweep does. The rest is in test/pgtap.
\set VERBOSITY terse
\pset null '(null)'
CREATE FUNCTION put(key text, project text DEFAULT 'regress') RETURNS void LANGUAGE sql AS
	$$ SELECT udb.enqueue_projection_task(key, project, source_table => 't', target_backend => 'b') $$;

-- enqueue: what has to be given, and what may be empty
SELECT udb.enqueue_projection_task(NULL, 'regress', source_table => 't', target_backend => 'b');
SELECT udb.enqueue_projection_task('', 'regress', source_table => 't', target_backend => 'b');
SELECT udb.enqueue_projection_task(repeat('k', 1025), 'regress', source_table => 't', target_backend => 'b');
SELECT udb.enqueue_projection_task('k', NULL, source_table => 't', target_backend => 'b');
SELECT udb.enqueue_projection_task('k', '', source_table => 't', target_backend => 'b');
SELECT udb.enqueue_projection_task('k', 'regress', NULL, source_table => 't', target_backend => 'b');
SELECT udb.enqueue_projection_task('k', 'regress', target_backend => 'b');
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't');
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => repeat('b', 256));
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => 'b', target_instance => repeat('i', 256));
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => 'b', target_instance => NULL);
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => 'b', source_row_key => NULL);
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => 'b', operation => 'UPSERT');
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => 'b', operation => NULL);
SELECT udb.enqueue_projection_task('k', 'regress', source_table => 't', target_backend => 'b', store => 'other');
BEGIN READ ONLY;
SELECT put('k');
ROLLBACK;
SELECT count(*) FROM udb.projection_tasks WHERE project_id = 'regress';
SELECT udb.enqueue_projection_task(repeat('k', 1024), 'regress', source_table => 't', target_backend => 'b', operation => 'delete')
	IS NOT NULL AS made;
SELECT length(idempotency_key), manifest_checksum, source_row_key, operation, target_instance, target_options, source_payload,
	source_checksum FROM udb.projection_tasks WHERE project_id = 'regress';

-- the others
SELECT udb.claim_projection_tasks(NULL);
SELECT udb.claim_projection_tasks(1, NULL);
SELECT udb.claim_projection_tasks(store => 'other');
BEGIN READ ONLY;
SELECT udb.claim_projection_tasks();
ROLLBACK;
SELECT udb.complete_projection_task(NULL);
SELECT udb.complete_projection_task(NULL, 1);
SELECT udb.complete_projection_task('00000000-0000-0000-0000-000000000000', NULL::bigint);
SELECT udb.complete_projection_task('00000000-0000-0000-0000-000000000000', store => 'other');
SELECT udb.fail_projection_task(NULL, 1, 'FAILED');
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', NULL, 'FAILED');
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', -1, 'FAILED');
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, NULL);
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, 'PENDING');
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, 'failed');
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, 'FAILED', repairable => NULL);
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, 'FAILED', 'e', NULL::bigint);
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, 'FAILED', store => 'other');
SELECT udb.fail_projection_task('00000000-0000-0000-0000-000000000000', 1, 'FAILED');
SELECT udb.heartbeat_projection_task(NULL, 1);
SELECT udb.heartbeat_projection_task('00000000-0000-0000-0000-000000000000', NULL);
SELECT udb.heartbeat_projection_task('00000000-0000-0000-0000-000000000000', 1, 'other');
SELECT udb.get_projection_task(NULL);
SELECT udb.get_projection_task('00000000-0000-0000-0000-000000000000', 'other');
SELECT udb.requeue_dead_letter_tasks(store => 'other');
SELECT udb.requeue_dead_letter_by_source(NULL, 't', 'b', '');
SELECT udb.requeue_dead_letter_by_source('regress', NULL, 'b', '');
SELECT udb.requeue_dead_letter_by_source('regress', 't', NULL, '');
SELECT udb.requeue_dead_letter_by_source('regress', 't', 'b', NULL);
SELECT udb.requeue_dead_letter_by_source('regress', 't', 'b', '', 'other');
SELECT udb.reset_stale_projection_tasks(NULL);
SELECT udb.reset_stale_projection_tasks('-1 s');
SELECT udb.reset_stale_projection_tasks('1 s', 'other');
SELECT udb.projection_task_summary('other');
SELECT udb.pending_task_metrics(NULL);
SELECT udb.pending_task_metrics(store => 'other');
SELECT count(*) FROM udb.pending_task_metrics(-1);
SELECT udb.dead_letter_groups(NULL);
SELECT udb.dead_letter_groups(store => 'other');
SELECT count(*) FROM udb.dead_letter_groups(-1);
SELECT udb.pending_projection_task_count(NULL);
SELECT udb.pending_projection_task_count('{}', 'other');
SELECT udb.pending_projection_task_count('{}'), udb.pending_projection_task_count(ARRAY[NULL, repeat('k', 1024), repeat('k', 1024)]);

-- the table takes no other words
INSERT INTO udb.projection_tasks SELECT (t).* FROM (SELECT t FROM udb.projection_tasks t WHERE project_id = 'regress') s;
UPDATE udb.projection_tasks SET status = 'DONE' WHERE project_id = 'regress';
UPDATE udb.projection_tasks SET operation = 'merge' WHERE project_id = 'regress';
UPDATE udb.projection_tasks SET retry_count = -1 WHERE project_id = 'regress';
CREATE TEMP TABLE x (a int);
CREATE TRIGGER x BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION udb._projection_task_changed();
INSERT INTO x VALUES (1);
SELECT udb._projection_task_changed();

-- what is claimed and rolled back is found again, from a savepoint too, and by who has not begun at the oldest
DELETE FROM udb.projection_tasks WHERE project_id = 'regress';
SELECT put('k' || n) FROM generate_series(1, 6) n;
SELECT idempotency_key FROM udb.claim_projection_tasks(1, project_id => 'regress');
BEGIN;
SELECT idempotency_key FROM udb.claim_projection_tasks(2, project_id => 'regress');
ROLLBACK;
BEGIN;
SELECT idempotency_key FROM udb.claim_projection_tasks(1, project_id => 'regress');
SAVEPOINT s;
SELECT idempotency_key FROM udb.claim_projection_tasks(2, project_id => 'regress');
ROLLBACK TO s;
SELECT idempotency_key FROM udb.claim_projection_tasks(1, project_id => 'regress');
COMMIT;
BEGIN;
SELECT idempotency_key FROM udb.claim_projection_tasks(2, project_id => 'regress');
PREPARE TRANSACTION 'regress_projection';
SELECT idempotency_key FROM udb.claim_projection_tasks(3, project_id => 'regress');
ROLLBACK PREPARED 'regress_projection';
SELECT idempotency_key FROM udb.claim_projection_tasks(3, project_id => 'regress');
-- what was made in the same transaction
BEGIN;
SELECT put('k7');
SELECT idempotency_key FROM udb.claim_projection_tasks(3, project_id => 'regress');
COMMIT;
SELECT udb.reset_stale_projection_tasks('0');
SELECT idempotency_key FROM udb.claim_projection_tasks(1, project_id => 'regress');
SELECT count(*) FROM udb.claim_projection_tasks(100, project_id => 'regress');
BEGIN;
SELECT udb.reset_stale_projection_tasks('0');
SELECT idempotency_key FROM udb.claim_projection_tasks(1, project_id => 'regress');
COMMIT;
-- many at once, more than a transaction remembers one by one
SELECT count(put('m' || n, 'regress2')) FROM generate_series(1, 200) n;
SELECT count(*), count(DISTINCT claim_token), min(idempotency_key) FROM udb.claim_projection_tasks(150, project_id => 'regress2');
SELECT count(*) FILTER (WHERE udb.complete_projection_task(task_id, claim_token)) FROM udb.projection_tasks WHERE project_id = 'regress2';
SELECT count(*) FROM udb.claim_projection_tasks(150, project_id => 'regress2');
-- a fixed snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM udb.claim_projection_tasks(2, project_id => 'regress');
SELECT count(*) FROM udb.claim_projection_tasks(100, project_id => 'regress');
COMMIT;
SELECT count(*) FROM udb.claim_projection_tasks(1, project_id => 'regress');

-- the sweep, which leaves what is not old enough, and writes nothing when there is nothing
SELECT udb.sweep_projection_tasks();
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written FROM udb.sweep_projection_tasks();
UPDATE udb.projection_tasks SET updated_at = updated_at - interval '6 min' WHERE idempotency_key IN ('k1', 'k2', 'm1');
-- but only what is in progress; unless the worker was faster
SELECT udb.sweep_projection_tasks() BETWEEN 0 AND 2 AS swept;
SELECT idempotency_key, status, last_error FROM udb.projection_tasks WHERE idempotency_key IN ('k1', 'k2', 'k3', 'm1') ORDER BY 1;
ALTER SYSTEM SET udb.projection_stale_after = -1;
SELECT pg_reload_conf();
\c
\pset null '(null)'
SHOW udb.projection_stale_after;
UPDATE udb.projection_tasks SET updated_at = updated_at - interval '6 min' WHERE idempotency_key = 'k4';
SELECT udb.sweep_projection_tasks();
ALTER SYSTEM RESET udb.projection_stale_after;
SELECT pg_reload_conf();

-- completed tasks are in no index but the two that name them
SELECT c.relname, pg_get_expr(indpred, indrelid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid
WHERE indrelid = 'udb.projection_tasks'::regclass ORDER BY 1;

DELETE FROM udb.projection_tasks WHERE project_id IN ('regress', 'regress2');

-- who may do what
CREATE ROLE regress_projection_producer;
CREATE ROLE regress_projection_worker;
SELECT udb.grant_role('regress_projection_producer', 'producer'), udb.grant_role('regress_projection_worker', 'worker');
SET ROLE regress_projection_producer;
SELECT udb.enqueue_projection_task('r', 'regress', source_table => 't', target_backend => 'b') IS NOT NULL AS made;
SELECT udb.claim_projection_tasks();
SELECT outcome, detail FROM udb.wait_for_fence('{"projection_task_ids": ["r"]}', '0');
SELECT udb._fail_projection_task(NULL, NULL, 1, 'FAILED', NULL, true, NULL);
SET ROLE regress_projection_worker;
SELECT udb.enqueue_projection_task('r2', 'regress', source_table => 't', target_backend => 'b');
SELECT c.task_id, c.claim_token FROM udb.claim_projection_tasks(project_id => 'regress') c \gset
SELECT udb.heartbeat_projection_task(:'task_id', :claim_token), udb.fail_projection_task(:'task_id', 0, 'FAILED', 'e', :claim_token),
	udb.complete_projection_task(:'task_id', :claim_token);
SELECT status FROM udb.get_projection_task(:'task_id');
SELECT * FROM udb.projection_tasks;
SELECT udb.requeue_dead_letter_tasks();
SELECT udb._reset_stale_projection_tasks('0', 1);
RESET ROLE;
DELETE FROM udb.projection_tasks WHERE project_id = 'regress';
DROP OWNED BY regress_projection_producer, regress_projection_worker;
DROP ROLE regress_projection_producer, regress_projection_worker;
DROP FUNCTION put;
