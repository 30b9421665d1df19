-- Admin audit ------------------------------------------------------------

-- canonical_json(value): a value's one text: keys sorted by their bytes in UTF-8 at every level, no white
-- space, only the escapes that are needed, numbers as jsonb prints them, so that 1.0 and 1.00 differ.
-- Raises 54000 if the text would be larger than 1 GB.
CREATE FUNCTION udb.canonical_json(value jsonb) RETURNS text
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_canonical_json';
COMMENT ON FUNCTION udb.canonical_json(jsonb) IS
	'Canonical text of a JSON value, to be hashed and compared';

-- Both are written past the executor, and the library knows the columns and the primary keys.
CREATE TABLE udb.admin_audit_log (
	audit_id uuid NOT NULL CONSTRAINT admin_audit_log_audit_id_key UNIQUE,
	actor text NOT NULL,
	operation text NOT NULL,
	target text NOT NULL,
	request_json jsonb NOT NULL,
	result text NOT NULL,
	tenant_id text,
	project_id text,
	correlation_id text,
	previous_hash text NOT NULL,
	current_hash text NOT NULL,
	signer_key_id text,
	external_anchor text,
	created_at timestamptz NOT NULL,
	chain_position bigint NOT NULL CONSTRAINT admin_audit_log_pkey PRIMARY KEY
);
COMMENT ON TABLE udb.admin_audit_log IS
	'What administrators have done, each row linked to the one before; append with append_admin_audit()';
COMMENT ON COLUMN udb.admin_audit_log.previous_hash IS
	'current_hash of the row at the position before; empty in the first one';
COMMENT ON COLUMN udb.admin_audit_log.current_hash IS
	'SHA-256 of previous_hash, what was done, and by whom, as hexadecimal digits';
COMMENT ON COLUMN udb.admin_audit_log.chain_position IS 'From 1 upwards, without gaps';
SELECT pg_catalog.pg_extension_config_dump('udb.admin_audit_log', '');

CREATE TABLE udb.admin_audit_witness (
	chain_position bigint NOT NULL CONSTRAINT admin_audit_witness_pkey PRIMARY KEY,
	audit_id uuid NOT NULL,
	created_at timestamptz NOT NULL,
	current_hash text NOT NULL
);
COMMENT ON TABLE udb.admin_audit_witness IS
	'Internal: what the hashes of admin_audit_log do not cover, and how long it is';
SELECT pg_catalog.pg_extension_config_dump('udb.admin_audit_witness', '');

-- Rights to the two tables are given to nobody, but members of pg_write_all_data do not need any.
CREATE FUNCTION udb._admin_audit_guard() RETURNS trigger
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('permission denied for table %s', TG_TABLE_NAME),
			DETAIL = 'Only the owner of the extension can write the audit log without append_admin_audit().';
	END IF;
	RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION udb._admin_audit_guard() FROM PUBLIC;
COMMENT ON FUNCTION udb._admin_audit_guard() IS 'Internal: trigger that lets nobody but the owner write';
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON udb.admin_audit_log
	FOR EACH STATEMENT EXECUTE FUNCTION udb._admin_audit_guard();
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON udb.admin_audit_witness
	FOR EACH STATEMENT EXECUTE FUNCTION udb._admin_audit_guard();
ALTER TABLE udb.admin_audit_log ENABLE ALWAYS TRIGGER guard;
ALTER TABLE udb.admin_audit_witness ENABLE ALWAYS TRIGGER guard;

-- append_admin_audit(actor, operation, target, request_json, result, tenant_id, project_id,
-- correlation_id, signer_key_id, external_anchor): append a row that links to the last one, and return its
-- audit_id. Appends of a database take turns: the lock is held until the transaction ends, so append last.
-- Raises 22004 for a null in one of the first five, 42602 and 42622 for an actor or operation that is empty
-- or too long, 54000 for what else is too large, 42704 for an unknown store, 25006 where it cannot write,
-- UD060 audit_witness_missing. Writes admin_audit_log and admin_audit_witness.
CREATE FUNCTION udb.append_admin_audit(actor text, operation text, target text, request_json jsonb, result text,
		tenant_id text DEFAULT NULL, project_id text DEFAULT NULL, correlation_id text DEFAULT NULL,
		signer_key_id text DEFAULT NULL, external_anchor text DEFAULT NULL, store text DEFAULT NULL) RETURNS uuid
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_append_admin_audit';
REVOKE EXECUTE ON FUNCTION udb.append_admin_audit(text, text, text, jsonb, text, text, text, text, text, text, text)
	FROM PUBLIC;
