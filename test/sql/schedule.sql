-- Schedules: what is stored, what fires and when, and what is refused. The worker is out of the way.
\set VERBOSITY terse
SET timezone = 'UTC';
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS udb_test CASCADE;
RESET client_min_messages;
ALTER SYSTEM SET udb.worker = off;
CALL udb_test.no_worker();
-- let a schedule be due since then
CREATE PROCEDURE pg_temp.due(name text, since interval) LANGUAGE sql AS $$
	UPDATE udb.schedules s SET next_run_at = clock_timestamp() - since WHERE s.name = $1 $$;
CREATE VIEW pg_temp.sent AS SELECT job_id, queue, payload, priority, max_attempts, ordering_key FROM udb.jobs WHERE queue LIKE 't\_sched%';

-- By name, and back.
SELECT udb.schedule('t_every', '@every 90s', 't_sched') - clock_timestamp() BETWEEN '60 s' AND '90 s' AS next;
SELECT udb.schedule('t_cron', '0 3 * * mon', 't_sched_cron', '{"a": 1}', 'europe/berlin', 5, 3, 'k') = udb.next_firing('0 3 * * mon', 'Europe/Berlin') AS next;
SELECT name, spec, time_zone, queue, payload, priority, max_attempts, ordering_key, last_run_at, last_fired_at, last_job_id, failures, retry_at, last_error,
	next_run_at = udb.next_firing(spec, time_zone, changed_at) AS next FROM udb.schedules ORDER BY name;
SELECT name, spec, time_zone, queue, next_run_at > clock_timestamp() AS next, last_run_at, last_fired_at, last_job_id, overdue, failures, retry_at, last_error
FROM udb.schedule_status ORDER BY name;
-- nothing is due
SELECT udb.sweep_schedules();
SELECT count(*) FROM pg_temp.sent;
-- which takes no transaction id
BEGIN;
SELECT udb.sweep_schedules(), pg_current_xact_id_if_assigned();
COMMIT;

-- What is due fires once, however often it should have, and goes on along the same grid.
CALL pg_temp.due('t_every', '1 hour');
SELECT overdue BETWEEN '59 min' AND '61 min' AS overdue FROM udb.schedule_status WHERE name = 't_every';
CALL pg_temp.due('t_cron', '3 weeks');
SELECT udb.sweep_schedules();
SELECT udb.sweep_schedules();
SELECT queue, payload, priority, max_attempts, ordering_key FROM pg_temp.sent ORDER BY queue;
SELECT name, last_job_id = job_id AS job, clock_timestamp() - last_fired_at < '1 min' AS fired, clock_timestamp() - last_run_at > '59 min' AS due,
	next_run_at > clock_timestamp() AS next, next_run_at - clock_timestamp() <= CASE WHEN name = 't_every' THEN interval '90 s' ELSE '7 days 1 hour' END AS soon,
	CASE WHEN name = 't_every' THEN extract(epoch FROM next_run_at - changed_at)::numeric % 90 ELSE 0 END AS off_the_grid, overdue
FROM udb.schedule_status JOIN udb.schedules USING (name, next_run_at, last_run_at, last_fired_at, last_job_id) JOIN pg_temp.sent s ON s.queue = schedules.queue ORDER BY name;

-- The clock is set back by an hour, which is the same as all times being an hour later: nothing fires twice.
UPDATE udb.schedules SET next_run_at = next_run_at + '1 h', last_run_at = last_run_at + '1 h', last_fired_at = last_fired_at + '1 h', changed_at = changed_at + '1 h';
SELECT udb.sweep_schedules();
-- nor for a time that it has fired for already, if it is changed then
SELECT udb.schedule('t_minute', '* * * * *', 't_sched_minute') > clock_timestamp() AS next;
UPDATE udb.schedules SET last_run_at = date_trunc('minute', clock_timestamp()) + '1 h' WHERE name = 't_minute';
SELECT udb.schedule('t_minute', '0-59 * * * *', 't_sched_minute') = last_run_at + '1 min' AS next FROM udb.schedules WHERE name = 't_minute';
-- if it goes back within a firing, the next one is after the one that was due
SELECT udb._next_firing('* * * * *', 'UTC', greatest('2026-01-01 11:00'::timestamptz, '2026-01-01 12:00'), '2026-01-01') AS cron,
	udb._next_firing('@every 1h', 'UTC', greatest('2026-01-01 11:00'::timestamptz, '2026-01-01 12:00'), '2026-01-01') AS every;
