-- Schedules --------------------------------------------------------------

-- Each firing rewrites a row and no index: half of each page is left for new versions.
CREATE TABLE udb.schedules (
	name text COLLATE "C" NOT NULL CONSTRAINT schedules_pkey PRIMARY KEY
		CHECK (octet_length(name) BETWEEN 1 AND 255),
	spec text NOT NULL,
	time_zone text NOT NULL,
	queue text COLLATE "C" NOT NULL CHECK (octet_length(queue) BETWEEN 1 AND 255),
	payload jsonb NOT NULL,
	priority integer NOT NULL,
	max_attempts integer NOT NULL CHECK (max_attempts > 0),
	ordering_key text COLLATE "C",
	changed_at timestamptz NOT NULL,
	next_run_at timestamptz NOT NULL,
	last_run_at timestamptz,
	last_fired_at timestamptz,
	last_job_id bigint,
	failures integer NOT NULL DEFAULT 0,
	retry_at timestamptz,
	last_error text
) WITH (fillfactor = 50);
COMMENT ON TABLE udb.schedules IS 'Jobs that are sent at certain times; change them with the functions only';
COMMENT ON COLUMN udb.schedules.changed_at IS 'When spec or time_zone were given; @every counts from there';
COMMENT ON COLUMN udb.schedules.next_run_at IS 'When it is due next';
COMMENT ON COLUMN udb.schedules.last_run_at IS 'When the last firing was due';
COMMENT ON COLUMN udb.schedules.last_fired_at IS 'When the last firing was';
COMMENT ON COLUMN udb.schedules.failures IS 'How often the firing that is due could not send its job';
COMMENT ON COLUMN udb.schedules.retry_at IS 'When that is tried again';
SELECT pg_catalog.pg_extension_config_dump('udb.schedules', '');

-- next_firing(spec, time_zone, after): when a schedule with this spec fires first after a time. spec is
-- '@every <n>' with s, m, h or d (a day is 24 hours; they count from "after"), or the five fields of crontab,
-- minute, hour, day of month, month and day of week, each a list of values, ranges and *, with steps; months
-- and days by name too, Sunday is 0 or 7; or @hourly, @daily, @weekly, @monthly, @yearly. If day of month and
-- day of week are both restricted, either is enough. Where clocks go forward, what is due at certain hours
-- within the gap fires once, right after it; where they go back, once, at the first of both times; what is due
-- in each hour follows the time that goes by.
-- Raises 22004 for nulls, 22023 for a bad spec or time zone, or if it never fires, 22008 out of range.
CREATE FUNCTION udb.next_firing(spec text, time_zone text DEFAULT 'UTC', after timestamptz DEFAULT clock_timestamp())
	RETURNS timestamptz
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_next_firing';
COMMENT ON FUNCTION udb.next_firing(text, text, timestamptz) IS
	'When a schedule with this spec fires first after a time';

CREATE FUNCTION udb._next_firing(spec text, time_zone text, after timestamptz, anchor timestamptz)
	RETURNS timestamptz
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_next_firing';
REVOKE EXECUTE ON FUNCTION udb._next_firing(text, text, timestamptz, timestamptz) FROM PUBLIC;
COMMENT ON FUNCTION udb._next_firing(text, text, timestamptz, timestamptz) IS
	'Internal: the same, with @every counting from anchor';

CREATE FUNCTION udb._schedule_time_zone(name text) RETURNS text
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_schedule_time_zone';
REVOKE EXECUTE ON FUNCTION udb._schedule_time_zone(text) FROM PUBLIC;
COMMENT ON FUNCTION udb._schedule_time_zone(text) IS 'Internal: a time zone''s name, or raise 22023';

CREATE FUNCTION udb._schedules_changed() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_schedules_changed';
REVOKE EXECUTE ON FUNCTION udb._schedules_changed() FROM PUBLIC;
COMMENT ON FUNCTION udb._schedules_changed() IS 'Internal: let the worker look at schedules when this commits';

CREATE FUNCTION udb._flush_at_commit() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_flush_at_commit';
REVOKE EXECUTE ON FUNCTION udb._flush_at_commit() FROM PUBLIC;
COMMENT ON FUNCTION udb._flush_at_commit() IS 'Internal: flush this transaction, also with synchronous_commit off';

-- schedule(name, spec, queue, payload, time_zone, priority, max_attempts, ordering_key, store): send a job like
-- this whenever spec says, or change the schedule of that name. See next_firing() for spec; the other arguments
-- are those of send_job(). Another spec or time zone makes it start anew from now on, but never for a time that
-- it has fired for already; else it goes on as it was, and the same again changes nothing. Returns when it fires
-- next. Waits for another transaction that changes or fires it.
-- Raises 22004 for nulls, 42602 and 42622 for a bad name, queue or key, 22023 for a bad spec, time zone or
-- max_attempts, 42704 for another store. Writes schedules.
CREATE FUNCTION udb.schedule(name text, spec text, queue text, payload jsonb DEFAULT '{}',
		time_zone text DEFAULT 'UTC', priority integer DEFAULT 0, max_attempts integer DEFAULT 20,
		ordering_key text DEFAULT NULL, store text DEFAULT NULL) RETURNS timestamptz
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	now CONSTANT timestamptz := clock_timestamp();
	zone text;
	upcoming timestamptz;
