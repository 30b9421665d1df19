-- What a consumer can rely on. Events reach it when they are committed, so there is no transaction around all
-- this; what is made is removed at the end, except for the events, which nobody can delete.
SELECT plan(53);

-- ---- the surface ----

SELECT has_function('udb', f, args, f || '() is there') FROM (VALUES
	('create_consumer', '{text,text[],text}'::text[]), ('drop_consumer', '{text}'), ('seek_consumer', '{text,bigint}'),
	('seek_consumer', '{text,text}'), ('pause_consumer', '{text}'), ('resume_consumer', '{text}'), ('read', '{text,integer}'),
	('peek', '{bigint,integer,text[]}'), ('checkpoint', '{text,bigint}'), ('wait_for_events', '{text,interval}'),
	('dead_letter_event', '{text,bigint,text}'), ('redrive_dead_letters', '{text}')) AS v(f, args);
SELECT has_view('udb', 'consumer_status', 'consumer_status is there');
SELECT columns_are('udb', 'consumer_status', ARRAY['name', 'topics', 'paused', 'position', 'lag_events', 'lag_seconds',
	'parked_events', 'last_read', 'last_checkpoint', 'created_at', 'holds_retention']);

-- ---- from the tail on ----

SELECT udb.create_consumer('p_feed', '{p_feed}', 'latest') AS start \gset
SELECT is((SELECT position FROM udb.consumer_status WHERE name = 'p_feed'), :start::bigint,
	'create_consumer() returns where the consumer starts');
SELECT throws_ok($$SELECT udb.create_consumer('p_feed')$$, '42710', NULL, 'a name can be taken once');
SELECT is_empty($$SELECT * FROM udb.read('p_feed')$$, 'nothing has been written since');
SELECT is(udb.wait_for_events('p_feed', '0'), false, 'so there is nothing to wake up for');

SELECT udb.enqueue_many('p_feed', '{1,2,3,4}') AS p \gset
SELECT udb.enqueue('p_other', '5') AS other \gset
SELECT is(udb.wait_for_events('p_feed', '1 min'), true, 'now there is');
SELECT results_eq($$SELECT payload FROM udb.read('p_feed')$$, $$VALUES ('1'::jsonb), ('2'), ('3'), ('4')$$,
	'events come in order, those of its topics only');
SELECT results_eq($$SELECT payload FROM udb.read('p_feed', 2)$$, $$VALUES ('1'::jsonb), ('2')$$,
	'reading again gives the same again');
SELECT is((SELECT array_agg(event_seq) FROM udb.read('p_feed')), :'p'::bigint[], 'at the positions that the writer was told');
SELECT is_empty($$SELECT * FROM udb.read('p_feed', 0)$$, 'none if none are asked for');
SELECT is_empty($$SELECT * FROM udb.read('p_feed', -5)$$, 'nor if less than none');

-- ---- checkpoints ----

SELECT is(udb.checkpoint('p_feed', (:'p'::bigint[])[2]), (:'p'::bigint[])[2], 'checkpoint() returns the position');
SELECT results_eq($$SELECT payload FROM udb.read('p_feed')$$, $$VALUES ('3'::jsonb), ('4')$$, 'what is behind it does not come again');
SELECT is(udb.checkpoint('p_feed', (:'p'::bigint[])[1]), (:'p'::bigint[])[2], 'it does not go back');
SELECT throws_ok($$SELECT udb.checkpoint('p_feed', 9223372036854775807)$$, 'UD004', NULL, 'nor above the horizon');
BEGIN;
SELECT udb.checkpoint('p_feed', (:'p'::bigint[])[4]) AS ignored \gset
ROLLBACK;
SELECT results_eq($$SELECT payload FROM udb.read('p_feed')$$, $$VALUES ('3'::jsonb), ('4')$$, 'a rolled back checkpoint was none');

-- ---- what is not committed is not read, nor is what comes after it ----

