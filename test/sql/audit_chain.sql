-- The admin audit log in one session: what is refused, who may, and that changes behind its back are found.
\set VERBOSITY terse
\pset format unaligned
SELECT * FROM udb.admin_audit_log;

-- bad arguments are refused and change nothing
SELECT udb.append_admin_audit(NULL, 'op', 't', '{}', 'ok');
SELECT udb.append_admin_audit('a', NULL, 't', '{}', 'ok');
SELECT udb.append_admin_audit('a', 'op', NULL, '{}', 'ok');
SELECT udb.append_admin_audit('a', 'op', 't', NULL, 'ok');
SELECT udb.append_admin_audit('a', 'op', 't', '{}', NULL);
SELECT udb.append_admin_audit('', 'op', 't', '{}', 'ok');
SELECT udb.append_admin_audit('a', '', 't', '{}', 'ok');
SELECT udb.append_admin_audit(repeat('x', 256), 'op', 't', '{}', 'ok');
SELECT udb.append_admin_audit('a', repeat('x', 256), 't', '{}', 'ok');
SELECT udb.append_admin_audit('a', 'op', repeat('x', 8193), '{}', 'ok');
SELECT udb.append_admin_audit('a', 'op', 't', '{}', repeat('x', 8193));
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok', tenant_id => repeat('x', 256));
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok', project_id => repeat('x', 256));
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok', correlation_id => repeat('x', 256));
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok', signer_key_id => repeat('x', 256));
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok', external_anchor => repeat('x', 8193));
SELECT udb.append_admin_audit('a', 'op', 't', to_jsonb(repeat('x', 16 * 1024 * 1024)), 'ok');
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok', store => 'elsewhere');
SELECT udb.latest_admin_audit_hash('elsewhere');
SELECT udb.list_admin_audit(store => 'elsewhere');
SELECT udb.verify_admin_audit_chain(store => 'elsewhere');
SELECT udb.list_admin_audit(row_limit => NULL);
SELECT udb.list_admin_audit(row_offset => NULL);
SELECT udb.list_admin_audit(redact_request_json => NULL);
BEGIN READ ONLY;
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok');
ROLLBACK;
SELECT count(*) FROM udb.admin_audit_log;

-- the longest that is allowed, and what is nearly nothing
BEGIN;
SELECT count(udb.append_admin_audit(repeat('x', 255), repeat('x', 255), repeat('x', 8192), '{}', repeat('x', 8192), repeat('x', 255),
	repeat('x', 255), repeat('x', 255), repeat('x', 255), repeat('x', 8192)));
SELECT count(udb.append_admin_audit('a', 'o', '', 'null', '', '', '', '', '', ''));
SELECT count(udb.append_admin_audit('a', 'o', 't', to_jsonb(repeat('x', 16 * 1024 * 1024 - 100)), 'ok'));
SELECT outcome, checked_count FROM udb.verify_admin_audit_chain();
ROLLBACK;

-- the first row links to nothing, and each later one to the one before
SELECT udb.latest_admin_audit_hash() = '';
SELECT count(udb.append_admin_audit('actor-' || i % 3, 'op-' || i % 2, 'target', jsonb_build_object('n', i), 'ok', 'tenant',
	NULLIF('project-' || i % 4, 'project-0'), 'correlation', 'key', 'anchor')) FROM generate_series(1, 12) i;
SELECT chain_position, actor, operation, request_json, project_id,
	previous_hash = coalesce(lag(current_hash) OVER w, '') AS linked,
	audit_id > lag(audit_id) OVER w AS later_id, created_at >= lag(created_at) OVER w AS later
FROM udb.admin_audit_log WINDOW w AS (ORDER BY chain_position) ORDER BY chain_position;
-- the hash is what the contract says
SELECT count(*) FROM udb.admin_audit_log WHERE current_hash = encode(sha256(convert_to(udb.canonical_json(jsonb_build_object(
	'previous_hash', previous_hash, 'actor', actor, 'operation', operation, 'target', target, 'request_json', request_json,
	'result', result, 'tenant_id', tenant_id, 'project_id', project_id, 'correlation_id', correlation_id,
	'signer_key_id', signer_key_id, 'external_anchor', external_anchor)), 'UTF8')), 'hex');

