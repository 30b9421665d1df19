-- The rows of "source" as events of pgq, a tick each 1000: the batches that its consumers get. Not by
-- pgq.insert_event(), as filling the queue is not what is measured.
DO $$
DECLARE
	upto bigint;
	into_table text := pgq.current_event_table('bench');
	counter text := (SELECT queue_event_seq FROM pgq.queue WHERE queue_name = 'bench');
BEGIN
	FOR upto IN SELECT generate_series(1000, (SELECT max(event_seq) FROM source), 1000) LOOP
		EXECUTE format('INSERT INTO %s (ev_id, ev_time, ev_type, ev_data, ev_extra1)
			SELECT nextval(%L), created_at, ''orders'', payload_text, ''k1''
			FROM source WHERE event_seq > %s AND event_seq <= %s', into_table, counter, upto - 1000, upto);
		COMMIT;
		PERFORM pgq.ticker('bench');
		COMMIT;
	END LOOP;
END
$$;
