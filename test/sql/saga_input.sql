-- Sagas: bad arguments, what errors say, limits, rights, and what the tables keep to.
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate || ' ' || sqlerrm;
END
$$;

-- nulls, long texts, negative numbers: each is told by name, and nothing is written
SELECT column_name, pg_temp.try(format('SELECT udb.record_saga(%I => NULL)', column_name)) AS "null"
FROM unnest('{saga_id,tx_id,tenant_id,correlation_id,status,backend_instance,operation,current_step,retry_count,recovery_attempts,compensation_status,steps,compensations,last_error,store}'::text[])
	WITH ORDINALITY u (column_name, n) ORDER BY n;
SELECT column_name, pg_temp.try(format('SELECT udb.record_saga(%I => repeat(''x'', 256))', column_name)) AS long,
	pg_temp.try(format('SELECT udb.record_saga(%I => repeat(''x'', 255))', column_name)) AS longest
FROM unnest('{tx_id,tenant_id,correlation_id,backend_instance,operation}'::text[]) column_name;
SELECT column_name, pg_temp.try(format('SELECT udb.record_saga(%I => -1)', column_name)) AS negative,
	pg_temp.try(format('SELECT udb.record_saga(%I => 2147483647)', column_name)) AS largest
FROM unnest('{current_step,retry_count,recovery_attempts}'::text[]) column_name;
SELECT count(*) FROM udb.sagas;
SELECT pg_temp.try($$SELECT udb.get_saga(NULL)$$), pg_temp.try($$SELECT udb.update_saga_status(NULL::uuid[], 'failed')$$),
	pg_temp.try($$SELECT udb.mark_saga_manual_review(NULL)$$), pg_temp.try($$SELECT udb.request_saga_recompensation(NULL)$$);
SELECT pg_temp.try($$SELECT udb.increment_recovery_attempts(NULL)$$),
	pg_temp.try($$SELECT udb.increment_recovery_attempts('018f0000-0000-4000-8000-000000000001', NULL)$$);
SELECT pg_temp.try($$SELECT udb.claim_recoverable_sagas('178000000 years')$$), pg_temp.try($$SELECT udb.mark_stale_sagas_indeterminate('178000000 years')$$);
SELECT pg_temp.try($$SELECT udb.record_saga(tx_id => U&'\0000')$$);
-- an attempt more than can be counted
SELECT udb.record_saga(recovery_attempts => 2147483647) AS many \gset
SELECT udb.increment_recovery_attempts(:'many', 'one more');
DELETE FROM udb.sagas;

-- an id without a type is taken for what it is
SELECT udb.record_saga('018f0000-0000-4000-8000-000000000001', 'tx') AS id \gset
SELECT udb.update_saga_status(:'id', 'in_doubt');
SELECT udb.update_saga_status('018f0000-0000-4000-8000-000000000001', 'in_progress', 'none', NULL);
SELECT udb.update_saga_status('no uuid', 'in_progress');
SELECT udb.update_saga_status(NULL, 'in_progress');
SELECT status FROM udb.get_saga(:'id');

-- what errors say
\set VERBOSITY default
SELECT udb.record_saga(:'id', 'other');
SELECT udb.record_saga(status => 'running');
SELECT udb.record_saga(compensation_status => 'running');
SELECT udb.update_saga_status('018f0000-0000-4000-8000-000000000002', 'failed');
SELECT udb.request_saga_recompensation(:'id');
SELECT udb.mark_saga_manual_review(:'id');
SELECT udb.compensate_saga(:'id');
SELECT udb.saga_step(:'id', 'late');
SELECT udb.update_saga_status(:'id', 'committed');
SELECT udb.compensate_saga(:'id');
SELECT udb.compensate_saga(udb.record_saga('018f0000-0000-4000-8000-000000000004', compensations => '[{"step": "a", "queue": "q"}, {"step": "b"}]'));
SELECT udb.saga_step(udb.record_saga('018f0000-0000-4000-8000-000000000004', steps => '{}'), 'a');
\set VERBOSITY terse

