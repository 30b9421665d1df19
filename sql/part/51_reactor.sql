-- Announcements ----------------------------------------------------------

CREATE FUNCTION udb._announce_wake(topic text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_announce_wake';
REVOKE EXECUTE ON FUNCTION udb._announce_wake(text) FROM PUBLIC;
COMMENT ON FUNCTION udb._announce_wake(text) IS 'Internal: let the worker notify listeners when this commits';

-- announce(topic, key, payload): tell everybody, in three ways that do not depend on each other: an event in
-- the outbox (published); NOTIFY udb_registry by the worker, and its sweep of registries (notified); a job in
-- queue "udb_maintenance" with payload {"topic", "key", "payload"} (enqueued_job_id). What fails gives false
-- or null and a warning, and takes nothing else along. All three come with the commit.
-- Raises 22004 for nulls, 42602 and 42622 for a bad topic or a key of more than 1024 bytes, 42704, 25006.
-- Writes outbox_events, jobs.
CREATE FUNCTION udb.announce(topic text, key text, payload jsonb, store text DEFAULT NULL,
		OUT published boolean, OUT notified boolean, OUT enqueued_job_id bigint)
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_name('topic', $1), udb._check_not_null('key', $2), udb._check_not_null('payload', $3),
		udb._check_store($4);
	IF octet_length($2) > 1024 THEN
		PERFORM udb._check_name('key', $2, 1024);
	END IF;
	IF current_setting('transaction_read_only')::boolean THEN
		RAISE read_only_sql_transaction USING MESSAGE = 'cannot execute announce() in a read-only transaction';
	END IF;
	published := false;
	notified := false;

	-- a cancelled query is none of "others", and ends all of it
	BEGIN
		PERFORM udb.enqueue($1, $3, $2);
		published := true;
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING USING ERRCODE = sqlstate,
			MESSAGE = format('announcement of topic "%s" was not published: %s', $1, sqlerrm);
	END;
	BEGIN
		notified := udb._announce_wake($1);
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING USING ERRCODE = sqlstate,
			MESSAGE = format('announcement of topic "%s" notifies nobody: %s', $1, sqlerrm);
	END;
	BEGIN
		enqueued_job_id := udb.send_job('udb_maintenance',
			jsonb_build_object('topic', $1, 'key', $2, 'payload', $3));
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING USING ERRCODE = sqlstate,
			MESSAGE = format('announcement of topic "%s" has sent no job: %s', $1, sqlerrm);
	END;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.announce(text, text, jsonb, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.announce(text, text, jsonb, text) IS
	'Publish an event, notify listeners and send a maintenance job; each may fail alone';
