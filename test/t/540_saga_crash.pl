# Sagas and crashes: the worker compensates without being swept by hand; when the server dies between the sending of a
# compensation and what is noted of it, neither or both are there, and in the end each was sent once; a recoverer that
# dies gives its sagas back. A dump takes all of it along.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('main', conf => "udb.saga_poison_threshold = 2\n");

sub sql
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query);
}

$node->safe_psql('postgres', <<'SQL');
-- All sagas that compensate in this test: what a worker of the queue did, and when, by the order of its doing.
CREATE TABLE undone (n bigserial, saga_id uuid, step text, job_id bigint, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION work(queue text) RETURNS bigint LANGUAGE sql AS $$
	WITH claimed AS MATERIALIZED (SELECT * FROM udb.claim_jobs($1, 'w', 100)),
		done AS (INSERT INTO undone (saga_id, step, job_id)
			SELECT (payload #>> '{saga,saga_id}')::uuid, payload #>> '{saga,step}', job_id FROM claimed)
	SELECT count(*) FILTER (WHERE udb.ack_job(job_id, claim_token)) FROM claimed
$$;
CREATE FUNCTION make(steps integer, queue text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	id uuid := udb.record_saga(operation => 'test', compensations => (
		SELECT jsonb_agg(jsonb_build_object('step', 's' || i, 'queue', $2, 'max_attempts', 1)) FROM generate_series(1, $1) i));
BEGIN
	PERFORM udb.saga_step(id, 's' || i) FROM generate_series(1, $1) i;
	RETURN id;
END
$$;
CREATE FUNCTION status(id uuid) RETURNS text LANGUAGE sql AS $$ SELECT status || ' ' || compensation_status FROM udb.get_saga($1) $$;
SQL

# ---- the worker at work ----

my $saga = sql("SELECT make(4, 'plain')");
my $began = time;
sql("SELECT udb.compensate_saga('$saga')");
wait_for('the saga to be compensated', sub { sql("SELECT work('plain')"); sql("SELECT status('$saga')") eq 'compensated completed' });
cmp_ok(time - $began, '<', 9, 'four steps take less than the one interval of the sweep');
is(sql("SELECT string_agg(step, ' ' ORDER BY n) FROM undone WHERE saga_id = '$saga'"), 's4 s3 s2 s1', 'in reverse order, each once');
is(sql("SELECT count(*) FROM udb.jobs"), 0, 'no job is left');
is(sql("SELECT total_changed >= 4 FROM udb.worker_status WHERE sweep = 'sagas'"), 't', 'the worker\'s status tells of it');

# a job that dies is tried again after a while, then the saga is left to people, who have it done
$saga = sql("SELECT make(2, 'dying')");
sql("SELECT udb.compensate_saga('$saga')");
my $die = "SELECT count(*) FILTER (WHERE udb.fail_job(job_id, claim_token, 'no')) FROM udb.claim_jobs('dying', 'w')";
is(sql($die), 1, 'a job dies');
wait_for_sql($node, "SELECT status('$saga')", 'failed_compensation retry_requested');
wait_for('the job to be there again', sub { sql($die) == 1 });
wait_for_sql($node, "SELECT status('$saga')", 'manual_review manual_review');
is(sql("SELECT recovery_attempts FROM udb.get_saga('$saga')"), 2, 'after udb.saga_poison_threshold attempts');
sql("SELECT udb.request_saga_recompensation('$saga')");
wait_for('the saga to be compensated', sub { sql("SELECT work('dying')"); sql("SELECT status('$saga')") eq 'compensated completed' });
is(sql("SELECT string_agg(step, ' ' ORDER BY n) FROM undone WHERE saga_id = '$saga'"), 's2 s1', 'people get it done');
is(sql('SELECT count(*) FROM udb.dead_jobs'), 0, 'and no dead job is left behind');

# a stale saga is found without being asked for
$node->append_conf('postgresql.conf', "udb.saga_stale_after = 1s\nudb.sweep_sagas_interval = 1s\n");
$node->reload;
$saga = sql("SELECT udb.record_saga(status => 'in_progress')");
wait_for_sql($node, "SELECT status('$saga')", 'indeterminate none');
pass('the worker puts a stale saga to indeterminate');
$node->append_conf('postgresql.conf', "udb.saga_stale_after = 0\n");
$node->reload;

# ---- the server dies in the middle ----

# Stops who has sent a compensation, right before he notes that.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(540);
	RETURN NEW;
END
$$;
CREATE TRIGGER stop BEFORE UPDATE ON udb.sagas FOR EACH ROW
	WHEN (NEW.compensation_job <> coalesce(OLD.compensation_job, 0)) EXECUTE FUNCTION stop();
SQL
my $stopped = q(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 540 AND NOT granted);

foreach my $crash (
	[ 'backend', sub { crash_backend($node, sql($stopped)) } ],
	[ 'server', sub { crash_server($node); $node->start } ])
{
	my ($name, $kill) = @$crash;
	my $holder = session($node);

	# it is the worker that sends the second compensation
	$saga = sql("SELECT make(3, '$name')");
	sql("SELECT udb.compensate_saga('$saga')");
	$holder->query('SELECT pg_advisory_lock(540)');
	is(sql("SELECT work('$name')"), 1, "$name: the first job is done");
	wait_for('the worker to have sent the second', sub { sql($stopped) });
	is(sql("SELECT backend_type FROM pg_stat_activity WHERE pid = ($stopped)"), 'udb worker', "$name: the worker is stopped in the middle");
	is(sql("SELECT count(*) FROM udb.jobs WHERE queue = '$name'"), 0, "$name: what it has sent does not count yet");
	$kill->();
	$holder->quit;
	wait_for('the saga to be compensated', sub { sql("SELECT work('$name')"); sql("SELECT status('$saga')") eq 'compensated completed' });
	is(sql("SELECT string_agg(step, ' ' ORDER BY n) FROM undone WHERE saga_id = '$saga'"), 's3 s2 s1', "$name: each step was undone once, in order");

	# it is a session that sends the first one
	$holder = session($node);
	my $asker = session($node);
	$saga = sql("SELECT make(2, '$name')");
	$holder->query('SELECT pg_advisory_lock(540)');
	$asker->send("SELECT udb.compensate_saga('$saga')");
	wait_for('the session to have sent the first', sub { sql($stopped) });
	$kill->();
	$_->quit foreach $holder, $asker;
	is(sql("SELECT status('$saga')"), 'in_progress none', "$name: a request that was cut off is not there");
	is(sql("SELECT count(*) FROM udb.jobs WHERE queue = '$name'"), 0, "$name: nor is its job");
	sql("SELECT udb.compensate_saga('$saga')");
	wait_for('the saga to be compensated', sub { sql("SELECT work('$name')"); sql("SELECT status('$saga')") eq 'compensated completed' });
	is(sql("SELECT string_agg(step, ' ' ORDER BY n) FROM undone WHERE saga_id = '$saga'"), 's2 s1', "$name: asked for again it is done");
}

# what the worker has noted survives, and so does what it waits for
$saga = sql("SELECT make(2, 'later')");
sql("SELECT udb.compensate_saga('$saga')");
crash_server($node);
$node->start;
is(sql("SELECT status('$saga')"), 'in_progress none', 'a compensation that was asked for survives a crash');
wait_for('the saga to be compensated', sub { sql("SELECT work('later')"); sql("SELECT status('$saga')") eq 'compensated completed' });
is(sql("SELECT string_agg(step, ' ' ORDER BY n) FROM undone WHERE saga_id = '$saga'"), 's2 s1', 'and goes on');

# ---- a recoverer dies ----

$saga = sql("SELECT udb.record_saga(tx_id => 'lost', status => 'in_doubt')");
my $recoverer = session($node);
is($recoverer->query("SELECT tx_id FROM udb.claim_recoverable_sagas('3 s') WHERE saga_id = '$saga'"), 'lost', 'a recoverer has a saga');
my $claimed = time;
crash_backend($node, $recoverer->pid);
$recoverer->quit;
wait_for('the saga to be given back', sub { sql("SELECT count(*) FROM udb.claim_recoverable_sagas('1 h') WHERE saga_id = '$saga'") == 1 });
cmp_ok(time - $claimed, '>', 2.9, 'which is its own, though it died, until the claim is over');

# many recoverers at once
sql("SELECT count(udb.record_saga(tx_id => 'many', status => 'indeterminate')) FROM generate_series(1, 500)");
sql('CREATE TABLE recovered (saga_id uuid, by integer)');
my @recoverers = map { session($node) } 1 .. 8;
foreach my $i (0 .. $#recoverers)
{
	$recoverers[$i]->send(<<"SQL");
DO \$\$
DECLARE
	got bigint;
BEGIN
	LOOP
		INSERT INTO recovered SELECT saga_id, $i FROM udb.claim_recoverable_sagas('1 h', 7) WHERE tx_id = 'many';
		GET DIAGNOSTICS got = ROW_COUNT;
		COMMIT;
		EXIT WHEN got = 0;
	END LOOP;
END
\$\$
SQL
}
$_->receive foreach @recoverers;
sql("INSERT INTO recovered SELECT saga_id, 9 FROM udb.claim_recoverable_sagas('1 h', 1000) WHERE tx_id = 'many'");
is(sql('SELECT count(*), count(DISTINCT saga_id) FROM recovered'), '500|500', 'eight recoverers at once get each saga once');
$_->quit foreach @recoverers;

# ---- a dump takes all of it along ----

my $under_way = sql("SELECT make(2, 'dump')");
sql("SELECT udb.compensate_saga('$under_way')");
my $see = 'SELECT * FROM udb.sagas ORDER BY saga_id';
my $before = sql($see);
my $dump = $node->basedir . '/sagas.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('postgres') ], 'sagas are dumped');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'and restored');
is($node->safe_psql('restored', $see), $before, 'as they were');
wait_for('the restored saga to be compensated', sub {
	$node->safe_psql('restored', "SELECT work('dump')");
	$node->safe_psql('restored', "SELECT status('$under_way')") eq 'compensated completed' });
is($node->safe_psql('restored', "SELECT string_agg(step, ' ' ORDER BY n) FROM undone WHERE saga_id = '$under_way'"), 's2 s1',
	'and the worker goes on with what was under way');
is(sql("SELECT status('$under_way')"), 'in_progress none', 'there alone');

done_testing();
