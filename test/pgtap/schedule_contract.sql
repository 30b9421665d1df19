-- The contract of schedules, as every store has to keep it.
\set store ''
\getenv store UDB_STORE
SELECT set_config('udb_test.store', :'store', false) AS store \gset
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql STABLE
	AS $$ SELECT nullif(current_setting('udb_test.store'), '') $$;
-- a name that nobody else has, which is also the queue's
SELECT 'contract-' || udb.generate_uuidv7() AS s \gset
-- sweeps until the condition is true; the worker may be faster
CREATE FUNCTION pg_temp.until(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	met boolean;
BEGIN
	FOR i IN 1 .. 1000 LOOP
		PERFORM udb.sweep_schedules();
		EXECUTE 'SELECT ' || condition INTO met;
		EXIT WHEN met;
		PERFORM pg_sleep(0.02);
	END LOOP;
	RETURN met;
END
$$;
CREATE FUNCTION pg_temp.sent(queue text) RETURNS bigint LANGUAGE sql
	AS $$ SELECT count(*) FROM udb.jobs j WHERE j.queue = $1 $$;

SELECT plan(32);

-- when
SELECT is(udb.next_firing(spec, zone, after::timestamptz), expected::timestamptz, what) FROM (VALUES
	('@every 90s', 'UTC', '2026-01-01 00:00:01+00', '2026-01-01 00:01:31+00', '@every counts from the time that is given'),
	('30 6 * * *', 'UTC', '2026-01-01 06:30+00', '2026-01-02 06:30+00', 'the next one is after it'),
	('*/15 9-17 * * mon-fri', 'UTC', '2026-01-02 17:46+00', '2026-01-05 09:00+00', 'lists, ranges, steps and names'),
	('0 0 13 * fri', 'UTC', '2026-02-07 00:00+00', '2026-02-13 00:00+00', 'either day is enough if both are restricted'),
	('0 0 * * 7', 'UTC', '2026-01-01 00:00+00', '2026-01-04 00:00+00', '7 is Sunday'),
	('30 6 * * *', 'Europe/Berlin', '2026-07-01 00:00+00', '2026-07-01 04:30+00', 'in a time zone'),
	('30 2 * * *', 'Europe/Berlin', '2026-03-29 00:00+00', '2026-03-29 01:00+00', 'what is skipped fires right after the gap'),
	('30 2 * * *', 'Europe/Berlin', '2026-03-29 01:00+00', '2026-03-30 00:30+00', 'once'),
	('30 2 * * *', 'Europe/Berlin', '2026-10-25 00:00+00', '2026-10-25 00:30+00', 'what comes twice fires the first time'),
	('30 2 * * *', 'Europe/Berlin', '2026-10-25 00:30+00', '2026-10-26 01:30+00', 'and not the second'),
	('30 * * * *', 'Europe/Berlin', '2026-10-25 00:30+00', '2026-10-25 01:30+00', 'unless it is for every hour')
) v(spec, zone, after, expected, what);

-- firing
SELECT ok(udb.schedule(:'s', '@every 1s', :'s', '{"n": 1}', store => pg_temp.store()) BETWEEN clock_timestamp() - interval '1 min'
	AND clock_timestamp() + interval '1 s', 'a schedule says when it fires next');
SELECT ok(pg_temp.until(format('pg_temp.sent(%L) > 0', :'s')), 'and then it does');
SELECT ok((SELECT last_job_id = (SELECT max(job_id) FROM udb.jobs WHERE queue = :'s') AND last_fired_at >= last_run_at AND next_run_at > last_run_at
	AND failures = 0 FROM udb.schedule_status WHERE name = :'s'), 'as its status says');
SELECT is((SELECT (udb.get_job(last_job_id, pg_temp.store())).payload FROM udb.schedule_status WHERE name = :'s'), '{"n": 1}', 'with its payload');
SELECT ok(pg_temp.until(format('pg_temp.sent(%L) > 1', :'s')), 'again and again');

-- changing
SELECT ok(udb.schedule(:'s', '0 0 1 1 *', :'s', '{"n": 2}', 'Asia/Tokyo', store => pg_temp.store()) = udb.next_firing('0 0 1 1 *', 'Asia/Tokyo'),
	'another spec starts anew');
SELECT ok((SELECT last_job_id IS NOT NULL AND time_zone = 'Asia/Tokyo' FROM udb.schedule_status WHERE name = :'s'), 'and keeps what has been');
SELECT is(udb.schedule(:'s', '0 0 1 1 *', :'s', '{"n": 3}', 'Asia/Tokyo', store => pg_temp.store()),
	(SELECT next_run_at FROM udb.schedule_status WHERE name = :'s'), 'another payload leaves the time as it is');
SELECT is(udb.unschedule(:'s', store => pg_temp.store()), true, 'it can be dropped');
SELECT is(udb.unschedule(:'s', store => pg_temp.store()), false, 'once');
SELECT ok(pg_temp.sent(:'s') > 1, 'what it has sent stays');

-- errors
SELECT throws_ok(statement, code, NULL, what) FROM (VALUES
	($$SELECT udb.schedule('x', '0 24 * * *', 'q', store => pg_temp.store())$$, '22023', 'a value is within its range'),
	($$SELECT udb.schedule('x', '0 0 30 2 *', 'q', store => pg_temp.store())$$, '22023', 'and comes at some time'),
	($$SELECT udb.schedule('x', '@every 0s', 'q', store => pg_temp.store())$$, '22023', 'an interval is positive'),
	($$SELECT udb.schedule('x', '@every 1h', 'q', time_zone => 'Nowhere', store => pg_temp.store())$$, '22023', 'a time zone exists'),
	($$SELECT udb.schedule('', '@every 1h', 'q', store => pg_temp.store())$$, '42602', 'a name is not empty'),
	($$SELECT udb.schedule('x', '@every 1h', NULL, store => pg_temp.store())$$, '22004', 'a queue is needed'),
	($$SELECT udb.schedule('x', '@every 1h', 'q', max_attempts => 0, store => pg_temp.store())$$, '22023', 'and an attempt'),
	($$SELECT udb.unschedule(NULL, store => pg_temp.store())$$, '22004', 'and a name'),
	($$SELECT udb.schedule('x', '@every 1h', 'q', store => 'no such store')$$, '42704', 'and a store that exists')
) v(statement, code, what);
SELECT is_empty($$SELECT * FROM udb.schedule_status WHERE name = 'x'$$, 'none of which leaves anything');

SELECT * FROM finish();
