-- When schedules fire: next_firing() for specs of all kinds, and what is not a spec.
\set VERBOSITY terse
SET timezone = 'UTC';
SET datestyle = iso;
-- The next n firings after a time, as local time and offset.
CREATE FUNCTION pg_temp.firings(spec text, zone text, after timestamptz, n integer) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('timezone', zone, true);
	FOR i IN 1 .. n LOOP
		after := udb.next_firing(spec, zone, after);
		RETURN NEXT after::text;
	END LOOP;
END
$$;

-- Values, lists, ranges, steps, names.
SELECT spec, udb.next_firing(spec, after => '2026-03-10 12:34:56.789+00') FROM unnest(ARRAY[
	'* * * * *', '*/5 * * * *', '35 * * * *', '34 * * * *', '0 12 * * *', '0 13 * * *', '10-20/3 * * * *', '50-59,0,2-8/2 12 * * *',
	'0 0 * * *', '0 0 1 * *', '0 0 31 * *', '59 23 31 12 *', '0 0 29 2 *', '0 12 * JAN,jul *', '0 0 * apr-jun *', '0 0 1 */5 *',
	'0 0 * * 0', '0 0 * * 7', '0 0 * * sun', '0 0 * * Mon-Fri', '0 0 * * 5-7', '0 0 * * sat-sun', '0 0 * * */2',
	'0,30 8-18/2 * * tue', '  0	3  *  * * ', '@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@annually', ' @daily',
	'00 08 01 * *', '0 0 1-31 * *', '0-59 0-23 1-31 1-12 0-7']) WITH ORDINALITY u(spec, i) ORDER BY i;
-- strictly after
SELECT udb.next_firing('0 12 * * *', after => '2026-03-10 12:00+00'), udb.next_firing('0 12 * * *', after => '2026-03-10 11:59:59.999999+00');
SELECT udb.next_firing('* * * * *', after => '1969-12-31 23:59:59.5+00'), udb.next_firing('* * * * *', after => '1900-01-01 00:00:30.5+00');
-- either day is enough if both are restricted, which one that begins with * is not
SELECT 'either', array_agg(f::date) FROM pg_temp.firings('0 0 13 * fri', 'UTC', '2026-03-01 00:00+00', 6) f
UNION ALL SELECT 'both', array_agg(f::date) FROM pg_temp.firings('0 0 */13 * fri', 'UTC', '2026-01-01 00:00+00', 4) f
UNION ALL SELECT 'weekday', array_agg(f::date) FROM pg_temp.firings('0 0 * * fri', 'UTC', '2026-03-01 00:00+00', 3) f
UNION ALL SELECT 'day', array_agg(f::date) FROM pg_temp.firings('0 0 13 * *', 'UTC', '2026-03-01 00:00+00', 3) f;
-- days that are rare
SELECT 'leap', array_agg(f::date) FROM pg_temp.firings('0 0 29 2 *', 'UTC', '2089-01-01', 4) f
UNION ALL SELECT 'on sunday or monday', array_agg(f::date) FROM pg_temp.firings('0 0 29 2 */7,1', 'UTC', '2096-01-01', 1) f
UNION ALL SELECT 'leap sunday', array_agg(f::date) FROM pg_temp.firings('0 0 29 2 */7', 'UTC', '2076-03-01', 2) f;

-- Intervals count from "after".
SELECT spec, udb.next_firing(spec, 'Europe/Berlin', '2026-03-28 12:34:56.789+00') FROM unnest(ARRAY[
	'@every 1s', '@every 90s', '@every 5m', '@every 6h', '@every 1d', '@every  7d', '@every 365000d']) spec;

