-- Receipts ----------------------------------------------------------------

-- write_receipt(projection_task_ids, manifest_checksum): what a reader needs to see this session's
-- last commit: source_token, outbox_seq, projection_task_ids, manifest_checksum, written_at_unix_ms.
-- Flushes the WAL up to that commit. outbox_seq is the position of the last committed event.
-- Raises UD029 commit_not_yet in a transaction that has written, 22004 for nulls.
CREATE FUNCTION udb.write_receipt(projection_task_ids text[] DEFAULT '{}', manifest_checksum text DEFAULT '')
	RETURNS jsonb
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_write_receipt';
REVOKE EXECUTE ON FUNCTION udb.write_receipt(text[], text) FROM PUBLIC;
COMMENT ON FUNCTION udb.write_receipt(text[], text) IS
	'Receipt of this session''s last commit, for wait_for_fence()';

-- wait_for_fence(receipt, timeout): wait for its token, then for its projection tasks, inside of one
-- deadline. Outcome is cleared, or stale with reason fence_timed_out or projection_missing and a
-- detail. A receipt without token and tasks is cleared at once. Raises what wait_for_token() raises,
-- and 22023 for what is no receipt.
CREATE FUNCTION udb.wait_for_fence(receipt jsonb, timeout interval DEFAULT '5 seconds',
		OUT outcome text, OUT reason text, OUT detail text, OUT waited_ms double precision)
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_wait_for_fence';
COMMENT ON FUNCTION udb.wait_for_fence(jsonb, interval) IS
	'Wait for all that a receipt names: cleared, or stale and why';
