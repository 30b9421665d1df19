-- Steps of sagas and their compensation, in one transaction, so that the worker does not see it: sweep_sagas() is
-- called by hand.
BEGIN;
SELECT plan(137);

-- A saga of three steps, two of which can be undone.
CREATE FUNCTION pg_temp.order_saga(compensations jsonb DEFAULT '[{"step": "reserve", "queue": "stock", "payload": {"shelf": 4}},
		{"step": "charge", "queue": "bank", "max_attempts": 1}, {"step": "ship", "queue": "carrier"}]') RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	id uuid := udb.record_saga(operation => 'order', compensations => $1);
BEGIN
	PERFORM udb.saga_step(id, 'reserve', '{"reservation": 17}'), udb.saga_step(id, 'mail'), udb.saga_step(id, 'charge', '"c-9"');
	RETURN id;
END
$$;
CREATE FUNCTION pg_temp.status(id uuid) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT status || ' ' || compensation_status FROM udb.get_saga($1)
$$;
-- What a worker of a queue gets: the job's payload, or null.
CREATE TEMP TABLE claimed (job_id bigint, claim_token bigint, payload jsonb, unique_key text, ordering_key text, attempts integer);
CREATE FUNCTION pg_temp.job(queue text) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
	DELETE FROM claimed;
	INSERT INTO claimed SELECT job_id, claim_token, payload, unique_key, ordering_key, attempts FROM udb.claim_jobs($1, 'w', 10);
	SELECT payload FROM claimed;
$$;
CREATE FUNCTION pg_temp.ack() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT count(*) FILTER (WHERE udb.ack_job(job_id, claim_token)) FROM claimed $$;
CREATE FUNCTION pg_temp.fail(error text) RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT count(*) FILTER (WHERE udb.fail_job(job_id, claim_token, $1)) FROM claimed $$;
-- Sweep until there is nothing more to do, or until a saga has this status; returns how much there was to do.
CREATE FUNCTION pg_temp.sweep() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	total bigint := 0;
BEGIN
	LOOP
		n := udb.sweep_sagas();
		EXIT WHEN n = 0;
		total := total + n;
	END LOOP;
	RETURN total;