-- Clocks go forward at 2:00 in Berlin: what is due in between fires once, right after; by time that goes by, it just goes on.
SELECT * FROM pg_temp.firings('30 2 * * *', 'Europe/Berlin', '2026-03-28 00:00+00', 3);
SELECT * FROM pg_temp.firings('0,15,45 2,3 * * *', 'Europe/Berlin', '2026-03-29 00:30+00', 4);
SELECT * FROM pg_temp.firings('0 */2 * * *', 'Europe/Berlin', '2026-03-28 22:30+00', 4);
SELECT * FROM pg_temp.firings('*/30 * * * *', 'Europe/Berlin', '2026-03-29 00:10+00', 4);
SELECT * FROM pg_temp.firings('30 * * * *', 'Europe/Berlin', '2026-03-29 00:10+00', 3);
-- exactly at the gap's end it has fired
SELECT udb.next_firing('30 2 * * *', 'Europe/Berlin', '2026-03-29 01:00+00'), udb.next_firing('30 2 * * *', 'Europe/Berlin', '2026-03-29 00:59:59+00');
-- They go back at 3:00: the first of both times.
SELECT * FROM pg_temp.firings('30 2 * * *', 'Europe/Berlin', '2026-10-24 00:00+00', 3);
SELECT udb.next_firing('30 2 * * *', 'Europe/Berlin', '2026-10-25 00:31+00');
SELECT * FROM pg_temp.firings('*/20 2 * * *', 'Europe/Berlin', '2026-10-24 23:50+00', 4);
SELECT * FROM pg_temp.firings('*/30 * * * *', 'Europe/Berlin', '2026-10-24 23:40+00', 7);
SELECT * FROM pg_temp.firings('0 3 * * *', 'Europe/Berlin', '2026-10-24 12:00+00', 2);
-- at midnight: Cairo goes forward from 0:00 and back from 24:00, so that an hour of yesterday comes again
SELECT * FROM pg_temp.firings('0 0 * * *', 'Africa/Cairo', '2024-04-25 12:00+00', 2);
SELECT * FROM pg_temp.firings('30 23 * * *', 'Africa/Cairo', '2024-10-30 12:00+00', 3);
SELECT * FROM pg_temp.firings('30 * * * *', 'Africa/Cairo', '2024-10-31 19:40+00', 4);
-- by half an hour, and a day that did not exist
SELECT * FROM pg_temp.firings('15 2 * * *', 'Australia/Lord_Howe', '2026-10-03 00:00+00', 2);
SELECT * FROM pg_temp.firings('45 1 * * *', 'Australia/Lord_Howe', '2026-04-04 00:00+00', 2);
SELECT * FROM pg_temp.firings('0 12 * * *', 'Pacific/Apia', '2011-12-29 00:00+00', 3);
SELECT * FROM pg_temp.firings('0 12 30 12 *', 'Pacific/Apia', '2011-12-01 00:00+00', 2);
-- the same in New York, and a zone without changes
SELECT * FROM pg_temp.firings('30 2 8 3 *', 'America/New_York', '2026-03-07 00:00+00', 2);
SELECT * FROM pg_temp.firings('30 1 1 11 *', 'America/New_York', '2026-10-31 00:00+00', 2);
SELECT * FROM pg_temp.firings('30 2 * * *', 'Asia/Kolkata', '2026-03-28 00:00+00', 2);

-- Against another way to compute it: every minute of some days whose label matches, where no clock is changed.
CREATE FUNCTION pg_temp.by_hand(zone text, after timestamptz, till timestamptz, minutes int[], hours int[], weekdays int[]) RETURNS SETOF timestamptz
	LANGUAGE sql AS $$
	SELECT t FROM generate_series(date_trunc('minute', after), till, '1 min') t, LATERAL (SELECT t AT TIME ZONE zone AS l) l
	WHERE t > after AND extract(minute FROM l) = ANY (minutes) AND extract(hour FROM l) = ANY (hours) AND extract(dow FROM l) = ANY (weekdays)
	$$;
CREATE FUNCTION pg_temp.computed(spec text, zone text, after timestamptz, till timestamptz) RETURNS SETOF timestamptz
	LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		after := udb.next_firing(spec, zone, after);
		EXIT WHEN after > till;
		RETURN NEXT after;
	END LOOP;
END
$$;
WITH z(zone) AS (VALUES ('UTC'), ('Europe/Berlin'), ('Asia/Kathmandu'), ('America/St_Johns'), ('Pacific/Kiritimati'), ('Pacific/Pago_Pago')),
	hand AS (SELECT zone, t FROM z, pg_temp.by_hand(zone, '2026-06-01 00:00:30+00', '2026-06-20', '{7,29,30}', '{0,6,12,18,23}', '{1,3,6}') t),
	ours AS (SELECT zone, t FROM z, pg_temp.computed('7,29-30 0-18/6,23 * * mon,3,sat', zone, '2026-06-01 00:00:30+00', '2026-06-20') t)
SELECT (SELECT count(*) FROM hand) AS by_hand, (SELECT count(*) FROM ours) AS computed,
	NOT EXISTS (TABLE hand EXCEPT TABLE ours) AND NOT EXISTS (TABLE ours EXCEPT TABLE hand) AS same;
