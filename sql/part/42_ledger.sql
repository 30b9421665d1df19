-- Migration ledger -------------------------------------------------------

-- Columns and words are a contract that other software reads.
CREATE TABLE udb.migration_runs (
	run_id uuid NOT NULL CONSTRAINT migration_runs_pkey PRIMARY KEY,
	project_id text NOT NULL CHECK (octet_length(project_id) BETWEEN 1 AND 255),
	catalog_version text NOT NULL CHECK (octet_length(catalog_version) BETWEEN 1 AND 255),
	state text NOT NULL
		CHECK (state IN ('DRY_RUN', 'PREFLIGHT', 'APPLYING', 'VERIFYING', 'COMPLETED', 'ERROR', 'DEAD_LETTER')),
	operations_hash text NOT NULL,
	approval_token text,
	started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	finished_at timestamptz,
	error text,
	CHECK (finished_at IS NULL OR state NOT IN ('PREFLIGHT', 'APPLYING', 'VERIFYING'))
);
CREATE INDEX migration_runs_newest ON udb.migration_runs (started_at DESC, run_id DESC);
COMMENT ON TABLE udb.migration_runs IS 'Runs of migrations; change them with the functions only';
COMMENT ON COLUMN udb.migration_runs.project_id IS 'Whose schema is migrated; of CALL migrate(), the component';
COMMENT ON COLUMN udb.migration_runs.catalog_version IS
	'What it is migrated to; of CALL migrate(), the last step''s version';
COMMENT ON COLUMN udb.migration_runs.operations_hash IS
	'Digest of what the run is to do; of CALL migrate(), SHA-256 of the versions and checksums of its steps';
COMMENT ON COLUMN udb.migration_runs.finished_at IS 'Null while the run is under way, or if it was cut off';
SELECT pg_catalog.pg_extension_config_dump('udb.migration_runs', '');

-- Only grows: what happens to an operation is told by one more row. No foreign key to migration_runs: a
-- parallel restore copies the tables in any order.
CREATE SEQUENCE udb.migration_op_ledger_id AS bigint;
COMMENT ON SEQUENCE udb.migration_op_ledger_id IS 'Internal: ids of the migration ledger';
SELECT pg_catalog.pg_extension_config_dump('udb.migration_op_ledger_id', '');

CREATE TABLE udb.migration_op_ledger (
	id bigint NOT NULL DEFAULT nextval('udb.migration_op_ledger_id')
		CONSTRAINT migration_op_ledger_pkey PRIMARY KEY,
	run_id uuid NOT NULL,
	operation_index integer NOT NULL CHECK (operation_index >= 0),
	backend text NOT NULL CHECK (octet_length(backend) BETWEEN 1 AND 255),
	resource_uri text NOT NULL,
	operation_kind text NOT NULL CHECK (octet_length(operation_kind) BETWEEN 1 AND 255),
	status text NOT NULL
		CHECK (status IN ('PENDING', 'APPLIED', 'VERIFIED', 'SKIPPED', 'FAILED', 'ROLLED_BACK')),
	rollback_json jsonb,
	error text,
	applied_at timestamptz,
	CHECK ((applied_at IS NOT NULL) = (status = 'APPLIED'))
);
CREATE INDEX migration_op_ledger_run ON udb.migration_op_ledger (run_id, operation_index, id);
COMMENT ON TABLE udb.migration_op_ledger IS 'What migration runs have done, in the order in which it was recorded';
COMMENT ON COLUMN udb.migration_op_ledger.operation_index IS
	'Which of the run''s operations, from 0; the last row of an index says how it stands';
COMMENT ON COLUMN udb.migration_op_ledger.rollback_json IS 'How to take the operation back, in the words of its backend';
COMMENT ON COLUMN udb.migration_op_ledger.applied_at IS 'When it was recorded as APPLIED; null for any other status';
SELECT pg_catalog.pg_extension_config_dump('udb.migration_op_ledger', '');

-- Which runs are those of CALL migrate(), as long as they have not finished.
CREATE TABLE udb._migration_calls (
	run_id uuid NOT NULL CONSTRAINT _migration_calls_pkey PRIMARY KEY,
	component text COLLATE "C" NOT NULL
);
COMMENT ON TABLE udb._migration_calls IS 'Internal: runs of migrate() that are under way or were cut off';
SELECT pg_catalog.pg_extension_config_dump('udb._migration_calls', '');

