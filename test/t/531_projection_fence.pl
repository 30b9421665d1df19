# wait_for_fence() and projection tasks: woken by the commit that completes them, not by looking again and again; on a
# standby by replay; and nothing is left behind when a waiting session is cancelled or goes away.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $primary = new_cluster('primary', streaming => 1);
my $standby = new_standby($primary, 'standby');
my $worker = session($primary);
my $reader = session($primary);
my $count = 0;

# Make and claim so many tasks; returns a receipt of them, and their ids.
sub tasks
{
	my ($n, %opt) = @_;
	my @keys = map { 't' . ++$count } 1 .. $n;
	my $list = join ',', map { "'$_'" } @keys;

	$worker->query("SELECT udb.enqueue_projection_task(k, 'p', source_table => 't', target_backend => 'b') FROM unnest(ARRAY[$list]) k");
	$worker->query('SELECT count(*) FROM udb.claim_projection_tasks(1000)') unless $opt{unclaimed};
	return (qq({"projection_task_ids": [@{[ join ',', map { qq("$_") } @keys ]}]}),
		split /\n/, $worker->query("SELECT task_id FROM udb.projection_tasks WHERE idempotency_key IN ($list) ORDER BY created_at"));
}
sub fence { return "SELECT outcome, reason, detail FROM udb.wait_for_fence('$_[0]', '@{[ $_[1] // '100 s' ]}')"; }
sub sleeping
{
	my ($node, $s) = @_;

	return wait_for_sql($node, q(SELECT wait_event_type = 'Extension' AND state = 'active' FROM pg_stat_activity WHERE pid = ) . $s->pid);
}
sub complete { return "SELECT udb.complete_projection_task('$_[0]')"; }

# ---- one completion, one wake-up ----

# What a fence says, and how often the key was looked up for that. The session's own account begins before.
sub count_looks
{
	my $scans = q(pg_stat_get_xact_numscans('udb.projection_tasks_key'::regclass));

	return "BEGIN;\nSELECT $scans AS before \\gset\n" . fence(@_) . ";\nSELECT $scans - :before;\nCOMMIT";
}
my ($receipt, $id) = tasks(1);
$reader->query(fence($receipt, '0'));
$reader->send(count_looks($receipt));
sleeping($primary, $reader);
$worker->query(complete($id));
like($reader->receive, qr/^cleared\|\|\n3$/, 'a fence looks before and after it is registered, and when it is woken');

my @late;
foreach (1 .. 30)
{
	($receipt, $id) = tasks(1);
	$reader->send(fence($receipt));
	sleeping($primary, $reader);
	my $start = time;
	$worker->query(complete($id));
	$reader->receive eq 'cleared||' or fail('cleared');
	push @late, time - $start;
}
@late = sort { $a <=> $b } @late;
note(sprintf 'completion to fence returned, median of %d: %.1f ms', scalar @late, $late[@late / 2] * 1000);
# Somebody who looks once a second would take half of that.
cmp_ok($late[@late / 2], '<', 0.1, 'it returns when the completion commits');

($receipt, $id) = tasks(1);
$reader->send(count_looks($receipt, '2500 ms'));
my ($other, @others) = tasks(20);
$worker->query(complete($_)) foreach @others;
like($reader->receive, qr/^stale\|fence_timed_out\|.*IN_PROGRESS\.\n[3-5]$/, 'other tasks do not wake it, and the clock does once a second');
$worker->query(complete($id));

# more than a transaction remembers one by one
($receipt, @others) = tasks(200);
$reader->send(fence($receipt));
sleeping($primary, $reader);
my $start = time;
$worker->query('SELECT count(*) FROM (' . join(' UNION ALL ', map { complete($_) } @others) . ') c');
is($reader->receive, 'cleared||', 'two hundred tasks of one transaction');
cmp_ok(time - $start, '<', 0.6, 'wake it, too');

# ---- the end of a prepared transaction ----

@late = ();
foreach my $end ('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK')
{
	($receipt, $id) = tasks(1);
	$worker->query('BEGIN');
	$worker->query(complete($id));
	$worker->query("PREPARE TRANSACTION 'p'");
	$reader->send(fence($receipt, $end eq 'COMMIT' ? '100 s' : '1500 ms'));
	sleeping($primary, $reader);
	my $start = time;
	$worker->query("$end PREPARED 'p'");
	my $got = $reader->receive;
	push @late, time - $start if $end eq 'COMMIT';
	like($got, $end eq 'COMMIT' ? qr/^cleared\|\|$/ : qr/^stale\|fence_timed_out\|/, "$end PREPARED");
}
@late = sort { $a <=> $b } @late;
cmp_ok($late[1], '<', 0.4, 'COMMIT PREPARED wakes at once');