BEGIN;
SELECT udb.enqueue('p_feed', '6') AS mine \gset
SELECT results_eq($$SELECT payload FROM udb.read('p_feed')$$, $$VALUES ('3'::jsonb), ('4')$$, 'an open transaction shows nothing');
SELECT throws_ok(format('SELECT udb.checkpoint(''p_feed'', %s)', :mine), 'UD004', NULL, 'and cannot be passed');
COMMIT;
SELECT results_eq($$SELECT payload FROM udb.read('p_feed')$$, $$VALUES ('3'::jsonb), ('4'), ('6')$$, 'committed, it is there');
BEGIN;
SELECT udb.enqueue('p_feed', '7') AS gone \gset
ROLLBACK;
SELECT results_eq($$SELECT payload FROM udb.read('p_feed')$$, $$VALUES ('3'::jsonb), ('4'), ('6')$$, 'rolled back, it never comes');
SELECT cmp_ok(udb.outbox_stable_seq(), '>=', :gone::bigint, 'and does not hold the horizon');

-- ---- isolation ----

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT throws_ok($$SELECT * FROM udb.read('p_feed')$$, 'UD006', NULL, 'a fixed snapshot could skip events, so it is refused');
ROLLBACK;
BEGIN READ ONLY;
SELECT is((SELECT count(*) FROM udb.peek(:start, 3)), 3::bigint, 'peek() needs no consumer and writes nothing');
ROLLBACK;

-- ---- pause, seek ----

SELECT lives_ok($$SELECT udb.pause_consumer('p_feed')$$, 'it can be paused');
SELECT is_empty($$SELECT * FROM udb.read('p_feed')$$, 'and then reads nothing');
SELECT lives_ok($$SELECT udb.resume_consumer('p_feed')$$, 'it can be resumed');
SELECT is((SELECT count(*) FROM udb.read('p_feed')), 3::bigint, 'and goes on where it was');
SELECT is(udb.seek_consumer('p_feed', :start), :start::bigint, 'it can be sent back');
SELECT is((SELECT count(*) FROM udb.read('p_feed')), 5::bigint, 'and then reads again');
SELECT throws_ok($$SELECT udb.seek_consumer('p_feed', 9223372036854775807)$$, 'UD003', NULL, 'but not to where nobody has been');

-- ---- dead letters ----

SELECT lives_ok(format('SELECT udb.dead_letter_event(''p_feed'', %s, ''bad'')', (:'p'::bigint[])[2]), 'an event can be parked');
SELECT results_eq($$SELECT payload FROM udb.read('p_feed', 3)$$, $$VALUES ('1'::jsonb), ('3'), ('4')$$, 'and is left out then');
SELECT is((SELECT parked_events FROM udb.consumer_status WHERE name = 'p_feed'), 1::bigint, 'but not forgotten');
SELECT is(udb.redrive_dead_letters('p_feed'), 1::bigint, 'it can be sent again');
SELECT is((SELECT payload FROM udb.read('p_feed') ORDER BY event_seq DESC LIMIT 1), '2'::jsonb, 'and comes after the others');
SELECT is((SELECT event_id FROM udb.read('p_feed') ORDER BY event_seq DESC LIMIT 1),
	(SELECT event_id FROM udb.outbox_events WHERE event_seq = (:'p'::bigint[])[2]), 'under its old id');
SELECT throws_ok($$SELECT udb.dead_letter_event('p_feed', 9223372036854775807)$$, 'UD007', NULL, 'what is not there cannot be parked');

-- ---- the end ----

SELECT lives_ok($$SELECT udb.drop_consumer('p_feed')$$, 'it can be dropped');
SELECT throws_ok($$SELECT * FROM udb.read('p_feed')$$, '42704', NULL, 'and is unknown then');
SELECT is_empty($$SELECT 1 FROM udb.dead_events WHERE consumer = 'p_feed'$$, 'with what it had parked');

SELECT * FROM finish();