SELECT udb.unschedule('t_minute');

-- The same again changes nothing; what is sent can change, which keeps the times; another spec or zone starts anew.
SELECT xmin AS before, next_run_at AS next FROM udb.schedules WHERE name = 't_every' \gset
SELECT udb.schedule('t_every', '@every 90s', 't_sched') = :'next' AS next;
SELECT xmin = :'before' AS same FROM udb.schedules WHERE name = 't_every';
SELECT udb.schedule('t_every', '@every 90s', 't_sched', '{"b": 2}', 'UTC', 1) = :'next' AS next;
SELECT payload, priority, last_job_id IS NOT NULL AS last, count(*) OVER () FROM udb.schedules WHERE name = 't_every';
SELECT udb.schedule('t_every', '@every 2h', 't_sched', '{"b": 2}', 'UTC', 1) - clock_timestamp() BETWEEN '119 min' AND '121 min' AS next;
SELECT last_job_id IS NOT NULL AS last FROM udb.schedules WHERE name = 't_every';
SELECT udb.schedule('t_cron', '0 3 * * mon', 't_sched_cron', time_zone => 'Asia/Tokyo') = udb.next_firing('0 3 * * mon', 'Asia/Tokyo') AS next;

-- One that cannot send its job does not hold the others, and is tried again, later each time.
SELECT udb.schedule('t_bad', '@every 1h', 't_sched_bad') > clock_timestamp() AS next;
UPDATE udb.schedules SET ordering_key = '' WHERE name = 't_bad';
CALL pg_temp.due('t_bad', '2 hours');
CALL pg_temp.due('t_every', '1 hour');
SELECT clock_timestamp() AS before \gset
SELECT udb.sweep_schedules(), udb.sweep_schedules();
SELECT payload FROM pg_temp.sent WHERE queue = 't_sched' ORDER BY job_id;
SELECT name, failures, last_error, retry_at - :'before' BETWEEN '1 s' AND '30 s' AS soon, overdue > '1 h' AS overdue FROM udb.schedule_status WHERE overdue > '0';
UPDATE udb.schedules SET retry_at = clock_timestamp() WHERE name = 't_bad';
SELECT clock_timestamp() AS before \gset
SELECT udb.sweep_schedules();
SELECT failures, retry_at - :'before' BETWEEN '2 s' AND '30 s' AS later FROM udb.schedule_status WHERE name = 't_bad';
UPDATE udb.schedules SET retry_at = clock_timestamp(), failures = 60 WHERE name = 't_bad';
SELECT clock_timestamp() AS before \gset
SELECT udb.sweep_schedules();
SELECT failures, retry_at - :'before' BETWEEN '300 s' AND '330 s' AS later FROM udb.schedule_status WHERE name = 't_bad';
-- mended, it fires, once
SELECT udb.schedule('t_bad', '@every 1h', 't_sched_bad') < clock_timestamp() AS due;
SELECT udb.sweep_schedules(), udb.sweep_schedules();
SELECT failures, last_error, retry_at, overdue, (SELECT count(*) FROM pg_temp.sent WHERE queue = 't_sched_bad') AS sent FROM udb.schedule_status WHERE name = 't_bad';

-- A transaction in which one fires is flushed; the WAL writer would do that too, but not at once.
CALL pg_temp.due('t_every', '1 hour');
SET synchronous_commit = off;
BEGIN;
SELECT udb.sweep_schedules();
SELECT pg_current_wal_insert_lsn() AS before_commit \gset
COMMIT\; SELECT pg_current_wal_flush_lsn() > :'before_commit' AS flushed;
RESET synchronous_commit;

