# Projection tasks when workers, servers and primaries go away between claim and complete: no task is lost, and none is
# completed by two claims.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $primary = new_cluster('primary', streaming => 1,
	conf => "udb.worker_interval = 1\nudb.projection_stale_after = 1h\n");
my $standby = new_standby($primary, 'standby');

sub put
{
	my ($name) = @_;

	return $primary->safe_psql('postgres',
		"SELECT udb.enqueue_projection_task('$name', 'p', source_table => 't', target_backend => 'b')");
}
sub state_of
{
	my ($node, $name) = @_;

	return $node->safe_psql('postgres', "SELECT status, claim_token FROM udb.projection_tasks WHERE idempotency_key = '$name'");
}
sub stale_after
{
	my ($node, $time) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET udb.projection_stale_after = '$time'");
	$node->reload;
	return;
}
my $claim = "SELECT idempotency_key, claim_token FROM udb.claim_projection_tasks()";

# ---- a worker is killed ----

my $id = put('killed');
my $s = session($primary);
is($s->query($claim), 'killed|1', 'a worker claims a task');
crash_backend($primary, $s->pid);
is(state_of($primary, 'killed'), 'IN_PROGRESS|1', 'and is killed; the task is still its own');
is($primary->safe_psql('postgres', $claim), '', 'so nobody gets it');
stale_after($primary, '1s');
wait_for_sql($primary, "SELECT status FROM udb.projection_tasks WHERE idempotency_key = 'killed'", 'PENDING');
pass('until the sweep of the worker process takes it back');
is($primary->safe_psql('postgres', "SELECT last_error FROM udb.projection_tasks"), 'stale in-progress reconciliation', 'with a note');
stale_after($primary, '1h');
is($primary->safe_psql('postgres', $claim), 'killed|2', 'then somebody else does, with a higher token');
is($primary->safe_psql('postgres', "SELECT udb.complete_projection_task('$id', 1), udb.complete_projection_task('$id', 2)"),
	'f|t', 'who alone can complete it');

# ---- in the middle of a transaction, which is as if it had not been ----

$id = put('open');
$s = session($primary);
$s->query('BEGIN');
is($s->query($claim), 'open|1', 'a claim that is not committed');
crash_backend($primary, $s->pid);
is($primary->safe_psql('postgres', $claim), 'open|1', 'is gone with the crash');
$s = session($primary);
$s->query('BEGIN');
is($s->query("SELECT udb.complete_projection_task('$id')"), 't', 'so is a completion');
crash_backend($primary, $s->pid);
is(state_of($primary, 'open'), 'IN_PROGRESS|1', 'that was not committed');
is($primary->safe_psql('postgres', "SELECT udb.complete_projection_task('$id', 1)"), 't', 'the claim holds, and completes it');
crash_server($primary);
$primary->start;
is(state_of($primary, 'open'), 'COMPLETED|1', 'which a crash of the server does not take back');

# ---- heartbeats ----

$id = put('beating');
is($primary->safe_psql('postgres', $claim), 'beating|1', 'a claim');
$primary->safe_psql('postgres', "UPDATE udb.projection_tasks SET updated_at = updated_at - interval '1 day' WHERE task_id = '$id'");
is($primary->safe_psql('postgres', "SELECT udb.heartbeat_projection_task('$id', 1), udb.reset_stale_projection_tasks('1 min')"),
	't|0', 'is not stale while its worker is heard of');

# ---- promotion ----

put('waiting');
$primary->wait_for_catchup($standby);
is(sqlstate($standby, $claim), '25006', 'a standby gives out no tasks');
like(sqlstate($standby, "SELECT udb.complete_projection_task('$id')"), qr/25006/, 'nor completes any');
is($standby->safe_psql('postgres', 'SELECT pending, in_progress, completed FROM udb.projection_task_summary()'), '1|1|2',
	'but tells of them');
$primary->stop('immediate');
$standby->promote;
is($standby->safe_psql('postgres', $claim), 'waiting|1', 'after the promotion tasks are given out');
is($standby->safe_psql('postgres', "SELECT udb.complete_projection_task('$id', 1)"), 't', 'and claims of before can complete');
stale_after($standby, '1s');
wait_for_sql($standby, "SELECT status FROM udb.projection_tasks WHERE idempotency_key = 'waiting'", 'PENDING');
pass('and the sweep takes back what is stale');

# ---- dump and restore ----

stale_after($standby, '1h');
is($standby->safe_psql('postgres', $claim), 'waiting|2', 'claimed once more');
my $dump = $standby->basedir . '/dump.sql';
$standby->run_log([ 'pg_dump', '-d', $standby->connstr('postgres'), '-f', $dump ]);
$standby->safe_psql('postgres', 'CREATE DATABASE restored');
$standby->run_log([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $standby->connstr('restored'), '-f', $dump ]);
my $all = 'SELECT md5(string_agg(t::text, chr(10) ORDER BY task_id)), count(*) FROM udb.projection_tasks t';
is($standby->safe_psql('restored', $all), $standby->safe_psql('postgres', $all), 'a dump takes tasks along');
like($standby->safe_psql('restored', $all), qr/\|4$/, 'all of them');
is($standby->safe_psql('restored', "SELECT udb.reset_stale_projection_tasks('0')"), 1, 'and they work there');
is($standby->safe_psql('restored', $claim), 'waiting|3', 'with tokens that go on');

done_testing();
