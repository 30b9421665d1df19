-- Registries -------------------------------------------------------------

-- Its row is its counter: half of each page is left for new versions. The library knows the columns
-- and the indexes of the three tables.
CREATE TABLE udb.registries (
	registry text COLLATE "C" NOT NULL CONSTRAINT registries_pkey PRIMARY KEY
		CHECK (octet_length(registry) BETWEEN 1 AND 255),
	watermark bigint NOT NULL DEFAULT 0 CHECK (watermark >= 0),
	last_removal bigint NOT NULL DEFAULT 0 CHECK (last_removal BETWEEN 0 AND watermark),
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE udb.registries IS 'Registries, keyed sets of records; change them with the functions only';
COMMENT ON COLUMN udb.registries.watermark IS 'Number of the last change; counts from 1, without gaps';
COMMENT ON COLUMN udb.registries.last_removal IS 'Number of the last change that removed a record, 0 if there was none';
SELECT pg_catalog.pg_extension_config_dump('udb.registries', '');

-- No foreign key to registries: a parallel restore copies the tables in any order.
CREATE TABLE udb.registry_records (
	registry text COLLATE "C" NOT NULL CHECK (octet_length(registry) BETWEEN 1 AND 255),
	key text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 1024),
	record jsonb NOT NULL,
	seq bigint NOT NULL CHECK (seq > 0),
	updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT registry_records_pkey PRIMARY KEY (registry, key),
	CONSTRAINT registry_records_seq_key UNIQUE (registry, seq)
);
-- names and keys are read without being unpacked
ALTER TABLE udb.registry_records ALTER registry SET STORAGE PLAIN, ALTER key SET STORAGE PLAIN;
COMMENT ON TABLE udb.registry_records IS 'Records of registries; change them with the functions only';
COMMENT ON COLUMN udb.registry_records.seq IS 'Number of the change that this record is from';
SELECT pg_catalog.pg_extension_config_dump('udb.registry_records', '');