BEGIN
	PERFORM udb._check_store($9), udb._check_name('name', $1), udb._check_not_null('spec', $2),
		udb._check_name('queue', $3), udb._check_not_null('payload', $4), udb._check_not_null('priority', $6),
		udb._check_not_null('max_attempts', $7);
	IF $7 <= 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "max_attempts" must be greater than zero';
	ELSIF $8 IS NOT NULL THEN
		PERFORM udb._check_name('ordering_key', $8, 1024);
	END IF;
	zone := udb._schedule_time_zone($5);

	-- by itself, so that the context of an error is not the statement below
	upcoming := udb._next_firing($2, zone, now, now);
	INSERT INTO udb.schedules AS s
		(name, spec, time_zone, queue, payload, priority, max_attempts, ordering_key, changed_at, next_run_at)
	VALUES ($1, $2, zone, $3, $4, $6, $7, $8, now, upcoming)
	ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, time_zone = excluded.time_zone, queue = excluded.queue,
		payload = excluded.payload, priority = excluded.priority, max_attempts = excluded.max_attempts,
		ordering_key = excluded.ordering_key, failures = 0, retry_at = NULL, last_error = NULL,
		changed_at = CASE WHEN (s.spec, s.time_zone) = (excluded.spec, excluded.time_zone)
			THEN s.changed_at ELSE excluded.changed_at END,
		next_run_at = CASE WHEN (s.spec, s.time_zone) = (excluded.spec, excluded.time_zone) THEN s.next_run_at
			ELSE udb._next_firing(excluded.spec, excluded.time_zone, greatest(clock_timestamp(), s.last_run_at),
				excluded.changed_at) END
	WHERE (s.spec, s.time_zone, s.queue, s.payload, s.priority, s.max_attempts, s.ordering_key) IS DISTINCT FROM
		(excluded.spec, excluded.time_zone, excluded.queue, excluded.payload, excluded.priority,
			excluded.max_attempts, excluded.ordering_key)
	RETURNING s.next_run_at INTO upcoming;
	IF FOUND THEN
		PERFORM udb._schedules_changed();
	ELSE
		SELECT s.next_run_at INTO upcoming FROM udb.schedules s WHERE s.name = $1;
	END IF;
	RETURN upcoming;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.schedule(text, text, text, jsonb, text, integer, integer, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.schedule(text, text, text, jsonb, text, integer, integer, text, text) IS
	'Send a job at certain times, or change what is sent when; returns the next time';

-- unschedule(name, store): forget a schedule. Jobs that it has sent stay. False if there is none. Waits for
-- another transaction that changes or fires it.
-- Raises 22004 for nulls, 42602 and 42622 for a bad name, 42704 for another store. Writes schedules.
CREATE FUNCTION udb.unschedule(name text, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($2), udb._check_name('name', $1);
	DELETE FROM udb.schedules s WHERE s.name = $1;
	RETURN FOUND;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.unschedule(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.unschedule(text, text) IS 'Forget a schedule; false if there is none';

-- sweep_schedules(): fire up to 100 schedules that are due, each once, however often it should have fired
-- meanwhile. One that cannot send its job is tried again later, after 1, 2, 4 seconds and at most 5 minutes; the
-- others do not wait for it, nor for one that somebody has locked. Returns how many were due. A transaction in
-- which one fires is flushed when it commits, also with synchronous_commit off. Writes schedules and jobs.
CREATE FUNCTION udb.sweep_schedules() RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	now CONSTANT timestamptz := clock_timestamp();
	s udb.schedules;
	changed bigint := 0;
	job bigint;
BEGIN
	FOR s IN
		SELECT l.* FROM udb.schedules l WHERE greatest(l.next_run_at, l.retry_at) <= now
		ORDER BY l.next_run_at LIMIT 100 FOR UPDATE SKIP LOCKED
	LOOP
		changed := changed + 1;
		BEGIN
			job := udb.send_job(s.queue, s.payload, priority => s.priority, max_attempts => s.max_attempts,
				ordering_key => s.ordering_key);
			-- never before what has been fired, even if the clock was set back meanwhile
			UPDATE udb.schedules l SET last_run_at = s.next_run_at, last_fired_at = clock_timestamp(),
				last_job_id = job, failures = 0, retry_at = NULL, last_error = NULL,
				next_run_at = udb._next_firing(s.spec, s.time_zone, greatest(clock_timestamp(), s.next_run_at), s.changed_at)
			WHERE l.name = s.name;
		EXCEPTION WHEN OTHERS THEN
			UPDATE udb.schedules l SET failures = s.failures + 1, last_error = sqlerrm,
				retry_at = clock_timestamp() + least(interval '1 second' * 2 ^ least(s.failures, 10), interval '5 minutes')
			WHERE l.name = s.name;
		END;
	END LOOP;
	IF changed > 0 THEN
		PERFORM udb._flush_at_commit();
	END IF;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.sweep_schedules() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_schedules() IS
	'Fire the schedules that are due; returns how many (the worker does this)';

CREATE VIEW udb.schedule_status AS
	SELECT s.name, s.spec, s.time_zone, s.queue, s.next_run_at, s.last_run_at, s.last_fired_at, s.last_job_id,
		greatest(clock_timestamp() - s.next_run_at, interval '0') AS overdue, s.failures, s.retry_at, s.last_error
	FROM udb.schedules s;
COMMENT ON VIEW udb.schedule_status IS 'Schedules: when each was due last and is due next, and what went wrong';
COMMENT ON COLUMN udb.schedule_status.overdue IS 'For how long it should have fired, but has not';
