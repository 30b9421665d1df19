-- The contract of the admin audit log, as every store has to keep it.
\set store ''
\getenv store UDB_STORE
BEGIN;
SELECT plan(51);
SELECT set_config('audit.store', :'store', true) \g /dev/null
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql AS $$ SELECT nullif(current_setting('audit.store'), '') $$;
CREATE FUNCTION pg_temp.append(actor text, operation text, request_json jsonb DEFAULT '{}', tenant_id text DEFAULT NULL,
	project_id text DEFAULT NULL) RETURNS uuid LANGUAGE sql AS $$
	SELECT udb.append_admin_audit($1, $2, 'target', $3, 'ok', $4, $5, store => pg_temp.store())
$$;
CREATE FUNCTION pg_temp.newest() RETURNS udb.admin_audit_log LANGUAGE sql AS $$
	SELECT l FROM udb.list_admin_audit(row_limit => 1, store => pg_temp.store()) l
$$;
CREATE FUNCTION pg_temp.sha256(content text) RETURNS text LANGUAGE sql AS $$
	SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex')
$$;
-- what is there already belongs to others
SELECT checked_count AS before, coalesce(last_hash, '') AS first_hash FROM udb.verify_admin_audit_chain(store => pg_temp.store()) \gset

-- an empty log has an empty hash
SELECT is(udb.latest_admin_audit_hash(pg_temp.store()), :'first_hash', 'the latest hash is that of the last row');
SELECT CASE WHEN :before > 0 THEN pass('the log is not empty') ELSE is(:'first_hash'::text, '', 'and empty if there is no row') END;
SELECT results_eq($$SELECT outcome, first_broken_audit_id, reason, expected_hash, actual_hash
	FROM udb.verify_admin_audit_chain(store => pg_temp.store())$$,
	$$VALUES ('passed', NULL::uuid, NULL, NULL, NULL)$$, 'it verifies');

-- the first row, with everything in it
CREATE TEMP TABLE made AS SELECT udb.append_admin_audit('ada', 'rotate_key', 'vault/ä', '{"z": 1, "aa": {"y": [1.50, null, true], "b": "é\n"}}',
	'done "well"', 'tenant-1', 'project-1', 'corr-1', 'key-1', 'anchor-1', pg_temp.store()) AS audit_id;
SELECT isnt((SELECT audit_id FROM made), NULL, 'append returns an id');
SELECT is((pg_temp.newest()).audit_id, (SELECT audit_id FROM made), 'which is that of the newest row');
SELECT results_eq($$SELECT actor, operation, target, request_json, result, tenant_id, project_id, correlation_id, signer_key_id, external_anchor
	FROM pg_temp.newest()$$,
	$$VALUES ('ada', 'rotate_key', 'vault/ä', '{"z": 1, "aa": {"y": [1.50, null, true], "b": "é\n"}}'::jsonb, 'done "well"',
		'tenant-1', 'project-1', 'corr-1', 'key-1', 'anchor-1')$$, 'all that was given is in it');
