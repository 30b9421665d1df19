-- The contract of jobs, as every store has to keep it.
\set store ''
\getenv store UDB_STORE
BEGIN;
SELECT plan(92);
SELECT set_config('test.store', :'store', true) \g /dev/null
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql AS $$ SELECT nullif(current_setting('test.store'), '') $$;

-- claims as one text: ids, in order, as letters given by name
CREATE TEMP TABLE sent (name text PRIMARY KEY, id bigint);
CREATE FUNCTION pg_temp.send(name text, queue text, payload jsonb DEFAULT '{}', delay interval DEFAULT NULL,
	run_at timestamptz DEFAULT NULL, expires interval DEFAULT NULL, priority integer DEFAULT 0,
	max_attempts integer DEFAULT 20, unique_key text DEFAULT NULL, ordering_key text DEFAULT NULL) RETURNS bigint
	LANGUAGE sql AS $$
	INSERT INTO sent VALUES ($1, udb.send_job($2, $3, $4, $5, $6, $7, $8, $9, $10, store => pg_temp.store()))
	RETURNING id
	$$;
CREATE FUNCTION pg_temp.id(name text) RETURNS bigint LANGUAGE sql AS $$ SELECT id FROM sent s WHERE s.name = $1 $$;
CREATE FUNCTION pg_temp.job(name text) RETURNS udb.job LANGUAGE sql AS $$
	SELECT udb.get_job(pg_temp.id($1), store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.claim(queue text, batch integer DEFAULT 1, visibility interval DEFAULT '1 hour', worker text DEFAULT 'w')
	RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(s.name, ' ' ORDER BY c.o), '')
	FROM udb.claim_jobs($1, $4, $2, $3, store => pg_temp.store()) WITH ORDINALITY c(job_id, q, p, s, pr, a, m, u, k, t, w, v, r, e, l, ca, d, o)
	JOIN sent s ON s.id = c.job_id $$;
