-- Sagas ------------------------------------------------------------------

-- Steps of one saga are recorded in one row, which is rewritten at each of them: room is left for that.
CREATE TABLE udb.sagas (
	saga_id uuid CONSTRAINT sagas_pkey PRIMARY KEY,
	tx_id text COLLATE "C" NOT NULL,
	tenant_id text COLLATE "C" NOT NULL,
	correlation_id text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL CONSTRAINT sagas_status_check CHECK (status IN ('indeterminate', 'in_progress',
		'pending', 'committed', 'compensated', 'failed', 'in_doubt', 'failed_compensation', 'manual_review')),
	backend_instance text COLLATE "C" NOT NULL,
	operation text COLLATE "C" NOT NULL,
	current_step integer NOT NULL CHECK (current_step >= 0),
	retry_count integer NOT NULL CHECK (retry_count >= 0),
	recovery_attempts integer NOT NULL CHECK (recovery_attempts >= 0),
	compensation_status text COLLATE "C" NOT NULL CONSTRAINT sagas_compensation_status_check
		CHECK (compensation_status IN ('none', 'completed', 'manual_review', 'retry_requested')),
	steps jsonb NOT NULL,
	compensations jsonb NOT NULL,
	last_error text NOT NULL,
	created_at timestamptz NOT NULL,
	updated_at timestamptz NOT NULL,
	claimed_until timestamptz,
	runner text COLLATE "C" CHECK (runner IN ('active', 'stopped')),
	compensation_job bigint,
	job_failed boolean NOT NULL DEFAULT false,
	compensate_at timestamptz
) WITH (fillfactor = 70);
COMMENT ON TABLE udb.sagas IS 'Sagas; change them with the functions only';
COMMENT ON COLUMN udb.sagas.tx_id IS 'The application''s name for what the saga does; several sagas can have the same';
COMMENT ON COLUMN udb.sagas.current_step IS 'How many steps are done';
COMMENT ON COLUMN udb.sagas.retry_count IS 'How often recompensation was requested';
COMMENT ON COLUMN udb.sagas.recovery_attempts IS 'Attempts to recover or compensate it that have failed';
COMMENT ON COLUMN udb.sagas.steps IS
	'Array of objects; those that are done have "done", their number in the order in which they were';
COMMENT ON COLUMN udb.sagas.compensations IS 'For each step the job that undoes it: array of {"step", "queue", "payload"}';
COMMENT ON COLUMN udb.sagas.claimed_until IS 'Until then claim_recoverable_sagas() gives it to nobody else';
COMMENT ON COLUMN udb.sagas.runner IS
	'active while the worker compensates it; stopped when it has given up, or somebody else has taken over';
COMMENT ON COLUMN udb.sagas.compensation_job IS 'Job that undoes a step now, or was the last to try';
COMMENT ON COLUMN udb.sagas.job_failed IS 'Whether that job is known to have died';
COMMENT ON COLUMN udb.sagas.compensate_at IS 'The worker does not try again before this time';
SELECT pg_catalog.pg_extension_config_dump('udb.sagas', '');

CREATE INDEX sagas_created_key ON udb.sagas (created_at, saga_id);
CREATE INDEX sagas_tenant_key ON udb.sagas (tenant_id, created_at, saga_id);
CREATE INDEX sagas_tx_key ON udb.sagas (tx_id);
CREATE INDEX sagas_correlation_key ON udb.sagas (correlation_id);
-- Finished sagas, which in time are nearly all, are in none of these.
CREATE INDEX sagas_recoverable_key ON udb.sagas (created_at, saga_id)
	WHERE status IN ('indeterminate', 'in_progress', 'in_doubt', 'failed_compensation');
CREATE INDEX sagas_in_progress_key ON udb.sagas (updated_at) WHERE status = 'in_progress';
CREATE INDEX sagas_runner_key ON udb.sagas (compensate_at) WHERE runner = 'active';