CREATE TABLE udb.registry_consumers (
	consumer text COLLATE "C" NOT NULL CONSTRAINT registry_consumers_pkey PRIMARY KEY
		CHECK (octet_length(consumer) BETWEEN 1 AND 255),
	registry text COLLATE "C" NOT NULL,
	applied bigint NOT NULL DEFAULT 0 CHECK (applied >= 0),
	removals_checked bigint NOT NULL DEFAULT 0 CHECK (removals_checked >= 0),
	handler text,
	failures integer NOT NULL DEFAULT 0,
	last_error text,
	not_before timestamptz,
	last_attempt timestamptz,
	last_reconciled timestamptz,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
COMMENT ON TABLE udb.registry_consumers IS 'Who follows a registry; change them with the functions only';
COMMENT ON COLUMN udb.registry_consumers.applied IS 'Watermark up to which it has got everything';
COMMENT ON COLUMN udb.registry_consumers.removals_checked IS
	'It knows of what was removed up to this number';
COMMENT ON COLUMN udb.registry_consumers.handler IS
	'Function that the worker calls with what has changed; null if the consumer reconciles by itself';
COMMENT ON COLUMN udb.registry_consumers.not_before IS 'The worker tries again then, after the handler has failed';
SELECT pg_catalog.pg_extension_config_dump('udb.registry_consumers', '');

CREATE TYPE udb.registry_record AS (
	registry text,
	key text,
	record jsonb,
	seq bigint,
	updated_at timestamptz
);
COMMENT ON TYPE udb.registry_record IS 'A record as udb.rows_since() and udb.reconcile() return it';

-- Nobody reads these two: what sessions have kept of registries hangs on their invalidation messages.
CREATE TABLE udb._registry_changed ();
COMMENT ON TABLE udb._registry_changed IS 'Internal: empty; stands for a change of some registry';
CREATE TABLE udb._registry_reset ();
COMMENT ON TABLE udb._registry_reset IS 'Internal: empty; stands for a change past the functions';

CREATE FUNCTION udb._registry_trigger() RETURNS trigger
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_registry_trigger';
REVOKE EXECUTE ON FUNCTION udb._registry_trigger() FROM PUBLIC;
COMMENT ON FUNCTION udb._registry_trigger() IS
	'Internal: make all sessions forget what they have kept, when the tables are written past the functions';
-- A new registry is in nobody's way.
CREATE TRIGGER changed AFTER UPDATE OR DELETE OR TRUNCATE ON udb.registries
	FOR EACH STATEMENT EXECUTE FUNCTION udb._registry_trigger();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON udb.registry_records
	FOR EACH STATEMENT EXECUTE FUNCTION udb._registry_trigger();

CREATE FUNCTION udb._registry_doubt() RETURNS void
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'udb_registry_doubt';
REVOKE EXECUTE ON FUNCTION udb._registry_doubt() FROM PUBLIC;
COMMENT ON FUNCTION udb._registry_doubt() IS
	'Internal: resolve() in this session shall look at the watermark again';

CREATE FUNCTION udb._registry_call(handler text, consumer text, records udb.registry_record[], removals boolean)
	RETURNS void
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_registry_call';
REVOKE EXECUTE ON FUNCTION udb._registry_call(text, text, udb.registry_record[], boolean) FROM PUBLIC;
COMMENT ON FUNCTION udb._registry_call(text, text, udb.registry_record[], boolean) IS
	'Internal: call a handler as its owner';

-- create_registry(registry): an empty one, whose changes count from 1. Raises 22004, 42602 and 42622 for a
-- bad name, 42710 if it exists, 42704 for an unknown store. Writes registries.
CREATE FUNCTION udb.create_registry(registry text, store text DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_name('registry', $1), udb._check_store($2);
	INSERT INTO udb.registries (registry) VALUES ($1) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RAISE duplicate_object USING MESSAGE = format('registry "%s" already exists', $1);
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.create_registry(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.create_registry(text, text) IS 'Make an empty registry';

-- drop_registry(registry): forget it and its records. Raises 42704 if there is none, 2BP01 while it has
-- consumers. Writes registries, registry_records.
CREATE FUNCTION udb.drop_registry(registry text, store text DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_drop_registry';
REVOKE EXECUTE ON FUNCTION udb.drop_registry(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.drop_registry(text, text) IS 'Forget a registry and its records';

-- put_record(registry, key, record): insert a record or replace it. Returns the number of this change: the
-- next one of the registry. Others who change the same registry wait until this transaction ends.
-- Raises 22004 for nulls, 42602 and 42622 for a bad name or key, 42704 for an unknown registry or store,
-- 40001 in REPEATABLE READ if the registry was changed since the snapshot. Writes registries,
-- registry_records.
CREATE FUNCTION udb.put_record(registry text, key text, record jsonb, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_put_record';
REVOKE EXECUTE ON FUNCTION udb.put_record(text, text, jsonb, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.put_record(text, text, jsonb, text) IS
	'Insert or replace a record; returns the number of the change';

-- update_record(registry, key, record): the same for a record that exists; null, and no number is taken, if
-- there is none.
CREATE FUNCTION udb.update_record(registry text, key text, record jsonb, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_update_record';
REVOKE EXECUTE ON FUNCTION udb.update_record(text, text, jsonb, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.update_record(text, text, jsonb, text) IS
	'Replace a record that exists; returns the number of the change, null if there is no such record';

-- remove_record(registry, key): remove a record, of which nothing stays but the number of this change. Null,
-- and no number is taken, if there is none.
CREATE FUNCTION udb.remove_record(registry text, key text, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_remove_record';
REVOKE EXECUTE ON FUNCTION udb.remove_record(text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.remove_record(text, text, text) IS
	'Remove a record; returns the number of the change, null if there is no such record';

-- touch_record(registry, key): give a record the next number without changing it, so that consumers get it
-- again. Null, and no number is taken, if there is none.
CREATE FUNCTION udb.touch_record(registry text, key text, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_touch_record';
REVOKE EXECUTE ON FUNCTION udb.touch_record(text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.touch_record(text, text, text) IS
	'Give a record a new number, unchanged; returns it, null if there is no such record';

-- watermark(registry): the number of its last change, 0 before the first. Raises 22004, 42704.
CREATE FUNCTION udb.watermark(registry text, store text DEFAULT NULL) RETURNS bigint
	LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	result bigint;
BEGIN
	PERFORM udb._check_name('registry', $1), udb._check_store($2);
	SELECT watermark INTO result FROM udb.registries r WHERE r.registry = $1;
	IF result IS NULL THEN
		RAISE undefined_object USING MESSAGE = format('registry "%s" does not exist', $1);
	END IF;
	RETURN result;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.watermark(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.watermark(text, text) IS 'Number of a registry''s last change';

-- rows_since(registry, seq, row_limit): its records whose number is above seq, in their order. A record that
-- was changed twice has the number of the last change only; one that was removed is not there. A limit
-- that is not positive gives none. Raises 22004, 42704.
CREATE FUNCTION udb.rows_since(registry text, seq bigint DEFAULT 0, row_limit integer DEFAULT 1000,
		store text DEFAULT NULL) RETURNS SETOF udb.registry_record
	LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_not_null('seq', $2), udb._check_not_null('row_limit', $3), udb.watermark($1, $4);
	RETURN QUERY SELECT registry, key, record, seq, updated_at FROM udb.registry_records r
		WHERE r.registry = $1 AND r.seq > $2 ORDER BY r.seq LIMIT greatest($3, 0);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.rows_since(text, bigint, integer, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.rows_since(text, bigint, integer, text) IS
	'Records of a registry whose number is above the given one, in order';

-- resolve(registry, key): the record, null if there is none. From what this session has read before, unless
-- something was committed to the registry since; sees this transaction's own changes, and like a catalog
-- lookup what is committed now, also in REPEATABLE READ. Raises 22004, 42602, 42622, 42704.
CREATE FUNCTION udb.resolve(registry text, key text, store text DEFAULT NULL) RETURNS jsonb
	LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'udb_resolve';
REVOKE EXECUTE ON FUNCTION udb.resolve(text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.resolve(text, text, text) IS
	'Record of a key as it is committed now, from the session''s cache; null if there is none';

-- create_registry_consumer(consumer, registry, handler, applied): follow a registry, from "applied" on, of
-- which everything is known already. The handler, if any, is called by the worker, as its owner, with
-- (consumer, records, removals); only its owner can register it. Raises 22004, 42602, 42622, 42704, 42710
-- if it exists, 22023 for a watermark that the registry has not reached, 42P13 for a function that is no
-- handler, 42501 for somebody else's. Writes registry_consumers.
CREATE FUNCTION udb.create_registry_consumer(consumer text, registry text, handler regprocedure DEFAULT NULL,
		applied bigint DEFAULT 0, store text DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_create_registry_consumer';
REVOKE EXECUTE ON FUNCTION udb.create_registry_consumer(text, text, regprocedure, bigint, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.create_registry_consumer(text, text, regprocedure, bigint, text) IS
	'Register a consumer of a registry, with or without a handler that the worker calls';

-- drop_registry_consumer(consumer): forget it. Raises 42704 if there is none. Writes registry_consumers.
CREATE FUNCTION udb.drop_registry_consumer(consumer text, store text DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
BEGIN
	PERFORM udb._check_name('consumer', $1), udb._check_store($2);
	DELETE FROM udb.registry_consumers c WHERE c.consumer = $1;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = format('registry consumer "%s" does not exist', $1);
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.drop_registry_consumer(text, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.drop_registry_consumer(text, text) IS 'Forget a consumer of a registry';

-- How far the next so many records reach: to the watermark, or to the last of them.
CREATE FUNCTION udb._registry_next(registry text, applied bigint, row_limit integer,
		OUT upto bigint, OUT last_removal bigint)
	LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT CASE WHEN m.n < $3 THEN r.watermark ELSE m.seq END, r.last_removal
	FROM udb.registries r, LATERAL (
		SELECT count(*) AS n, max(x.seq) AS seq FROM (
			SELECT s.seq FROM udb.registry_records s WHERE s.registry = $1 AND s.seq > $2 ORDER BY s.seq LIMIT $3) x) m
	WHERE r.registry = $1
	$$;
REVOKE EXECUTE ON FUNCTION udb._registry_next(text, bigint, integer) FROM PUBLIC;
COMMENT ON FUNCTION udb._registry_next(text, bigint, integer) IS
	'Internal: watermark that a consumer has reached after so many records';

-- reconcile(consumer, row_limit): the records that have changed since its applied watermark, which moves with
-- this transaction: apply them in the same one. In the order of their numbers; when there is nothing more,
-- none. Others who reconcile the same consumer wait until the transaction ends. Records that were removed
-- are not among them: see removed_keys(). A limit that is not positive gives none and moves nothing.
-- Raises 22004, 42602, 42622, 42704, 40001 in REPEATABLE READ if another one was faster. Writes
-- registry_consumers.
CREATE FUNCTION udb.reconcile(consumer text, row_limit integer DEFAULT 1000, store text DEFAULT NULL)
	RETURNS SETOF udb.registry_record
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	c udb.registry_consumers;
	upto bigint;
BEGIN
	PERFORM udb._check_name('consumer', $1), udb._check_not_null('row_limit', $2), udb._check_store($3);
	SELECT * INTO c FROM udb.registry_consumers k WHERE k.consumer = $1 FOR UPDATE;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = format('registry consumer "%s" does not exist', $1);
	END IF;
	IF $2 <= 0 THEN
		RETURN;
	END IF;
	SELECT n.upto INTO upto FROM udb._registry_next(c.registry, c.applied, $2) n;
	IF upto IS NULL OR upto <= c.applied THEN
		RETURN;
	END IF;
	-- what has been changed since has another number by now, and comes the next time
	RETURN QUERY SELECT registry, key, record, seq, updated_at FROM udb.registry_records r
		WHERE r.registry = c.registry AND r.seq > c.applied AND r.seq <= upto ORDER BY r.seq;
	UPDATE udb.registry_consumers k SET applied = upto, last_reconciled = clock_timestamp() WHERE k.consumer = $1;
	PERFORM udb._registry_doubt();
END
$$;
REVOKE EXECUTE ON FUNCTION udb.reconcile(text, integer, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.reconcile(text, integer, text) IS
	'Records that a consumer has missed; its applied watermark moves past them';

-- removed_keys(consumer, keys): those of the keys, which the consumer knows, that its registry no longer has.
-- Looks only if something was removed since the last call; then the consumer counts as told. Raises 22004,
-- 42602, 42622, 42704. Writes registry_consumers.
CREATE FUNCTION udb.removed_keys(consumer text, keys text[], store text DEFAULT NULL) RETURNS SETOF text
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 10 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	c udb.registry_consumers;
	removal bigint;
BEGIN
	PERFORM udb._check_name('consumer', $1), udb._check_not_null('keys', $2), udb._check_store($3);
	SELECT * INTO c FROM udb.registry_consumers k WHERE k.consumer = $1 FOR UPDATE;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = format('registry consumer "%s" does not exist', $1);
	END IF;
	-- first, so that a removal while we look counts for the next time
	removal := (SELECT last_removal FROM udb.registries r WHERE r.registry = c.registry);
	IF removal <= c.removals_checked THEN
		RETURN;
	END IF;
	RETURN QUERY SELECT DISTINCT k FROM unnest($2) k WHERE k IS NOT NULL AND NOT EXISTS (
		SELECT FROM udb.registry_records r WHERE r.registry = c.registry AND r.key = k);
	UPDATE udb.registry_consumers k SET removals_checked = removal WHERE k.consumer = $1;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.removed_keys(text, text[], text) FROM PUBLIC;
COMMENT ON FUNCTION udb.removed_keys(text, text[], text) IS
	'Those of a consumer''s keys that its registry no longer has';

-- wait_for_registry(consumer, timeout): true as soon as the consumer has something to reconcile, false after
-- the timeout. Its query keeps a snapshot. Raises 22004, 42602, 42622, 42704, 22023 for a negative timeout,
-- 22008 for one that is out of range, 25006 on a standby.
CREATE FUNCTION udb.wait_for_registry(consumer text, timeout interval, store text DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_wait_for_registry';
REVOKE EXECUTE ON FUNCTION udb.wait_for_registry(text, interval, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.wait_for_registry(text, interval, text) IS
	'Wait until a consumer of a registry has something to reconcile (true) or the timeout is over (false)';

-- sweep_registries(): call the handler of one consumer that is behind, with up to 1000 records, and move its
-- watermark. One that fails keeps its watermark and its error, and is tried again later: after 1 second,
-- doubled with each failure up to 5 minutes, with half as many records each time. Returns how many were handed
-- over, at least 1 if a handler was called. The worker does this again until it is 0. Writes registry_consumers,
-- and what handlers do.
CREATE FUNCTION udb.sweep_registries() RETURNS bigint
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$
#variable_conflict use_column
DECLARE
	c udb.registry_consumers;
	upto bigint;
	removal bigint;
	records udb.registry_record[];
	error text;
BEGIN
	-- who has waited longest comes first, so that one who is always behind does not keep the others waiting
	SELECT k.* INTO c FROM udb.registry_consumers k JOIN udb.registries r ON r.registry = k.registry
		WHERE k.handler IS NOT NULL AND k.applied < r.watermark
			AND (k.not_before IS NULL OR k.not_before <= clock_timestamp())
		ORDER BY k.last_attempt NULLS FIRST LIMIT 1 FOR UPDATE OF k SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN 0;
	END IF;
	-- fewer after each failure: what is too much at once must not stop it for ever
	SELECT n.upto, n.last_removal INTO upto, removal
	FROM udb._registry_next(c.registry, c.applied, greatest(1000 >> least(c.failures, 10), 1)) n;
	IF upto IS NULL OR upto <= c.applied THEN
		RETURN 0;
	END IF;
	BEGIN
		records := coalesce((SELECT array_agg(
				ROW (r.registry, r.key, r.record, r.seq, r.updated_at)::udb.registry_record ORDER BY r.seq)
			FROM udb.registry_records r WHERE r.registry = c.registry AND r.seq > c.applied AND r.seq <= upto), '{}');
		-- removals beyond this batch are told of with a later one
		removal := CASE WHEN removal > upto THEN c.removals_checked ELSE removal END;
		PERFORM udb._registry_call(c.handler, c.consumer, records, removal > c.removals_checked);
		UPDATE udb.registry_consumers k SET applied = upto, removals_checked = greatest(removal, k.removals_checked),
			failures = 0, last_error = NULL, not_before = NULL,
			last_attempt = clock_timestamp(), last_reconciled = clock_timestamp()
		WHERE k.consumer = c.consumer;
	EXCEPTION WHEN OTHERS OR assert_failure OR query_canceled THEN
		GET STACKED DIAGNOSTICS error = MESSAGE_TEXT;
		-- who has called this by hand and cancels it does not want it to go on
		IF sqlstate = '57014' AND pg_backend_pid() IS DISTINCT FROM (SELECT max(w.worker_pid) FROM udb._worker_status() w) THEN
			RAISE;
		END IF;
		UPDATE udb.registry_consumers k SET failures = k.failures + 1, last_error = sqlstate || ': ' || error,
			not_before = clock_timestamp() + interval '1 second' * least(2 ^ least(k.failures, 20), 300),
			last_attempt = clock_timestamp()
		WHERE k.consumer = c.consumer;
		RETURN 1;
	END;
	RETURN greatest(cardinality(records), 1);
END
$$;
REVOKE EXECUTE ON FUNCTION udb.sweep_registries() FROM PUBLIC;
COMMENT ON FUNCTION udb.sweep_registries() IS
	'Call the handler of one consumer that is behind its registry; returns how many records (the worker does this)';

CREATE VIEW udb.registry_consumer_status AS
	SELECT c.consumer, c.registry, c.applied, r.watermark, r.watermark - c.applied AS lag,
		r.last_removal > c.removals_checked AS removals, c.handler, c.failures, c.last_error, c.not_before,
		c.last_reconciled
	FROM udb.registry_consumers c LEFT JOIN udb.registries r ON r.registry = c.registry;
COMMENT ON VIEW udb.registry_consumer_status IS 'One row a consumer of a registry: how far it is, and why no further';
COMMENT ON COLUMN udb.registry_consumer_status.lag IS 'Changes after its applied watermark';
COMMENT ON COLUMN udb.registry_consumer_status.removals IS
	'Whether something was removed that it has not asked for with removed_keys(), or its handler has not been told of';
