-- generate_uuidv7(): version and variant
CREATE TEMP TABLE ids AS
	SELECT n, udb.generate_uuidv7() AS id FROM generate_series(1, 20000) n;
SELECT count(DISTINCT id) AS different,
	bool_and(substr(id::text, 15, 1) = '7') AS version_7,
	bool_and(substr(id::text, 20, 1) IN ('8', '9', 'a', 'b')) AS variant_10
FROM ids;

-- each is larger than the one before
SELECT count(*) AS not_rising
FROM (SELECT id, lag(id) OVER (ORDER BY n) AS previous FROM ids) i WHERE id <= previous;

-- the first 48 bits are the milliseconds since 1970; 20000 in a row may run ahead of the clock a little
SELECT bool_and(made BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 second')
	AS time_is_now
FROM ids, to_timestamp(('x0000' || left(replace(id::text, '-', ''), 12))::bit(64)::bigint / 1000.0) made;

-- the rest is random
SELECT count(DISTINCT right(id::text, 15)) AS different_tails FROM ids;

-- in another statement, and as the default of a column
SELECT udb.generate_uuidv7() > max(id::text)::uuid AS still_rising FROM ids;
CREATE TEMP TABLE d (id uuid DEFAULT udb.generate_uuidv7() PRIMARY KEY, v int);
INSERT INTO d (v) SELECT generate_series(1, 3);
SELECT v FROM d ORDER BY id;

-- enqueue() gives its events such ids
BEGIN;
SELECT udb.enqueue('t_uuid', '{}') AS seq \gset
SELECT substr(event_id::text, 15, 1) AS version FROM udb.outbox_events WHERE event_seq = :seq;
ROLLBACK;
