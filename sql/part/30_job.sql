-- Jobs -------------------------------------------------------------------

-- Numbers of jobs, and of their becoming ready: one sequence, so that a job that is ready at once needs one
-- number only.
CREATE SEQUENCE udb.job_seq AS bigint MINVALUE 1 NO CYCLE;
COMMENT ON SEQUENCE udb.job_seq IS 'Numbers jobs; never call nextval or setval on it';
SELECT pg_catalog.pg_extension_config_dump('udb.job_seq', '');

CREATE SEQUENCE udb.job_claim_token AS bigint MINVALUE 1 NO CYCLE;
COMMENT ON SEQUENCE udb.job_claim_token IS 'Hands out claim tokens; never call nextval or setval on it';
SELECT pg_catalog.pg_extension_config_dump('udb.job_claim_token', '');

-- A claim changes no column that is indexed, and finds room on the row's page: so it makes no index entries.
-- What it does change stands at the end, so that little of the row is logged. The library knows the columns
-- and the indexes.
CREATE TABLE udb.jobs (
	job_id bigint NOT NULL CONSTRAINT jobs_pkey PRIMARY KEY,
	ready_seq bigint,
	created_at timestamptz NOT NULL,
	run_at timestamptz,
	due_at timestamptz,
	expires_at timestamptz,
	priority integer NOT NULL,
	max_attempts integer NOT NULL CHECK (max_attempts > 0),
	queue text COLLATE "C" NOT NULL CHECK (octet_length(queue) BETWEEN 1 AND 255),
	unique_key text COLLATE "C" CHECK (octet_length(unique_key) BETWEEN 1 AND 1024),
	ordering_key text COLLATE "C" CHECK (octet_length(ordering_key) BETWEEN 1 AND 1024),
	payload jsonb NOT NULL,
	last_error text,
	attempts integer NOT NULL,
	claim_token bigint,
	visible_until timestamptz,
	worker_id text,
	state text COLLATE "C" NOT NULL CHECK (state IN ('ready', 'delayed', 'claimed', 'blocked'))
) USING heap WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);
CREATE INDEX jobs_ready_idx ON udb.jobs (queue, priority DESC, ready_seq) WHERE ready_seq IS NOT NULL;
CREATE INDEX jobs_due_idx ON udb.jobs (queue, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_expires_idx ON udb.jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique_key ON udb.jobs (queue, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX jobs_ordering_idx ON udb.jobs (queue, ordering_key, job_id) WHERE ordering_key IS NOT NULL;
COMMENT ON TABLE udb.jobs IS 'Jobs that are not finished; change them with the functions only';
COMMENT ON COLUMN udb.jobs.ready_seq IS 'Order in which jobs became ready; null while delayed or blocked';
COMMENT ON COLUMN udb.jobs.run_at IS 'No sooner than this; null for at once';
COMMENT ON COLUMN udb.jobs.due_at IS 'run_at while the job is delayed, else null';
COMMENT ON COLUMN udb.jobs.expires_at IS 'When it dies unless it has been claimed before; null once it was';
COMMENT ON COLUMN udb.jobs.attempts IS 'How many times it was claimed';
COMMENT ON COLUMN udb.jobs.claim_token IS 'Of the claim that holds it';
COMMENT ON COLUMN udb.jobs.visible_until IS 'When that claim runs out';
COMMENT ON COLUMN udb.jobs.worker_id IS 'Who has claimed it, or did last';
COMMENT ON COLUMN udb.jobs.state IS
	'ready; delayed until due_at; claimed until visible_until; blocked by another job of its ordering key';
SELECT pg_catalog.pg_extension_config_dump('udb.jobs', '');

CREATE TABLE udb.dead_jobs (
	job_id bigint NOT NULL CONSTRAINT dead_jobs_pkey PRIMARY KEY,
	queue text COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	priority integer NOT NULL,
	attempts integer NOT NULL,
	max_attempts integer NOT NULL,
	unique_key text COLLATE "C",
	ordering_key text COLLATE "C",
	claim_token bigint,
	worker_id text,
	last_error text,
	created_at timestamptz NOT NULL,
	died_at timestamptz NOT NULL
);
CREATE INDEX dead_jobs_queue_idx ON udb.dead_jobs (queue, job_id);
COMMENT ON TABLE udb.dead_jobs IS 'Jobs that were given up; redrive_jobs() sends them again';
COMMENT ON COLUMN udb.dead_jobs.claim_token IS 'Of the last claim';
COMMENT ON COLUMN udb.dead_jobs.last_error IS 'Why: what the worker said, or expired, or claim expired';
SELECT pg_catalog.pg_extension_config_dump('udb.dead_jobs', '');

CREATE TYPE udb.job AS (
	job_id bigint,
	queue text,
	payload jsonb,
	state text,
	priority integer,
	attempts integer,
	max_attempts integer,
	unique_key text,
	ordering_key text,
	claim_token bigint,
	worker_id text,
	visible_until timestamptz,
	run_at timestamptz,
	expires_at timestamptz,
	last_error text,
	created_at timestamptz,
	died_at timestamptz
);
COMMENT ON TYPE udb.job IS 'A job as claim_jobs() and get_job() return it; state is that of udb.jobs, or dead';

-- What writes jobs in SQL has to tell the library.
CREATE FUNCTION udb._next_job_seq(queue text) RETURNS bigint
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_next_job_seq';
REVOKE EXECUTE ON FUNCTION udb._next_job_seq(text) FROM PUBLIC;
COMMENT ON FUNCTION udb._next_job_seq(text) IS 'Internal: number of a job that this transaction makes ready';

CREATE FUNCTION udb._job_delayed(queue text, due_at timestamptz) RETURNS timestamptz
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_job_delayed';
REVOKE EXECUTE ON FUNCTION udb._job_delayed(text, timestamptz) FROM PUBLIC;
COMMENT ON FUNCTION udb._job_delayed(text, timestamptz) IS 'Internal: this transaction delays a job; returns due_at';

CREATE FUNCTION udb._job_moved(ready_seq bigint) RETURNS void
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_job_moved';
REVOKE EXECUTE ON FUNCTION udb._job_moved(bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb._job_moved(bigint) IS 'Internal: this transaction removes a job, or gives it another ready_seq';

CREATE FUNCTION udb._lock_ordering_key(queue text, ordering_key text, wait boolean DEFAULT true) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_lock_ordering_key';
REVOKE EXECUTE ON FUNCTION udb._lock_ordering_key(text, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION udb._lock_ordering_key(text, text, boolean) IS
	'Internal: until the end of the transaction, nobody else sends or finishes a job of this key';

CREATE FUNCTION udb._job(j udb.jobs) RETURNS udb.job
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT ROW(j.job_id, j.queue, j.payload, j.state, j.priority, j.attempts, j.max_attempts, j.unique_key,
		j.ordering_key, j.claim_token, j.worker_id, j.visible_until, j.run_at, j.expires_at, j.last_error,
		j.created_at, NULL)::udb.job
	$$;
REVOKE EXECUTE ON FUNCTION udb._job(udb.jobs) FROM PUBLIC;
COMMENT ON FUNCTION udb._job(udb.jobs) IS 'Internal: a row as udb.job';

-- The state and the columns that go with it, of a job that may run from run_at on.
CREATE FUNCTION udb._make_job_ready(job_id bigint) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
	UPDATE udb.jobs j SET
		state = CASE WHEN n.now >= coalesce(j.run_at, n.now) THEN 'ready' ELSE 'delayed' END,
		ready_seq = CASE WHEN n.now >= coalesce(j.run_at, n.now) THEN udb._next_job_seq(j.queue) END,
		due_at = CASE WHEN n.now < j.run_at THEN udb._job_delayed(j.queue, j.run_at) END,
		visible_until = NULL
	FROM (SELECT clock_timestamp() AS now OFFSET 0) n WHERE j.job_id = $1
	$$;
REVOKE EXECUTE ON FUNCTION udb._make_job_ready(bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb._make_job_ready(bigint) IS 'Internal: let a job run, from its run_at on';

-- A job of this key has finished: the next one may run. The lock comes first, as a new statement sees what those
-- have sent who had it before.
CREATE FUNCTION udb._unblock(queue text, ordering_key text) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT udb._lock_ordering_key($1, $2);
	SELECT udb._make_job_ready(n.job_id)
	FROM (SELECT j.job_id, j.state FROM udb.jobs j
		  WHERE j.queue = $1 AND j.ordering_key = $2 ORDER BY j.job_id LIMIT 1) n
	WHERE n.state = 'blocked'
	$$;
REVOKE EXECUTE ON FUNCTION udb._unblock(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._unblock(text, text) IS 'Internal: let the next job of an ordering key run';

CREATE FUNCTION udb._bury_job(job_id bigint, error text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	j udb.jobs;
BEGIN
	SELECT * INTO j FROM udb.jobs WHERE job_id = $1;
	PERFORM udb._job_moved(j.ready_seq);
	IF j.ordering_key IS NOT NULL THEN
		PERFORM udb._lock_ordering_key(j.queue, j.ordering_key);
	END IF;
	DELETE FROM udb.jobs WHERE job_id = $1;
	INSERT INTO udb.dead_jobs (job_id, queue, payload, priority, attempts, max_attempts, unique_key, ordering_key,
		claim_token, worker_id, last_error, created_at, died_at)
	VALUES (j.job_id, j.queue, j.payload, j.priority, j.attempts, j.max_attempts, j.unique_key, j.ordering_key,
		j.claim_token, j.worker_id, $2, j.created_at, clock_timestamp());
	IF j.ordering_key IS NOT NULL THEN
		PERFORM udb._unblock(j.queue, j.ordering_key);
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._bury_job(bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._bury_job(bigint, text) IS 'Internal: move a job to udb.dead_jobs';

-- The arguments that send_job() and send_jobs() share; returns run_at, or null for at once.
CREATE FUNCTION udb._check_send(queue text, delay interval, run_at timestamptz, expires interval,
		priority integer, max_attempts integer, store text) RETURNS timestamptz
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	now CONSTANT timestamptz := clock_timestamp();
	at timestamptz := $3;
BEGIN
	PERFORM udb._check_store($7), udb._check_name('queue', $1), udb._check_not_null('priority', $5),
		udb._check_not_null('max_attempts', $6);
	IF $6 <= 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "max_attempts" must be greater than zero';
	END IF;
	IF $4 IS NOT NULL THEN
		PERFORM udb._check_duration('expires', $4, true);
	END IF;
	IF $2 > interval '0' THEN
		PERFORM udb._check_duration('delay', $2, false);
		at := now + $2;
	ELSIF $2 IS NOT NULL THEN
		at := NULL;
	END IF;
	IF at = 'infinity' THEN
		RAISE datetime_field_overflow USING MESSAGE = 'argument "run_at" is out of range';
	END IF;
	RETURN CASE WHEN at > now THEN at END;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._check_send(text, interval, timestamptz, interval, integer, integer, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_send(text, interval, timestamptz, interval, integer, integer, text) IS
	'Internal: check arguments of send_job(); when the job may run, null for at once';

-- One job, its arguments checked.
CREATE FUNCTION udb._send_job(queue text, payload jsonb, run_at timestamptz, expires interval, priority integer,
		max_attempts integer, unique_key text, ordering_key text) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	now CONSTANT timestamptz := clock_timestamp();
	id bigint;
	blocked boolean := false;
	ready boolean;
BEGIN
	IF $7 IS NOT NULL THEN
		PERFORM udb._check_name('unique_key', $7, 1024);
		SELECT job_id INTO id FROM udb.jobs j WHERE j.queue = $1 AND j.unique_key = $7;
		IF id IS NOT NULL THEN
			RETURN id;
		END IF;
	END IF;
	IF $8 IS NOT NULL THEN
		PERFORM udb._check_name('ordering_key', $8, 1024), udb._lock_ordering_key($1, $8);
		blocked := EXISTS (SELECT FROM udb.jobs j WHERE j.queue = $1 AND j.ordering_key = $8);
	END IF;
	ready := NOT blocked AND $3 IS NULL;
	LOOP
		id := udb._next_job_seq($1);
		INSERT INTO udb.jobs AS j (job_id, ready_seq, created_at, run_at, due_at, expires_at, priority, max_attempts,
			queue, unique_key, ordering_key, payload, attempts, state)
		VALUES (id, CASE WHEN ready THEN id END, now, $3, CASE WHEN NOT blocked THEN udb._job_delayed($1, $3) END,
			coalesce($3, now) + $4, $5, $6, $1, $7, $8, $2, 0,
			CASE WHEN blocked THEN 'blocked' WHEN ready THEN 'ready' ELSE 'delayed' END)
		ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING;
		IF FOUND THEN
			RETURN id;
		END IF;
		SELECT job_id INTO id FROM udb.jobs j WHERE j.queue = $1 AND j.unique_key = $7;
		IF id IS NOT NULL THEN
			RETURN id;
		END IF;
	END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._send_job(text, jsonb, timestamptz, interval, integer, integer, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._send_job(text, jsonb, timestamptz, interval, integer, integer, text, text) IS
	'Internal: add a job';

-- send_job(queue, payload, delay, run_at, expires, priority, max_attempts, unique_key, ordering_key): add a
-- job. Returns its id; while a job of the queue with the same unique_key is not finished, that one's, and
-- nothing is added. It may run after delay, or from run_at on, or at once. If it is not claimed within expires
-- from then on, it dies. Higher priorities come first. Jobs of one ordering_key run one at a time, in the
-- order of their ids. Waits for another transaction that is sending the same unique_key, or sends or finishes
-- a job of the same ordering_key. Raises 22004 for nulls, 42602 and 42622 for a bad queue or key, 22023 for
-- max_attempts or expires that are not positive, 22008 for times out of range, 42704 for another store, 40001
-- in REPEATABLE READ if the same unique_key was sent since the snapshot. Writes jobs.
CREATE FUNCTION udb.send_job(queue text, payload jsonb DEFAULT '{}', delay interval DEFAULT NULL,
		run_at timestamptz DEFAULT NULL, expires interval DEFAULT NULL, priority integer DEFAULT 0,
		max_attempts integer DEFAULT 20, unique_key text DEFAULT NULL, ordering_key text DEFAULT NULL,
		store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	at CONSTANT timestamptz := udb._check_send($1, $3, $4, $5, $6, $7, $10);
BEGIN
	PERFORM udb._check_not_null('payload', $2);
	RETURN udb._send_job($1, $2, at, $5, $6, $7, $8, $9);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.send_job(text, jsonb, interval, timestamptz, interval, integer, integer, text, text, text)
	FROM PUBLIC;
COMMENT ON FUNCTION udb.send_job(text, jsonb, interval, timestamptz, interval, integer, integer, text, text, text) IS
	'Add a job to a queue; returns its id';

-- send_jobs(queue, payloads, delay, run_at, expires, priority, max_attempts, unique_keys, ordering_keys): add
-- a job for each payload, in the order of the array. Returns their ids in that order. The other arrays are as
-- long, or null, and can have null elements. Raises what send_job() raises, and 2202E where the lengths differ.
CREATE FUNCTION udb.send_jobs(queue text, payloads jsonb[], delay interval DEFAULT NULL,
		run_at timestamptz DEFAULT NULL, expires interval DEFAULT NULL, priority integer DEFAULT 0,
		max_attempts integer DEFAULT 20, unique_keys text[] DEFAULT NULL, ordering_keys text[] DEFAULT NULL,
		store text DEFAULT NULL) RETURNS SETOF bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	at CONSTANT timestamptz := udb._check_send($1, $3, $4, $5, $6, $7, $10);
	n CONSTANT integer := cardinality($2);
BEGIN
	PERFORM udb._check_not_null('payloads', $2);
	IF array_ndims($2) > 1 OR array_ndims($8) > 1 OR array_ndims($9) > 1 THEN
		RAISE array_subscript_error USING MESSAGE = 'arguments "payloads", "unique_keys" and "ordering_keys" must be one-dimensional arrays';
	ELSIF cardinality($8) <> n OR cardinality($9) <> n THEN
		RAISE array_subscript_error USING MESSAGE = format('argument "%s" has %s elements, but "payloads" has %s',
			CASE WHEN cardinality($8) <> n THEN 'unique_keys' ELSE 'ordering_keys' END,
			CASE WHEN cardinality($8) <> n THEN cardinality($8) ELSE cardinality($9) END, n);
	ELSIF array_position($2, NULL) IS NOT NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = format('element %s of "payloads" must not be null', array_position($2, NULL));
	END IF;
	RETURN QUERY SELECT udb._send_job($1, p.payload, at, $5, $6, $7, p.unique_key, p.ordering_key)
		FROM unnest($2, $8, $9) WITH ORDINALITY p(payload, unique_key, ordering_key, i) ORDER BY p.i;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.send_jobs(text, jsonb[], interval, timestamptz, interval, integer, integer, text[], text[],
	text) FROM PUBLIC;
COMMENT ON FUNCTION udb.send_jobs(text, jsonb[], interval, timestamptz, interval, integer, integer, text[], text[], text) IS
	'Add jobs to a queue, in the order of the array; returns their ids';

-- Delayed jobs of a queue that are due become ready, in that order. None is due before low.
CREATE FUNCTION udb._make_due_ready(queue text, low timestamptz, max integer) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
	WITH due AS MATERIALIZED (
		SELECT d.job_id, udb._next_job_seq($1) AS ready_seq
		FROM (SELECT j.job_id FROM udb.jobs j WHERE j.queue = $1 AND j.due_at >= $2 AND j.due_at <= clock_timestamp()
			  ORDER BY j.due_at LIMIT $3 FOR UPDATE SKIP LOCKED) d
	)
	UPDATE udb.jobs j SET state = 'ready', ready_seq = due.ready_seq, due_at = NULL
	FROM due WHERE j.job_id = due.job_id
	$$;
REVOKE EXECUTE ON FUNCTION udb._make_due_ready(text, timestamptz, integer) FROM PUBLIC;
COMMENT ON FUNCTION udb._make_due_ready(text, timestamptz, integer) IS 'Internal: delayed jobs that are due become ready';

-- Those of the jobs that have expired die; those whose claim has run out are ready again, or die if they have
-- no attempt left. Waits for nobody.
CREATE FUNCTION udb._settle_jobs(job_ids bigint[]) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	settled bigint := 0;
	id bigint;
	j record;
BEGIN
	FOREACH id IN ARRAY $1 LOOP
		-- first the key, as those have it who finish jobs and then change the next one
		SELECT l.queue, l.ordering_key INTO j FROM udb.jobs l WHERE l.job_id = id;
		CONTINUE WHEN NOT udb._lock_ordering_key(j.queue, j.ordering_key, false);
		SELECT l.state, l.ready_seq, l.attempts, l.max_attempts INTO j FROM udb.jobs l
		WHERE l.job_id = id AND CASE l.state WHEN 'claimed' THEN l.visible_until ELSE l.expires_at END <= clock_timestamp()
		FOR UPDATE SKIP LOCKED;
		CONTINUE WHEN NOT FOUND;
		settled := settled + 1;
		IF j.state <> 'claimed' THEN
			PERFORM udb._bury_job(id, 'expired');
		ELSIF j.attempts >= j.max_attempts THEN
			PERFORM udb._bury_job(id, 'claim expired');
		ELSE
			PERFORM udb._job_moved(j.ready_seq);
			UPDATE udb.jobs SET last_error = 'claim expired', run_at = NULL WHERE job_id = id;
			PERFORM udb._make_job_ready(id);
		END IF;
	END LOOP;
	RETURN settled;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._settle_jobs(bigint[]) FROM PUBLIC;
COMMENT ON FUNCTION udb._settle_jobs(bigint[]) IS 'Internal: what time has brought to these jobs';

CREATE FUNCTION udb._overdue_jobs() RETURNS SETOF bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_overdue_jobs';
REVOKE EXECUTE ON FUNCTION udb._overdue_jobs() FROM PUBLIC;
COMMENT ON FUNCTION udb._overdue_jobs() IS 'Internal: jobs whose claim has run out';

-- sweep_jobs(): up to 1000 jobs whose claim has run out become ready again, or die if they have no attempt
-- left, and as many that expire die. Returns how many. Waits for nobody. The worker calls it; claim_jobs() does
-- not depend on that.
CREATE FUNCTION udb.sweep_jobs() RETURNS bigint
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT udb._settle_jobs(ARRAY(SELECT udb._overdue_jobs() LIMIT 1000)
		|| ARRAY(SELECT j.job_id FROM udb.jobs j WHERE j.expires_at <= clock_timestamp() LIMIT 1000))
	$$;
REVOKE EXECUTE ON FUNCTION udb.sweep_jobs() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_jobs() IS
	'Rescue jobs whose claim has run out, bury those that expire; returns how many (the worker does this)';

-- claim_jobs(queue, worker_id, batch, visibility): take up to batch jobs that may run, those of the highest
-- priority first, then in the order in which they became ready. They are this worker's for so long by the
-- database's clock, whatever becomes of its transactions after the one that claims; then somebody else can
-- take them, as a further attempt with last_error 'claim expired'. All of one call have the same claim_token,
-- greater than any before. An empty result if batch is not positive. Waits for nobody.
-- Raises 22004 for nulls, 42602 and 42622 for a bad queue or worker, 22023 for a visibility that is not
-- positive, 42704 for another store. Writes jobs, and dead_jobs for those that have no attempt left.
CREATE FUNCTION udb.claim_jobs(queue text, worker_id text, batch integer DEFAULT 1,
		visibility interval DEFAULT '30 seconds', store text DEFAULT NULL) RETURNS SETOF udb.job
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 50 AS 'MODULE_PATHNAME', 'udb_claim_jobs';
REVOKE EXECUTE ON FUNCTION udb.claim_jobs(text, text, integer, interval, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.claim_jobs(text, text, integer, interval, text) IS
	'Take jobs that may run, for a time; all of one call have the same claim token';

-- ack_jobs(job_ids, claim_token): the jobs are done, and are removed. Returns how many were; those that are
-- not, or no longer, claimed with this token stay as they are. Raises 22004 for nulls, 42704 for another store.
-- Writes jobs.
CREATE FUNCTION udb.ack_jobs(job_ids bigint[], claim_token bigint, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_ack_jobs';
REVOKE EXECUTE ON FUNCTION udb.ack_jobs(bigint[], bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.ack_jobs(bigint[], bigint, text) IS
	'Jobs of one claim are done: remove them; returns how many that were';

-- ack_job(job_id, claim_token): the same for one job. False, and nothing changes, if it is not claimed with
-- this token any more.
CREATE FUNCTION udb.ack_job(job_id bigint, claim_token bigint, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_ack_job';
REVOKE EXECUTE ON FUNCTION udb.ack_job(bigint, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.ack_job(bigint, bigint, text) IS
	'A claimed job is done: remove it; false if it is not claimed with this token';

-- retry_job(job_id, claim_token, delay, error): the attempt has failed; let the job run again after delay, or
-- else after 1, 2, 4 ... seconds, an hour at most, less up to a quarter. With no attempt left it dies. False,
-- and nothing changes, if it is not claimed with this token. Raises 22004 for nulls, 22008 for a delay out of
-- range, 42704 for another store. Writes jobs, or moves it to dead_jobs.
CREATE FUNCTION udb.retry_job(job_id bigint, claim_token bigint, delay interval DEFAULT NULL,
		error text DEFAULT NULL, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	j udb.jobs;
	wait interval := $3;
BEGIN
	PERFORM udb._check_store($5), udb._check_not_null('job_id', $1), udb._check_not_null('claim_token', $2);
	IF wait > interval '0' THEN
		PERFORM udb._check_duration('delay', wait, false);
	END IF;
	SELECT * INTO j FROM udb.jobs l WHERE l.job_id = $1 AND l.claim_token = $2 AND l.state = 'claimed' FOR UPDATE;
	IF NOT FOUND OR j.visible_until <= clock_timestamp() THEN
		RETURN false;
	ELSIF j.attempts >= j.max_attempts THEN
		PERFORM udb._bury_job($1, $4);
		RETURN true;
	END IF;
	PERFORM udb._job_moved(j.ready_seq);
	wait := coalesce(wait, least(power(2, least(j.attempts - 1, 20)), 3600) * (1 - random() / 4) * interval '1 second');
	UPDATE udb.jobs SET run_at = CASE WHEN wait > interval '0' THEN clock_timestamp() + wait END, last_error = $4
	WHERE job_id = $1;
	PERFORM udb._make_job_ready($1);
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.retry_job(bigint, bigint, interval, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.retry_job(bigint, bigint, interval, text, text) IS
	'An attempt has failed: let the job run again later; false if it is not claimed with this token';

-- fail_job(job_id, claim_token, error): give the job up, whatever attempts are left. False, and nothing
-- changes, if it is not claimed with this token. Raises 22004, 42704. Moves it to dead_jobs.
CREATE FUNCTION udb.fail_job(job_id bigint, claim_token bigint, error text DEFAULT NULL, store text DEFAULT NULL)
	RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($4), udb._check_not_null('job_id', $1), udb._check_not_null('claim_token', $2);
	PERFORM FROM udb.jobs l WHERE l.job_id = $1 AND l.claim_token = $2 AND l.state = 'claimed'
		AND l.visible_until > clock_timestamp() FOR UPDATE;
	IF FOUND THEN
		PERFORM udb._bury_job($1, $3);
	END IF;
	RETURN FOUND;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.fail_job(bigint, bigint, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.fail_job(bigint, bigint, text, text) IS
	'Give a claimed job up; false if it is not claimed with this token';

-- extend_job(job_id, claim_token, visibility): let the claim run out this long from now. False if the job is
-- not claimed with this token. Raises 22004 for nulls, 22023 for a visibility that is not positive, 42704.
CREATE FUNCTION udb.extend_job(job_id bigint, claim_token bigint, visibility interval DEFAULT '30 seconds',
		store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	j udb.jobs;
	until timestamptz;
BEGIN
	PERFORM udb._check_store($4), udb._check_not_null('job_id', $1), udb._check_not_null('claim_token', $2),
		udb._check_duration('visibility', $3, true);
	SELECT * INTO j FROM udb.jobs l WHERE l.job_id = $1 AND l.claim_token = $2 AND l.state = 'claimed' FOR UPDATE;
	until := clock_timestamp() + $3;
	IF NOT FOUND OR j.visible_until <= clock_timestamp() THEN
		RETURN false;
	ELSIF until >= j.visible_until THEN
		UPDATE udb.jobs SET visible_until = until WHERE job_id = $1;
	ELSE
		-- sooner than those know who have seen it: to a place that they have not passed
		PERFORM udb._job_moved(j.ready_seq);
		UPDATE udb.jobs SET visible_until = until, ready_seq = udb._next_job_seq(j.queue) WHERE job_id = $1;
	END IF;
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.extend_job(bigint, bigint, interval, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.extend_job(bigint, bigint, interval, text) IS
	'Let a claim run out later; false if the job is not claimed with this token';

-- get_job(job_id): a job that is not finished, or dead; null if it is neither. Raises 22004, 42704.
CREATE FUNCTION udb.get_job(job_id bigint, store text DEFAULT NULL) RETURNS udb.job
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	result udb.job;
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('job_id', $1);
	SELECT (udb._job(j)).* INTO result FROM udb.jobs j WHERE j.job_id = $1;
	IF NOT FOUND THEN
		SELECT d.job_id, d.queue, d.payload, 'dead', d.priority, d.attempts, d.max_attempts, d.unique_key,
			d.ordering_key, d.claim_token, d.worker_id, NULL, NULL, NULL, d.last_error, d.created_at, d.died_at
		INTO result FROM udb.dead_jobs d WHERE d.job_id = $1;
	END IF;
	RETURN CASE WHEN FOUND THEN result END;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.get_job(bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.get_job(bigint, text) IS 'A job, live or dead; null when it is unknown or done';

-- redrive_jobs(queue, job_ids, row_limit): send dead jobs of the queue again, all of them or these, the oldest
-- first, with the same id and all attempts before them. One whose unique_key a live job has stays dead.
-- Returns how many it sent. None if row_limit is not positive. Raises 22004 for no queue, 42602 and 42622 for
-- a bad one, 42704. Moves them from dead_jobs to jobs.
CREATE FUNCTION udb.redrive_jobs(queue text, job_ids bigint[] DEFAULT NULL, row_limit integer DEFAULT NULL,
		store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	sent bigint := 0;
	d udb.dead_jobs;
	blocked boolean;
BEGIN
	PERFORM udb._check_store($4), udb._check_name('queue', $1);
	FOR d IN
		SELECT * FROM udb.dead_jobs l WHERE l.queue = $1 AND ($2 IS NULL OR l.job_id = ANY ($2))
		ORDER BY l.job_id LIMIT CASE WHEN $3 IS NOT NULL THEN greatest($3, 0) END FOR UPDATE SKIP LOCKED
	LOOP
		blocked := false;
		IF d.ordering_key IS NOT NULL THEN
			PERFORM udb._lock_ordering_key(d.queue, d.ordering_key);
			blocked := EXISTS (SELECT FROM udb.jobs j WHERE j.queue = d.queue AND j.ordering_key = d.ordering_key);
		END IF;
		INSERT INTO udb.jobs (job_id, ready_seq, created_at, priority, max_attempts, queue, unique_key, ordering_key,
			payload, last_error, attempts, claim_token, worker_id, state)
		VALUES (d.job_id, CASE WHEN NOT blocked THEN udb._next_job_seq(d.queue) END, d.created_at, d.priority, d.max_attempts,
			d.queue, d.unique_key, d.ordering_key, d.payload, d.last_error, 0, d.claim_token, d.worker_id,
			CASE WHEN blocked THEN 'blocked' ELSE 'ready' END)
		ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING;
		IF FOUND THEN
			DELETE FROM udb.dead_jobs l WHERE l.job_id = d.job_id;
			sent := sent + 1;
		END IF;
	END LOOP;
	RETURN sent;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.redrive_jobs(text, bigint[], integer, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.redrive_jobs(text, bigint[], integer, text) IS
	'Send dead jobs of a queue again; returns how many';

-- wait_for_jobs(queue, timeout): true as soon as claim_jobs() would return something, false after the timeout.
-- Its query keeps a snapshot: for long waits use await_jobs(). Raises 22004, 42602, 42622, 22023 for a negative
-- timeout, 22008 for one that is out of range, 42704 for another store, 25006 on a standby.
CREATE FUNCTION udb.wait_for_jobs(queue text, timeout interval, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_wait_for_jobs';
REVOKE EXECUTE ON FUNCTION udb.wait_for_jobs(text, interval, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.wait_for_jobs(text, interval, text) IS
	'Wait until a queue has jobs (true) or the timeout is over (false)';

-- CALL await_jobs(queue, timeout, ready): the same without a snapshot, so that it holds back no vacuum however
-- long it waits. Raises 2D000 inside a transaction block.
CREATE PROCEDURE udb.await_jobs(queue text, timeout interval, INOUT ready boolean DEFAULT NULL,
		store text DEFAULT NULL)
	LANGUAGE c AS 'MODULE_PATHNAME', 'udb_await_jobs';
REVOKE EXECUTE ON PROCEDURE udb.await_jobs(text, interval, boolean, text) FROM PUBLIC;
COMMENT ON PROCEDURE udb.await_jobs(text, interval, boolean, text) IS
	'Wait for jobs without holding a snapshot; only outside of transaction blocks';

-- What claim_jobs() could take counts as ready, whatever its row still says.
CREATE VIEW udb.queue_status AS
	SELECT queue, coalesce(l.ready, 0) AS ready, coalesce(l.delayed, 0) AS delayed, coalesce(l.claimed, 0) AS claimed,
		coalesce(l.blocked, 0) AS blocked, coalesce(d.dead, 0) AS dead,
		coalesce(extract(epoch FROM clock_timestamp() - l.oldest), 0)::double precision AS oldest_seconds
	FROM (SELECT j.queue, count(*) FILTER (WHERE s.state = 'ready') AS ready,
			count(*) FILTER (WHERE s.state = 'delayed') AS delayed, count(*) FILTER (WHERE s.state = 'claimed') AS claimed,
			count(*) FILTER (WHERE s.state = 'blocked') AS blocked,
			min(coalesce(j.run_at, j.created_at)) FILTER (WHERE s.state = 'ready') AS oldest
		  FROM udb.jobs j, LATERAL (SELECT CASE WHEN j.due_at <= clock_timestamp()
				OR j.state = 'claimed' AND j.visible_until <= clock_timestamp() THEN 'ready' ELSE j.state END AS state) s
		  GROUP BY j.queue) l
		FULL JOIN (SELECT queue, count(*) AS dead FROM udb.dead_jobs GROUP BY queue) d USING (queue);
COMMENT ON VIEW udb.queue_status IS 'One row a queue that has jobs: how many in which state, age of the oldest that is ready';
COMMENT ON COLUMN udb.queue_status.ready IS
	'Jobs that can be claimed, delayed ones that are due and claims that have run out included';