SELECT is((pg_temp.newest()).request_json #>> '{aa,y,0}', '1.50', 'numbers as they were');
SELECT is((pg_temp.newest()).previous_hash, :'first_hash', 'it links to the row before, or to the empty string');
SELECT ok((pg_temp.newest()).created_at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() + interval '1 min', 'it has the time');
SELECT matches((pg_temp.newest()).current_hash, '^[0-9a-f]{64}$', 'its hash is in lower-case hexadecimal digits');
SELECT is((pg_temp.newest()).current_hash, pg_temp.sha256('{"actor":"ada","correlation_id":"corr-1","external_anchor":"anchor-1",'
	|| '"operation":"rotate_key","previous_hash":"' || :'first_hash' || '","project_id":"project-1",'
	|| '"request_json":{"aa":{"b":"é\n","y":[1.50,null,true]},"z":1},"result":"done \"well\"","signer_key_id":"key-1",'
	|| '"target":"vault/ä","tenant_id":"tenant-1"}'), 'namely SHA-256 of the canonical object');
SELECT is(udb.latest_admin_audit_hash(pg_temp.store()), (pg_temp.newest()).current_hash, 'and the latest hash now');

-- the second one, with as little as possible
SELECT (pg_temp.newest()).current_hash AS first_hash \gset
SELECT isnt(udb.append_admin_audit('bob', 'login', '', '[]', '', store => pg_temp.store()), NULL, 'the rest can be left out');
SELECT is((pg_temp.newest()).previous_hash, :'first_hash', 'the second row links to the first');
SELECT results_eq($$SELECT tenant_id, project_id, correlation_id, signer_key_id, external_anchor FROM pg_temp.newest()$$,
	$$VALUES (NULL::text, NULL::text, NULL::text, NULL::text, NULL::text)$$, 'what was left out is null');
SELECT is((pg_temp.newest()).current_hash, pg_temp.sha256('{"actor":"bob","correlation_id":null,"external_anchor":null,'
	|| '"operation":"login","previous_hash":"' || :'first_hash' || '","project_id":null,"request_json":[],"result":"",'
	|| '"signer_key_id":null,"target":"","tenant_id":null}'), 'also in what is hashed, where the empty string is another value');

-- the same again is another row
SELECT isnt(pg_temp.append('c', 'same'), pg_temp.append('c', 'same'), 'the same twice gives two ids');
SELECT is((SELECT count(DISTINCT current_hash) FROM udb.list_admin_audit('same', store => pg_temp.store())), 2::bigint, 'and two hashes');
SELECT is((SELECT count(*) FROM (SELECT previous_hash, lead(current_hash) OVER (ORDER BY chain_position DESC) AS before
	FROM udb.list_admin_audit(row_limit => 4, store => pg_temp.store())) l WHERE previous_hash = before), 3::bigint, 'each row links to the one before');
SELECT is((SELECT array_agg(chain_position - :before ORDER BY chain_position) FROM udb.list_admin_audit(row_limit => 4, store => pg_temp.store())),
	'{1,2,3,4}'::bigint[], 'positions have no gaps');

-- what is rolled back was never there
SAVEPOINT s;
SELECT pg_temp.append('d', 'taken back') \g /dev/null
ROLLBACK TO s;
SELECT CASE WHEN pg_temp.store() IS NOT NULL THEN skip('other stores take no part in the transaction')
	ELSE is((SELECT count(*) FROM udb.list_admin_audit('taken back')), 0::bigint, 'a row that is rolled back is gone') END;

-- verification
SELECT pg_temp.append('e', 'verify', jsonb_build_object('n', i, repeat('k', i), jsonb_build_array(i / 8.0, '{}'::jsonb))) FROM generate_series(1, 20) i \g /dev/null
SELECT results_eq(format($$SELECT outcome, checked_count >= 24 + %s, last_hash = udb.latest_admin_audit_hash(pg_temp.store()), first_broken_audit_id, reason,
	expected_hash, actual_hash FROM udb.verify_admin_audit_chain(store => pg_temp.store())$$, :before),
	$$VALUES ('passed', true, true, NULL::uuid, NULL, NULL, NULL)$$, 'the whole chain verifies');
SELECT is((SELECT checked_count FROM udb.verify_admin_audit_chain(:before + 2, pg_temp.store())), :before + 2::bigint, 'or as many of the oldest rows as asked for');
SELECT is((SELECT last_hash FROM udb.verify_admin_audit_chain(:before + 1, pg_temp.store())), :'first_hash', 'up to which the last hash is');
SELECT is((SELECT outcome || checked_count FROM udb.verify_admin_audit_chain(0, pg_temp.store())), 'passed0', 'a limit of 0 verifies nothing');
SELECT is((SELECT outcome || checked_count FROM udb.verify_admin_audit_chain(-7, pg_temp.store())), 'passed0', 'nor does a negative one');
SELECT ok((SELECT checked_count >= 24 FROM udb.verify_admin_audit_chain(NULL, pg_temp.store())), 'null is no limit');

-- listing
SELECT pg_temp.append('f' || i % 2, 'list', '{"secret": "s"}', 't' || i % 3, 'p' || i % 5) FROM generate_series(1, 30) i \g /dev/null
SELECT is((SELECT array_agg(chain_position) FROM udb.list_admin_audit('list', store => pg_temp.store())),
	(SELECT array_agg(chain_position ORDER BY chain_position DESC) FROM udb.list_admin_audit('list', store => pg_temp.store())), 'the newest come first');
SELECT is((SELECT count(*) FROM udb.list_admin_audit('list', store => pg_temp.store())), 30::bigint, 'by operation');
SELECT is((SELECT count(*) FROM udb.list_admin_audit('list', 'f1', store => pg_temp.store())), 15::bigint, 'by actor');
SELECT is((SELECT count(*) FROM udb.list_admin_audit('list', tenant_id => 't1', store => pg_temp.store())), 10::bigint, 'by tenant');
SELECT is((SELECT count(*) FROM udb.list_admin_audit('list', project_id => 'p1', store => pg_temp.store())), 6::bigint, 'by project');
SELECT is((SELECT count(*) FROM udb.list_admin_audit('list', 'f1', 't1', 'p1', store => pg_temp.store())), 1::bigint, 'by all of them');
SELECT is((SELECT count(*) FROM udb.list_admin_audit('list', 'nobody', store => pg_temp.store())), 0::bigint, 'nothing matches');
SELECT is((SELECT count(*) FROM udb.list_admin_audit(row_limit => 7, store => pg_temp.store())), 7::bigint, 'not more than the limit');
SELECT is((SELECT count(*) FROM udb.list_admin_audit(row_limit => 0, store => pg_temp.store())), 0::bigint, 'a limit of 0 gives nothing');
SELECT is((SELECT count(*) FROM udb.list_admin_audit(row_limit => -1, store => pg_temp.store())), 0::bigint, 'nor does a negative one');
SELECT is((SELECT array_agg(audit_id) FROM udb.list_admin_audit(row_limit => 3, row_offset => 2, store => pg_temp.store())),
	(SELECT (array_agg(audit_id))[3:5] FROM udb.list_admin_audit(row_limit => 5, store => pg_temp.store())), 'the offset leaves out the first ones');
SELECT is((SELECT array_agg(audit_id) FROM udb.list_admin_audit(row_limit => 3, row_offset => -2, store => pg_temp.store())),
	(SELECT array_agg(audit_id) FROM udb.list_admin_audit(row_limit => 3, store => pg_temp.store())), 'a negative offset is 0');
SELECT is((SELECT array_agg(DISTINCT request_json) FROM udb.list_admin_audit('list', redact_request_json => true, store => pg_temp.store())),
	'{"{\"redacted\": true}"}'::jsonb[], 'requests can be redacted');
SELECT is((SELECT array_agg(DISTINCT request_json) FROM udb.list_admin_audit('list', store => pg_temp.store())),
	'{"{\"secret\": \"s\"}"}'::jsonb[], 'and are not, unless asked for');
SELECT is((SELECT count(DISTINCT current_hash) FROM udb.list_admin_audit('list', redact_request_json => true, store => pg_temp.store())), 30::bigint,
	'hashes are those of the rows all the same');

-- what is refused
SELECT throws_ok($$SELECT udb.append_admin_audit(NULL, 'o', 't', '{}', 'ok', store => pg_temp.store())$$, '22004', NULL, 'an actor is needed');
SELECT throws_ok($$SELECT udb.append_admin_audit('', 'o', 't', '{}', 'ok', store => pg_temp.store())$$, '42602', NULL, 'that is not empty');
SELECT throws_ok($$SELECT udb.append_admin_audit('a', '', 't', '{}', 'ok', store => pg_temp.store())$$, '42602', NULL, 'and so is an operation');
SELECT throws_ok($$SELECT udb.append_admin_audit('a', 'o', 't', NULL, 'ok', store => pg_temp.store())$$, '22004', NULL, 'and a request');
SELECT throws_ok($$SELECT udb.append_admin_audit(repeat('a', 256), 'o', 't', '{}', 'ok', store => pg_temp.store())$$, '42622', NULL, 'names have a limit');
SELECT throws_ok($$SELECT udb.append_admin_audit('a', 'o', repeat('t', 8193), '{}', 'ok', store => pg_temp.store())$$, '54000', NULL, 'and so has the rest');
SELECT throws_ok($$SELECT udb.append_admin_audit('a', 'o', 't', '{}', 'ok', store => 'no such store')$$, '42704', NULL, 'an unknown store is refused');
SELECT throws_ok($$SELECT * FROM udb.list_admin_audit(row_limit => NULL, store => pg_temp.store())$$, '22004', NULL, 'a limit must not be null');
SELECT results_eq($$SELECT outcome, last_hash = udb.latest_admin_audit_hash(pg_temp.store()) FROM udb.verify_admin_audit_chain(store => pg_temp.store())$$,
	$$VALUES ('passed', true)$$, 'after all this the chain verifies');
SELECT * FROM finish();
ROLLBACK;
