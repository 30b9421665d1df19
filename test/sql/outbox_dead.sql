-- Dead letters: an event that cannot be applied is parked, passed, and can be read again later
\set VERBOSITY terse
SELECT udb.create_consumer('t_dead', '{t_dead}', 'latest') AS start \gset
SELECT udb.create_consumer('t_dead2', '{t_dead}', :'start') = :start AS there;
SELECT udb.enqueue_many('t_dead', '{1,2,3,4,5}', '{a,b,c,d,e}', NULL, ARRAY[NULL, '{"h": 2}', NULL, NULL, NULL]::jsonb[]) AS p \gset
CREATE VIEW pg_temp.dead AS
	SELECT array_position(:'p'::bigint[], event_seq) AS n, redrive_seq IS NULL AS parked, topic, partition_key, payload,
		headers, error, attempts
	FROM udb.dead_events WHERE consumer = 't_dead' ORDER BY event_seq;

-- parked, it is left out, for this consumer only
SELECT udb.dead_letter_event('t_dead', (:'p'::bigint[])[2], 'cannot be parsed');
SELECT udb.dead_letter_event('t_dead', (:'p'::bigint[])[4]);
SELECT * FROM pg_temp.dead;
SELECT payload FROM udb.read('t_dead');
SELECT payload FROM udb.read('t_dead', 2);
SELECT payload FROM udb.read('t_dead2');
SELECT name, parked_events FROM udb.consumer_status WHERE name LIKE 't\_dead%' ORDER BY 1;
-- it is a copy, so it outlives the event in the log
SELECT count(*) AS same FROM udb.dead_events d JOIN udb.outbox_events e USING (event_seq, event_id, topic, partition_key,
	payload, created_at) WHERE d.consumer = 't_dead' AND d.headers IS NOT DISTINCT FROM e.headers;

-- reported again, it counts
SELECT udb.dead_letter_event('t_dead', (:'p'::bigint[])[2], 'still cannot');
SELECT n, error, attempts FROM pg_temp.dead;

-- with the transaction
BEGIN;
SELECT udb.dead_letter_event('t_dead', (:'p'::bigint[])[1], 'no');
SELECT payload FROM udb.read('t_dead');
ROLLBACK;
SELECT count(*) FROM pg_temp.dead;

-- what is parked holds nobody up, also not if all of it is
SELECT udb.checkpoint('t_dead', (:'p'::bigint[])[3]) = (:'p'::bigint[])[3] AS moved;
SELECT payload FROM udb.read('t_dead');
SELECT udb.dead_letter_event('t_dead', (:'p'::bigint[])[5], 'no');
SELECT payload FROM udb.read('t_dead');
SELECT udb.wait_for_events('t_dead', '0') AS ready;
SELECT udb.checkpoint('t_dead', (:'p'::bigint[])[5]) = (:'p'::bigint[])[5] AS moved;
-- one that was passed long ago can be parked too
SELECT udb.dead_letter_event('t_dead', (:'p'::bigint[])[1], 'found out later');
SELECT n, error FROM pg_temp.dead;

-- redriven, they come again, in their old order and after what is there, with the same event_id
SELECT udb.enqueue('t_dead', '6') > 0 AS ok;
SELECT udb.redrive_dead_letters('t_dead');
SELECT udb.redrive_dead_letters('t_dead') AS no_more;
SELECT udb.enqueue('t_dead', '7') > 0 AS ok;
SELECT n, parked, attempts FROM pg_temp.dead;
SELECT parked_events FROM udb.consumer_status WHERE name = 't_dead';
SELECT udb.wait_for_events('t_dead', '0') AS ready;
SELECT event_seq > (:'p'::bigint[])[5] AS new_position, topic, partition_key, payload, headers FROM udb.read('t_dead');
SELECT count(*) AS same_id FROM udb.read('t_dead') r JOIN udb.outbox_events e USING (event_id, payload, created_at)
WHERE r.event_seq <> e.event_seq;
SELECT payload FROM udb.read('t_dead', 3);
-- the other consumer knows nothing of it, nor does peek
SELECT payload FROM udb.read('t_dead2');
SELECT payload FROM udb.peek(:start, 100, '{t_dead}');
SELECT udb.redrive_dead_letters('t_dead2') AS none;

-- the first is passed and so settled; the second fails again, reported by its new position
SELECT udb.checkpoint('t_dead', event_seq) = event_seq AS moved FROM udb.read('t_dead', 2) OFFSET 1;
SELECT payload FROM udb.read('t_dead', 1);
SELECT udb.dead_letter_event('t_dead', event_seq, 'third time') FROM udb.read('t_dead', 1);
SELECT n, parked, error, attempts FROM pg_temp.dead WHERE parked;
SELECT payload FROM udb.read('t_dead');
SELECT udb.checkpoint('t_dead', max(event_seq)) > 0 AS moved FROM udb.read('t_dead');
SELECT payload FROM udb.read('t_dead');

-- those that were passed are swept; the worker may have done it before
SELECT udb.sweep_dead_events() <= 3 AS swept;
SELECT n, parked, error, attempts FROM pg_temp.dead;
SELECT udb.sweep_dead_events();

-- once more, and now it goes well
SELECT udb.redrive_dead_letters('t_dead');
SELECT payload FROM udb.read('t_dead');
SELECT udb.checkpoint('t_dead', event_seq) > 0 AS moved FROM udb.read('t_dead');
SELECT udb.sweep_dead_events() <= 1 AS swept;
SELECT * FROM pg_temp.dead;
SELECT payload FROM udb.read('t_dead');

-- a redrive that is rolled back leaves them parked
SELECT udb.enqueue('t_dead', '8') AS p8 \gset
SELECT udb.dead_letter_event('t_dead', :p8, 'no');
BEGIN;
SELECT udb.redrive_dead_letters('t_dead');
-- in its own transaction it is above the horizon, as any event is
SELECT payload FROM udb.read('t_dead');
ROLLBACK;
SELECT parked, error FROM pg_temp.dead;
SELECT payload FROM udb.read('t_dead');
-- after seeking back it is left out as before
SELECT udb.seek_consumer('t_dead', (:'p'::bigint[])[5]) > 0 AS back;
SELECT payload FROM udb.read('t_dead');

-- dropping the consumer drops what it has parked
SELECT udb.drop_consumer('t_dead');
SELECT count(*) FROM udb.dead_events WHERE consumer = 't_dead';
SELECT udb.create_consumer('t_dead', '{t_dead}', (:p8 - 1)::text) = :p8 - 1 AS there;
SELECT payload FROM udb.read('t_dead');

-- not in a read-only transaction
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT udb.dead_letter_event('t_dead', :p8);
ROLLBACK;
BEGIN READ ONLY;
SELECT udb.redrive_dead_letters('t_dead');
ROLLBACK;
SELECT udb.drop_consumer('t_dead'), udb.drop_consumer('t_dead2');