# ---- past the trigger, which the clock makes good ----

($receipt, $id) = tasks(1);
$reader->send(fence($receipt));
sleeping($primary, $reader);
$start = time;
$worker->query("SET session_replication_role = replica; UPDATE udb.projection_tasks SET status = 'COMPLETED' WHERE task_id = '$id'");
$worker->query('RESET session_replication_role');
is($reader->receive, 'cleared||', 'what replication completes is noticed');
cmp_ok(time - $start, '<', 30, 'long before the time is over');

# ---- who gives up ----

($receipt, $id) = tasks(1);
foreach my $how ('cancel', 'terminate')
{
	my $s = session($primary);
	$s->send(fence($receipt));
	sleeping($primary, $s);
	$primary->safe_psql('postgres', "SELECT pg_${how}_backend(" . $s->pid . ')');
	my ($out, $err) = $s->receive_all;
	like($err, $how eq 'cancel' ? qr/canceling statement/ : qr/terminating connection|connection to server was lost/, "$how ends the wait");
	if ($how eq 'cancel')
	{
		$s->send(fence($receipt));
		sleeping($primary, $s);
		$worker->query(complete($id));
		is($s->receive, 'cleared||', 'and the session can wait again');
		($receipt, $id) = tasks(1);
	}
}
$reader->send(fence($receipt));
sleeping($primary, $reader);
$worker->query(complete($id));
is($reader->receive, 'cleared||', 'a session that is gone is not in the way');

# ---- another database has tasks of its own ----

$primary->safe_psql('postgres', 'CREATE DATABASE other');
$primary->safe_psql('other', 'CREATE EXTENSION udb');
is($primary->safe_psql('other', fence($receipt)), "stale|projection_missing|Projection task \"t$count\" does not exist.", 'another database does not know them');

# ---- what waiting costs ----

($receipt, $id) = tasks(1);
$reader->send(fence($receipt));
sleeping($primary, $reader);
my $cpu = sub { open(my $f, '<', '/proc/' . $reader->pid . '/stat') or return 0; my @f = split ' ', <$f>; return $f[13] + $f[14]; };
my $used = $cpu->();
sleep 2;
cmp_ok($cpu->() - $used, '<=', 2, 'who waits uses no processor');
$worker->query(complete($id));
$reader->receive;

# ---- on a standby ----

my $away = session($standby);
@late = ();
foreach (1 .. 3)
{
	($receipt, $id) = tasks(1);
	my $token = $worker->query('SELECT udb.last_commit_token()');
	$receipt =~ s/}$/, "source_token": "$token"}/;
	$away->send(fence($receipt));
	sleeping($standby, $away);
	ok(!$away->done, 'a standby waits');
	my $start = time;
	$worker->query(complete($id));
	is($away->receive, 'cleared||', 'until the completion is replayed');
	push @late, time - $start;
	is($away->query("SELECT status FROM udb.projection_tasks WHERE task_id = '$id'"), 'COMPLETED', 'which is there then');
}
@late = sort { $a <=> $b } @late;
cmp_ok($late[1], '<', 0.4, 'not for the next second');

# replay must not wait for the query that waits for replay
($receipt, $id) = tasks(1);
my $token = $worker->query('SELECT udb.last_commit_token()');
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = -1');
$standby->reload;
$receipt =~ s/}$/, "source_token": "$token"}/;
$away->send(fence($receipt, '1 h'));
sleeping($standby, $away);
$primary->safe_psql('postgres', "CREATE TABLE gone AS SELECT 1 AS a; DELETE FROM gone; VACUUM gone");
$worker->query(complete($id));
my ($out, $err) = $away->receive_all;
ok($out eq 'cleared||' || $err =~ /replay waits for queries/, 'a vacuum on the primary does not stop both for ever') or diag("$out$err");

# a promotion during the wait
($receipt, $id) = tasks(1);
$primary->wait_for_catchup($standby);
$away->send(fence($receipt));
sleeping($standby, $away);
$primary->stop('immediate');
$standby->promote;
$start = time;
is($standby->safe_psql('postgres', complete($id)), 't', 'the task is completed where it is primary now');
is($away->receive, 'cleared||', 'and who had begun to wait on the standby is woken');

done_testing();
