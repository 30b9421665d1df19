-- Stopping ---------------------------------------------------------------

CREATE FUNCTION pause_at(point text, lock bigint, after integer DEFAULT 0) RETURNS void
	LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'udb_test_pause_at';
COMMENT ON FUNCTION pause_at(text, bigint, integer) IS
	'In this session, stop at a point, after having passed it so many times, while another session holds the advisory lock';

CREATE FUNCTION no_pause() RETURNS void
	LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'udb_test_no_pause';
COMMENT ON FUNCTION no_pause() IS 'Undo pause_at()';

CREATE FUNCTION hold_notify() RETURNS void
	LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'udb_test_hold_notify';
COMMENT ON FUNCTION hold_notify() IS
	'Until this transaction ends, stop others that have used NOTIFY in the middle of their COMMIT';

-- A consumer that keeps account ------------------------------------------

CREATE TABLE started (consumer text COLLATE "C" PRIMARY KEY, position bigint NOT NULL);
CREATE TABLE seen (
	n bigserial PRIMARY KEY,
	consumer text COLLATE "C" NOT NULL,
	event_seq bigint NOT NULL,
	payload jsonb NOT NULL
);

-- Enqueue an event whose payload is its name. A procedure, as isolationtester prints no result of it.
CREATE PROCEDURE put(name text, topic text DEFAULT 't')
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM udb.enqueue(topic, to_jsonb(name));
END
$$;

-- Register a consumer that starts here, with clean books.
CREATE PROCEDURE start(consumer text, topics text[] DEFAULT NULL)
	LANGUAGE plpgsql AS $$
DECLARE
	c ALIAS FOR consumer;
	t ALIAS FOR topics;
BEGIN
	DELETE FROM udb_test.started s WHERE s.consumer = c;
	DELETE FROM udb_test.seen s WHERE s.consumer = c;
	INSERT INTO udb_test.started VALUES (c, udb.create_consumer(c, t, 'latest'));
END
$$;

CREATE FUNCTION started(consumer text) RETURNS bigint
	LANGUAGE sql VOLATILE AS $$ SELECT s.position FROM udb_test.started s WHERE s.consumer = $1 $$;

