-- Steps of sagas, and their compensation by the worker -------------------

-- saga_step(saga_id, step, result): record that a step of a saga is done, as number current_step + 1; true if that is
-- new, false if it was recorded before, which changes nothing. A pending saga is in_progress from then on. If
-- record_saga() was given an element of this name in steps, that is completed, else one is added. What is not recorded
-- is not compensated: record the step in the transaction that does it.
-- Raises 22004 for a null saga_id or step, 42602 and 42622 for a bad name of a step, 42704 for a store, UD055
-- saga_not_found, UD057 saga_wrong_status unless the saga is pending, in_progress, indeterminate, in_doubt or failed
-- and its compensation has not begun, UD058 saga_not_compensable if its steps are not an array. Writes sagas.
CREATE FUNCTION udb.saga_step(saga_id uuid, step text, result jsonb DEFAULT NULL, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	saga udb.sagas;
	place text;
	element jsonb;
BEGIN
	PERFORM udb._check_store($4), udb._check_not_null('saga_id', $1), udb._check_name('step', $2);
	SELECT s.* INTO saga FROM udb.sagas s WHERE s.saga_id = $1 FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		PERFORM udb._saga_not_found($1);
	ELSIF jsonb_typeof(saga.steps) <> 'array' THEN
		RAISE SQLSTATE 'UD058' USING MESSAGE = format('steps of saga %s are not an array', $1);
	END IF;
	SELECT e.n - 1, e.element INTO place, element FROM jsonb_array_elements(saga.steps) WITH ORDINALITY e(element, n)
	WHERE e.element->>'step' = $2 ORDER BY e.n LIMIT 1;
	IF element->'done' NOT IN ('false', 'null') THEN
		RETURN false;
	ELSIF saga.status NOT IN ('pending', 'in_progress', 'indeterminate', 'in_doubt', 'failed') OR saga.runner IS NOT NULL THEN
		RAISE SQLSTATE 'UD057' USING
			MESSAGE = format('step "%s" cannot be added to saga %s while it is "%s"', $2, $1, saga.status),
			DETAIL = CASE WHEN saga.runner IS NULL THEN 'Steps can be added until it is over or compensated.'
				ELSE 'Its compensation has begun.' END;
	END IF;
	element := coalesce(element, '{}') || jsonb_build_object('step', $2, 'result', $3, 'done', saga.current_step + 1,
		'done_at', clock_timestamp());
	UPDATE udb.sagas s SET
		steps = CASE WHEN place IS NULL THEN s.steps || jsonb_build_array(element)
			ELSE jsonb_set(s.steps, ARRAY[place], element) END,
		current_step = s.current_step + 1, updated_at = clock_timestamp(),
		status = CASE WHEN s.status = 'pending' THEN 'in_progress' ELSE s.status END
	WHERE s.saga_id = $1;
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.saga_step(uuid, text, jsonb, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.saga_step(uuid, text, jsonb, text) IS
	'Record that a step of a saga is done; false if it was recorded before';

-- True, or raise UD058 unless the worker can carry out what is in there.
CREATE FUNCTION udb._check_compensations(saga_id uuid, steps jsonb, compensations jsonb) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	problem text;
BEGIN
	IF jsonb_typeof(steps) <> 'array' OR jsonb_typeof(compensations) <> 'array' THEN
		problem := 'Both "steps" and "compensations" have to be arrays.';
	ELSE
		SELECT format('Element %s of "compensations" %s.', e.n, f.fault) INTO problem
		FROM jsonb_array_elements(compensations) WITH ORDINALITY e(element, n),
			LATERAL (SELECT CASE
				WHEN jsonb_typeof(e.element) <> 'object' THEN 'is not an object'
				WHEN jsonb_typeof(e.element->'step') IS DISTINCT FROM 'string' THEN 'has no text "step"'
				WHEN jsonb_typeof(e.element->'queue') IS DISTINCT FROM 'string'
					OR octet_length(e.element->>'queue') NOT BETWEEN 1 AND 255 THEN 'has no "queue" of 1 to 255 bytes'
				WHEN jsonb_typeof(e.element->'payload') <> 'object' THEN 'has a "payload" that is not an object'
				WHEN e.element ? 'max_attempts' AND coalesce(e.element->>'max_attempts', '') !~ '^[1-9][0-9]{0,5}$'
					THEN 'has a "max_attempts" that is not a positive number'
				WHEN EXISTS (SELECT FROM jsonb_array_elements(compensations) WITH ORDINALITY o(element, n)
					WHERE o.element->>'step' = e.element->>'step' AND o.n < e.n) THEN 'is the second for its step'
			END AS fault) f
		WHERE f.fault IS NOT NULL ORDER BY e.n LIMIT 1;
	END IF;
	IF problem IS NOT NULL THEN
		RAISE SQLSTATE 'UD058' USING MESSAGE = format('saga %s cannot be compensated by the worker', saga_id),
			DETAIL = problem;
	END IF;
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._check_compensations(uuid, jsonb, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_compensations(uuid, jsonb, jsonb) IS
	'Internal: raise saga_not_compensable unless compensations describe jobs';

-- Steps that are done, have a compensation and have not been compensated, the last one that was done first. What an
-- application itself marked as done, but did not number, was done before the others.
CREATE FUNCTION udb._saga_to_undo(steps jsonb, compensations jsonb, OUT place bigint, OUT step jsonb,
		OUT compensation jsonb) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT e.n - 1, e.element, c.element
	FROM jsonb_array_elements($1) WITH ORDINALITY e(element, n)
		JOIN jsonb_array_elements($2) c(element) ON c.element->>'step' = e.element->>'step'
	WHERE e.element->'done' NOT IN ('false', 'null') AND NOT e.element ? 'compensated_at'
	ORDER BY CASE WHEN jsonb_typeof(e.element->'done') = 'number' THEN (e.element->>'done')::numeric END DESC NULLS LAST,
		e.n DESC
	$$;
REVOKE EXECUTE ON FUNCTION udb._saga_to_undo(jsonb, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION udb._saga_to_undo(jsonb, jsonb) IS 'Internal: steps to be compensated, in that order';

-- An attempt to compensate a saga has failed: try again later, or leave it to people.
CREATE FUNCTION udb._saga_compensation_failed(saga_id uuid, error text, job_failed boolean) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
	UPDATE udb.sagas s SET
		status = CASE WHEN f.poison THEN 'manual_review' ELSE 'failed_compensation' END,
		compensation_status = CASE WHEN f.poison THEN 'manual_review' ELSE 'retry_requested' END,
		recovery_attempts = f.attempts, last_error = coalesce($2, ''), updated_at = f.moment,
		runner = CASE WHEN f.poison THEN 'stopped' ELSE 'active' END, job_failed = $3,
		compensate_at = CASE WHEN NOT f.poison THEN
			f.moment + least(2 ^ (least(f.attempts, 20) - 1), 3600) * interval '1 second' END
	FROM (SELECT a.attempts, clock_timestamp() AS moment,
			a.attempts >= current_setting('udb.saga_poison_threshold')::integer AS poison
		FROM udb.sagas o, LATERAL (SELECT least(o.recovery_attempts, 2147483646) + 1 AS attempts) a
		WHERE o.saga_id = $1) f
	WHERE s.saga_id = $1
	$$;
REVOKE EXECUTE ON FUNCTION udb._saga_compensation_failed(uuid, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION udb._saga_compensation_failed(uuid, text, boolean) IS
	'Internal: a compensation has failed; again later, or manual_review';

-- Take one saga that the worker compensates as far as it goes without waiting; returns whether anything has changed.
-- The caller has locked its row before this statement began, so that what is seen here is at least as new as the row:
-- the job was sent by the transaction that wrote its number. So if it is neither live nor dead, it was acknowledged,
-- unless it was dead already.
CREATE FUNCTION udb._saga_advance(saga_id uuid) RETURNS boolean
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	saga udb.sagas;
	undo record;
	job bigint;
	job_state text;
	error text;
	done jsonb;
BEGIN
	SELECT s.* INTO STRICT saga FROM udb.sagas s WHERE s.saga_id = $1;
	done := saga.steps;
	job := saga.compensation_job;
	SELECT * INTO undo FROM udb._saga_to_undo(done, saga.compensations) LIMIT 1;

	IF job IS NOT NULL THEN
		-- in one snapshot, as a job can move from one table to the other
		SELECT CASE WHEN j.job_id IS NOT NULL THEN 'live' WHEN d.job_id IS NOT NULL THEN 'dead' ELSE 'gone' END, d.last_error
		INTO job_state, error
		FROM (VALUES (job)) v(job_id) LEFT JOIN udb.jobs j ON j.job_id = v.job_id
			LEFT JOIN udb.dead_jobs d ON d.job_id = v.job_id;
		IF job_state = 'live' AND saga.status = 'in_progress' THEN
			RETURN false;
		ELSIF job_state = 'dead' AND NOT saga.job_failed THEN
			PERFORM udb._saga_compensation_failed($1, format('compensation of step "%s" failed as job %s: %s',
				undo.step->>'step', job, coalesce(error, '')), true);
			RETURN true;
		ELSIF job_state = 'dead' THEN
			-- the next attempt is the same job
			IF udb.redrive_jobs(undo.compensation->>'queue', ARRAY[job]) = 0 THEN
				RETURN false; -- somebody else is just sending or removing it: see next time
			END IF;
		ELSIF job_state = 'gone' AND NOT saga.job_failed THEN
			done := jsonb_set(done, ARRAY[undo.place::text, 'compensated_at'], to_jsonb(clock_timestamp()));
			job := NULL;
			SELECT * INTO undo FROM udb._saga_to_undo(done, saga.compensations) LIMIT 1;
		ELSIF job_state = 'gone' THEN
			job := NULL; -- what has become of the dead job is not known: send another one
		END IF;
	END IF;

	IF undo.place IS NULL THEN
		UPDATE udb.sagas s SET status = 'compensated', compensation_status = 'completed', steps = done,
			updated_at = clock_timestamp(), claimed_until = NULL, runner = NULL, compensation_job = NULL,
			job_failed = false, compensate_at = NULL
		WHERE s.saga_id = $1;
		RETURN true;
	END IF;
	IF job IS NULL THEN
		-- should a live job for this step be left from before, this returns it
		job := udb.send_job(undo.compensation->>'queue',
			coalesce(undo.compensation->'payload', '{}') || jsonb_build_object('saga', jsonb_build_object(
				'saga_id', $1, 'step', undo.step->'step', 'result', undo.step->'result')),
			max_attempts => coalesce((undo.compensation->>'max_attempts')::integer, 20),
			unique_key => format('saga:%s:%s', $1, undo.place), ordering_key => format('saga:%s', $1));
	END IF;
	UPDATE udb.sagas s SET status = 'in_progress', steps = done, updated_at = clock_timestamp(), claimed_until = NULL,
		runner = 'active', compensation_job = job, job_failed = false, compensate_at = NULL
	WHERE s.saga_id = $1;
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._saga_advance(uuid) FROM PUBLIC;
COMMENT ON FUNCTION udb._saga_advance(uuid) IS 'Internal: the next thing to do for a saga that the worker compensates';

CREATE FUNCTION udb._wake_sagas() RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_wake_sagas';
REVOKE EXECUTE ON FUNCTION udb._wake_sagas() FROM PUBLIC;
COMMENT ON FUNCTION udb._wake_sagas() IS 'Internal: have the worker look at sagas when this transaction has committed';

-- Let the worker begin with a saga, or go on. If the last job for it is dead, that is no new failure.
CREATE FUNCTION udb._saga_resume(saga_id uuid) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
	UPDATE udb.sagas s SET status = 'indeterminate', runner = 'active', compensate_at = NULL,
		job_failed = s.job_failed OR EXISTS (SELECT FROM udb.dead_jobs d WHERE d.job_id = s.compensation_job)
	WHERE s.saga_id = $1;
	SELECT udb._wake_sagas();
	$$;
REVOKE EXECUTE ON FUNCTION udb._saga_resume(uuid) FROM PUBLIC;
COMMENT ON FUNCTION udb._saga_resume(uuid) IS 'Internal: let the worker begin with a saga, or go on';

-- compensate_saga(saga_id, error): have the worker undo the steps that were recorded as done, the last one first. For
-- each that has an entry {"step", "queue", "payload"} in the saga's compensations, and perhaps "max_attempts", a job
-- with this payload is sent to this queue, to which "saga" is added with saga_id, step and the step's result; the next
-- one when that has been acknowledged. While that goes on the saga is in_progress, and nobody can claim it; in the end
-- it is compensated, with compensation_status completed. If a job dies, the saga is failed_compensation, and that job
-- is redriven after 1, 2, 4 ... seconds, up to an hour; after udb.saga_poison_threshold failures it is left in
-- manual_review. The first job is sent by this call, in its transaction. Does nothing if it is under way already.
-- Raises 22004 for a null saga_id, 42704 for a store, UD055 saga_not_found, UD057 saga_wrong_status if the saga is
-- committed, compensated or manual_review, UD058 saga_not_compensable, UD040 in REPEATABLE READ. Writes sagas and jobs.
CREATE FUNCTION udb.compensate_saga(saga_id uuid, error text DEFAULT NULL, store text DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	saga udb.sagas;
BEGIN
	PERFORM udb._check_store($3), udb._check_not_null('saga_id', $1);
	SELECT s.* INTO saga FROM udb.sagas s WHERE s.saga_id = $1 FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		PERFORM udb._saga_not_found($1);
	ELSIF saga.runner = 'active' THEN
		RETURN;
	ELSIF saga.status IN ('committed', 'compensated') THEN
		RAISE SQLSTATE 'UD057' USING MESSAGE = format('saga %s cannot be compensated, as it is "%s"', $1, saga.status);
	ELSIF saga.status = 'manual_review' THEN
		RAISE SQLSTATE 'UD057' USING MESSAGE = format('saga %s cannot be compensated while it is "%s"', $1, saga.status),
			HINT = 'Call udb.request_saga_recompensation() first.';
	END IF;
	PERFORM udb._check_compensations($1, saga.steps, saga.compensations);
	UPDATE udb.sagas s SET last_error = $2 WHERE s.saga_id = $1 AND $2 IS NOT NULL;
	PERFORM udb._saga_resume($1);
	PERFORM udb._saga_advance($1);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.compensate_saga(uuid, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.compensate_saga(uuid, text, text) IS
	'Have the worker undo what a saga has done, in reverse order';

-- sweep_sagas(): one batch of what the worker does for sagas: put stale ones to indeterminate, see
-- udb.saga_stale_after, and go on with those that it compensates. Returns how many have changed; call it again until
-- that is 0. Several at once share the work, and no saga is in two batches.
CREATE FUNCTION udb.sweep_sagas() RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	stale_after interval := current_setting('udb.saga_stale_after');
	moment timestamptz := clock_timestamp();
	changed bigint := 0;
	id uuid;
	problem text;
	code text;
BEGIN
	IF stale_after > '0' THEN
		changed := udb._mark_stale_sagas(stale_after, 1000);
	END IF;
	FOR id IN
		SELECT s.saga_id FROM udb.sagas s
		WHERE s.runner = 'active' AND (s.compensate_at IS NULL OR s.compensate_at <= moment)
			-- not EXISTS, which could be planned as a scan of all jobs
			AND (s.status <> 'in_progress'
				OR (SELECT j.job_id FROM udb.jobs j WHERE j.job_id = s.compensation_job) IS NULL)
		ORDER BY s.updated_at LIMIT 100 FOR NO KEY UPDATE OF s SKIP LOCKED
	LOOP
		-- one that cannot go on must not stop the others
		BEGIN
			changed := changed + udb._saga_advance(id)::integer;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, code = RETURNED_SQLSTATE;
			-- not the saga's fault: conflicts, lack of resources, a server that is shutting down, REPEATABLE READ
			IF substr(code, 1, 2) IN ('40', '53', '57', '58') OR code IN ('55P03', 'UD040') THEN
				RAISE;
			END IF;
			PERFORM udb._saga_compensation_failed(id, problem, false);
			changed := changed + 1;
		END;
	END LOOP;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.sweep_sagas() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_sagas() IS
	'Go on with the sagas that the worker compensates, and put stale ones to indeterminate';
