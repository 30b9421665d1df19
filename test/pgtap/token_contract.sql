-- The contract of tokens, fences and receipts on the server that has written, where all of them are reached at once.
\set ON_ERROR_STOP 0
\set QUIET on
SELECT plan(57);
CREATE TABLE token_contract (a int);

-- a token
SELECT is(udb.token_backend('postgres:1.00000000000000ff.1.0.3017028.d'), 'postgres', 'its kind of store');
SELECT is(udb.token_value('mysql:a:b'), 'a:b', 'its value, which may have a colon');
SELECT ok('MySQL:x'::udb.token OPERATOR(udb.=) 'mysql:x', 'the kind is compared without regard to case');
SELECT ok('mysql:X'::udb.token OPERATOR(udb.<>) 'mysql:x', 'the value is not');
SELECT is(('mysql:x'::udb.token)::jsonb, '{"backend_label": "mysql", "value": "x"}', 'as jsonb');
SELECT is((('mysql:x'::udb.token)::jsonb::udb.token)::text, 'mysql:x', 'and back');
SELECT throws_ok($$SELECT 'x'::udb.token$$, '22P02', NULL, 'what has no kind is no token');
SELECT throws_ok($$SELECT 'mysql:'::udb.token$$, '22P02', NULL, 'nor is what has no value');
SELECT throws_ok($$SELECT 'postgres:x'::udb.token$$, '22P02', NULL, 'PostgreSQL''s own have a form');

-- of a commit; pgTAP writes too, so what is to be compared is taken first
INSERT INTO token_contract VALUES (1);
SELECT udb.last_commit_token() AS first \gset
SELECT count(*) AS n FROM token_contract \gset
SELECT udb.last_commit_token() AS after_read \gset
BEGIN; INSERT INTO token_contract VALUES (2); ROLLBACK;
SELECT udb.last_commit_token() AS after_rollback \gset
BEGIN; INSERT INTO token_contract VALUES (3);
SELECT udb.last_commit_token() AS before_commit \gset
COMMIT;
SELECT udb.last_commit_token() AS second \gset
SELECT ok(length(:'first') < 100, 'is shorter than 100 bytes');
SELECT ok(:'first' ~ '^[A-Za-z0-9._:-]+$', 'needs no quoting');
SELECT is(:'after_read'::text, :'first', 'reading gives none');
SELECT is(:'after_rollback'::text, :'first', 'nor does ROLLBACK');
SELECT is(:'before_commit'::text, :'first', 'in a transaction it is that of the one before');
SELECT isnt(:'second'::text, :'first', 'COMMIT gives another one');
SELECT ok(udb.token_covers(:'second', :'first'), 'which covers the first');
SELECT ok(NOT udb.token_covers(:'first', :'second'), 'but not the other way round');
SELECT ok(udb.token_covers(:'first', :'first'), 'each covers itself');
SELECT ok(udb.token_covers(udb.current_token(), :'second'), 'the current token covers both');
SELECT ok(udb.token_covers('mysql:x', 'mysql:x'), 'equal tokens of other stores cover each other');
SELECT throws_ok($$SELECT udb.token_covers('mysql:x', 'mysql:y')$$, 'UD020', NULL, 'which of two that differ is later only they know');
SELECT is(udb.token_covers(:'first', 'postgres:1.00000000000000ff.1.0.3017028.d'), NULL, 'of two clusters nobody knows');

-- durable
SELECT is(udb.durable_token(:'second')::text, :'second', 'a durable token stays as it is');
SET synchronous_commit = off;
INSERT INTO token_contract VALUES (4);
SELECT ok(udb.durable_token(udb.last_commit_token())::text ~ '\.d$', 'an asynchronous one becomes durable');
RESET synchronous_commit;
SELECT throws_ok($$SELECT udb.durable_token('mysql:x')$$, 'UD020', NULL, 'not one of another store');
SELECT throws_ok($$SELECT udb.durable_token('postgres:1.00000000000000ff.1.0.3017028.a1')$$, 'UD021', NULL, 'nor of another cluster');
SELECT is(udb.durable_token(NULL)::text, NULL, 'null gives null');

