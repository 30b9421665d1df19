-- The rows of "source" as events of pgq, a tick each 1000: the batches that its consumers get.
DO $$
DECLARE
	upto bigint;
BEGIN
	FOR upto IN SELECT generate_series(1000, (SELECT max(event_seq) FROM source), 1000) LOOP
		PERFORM pgq.insert_event('bench', 'orders', payload_text, 'k1', NULL, NULL, NULL)
		FROM source WHERE event_seq > upto - 1000 AND event_seq <= upto;
		COMMIT;
		PERFORM pgq.ticker('bench');
		COMMIT;
	END LOOP;
END
$$;