CREATE TYPE udb.saga AS (
	saga_id uuid,
	tx_id text,
	tenant_id text,
	correlation_id text,
	status text,
	backend_instance text,
	operation text,
	current_step integer,
	retry_count integer,
	recovery_attempts integer,
	compensation_status text,
	steps jsonb,
	compensations jsonb,
	last_error text,
	created_at timestamptz,
	updated_at timestamptz
);
COMMENT ON TYPE udb.saga IS 'A saga as udb.get_saga() returns it';

-- True, or raise 22023 for a word that is none of a saga's. Nulls are not looked at.
CREATE FUNCTION udb._check_saga_words(status text, compensation_status text) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	words text[] := '{indeterminate,in_progress,pending,committed,compensated,failed,in_doubt,failed_compensation,manual_review}';
BEGIN
	IF status <> ALL (words) THEN
		RAISE invalid_parameter_value USING MESSAGE = format('unknown status "%s"', status),
			HINT = format('Use one of %s.', array_to_string(words, ', '));
	END IF;
	words := '{none,completed,manual_review,retry_requested}';
	IF compensation_status <> ALL (words) THEN
		RAISE invalid_parameter_value USING MESSAGE = format('unknown compensation_status "%s"', compensation_status),
			HINT = format('Use one of %s.', array_to_string(words, ', '));
	END IF;
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._check_saga_words(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_saga_words(text, text) IS 'Internal: raise 22023 for an unknown status of a saga';

-- True, or raise 22004 or 42622. Unlike a name, this may be empty.
CREATE FUNCTION udb._check_saga_text(argument text, value text) RETURNS boolean
	LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$ SELECT CASE WHEN value = '' THEN true ELSE udb._check_name(argument, value) END $$;
REVOKE EXECUTE ON FUNCTION udb._check_saga_text(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_saga_text(text, text) IS 'Internal: raise 22004 or 42622 for a text that is null or too long';

CREATE FUNCTION udb._saga_not_found(saga_id uuid) RETURNS void
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	RAISE SQLSTATE 'UD055' USING MESSAGE = format('there is no saga %s', saga_id);
END
$$;
REVOKE EXECUTE ON FUNCTION udb._saga_not_found(uuid) FROM PUBLIC;
COMMENT ON FUNCTION udb._saga_not_found(uuid) IS 'Internal: raise saga_not_found';

-- record_saga(saga_id, tx_id, tenant_id, ...): add a saga; returns its id, which is made if none is given. The same
-- saga_id again returns it and changes nothing, whatever has become of the saga meanwhile; waits for a transaction that
-- is just recording it. Several sagas can have the same tx_id.
-- Raises 22004 for nulls, 42622 for texts of more than 255 bytes, 22023 for an unknown word or a negative number,
-- 42704 for a store, UD056 saga_id_reused if that saga has another tx_id, tenant_id, correlation_id, backend_instance,
-- operation or other compensations. Writes sagas.
CREATE FUNCTION udb.record_saga(saga_id uuid DEFAULT NULL, tx_id text DEFAULT '', tenant_id text DEFAULT '',
		correlation_id text DEFAULT '', status text DEFAULT 'pending', backend_instance text DEFAULT '',
		operation text DEFAULT '', current_step integer DEFAULT 0, retry_count integer DEFAULT 0,
		recovery_attempts integer DEFAULT 0, compensation_status text DEFAULT 'none', steps jsonb DEFAULT '[]',
		compensations jsonb DEFAULT '[]', last_error text DEFAULT '', store text DEFAULT NULL) RETURNS uuid
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	id uuid := coalesce($1, udb.generate_uuidv7());
	started timestamptz := clock_timestamp();
	negative text := CASE WHEN $8 < 0 THEN 'current_step' WHEN $9 < 0 THEN 'retry_count'
		WHEN $10 < 0 THEN 'recovery_attempts' END;
BEGIN
	PERFORM udb._check_store($15), udb._check_saga_text('tx_id', $2), udb._check_saga_text('tenant_id', $3),
		udb._check_saga_text('correlation_id', $4), udb._check_not_null('status', $5),
		udb._check_saga_text('backend_instance', $6), udb._check_saga_text('operation', $7),
		udb._check_not_null('current_step', $8), udb._check_not_null('retry_count', $9),
		udb._check_not_null('recovery_attempts', $10), udb._check_not_null('compensation_status', $11),
		udb._check_not_null('steps', $12), udb._check_not_null('compensations', $13),
		udb._check_not_null('last_error', $14), udb._check_saga_words($5, $11);
	IF negative IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = format('argument "%s" must not be negative', negative);
	END IF;

	INSERT INTO udb.sagas (saga_id, tx_id, tenant_id, correlation_id, status, backend_instance, operation, current_step,
		retry_count, recovery_attempts, compensation_status, steps, compensations, last_error, created_at, updated_at)
	VALUES (id, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, started, started)
	ON CONFLICT (saga_id) DO NOTHING;

	IF NOT FOUND AND NOT EXISTS (SELECT FROM udb.sagas s WHERE s.saga_id = id
			AND (s.tx_id, s.tenant_id, s.correlation_id, s.backend_instance, s.operation, s.compensations)
			= ($2, $3, $4, $6, $7, $13)) THEN
		RAISE SQLSTATE 'UD056' USING MESSAGE = format('saga %s exists with different content', id),
			HINT = 'A saga_id must not be used for two sagas.';
	END IF;
	RETURN id;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.record_saga(uuid, text, text, text, text, text, text, integer, integer, integer, text,
	jsonb, jsonb, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.record_saga(uuid, text, text, text, text, text, text, integer, integer, integer, text, jsonb,
	jsonb, text, text) IS 'Add a saga; returns its id';

-- get_saga(saga_id): the saga; no row if there is none. Raises 22004, 42704 for a store.
CREATE FUNCTION udb.get_saga(saga_id uuid, store text DEFAULT NULL) RETURNS SETOF udb.saga
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('saga_id', $1);
	RETURN QUERY SELECT s.saga_id, s.tx_id, s.tenant_id, s.correlation_id, s.status, s.backend_instance, s.operation,
		s.current_step, s.retry_count, s.recovery_attempts, s.compensation_status, s.steps, s.compensations,
		s.last_error, s.created_at, s.updated_at
	FROM udb.sagas s WHERE s.saga_id = $1;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.get_saga(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.get_saga(uuid, text) IS 'A saga; no row if there is none';

-- list_sagas(tenant_id, status, tx_id, correlation_id, row_limit, row_offset): sagas that have all that is given (null
-- for any), newest first; of those of the same instant the one with the highest saga_id. None if row_limit is 0 or
-- less; a negative row_offset is 0. Raises 22004 for a null limit or offset, 22023 for an unknown status, 42704.
CREATE FUNCTION udb.list_sagas(tenant_id text DEFAULT NULL, status text DEFAULT NULL, tx_id text DEFAULT NULL,
		correlation_id text DEFAULT NULL, row_limit bigint DEFAULT 100, row_offset bigint DEFAULT 0,
		store text DEFAULT NULL) RETURNS SETOF udb.saga
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($7), udb._check_not_null('row_limit', $5), udb._check_not_null('row_offset', $6),
		udb._check_saga_words($2, NULL);
	RETURN QUERY SELECT s.saga_id, s.tx_id, s.tenant_id, s.correlation_id, s.status, s.backend_instance, s.operation,
		s.current_step, s.retry_count, s.recovery_attempts, s.compensation_status, s.steps, s.compensations,
		s.last_error, s.created_at, s.updated_at
	FROM udb.sagas s
	WHERE ($1 IS NULL OR s.tenant_id = $1) AND ($2 IS NULL OR s.status = $2) AND ($3 IS NULL OR s.tx_id = $3)
		AND ($4 IS NULL OR s.correlation_id = $4)
	ORDER BY s.created_at DESC, s.saga_id DESC LIMIT greatest($5, 0) OFFSET greatest($6, 0);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.list_sagas(text, text, text, text, bigint, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.list_sagas(text, text, text, text, bigint, bigint, text) IS
	'Sagas by tenant, status, tx_id and correlation_id, newest first';

-- update_saga_status(saga_ids, status, compensation_status): set the status of some sagas, and their
-- compensation_status unless it is null; returns of how many. Ids that are not known, or null, are passed over. Ends
-- claims on these sagas; if the worker compensates one, it stops.
-- Raises 22004 for nulls, 22023 for an unknown word, 42704 for a store. Writes sagas.
CREATE FUNCTION udb.update_saga_status(saga_ids uuid[], status text, compensation_status text DEFAULT NULL,
		store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	changed bigint;
BEGIN
	PERFORM udb._check_store($4), udb._check_not_null('saga_ids', $1), udb._check_not_null('status', $2),
		udb._check_saga_words($2, $3);
	-- in one order, so that two of these do not wait for each other
	WITH locked AS MATERIALIZED (
		SELECT s.saga_id FROM udb.sagas s WHERE s.saga_id = ANY ($1) ORDER BY s.saga_id FOR NO KEY UPDATE)
	UPDATE udb.sagas s SET status = $2, compensation_status = coalesce($3, s.compensation_status),
		updated_at = clock_timestamp(), claimed_until = NULL,
		runner = CASE WHEN s.runner IS NOT NULL THEN 'stopped' END
	FROM locked l WHERE s.saga_id = l.saga_id;
	GET DIAGNOSTICS changed = ROW_COUNT;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.update_saga_status(uuid[], text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.update_saga_status(uuid[], text, text, text) IS
	'Set the status of some sagas; returns of how many';

-- update_saga_status(saga_id, status, compensation_status): the same for one. Raises UD055 saga_not_found as well.
CREATE FUNCTION udb.update_saga_status(saga_id uuid, status text, compensation_status text DEFAULT NULL,
		store text DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_store($4), udb._check_not_null('saga_id', $1);
	IF udb.update_saga_status(ARRAY[$1], $2, $3) = 0 THEN
		PERFORM udb._saga_not_found($1);
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.update_saga_status(uuid, text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.update_saga_status(uuid, text, text, text) IS 'Set a saga''s status';

-- update_saga_status(saga_id, status, compensation_status): for an id without a type, which could be either of the
-- two above. Raises 22P02 if it is no UUID.
CREATE FUNCTION udb.update_saga_status(saga_id text, status text, compensation_status text DEFAULT NULL,
		store text DEFAULT NULL) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ SELECT udb.update_saga_status($1::uuid, $2, $3, $4) $$;
REVOKE EXECUTE ON FUNCTION udb.update_saga_status(text, text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.update_saga_status(text, text, text, text) IS 'Set a saga''s status, of an id without a type';

-- mark_saga_manual_review(saga_id): leave it to people: nobody recovers it until request_saga_recompensation().
-- Raises 22004, 42704 for a store, UD055 saga_not_found. Writes sagas.
CREATE FUNCTION udb.mark_saga_manual_review(saga_id uuid, store text DEFAULT NULL) RETURNS void
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ SELECT udb.update_saga_status($1, 'manual_review', 'manual_review', $2) $$;
REVOKE EXECUTE ON FUNCTION udb.mark_saga_manual_review(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.mark_saga_manual_review(uuid, text) IS 'Leave a saga to people, out of recovery';

-- request_saga_recompensation(saga_id): put a saga whose compensation has failed, or that was left to people, back to
-- indeterminate, with compensation_status retry_requested, and count that in retry_count. It can then be claimed for
-- recovery; one that the worker had been compensating is taken up by it again.
-- Raises 22004, 42704 for a store, UD055 saga_not_found, UD057 saga_wrong_status unless the status is
-- failed_compensation or manual_review. Writes sagas.
CREATE FUNCTION udb.request_saga_recompensation(saga_id uuid, store text DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	saga udb.sagas;
BEGIN
	PERFORM udb._check_store($2), udb._check_not_null('saga_id', $1);
	SELECT s.* INTO saga FROM udb.sagas s WHERE s.saga_id = $1 FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		PERFORM udb._saga_not_found($1);
	ELSIF saga.status NOT IN ('failed_compensation', 'manual_review') THEN
		RAISE SQLSTATE 'UD057' USING
			MESSAGE = format('recompensation of saga %s cannot be requested while it is "%s"', $1, saga.status),
			HINT = 'It has to be "failed_compensation" or "manual_review".';
	END IF;
	UPDATE udb.sagas s SET status = 'indeterminate', compensation_status = 'retry_requested',
		retry_count = least(s.retry_count, 2147483646) + 1, updated_at = clock_timestamp(), claimed_until = NULL
	WHERE s.saga_id = $1;
	IF saga.runner IS NOT NULL THEN
		PERFORM udb._saga_resume($1);
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.request_saga_recompensation(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.request_saga_recompensation(uuid, text) IS
	'Have a saga compensated again that has failed to be, or was left to people';

-- increment_recovery_attempts(saga_id, error): note that an attempt to recover the saga has failed, and why; returns
-- how many have. A claim on it goes on, so that the next attempt does not follow at once.
-- Raises 22004, 42704 for a store, UD055 saga_not_found. Writes sagas.
CREATE FUNCTION udb.increment_recovery_attempts(saga_id uuid, error text DEFAULT '', store text DEFAULT NULL)
	RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	attempts bigint;
BEGIN
	PERFORM udb._check_store($3), udb._check_not_null('saga_id', $1), udb._check_not_null('error', $2);
	UPDATE udb.sagas s SET recovery_attempts = least(s.recovery_attempts, 2147483646) + 1, last_error = $2, updated_at = clock_timestamp()
	WHERE s.saga_id = $1 RETURNING s.recovery_attempts INTO attempts;
	IF NOT FOUND THEN
		PERFORM udb._saga_not_found($1);
	END IF;
	RETURN attempts;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.increment_recovery_attempts(uuid, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.increment_recovery_attempts(uuid, text, text) IS
	'Count a failed attempt to recover a saga; returns how many there were';

-- claim_recoverable_sagas(stale_after, row_limit): sagas to be recovered, oldest first: indeterminate and in_doubt ones,
-- failed_compensation ones with a requested retry, and in_progress ones that nobody has touched for stale_after. For
-- that long they are the caller's, and no other call returns them; then, if the caller is gone without having set
-- their status, they can be claimed again. Two calls never get the same saga, and do not wait for each other. Claiming
-- touches a saga, but does not change its status. Those that the worker compensates are left out.
-- None if row_limit is 0 or less. Raises 22004 for nulls, 22023 unless stale_after is positive, 22008, 42704 for a
-- store. Writes sagas.
CREATE FUNCTION udb.claim_recoverable_sagas(stale_after interval DEFAULT '5 minutes', row_limit bigint DEFAULT 50,
		store text DEFAULT NULL) RETURNS SETOF udb.saga
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 50 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz;
BEGIN
	PERFORM udb._check_store($3), udb._check_duration('stale_after', $1, true), udb._check_not_null('row_limit', $2);
	moment := clock_timestamp();
	RETURN QUERY
	WITH found AS MATERIALIZED (
		SELECT s.saga_id FROM udb.sagas s
		WHERE s.status IN ('indeterminate', 'in_progress', 'in_doubt', 'failed_compensation')
			AND (s.status IN ('indeterminate', 'in_doubt')
				OR s.status = 'failed_compensation' AND s.compensation_status = 'retry_requested'
				OR s.status = 'in_progress' AND s.updated_at <= moment - $1)
			AND (s.claimed_until IS NULL OR s.claimed_until <= moment)
			AND s.runner IS DISTINCT FROM 'active'
		ORDER BY s.created_at, s.saga_id LIMIT greatest($2, 0) FOR NO KEY UPDATE SKIP LOCKED),
	claimed AS (
		UPDATE udb.sagas s SET claimed_until = moment + $1, updated_at = moment
		FROM found f WHERE s.saga_id = f.saga_id RETURNING s.*)
	SELECT s.saga_id, s.tx_id, s.tenant_id, s.correlation_id, s.status, s.backend_instance, s.operation,
		s.current_step, s.retry_count, s.recovery_attempts, s.compensation_status, s.steps, s.compensations,
		s.last_error, s.created_at, s.updated_at
	FROM claimed s ORDER BY s.created_at, s.saga_id;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.claim_recoverable_sagas(interval, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.claim_recoverable_sagas(interval, bigint, text) IS
	'Take sagas that have to be recovered, oldest first';

CREATE FUNCTION udb._mark_stale_sagas(stale_after interval, row_limit bigint) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz := clock_timestamp();
	changed bigint;
BEGIN
	WITH found AS MATERIALIZED (
		SELECT s.saga_id FROM udb.sagas s
		WHERE s.status = 'in_progress' AND s.updated_at <= moment - $1
			AND (s.claimed_until IS NULL OR s.claimed_until <= moment) AND s.runner IS DISTINCT FROM 'active'
		ORDER BY s.updated_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
	UPDATE udb.sagas s SET status = 'indeterminate', updated_at = moment
	FROM found f WHERE s.saga_id = f.saga_id;
	GET DIAGNOSTICS changed = ROW_COUNT;
	RETURN changed;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._mark_stale_sagas(interval, bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb._mark_stale_sagas(interval, bigint) IS
	'Internal: mark_stale_sagas_indeterminate() for some of them';

-- mark_stale_sagas_indeterminate(stale_after): put in_progress sagas that nobody has touched for so long to
-- indeterminate; returns how many. Those that are claimed, that the worker compensates, or that a transaction in
-- progress is changing are left alone. Raises 22004, 22023 unless stale_after is positive, 22008, 42704 for a store.
-- Writes sagas.
CREATE FUNCTION udb.mark_stale_sagas_indeterminate(stale_after interval, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_store($2), udb._check_duration('stale_after', $1, true);
	RETURN udb._mark_stale_sagas($1, NULL);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.mark_stale_sagas_indeterminate(interval, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.mark_stale_sagas_indeterminate(interval, text) IS
	'Put in_progress sagas that nobody has touched for so long to indeterminate; returns how many';

-- saga_summary(): one row, with the number of sagas of each status. Raises 42704 for a store.
CREATE FUNCTION udb.saga_summary(store text DEFAULT NULL, OUT indeterminate bigint, OUT in_progress bigint,
		OUT pending bigint, OUT committed bigint, OUT compensated bigint, OUT failed bigint, OUT in_doubt bigint,
		OUT failed_compensation bigint, OUT manual_review bigint)
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT count(*) FILTER (WHERE s.status = 'indeterminate'), count(*) FILTER (WHERE s.status = 'in_progress'),
		count(*) FILTER (WHERE s.status = 'pending'), count(*) FILTER (WHERE s.status = 'committed'),
		count(*) FILTER (WHERE s.status = 'compensated'), count(*) FILTER (WHERE s.status = 'failed'),
		count(*) FILTER (WHERE s.status = 'in_doubt'), count(*) FILTER (WHERE s.status = 'failed_compensation'),
		count(*) FILTER (WHERE s.status = 'manual_review')
	FROM udb._check_store($1) c LEFT JOIN udb.sagas s ON true
	$$;
REVOKE EXECUTE ON FUNCTION udb.saga_summary(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.saga_summary(text) IS 'Number of sagas of each status';