-- fences
SELECT ok(udb.token_reached(:'second'), 'its own past is reached');
SELECT ok(udb.wait_for_token(:'second', '1 h'), 'at once');
SELECT ok(udb.wait_for_token(:'second', '0'), 'also without time to wait');
SET udb.fence = :'second';
SELECT is((SELECT outcome || ' ' || token FROM udb.fence_status()), 'reached ' || :'second', 'SET');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL udb.fence = :'first';
SELECT is((SELECT outcome || ' ' || token FROM udb.fence_status()), 'reached ' || :'first', 'SET LOCAL');
COMMIT;
SELECT is(current_setting('udb.fence'), :'second', 'is for its transaction');
RESET udb.fence;
CALL udb.wait_for(:'second', '1 h');
SELECT is((SELECT outcome || ' ' || token FROM udb.fence_status()), 'reached ' || :'second', 'CALL');
SELECT ok((SELECT waited_ms >= 0 AND ended_at <= clock_timestamp() FROM udb.fence_status()), 'the status has its times');
SELECT is((SELECT count(*) FROM udb.fence_waiters), 0::bigint, 'nobody waits');

-- what cannot be reached
SELECT regexp_replace(:'second', '[^.]*\.d$', 'ffffff0000000000.d') AS future \gset
SELECT throws_ok(format('SELECT udb.token_reached(%L)', :'future'), 'UD023', NULL, 'what was not written yet');
SELECT is((SELECT outcome FROM udb.fence_status()), 'reached', 'only to look is no fence');
SELECT throws_ok(format('SELECT udb.wait_for_token(%L)', :'future'), 'UD023', NULL, 'is not waited for');
SELECT is((SELECT outcome FROM udb.fence_status()), 'future', 'and told');
SELECT throws_ok($$SELECT udb.wait_for_token('mysql:x')$$, 'UD020', 'a token of mysql cannot fence postgres', 'another store');
SELECT throws_ok($$SELECT udb.wait_for_token('postgres:1.00000000000000ff.1.0.3017028.d')$$, 'UD021', NULL, 'another cluster');
SELECT throws_ok(format('SELECT set_config(%L, %L, false)', 'udb.fence', :'second'), 'UD028', NULL, 'set_config() would not wait');
SELECT throws_ok(format('DO %L', format('BEGIN SET udb.fence = %L; END', :'second')), 'UD028', NULL, 'nor would DO');
SELECT throws_ok($$SELECT udb.wait_for_token(NULL)$$, '22004', NULL, 'no token');
SELECT throws_ok(format('SELECT udb.wait_for_token(%L, NULL)', :'second'), '22004', NULL, 'no time');
SELECT throws_ok(format('SELECT udb.wait_for_token(%L, %L)', :'second', '-1 s'), '22023', NULL, 'negative time');

-- receipts
INSERT INTO token_contract VALUES (5);
SELECT udb.last_commit_token() AS last, udb.write_receipt(ARRAY[]::text[], 'sum') AS receipt \gset
SELECT set_eq(format('SELECT jsonb_object_keys(%L::jsonb)', :'receipt'),
	ARRAY['source_token', 'outbox_seq', 'projection_task_ids', 'manifest_checksum', 'written_at_unix_ms'], 'a receipt has its members');
SELECT ok((:'receipt'::jsonb -> 'source_token')::udb.token OPERATOR(udb.=) :'last', 'the token is of the last commit');
SELECT is(:'receipt'::jsonb ->> 'manifest_checksum', 'sum', 'the checksum is as given');
SELECT is((SELECT outcome FROM udb.wait_for_fence(:'receipt', '1 h')), 'cleared', 'it clears');
SELECT is((SELECT outcome FROM udb.wait_for_fence(:'receipt', '0')), 'cleared', 'also without time to wait');
SELECT is((SELECT outcome || ' ' || waited_ms FROM udb.wait_for_fence('{}')), 'cleared 0', 'an empty one clears without any work');
SELECT throws_ok($$SELECT udb.wait_for_fence('[]')$$, '22023', NULL, 'what is no receipt');
SELECT throws_ok($$SELECT udb.wait_for_fence('{"source_token": {"backend_label": "mysql", "value": "x"}}')$$, 'UD020', NULL,
	'a receipt of another store');
BEGIN;
INSERT INTO token_contract VALUES (6);
SELECT throws_ok($$SELECT udb.write_receipt()$$, 'UD029', NULL, 'before COMMIT there is none');
ROLLBACK;
SELECT throws_ok($$SELECT udb.write_receipt(NULL)$$, '22004', NULL, 'null is no list of tasks');

DROP TABLE token_contract;
SELECT * FROM finish();
