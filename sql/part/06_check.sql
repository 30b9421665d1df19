-- Checks of arguments ----------------------------------------------------

-- Each is true, or raises what functions in C raise for the same fault.
CREATE FUNCTION udb._check_store(store text) RETURNS boolean
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_check_store_sql';
REVOKE EXECUTE ON FUNCTION udb._check_store(text) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_store(text) IS 'Internal: raise 42704 unless the store is this database';

CREATE FUNCTION udb._check_not_null(argument text, value anyelement) RETURNS boolean
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_check_not_null_sql';
REVOKE EXECUTE ON FUNCTION udb._check_not_null(text, anyelement) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_not_null(text, anyelement) IS 'Internal: raise 22004 for a null';

CREATE FUNCTION udb._check_name(argument text, value text, max_bytes integer DEFAULT 255) RETURNS boolean
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_check_name_sql';
REVOKE EXECUTE ON FUNCTION udb._check_name(text, text, integer) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_name(text, text, integer) IS
	'Internal: raise 22004, 42602 or 42622 for a name that is null, empty or too long';

CREATE FUNCTION udb._check_duration(argument text, value interval, positive boolean) RETURNS boolean
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_check_duration_sql';
REVOKE EXECUTE ON FUNCTION udb._check_duration(text, interval, boolean) FROM PUBLIC;
COMMENT ON FUNCTION udb._check_duration(text, interval, boolean) IS
	'Internal: raise 22004 for a null, 22023 for a negative duration, or for zero if it has to be positive';