-- a savepoint that is rolled back leaves no gap
BEGIN;
SELECT count(udb.append_admin_audit('a', 'kept', 't', '{}', 'ok'));
SAVEPOINT s;
SELECT count(udb.append_admin_audit('a', 'taken back', 't', '{}', 'ok')) FROM generate_series(1, 3);
ROLLBACK TO s;
SELECT count(udb.append_admin_audit('a', 'after', 't', '{}', 'ok'));
SELECT chain_position, operation FROM udb.list_admin_audit(row_limit => 3);
SELECT outcome, checked_count FROM udb.verify_admin_audit_chain();
COMMIT;
-- two in one statement, and one that fails half-way
SELECT udb.append_admin_audit('a', 'one', 't', '{}', 'ok') < udb.append_admin_audit('a', 'two', 't', '{}', 'ok') AS in_order;
SELECT udb.append_admin_audit('a', 'op', 't', '{}', CASE WHEN i < 3 THEN 'ok' END) FROM generate_series(1, 3) i;
SELECT outcome, checked_count, last_hash = udb.latest_admin_audit_hash() AS latest FROM udb.verify_admin_audit_chain();

-- what list gives
SELECT chain_position FROM udb.list_admin_audit(operation => 'op-1', actor => 'actor-0');
SELECT chain_position, request_json FROM udb.list_admin_audit(tenant_id => 'tenant', project_id => 'project-2', redact_request_json => true);
SELECT chain_position FROM udb.list_admin_audit(row_limit => 2, row_offset => 3);
SELECT count(*) FROM udb.list_admin_audit(row_limit => 0);
SELECT count(*) FROM udb.list_admin_audit(row_limit => -1);
SELECT count(*) FROM udb.list_admin_audit(row_offset => -5);

-- how far it is verified
SELECT outcome, checked_count, last_hash = (SELECT current_hash FROM udb.admin_audit_log WHERE chain_position = 5) AS fifth
FROM udb.verify_admin_audit_chain(5);
SELECT outcome, checked_count, last_hash FROM udb.verify_admin_audit_chain(0);
SELECT outcome, checked_count, last_hash FROM udb.verify_admin_audit_chain(-1);
SELECT outcome, checked_count FROM udb.verify_admin_audit_chain(1000000);

