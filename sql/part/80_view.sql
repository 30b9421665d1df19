-- Views ------------------------------------------------------------------

CREATE VIEW udb.outbox_segments AS
	SELECT s.segment, s.first_position, s.end_position, s.last_event_seq, s.last_created_at,
		coalesce(coalesce(s.last_created_at, '-infinity') < clock_timestamp() - r.retention
			AND s.end_position <= max(s.last_event_seq) OVER (), false) AS expired
	FROM udb._outbox_segments() s,
		(SELECT nullif(setting::bigint, -1) * interval '1 second' AS retention
		 FROM pg_catalog.pg_settings WHERE name = 'udb.outbox_retention') r;
COMMENT ON VIEW udb.outbox_segments IS
	'Segments of the outbox; expired ones, which are full and old, go as soon as every consumer has passed them';

CREATE VIEW udb.consumer_status AS
	SELECT c.name, c.topics, c.paused, c.position,
		l.events AS lag_events,
		coalesce(extract(epoch FROM clock_timestamp() - l.oldest), 0)::double precision AS lag_seconds,
		(SELECT count(*) FROM udb.dead_events d
		 WHERE d.consumer = c.name AND d.redrive_seq IS NULL) AS parked_events,
		r.last_read, c.last_checkpoint, c.created_at,
		EXISTS (SELECT FROM udb.outbox_segments s
				WHERE s.expired AND c.position < s.end_position - 1) AS holds_retention
	FROM udb.consumers c
		LEFT JOIN udb._consumer_reads() r ON r.name = c.name AND r.created_at = c.created_at
		CROSS JOIN LATERAL (
			SELECT count(*) AS events, min(e.created_at) AS oldest FROM udb.outbox_events e
			WHERE e.event_seq > c.position AND (c.topics IS NULL OR e.topic = ANY (c.topics))) l;
COMMENT ON VIEW udb.consumer_status IS
	'One row a consumer: position, lag in committed events and seconds, parked events, activity';
COMMENT ON COLUMN udb.consumer_status.lag_events IS
	'Committed events of its topics after its position; counted, so it costs what the lag is';
COMMENT ON COLUMN udb.consumer_status.last_read IS
	'Last call of read(); null if there was none since the server started';
COMMENT ON COLUMN udb.consumer_status.holds_retention IS
	'Whether a segment that is old enough is kept because of this consumer';