CREATE FUNCTION udb._check_run_state(argument text, value text) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	PERFORM udb._check_not_null($1, $2);
	IF $2 NOT IN ('DRY_RUN', 'PREFLIGHT', 'APPLYING', 'VERIFYING', 'COMPLETED', 'ERROR', 'DEAD_LETTER') THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('argument "%s" is not a state of migration runs: "%s"', $1, $2),
			HINT = 'States are DRY_RUN, PREFLIGHT, APPLYING, VERIFYING, COMPLETED, ERROR and DEAD_LETTER.';
	END IF;
	RETURN true;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._check_run_state(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_run_state(text, text) IS
	'Internal: raise 22004 or 22023 for what is not a state of migration runs';

-- start_migration_run(project_id, catalog_version, state, operations_hash, approval_token, store): begin a
-- run; returns its id. It may start in any state, and has not finished in any of them.
-- Raises 22004 for nulls, 42602 and 42622 for a bad project or version, 22023 for a word that is no state,
-- 42704 for an unknown store. Writes migration_runs.
CREATE FUNCTION udb.start_migration_run(project_id text, catalog_version text, state text,
		operations_hash text DEFAULT '', approval_token text DEFAULT NULL, store text DEFAULT NULL) RETURNS uuid
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	new_id uuid := udb.generate_uuidv7();
BEGIN
	PERFORM udb._check_store($6), udb._check_name('project_id', $1), udb._check_name('catalog_version', $2),
		udb._check_run_state('state', $3), udb._check_not_null('operations_hash', $4);
	INSERT INTO udb.migration_runs (run_id, project_id, catalog_version, state, operations_hash, approval_token)
	VALUES (new_id, $1, $2, $3, $4, $5);
	RETURN new_id;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.start_migration_run(text, text, text, text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.start_migration_run(text, text, text, text, text, text) IS
	'Begin a run of migrations; returns its id';

-- record_migration_op(run_id, operation_index, backend, resource_uri, operation_kind, status,
-- rollback_json, error, store): what has become of an operation of a run. The same index again adds a row:
-- the ledger keeps all of them, and the last one says how the operation stands. applied_at is set if the
-- status is APPLIED. Also after the run has finished, as for what is rolled back later. Returns the row's id.
-- Raises 22004 for nulls, 22023 for a negative index or a word that is no status, 42602 and 42622 for a bad
-- backend, resource or kind, 42704 for an unknown run or store. Writes migration_op_ledger.
CREATE FUNCTION udb.record_migration_op(run_id uuid, operation_index integer, backend text, resource_uri text,
		operation_kind text, status text DEFAULT 'PENDING', rollback_json jsonb DEFAULT NULL,
		error text DEFAULT NULL, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	new_id bigint;
BEGIN
	PERFORM udb._check_store($9), udb._check_not_null('run_id', $1), udb._check_not_null('operation_index', $2),
		udb._check_name('backend', $3), udb._check_name('resource_uri', $4, 8192),
		udb._check_name('operation_kind', $5), udb._check_not_null('status', $6);
	IF $2 < 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "operation_index" must not be negative';
	ELSIF $6 NOT IN ('PENDING', 'APPLIED', 'VERIFIED', 'SKIPPED', 'FAILED', 'ROLLED_BACK') THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('argument "status" is not a status of migration operations: "%s"', $6),
			HINT = 'Use PENDING, APPLIED, VERIFIED, SKIPPED, FAILED or ROLLED_BACK.';
	ELSIF NOT EXISTS (SELECT FROM udb.migration_runs r WHERE r.run_id = $1) THEN
		RAISE undefined_object USING MESSAGE = format('migration run "%s" does not exist', $1);
	END IF;
	INSERT INTO udb.migration_op_ledger AS l
		(run_id, operation_index, backend, resource_uri, operation_kind, status, rollback_json, error, applied_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, CASE WHEN $6 = 'APPLIED' THEN clock_timestamp() END)
	RETURNING l.id INTO new_id;
	RETURN new_id;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.record_migration_op(uuid, integer, text, text, text, text, jsonb, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.record_migration_op(uuid, integer, text, text, text, text, jsonb, text, text) IS
	'Record what has become of an operation of a migration run; returns the row''s id';

-- finish_migration_run(run_id, new_state, error, store): move a run to a state. COMPLETED, ERROR, DEAD_LETTER
-- and DRY_RUN end it, and set finished_at; PREFLIGHT, APPLYING and VERIFYING move one on that has not finished.
-- An end can be replaced by another one, as ERROR by DEAD_LETTER. The error is set to what is given.
-- Raises 22004 for nulls, 22023 for a word that is no state, 42704 for an unknown run or store, 55000 if the
-- state would begin again what has finished. Writes migration_runs.
CREATE FUNCTION udb.finish_migration_run(run_id uuid, new_state text, error text DEFAULT NULL,
		store text DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	ends boolean := $2 NOT IN ('PREFLIGHT', 'APPLYING', 'VERIFYING');
	had_finished boolean;
BEGIN
	PERFORM udb._check_store($4), udb._check_not_null('run_id', $1), udb._check_run_state('new_state', $2);
	SELECT r.finished_at IS NOT NULL INTO had_finished FROM udb.migration_runs r WHERE r.run_id = $1 FOR UPDATE;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = format('migration run "%s" does not exist', $1);
	ELSIF had_finished AND NOT ends THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = format('migration run "%s" has finished and cannot go back to %s', $1, $2);
	END IF;
	UPDATE udb.migration_runs r
	SET state = $2, error = $3, finished_at = CASE WHEN ends THEN clock_timestamp() END
	WHERE r.run_id = $1;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.finish_migration_run(uuid, text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.finish_migration_run(uuid, text, text, text) IS
	'End a migration run with a state and perhaps an error, or move it on';

-- get_migration_run(run_id, store): the run; no row if there is none.
-- Raises 22004 for a null, 42704 for an unknown store.
CREATE FUNCTION udb.get_migration_run(run_id uuid, store text DEFAULT NULL) RETURNS SETOF udb.migration_runs
	LANGUAGE sql STABLE PARALLEL SAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT r.* FROM udb.migration_runs r
	WHERE udb._check_store($2) AND udb._check_not_null('run_id', $1) AND r.run_id = $1
	$$;
REVOKE EXECUTE ON FUNCTION udb.get_migration_run(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.get_migration_run(uuid, text) IS 'A migration run; no row if there is none';

-- list_migration_ops(run_id, store): what is recorded of a run, by operation_index, then as it was recorded.
-- No rows for an unknown run. Raises 22004 for a null, 42704 for an unknown store.
CREATE FUNCTION udb.list_migration_ops(run_id uuid, store text DEFAULT NULL)
	RETURNS SETOF udb.migration_op_ledger
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT l.* FROM udb.migration_op_ledger l
	WHERE udb._check_store($2) AND udb._check_not_null('run_id', $1) AND l.run_id = $1
	ORDER BY l.operation_index, l.id
	$$;
REVOKE EXECUTE ON FUNCTION udb.list_migration_ops(uuid, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.list_migration_ops(uuid, text) IS
	'What is recorded of a migration run, by operation_index';

-- list_migration_runs(project_id, state, catalog_version, row_limit, row_offset, store): runs, newest first,
-- of any project, state and version unless they are given. None if row_limit is not positive; a negative
-- row_offset is 0. Raises 22004 if one of these is null, 22023 for a word that is no state, 42704 for an
-- unknown store.
CREATE FUNCTION udb.list_migration_runs(project_id text DEFAULT NULL, state text DEFAULT NULL,
		catalog_version text DEFAULT NULL, row_limit bigint DEFAULT 100, row_offset bigint DEFAULT 0,
		store text DEFAULT NULL) RETURNS SETOF udb.migration_runs
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($6), udb._check_not_null('row_limit', $4), udb._check_not_null('row_offset', $5);
	IF $2 IS NOT NULL THEN
		PERFORM udb._check_run_state('state', $2);
	END IF;
	RETURN QUERY SELECT r.* FROM udb.migration_runs r
		WHERE ($1 IS NULL OR r.project_id = $1) AND ($2 IS NULL OR r.state = $2)
			AND ($3 IS NULL OR r.catalog_version = $3)
		ORDER BY r.started_at DESC, r.run_id DESC
		LIMIT greatest($4, 0) OFFSET greatest($5, 0);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.list_migration_runs(text, text, text, bigint, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.list_migration_runs(text, text, text, bigint, bigint, text) IS
	'Migration runs, newest first';
