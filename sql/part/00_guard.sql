-- udb: concatenated from the files in sql/part; edit those

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION udb" to load this file. \quit

-- First, so that a server that has not preloaded the library says so at once.
-- version(): the version of the loaded library, as text. Raises nothing.
CREATE FUNCTION udb.version() RETURNS text
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_version';
COMMENT ON FUNCTION udb.version() IS
	'Version of the loaded library';

-- Whoever owns the schema can drop what the worker creates in it, and add functions beside ours.
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
				   WHERE n.nspname = 'udb' AND (r.rolsuper OR r.rolname = current_user)) THEN
		RAISE insufficient_privilege USING
			MESSAGE = 'schema "udb" belongs to a role that is no superuser',
			HINT = 'Drop it, or change its owner.';
	END IF;
END
$$;

-- The schema is named after the extension and holds nothing else.
GRANT USAGE ON SCHEMA udb TO PUBLIC;
COMMENT ON SCHEMA udb IS 'udb: transactional outbox and feed';
