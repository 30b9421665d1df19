-- Outbox -----------------------------------------------------------------

-- Positions are reserved here in blocks; the increment is known to the library.
CREATE SEQUENCE udb.outbox_position AS bigint INCREMENT BY 1024 MINVALUE 1 NO CYCLE;
COMMENT ON SEQUENCE udb.outbox_position IS
	'Reserves positions of the outbox; never call nextval or setval on it';
SELECT pg_catalog.pg_extension_config_dump('udb.outbox_position', '');

-- The log. Its partitions, called segments, are made when they are needed and are no members of
-- the extension, so that pg_dump dumps them with their data. Each has its own primary key; one here
-- would be there before a restored segment's and get in its way.
CREATE TABLE udb.outbox_events (
	event_seq bigint NOT NULL,
	event_id uuid NOT NULL,
	topic text NOT NULL,
	partition_key text NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL
) PARTITION BY RANGE (event_seq);
COMMENT ON TABLE udb.outbox_events IS
	'The log: one row an event, in the order of event_seq; read it with udb.read() or udb.peek()';
COMMENT ON COLUMN udb.outbox_events.event_seq IS 'Position: rises, with gaps';
COMMENT ON COLUMN udb.outbox_events.event_id IS 'Idempotency key for consumers; unique in the retained log';
COMMENT ON COLUMN udb.outbox_events.topic IS 'What kind of event this is; 1 to 255 bytes';
COMMENT ON COLUMN udb.outbox_events.partition_key IS 'What it is about; events of one key are in the order of their writers'' commits if these exclude each other';
COMMENT ON COLUMN udb.outbox_events.payload IS 'The event';
COMMENT ON COLUMN udb.outbox_events.headers IS 'Metadata, a JSON object or null';
COMMENT ON COLUMN udb.outbox_events.created_at IS 'When it was enqueued, by the wall clock';

CREATE TABLE udb.outbox_state (
	singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
	dropped_through bigint NOT NULL
);
COMMENT ON TABLE udb.outbox_state IS 'At most one row: the last position that retention has dropped';
SELECT pg_catalog.pg_extension_config_dump('udb.outbox_state', '');

CREATE TYPE udb.event AS (
	event_seq bigint,
	event_id uuid,
	topic text,
	partition_key text,
	payload jsonb,
	headers jsonb,
	created_at timestamptz
);
COMMENT ON TYPE udb.event IS 'An event as udb.read() and udb.peek() return it';