-- In a batch, many.
SELECT count(udb.schedule('t_many_' || i, '@every 1h', 't_sched_many', to_jsonb(i))) FROM generate_series(1, 150) i;
UPDATE udb.schedules SET next_run_at = clock_timestamp() - interval '1 s' * substr(name, 8)::int WHERE name LIKE 't_many_%';
SELECT udb.sweep_schedules(), udb.sweep_schedules(), udb.sweep_schedules();
SELECT count(*), count(DISTINCT payload) FROM pg_temp.sent WHERE queue = 't_sched_many';
-- those that have been due for longest first
SELECT min(payload::int) FROM (SELECT payload FROM pg_temp.sent WHERE queue = 't_sched_many' ORDER BY job_id LIMIT 100) f;
SELECT count(*) FILTER (WHERE udb.unschedule(name)) FROM udb.schedules WHERE name LIKE 't_many_%';

-- What is refused, and changes nothing.
SELECT udb.schedule(NULL, '@every 1h', 'q');
SELECT udb.schedule('', '@every 1h', 'q');
SELECT udb.schedule(repeat('x', 256), '@every 1h', 'q');
SELECT udb.schedule('t_x', NULL, 'q');
SELECT udb.schedule('t_x', '0 25 * * *', 'q');
SELECT udb.schedule('t_x', '0 0 31 feb *', 'q');
SELECT udb.schedule('t_x', '@every 1h', NULL);
SELECT udb.schedule('t_x', '@every 1h', '');
SELECT udb.schedule('t_x', '@every 1h', 'q', NULL);
SELECT udb.schedule('t_x', '@every 1h', 'q', time_zone => NULL);
SELECT udb.schedule('t_x', '@every 1h', 'q', time_zone => 'Europe/Nowhere');
SELECT udb.schedule('t_x', '@every 1h', 'q', priority => NULL);
SELECT udb.schedule('t_x', '@every 1h', 'q', max_attempts => NULL);
SELECT udb.schedule('t_x', '@every 1h', 'q', max_attempts => 0);
SELECT udb.schedule('t_x', '@every 1h', 'q', ordering_key => '');
SELECT udb.schedule('t_x', '@every 1h', 'q', ordering_key => repeat('x', 1025));
SELECT udb.schedule('t_x', '@every 1h', 'q', store => 'elsewhere');
SELECT udb.schedule('t_every', '61 * * * *', 'q');
SELECT udb.unschedule(NULL);
SELECT udb.unschedule('');
SELECT udb.unschedule('t_every', 'elsewhere');
SELECT name, spec FROM udb.schedules ORDER BY name;
-- rolled back, it was never there
BEGIN;
SELECT udb.schedule('t_x', '@every 1h', 'q') IS NOT NULL AS next;
ROLLBACK;
SELECT udb.unschedule('t_x');

-- Who may do it.
CREATE ROLE regress_schedule;
SET ROLE regress_schedule;
SELECT udb.next_firing('0 0 * * *', 'UTC', '2026-01-01');
SELECT udb.schedule('t_x', '@every 1h', 'q');
SELECT udb.unschedule('t_every');
SELECT udb.sweep_schedules();
SELECT * FROM udb.schedule_status;
RESET ROLE;
SELECT udb.grant_role('regress_schedule', kind) FROM unnest('{worker,monitor}'::text[]) kind;
SET ROLE regress_schedule;
SELECT udb.sweep_schedules();
SELECT count(*) FROM udb.schedule_status;
SELECT udb.unschedule('t_every');
RESET ROLE;
SELECT udb.grant_role('regress_schedule', 'admin');
SET ROLE regress_schedule;
SELECT udb.unschedule('t_every'), udb.unschedule('t_cron'), udb.unschedule('t_bad'), udb.unschedule('t_bad');
UPDATE udb.schedules SET next_run_at = now();
RESET ROLE;
DROP OWNED BY regress_schedule;
DROP ROLE regress_schedule;
DELETE FROM udb.jobs WHERE queue LIKE 't\_sched%';
ALTER SYSTEM RESET udb.worker;
SELECT pg_reload_conf();
