-- Rights -----------------------------------------------------------------

-- grant_role(role, kind): give a role what it needs to act as producer, consumer, worker, admin or
-- monitor. Raises 22004 for nulls, 22023 for another kind, 42704 for an unknown role. Only for the
-- extension's owner.
CREATE FUNCTION udb.grant_role("role" regrole, kind text) RETURNS void
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	producer CONSTANT text[] := ARRAY[
		'udb.enqueue(text, jsonb, text, uuid, jsonb)',
		'udb.enqueue_many(text, jsonb[], text[], uuid[], jsonb[])',
		'udb.outbox_trigger()',
		'udb.durable_token(udb.token)',
		'udb.write_receipt(text[], text)',
		'udb.send_job(text, jsonb, interval, timestamptz, interval, integer, integer, text, text, text)',
		'udb.send_jobs(text, jsonb[], interval, timestamptz, interval, integer, integer, text[], text[], text)',
		'udb.get_job(bigint, text)'];
	consumer CONSTANT text[] := ARRAY[
		'udb.read(text, integer)',
		'udb.peek(bigint, integer, text[])',
		'udb.checkpoint(text, bigint)',
		'udb.wait_for_events(text, interval)',
		'udb.await_events(text, interval, boolean)',
		'udb.dead_letter_event(text, bigint, text)',
		'udb.outbox_stable_seq()',
		'udb.outbox_max_seq()'];
	worker CONSTANT text[] := ARRAY[
		'udb.claim_jobs(text, text, integer, interval, text)',
		'udb.wait_for_jobs(text, interval, text)',
		'udb.await_jobs(text, interval, boolean, text)',
		'udb.ack_job(bigint, bigint, text)',
		'udb.ack_jobs(bigint[], bigint, text)',
		'udb.retry_job(bigint, bigint, interval, text, text)',
		'udb.fail_job(bigint, bigint, text, text)',
		'udb.extend_job(bigint, bigint, interval, text)',
		'udb.get_job(bigint, text)',
		'udb.sweep_jobs()',
		'udb.sweep_schedules()',
		'udb.try_acquire_lease(text, text, interval)',
		'udb.acquire_lease(text, text, interval, interval)',
		'udb.renew_lease(text, text, bigint, interval)',
		'udb.release_lease(text, text)',
		'udb.assert_lease(text, text, bigint)',
		'udb.sweep_outbox_segments()',
		'udb.sweep_outbox_retention()',
		'udb.sweep_dead_events()'];
	-- A view's tables are read with its owner's rights, but its functions are called with the caller's.
	monitor CONSTANT text[] := ARRAY[
		'udb.get_job(bigint, text)',
		'udb._consumer_reads()',
		'udb._outbox_segments()',
		'udb._fence_waiters()',
		'udb._lease_waiting(text)',
		'udb.get_migration_run(uuid, text)',
		'udb.list_migration_ops(uuid, text)',
		'udb.list_migration_runs(text, text, text, bigint, bigint, text)',
		'udb._worker_status()',
		'udb.horizon_holder()',
		'udb.outbox_stable_seq()',
		'udb.outbox_max_seq()'];
	admin CONSTANT text[] := ARRAY[
		'udb.redrive_jobs(text, bigint[], integer, text)',
		'udb.schedule(text, text, text, jsonb, text, integer, integer, text, text)',
		'udb.unschedule(text, text)',
		'udb.register_migration(text, integer, text, text, text, boolean)',
		'udb.migrate(text, integer)',
		'udb.start_migration_run(text, text, text, text, text, text)',
		'udb.record_migration_op(uuid, integer, text, text, text, text, jsonb, text, text)',
		'udb.finish_migration_run(uuid, text, text, text)',
		'udb.create_consumer(text, text[], text)',
		'udb.drop_consumer(text)',
		'udb.seek_consumer(text, bigint)',
		'udb.seek_consumer(text, text)',
		'udb.pause_consumer(text)',
		'udb.resume_consumer(text)',
		'udb.redrive_dead_letters(text)'];
	functions text[];
	tables text[] := '{}';
	object text;
BEGIN
	IF "role" IS NULL OR kind IS NULL THEN
		RAISE null_value_not_allowed USING
			MESSAGE = format('argument "%s" must not be null', CASE WHEN "role" IS NULL THEN 'role' ELSE 'kind' END);
	END IF;
	-- a regrole can hold any number
	IF NOT EXISTS (SELECT FROM pg_roles WHERE oid = "role") THEN
		RAISE undefined_object USING MESSAGE = format('role with OID %s does not exist', "role"::oid);
	END IF;
	CASE kind
		WHEN 'producer' THEN functions := producer;
		WHEN 'consumer' THEN functions := consumer;
		WHEN 'worker' THEN functions := worker;
		WHEN 'monitor' THEN functions := monitor;
		WHEN 'admin' THEN functions := producer || consumer || worker || monitor || admin;
		ELSE
			RAISE invalid_parameter_value USING
				MESSAGE = format('unknown kind of role "%s"', kind),
				HINT = 'Use producer, consumer, worker, admin or monitor.';
	END CASE;
	IF kind IN ('monitor', 'admin') THEN
		tables := ARRAY['udb.consumer_status', 'udb.outbox_segments', 'udb.consumers',
			'udb.dead_events', 'udb.outbox_events', 'udb.fence_waiters'];
		tables := tables || ARRAY['udb.lease_status', 'udb.advisory_leases'];
		tables := tables || ARRAY['udb.worker_status'];
		tables := tables || ARRAY['udb.queue_status', 'udb.jobs', 'udb.dead_jobs'];
		tables := tables || ARRAY['udb.schedule_status', 'udb.schedules'];
		tables := tables || ARRAY['udb.schema_stamps', 'udb.migration_steps', 'udb.migration_history'];
		tables := tables || ARRAY['udb.migration_runs', 'udb.migration_op_ledger'];
	END IF;
	FOREACH object IN ARRAY functions LOOP
		EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', object, "role");
	END LOOP;
	FOREACH object IN ARRAY tables LOOP
		EXECUTE format('GRANT SELECT ON %s TO %s', object, "role");
	END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION udb.grant_role(regrole, text) FROM PUBLIC;
COMMENT ON FUNCTION udb.grant_role(regrole, text) IS
	'Grant a role what a producer, consumer, worker, admin or monitor needs';
