# Many rounds of write, fence and read without a stale read; many waiters without replay noticing; and
# both ways for a waiter to learn what is replayed.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $clients = 4;
my $rounds = 12_500;
my $sleepers = 200;

my $primary = new_cluster('primary', streaming => 1, conf => "shared_buffers = 256MB\nmax_wal_size = 4GB\n");
$primary->append_conf('postgresql.conf', "max_connections = 260\n");
$primary->restart;
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE fence_rounds (k int PRIMARY KEY, v int) WITH (fillfactor = 50);
INSERT INTO fence_rounds SELECT i, 0 FROM generate_series(1, 100) i;
CREATE TABLE bulk (a int);
SQL
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = -1\n");
$primary->wait_for_catchup('standby');

# Run clients side by side; returns their reports.
sub run_rounds
{
	my ($n, @modes) = @_;
	my (@runs, @out);

	foreach my $i (0 .. $#modes)
	{
		$out[$i] = '';
		push @runs, IPC::Run::start(
			[ 'udb_fence_client', 'rounds', $modes[$i], $n, $i + 1,
				$primary->connstr('postgres'), $standby->connstr('postgres') ],
			'>', \$out[$i], '2>&1');
	}
	$_->finish foreach @runs;
	return @out;
}

# ---- no stale read ---------------------------------------------------------------------------------

my ($unfenced) = run_rounds(500, 'none');
my ($stale) = $unfenced =~ /stale=(\d+)/;
cmp_ok($stale // -1, '>', 0, 'without a fence there are stale reads');
foreach my $report (run_rounds($rounds, ('set') x $clients))
{
	chomp $report;
	like($report, qr/^set rounds=$rounds stale=0 queries=1\.0 /, $report);
}
foreach my $report (run_rounds(1000, 'call', 'func'))
{
	chomp $report;
	like($report, qr/ stale=0 queries=2/, $report);
}

# ---- replay with waiters -----------------------------------------------------------------------------

# How long the standby takes to replay a big insert that it has received while it was paused.
sub replay_seconds
{
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	wait_for_sql($standby, q(SELECT pg_get_wal_replay_pause_state() = 'paused'));
	$primary->safe_psql('postgres', 'INSERT INTO bulk SELECT generate_series(1, 300000)');
	my $lsn = $primary->lsn('insert');
	$primary->wait_for_catchup('standby', 'flush', $primary->lsn('flush'));
	my $token = $primary->safe_psql('postgres', 'SELECT udb.durable_token(udb.current_token())');
	$primary->wait_for_catchup('standby', 'flush', $primary->lsn('flush'));
	my $w = session($standby);
	my $start = time;
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
	$w->query("SET udb.fence_timeout = -1; SET udb.fence = '$token'");
	my $seconds = time - $start;
	$w->quit;
	$primary->safe_psql('postgres', 'TRUNCATE bulk');
	return $seconds;
}

# The best of several: what others do on the machine only adds.
sub best_replay
{
	my ($best) = sort { $a <=> $b } map { replay_seconds() } 1 .. 3;
	return $best;
}
my $alone = best_replay();
my $token = $primary->safe_psql('postgres', 'SELECT udb.current_token()');
$token =~ s/\.[0-9a-f]+\.([da][0-9a-f]*)$/.ffffff0000000000.$1/ or die $token;
my @waiting = map { session($standby) } 1 .. $sleepers;
$_->send("SET udb.fence_timeout = -1; SET udb.fence = '$token'") foreach @waiting;
wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', $sleepers);
my $crowded = best_replay();
# The benchmark has the tight bar; this is for a wait that would cost something for each record.
cmp_ok($crowded, '<', 2 * $alone + 0.5, sprintf('replay with %d waiters takes %.2f s, alone %.2f s', $sleepers, $crowded, $alone));
is($standby->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters'), $sleepers, 'none of them was woken for good');
$standby->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM udb.fence_waiters');
wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', 0);
pass('all of them can be cancelled');
$_->receive_all, $_->quit foreach @waiting;

# ---- without the hook ---------------------------------------------------------------------------------

$standby->append_conf('postgresql.conf', "udb.replay_hook = off\n");
$standby->restart;
is($standby->safe_psql('postgres', 'SHOW udb.replay_hook'), 'off', 'the hook can be switched off');
foreach my $report (run_rounds(1000, 'set', 'call', 'func'))
{
	chomp $report;
	like($report, qr/ stale=0 /, "without the hook: $report");
}

done_testing();
