-- Consumers of the feed --------------------------------------------------

CREATE TABLE udb.consumers (
	name text COLLATE "C" NOT NULL CONSTRAINT consumers_pkey PRIMARY KEY
		CHECK (octet_length(name) BETWEEN 1 AND 63),
	topics text[] CHECK (cardinality(topics) > 0),
	position bigint NOT NULL CHECK (position >= 0),
	paused boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	last_checkpoint timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE udb.consumers IS 'Consumers of the feed; change them with the functions only';
COMMENT ON COLUMN udb.consumers.topics IS 'Topics it reads; null for all';
COMMENT ON COLUMN udb.consumers.position IS 'It has finished with everything up to here';
SELECT pg_catalog.pg_extension_config_dump('udb.consumers', '');

-- No foreign key to consumers: a parallel restore copies the tables in any order, and the constraint
-- would be there before both.
CREATE TABLE udb.dead_events (
	consumer text COLLATE "C" NOT NULL,
	event_seq bigint NOT NULL,
	redrive_seq bigint,
	event_id uuid NOT NULL,
	topic text NOT NULL,
	partition_key text NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL,
	error text,
	attempts integer NOT NULL DEFAULT 1,
	parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT dead_events_pkey PRIMARY KEY (consumer, event_seq),
	CONSTRAINT dead_events_redrive_key UNIQUE (consumer, redrive_seq)
);
COMMENT ON TABLE udb.dead_events IS
	'Events that a consumer has parked with dead_letter_event(), as copies that outlive retention';
COMMENT ON COLUMN udb.dead_events.redrive_seq IS
	'Position at which the consumer reads it again; null while it is parked';
SELECT pg_catalog.pg_extension_config_dump('udb.dead_events', '');

-- create_consumer(name, topics, start_at): start_at is 'earliest' (the oldest retained event),
-- 'latest' (what commits from now on) or a position to read after. Returns the position.
-- Raises 42710 if it exists, 42602/42622 for a bad name, 22023 for bad topics or start,
-- UD002 position_dropped, UD003 position_unknown, UD004 position_not_stable.
CREATE FUNCTION udb.create_consumer(name text, topics text[] DEFAULT NULL,
		start_at text DEFAULT 'earliest') RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_create_consumer';
REVOKE EXECUTE ON FUNCTION udb.create_consumer(text, text[], text) FROM PUBLIC;
COMMENT ON FUNCTION udb.create_consumer(text, text[], text) IS
	'Register a consumer; returns the position it starts after';

-- drop_consumer(name): forget a consumer and its parked events. Raises 42704 if there is none.
CREATE FUNCTION udb.drop_consumer(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_drop_consumer';
REVOKE EXECUTE ON FUNCTION udb.drop_consumer(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.drop_consumer(text) IS 'Forget a consumer and its parked events';

-- seek_consumer(name, position): set the cursor, back or forth; it then reads after this position.
-- Returns it. Raises 42704, 22023, UD002, UD003, UD004.
CREATE FUNCTION udb.seek_consumer(name text, "position" bigint) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_seek_consumer';
REVOKE EXECUTE ON FUNCTION udb.seek_consumer(text, bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb.seek_consumer(text, bigint) IS
	'Set a consumer''s position, back or forth; returns it';

-- seek_consumer(name, position): the same for 'earliest', 'latest' or a number as text.
CREATE FUNCTION udb.seek_consumer(name text, "position" text) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_seek_consumer';
REVOKE EXECUTE ON FUNCTION udb.seek_consumer(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.seek_consumer(text, text) IS
	'Set a consumer''s position to earliest, latest or a number; returns it';

-- pause_consumer(name): its reads return nothing until it is resumed; retention still waits for it.
CREATE FUNCTION udb.pause_consumer(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_pause_consumer';
REVOKE EXECUTE ON FUNCTION udb.pause_consumer(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.pause_consumer(text) IS
	'Make a consumer''s reads return nothing; its position and retention are kept';

-- resume_consumer(name): undo pause_consumer().
CREATE FUNCTION udb.resume_consumer(name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_resume_consumer';
REVOKE EXECUTE ON FUNCTION udb.resume_consumer(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.resume_consumer(text) IS 'Undo pause_consumer()';

-- read(consumer, max_events): the next events after the consumer's position, in order. Does not
-- move it: until checkpoint() the same events come again. An extent that is not positive gives none.
-- Raises 42704, UD002, UD003, UD005, UD006.
CREATE FUNCTION udb.read(consumer text, max_events integer DEFAULT 100) RETURNS SETOF udb.event
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'udb_read';
REVOKE EXECUTE ON FUNCTION udb.read(text, integer) FROM PUBLIC;
COMMENT ON FUNCTION udb.read(text, integer) IS
	'The next events of a consumer, in order; does not move its position';

-- peek(after, max_events, topics): events after a position, without a consumer.
-- Raises UD002, UD003, UD005, UD006.
CREATE FUNCTION udb.peek(after bigint, max_events integer DEFAULT 100, topics text[] DEFAULT NULL)
	RETURNS SETOF udb.event
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'udb_peek';
REVOKE EXECUTE ON FUNCTION udb.peek(bigint, integer, text[]) FROM PUBLIC;
COMMENT ON FUNCTION udb.peek(bigint, integer, text[]) IS
	'Events after a position, in order, without a consumer';

-- checkpoint(consumer, event_seq): the consumer has finished with everything up to this position.
-- Returns the stored position, which never goes back. Raises 42704, UD004 position_not_stable, UD005.
CREATE FUNCTION udb.checkpoint(consumer text, event_seq bigint) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_checkpoint';
REVOKE EXECUTE ON FUNCTION udb.checkpoint(text, bigint) FROM PUBLIC;
COMMENT ON FUNCTION udb.checkpoint(text, bigint) IS
	'Move a consumer''s position forward; returns the stored one';

-- wait_for_events(consumer, timeout): true as soon as read() would return something, false after
-- the timeout. Its query keeps a snapshot: for long waits use await_events().
-- Raises 42704, 22023 for a negative timeout, 22008 for one that is out of range, UD002, UD003,
-- UD005, UD006.
CREATE FUNCTION udb.wait_for_events(consumer text, timeout interval) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_wait_for_events';
REVOKE EXECUTE ON FUNCTION udb.wait_for_events(text, interval) FROM PUBLIC;
COMMENT ON FUNCTION udb.wait_for_events(text, interval) IS
	'Wait until a consumer has events (true) or the timeout is over (false)';

-- CALL await_events(consumer, timeout, ready): the same without a snapshot, so that it holds back no
-- vacuum however long it waits. Raises 2D000 inside a transaction block.
CREATE PROCEDURE udb.await_events(consumer text, timeout interval, INOUT ready boolean DEFAULT NULL)
	LANGUAGE c AS 'MODULE_PATHNAME', 'udb_await_events';
REVOKE EXECUTE ON PROCEDURE udb.await_events(text, interval, boolean) FROM PUBLIC;
COMMENT ON PROCEDURE udb.await_events(text, interval, boolean) IS
	'Wait for events without holding a snapshot; only outside of transaction blocks';

-- dead_letter_event(consumer, event_seq, error): park an event that the consumer cannot apply; its
-- reads leave it out from now on. Raises 42704, UD007 event_not_found. Writes dead_events.
CREATE FUNCTION udb.dead_letter_event(consumer text, event_seq bigint, error text DEFAULT NULL)
	RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_dead_letter_event';
REVOKE EXECUTE ON FUNCTION udb.dead_letter_event(text, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.dead_letter_event(text, bigint, text) IS
	'Park an event that a consumer cannot apply, so that it can go on';

-- redrive_dead_letters(consumer): give its parked events new positions, in their old order, at which
-- this consumer alone reads them again, with the same event_id. Returns how many. Raises 42704.
CREATE FUNCTION udb.redrive_dead_letters(consumer text) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_redrive_dead_letters';
REVOKE EXECUTE ON FUNCTION udb.redrive_dead_letters(text) FROM PUBLIC;
COMMENT ON FUNCTION udb.redrive_dead_letters(text) IS
	'Let a consumer read its parked events again, at new positions; returns how many';

-- sweep_dead_events(): remove redriven events that their consumers have passed. Returns how many.
CREATE FUNCTION udb.sweep_dead_events() RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_sweep_dead_events';
REVOKE EXECUTE ON FUNCTION udb.sweep_dead_events() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_dead_events() IS
	'Remove redriven events that their consumers have passed; returns how many (the worker does this)';

CREATE FUNCTION udb._consumer_reads(OUT name text, OUT created_at timestamptz, OUT last_read timestamptz)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_consumer_reads';
REVOKE EXECUTE ON FUNCTION udb._consumer_reads() FROM PUBLIC;
COMMENT ON FUNCTION udb._consumer_reads() IS 'Internal: last_read of udb.consumer_status';
