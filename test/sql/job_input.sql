-- Jobs: what is refused, and what is taken for what.
\set VERBOSITY verbose
\set SHOW_CONTEXT never
\set ON_ERROR_STOP off
CREATE FUNCTION pg_temp.code(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
BEGIN
	EXECUTE sql;
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
	RETURN state || ' ' || message;
END
$$;
\pset format unaligned
\pset tuples_only on
\pset fieldsep ' -> '
SELECT a, pg_temp.code('SELECT udb.send_job(' || a || ')') FROM unnest(ARRAY[
	'NULL', $$''$$, 'repeat($$x$$, 255)', 'repeat($$x$$, 256)', $$'q', NULL$$, $$'q', store => 'x'$$, $$'q', priority => NULL$$,
	$$'q', max_attempts => NULL$$, $$'q', max_attempts => 0$$, $$'q', max_attempts => -1$$, $$'q', expires => '0'$$,
	$$'q', expires => '-1 s'$$, $$'q', expires => '5000 years'$$, $$'q', delay => '5000 years'$$, $$'q', delay => '-5000 years'$$,
	$$'q', run_at => 'infinity'$$, $$'q', run_at => '-infinity'$$, $$'q', unique_key => ''$$, $$'q', ordering_key => ''$$,
	$$'q', unique_key => repeat('x', 1025)$$, $$'q', ordering_key => repeat('x', 1025)$$,
	$$'q', unique_key => repeat('x', 1024), ordering_key => repeat('x', 1024)$$, $$'q', priority => -2147483648$$,
	$$'q', priority => 2147483647$$, $$'q', to_jsonb(repeat('x', 100000))$$]) WITH ORDINALITY u(a, i) ORDER BY i;
SELECT a, pg_temp.code('SELECT udb.send_jobs(' || a || ')') FROM unnest(ARRAY[
	$$'q', NULL$$, $$'q', '{{1,2},{3,4}}'$$, $$'q', '{1,NULL}'$$, $$'q', '{1,2}', unique_keys => '{a}'$$,
	$$'q', '{1,2}', ordering_keys => '{a,b,c}'$$, $$'q', '{1,2}', unique_keys => '{NULL,}'$$, $$'q', '{1,2}', unique_keys => '{NULL,""}'$$,
	$$'q', '{}', store => 'x'$$, $$NULL, '{}'$$, $$'q', '{1,2}', ordering_keys => '{a,NULL}'$$]) WITH ORDINALITY u(a, i) ORDER BY i;
SELECT a, pg_temp.code('SELECT udb.claim_jobs(' || a || ')') FROM unnest(ARRAY[
	$$NULL, 'w'$$, $$'', 'w'$$, $$'q', NULL$$, $$'q', ''$$, $$'q', repeat('x', 256)$$, $$'q', 'w', NULL$$, $$'q', 'w', 0$$,
	$$'q', 'w', -5$$, $$'q', 'w', 1, NULL$$, $$'q', 'w', 1, '0'$$, $$'q', 'w', 1, '-1 s'$$, $$'q', 'w', 1, '5000 years'$$,
	$$'q', 'w', store => 'x'$$]) WITH ORDINALITY u(a, i) ORDER BY i;
SELECT f, pg_temp.code('SELECT udb.' || f) FROM unnest(ARRAY[
	'ack_job(NULL, 1)', 'ack_job(1, NULL)', $$ack_job(1, 1, 'x')$$, 'ack_jobs(NULL, 1)', 'ack_jobs(ARRAY[1], NULL)',
	$$ack_jobs('{}', 1, 'x')$$, $$ack_jobs('{NULL}', 1)$$, $$ack_jobs('{{1,2},{3,4}}', 1)$$,
	'retry_job(NULL, 1)', 'retry_job(1, NULL)', $$retry_job(1, 1, '5000 years')$$, $$retry_job(1, 1, '-1 s')$$, $$retry_job(1, 1, store => 'x')$$,
	'fail_job(NULL, 1)', 'fail_job(1, NULL)', $$fail_job(1, 1, store => 'x')$$,
	'extend_job(NULL, 1)', 'extend_job(1, NULL)', 'extend_job(1, 1, NULL)', $$extend_job(1, 1, '0')$$, $$extend_job(1, 1, '-1 s')$$, $$extend_job(1, 1, store => 'x')$$,
	'get_job(NULL)', $$get_job(1, 'x')$$, 'redrive_jobs(NULL)', $$redrive_jobs('')$$, $$redrive_jobs('q', store => 'x')$$,
	$$redrive_jobs('q', '{NULL}')$$, $$redrive_jobs('q', row_limit => -1)$$,
	$$wait_for_jobs(NULL, '1 s')$$, $$wait_for_jobs('q', NULL)$$, $$wait_for_jobs('q', '-1 s')$$, $$wait_for_jobs('', '1 s')$$,
	$$wait_for_jobs('q', '1 s', 'x')$$, $$wait_for_jobs('none', '0')$$]) WITH ORDINALITY u(f, i) ORDER BY i;
\set VERBOSITY sqlstate
CALL udb.await_jobs('none', '0');
CALL udb.await_jobs('none', '0', store => 'x');
BEGIN;
CALL udb.await_jobs('none', '0');
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.claim_jobs('q', 'w');
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.wait_for_jobs('none', '0');
SELECT udb.ack_job(1, 1);
ROLLBACK;

-- what was not refused
SELECT count(*), count(ordering_key), max(octet_length(payload::text)) FROM udb.jobs;
-- big payloads and errors survive
SELECT octet_length(payload::text), attempts FROM udb.claim_jobs('q', 'w', 1000) WHERE octet_length(payload::text) > 1000;
SELECT udb.retry_job(job_id, claim_token, '0', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 10000) i))
FROM udb.jobs WHERE octet_length(payload::text) > 1000;
SELECT octet_length(payload::text), octet_length(last_error), attempts FROM udb.claim_jobs('q', 'w');

-- a page that has no room for the new version: then there are index entries, and all is found as before
SELECT count(*) FROM udb.send_jobs('full', ARRAY(SELECT to_jsonb(repeat('x', 700)) FROM generate_series(1, 300)));
SELECT count(*), count(DISTINCT job_id) FROM udb.claim_jobs('full', repeat('w', 255), 200, '1 ms');
SELECT FROM pg_sleep(0.01);
SELECT count(*), count(DISTINCT job_id), min(attempts), max(attempts) FROM udb.claim_jobs('full', repeat('v', 255), 1000, '1 h');
SELECT count(*) FROM udb.claim_jobs('full', 'w', 1000);
SET enable_seqscan = off;
SELECT udb.ack_jobs(ARRAY(SELECT job_id FROM udb.jobs WHERE queue = 'full'), max(claim_token)) FROM udb.jobs WHERE queue = 'full';
SELECT count(*) FROM udb.jobs WHERE queue = 'full';
RESET enable_seqscan;

-- many priorities, more than are remembered
SELECT count(udb.send_job('prio', to_jsonb(i), priority => i % 30)) FROM generate_series(1, 300) i;
SELECT count(*), count(DISTINCT (payload)) FROM generate_series(1, 40) i, LATERAL udb.claim_jobs('prio', 'w' || i, 7, '1 h') c;
SELECT count(*) FROM udb.jobs WHERE queue = 'prio' AND state = 'ready';

-- what may be seen of it
SELECT queue, ready, delayed, claimed, blocked, dead FROM udb.queue_status ORDER BY 1 LIMIT 3;
DELETE FROM udb.jobs;