-- What a consumer does: read all there is, then say that it is done with everything up to the
-- horizon as it was before. Returns the payloads.
CREATE FUNCTION consume(consumer text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	c ALIAS FOR consumer;
	done bigint := udb.outbox_stable_seq();
	result text;
BEGIN
	WITH r AS (SELECT * FROM udb.read(c, 10000)),
		i AS (INSERT INTO udb_test.seen (consumer, event_seq, payload) SELECT c, r.event_seq, r.payload FROM r)
	SELECT string_agg(r.payload->>0, ' '), greatest(max(r.event_seq), done) INTO result, done FROM r;
	PERFORM udb.checkpoint(c, done);
	RETURN coalesce(result, '-');
END
$$;

-- What it would read, without books.
CREATE FUNCTION look(consumer text, max_events integer DEFAULT 100) RETURNS text
	LANGUAGE sql VOLATILE AS $$
	SELECT coalesce(string_agg(r.payload->>0, ' '), '-') FROM udb.read($1, $2) r
$$;

-- Consume the rest, compare the books with what was committed (each exactly once, in order), and drop
-- the consumer.
CREATE FUNCTION verdict(consumer text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	c ALIAS FOR consumer;
	problem text;
	result text;
BEGIN
	PERFORM udb_test.consume(c);
	WITH k AS (SELECT k.* FROM udb.consumers k WHERE k.name = c),
		want AS (
			SELECT e.event_seq, e.payload FROM udb.outbox_events e, k, udb_test.started s
			WHERE s.consumer = c AND e.event_seq > s.position AND (k.topics IS NULL OR e.topic = ANY (k.topics))
				AND NOT EXISTS (SELECT FROM udb.dead_events d WHERE d.consumer = c AND d.event_seq = e.event_seq)
			UNION ALL
			SELECT d.redrive_seq, d.payload FROM udb.dead_events d
			WHERE d.consumer = c AND d.redrive_seq IS NOT NULL),
		got AS (SELECT s.n, s.event_seq, s.payload FROM udb_test.seen s WHERE s.consumer = c),
		wrong AS (
			SELECT w.event_seq, 'LOST ' || (w.payload->>0) AS what FROM want w
			WHERE NOT EXISTS (SELECT FROM got g WHERE g.event_seq = w.event_seq)
			UNION ALL
			SELECT g.event_seq, 'NEVER COMMITTED ' || (g.payload->>0) FROM got g
			WHERE NOT EXISTS (SELECT FROM want w WHERE g.event_seq = w.event_seq)
			UNION ALL
			SELECT g.event_seq, 'TWICE ' || min(g.payload->>0) FROM got g
			GROUP BY g.event_seq HAVING count(*) > 1
			UNION ALL
			SELECT g.event_seq, 'OUT OF ORDER ' || (g.payload->>0) FROM got g
			WHERE EXISTS (SELECT FROM got h WHERE h.n < g.n AND h.event_seq > g.event_seq))
	SELECT string_agg(what, ', ' ORDER BY event_seq, what) INTO problem FROM wrong;
	SELECT string_agg(s.payload->>0, ' ' ORDER BY s.n) INTO result FROM udb_test.seen s WHERE s.consumer = c;
	PERFORM udb.drop_consumer(c);
	RETURN coalesce(problem, 'exactly ' || coalesce(result, 'nothing'));
END
$$;

-- Names for positions: the payload of the event, and back.
CREATE FUNCTION at(event_seq bigint) RETURNS text
	LANGUAGE sql VOLATILE AS $$
	SELECT coalesce((SELECT e.payload->>0 FROM udb.outbox_events e WHERE e.event_seq = $1), 'no event')
$$;

CREATE FUNCTION pos(payload text) RETURNS bigint
	LANGUAGE sql VOLATILE AS $$
	SELECT max(e.event_seq) FROM udb.outbox_events e WHERE e.payload = to_jsonb($1)
$$;

-- Event ids that differ from those of the permutation before.
CREATE SEQUENCE ids;

CREATE PROCEDURE new_ids()
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('udb_test.ids');
END
$$;

CREATE FUNCTION id(n integer) RETURNS uuid
	LANGUAGE sql VOLATILE AS $$
	SELECT format('%s-0000-4000-8000-%s', lpad(n::text, 8, '0'), lpad(last_value::text, 12, '0'))::uuid
	FROM udb_test.ids
$$;

CREATE FUNCTION put_id(name text, n integer) RETURNS bigint
	LANGUAGE sql VOLATILE AS $$ SELECT udb.enqueue('t', to_jsonb(name), '', udb_test.id(n)) $$;

-- Leave the current segment: the next event is in another one.
CREATE PROCEDURE next_segment()
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM setval('udb.outbox_position',
		(max(s.end_position) / 1024 * 1024 + 1025) + current_setting('udb.outbox_segment_size')::bigint)
	FROM udb.outbox_segments s;
END
$$;

-- Make all events old enough for retention.
CREATE PROCEDURE age_all()
	LANGUAGE plpgsql AS $$
BEGIN
	UPDATE udb.outbox_events SET created_at = created_at - interval '1 year';
END
$$;

-- Drop all segments but the newest.
CREATE PROCEDURE sweep_all()
	LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3000 LOOP
		PERFORM udb.sweep_outbox_retention();
		COMMIT;
		IF (SELECT count(*) <= 1 FROM udb.outbox_segments) THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE 'old segments stay';
END
$$;

CREATE FUNCTION myself() RETURNS text
	LANGUAGE sql VOLATILE AS $$
	SELECT format('host=%s port=%s dbname=%s user=%s', current_setting('unix_socket_directories'),
		current_setting('port'), current_database(), current_user)
$$;

-- After ALTER SYSTEM SET udb.worker = off: load that, and wait until there is no worker. A new session
-- tells when the postmaster has loaded it; a worker that starts later leaves at once. One that was just
-- starting may miss the signal (until they install a handler, background workers ignore it): send it again.
CREATE PROCEDURE no_worker()
	LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 1000 LOOP
		PERFORM pg_reload_conf();
		PERFORM pg_stat_clear_snapshot();
		IF (SELECT w = 'off' FROM public.dblink(udb_test.myself(), 'SHOW udb.worker') AS r (w text))
			AND NOT EXISTS (SELECT FROM pg_stat_activity
				WHERE backend_type = 'udb worker' AND datname = current_database()) THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE 'the worker does not leave';
END
$$;

-- The result of a query, or the error's code where its text would name positions that vary.
CREATE FUNCTION try(query text) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END
$$;

-- A session in the background, for what waits on no lock -----------------

CREATE FUNCTION background(sql text) RETURNS void
	LANGUAGE plpgsql AS $$
BEGIN
	IF NOT coalesce('udb_test' = ANY (public.dblink_get_connections()), false) THEN
		PERFORM public.dblink_connect('udb_test', udb_test.myself());
		PERFORM public.dblink_exec('udb_test', 'SET application_name = udb_test_background');
	END IF;
	PERFORM public.dblink_send_query('udb_test', sql);
END
$$;

-- An open transaction that has enqueued in another database.
CREATE PROCEDURE other_database_begin()
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.dblink_connect('udb_other', udb_test.myself() || ' dbname=postgres');
	PERFORM public.dblink_exec('udb_other', 'CREATE EXTENSION IF NOT EXISTS udb', false);
	PERFORM public.dblink_exec('udb_other', 'BEGIN');
	PERFORM * FROM public.dblink('udb_other', $q$ SELECT udb.enqueue('t', '"other"') $q$) AS r (position bigint);
END
$$;

CREATE PROCEDURE other_database_end()
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.dblink_exec('udb_other', 'ROLLBACK');
	PERFORM public.dblink_disconnect('udb_other');
END
$$;

-- 'asleep' once it waits for events; its answer if it has one.
CREATE FUNCTION background_state() RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	FOR i IN 1 .. 3000 LOOP
		IF public.dblink_is_busy('udb_test') = 0 THEN
			EXIT;
		END IF;
		PERFORM pg_stat_clear_snapshot();
		IF EXISTS (SELECT FROM pg_stat_activity
				WHERE application_name = 'udb_test_background' AND wait_event_type = 'Extension') THEN
			RETURN 'asleep';
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN udb_test.background_answer();
END
$$;

-- Its answer, which must come within the given time.
CREATE FUNCTION background_answer(seconds integer DEFAULT 30) RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	result text := 'no answer';
BEGIN
	FOR i IN 1 .. seconds * 100 LOOP
		EXIT WHEN public.dblink_is_busy('udb_test') = 0;
		PERFORM pg_sleep(0.01);
	END LOOP;
	IF public.dblink_is_busy('udb_test') = 0 THEN
		SELECT a INTO result FROM public.dblink_get_result('udb_test', false) AS r (a text);
		PERFORM * FROM public.dblink_get_result('udb_test', false) AS r (a text);
	END IF;
	RETURN result;
END
$$;

CREATE FUNCTION background_end() RETURNS void
	LANGUAGE plpgsql AS $$
BEGIN
	IF coalesce('udb_test' = ANY (public.dblink_get_connections()), false) THEN
		PERFORM public.dblink_cancel_query('udb_test');
		PERFORM public.dblink_disconnect('udb_test');
	END IF;
END
$$;
