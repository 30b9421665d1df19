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
		'udb.get_job(bigint, text)',
		'udb.record_saga(uuid, text, text, text, text, text, text, integer, integer, integer, text, jsonb, jsonb, text, text)',
		'udb.saga_step(uuid, text, jsonb, text)',
		'udb.compensate_saga(uuid, text, text)',
		'udb.update_saga_status(uuid, text, text, text)',
		'udb.update_saga_status(uuid[], text, text, text)',
		'udb.update_saga_status(text, text, text, text)',
		'udb.get_saga(uuid, text)',
		'udb.put_record(text, text, jsonb, text)',
		'udb.update_record(text, text, jsonb, text)',
		'udb.remove_record(text, text, text)',
		'udb.touch_record(text, text, text)',
		'udb.announce(text, text, jsonb, text)',
		'udb.enqueue_projection_task(text, text, text, text, text, text, jsonb, text, text, text, text, text, jsonb, jsonb,'
			' text, text)',
		'udb.pending_projection_task_count(text[], text)'];
	consumer CONSTANT text[] := ARRAY[
		'udb.read(text, integer)',
		'udb.peek(bigint, integer, text[])',
		'udb.checkpoint(text, bigint)',
		'udb.wait_for_events(text, interval)',
		'udb.await_events(text, interval, boolean)',
		'udb.dead_letter_event(text, bigint, text)',
		'udb.outbox_stable_seq()',
		'udb.outbox_max_seq()',
		'udb.resolve(text, text, text)',
		'udb.watermark(text, text)',
		'udb.rows_since(text, bigint, integer, text)',
		'udb.reconcile(text, integer, text)',
		'udb.removed_keys(text, text[], text)',
		'udb.wait_for_registry(text, interval, text)'];
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
		'udb.get_saga(uuid, text)',
		'udb.list_sagas(text, text, text, text, bigint, bigint, text)',
		'udb.saga_summary(text)',
		'udb.saga_step(uuid, text, jsonb, text)',
		'udb.compensate_saga(uuid, text, text)',
		'udb.update_saga_status(uuid, text, text, text)',
		'udb.update_saga_status(uuid[], text, text, text)',
		'udb.update_saga_status(text, text, text, text)',
		'udb.mark_saga_manual_review(uuid, text)',
		'udb.increment_recovery_attempts(uuid, text, text)',
		'udb.claim_recoverable_sagas(interval, bigint, text)',
		'udb.mark_stale_sagas_indeterminate(interval, text)',
		'udb.sweep_sagas()',
		'udb.sweep_outbox_segments()',
		'udb.sweep_outbox_retention()',
		'udb.sweep_dead_events()',
		'udb.sweep_registries()',
		'udb.claim_projection_tasks(integer, integer, text, text, text, text)',
		'udb.complete_projection_task(uuid, text)',
		'udb.complete_projection_task(uuid, bigint, text)',
		'udb.fail_projection_task(uuid, integer, text, text, boolean, text)',
		'udb.fail_projection_task(uuid, integer, text, text, bigint, boolean, text)',
		'udb.heartbeat_projection_task(uuid, bigint, text)',
		'udb.get_projection_task(uuid, text)',
		'udb.pending_projection_task_count(text[], text)',
		'udb.reset_stale_projection_tasks(interval, text)',
		'udb.sweep_projection_tasks()'];
	-- A view's tables are read with its owner's rights, but its functions are called with the caller's.
	monitor CONSTANT text[] := ARRAY[
		'udb.get_job(bigint, text)',
		'udb._consumer_reads()',
		'udb._outbox_segments()',
		'udb._fence_waiters()',
		'udb._lease_waiting(text)',
		'udb.get_saga(uuid, text)',
		'udb.list_sagas(text, text, text, text, bigint, bigint, text)',
		'udb.saga_summary(text)',
		'udb.get_migration_run(uuid, text)',
		'udb.list_migration_ops(uuid, text)',
		'udb.list_migration_runs(text, text, text, bigint, bigint, text)',
		'udb._worker_status()',
		'udb.latest_admin_audit_hash(text)',
		'udb.list_admin_audit(text, text, text, text, integer, bigint, boolean, text)',
		'udb.verify_admin_audit_chain(bigint, text)',
		'udb.get_projection_task(uuid, text)',
		'udb.projection_task_summary(text)',
		'udb.pending_task_metrics(integer, text)',
		'udb.dead_letter_groups(integer, text)',
		'udb.pending_projection_task_count(text[], text)',
		'udb.horizon_holder()',
		'udb.outbox_stable_seq()',
		'udb.outbox_max_seq()'];
	admin CONSTANT text[] := ARRAY[
		'udb.redrive_jobs(text, bigint[], integer, text)',
		'udb.append_admin_audit(text, text, text, jsonb, text, text, text, text, text, text, text)',
		'udb.register_migration(text, integer, text, text, text, boolean)',
		'udb.migrate(text, integer)',
		'udb.request_saga_recompensation(uuid, text)',
		'udb.schedule(text, text, text, jsonb, text, integer, integer, text, text)',
		'udb.unschedule(text, text)',
		'udb.start_migration_run(text, text, text, text, text, text)',
		'udb.record_migration_op(uuid, integer, text, text, text, text, jsonb, text, text)',
		'udb.finish_migration_run(uuid, text, text, text)',
		'udb.create_consumer(text, text[], text)',
		'udb.drop_consumer(text)',
		'udb.seek_consumer(text, bigint)',
		'udb.seek_consumer(text, text)',
		'udb.pause_consumer(text)',
		'udb.resume_consumer(text)',
		'udb.redrive_dead_letters(text)',
		'udb.create_registry(text, text)',
		'udb.drop_registry(text, text)',
		'udb.create_registry_consumer(text, text, regprocedure, bigint, text)',
		'udb.drop_registry_consumer(text, text)',
		'udb.requeue_dead_letter_tasks(text, text)',
		'udb.requeue_dead_letter_by_source(text, text, text, text, text)'];
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
		tables := tables || ARRAY['udb.projection_tasks'];
		tables := tables || ARRAY['udb.schema_stamps', 'udb.migration_steps', 'udb.migration_history'];
		tables := tables || ARRAY['udb.admin_audit_log', 'udb.admin_audit_witness'];
		tables := tables || ARRAY['udb.sagas'];
		tables := tables || ARRAY['udb.registries', 'udb.registry_records', 'udb.registry_consumers',
			'udb.registry_consumer_status'];
		tables := tables || ARRAY['udb.schedule_status', 'udb.schedules'];
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
