-- Errors -----------------------------------------------------------------

CREATE FUNCTION udb._error_codes(OUT sqlstate text, OUT condition_name text, OUT description text)
	RETURNS SETOF record
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_error_codes_list';
COMMENT ON FUNCTION udb._error_codes() IS 'Internal: rows of udb.error_codes';

CREATE VIEW udb.error_codes AS SELECT * FROM udb._error_codes();
COMMENT ON VIEW udb.error_codes IS 'SQLSTATEs of class UD, which udb raises where no standard one fits';
GRANT SELECT ON udb.error_codes TO PUBLIC;

-- generate_uuidv7(): a time-ordered UUID (RFC 9562, version 7). Rises within a session.
CREATE FUNCTION udb.generate_uuidv7() RETURNS uuid
	LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_generate_uuidv7';
COMMENT ON FUNCTION udb.generate_uuidv7() IS
	'Time-ordered UUID (version 7); rises within a session';