COMMENT ON FUNCTION udb.append_admin_audit(text, text, text, jsonb, text, text, text, text, text, text, text) IS
	'Append a row to the admin audit log, linked to the one before';

-- latest_admin_audit_hash(): current_hash of the last row, '' if there is none. Raises 42704 for an unknown
-- store.
CREATE FUNCTION udb.latest_admin_audit_hash(store text DEFAULT NULL) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT coalesce((SELECT l.current_hash FROM udb.admin_audit_log l ORDER BY l.chain_position DESC LIMIT 1), '')
	WHERE udb._check_store($1)
	$$;
REVOKE EXECUTE ON FUNCTION udb.latest_admin_audit_hash(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.latest_admin_audit_hash(text) IS
	'Hash of the last row of the admin audit log, empty if there is none';

-- list_admin_audit(operation, actor, tenant_id, project_id, row_limit, row_offset, redact_request_json):
-- rows, the newest first; a filter that is null is none. Redacted, request_json is {"redacted": true}.
-- None if row_limit is not positive; a negative row_offset is 0.
-- Raises 22004 for a null in one of the last three, 42704 for an unknown store.
CREATE FUNCTION udb.list_admin_audit(operation text DEFAULT NULL, actor text DEFAULT NULL,
		tenant_id text DEFAULT NULL, project_id text DEFAULT NULL, row_limit integer DEFAULT 100,
		row_offset bigint DEFAULT 0, redact_request_json boolean DEFAULT false, store text DEFAULT NULL)
	RETURNS SETOF udb.admin_audit_log
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_store($8), udb._check_not_null('row_limit', $5), udb._check_not_null('row_offset', $6),
		udb._check_not_null('redact_request_json', $7);
	RETURN QUERY SELECT l.audit_id, l.actor, l.operation, l.target,
		CASE WHEN $7 THEN '{"redacted": true}' ELSE l.request_json END, l.result, l.tenant_id, l.project_id,
		l.correlation_id, l.previous_hash, l.current_hash, l.signer_key_id, l.external_anchor, l.created_at,
		l.chain_position
	FROM udb.admin_audit_log l
	WHERE ($1 IS NULL OR l.operation = $1) AND ($2 IS NULL OR l.actor = $2)
		AND ($3 IS NULL OR l.tenant_id = $3) AND ($4 IS NULL OR l.project_id = $4)
	ORDER BY l.chain_position DESC LIMIT greatest($5, 0) OFFSET greatest($6, 0);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.list_admin_audit(text, text, text, text, integer, bigint, boolean, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.list_admin_audit(text, text, text, text, integer, bigint, boolean, text) IS
	'Rows of the admin audit log, newest first';

-- verify_admin_audit_chain(row_limit): walk the log from its first row, as far as the last one or for so
-- many rows, until one is broken. checked_count rows before that are good, the last of which has last_hash.
-- reason is previous_hash_mismatch (a row before it is missing, was added, or is in another place),
-- missing_current_hash (also if it is the row itself that is missing, at the end), or current_hash_mismatch
-- (it was changed). Not at all if row_limit is not positive. Needs no more memory for more rows.
-- Raises 42704 for an unknown store.
CREATE FUNCTION udb.verify_admin_audit_chain(row_limit bigint DEFAULT NULL, store text DEFAULT NULL,
		OUT outcome text, OUT checked_count bigint, OUT last_hash text, OUT first_broken_audit_id uuid,
		OUT reason text, OUT expected_hash text, OUT actual_hash text)
	LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off
	AS 'MODULE_PATHNAME', 'udb_verify_admin_audit_chain';
REVOKE EXECUTE ON FUNCTION udb.verify_admin_audit_chain(bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.verify_admin_audit_chain(bigint, text) IS
	'Look for the first row of the admin audit log that is not as it was written';