CREATE FUNCTION pg_temp.ack(name text) RETURNS boolean LANGUAGE sql AS $$
	SELECT udb.ack_job(pg_temp.id($1), (pg_temp.job($1)).claim_token, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.pass(visibility_ms integer) RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep($1 / 1000.0) $$;

-- send, claim, ack
SELECT ok(pg_temp.send('a', 'q', '{"n": 1}') > 0, 'a job is sent');
SELECT is((pg_temp.job('a')).state, 'ready', 'and ready');
SELECT is((pg_temp.job('a')).payload, '{"n": 1}', 'with its payload');
SELECT ok(pg_temp.send('b', 'q') > pg_temp.id('a'), 'ids rise');
SELECT is((pg_temp.job('b')).payload, '{}', 'the payload can be left out');
SELECT is((pg_temp.job('b')).max_attempts, 20, 'and so can max_attempts');
SELECT is(pg_temp.claim('no such', 10), '', 'an unknown queue has no jobs');
SELECT is(pg_temp.claim('q', 0), '', 'a batch of 0 takes none');
SELECT is(pg_temp.claim('q', -1), '', 'nor does a negative one');
SELECT is(pg_temp.claim('q'), 'a', 'the first sent is taken first, one by default');
SELECT is((pg_temp.job('a')).state, 'claimed', 'it is claimed');
SELECT is((pg_temp.job('a')).worker_id, 'w', 'by the worker');
SELECT is((pg_temp.job('a')).attempts, 1, 'in its first attempt');
SELECT ok((pg_temp.job('a')).visible_until > clock_timestamp() + interval '59 min', 'for the time asked for');
SELECT is(pg_temp.claim('q', 10), 'b', 'another claim gets the rest');
SELECT is(pg_temp.claim('q', 10), '', 'and the next nothing');
SELECT ok((pg_temp.job('b')).claim_token > (pg_temp.job('a')).claim_token, 'claim tokens grow');
SELECT ok(NOT udb.ack_job(pg_temp.id('a'), (pg_temp.job('b')).claim_token, pg_temp.store()), 'another token does not ack');
SELECT ok(NOT udb.ack_job(pg_temp.id('a'), 0, pg_temp.store()), 'nor does 0');
SELECT is((pg_temp.job('a')).state, 'claimed', 'and changes nothing');
SELECT ok(pg_temp.ack('a'), 'the right one does');
SELECT is((pg_temp.job('a')), NULL, 'and then the job is gone');
SELECT ok(NOT udb.ack_job(pg_temp.id('a'), (pg_temp.job('b')).claim_token, pg_temp.store()), 'once only');
SELECT ok(NOT udb.ack_job(-1, 1, pg_temp.store()), 'nothing is acked that is not there');
SELECT ok(pg_temp.ack('b'), 'the other one as well');

-- batches
INSERT INTO sent SELECT 'm' || i, id FROM udb.send_jobs('many', '{1, 2, 3}', store => pg_temp.store()) WITH ORDINALITY s(id, i);
SELECT is((SELECT array_agg((pg_temp.job('m' || i)).payload::text ORDER BY i) FROM generate_series(1, 3) i), '{1,2,3}', 'many are sent in order');
SELECT is(pg_temp.claim('many', 10), 'm1 m2 m3', 'and claimed so');
SELECT is((SELECT count(DISTINCT (pg_temp.job('m' || i)).claim_token)::int FROM generate_series(1, 3) i), 1, 'with one token');
SELECT is(udb.ack_jobs(ARRAY[pg_temp.id('m1'), pg_temp.id('m3'), pg_temp.id('m3'), -1], (pg_temp.job('m1')).claim_token, pg_temp.store()),
	2::bigint, 'those that were claimed so are acked, once');
SELECT is((pg_temp.job('m2')).state, 'claimed', 'and no others');
SELECT is(udb.ack_jobs('{}', 1, pg_temp.store()), 0::bigint, 'none of none');
SELECT is((SELECT count(*)::int FROM udb.send_jobs('many', '{}', store => pg_temp.store())), 0, 'and none of none is sent');

-- priority
SELECT pg_temp.send('p0', 'prio') IS NOT NULL, pg_temp.send('p9', 'prio', priority => 9) IS NOT NULL,
	pg_temp.send('p0b', 'prio') IS NOT NULL, pg_temp.send('p-1', 'prio', priority => -1) IS NOT NULL,
	pg_temp.send('p9b', 'prio', priority => 9) IS NOT NULL \g /dev/null
SELECT is(pg_temp.claim('prio', 10), 'p9 p9b p0 p0b p-1', 'higher priorities come first');

-- delay and run_at
SELECT pg_temp.send('later', 'late', delay => '1 hour') IS NOT NULL,
	pg_temp.send('at', 'late', run_at => clock_timestamp() + interval '1 day') IS NOT NULL,
	pg_temp.send('past', 'late', run_at => '2001-01-01') IS NOT NULL,
	pg_temp.send('negative', 'late', delay => '-1 hour', run_at => clock_timestamp() + interval '1 day') IS NOT NULL \g /dev/null
SELECT is((pg_temp.job('later')).state, 'delayed', 'a job can be delayed');
SELECT is((pg_temp.job('at')).state, 'delayed', 'in two ways');
SELECT is((pg_temp.job('past')).state, 'ready', 'what is past is at once');
SELECT is(pg_temp.claim('late', 10), 'past negative', 'a negative delay is none');
SELECT pg_temp.send('soon', 'late', delay => '20 ms', run_at => clock_timestamp() + interval '1 day') IS NOT NULL \g /dev/null
SELECT pg_temp.pass(30) \g /dev/null
SELECT is(pg_temp.claim('late', 10), 'soon', 'it runs when the delay is over, which wins over run_at');

-- expiry
SELECT pg_temp.send('gone', 'exp', expires => '10 ms') IS NOT NULL, pg_temp.send('stays', 'exp', expires => '1 hour') IS NOT NULL,
	pg_temp.send('after', 'exp', delay => '1 hour', expires => '10 ms') IS NOT NULL \g /dev/null
SELECT pg_temp.pass(20) \g /dev/null
SELECT is(pg_temp.claim('exp', 10), 'stays', 'a job that has expired is not handed out');
SELECT is((pg_temp.job('gone')).state, 'dead', 'it is dead');
SELECT is((pg_temp.job('gone')).last_error, 'expired', 'for that reason');
SELECT is((pg_temp.job('after')).state, 'delayed', 'it expires from when it may run');

-- unique_key
SELECT pg_temp.send('u1', 'uniq', unique_key => 'k') IS NOT NULL \g /dev/null
SELECT is(udb.send_job('uniq', unique_key => 'k', store => pg_temp.store()), pg_temp.id('u1'), 'the same key gives the same job');
SELECT isnt(udb.send_job('uniq2', unique_key => 'k', store => pg_temp.store()), pg_temp.id('u1'), 'but not in another queue');
SELECT is(pg_temp.claim('uniq', 10), 'u1', 'there is one');
SELECT is(udb.send_job('uniq', unique_key => 'k', store => pg_temp.store()), pg_temp.id('u1'), 'also while it is claimed');
SELECT ok(pg_temp.ack('u1'), 'once it is done');
SELECT ok(pg_temp.send('u2', 'uniq', unique_key => 'k') > pg_temp.id('u1'), 'there can be another');
SELECT results_eq($$SELECT id - min(id) OVER () > 0 FROM udb.send_jobs('uniq3', '{1, 2, 3}', unique_keys => '{a, a, b}', store => pg_temp.store()) id$$,
	'VALUES (false), (false), (true)', 'within an array too');

-- ordering_key
SELECT pg_temp.send('o' || i || k, 'ord', ordering_key => k) IS NOT NULL FROM generate_series(1, 3) i, unnest('{x,y}'::text[]) k
	ORDER BY i, k \g /dev/null
SELECT is(pg_temp.claim('ord', 10), 'o1x o1y', 'of each key, the first one');
SELECT is((pg_temp.job('o2x')).state, 'blocked', 'the next is blocked');
SELECT is(pg_temp.claim('ord', 10), '', 'until it is done');
SELECT ok(pg_temp.ack('o1x'), 'then');
SELECT is(pg_temp.claim('ord', 10), 'o2x', 'its next one comes');
SELECT ok(udb.retry_job(pg_temp.id('o2x'), (pg_temp.job('o2x')).claim_token, '1 hour', store => pg_temp.store()), 'a parked one');
SELECT is(pg_temp.claim('ord', 10), '', 'holds its key');
SELECT ok(pg_temp.ack('o1y'), 'but no other');
SELECT is(pg_temp.claim('ord', 10), 'o2y', 'key');
SELECT ok(udb.fail_job(pg_temp.id('o2y'), (pg_temp.job('o2y')).claim_token, 'bad', pg_temp.store()), 'one that dies');
SELECT is(pg_temp.claim('ord', 10), 'o3y', 'lets the next one run');

-- retry
SELECT pg_temp.send('r', 'retry', max_attempts => 3) IS NOT NULL \g /dev/null
SELECT is(pg_temp.claim('retry'), 'r', 'an attempt');
SELECT ok(NOT udb.retry_job(pg_temp.id('r'), 0, '0', 'no', pg_temp.store()), 'is not ended with another token');
SELECT ok(udb.retry_job(pg_temp.id('r'), (pg_temp.job('r')).claim_token, '0', 'first', pg_temp.store()), 'can fail');
SELECT is((pg_temp.job('r')).last_error, 'first', 'with an error');
SELECT is(pg_temp.claim('retry'), 'r', 'and is repeated');
SELECT is((pg_temp.job('r')).attempts, 2, 'as the second');
SELECT ok(udb.retry_job(pg_temp.id('r'), (pg_temp.job('r')).claim_token, store => pg_temp.store()), 'without a delay');
SELECT ok((pg_temp.job('r')).run_at - clock_timestamp() BETWEEN '1.4 s' AND '2 s', 'it is delayed by 2 s, less up to a quarter, after the second');
SELECT pg_temp.send('r2', 'retry2', max_attempts => 1) IS NOT NULL \g /dev/null
SELECT is(pg_temp.claim('retry2'), 'r2', 'after the last attempt');
SELECT ok(udb.retry_job(pg_temp.id('r2'), (pg_temp.job('r2')).claim_token, '0', 'last', pg_temp.store()), 'a retry');
SELECT is((pg_temp.job('r2')).state, 'dead', 'is the end');
SELECT is((pg_temp.job('r2')).last_error, 'last', 'with its error');

-- claims that run out
SELECT pg_temp.send('e', 'run out', max_attempts => 2) IS NOT NULL \g /dev/null
SELECT is(pg_temp.claim('run out', 1, '20 ms', 'slow'), 'e', 'a claim');
CREATE TEMP TABLE stale AS SELECT (pg_temp.job('e')).claim_token AS token;
SELECT pg_temp.pass(30) \g /dev/null
SELECT ok(NOT udb.ack_job(pg_temp.id('e'), (SELECT token FROM stale), pg_temp.store()), 'that has run out is over');
SELECT ok(NOT udb.extend_job(pg_temp.id('e'), (SELECT token FROM stale), '1 hour', pg_temp.store()), 'and cannot be extended');
SELECT is(pg_temp.claim('run out', 1, '1 hour', 'next'), 'e', 'the next claim takes the job');
SELECT is((pg_temp.job('e')).last_error, 'claim expired', 'and sees why');
SELECT ok(udb.extend_job(pg_temp.id('e'), (pg_temp.job('e')).claim_token, '2 hours', pg_temp.store()), 'a claim can be extended');
SELECT ok((pg_temp.job('e')).visible_until > clock_timestamp() + interval '119 min', 'and then holds longer');
SELECT ok(udb.extend_job(pg_temp.id('e'), (pg_temp.job('e')).claim_token, '1 ms', pg_temp.store()), 'or not as long');
SELECT pg_temp.pass(10) \g /dev/null
SELECT is(pg_temp.claim('run out'), '', 'after the last attempt nobody gets it');
SELECT is((pg_temp.job('e')).state, 'dead', 'it is dead');
SELECT is((pg_temp.job('e')).last_error, 'claim expired', 'for that reason');

-- fail and redrive
SELECT ok(udb.redrive_jobs('run out', store => pg_temp.store()) = 1, 'it can be sent again');
SELECT is((pg_temp.job('e')).attempts, 0, 'with all its attempts');
SELECT is(pg_temp.claim('run out'), 'e', 'under its old id');
SELECT ok(NOT udb.fail_job(pg_temp.id('e'), 0, 'no', pg_temp.store()), 'another token does not fail it');
SELECT ok(udb.fail_job(pg_temp.id('e'), (pg_temp.job('e')).claim_token, 'hopeless', pg_temp.store()), 'the right one does');
SELECT is((pg_temp.job('e')).last_error, 'hopeless', 'with its error');
SELECT is(udb.redrive_jobs('run out', '{-1}', store => pg_temp.store()), 0::bigint, 'others are not redriven');
SELECT is(udb.redrive_jobs('run out', row_limit => 0, store => pg_temp.store()), 0::bigint, 'none of none');
SELECT is(udb.redrive_jobs('run out', ARRAY[pg_temp.id('e')], 5, store => pg_temp.store()), 1::bigint, 'but this one is');

SELECT * FROM finish();
ROLLBACK;