-- Tampering. The owner can do it; whatever it is, verify finds the first row that it concerns.
CREATE FUNCTION pg_temp.tamper(what text, VARIADIC statements text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	statement text;
	found text;
	r record;
BEGIN
	FOREACH statement IN ARRAY statements LOOP
		EXECUTE statement;
	END LOOP;
	SELECT v.*, l.chain_position, l.operation INTO r
	FROM udb.verify_admin_audit_chain() v LEFT JOIN udb.admin_audit_log l ON l.audit_id = v.first_broken_audit_id;
	found := format('%s: %s, %s good, row %s %s, expected %s, actual %s', what, r.outcome, r.checked_count,
		coalesce(r.chain_position::text, CASE WHEN r.first_broken_audit_id IS NULL THEN 'unknown' ELSE 'gone' END), r.reason,
		coalesce(left(regexp_replace(r.expected_hash, '^[0-9a-f]{64}$', 'hash'), 9), 'null'),
		coalesce(left(regexp_replace(r.actual_hash, '^[0-9a-f]{64}$', 'hash'), 9), 'null'));
	RAISE SQLSTATE 'TT000' USING MESSAGE = found;
EXCEPTION WHEN SQLSTATE 'TT000' THEN
	-- all is as before
	RETURN sqlerrm;
END
$$;
SELECT pg_temp.tamper(column_name || ' changed', format('UPDATE udb.admin_audit_log SET %I = %s WHERE chain_position = 6', column_name,
	CASE column_name WHEN 'audit_id' THEN 'gen_random_uuid()' WHEN 'request_json' THEN '''{"n": 6.0}''' WHEN 'created_at' THEN 'created_at - interval ''1 us'''
	WHEN 'chain_position' THEN '100' WHEN 'previous_hash' THEN '''x''' WHEN 'current_hash' THEN 'repeat(''0'', 64)' ELSE format('%I || '' ''', column_name) END))
FROM information_schema.columns WHERE table_schema = 'udb' AND table_name = 'admin_audit_log' ORDER BY ordinal_position;
SELECT pg_temp.tamper(column_name || ' set null',
	format('ALTER TABLE udb.admin_audit_log DROP CONSTRAINT admin_audit_log_pkey, ALTER chain_position DROP NOT NULL, ALTER %I DROP NOT NULL', column_name),
	format('UPDATE udb.admin_audit_log SET %I = NULL WHERE chain_position = 7', column_name))
FROM information_schema.columns WHERE table_schema = 'udb' AND table_name = 'admin_audit_log' ORDER BY ordinal_position;
-- null, the empty string, and the value null of jsonb are different
SELECT pg_temp.tamper('empty for null', 'UPDATE udb.admin_audit_log SET project_id = '''' WHERE chain_position = 4');
BEGIN;
SELECT count(udb.append_admin_audit('a', 'op', 't', 'null', 'ok', ''));
SELECT pg_temp.tamper('null for empty', 'UPDATE udb.admin_audit_log SET tenant_id = NULL WHERE chain_position = 17');
SELECT pg_temp.tamper('null for null', 'ALTER TABLE udb.admin_audit_log ALTER request_json DROP NOT NULL',
	'UPDATE udb.admin_audit_log SET request_json = NULL WHERE chain_position = 17');
ROLLBACK;
SELECT pg_temp.tamper('moved between columns', 'UPDATE udb.admin_audit_log SET actor = operation, operation = actor WHERE chain_position = 3');
SELECT pg_temp.tamper('no hash', 'UPDATE udb.admin_audit_log SET current_hash = '''' WHERE chain_position = 8');
SELECT pg_temp.tamper('first row deleted', 'DELETE FROM udb.admin_audit_log WHERE chain_position = 1');
SELECT pg_temp.tamper('row deleted', 'DELETE FROM udb.admin_audit_log WHERE chain_position = 9');
SELECT pg_temp.tamper('row deleted, others moved up', 'DELETE FROM udb.admin_audit_log WHERE chain_position = 9',
	'UPDATE udb.admin_audit_log SET chain_position = chain_position + 100 WHERE chain_position > 9',
	'UPDATE udb.admin_audit_log SET chain_position = chain_position - 101 WHERE chain_position > 100');
SELECT pg_temp.tamper('last row deleted', 'DELETE FROM udb.admin_audit_log WHERE chain_position = 16');
SELECT pg_temp.tamper('last rows deleted', 'DELETE FROM udb.admin_audit_log WHERE chain_position > 13');
SELECT pg_temp.tamper('last row deleted, and appended', 'DELETE FROM udb.admin_audit_log WHERE chain_position = 16',
	'SELECT udb.append_admin_audit(''a'', ''op'', ''t'', ''{}'', ''ok'')');
SELECT pg_temp.tamper('all rows deleted', 'DELETE FROM udb.admin_audit_log');
SELECT pg_temp.tamper('truncated', 'TRUNCATE udb.admin_audit_log');
SELECT pg_temp.tamper('truncated, and appended', 'TRUNCATE udb.admin_audit_log',
	'SELECT udb.append_admin_audit(''a'', ''op'', ''t'', ''{}'', ''ok'')');
SELECT pg_temp.tamper('rows swapped', 'UPDATE udb.admin_audit_log SET chain_position = 100 WHERE chain_position = 5',
	'UPDATE udb.admin_audit_log SET chain_position = 5 WHERE chain_position = 6',
	'UPDATE udb.admin_audit_log SET chain_position = 6 WHERE chain_position = 100');
SELECT pg_temp.tamper('all positions shifted', 'UPDATE udb.admin_audit_log SET chain_position = chain_position + 100');
SELECT pg_temp.tamper('row added at the end', 'INSERT INTO udb.admin_audit_log
	SELECT gen_random_uuid(), actor, operation, target, request_json, result, tenant_id, project_id, correlation_id, previous_hash,
		current_hash, signer_key_id, external_anchor, created_at, 17 FROM udb.admin_audit_log WHERE chain_position = 16');
SELECT pg_temp.tamper('row added before the first', 'INSERT INTO udb.admin_audit_log
	SELECT gen_random_uuid(), actor, operation, target, request_json, result, tenant_id, project_id, correlation_id, previous_hash,
		current_hash, signer_key_id, external_anchor, created_at, 0 FROM udb.admin_audit_log WHERE chain_position = 1');
SELECT pg_temp.tamper('position twice', 'ALTER TABLE udb.admin_audit_log DROP CONSTRAINT admin_audit_log_pkey, DROP CONSTRAINT admin_audit_log_audit_id_key',
	'INSERT INTO udb.admin_audit_log SELECT * FROM udb.admin_audit_log WHERE chain_position = 10');
-- a row that was changed, with hashes that fit, and all after it linked anew: the witness has seen others
CREATE FUNCTION pg_temp.rehash(first bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	p bigint;
	last text := (SELECT current_hash FROM udb.admin_audit_log WHERE chain_position = first - 1);
BEGIN
	FOR p IN SELECT chain_position FROM udb.admin_audit_log WHERE chain_position >= first ORDER BY 1 LOOP
		UPDATE udb.admin_audit_log SET previous_hash = last WHERE chain_position = p;
		UPDATE udb.admin_audit_log SET current_hash = encode(sha256(convert_to(udb.canonical_json(jsonb_build_object(
			'previous_hash', previous_hash, 'actor', actor, 'operation', operation, 'target', target, 'request_json', request_json,
			'result', result, 'tenant_id', tenant_id, 'project_id', project_id, 'correlation_id', correlation_id,
			'signer_key_id', signer_key_id, 'external_anchor', external_anchor)), 'UTF8')), 'hex')
		WHERE chain_position = p RETURNING current_hash INTO last;
	END LOOP;
END
$$;
SELECT pg_temp.tamper('changed, and hashed again', 'UPDATE udb.admin_audit_log SET actor = ''somebody else'' WHERE chain_position = 11',
	'SELECT pg_temp.rehash(11)');
SELECT pg_temp.tamper('the witness changed', 'UPDATE udb.admin_audit_witness SET created_at = now() WHERE chain_position = 2');
SELECT pg_temp.tamper('the witness lost a row', 'DELETE FROM udb.admin_audit_witness WHERE chain_position = 2');
-- nothing can be appended where nobody knows what to link to
BEGIN;
\set VERBOSITY default
TRUNCATE udb.admin_audit_witness;
SELECT udb.append_admin_audit('a', 'op', 't', '{}', 'ok');
\set VERBOSITY terse
ROLLBACK;
-- all this left nothing behind
SELECT outcome, checked_count FROM udb.verify_admin_audit_chain();

-- Rights: nobody writes the tables, not even who may write all tables, nor with triggers switched off
CREATE ROLE regress_audit_admin;
CREATE ROLE regress_audit_monitor;
CREATE ROLE regress_audit_writer IN ROLE pg_write_all_data, pg_read_all_data;
SELECT udb.grant_role('regress_audit_admin', 'admin'), udb.grant_role('regress_audit_monitor', 'monitor');
GRANT ALL ON udb.admin_audit_log, udb.admin_audit_witness TO regress_audit_writer;
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END
$$;
CREATE FUNCTION pg_temp.tries() RETURNS TABLE (role name, statement text, result text) LANGUAGE sql AS $$
	SELECT current_user, statement, pg_temp.try(statement) FROM (VALUES
		('UPDATE udb.admin_audit_log SET actor = ''x'''),
		('UPDATE udb.admin_audit_log SET actor = ''x'' WHERE false'),
		('DELETE FROM udb.admin_audit_log'),
		('TRUNCATE udb.admin_audit_log'),
		('INSERT INTO udb.admin_audit_log SELECT * FROM udb.admin_audit_log'),
		('INSERT INTO udb.admin_audit_log SELECT * FROM udb.admin_audit_log ON CONFLICT (chain_position) DO UPDATE SET actor = ''x'''),
		('UPDATE udb.admin_audit_witness SET current_hash = ''x'''),
		('DELETE FROM udb.admin_audit_witness'),
		('TRUNCATE udb.admin_audit_witness, udb.admin_audit_log'),
		('ALTER TABLE udb.admin_audit_log DISABLE TRIGGER ALL'),
		('DROP TABLE udb.admin_audit_log'),
		('SELECT udb.append_admin_audit(''a'', ''op'', ''t'', ''{}'', ''ok'')'),
		('SELECT udb.latest_admin_audit_hash()'),
		('SELECT * FROM udb.list_admin_audit()'),
		('SELECT * FROM udb.verify_admin_audit_chain()'),
		('SELECT udb.canonical_json(''1'')')) s(statement)
$$;
GRANT EXECUTE ON FUNCTION pg_temp.try(text), pg_temp.tries() TO PUBLIC;
BEGIN;
SET LOCAL ROLE regress_audit_admin;
SELECT * FROM pg_temp.tries();
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_audit_monitor;
SELECT * FROM pg_temp.tries();
ROLLBACK;
BEGIN;
SET LOCAL session_replication_role = replica;
SET LOCAL ROLE regress_audit_writer;
SELECT * FROM pg_temp.tries();
UPDATE udb.admin_audit_log SET actor = 'x';
ROLLBACK;
SELECT outcome, checked_count FROM udb.verify_admin_audit_chain();
REVOKE ALL ON udb.admin_audit_log, udb.admin_audit_witness FROM regress_audit_writer;
DROP OWNED BY regress_audit_admin, regress_audit_monitor;
DROP ROLE regress_audit_admin, regress_audit_monitor, regress_audit_writer;

-- an index that somebody adds is kept up
CREATE INDEX more ON udb.admin_audit_log (actor);
SELECT count(udb.append_admin_audit('indexed', 'op', 't', '{}', 'ok'));
SET enable_seqscan = off;
SELECT count(*) FROM udb.admin_audit_log WHERE actor = 'indexed';
RESET enable_seqscan;
DROP INDEX udb.more;
TRUNCATE udb.admin_audit_log, udb.admin_audit_witness;
SELECT outcome, checked_count, last_hash FROM udb.verify_admin_audit_chain();
