-- Type udb.token: input, output, equality, hashing, casts
\set VERBOSITY terse
\pset null '(null)'
SET search_path = public, udb;

-- any kind of store, as written
SELECT token 'mysql:3E11FA47-71CA-11E1-9E33-C80AA9429562:1-23' AS mysql,
	token 'MongoDB:{"t": 7, "i": 1}' AS mongodb, token 'x-y_1:1' AS other;
SELECT token 'postgres:1.00000000000000ff.1.0.3017028.d' AS durable,
	token 'Postgres:1.6b0d71f8916e6458.1a.2f00.301ff30.a2279ec6' AS asynchronous;
-- the longest one of PostgreSQL is short enough for a header
SELECT length((token 'postgres:1.ffffffffffffffff.ffffffff.ffffffffffffff00.ffffffffffffffff.affffffff')::text) < 100 AS short;

-- what is no token
SELECT token '';
SELECT token 'mysql';
SELECT token ':1';
SELECT token 'mysql:';
SELECT token '1mysql:x';
SELECT token 'my sql:x';
SELECT token E'mysql:a\nb';
SELECT token E'mysql:a\x7f';
SELECT (repeat('m', 63) || ':x')::token IS NOT NULL AS longest_label;
SELECT (repeat('m', 64) || ':x')::token;
SELECT length(('m:' || repeat('x', 8190))::token::text) AS longest;
SELECT ('m:' || repeat('x', 8191))::token;
SELECT pg_lsn '0/3017028'::text::token;

-- PostgreSQL's own are looked into, and have one form
\set VERBOSITY default
SELECT token 'postgres:2.00000000000000ff.1.0.3017028.d';
SELECT token 'postgres:u1.00000000000000ff.1.0.3017028.d';
SELECT token 'postgres:1.ff.1.0.3017028.d';
\set VERBOSITY terse
SELECT token 'postgres:1.00000000000000FF.1.0.3017028.d';
SELECT token 'postgres:1.00000000000000ff.01.0.3017028.d';
SELECT token 'postgres:1.00000000000000ff.1.0.03017028.d';
SELECT token 'postgres:1.00000000000000ff.0.0.3017028.d';
SELECT token 'postgres:1.00000000000000ff.1.0.0.d';
SELECT token 'postgres:1.00000000000000ff.2.3017029.3017028.d';
SELECT token 'postgres:1.00000000000000ff.1.0.3017028';
SELECT token 'postgres:1.00000000000000ff.1.0.3017028.';
SELECT token 'postgres:1.00000000000000ff.1.0.3017028.x';
SELECT token 'postgres:1.00000000000000ff.1.0.3017028.d1';
SELECT token 'postgres:1.00000000000000ff.1.0.3017028.a';
SELECT token 'postgres:1.00000000000000ff.1.0.3017028.a123456789';
SELECT token 'postgres:1.00000000000000ff.1.0.10000000000000000.d';
SELECT token 'postgres:1.00000000000000ff.123456789.0.3017028.d';

-- equality: the label without regard to case, the rest exactly
SELECT token 'MySQL:aB' = 'mysql:aB' AS label, token 'mysql:aB' = 'mysql:ab' AS value,
	token 'mysql:a' <> 'mysq:a' AS ne, token 'a:b:c' = 'a:b:c' AS colons, token 'ab:c' = 'a:bc' AS border;
SELECT _token_hash('MySQL:aB') = _token_hash('mysql:aB') AS same,
	_token_hash('mysql:aB') = _token_hash('mysql:ab') AS different,
	_token_hash_extended('MySQL:aB', 7) = _token_hash_extended('mysql:aB', 7) AS same_seeded,
	_token_hash_extended('mysql:aB', 0) = _token_hash_extended('mysql:aB', 1) AS different_seed;
SELECT count(*) FROM (SELECT DISTINCT t FROM (VALUES (token 'a:1'), ('A:1'), ('a:2')) v(t)) d;
CREATE TABLE tokens (t token);
CREATE INDEX ON tokens USING hash (t);
INSERT INTO tokens SELECT ('m:' || i)::token FROM generate_series(1, 1000) i;
SET enable_seqscan = off;
SELECT t FROM tokens WHERE t = 'M:500';
RESET enable_seqscan;
-- there is no order
SELECT t FROM tokens ORDER BY t LIMIT 1;
DROP TABLE tokens;

-- parts and casts
SELECT token_backend('MySQL:a:b'), token_value('MySQL:a:b'), token_value(NULL);
SELECT token 'MySQL:a:b'::jsonb, (token 'MySQL:a:b'::jsonb)::token;
SELECT ('{"value": "x", "backend_label": "kafka", "more": 1}'::jsonb)::token;
SELECT '1'::jsonb::token;
SELECT '{}'::jsonb::token;
SELECT '{"backend_label": "kafka"}'::jsonb::token;
SELECT '{"backend_label": "kafka", "value": 1}'::jsonb::token;
SELECT '{"backend_label": "kafka:x", "value": "1"}'::jsonb::token;
SELECT '{"backend_label": "", "value": "1"}'::jsonb::token;

-- binary form; COPY reads it back
CREATE TEMP TABLE a (t token);
INSERT INTO a VALUES ('mysql:x'), ('postgres:1.00000000000000ff.1.0.3017028.d');
SELECT encode(_token_send(t), 'escape') FROM a;
SELECT current_setting('data_directory') || '/token_type.bin' AS file \gset
COPY a TO :'file' (FORMAT binary);
CREATE TEMP TABLE b (t token);
COPY b FROM :'file' (FORMAT binary);
SELECT t FROM b;
CREATE TEMP TABLE bad (t bytea);
INSERT INTO bad VALUES ('mysql');
COPY bad TO :'file' (FORMAT binary);
COPY b FROM :'file' (FORMAT binary);

-- which one covers which
\set p 'postgres:1.00000000000000ff.'
SELECT token_covers((:'p' || '1.0.2000.d')::token, (:'p' || '1.0.1000.d')::token) AS later,
	token_covers((:'p' || '1.0.1000.d')::token, (:'p' || '1.0.2000.d')::token) AS earlier,
	token_covers((:'p' || '1.0.1000.d')::token, (:'p' || '1.0.1000.a1')::token) AS same,
	token_covers((:'p' || '2.500.2000.d')::token, (:'p' || '1.0.1000.d')::token) AS other_timeline,
	token_covers((:'p' || '2.500.2000.d')::token, (:'p' || '2.600.1000.d')::token) AS other_begin,
	token_covers((:'p' || '1.0.2000.d')::token, 'postgres:1.00000000000000fe.1.0.1000.d') AS other_cluster;
SELECT token_covers('mysql:x', (:'p' || '1.0.1000.d')::token);
SELECT token_covers('mysql:x', 'MYSQL:x') AS equal;
