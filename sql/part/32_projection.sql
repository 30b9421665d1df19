-- Projection tasks ---------------------------------------------------------

-- The library knows the columns up to status, created_at and claim_token by their numbers.
CREATE TABLE udb.projection_tasks (
	task_id uuid NOT NULL CONSTRAINT projection_tasks_pkey PRIMARY KEY DEFAULT udb.generate_uuidv7(),
	idempotency_key text COLLATE "C" NOT NULL CONSTRAINT projection_tasks_key UNIQUE
		CHECK (octet_length(idempotency_key) BETWEEN 1 AND 1024),
	project_id text COLLATE "C" NOT NULL,
	manifest_checksum text NOT NULL,
	message_type text NOT NULL,
	source_schema text COLLATE "C" NOT NULL,
	source_table text COLLATE "C" NOT NULL,
	source_row_key jsonb NOT NULL,
	operation text NOT NULL CHECK (operation IN ('upsert', 'delete')),
	target_backend text COLLATE "C" NOT NULL,
	target_instance text COLLATE "C" NOT NULL,
	projection_kind text COLLATE "C" NOT NULL,
	resource_name text NOT NULL,
	target_options jsonb NOT NULL,
	source_payload jsonb,
	source_checksum text NOT NULL,
	status text NOT NULL DEFAULT 'PENDING'
		CHECK (status IN ('PENDING', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'DEAD_LETTER')),
	retry_count integer NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
	last_error text,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	next_retry_at timestamptz,
	completed_at timestamptz,
	claim_token bigint NOT NULL DEFAULT 0,
	repairable boolean NOT NULL DEFAULT true
) WITH (autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE udb.projection_tasks IS
	'What has to be brought from a source table into a target; change it with the functions only';
COMMENT ON COLUMN udb.projection_tasks.idempotency_key IS 'Names the task; a second one of the same key is not made';
COMMENT ON COLUMN udb.projection_tasks.source_payload IS 'What to bring there; may be null, as for a delete';
COMMENT ON COLUMN udb.projection_tasks.last_error IS 'Why it failed last, or who has put it back';
COMMENT ON COLUMN udb.projection_tasks.updated_at IS 'Last change of its status, or last heartbeat';
COMMENT ON COLUMN udb.projection_tasks.next_retry_at IS 'When a FAILED task can be claimed again';
COMMENT ON COLUMN udb.projection_tasks.claim_token IS 'Of the last claim; grows with each one, 0 before the first';
COMMENT ON COLUMN udb.projection_tasks.repairable IS 'False: only an operator puts it back';
SELECT pg_catalog.pg_extension_config_dump('udb.projection_tasks', '');

-- Completed tasks, which are most, are in none of these.
CREATE INDEX projection_tasks_pending ON udb.projection_tasks (created_at, task_id) WHERE status = 'PENDING';
CREATE INDEX projection_tasks_pending_backend ON udb.projection_tasks (target_backend, created_at, task_id)
	WHERE status = 'PENDING';
CREATE INDEX projection_tasks_failed ON udb.projection_tasks (next_retry_at, retry_count) WHERE status = 'FAILED';
CREATE INDEX projection_tasks_in_progress ON udb.projection_tasks (updated_at) WHERE status = 'IN_PROGRESS';
CREATE INDEX projection_tasks_dead ON udb.projection_tasks
	(project_id, source_table, target_backend, target_instance) WHERE status = 'DEAD_LETTER';

-- Tells, when the transaction commits, who waits for a task that it has ended, and where to look for those
-- that it has made pending. A claim does neither.
CREATE FUNCTION udb._projection_task_changed() RETURNS trigger
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_projection_task_changed';
REVOKE EXECUTE ON FUNCTION udb._projection_task_changed() FROM PUBLIC;
COMMENT ON FUNCTION udb._projection_task_changed() IS 'Internal: trigger of udb.projection_tasks';
CREATE TRIGGER changed AFTER INSERT OR DELETE ON udb.projection_tasks
	FOR EACH ROW EXECUTE FUNCTION udb._projection_task_changed();
CREATE TRIGGER changed_status AFTER UPDATE ON udb.projection_tasks
	FOR EACH ROW WHEN (new.status <> 'IN_PROGRESS') EXECUTE FUNCTION udb._projection_task_changed();

-- enqueue_projection_task(...): make a task and return its id; if there is one of this key already, return
-- that one's id and change nothing. If another transaction is just making it, wait for that one's end.
-- What has to be given: idempotency_key, project_id, source_table, target_backend.
-- Raises 22004 for nulls, 42602 and 42622 for bad names, 22023 for another operation, 25006 where it cannot
-- write, 40001 in REPEATABLE READ if the key is there since the snapshot. Writes projection_tasks.
CREATE FUNCTION udb.enqueue_projection_task(idempotency_key text, project_id text, manifest_checksum text DEFAULT '',
		message_type text DEFAULT '', source_schema text DEFAULT '', source_table text DEFAULT NULL,
		source_row_key jsonb DEFAULT '{}', operation text DEFAULT 'upsert', target_backend text DEFAULT NULL,
		target_instance text DEFAULT '', projection_kind text DEFAULT '', resource_name text DEFAULT '',
		target_options jsonb DEFAULT '{}', source_payload jsonb DEFAULT NULL, source_checksum text DEFAULT '',
		store text DEFAULT NULL) RETURNS uuid
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	id uuid;
BEGIN
	PERFORM udb._check_store($16), udb._check_name('idempotency_key', $1, 1024), udb._check_name('project_id', $2),
		udb._check_not_null('manifest_checksum', $3), udb._check_not_null('message_type', $4),
		udb._check_not_null('source_schema', $5), udb._check_name('source_table', $6),
		udb._check_not_null('source_row_key', $7), udb._check_not_null('operation', $8),
		udb._check_name('target_backend', $9), udb._check_not_null('target_instance', $10),
		udb._check_not_null('projection_kind', $11), udb._check_not_null('resource_name', $12),
		udb._check_not_null('target_options', $13), udb._check_not_null('source_checksum', $15);
	PERFORM udb._check_name(v.argument, v.value) FROM (VALUES ('source_schema', $5), ('target_instance', $10),
		('projection_kind', $11)) v(argument, value) WHERE v.value <> '';
	IF $8 NOT IN ('upsert', 'delete') THEN
		RAISE invalid_parameter_value USING MESSAGE = format('unknown operation "%s"', $8),
			HINT = 'Use upsert or delete.';
	END IF;

	LOOP
		INSERT INTO udb.projection_tasks (idempotency_key, project_id, manifest_checksum, message_type, source_schema,
			source_table, source_row_key, operation, target_backend, target_instance, projection_kind,
			resource_name, target_options, source_payload, source_checksum)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
		ON CONFLICT (idempotency_key) DO NOTHING RETURNING task_id INTO id;
		IF id IS NULL THEN
			SELECT t.task_id INTO id FROM udb.projection_tasks t WHERE t.idempotency_key = $1;
		END IF;
		-- unless it was deleted in between
		EXIT WHEN id IS NOT NULL;
	END LOOP;
	RETURN id;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.enqueue_projection_task(text, text, text, text, text, text, jsonb, text, text, text, text,
	text, jsonb, jsonb, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.enqueue_projection_task(text, text, text, text, text, text, jsonb, text, text, text, text,
	text, jsonb, jsonb, text, text) IS 'Make a projection task, or find the one of the same key; returns its id';

-- claim_projection_tasks(batch_size, max_retries, target_backend, target_instance, project_id): take tasks
-- that are PENDING, and those FAILED whose time has come and that have failed less than max_retries times,
-- oldest first. A null filter takes any. Skips what another transaction holds. Each claim has a token that
-- complete, fail and heartbeat can ask for. None if batch_size is not positive.
-- Raises 22004 for nulls, 25006 where it cannot write. Writes projection_tasks.
CREATE FUNCTION udb.claim_projection_tasks(batch_size integer DEFAULT 50, max_retries integer DEFAULT 5,
		target_backend text DEFAULT NULL, target_instance text DEFAULT NULL, project_id text DEFAULT NULL,
		store text DEFAULT NULL) RETURNS SETOF udb.projection_tasks
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_claim_projection_tasks';
REVOKE EXECUTE ON FUNCTION udb.claim_projection_tasks(integer, integer, text, text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.claim_projection_tasks(integer, integer, text, text, text, text) IS
	'Take the oldest projection tasks that are due and that nobody else takes';

-- In what follows the status is asked for by CASE, so that a task is found by its id: the planner takes the
-- index of those in progress for empty, but it is full of dead entries.

-- complete_projection_task(task_id [, claim_token]): the task is done. False, and nothing changes, unless it
-- is IN_PROGRESS, by the claim with this token if one is given.
-- Raises 22004 for nulls. Writes projection_tasks, and wakes wait_for_fence() when this is committed.
CREATE FUNCTION udb.complete_projection_task(task_id uuid, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('task_id', $1);
	UPDATE udb.projection_tasks t SET status = 'COMPLETED', last_error = NULL, updated_at = clock_timestamp(),
		next_retry_at = NULL, completed_at = clock_timestamp()
	WHERE t.task_id = $1 AND CASE t.status WHEN 'IN_PROGRESS' THEN true END;
	RETURN FOUND;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.complete_projection_task(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.complete_projection_task(uuid, text) IS
	'Mark a projection task as done; false unless it is in progress';

CREATE FUNCTION udb.complete_projection_task(task_id uuid, claim_token bigint, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($3), udb._check_not_null('task_id', $1), udb._check_not_null('claim_token', $2);
	UPDATE udb.projection_tasks t SET status = 'COMPLETED', last_error = NULL, updated_at = clock_timestamp(),
		next_retry_at = NULL, completed_at = clock_timestamp()
	WHERE t.task_id = $1 AND CASE t.status WHEN 'IN_PROGRESS' THEN true END AND t.claim_token = $2;
	RETURN FOUND;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.complete_projection_task(uuid, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.complete_projection_task(uuid, bigint, text) IS
	'Mark a projection task as done; false unless it is in progress by this claim';

CREATE FUNCTION udb._fail_projection_task(task_id uuid, claim_token bigint, new_retry_count integer, new_status text,
		error text, repairable boolean, store text) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($7), udb._check_not_null('task_id', $1), udb._check_not_null('new_retry_count', $3),
		udb._check_not_null('new_status', $4), udb._check_not_null('repairable', $6);
	IF $4 NOT IN ('FAILED', 'DEAD_LETTER') THEN
		RAISE invalid_parameter_value USING MESSAGE = format('a projection task cannot fail with status "%s"', $4),
			HINT = 'Use FAILED or DEAD_LETTER.';
	ELSIF $3 < 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "new_retry_count" must not be negative';
	END IF;
	UPDATE udb.projection_tasks t SET status = $4, retry_count = $3, last_error = $5,
		updated_at = clock_timestamp(), repairable = $6, completed_at = NULL,
		next_retry_at = CASE WHEN $4 = 'FAILED' THEN clock_timestamp() +
			least(interval '1 second' * 2 ^ (least(greatest($3, 1), 12) - 1), interval '1 hour') END
	WHERE t.task_id = $1 AND CASE t.status WHEN 'IN_PROGRESS' THEN true END AND ($2 IS NULL OR t.claim_token = $2);
	RETURN FOUND;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._fail_projection_task(uuid, bigint, integer, text, text, boolean, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._fail_projection_task(uuid, bigint, integer, text, text, boolean, text) IS
	'Internal: both forms of fail_projection_task()';

-- fail_projection_task(task_id, new_retry_count, new_status, error [, claim_token], repairable): the attempt
-- has failed. FAILED is claimed again after 2^(n-1) seconds, n being the retry count held to 1 .. 12;
-- DEAD_LETTER is not. One that is not repairable is left out of dead_letter_groups() and
-- requeue_dead_letter_by_source(). False, and nothing changes, unless it is IN_PROGRESS, by the claim with
-- this token if one is given.
-- Raises 22004 for nulls, 22023 for another status or a negative count. Writes projection_tasks, and wakes
-- wait_for_fence() when this is committed.
CREATE FUNCTION udb.fail_projection_task(task_id uuid, new_retry_count integer, new_status text,
		error text DEFAULT NULL, repairable boolean DEFAULT true, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ BEGIN RETURN udb._fail_projection_task($1, NULL, $2, $3, $4, $5, $6); END $$;
REVOKE EXECUTE ON FUNCTION udb.fail_projection_task(uuid, integer, text, text, boolean, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.fail_projection_task(uuid, integer, text, text, boolean, text) IS
	'Mark a projection task as failed, to be tried again or not; false unless it is in progress';

CREATE FUNCTION udb.fail_projection_task(task_id uuid, new_retry_count integer, new_status text, error text,
		claim_token bigint, repairable boolean DEFAULT true, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_not_null('claim_token', $5);
	RETURN udb._fail_projection_task($1, $5, $2, $3, $4, $6, $7);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.fail_projection_task(uuid, integer, text, text, bigint, boolean, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.fail_projection_task(uuid, integer, text, text, bigint, boolean, text) IS
	'Mark a projection task as failed, to be tried again or not; false unless it is in progress by this claim';

-- heartbeat_projection_task(task_id, claim_token): the claim is still being worked on, so it is not stale.
-- False, and nothing changes, unless the task is IN_PROGRESS by the claim with this token.
-- Raises 22004 for nulls. Writes projection_tasks.
CREATE FUNCTION udb.heartbeat_projection_task(task_id uuid, claim_token bigint, store text DEFAULT NULL)
	RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($3), udb._check_not_null('task_id', $1), udb._check_not_null('claim_token', $2);
	UPDATE udb.projection_tasks t SET updated_at = clock_timestamp()
	WHERE t.task_id = $1 AND CASE t.status WHEN 'IN_PROGRESS' THEN true END AND t.claim_token = $2;
	RETURN FOUND;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.heartbeat_projection_task(uuid, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.heartbeat_projection_task(uuid, bigint, text) IS
	'Say that a claimed projection task is still being worked on; false if the claim is lost';

-- get_projection_task(task_id): the task, no row if there is none. Raises 22004 for nulls.
CREATE FUNCTION udb.get_projection_task(task_id uuid, store text DEFAULT NULL) RETURNS SETOF udb.projection_tasks
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('task_id', $1);
	RETURN QUERY SELECT t.* FROM udb.projection_tasks t WHERE t.task_id = $1;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.get_projection_task(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.get_projection_task(uuid, text) IS 'A projection task; no row if there is none';

-- requeue_dead_letter_tasks(target_backend): put dead letters back to PENDING, as new, those that are not
-- repairable too. Null is any backend. Returns how many. Writes projection_tasks.
CREATE FUNCTION udb.requeue_dead_letter_tasks(target_backend text DEFAULT NULL, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	changed bigint;
BEGIN
	PERFORM udb._check_store($2);
	UPDATE udb.projection_tasks t SET status = 'PENDING', retry_count = 0, updated_at = clock_timestamp(),
		next_retry_at = NULL, repairable = true
	WHERE t.status = 'DEAD_LETTER' AND ($1 IS NULL OR t.target_backend = $1);
	GET DIAGNOSTICS changed = ROW_COUNT;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.requeue_dead_letter_tasks(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.requeue_dead_letter_tasks(text, text) IS
	'Put dead letters of a backend, or of all, back to be tried as new; returns how many';

-- requeue_dead_letter_by_source(project_id, source_table, target_backend, target_instance): the same for one
-- of dead_letter_groups(), with the note "reconciliation repair". Leaves those that are not repairable.
-- Raises 22004 for nulls. Writes projection_tasks.
CREATE FUNCTION udb.requeue_dead_letter_by_source(project_id text, source_table text, target_backend text,
		target_instance text, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	changed bigint;
BEGIN
	PERFORM udb._check_store($5), udb._check_not_null('project_id', $1), udb._check_not_null('source_table', $2),
		udb._check_not_null('target_backend', $3), udb._check_not_null('target_instance', $4);
	UPDATE udb.projection_tasks t SET status = 'PENDING', retry_count = 0, last_error = 'reconciliation repair',
		updated_at = clock_timestamp(), next_retry_at = NULL
	WHERE t.status = 'DEAD_LETTER' AND t.repairable AND t.project_id = $1 AND t.source_table = $2
		AND t.target_backend = $3 AND t.target_instance = $4;
	GET DIAGNOSTICS changed = ROW_COUNT;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.requeue_dead_letter_by_source(text, text, text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.requeue_dead_letter_by_source(text, text, text, text, text) IS
	'Put repairable dead letters of one project, table and target back to be tried as new; returns how many';

-- Those that another transaction holds are not stale, and are not waited for.
CREATE FUNCTION udb._reset_stale_projection_tasks(stale_after interval, row_limit bigint) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	changed bigint;
BEGIN
	WITH stale AS MATERIALIZED (
		SELECT t.task_id FROM udb.projection_tasks t
		WHERE t.status = 'IN_PROGRESS' AND t.updated_at <= clock_timestamp() - $1
		ORDER BY t.updated_at LIMIT $2 FOR UPDATE SKIP LOCKED)
	UPDATE udb.projection_tasks t SET status = 'PENDING', last_error = 'stale in-progress reconciliation',
		updated_at = clock_timestamp()
	FROM stale s WHERE t.task_id = s.task_id;
	GET DIAGNOSTICS changed = ROW_COUNT;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._reset_stale_projection_tasks(interval, bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb._reset_stale_projection_tasks(interval, bigint) IS
	'Internal: put tasks in progress back that nobody seems to work on';

-- reset_stale_projection_tasks(stale_after): put tasks IN_PROGRESS that were neither claimed nor given a
-- heartbeat for so long back to PENDING, with the note "stale in-progress reconciliation". Their claim is lost
-- with that. 0 takes all. Returns how many. Raises 22004 for nulls, 22023 for a negative interval. Writes
-- projection_tasks.
CREATE FUNCTION udb.reset_stale_projection_tasks(stale_after interval, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_store($2), udb._check_duration('stale_after', $1, false);
	RETURN udb._reset_stale_projection_tasks($1, NULL);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.reset_stale_projection_tasks(interval, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.reset_stale_projection_tasks(interval, text) IS
	'Put tasks that are in progress for too long back to be claimed again; returns how many';

-- sweep_projection_tasks(): the same after udb.projection_stale_after, 1000 at most. Writes projection_tasks.
CREATE FUNCTION udb.sweep_projection_tasks() RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	IF current_setting('udb.projection_stale_after') = '-1' THEN
		RETURN 0;
	END IF;
	RETURN udb._reset_stale_projection_tasks(current_setting('udb.projection_stale_after')::interval, 1000);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.sweep_projection_tasks() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_projection_tasks() IS
	'Put up to 1000 tasks that are in progress for longer than udb.projection_stale_after back';

-- projection_task_summary(): how many tasks there are in each status. Counted, so it costs what there is.
CREATE FUNCTION udb.projection_task_summary(store text DEFAULT NULL, OUT pending bigint, OUT in_progress bigint,
		OUT completed bigint, OUT failed bigint, OUT dead_letter bigint)
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_store($1);
	SELECT count(*) FILTER (WHERE t.status = 'PENDING'), count(*) FILTER (WHERE t.status = 'IN_PROGRESS'),
		count(*) FILTER (WHERE t.status = 'COMPLETED'), count(*) FILTER (WHERE t.status = 'FAILED'),
		count(*) FILTER (WHERE t.status = 'DEAD_LETTER')
	INTO pending, in_progress, completed, failed, dead_letter
	FROM udb.projection_tasks t;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.projection_task_summary(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.projection_task_summary(text) IS 'Number of projection tasks in each status';

-- pending_task_metrics(row_limit): tasks that are PENDING or IN_PROGRESS, and the age of the oldest, by project,
-- target and kind; oldest first. None if row_limit is not positive. Raises 22004 for nulls.
CREATE FUNCTION udb.pending_task_metrics(row_limit integer DEFAULT 100, store text DEFAULT NULL,
		OUT project_id text, OUT target_backend text, OUT target_instance text, OUT projection_kind text,
		OUT pending_count bigint, OUT oldest_age_seconds double precision) RETURNS SETOF record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('row_limit', $1);
	RETURN QUERY
		SELECT t.project_id, t.target_backend, t.target_instance, t.projection_kind, count(*),
			greatest(extract(epoch FROM clock_timestamp() - min(t.created_at)), 0)::double precision
		FROM udb.projection_tasks t WHERE t.status = 'PENDING' OR t.status = 'IN_PROGRESS'
		GROUP BY 1, 2, 3, 4 ORDER BY min(t.created_at), 1, 2, 3, 4 LIMIT greatest($1, 0);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.pending_task_metrics(integer, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.pending_task_metrics(integer, text) IS
	'Projection tasks that are to be done, and the age of the oldest, by project, target and kind';

-- dead_letter_groups(row_limit): repairable dead letters by project, source table and target; most first.
-- None if row_limit is not positive. Raises 22004 for nulls.
CREATE FUNCTION udb.dead_letter_groups(row_limit integer DEFAULT 100, store text DEFAULT NULL,
		OUT project_id text, OUT source_table text, OUT target_backend text, OUT target_instance text,
		OUT task_count bigint, OUT oldest_created_at timestamptz, OUT last_failed_at timestamptz) RETURNS SETOF record
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('row_limit', $1);
	RETURN QUERY
		SELECT t.project_id, t.source_table, t.target_backend, t.target_instance, count(*),
			min(t.created_at), max(t.updated_at)
		FROM udb.projection_tasks t WHERE t.status = 'DEAD_LETTER' AND t.repairable
		GROUP BY 1, 2, 3, 4 ORDER BY count(*) DESC, 1, 2, 3, 4 LIMIT greatest($1, 0);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.dead_letter_groups(integer, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.dead_letter_groups(integer, text) IS
	'Repairable dead letters by project, source table and target';

-- pending_projection_task_count(idempotency_keys): how many tasks of these keys are neither COMPLETED nor
-- DEAD_LETTER nor FAILED. Keys without a task do not count. Raises 22004 for nulls.
CREATE FUNCTION udb.pending_projection_task_count(idempotency_keys text[], store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('idempotency_keys', $1);
	RETURN (SELECT count(*) FROM udb.projection_tasks t
		WHERE t.idempotency_key = ANY ($1) AND t.status NOT IN ('COMPLETED', 'DEAD_LETTER', 'FAILED'));
END
$$;
REVOKE EXECUTE ON FUNCTION udb.pending_projection_task_count(text[], text) FROM PUBLIC;
COMMENT ON FUNCTION udb.pending_projection_task_count(text[], text) IS
	'Number of projection tasks of these keys that are still to be done';
