-- Migrations -------------------------------------------------------------

CREATE TABLE udb.schema_stamps (
	component text COLLATE "C" PRIMARY KEY CHECK (octet_length(component) BETWEEN 1 AND 255),
	version integer NOT NULL CHECK (version > 0),
	stamped_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE udb.schema_stamps IS 'Up to which step each component''s schema has been migrated';
SELECT pg_catalog.pg_extension_config_dump('udb.schema_stamps', '');

CREATE TABLE udb.migration_steps (
	component text COLLATE "C" CHECK (octet_length(component) BETWEEN 1 AND 255),
	version integer CHECK (version > 0),
	name text NOT NULL,
	sql text NOT NULL,
	verify_sql text,
	transactional boolean NOT NULL,
	registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (component, version),
	CHECK (transactional OR verify_sql IS NOT NULL)
);
COMMENT ON TABLE udb.migration_steps IS 'Registered steps; change them with register_migration()';
COMMENT ON COLUMN udb.migration_steps.verify_sql IS
	'Query that is true where the step has taken effect already';
COMMENT ON COLUMN udb.migration_steps.transactional IS
	'False: it cannot run in a transaction, and runs alone, as in a session of its own';
SELECT pg_catalog.pg_extension_config_dump('udb.migration_steps', '');

CREATE TABLE udb.migration_history (
	component text COLLATE "C",
	version integer,
	applied_at timestamptz DEFAULT clock_timestamp(),
	name text NOT NULL,
	outcome text NOT NULL CHECK (outcome IN ('applied', 'healed')),
	checksum text NOT NULL,
	duration interval NOT NULL,
	applied_by text NOT NULL,
	PRIMARY KEY (component, version, applied_at)
);
COMMENT ON TABLE udb.migration_history IS 'Each step that was applied, or found to have taken effect already';
COMMENT ON COLUMN udb.migration_history.outcome IS
	'applied, or healed: it failed, but its verify query was true';
COMMENT ON COLUMN udb.migration_history.checksum IS 'SHA-256 of its SQL in UTF-8, as hexadecimal digits';
SELECT pg_catalog.pg_extension_config_dump('udb.migration_history', '');

CREATE FUNCTION udb._migration_checksum(sql text) RETURNS text
	LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$ SELECT encode(sha256(convert_to(sql, 'UTF8')), 'hex') $$;
COMMENT ON FUNCTION udb._migration_checksum(text) IS 'Internal: checksum of a step''s SQL';

-- Steps up to the stamp whose SQL is not what was applied last.
CREATE VIEW udb._migrations_changed AS
	SELECT s.component, s.version, s.name
	FROM udb.migration_steps s JOIN udb.schema_stamps t ON t.component = s.component AND s.version <= t.version
	WHERE udb._migration_checksum(s.sql) <>
		(SELECT h.checksum FROM udb.migration_history h
		 WHERE h.component = s.component AND h.version = s.version ORDER BY h.applied_at DESC LIMIT 1);
COMMENT ON VIEW udb._migrations_changed IS 'Internal: steps that have been applied with other SQL';

-- register_migration(component, version, name, sql, verify_sql, transactional): add a step, or change one
-- that has not been applied. The same step again changes nothing. verify_sql is a query that is true where
-- the step has taken effect. A step that is not transactional runs outside of transactions and needs one.
-- Raises 22004 for nulls, 42602 and 42622 for a bad component, 22023 for a bad version, name, sql or a
-- missing verify_sql, UD031 migration_changed. Writes migration_steps.
CREATE FUNCTION udb.register_migration(component text, version integer, name text, sql text,
		verify_sql text DEFAULT NULL, transactional boolean DEFAULT true) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	missing text := CASE WHEN $1 IS NULL THEN 'component' WHEN $2 IS NULL THEN 'version' WHEN $3 IS NULL THEN 'name'
		WHEN $4 IS NULL THEN 'sql' WHEN $6 IS NULL THEN 'transactional' END;
BEGIN
	IF missing IS NOT NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = format('argument "%s" must not be null', missing);
	ELSIF $1 = '' THEN
		RAISE invalid_name USING MESSAGE = 'component must not be empty';
	ELSIF octet_length($1) > 255 THEN
		RAISE name_too_long USING MESSAGE = format('component of %s bytes is too long', octet_length($1)),
			DETAIL = 'The limit is 255 bytes.';
	ELSIF $2 <= 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'version must be greater than zero';
	ELSIF $3 = '' OR $4 !~ '[^[:space:]]' THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('%s of a migration step must not be empty', CASE WHEN $3 = '' THEN 'name' ELSE 'sql' END);
	ELSIF NOT $6 AND $5 IS NULL THEN
		RAISE invalid_parameter_value USING
			MESSAGE = format('step %s of component "%s" is not transactional and has no verify query', $2, $1),
			HINT = 'Such a step can be cut off half-way: give a query that is true when it has taken effect.';
	END IF;

	INSERT INTO udb.migration_steps AS s (component, version, name, sql, verify_sql, transactional)
	VALUES ($1, $2, $3, $4, $5, $6)
	ON CONFLICT (component, version) DO UPDATE SET name = excluded.name, sql = excluded.sql,
		verify_sql = excluded.verify_sql, transactional = excluded.transactional, registered_at = clock_timestamp()
	WHERE (s.name, s.sql, s.verify_sql, s.transactional) IS DISTINCT FROM
		(excluded.name, excluded.sql, excluded.verify_sql, excluded.transactional);

	IF EXISTS (SELECT FROM udb._migrations_changed c WHERE c.component = $1 AND c.version = $2) THEN
		RAISE SQLSTATE 'UD031' USING
			MESSAGE = format('step %s of component "%s" has been applied with other SQL', $2, $1),
			HINT = 'Register what changes as a new version.';
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.register_migration(text, integer, text, text, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION udb.register_migration(text, integer, text, text, text, boolean) IS
	'Register a step of a component''s schema, or change one that has not been applied';

-- CALL migrate(component, target): apply the registered steps above the stamp, in order and up to target,
-- each in a transaction of its own together with the stamp. A step that fails, but whose verify query is
-- true, counts as applied; otherwise its error is raised and nothing after it is run. The steps run as the
-- caller, with the caller's search_path. Only outside of transaction blocks.
-- Raises 22004, 2D000 inside a transaction block, 42704 for an unknown component, UD031 migration_changed,
-- UD033 migration_not_verified, and whatever a step raises.
CREATE PROCEDURE udb.migrate(component text, target integer DEFAULT NULL)
	LANGUAGE c AS 'MODULE_PATHNAME', 'udb_migrate';
REVOKE EXECUTE ON PROCEDURE udb.migrate(text, integer) FROM PUBLIC;
COMMENT ON PROCEDURE udb.migrate(text, integer) IS
	'Apply a component''s pending steps, each in its own transaction; only outside of transaction blocks';

-- schema_stamp(component): the version that the component has been migrated to, 0 for none.
CREATE FUNCTION udb.schema_stamp(component text) RETURNS integer
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ SELECT coalesce((SELECT version FROM udb.schema_stamps s WHERE s.component = $1), 0) $$;
COMMENT ON FUNCTION udb.schema_stamp(text) IS 'Version that a component has been migrated to, 0 for none';

-- step_count(component): how many steps are registered.
CREATE FUNCTION udb.step_count(component text) RETURNS integer
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ SELECT count(*)::integer FROM udb.migration_steps s WHERE s.component = $1 $$;
COMMENT ON FUNCTION udb.step_count(text) IS 'Number of registered steps of a component';

-- pending_migrations(component): the steps above the stamp, in order.
CREATE FUNCTION udb.pending_migrations(component text, OUT version integer, OUT name text, OUT transactional boolean)
	RETURNS SETOF record
	LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT s.version, s.name, s.transactional FROM udb.migration_steps s
	WHERE s.component = $1 AND s.version > udb.schema_stamp($1) ORDER BY s.version
	$$;
COMMENT ON FUNCTION udb.pending_migrations(text) IS 'Steps of a component that have not been applied, in order';

-- require_schema(component): raise UD032 schema_not_current unless all registered steps are applied, and
-- 42704 if the component is not known. A stamp beyond the registered steps is current.
CREATE FUNCTION udb.require_schema(component text) RETURNS void
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	stamp integer := udb.schema_stamp($1);
	needed integer := (SELECT max(s.version) FROM udb.migration_steps s WHERE s.component = $1);
BEGIN
	IF $1 IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'argument "component" must not be null';
	ELSIF needed IS NULL AND stamp = 0 THEN
		RAISE undefined_object USING MESSAGE = format('component "%s" has no migration steps', $1);
	ELSIF stamp < needed THEN
		RAISE SQLSTATE 'UD032' USING
			MESSAGE = format('schema of component "%s" is at version %s, but version %s is needed', $1, stamp, needed),
			HINT = format('Run CALL udb.migrate(%L).', $1);
	END IF;
END
$$;
COMMENT ON FUNCTION udb.require_schema(text) IS
	'Raise schema_not_current unless a component''s registered steps have all been applied';