-- enqueue(topic, payload, partition_key, event_id, headers): append an event in this transaction.
-- Returns its position; if event_id is given and the same event is there already, that one's.
-- Raises UD001 event_id_reused, 22004 for nulls, 22023 for a bad topic, key or headers,
-- 54000 for too large a payload, 25006 in a read-only transaction. Writes outbox_events.
CREATE FUNCTION udb.enqueue(topic text, payload jsonb, partition_key text DEFAULT '',
		event_id uuid DEFAULT NULL, headers jsonb DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_enqueue';
REVOKE EXECUTE ON FUNCTION udb.enqueue(text, jsonb, text, uuid, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION udb.enqueue(text, jsonb, text, uuid, jsonb) IS
	'Append an event to the outbox in this transaction; returns its position';

-- enqueue_many(topic, payloads, partition_keys, event_ids, headers): append many events, in order.
-- Arrays are as long as payloads, or null. A null among event_ids or headers means none given.
-- Returns the positions. Raises what enqueue() raises, UD008 duplicate_event_id, and 2202E where
-- the lengths differ.
CREATE FUNCTION udb.enqueue_many(topic text, payloads jsonb[], partition_keys text[] DEFAULT NULL,
		event_ids uuid[] DEFAULT NULL, headers jsonb[] DEFAULT NULL) RETURNS bigint[]
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_enqueue_many';
REVOKE EXECUTE ON FUNCTION udb.enqueue_many(text, jsonb[], text[], uuid[], jsonb[]) FROM PUBLIC;
COMMENT ON FUNCTION udb.enqueue_many(text, jsonb[], text[], uuid[], jsonb[]) IS
	'Append events to the outbox in this transaction; returns their positions';

-- outbox_trigger('topic' [, 'key column' ...]): row trigger that enqueues op, schema, table, old, new.
-- Several key columns are joined by ':'. Raises 39P01 for a wrong kind of trigger, 42703 for an
-- unknown column, and what enqueue() raises.
CREATE FUNCTION udb.outbox_trigger() RETURNS trigger
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_outbox_trigger';
REVOKE EXECUTE ON FUNCTION udb.outbox_trigger() FROM PUBLIC;
COMMENT ON FUNCTION udb.outbox_trigger() IS
	'Row trigger that enqueues what happened: arguments are the topic and the key columns';

-- outbox_max_seq(): position of the last committed event in the log, 0 if it is empty.
CREATE FUNCTION udb.outbox_max_seq() RETURNS bigint
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_outbox_max_seq';
REVOKE EXECUTE ON FUNCTION udb.outbox_max_seq() FROM PUBLIC;
COMMENT ON FUNCTION udb.outbox_max_seq() IS
	'Position of the last committed event, 0 if there is none';

-- outbox_stable_seq(): the stable horizon; nothing at or below it can still appear.
-- Raises UD005 feed_not_served on a standby.
CREATE FUNCTION udb.outbox_stable_seq() RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_outbox_stable_seq';
REVOKE EXECUTE ON FUNCTION udb.outbox_stable_seq() FROM PUBLIC;
COMMENT ON FUNCTION udb.outbox_stable_seq() IS
	'The stable horizon: no event at or below it can still appear';

CREATE FUNCTION udb._horizon_holders(OUT pid integer, OUT xid xid, OUT since timestamptz,
		OUT first_position bigint, OUT last_position bigint) RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_horizon_holders';
REVOKE EXECUTE ON FUNCTION udb._horizon_holders() FROM PUBLIC;
COMMENT ON FUNCTION udb._horizon_holders() IS 'Internal: slots of udb.horizon_holder()';

-- horizon_holder(): every transaction that has enqueued and has not ended, the one that holds the
-- horizon first. A prepared transaction has a gid and no pid. Whoever may call this sees the queries.
CREATE FUNCTION udb.horizon_holder(OUT pid integer, OUT gid text, OUT usename name, OUT since timestamptz,
		OUT first_position bigint, OUT last_position bigint, OUT state text, OUT query text)
	RETURNS SETOF record
	LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT h.pid, p.gid, coalesce(a.usename, p.owner), coalesce(h.since, p.prepared),
		h.first_position, h.last_position, coalesce(a.state, 'prepared'), a.query
	FROM udb._horizon_holders() h
		LEFT JOIN pg_stat_activity a ON a.pid = h.pid
		LEFT JOIN pg_prepared_xacts p ON p.transaction = h.xid
	ORDER BY h.first_position
	$$;
REVOKE EXECUTE ON FUNCTION udb.horizon_holder() FROM PUBLIC;
COMMENT ON FUNCTION udb.horizon_holder() IS
	'Transactions that have enqueued and not ended; the first row is what the feed waits for';

CREATE FUNCTION udb._outbox_segments(OUT segment regclass, OUT first_position bigint,
		OUT end_position bigint, OUT last_event_seq bigint, OUT last_created_at timestamptz)
	RETURNS SETOF record
	LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_outbox_segments';
REVOKE EXECUTE ON FUNCTION udb._outbox_segments() FROM PUBLIC;
COMMENT ON FUNCTION udb._outbox_segments() IS 'Internal: rows of udb.outbox_segments';

-- sweep_outbox_segments(): create the segment after the newest one if that is half full.
-- Returns how many were created. The worker calls it.
CREATE FUNCTION udb.sweep_outbox_segments() RETURNS integer
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_sweep_outbox_segments';
REVOKE EXECUTE ON FUNCTION udb.sweep_outbox_segments() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_outbox_segments() IS
	'Create segments ahead of need; returns how many (the worker does this)';

-- sweep_outbox_retention(): drop the oldest segments that are older than udb.outbox_retention and
-- passed by every consumer. Returns how many. Waits for no lock. Raises UD006. The worker calls it.
CREATE FUNCTION udb.sweep_outbox_retention() RETURNS integer
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_sweep_outbox_retention';
REVOKE EXECUTE ON FUNCTION udb.sweep_outbox_retention() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_outbox_retention() IS
	'Drop old segments that all consumers have passed; returns how many (the worker does this)';
