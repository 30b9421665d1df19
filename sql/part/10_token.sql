-- Tokens -----------------------------------------------------------------

CREATE TYPE udb.token;
CREATE FUNCTION udb._token_in(cstring) RETURNS udb.token
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_in';
COMMENT ON FUNCTION udb._token_in(cstring) IS 'Internal: input of udb.token';
CREATE FUNCTION udb._token_out(udb.token) RETURNS cstring
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_out';
COMMENT ON FUNCTION udb._token_out(udb.token) IS 'Internal: output of udb.token';
CREATE FUNCTION udb._token_recv(internal) RETURNS udb.token
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_recv';
COMMENT ON FUNCTION udb._token_recv(internal) IS 'Internal: binary input of udb.token';
CREATE FUNCTION udb._token_send(udb.token) RETURNS bytea
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_send';
COMMENT ON FUNCTION udb._token_send(udb.token) IS 'Internal: binary output of udb.token';

-- "backend:value". Opaque, except for its backend: what it stands for only a server of that kind
-- can tell, by waiting for it. A token of PostgreSQL is shorter than 100 bytes and needs no quoting
-- in URLs and headers.
CREATE TYPE udb.token (
	INPUT = udb._token_in, OUTPUT = udb._token_out,
	RECEIVE = udb._token_recv, SEND = udb._token_send,
	INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = extended
);
COMMENT ON TYPE udb.token IS 'A write, as something that a reader can wait for: backend:value';

-- Equal or not; there is no order. The backend's name is compared without regard to case.
CREATE FUNCTION udb._token_eq(udb.token, udb.token) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_eq';
COMMENT ON FUNCTION udb._token_eq(udb.token, udb.token) IS 'Internal: operator =';
CREATE FUNCTION udb._token_ne(udb.token, udb.token) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_ne';
COMMENT ON FUNCTION udb._token_ne(udb.token, udb.token) IS 'Internal: operator <>';
CREATE FUNCTION udb._token_hash(udb.token) RETURNS integer
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_hash';
COMMENT ON FUNCTION udb._token_hash(udb.token) IS 'Internal: hash';
CREATE FUNCTION udb._token_hash_extended(udb.token, bigint) RETURNS bigint
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_hash_extended';
COMMENT ON FUNCTION udb._token_hash_extended(udb.token, bigint) IS 'Internal: seeded hash';

CREATE OPERATOR udb.= (
	LEFTARG = udb.token, RIGHTARG = udb.token, FUNCTION = udb._token_eq,
	COMMUTATOR = OPERATOR(udb.=), NEGATOR = OPERATOR(udb.<>),
	RESTRICT = eqsel, JOIN = eqjoinsel, HASHES
);
COMMENT ON OPERATOR udb.= (udb.token, udb.token) IS 'equal';
CREATE OPERATOR udb.<> (
	LEFTARG = udb.token, RIGHTARG = udb.token, FUNCTION = udb._token_ne,
	COMMUTATOR = OPERATOR(udb.<>), NEGATOR = OPERATOR(udb.=),
	RESTRICT = neqsel, JOIN = neqjoinsel
);
COMMENT ON OPERATOR udb.<> (udb.token, udb.token) IS 'not equal';
CREATE OPERATOR CLASS udb.token_ops DEFAULT FOR TYPE udb.token USING hash AS
	OPERATOR 1 udb.=,
	FUNCTION 1 udb._token_hash(udb.token),
	FUNCTION 2 udb._token_hash_extended(udb.token, bigint);
COMMENT ON OPERATOR CLASS udb.token_ops USING hash IS 'Hashing of tokens, for DISTINCT, GROUP BY and hash indexes';

-- token_backend(token): the kind of its store, as it was written. Raises nothing.
CREATE FUNCTION udb.token_backend(token udb.token) RETURNS text
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_backend';
COMMENT ON FUNCTION udb.token_backend(udb.token) IS 'Kind of store that a token is of';

-- token_value(token): what only that store understands. Raises nothing.
CREATE FUNCTION udb.token_value(token udb.token) RETURNS text
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_value';
COMMENT ON FUNCTION udb.token_value(udb.token) IS 'A token without the kind of its store';

-- token_covers(a, b): whether who waits for a need not wait for b. Null when they are of different
-- clusters or timelines, where the texts alone do not say. Raises UD020 token_other_backend.
CREATE FUNCTION udb.token_covers(a udb.token, b udb.token) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_covers';
COMMENT ON FUNCTION udb.token_covers(udb.token, udb.token) IS
	'Whether waiting for the first token covers the second; null if the texts do not say';

CREATE FUNCTION udb._token_to_jsonb(udb.token) RETURNS jsonb
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_to_jsonb';
COMMENT ON FUNCTION udb._token_to_jsonb(udb.token) IS 'Internal: cast to jsonb';
CREATE FUNCTION udb._token_from_jsonb(jsonb) RETURNS udb.token
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_token_from_jsonb';
COMMENT ON FUNCTION udb._token_from_jsonb(jsonb) IS 'Internal: cast from jsonb';
-- {"backend_label": ..., "value": ...}. Raises 22P02 for anything else.
CREATE CAST (udb.token AS jsonb) WITH FUNCTION udb._token_to_jsonb(udb.token);
COMMENT ON CAST (udb.token AS jsonb) IS 'an object with backend_label and value';
CREATE CAST (jsonb AS udb.token) WITH FUNCTION udb._token_from_jsonb(jsonb);
COMMENT ON CAST (jsonb AS udb.token) IS 'from an object with backend_label and value';

-- last_commit_token(): the end of this session's last commit that wrote something; null if there was
-- none. Says whether the commit is durable by now. Raises 58P01 if a timeline's history is missing.
CREATE FUNCTION udb.last_commit_token() RETURNS udb.token
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'udb_last_commit_token';
COMMENT ON FUNCTION udb.last_commit_token() IS
	'Token of the last commit of this session that wrote something; null if there was none';

-- current_token(): covers all that anybody could have seen on this server until now. On a standby,
-- what has been replayed. On a primary the WAL writer is asked to flush up to there.
CREATE FUNCTION udb.current_token() RETURNS udb.token
	LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_current_token';
COMMENT ON FUNCTION udb.current_token() IS
	'Token that covers everything that could be visible on this server now';

-- durable_token(token): the same token, made durable; flushes the WAL up to it if need be. An
-- asynchronous token is accepted only by the server that gave it, until that is started again.
-- Raises UD020 to UD025, and 55000 on a standby.
CREATE FUNCTION udb.durable_token(token udb.token) RETURNS udb.token
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'udb_durable_token';
REVOKE EXECUTE ON FUNCTION udb.durable_token(udb.token) FROM PUBLIC;
COMMENT ON FUNCTION udb.durable_token(udb.token) IS
	'The token as a durable one, flushing the WAL up to it if need be';
