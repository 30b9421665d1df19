-- The contract of announcements, as every store has to keep it.
\set store ''
\getenv store UDB_STORE
BEGIN;
SELECT plan(16);
SELECT set_config('test.store', :'store', true) \g /dev/null
SET LOCAL client_min_messages = error;
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql AS $$ SELECT nullif(current_setting('test.store'), '') $$;
CREATE TEMP TABLE said AS SELECT a.* FROM udb.announce('topic', 'key', '{"n": 1}', store => pg_temp.store()) a;

SELECT ok(published, 'an announcement is published') FROM said;
SELECT ok(notified, 'listeners are notified') FROM said;
SELECT ok(enqueued_job_id > 0, 'and a job is sent') FROM said;
SELECT is((udb.get_job(enqueued_job_id, store => pg_temp.store())).queue, 'udb_maintenance', 'in the queue for maintenance') FROM said;
SELECT is((udb.get_job(enqueued_job_id, store => pg_temp.store())).payload,
	'{"topic": "topic", "key": "key", "payload": {"n": 1}}', 'which tells of what') FROM said;
SELECT is((udb.get_job(enqueued_job_id, store => pg_temp.store())).state, 'ready', 'and is ready') FROM said;

-- all of it comes with the transaction
SAVEPOINT s;
SELECT published AND notified AS all, enqueued_job_id AS undone
FROM udb.announce('topic', 'key', '{"n": 2}', store => pg_temp.store()) \gset
ROLLBACK TO s;
SELECT ok(:'all', 'another one');
SELECT ok(udb.get_job(:undone, store => pg_temp.store()) IS NULL, 'is gone when it is rolled back');
SELECT is((SELECT udb.announce('topic', '', 'null', store => pg_temp.store()) IS NOT NULL), true,
	'an empty key and a JSON null are as good as others');

-- bad input
SELECT throws_ok($$SELECT udb.announce(NULL, 'k', '1', store => pg_temp.store())$$, '22004', NULL, 'no topic is an error');
SELECT throws_ok($$SELECT udb.announce('t', NULL, '1', store => pg_temp.store())$$, '22004', NULL, 'nor is no key');
SELECT throws_ok($$SELECT udb.announce('t', 'k', NULL, store => pg_temp.store())$$, '22004', NULL, 'nor no payload');
SELECT throws_ok($$SELECT udb.announce('', 'k', '1', store => pg_temp.store())$$, '42602', NULL, 'an empty topic');
SELECT throws_ok($$SELECT udb.announce(repeat('t', 256), 'k', '1', store => pg_temp.store())$$, '42622', NULL,
	'or one that is too long');
SELECT throws_ok($$SELECT udb.announce('t', repeat('k', 1025), '1', store => pg_temp.store())$$, '42622', NULL,
	'or such a key');
SELECT throws_ok($$SELECT udb.announce('t', 'k', '1', store => 'no such')$$, '42704', NULL, 'or an unknown store');

SELECT * FROM finish();
ROLLBACK;