END
$$;
CREATE FUNCTION pg_temp.sweep_until(id uuid, status text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		PERFORM udb.sweep_sagas();
		IF (SELECT g.status = $2 FROM udb.get_saga(id) g) THEN
			RETURN true;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN false;
END
$$;
-- Until a saga was last touched longer than 1 ms ago.
CREATE FUNCTION pg_temp.older_than_a_moment(id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT updated_at >= clock_timestamp() - interval '1 ms' FROM udb.get_saga(id)) LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN true;
END
$$;
SELECT pg_temp.sweep() >= 0 AS quiet \gset

-- ---- steps ----

SELECT udb.record_saga(steps => '[{"step": "plan", "who": "me"}, "text", 1, {"step": "debit", "to": "x"}]') AS id \gset
SELECT is(pg_temp.status(:'id'), 'pending none', 'a saga waits for its first step');
SELECT ok(udb.saga_step(:'id', 'debit', '{"n": 1}'), 'a step is recorded');
SELECT is(pg_temp.status(:'id'), 'in_progress none', 'and the saga is in progress');
SELECT is(steps #- '{3,done_at}', '[{"step": "plan", "who": "me"}, "text", 1, {"step": "debit", "to": "x", "done": 1, "result": {"n": 1}}]',
	'a step that was planned is completed where it stands') FROM udb.get_saga(:'id');
SELECT ok((steps #>> '{3,done_at}')::timestamptz <= clock_timestamp(), 'with the time') FROM udb.get_saga(:'id');
SELECT ok(udb.saga_step(:'id', 'other'), 'another one');
SELECT is(steps -> 4 ->> 'step', 'other', 'is added') FROM udb.get_saga(:'id');
SELECT is(steps #> '{4,done}', '2', 'with its number') FROM udb.get_saga(:'id');
SELECT is(current_step, 2, 'which counts the steps') FROM udb.get_saga(:'id');
SELECT steps AS before, updated_at AS then FROM udb.get_saga(:'id') \gset
SELECT ok(NOT udb.saga_step(:'id', 'debit', '{"n": 2}'), 'the same step again is told');
SELECT is((steps, current_step, updated_at)::text, (:'before'::jsonb, 2, :'then'::timestamptz)::text, 'and changes nothing') FROM udb.get_saga(:'id');
SELECT ok(udb.saga_step(:'id', 'plan'), 'a plan can be carried out in any order');
SELECT ok(udb.saga_step(p.id, 'a') AND udb.saga_step(p.id, 'b') AND NOT udb.saga_step(p.id, 'a'), 'also one that says it is not done yet')
FROM (SELECT udb.record_saga(steps => '[{"step": "a", "done": false}, {"step": "b", "done": null}]') AS id) p;
SELECT is(steps #> '{0,done}', '3', 'and its number is that of this order') FROM udb.get_saga(:'id');
SELECT throws_ok($$ SELECT udb.saga_step('018f0000-0000-4000-8000-00000000dead', 'x') $$, 'UD055', NULL, 'a saga that is missing has no steps');
SELECT throws_ok(format($$ SELECT udb.saga_step(%L, %L) $$, :'id', s), c, NULL, format('a step cannot be %L', left(s, 5)))
FROM (VALUES (NULL, '22004'), ('', '42602'), (repeat('x', 256), '42622')) v (s, c);
SELECT throws_ok($$ SELECT udb.saga_step(NULL, 'x') $$, '22004', NULL, 'nor be of no saga');
SELECT throws_ok(format($$ SELECT udb.saga_step(%L, 'x') $$, udb.record_saga(steps => '{"a": 1}')), 'UD058', NULL, 'nor be added to what is no array');

-- in which states
SELECT is(udb.saga_step(udb.record_saga(status => s), 'x'), true, 'a step can be added while ' || s)
FROM unnest('{pending,in_progress,indeterminate,in_doubt,failed}'::text[]) s;
SELECT throws_ok(format($$ SELECT udb.saga_step(%L, 'x') $$, udb.record_saga(status => s)), 'UD057', NULL, 'but not while ' || s)
FROM unnest('{committed,compensated,failed_compensation,manual_review}'::text[]) s;
SELECT udb.record_saga(status => 'committed', steps => '[{"step": "x", "done": 1}]') AS over \gset
SELECT ok(NOT udb.saga_step(:'over', 'x'), 'a step that was recorded is so for ever');

-- ---- all goes well ----

SELECT pg_temp.order_saga() AS id \gset
SELECT lives_ok(format($$ SELECT udb.compensate_saga(%L, 'card refused') $$, :'id'), 'a saga is to be compensated');
SELECT is(pg_temp.status(:'id'), 'in_progress none', 'which is in progress from then on');
SELECT is(last_error, 'card refused', 'and why') FROM udb.get_saga(:'id');
SELECT throws_ok(format($$ SELECT udb.saga_step(%L, 'late') $$, :'id'), 'UD057', NULL, 'a step that comes late is refused');
SELECT is(pg_temp.job('stock'), NULL, 'the first step has to wait');
SELECT is(pg_temp.job('bank'), jsonb_build_object('saga', jsonb_build_object('saga_id', :'id', 'step', 'charge', 'result', 'c-9')),
	'the last step is undone at once, by a job that tells of what');
SELECT is(ordering_key, 'saga:' || :'id', 'which has an ordering key') FROM claimed;
SELECT lives_ok(format($$ SELECT udb.compensate_saga(%L) $$, :'id'), 'asking again');
SELECT is(pg_temp.sweep(), 0::bigint, 'and sweeping');
SELECT is((SELECT count(*) FROM udb.jobs WHERE payload #>> '{saga,saga_id}' = :'id'), 1::bigint, 'sends no other job');
SELECT is(pg_temp.ack(), 1::bigint, 'when the job is done');
SELECT is(pg_temp.sweep(), 1::bigint, 'the sweep sees it');
SELECT ok(steps #> '{2}' ? 'compensated_at' AND NOT steps #> '{0}' ? 'compensated_at', 'and notes it') FROM udb.get_saga(:'id');
SELECT is(pg_temp.job('stock'), jsonb_build_object('shelf', 4, 'saga', jsonb_build_object('saga_id', :'id', 'step', 'reserve',
	'result', '{"reservation": 17}'::jsonb)), 'next is the step before that has a compensation, with its payload');
SELECT is(pg_temp.sweep(), 0::bigint, 'for which the saga waits');
SELECT is(pg_temp.status(:'id'), 'in_progress none', 'in progress');
SELECT is(pg_temp.ack(), 1::bigint, 'when that is done');
SELECT is(pg_temp.sweep(), 1::bigint, 'the sweep sees it');
SELECT is(pg_temp.status(:'id'), 'compensated completed', 'and the saga is compensated');
SELECT ok(NOT steps #> '{1}' ? 'compensated_at', 'what has no compensation is not said to have one') FROM udb.get_saga(:'id');
SELECT is(pg_temp.job('carrier'), NULL, 'what was not done is not undone');
SELECT is(pg_temp.sweep(), 0::bigint, 'that was all');
SELECT is(recovery_attempts, 0, 'without a failure') FROM udb.get_saga(:'id');

-- nothing to undo
SELECT udb.record_saga() AS empty \gset
SELECT lives_ok(format($$ SELECT udb.compensate_saga(%L) $$, :'empty'), 'a saga that has done nothing');
SELECT is(pg_temp.status(:'empty'), 'compensated completed', 'is compensated at once');

-- while that goes on it is nobody else's
SELECT pg_temp.order_saga() AS id \gset
SELECT udb.compensate_saga(:'id') \gset
SELECT pg_temp.older_than_a_moment(:'id') \gset
SELECT is_empty(format($$ SELECT FROM udb.claim_recoverable_sagas('1 ms', 1000) WHERE saga_id = %L $$, :'id'), 'nobody can claim a saga that is being compensated');
SELECT udb.mark_stale_sagas_indeterminate('1 ms') \gset
SELECT is(pg_temp.status(:'id'), 'in_progress none', 'nor is it stale');

-- ---- a job dies ----

SELECT ok(pg_temp.job('bank') IS NOT NULL, 'a job');
SELECT is(pg_temp.fail('no funds'), 1::bigint, 'dies');
SELECT is(pg_temp.sweep(), 1::bigint, 'the sweep sees it');
SELECT is(pg_temp.status(:'id'), 'failed_compensation retry_requested', 'and the saga has failed, to be tried again');
SELECT is(recovery_attempts, 1, 'which is counted') FROM udb.get_saga(:'id');
SELECT matches(last_error, '"charge".*no funds', 'and told') FROM udb.get_saga(:'id');
SELECT is(pg_temp.job('bank') IS NULL AND pg_temp.sweep() = 0, true, 'nothing is done at once');
SELECT ok(pg_temp.sweep_until(:'id', 'in_progress'), 'but after a while');
SELECT is((SELECT count(*) FROM udb.jobs j WHERE payload #>> '{saga,saga_id}' = :'id') || ' ' ||
	(SELECT count(*) FROM udb.dead_jobs WHERE payload #>> '{saga,saga_id}' = :'id'), '1 0', 'the same job is there again');
SELECT ok(pg_temp.job('bank') IS NOT NULL, 'for a worker');
SELECT is(pg_temp.ack(), 1::bigint, 'who is done with it this time');
SELECT is(pg_temp.sweep(), 1::bigint, 'which goes on');
SELECT ok(pg_temp.job('stock') IS NOT NULL, 'with the next step');

-- one that has failed often enough is left to people
SELECT pg_temp.order_saga() AS id \gset
SELECT count(udb.increment_recovery_attempts(:'id', 'e')) FROM generate_series(1, current_setting('udb.saga_poison_threshold')::integer - 1) \gset
SELECT udb.compensate_saga(:'id') \gset
SELECT pg_temp.job('bank') \gset
SELECT is(pg_temp.fail('never'), 1::bigint, 'a job that dies once too often');
SELECT is(pg_temp.sweep(), 1::bigint, 'is seen');
SELECT is(pg_temp.status(:'id'), 'manual_review manual_review', 'and the saga left to people');
SELECT is(recovery_attempts, current_setting('udb.saga_poison_threshold')::integer, 'after so many attempts') FROM udb.get_saga(:'id');
SELECT is(pg_temp.sweep(), 0::bigint, 'nothing more is tried');
SELECT throws_ok(format($$ SELECT udb.compensate_saga(%L) $$, :'id'), 'UD057', NULL, 'nor can that be asked for');
SELECT lives_ok(format($$ SELECT udb.request_saga_recompensation(%L) $$, :'id'), 'but people can request it');
SELECT is(pg_temp.status(:'id'), 'indeterminate retry_requested', 'which puts it back');
SELECT is(pg_temp.sweep(), 1::bigint, 'and the worker takes it up');
SELECT ok(pg_temp.job('bank') IS NOT NULL, 'with the same job');
SELECT is(pg_temp.ack(), 1::bigint, 'which is done this time');
SELECT is(pg_temp.sweep(), 1::bigint, 'and goes on');
SELECT pg_temp.job('stock') \gset
SELECT pg_temp.ack() \gset
SELECT is(pg_temp.sweep(), 1::bigint, 'to the end');
SELECT is(pg_temp.status(:'id'), 'compensated completed', 'where it is compensated');

-- ---- somebody else takes over ----

SELECT pg_temp.order_saga() AS id \gset
SELECT udb.compensate_saga(:'id') \gset
SELECT udb.mark_saga_manual_review(:'id') \gset
SELECT pg_temp.job('bank') \gset
SELECT is(pg_temp.ack() || ' ' || pg_temp.sweep(), '1 0', 'a saga that was taken out of the worker''s hands stays so');
SELECT udb.request_saga_recompensation(:'id') \gset
SELECT is(pg_temp.sweep(), 1::bigint, 'until recompensation is requested');
SELECT ok(pg_temp.job('bank') IS NULL AND pg_temp.job('stock') IS NOT NULL, 'when it goes on behind what was done meanwhile');
SELECT udb.update_saga_status(:'id', 'failed_compensation') \gset
SELECT pg_temp.fail('meanwhile') \gset
SELECT udb.request_saga_recompensation(:'id') \gset
SELECT is(pg_temp.sweep(), 1::bigint, 'a job that died meanwhile');
SELECT is((SELECT status || recovery_attempts FROM udb.get_saga(:'id')), 'in_progress0', 'is tried again, and is no failure of the worker''s');
SELECT ok(pg_temp.job('stock') IS NOT NULL, 'at once');

-- ---- in which order, and what not ----

SELECT udb.record_saga(steps => '[{"step": "x"}, {"step": "y"}, {"step": "z"}, {"step": "no", "done": false}, {"step": "own", "done": true}]',
	compensations => '[{"step": "x", "queue": "order"}, {"step": "y", "queue": "order"}, {"step": "z", "queue": "order"},
		{"step": "no", "queue": "order"}, {"step": "own", "queue": "order", "max_attempts": 3}]') AS id \gset
SELECT udb.saga_step(:'id', 'y'), udb.saga_step(:'id', 'x') \gset
SELECT udb.compensate_saga(:'id') \gset
SELECT is(pg_temp.job('order') #>> '{saga,step}', 'x', 'the step that was done last is undone first, wherever it stands');
SELECT is(max_attempts, 20, 'by a job with as many attempts as usual') FROM udb.get_job((SELECT job_id FROM claimed));
SELECT is(pg_temp.ack() || ' ' || pg_temp.sweep(), '1 1', 'then');
SELECT is(pg_temp.job('order') #>> '{saga,step}', 'y', 'the one before');
SELECT is(pg_temp.ack() || ' ' || pg_temp.sweep(), '1 1', 'then');
SELECT is(pg_temp.job('order') #>> '{saga,step}', 'own', 'what the application itself said was done');
SELECT is(max_attempts, 3, 'by a job with as many attempts as it says') FROM udb.get_job((SELECT job_id FROM claimed));
SELECT is(pg_temp.ack() || ' ' || pg_temp.sweep(), '1 1', 'and then');
SELECT is(pg_temp.status(:'id'), 'compensated completed', 'nothing, as the rest was not done');

-- ---- what somebody else breaks ----

-- a dead job that was removed is not taken for one that was acknowledged
SELECT pg_temp.order_saga() AS id \gset
SELECT udb.compensate_saga(:'id') \gset
SELECT pg_temp.job('bank') \gset
SELECT is(pg_temp.fail('no') || ' ' || pg_temp.sweep(), '1 1', 'a job dies');
DELETE FROM udb.dead_jobs WHERE job_id = (SELECT job_id FROM claimed);
SELECT ok(pg_temp.sweep_until(:'id', 'in_progress'), 'and is removed by hand');
SELECT is(pg_temp.job('bank') #>> '{saga,step}', 'charge', 'another one is sent');
SELECT is(pg_temp.ack() || ' ' || pg_temp.sweep(), '1 1', 'and done');

-- a saga with which the worker cannot go on does not keep it from others
SELECT pg_temp.job('stock') \gset
SELECT pg_temp.ack() \gset
SELECT pg_temp.order_saga() AS other \gset
SELECT pg_temp.order_saga() AS broken \gset
SELECT udb.compensate_saga(:'broken'), udb.compensate_saga(:'other') \gset
SELECT count(pg_temp.job('bank')) \gset
SELECT is(pg_temp.ack(), 2::bigint, 'two sagas');
UPDATE udb.sagas SET compensations = '[{"step": "charge", "queue": "bank"}, {"step": "reserve", "queue": ""}]' WHERE saga_id = :'broken';
SELECT is(pg_temp.sweep(), 3::bigint, 'one of which has become impossible, are swept');
SELECT is(pg_temp.status(:'broken') || ', ' || pg_temp.status(:'other'), 'failed_compensation retry_requested, in_progress none', 'and the other one goes on');
SELECT matches(last_error, 'queue', 'and it is told why') FROM udb.get_saga(:'broken');
UPDATE udb.sagas SET compensations = '[{"step": "charge", "queue": "bank"}, {"step": "reserve", "queue": "repaired"}]' WHERE saga_id = :'broken';
SELECT ok(pg_temp.sweep_until(:'broken', 'in_progress'), 'mended, it goes on');
SELECT is(pg_temp.job('bank') IS NULL AND pg_temp.job('repaired') IS NOT NULL, true, 'and does nothing twice');

-- ---- what cannot be done ----

SELECT throws_ok(format($$ SELECT udb.compensate_saga(%L) $$, udb.record_saga(status => s)), 'UD057', NULL, 'a saga that is ' || s || ' cannot be compensated')
FROM unnest('{committed,compensated,manual_review}'::text[]) s;
SELECT lives_ok(format($$ SELECT udb.compensate_saga(%L) $$, udb.record_saga(status => s)), 'one that is ' || s || ' can')
FROM unnest('{pending,in_progress,indeterminate,in_doubt,failed,failed_compensation}'::text[]) s;
SELECT throws_ok($$ SELECT udb.compensate_saga('018f0000-0000-4000-8000-00000000dead') $$, 'UD055', NULL, 'one that is missing cannot');
SELECT throws_ok($$ SELECT udb.compensate_saga(NULL) $$, '22004', NULL, 'nor none');
SELECT throws_ok($$ SELECT udb.compensate_saga(udb.record_saga(), store => 'no such store') $$, '42704', NULL, 'nor one of another store');
SELECT throws_ok($$ SELECT udb.saga_step(udb.record_saga(), 'x', store => 'no such store') $$, '42704', NULL, 'which has no steps either');
SELECT throws_ok(format($$ SELECT udb.compensate_saga(udb.record_saga(compensations => %L)) $$, c), 'UD058', NULL, 'not by ' || c) FROM unnest(ARRAY[
	'{}', '1', '[1]', '[null]', '[{}]', '[{"step": "a"}]', '[{"step": 1, "queue": "q"}]', '[{"step": "a", "queue": ""}]', '[{"step": "a", "queue": null}]',
	'[{"step": "a", "queue": "q", "payload": [1]}]', '[{"step": "a", "queue": "q", "payload": null}]', '[{"step": "a", "queue": "q", "max_attempts": 0}]',
	'[{"step": "a", "queue": "q", "max_attempts": "many"}]', '[{"step": "a", "queue": "q", "max_attempts": null}]', '[{"step": "a", "queue": "q"}, {"step": "a", "queue": "r"}]']) c;

SELECT * FROM finish();
ROLLBACK;