-- the words that are checked are those of the columns
SELECT conname, array_agg(word ORDER BY word) FROM (SELECT conname, (regexp_matches(pg_get_constraintdef(oid), '''(\w+)''', 'g'))[1] AS word
	FROM pg_constraint WHERE conrelid = 'udb.sagas'::regclass AND conname ~ 'status_check') c GROUP BY conname ORDER BY conname;
BEGIN;
SELECT string_agg(word, ' ') FROM (SELECT (regexp_matches(pg_get_constraintdef(oid), '''(\w+)''', 'g'))[1] AS word
	FROM pg_constraint WHERE conname = 'sagas_status_check') w WHERE NOT udb._check_saga_words(word, NULL);
SELECT string_agg(word, ' ') FROM (SELECT (regexp_matches(pg_get_constraintdef(oid), '''(\w+)''', 'g'))[1] AS word
	FROM pg_constraint WHERE conname = 'sagas_compensation_status_check') w WHERE NOT udb._check_saga_words(NULL, word);
ROLLBACK;

-- a saga is its contract's columns, whatever else the table has
SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = (SELECT typrelid FROM pg_type WHERE oid = 'udb.saga'::regtype) AND attnum > 0;
SELECT string_agg(c.attname, ' ') FROM pg_attribute c LEFT JOIN pg_attribute t ON t.attrelid = 'udb.sagas'::regclass AND t.attnum = c.attnum
WHERE c.attrelid = (SELECT typrelid FROM pg_type WHERE oid = 'udb.saga'::regtype) AND c.attnum > 0
	AND (c.attname, c.atttypid) IS DISTINCT FROM (t.attname, t.atttypid);

-- what is claimed is not stale, even if it is not touched for longer
BEGIN;
UPDATE udb.sagas SET status = 'in_progress', updated_at = '2020-01-01' WHERE tx_id = 'tx';
SELECT tx_id FROM udb.claim_recoverable_sagas('1 h');
UPDATE udb.sagas SET updated_at = '2020-01-01' WHERE tx_id = 'tx';
SELECT udb.mark_stale_sagas_indeterminate('1 h');
UPDATE udb.sagas SET claimed_until = '2020-01-01' WHERE tx_id = 'tx';
SELECT udb.mark_stale_sagas_indeterminate('1 h');
ROLLBACK;

-- looking for work costs no transaction id and writes nothing
BEGIN;
DELETE FROM udb.sagas;
COMMIT;
BEGIN;
SELECT udb.sweep_sagas(), udb.mark_stale_sagas_indeterminate('1 us');
SELECT count(*) FROM udb.claim_recoverable_sagas('1 us');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
-- neither does looking after a saga whose job is not done
SELECT udb.record_saga('018f0000-0000-4000-8000-000000000003', compensations => '[{"step": "a", "queue": "t_saga_input"}]') AS id \gset
SELECT udb.saga_step(:'id', 'a');
SELECT udb.compensate_saga(:'id');
BEGIN;
SELECT udb.sweep_sagas();
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
DELETE FROM udb.sagas;
DELETE FROM udb.jobs WHERE queue = 't_saga_input';

-- no writing where that is not possible
BEGIN READ ONLY;
SELECT udb.record_saga();
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.claim_recoverable_sagas();
ROLLBACK;

-- indexes are of use: recoverable sagas among many that are over, and stale ones; nothing scans the table
INSERT INTO udb.sagas (saga_id, tx_id, tenant_id, correlation_id, status, backend_instance, operation, current_step, retry_count,
	recovery_attempts, compensation_status, steps, compensations, last_error, created_at, updated_at)