-- what runs in every hour does so at each such minute of a year, changes of clocks included
WITH z(zone) AS (VALUES ('Europe/Berlin'), ('Africa/Cairo'), ('Australia/Lord_Howe')),
	hand AS (SELECT zone, t FROM z, pg_temp.by_hand(zone, '2024-01-01', '2025-01-01', '{10}', ARRAY(SELECT generate_series(0, 23)), '{0,1,2,3,4,5,6}') t),
	ours AS (SELECT zone, t FROM z, pg_temp.computed('10 * * * *', zone, '2024-01-01', '2025-01-01') t)
SELECT (SELECT count(*) FROM hand) AS by_hand, (SELECT count(*) FROM ours) AS computed,
	NOT EXISTS (TABLE hand EXCEPT TABLE ours) AND NOT EXISTS (TABLE ours EXCEPT TABLE hand) AS same;
-- what runs at a certain time does so once a day, whatever the clocks do
SELECT zone, count(*), count(DISTINCT (t AT TIME ZONE zone)::date) FROM unnest('{Europe/Berlin,Africa/Cairo,Australia/Lord_Howe,America/New_York}'::text[]) zone,
	pg_temp.computed('15 2 * * *', zone, '2024-01-01 12:00+00', '2025-01-01 11:00+00') t GROUP BY 1 ORDER BY 1;

-- What is not a spec: the field is named.
\set VERBOSITY default
SELECT udb.next_firing('61 * * * *');
SELECT udb.next_firing('every day');
SELECT udb.next_firing('@every 5 minutes');
SELECT udb.next_firing('0 0 30 2 *');
\set VERBOSITY terse
CREATE FUNCTION pg_temp.try(spec text, zone text DEFAULT 'UTC') RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text;
BEGIN
	RETURN udb.next_firing(spec, zone)::text;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = pg_exception_detail;
	RETURN concat_ws(': ', sqlstate, sqlerrm, detail);
END
$$;
SELECT pg_temp.try(spec) FROM unnest(ARRAY[
	'60 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *', '* * * 0 *', '* * * 13 *', '* * * * 8', '-1 * * * *', '1- * * * *', '-5 * * * *',
	'5-1 * * * *', '* 22-2 * * *', '* * * dec-jan *', '* * * * fri-mon', '1,,2 * * * *', '1, * * * *', ',1 * * * *', '5/15 * * * *',
	'*/0 * * * *', '*/60 * * * *', '*/-1 * * * *', '*/ * * * *', '*5 * * * *', '** * * * *', '1.5 * * * *', '1x * * * *', 'x * * * *',
	'* * * june *', '* * * ju *', '* * * * mond', '* mon * * *', '* * * * *-5', '* * * * * *', '* * * *', '', '   ', '@', '@reboot',
	'@dailyx', '@every', '@every 5', '@every m', '@every 5w', '@every 5M', '@every -5m', '@every 1h30m', '@every 0s', '@every 1.5h',
	'@every 99999999999999999999999s', '@every 9223372036854775807d', '@every 365001d', '99999999999999999999 * * * *',
	'0 0 31 4,6,9,11 *', E'0 0 * *\n*', '0 0 1 1 * ; DROP TABLE x', '* * * * ?', '* * L * *']) spec;
SELECT pg_temp.try(repeat('1,', 600) || '1 * * * *');
-- time zones
SELECT zone, pg_temp.try('0 0 1 1 *', zone) !~ '^22' AS known FROM unnest('{UTC,utc,europe/berlin,EST5EDT,Etc/GMT+5,GMT0,Asia/Kolkata}'::text[]) zone;
SELECT pg_temp.try('0 0 1 1 *', zone) FROM unnest('{Europe/Nowhere,Mars5,UTC+3,Etc/GMT5,"<+03>-3","",../../etc/passwd,"Europe/Berlin ",+02:00,5}'::text[]) zone;
SELECT left(pg_temp.try('0 0 1 1 *', repeat('x', 1000)), 40);
-- nulls and the ends of time
SELECT udb.next_firing(NULL);
SELECT udb.next_firing('* * * * *', NULL);
SELECT udb.next_firing('* * * * *', 'UTC', NULL);
SELECT udb.next_firing('* * * * *', 'UTC', 'infinity');
SELECT udb.next_firing('@every 1h', 'UTC', '-infinity');
SELECT udb.next_firing('0 0 1 1 *', 'Europe/Berlin', '294276-12-31 23:00+00');
SELECT udb.next_firing('@every 1d', 'Europe/Berlin', '294276-12-31 23:00+00');
SELECT udb.next_firing('0 0 1 1 *', 'Europe/Berlin', '4713-01-01 00:00+00 BC') IS NOT NULL AS long_ago;
-- the clock's time unless another is given
SELECT udb.next_firing('* * * * *') - clock_timestamp() BETWEEN '0' AND '1 min' AS soon;
