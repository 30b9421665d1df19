-- The worker --------------------------------------------------------------

-- What the worker of this database has done; what is called by hand is not in it. Times are those of the
-- database's clock. Nothing of this outlives the server.
CREATE FUNCTION udb._worker_status(OUT sweep text, OUT runs bigint, OUT last_run timestamptz,
		OUT last_duration interval, OUT last_changed bigint, OUT total_changed bigint, OUT failures integer,
		OUT last_error text, OUT last_error_at timestamptz, OUT next_run timestamptz,
		OUT worker_pid integer, OUT worker_started_at timestamptz) RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'udb_worker_status';
REVOKE EXECUTE ON FUNCTION udb._worker_status() FROM PUBLIC;
COMMENT ON FUNCTION udb._worker_status() IS 'Internal: rows of udb.worker_status';

CREATE VIEW udb.worker_status AS
	SELECT sweep, runs, last_run, last_duration, last_changed, total_changed, failures, last_error,
		last_error_at, next_run, worker_pid, worker_started_at
	FROM udb._worker_status();
COMMENT ON VIEW udb.worker_status IS
	'What this database''s worker does: when each sweep ran last, what it changed, and its last error';
COMMENT ON COLUMN udb.worker_status.runs IS 'How often it was started, failed runs included';
COMMENT ON COLUMN udb.worker_status.last_duration IS
	'How long its last run took; null while that is going on, or if the worker died in it';
COMMENT ON COLUMN udb.worker_status.failures IS 'How many times in a row it has failed';
COMMENT ON COLUMN udb.worker_status.last_error IS
	'Message of the last error, which stays when later runs are without one';
COMMENT ON COLUMN udb.worker_status.next_run IS
	'When it runs next, unless work comes up before; null if it only runs then, or if there is no worker';
COMMENT ON COLUMN udb.worker_status.worker_pid IS 'The worker; null if none is running';

-- Sweeps that must not run twice at once call this in their transaction, when they have found something to
-- do. False, at once, if another transaction is doing it, or somebody holds the lease udb.sweep.<name>.
CREATE FUNCTION udb._sweep_once(sweep text) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'udb_sweep_once_sql';
REVOKE EXECUTE ON FUNCTION udb._sweep_once(text) FROM PUBLIC;
COMMENT ON FUNCTION udb._sweep_once(text) IS
	'Internal: keep others from this sweep until the end of the transaction; false if they do it already';