SELECT gen_random_uuid(), n, 'many', n, 'committed', '', '', 0, 0, 0, 'none', '[]', '[]', '', now(), now() FROM generate_series(1, 5000) n;
ANALYZE udb.sagas;
BEGIN;
SELECT seq_scan AS before FROM pg_stat_xact_user_tables WHERE relid = 'udb.sagas'::regclass \gset
SELECT count(*) FROM udb.claim_recoverable_sagas('1 h');
SELECT udb.sweep_sagas();
SELECT count(*) FROM udb.list_sagas(tx_id => '4711') a, udb.list_sagas(correlation_id => '4711') b, udb.list_sagas(row_limit => 1) c,
	udb.list_sagas(tenant_id => 'many', row_limit => 1) d;
SELECT seq_scan - :before AS scans FROM pg_stat_xact_user_tables WHERE relid = 'udb.sagas'::regclass;
ROLLBACK;
DELETE FROM udb.sagas;
VACUUM ANALYZE udb.sagas;

-- Rights.
CREATE ROLE regress_saga_none;
CREATE ROLE regress_saga_producer;
CREATE ROLE regress_saga_worker;
CREATE ROLE regress_saga_monitor;
CREATE ROLE regress_saga_admin;
SELECT udb.grant_role(('regress_saga_' || kind)::regrole, kind) FROM unnest('{producer,worker,monitor,admin}'::text[]) kind;
CREATE FUNCTION pg_temp.rights() RETURNS TABLE (call text, result text) LANGUAGE sql AS $$
	SELECT call, left(pg_temp.try('SELECT ' || call), 5) FROM unnest(ARRAY[
		$q$udb.record_saga('018f0000-0000-4000-8000-000000000009', 'rights')$q$,
		$q$udb.saga_step('018f0000-0000-4000-8000-000000000009', 'a')$q$,
		$q$udb.get_saga('018f0000-0000-4000-8000-000000000009')$q$,
		$q$udb.list_sagas()$q$,
		$q$udb.saga_summary()$q$,
		$q$udb.update_saga_status('018f0000-0000-4000-8000-000000000009'::uuid, 'in_progress')$q$,
		$q$udb.update_saga_status('{018f0000-0000-4000-8000-000000000009}'::uuid[], 'in_progress')$q$,
		$q$udb.update_saga_status('018f0000-0000-4000-8000-000000000009', 'in_progress')$q$,
		$q$udb.claim_recoverable_sagas('1 h')$q$,
		$q$udb.increment_recovery_attempts('018f0000-0000-4000-8000-000000000009')$q$,
		$q$udb.mark_stale_sagas_indeterminate('1 h')$q$,
		$q$udb.compensate_saga('018f0000-0000-4000-8000-000000000009')$q$,
		$q$udb.mark_saga_manual_review('018f0000-0000-4000-8000-000000000009')$q$,
		$q$udb.request_saga_recompensation('018f0000-0000-4000-8000-000000000009')$q$,
		$q$udb.sweep_sagas()$q$,
		$q$* FROM udb.sagas$q$,
		$q$1; UPDATE udb.sagas SET status = 'failed'$q$,
		$q$udb._saga_advance('018f0000-0000-4000-8000-000000000009')$q$]) WITH ORDINALITY u (call, n) ORDER BY n
$$;
GRANT EXECUTE ON FUNCTION pg_temp.try(text), pg_temp.rights() TO PUBLIC;
SELECT udb.record_saga('018f0000-0000-4000-8000-000000000009', 'rights') AS id;
BEGIN;
SET LOCAL ROLE regress_saga_none;
SELECT call FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_saga_producer;
SELECT call FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_saga_worker;
SELECT call FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_saga_monitor;
SELECT call FROM pg_temp.rights() WHERE result <> '42501';
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_saga_admin;
SELECT call, result FROM pg_temp.rights() WHERE result <> 'ok';
ROLLBACK;
DELETE FROM udb.sagas;
DROP OWNED BY regress_saga_producer, regress_saga_worker, regress_saga_monitor, regress_saga_admin;
DROP ROLE regress_saga_none, regress_saga_producer, regress_saga_worker, regress_saga_monitor, regress_saga_admin;
