# Crashes: an asynchronous commit that is lost is never vouched for, and waiting survives a restart of
# the server's processes.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

# Nothing but a flush that is asked for makes a commit durable here.
my $primary = new_cluster('primary', streaming => 1, conf => <<'CONF');
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
autovacuum = off
CONF
$primary->safe_psql('postgres', 'CREATE TABLE t (a int)');

my $s = session($primary);
$s->query('SET synchronous_commit = off; SET udb.report_token = on');

# The walwriter may just have been at it; then write again.
sub asynchronous_write
{
	my ($a) = @_;

	return wait_for('an asynchronous commit', sub {
		my $token = $s->query("INSERT INTO t VALUES ($a); SELECT current_setting('udb.last_token')");
		$token =~ /\.a[0-9a-f]+$/ ? $token : undef;
	});
}

my $saved = asynchronous_write(1);
is($s->query('SELECT udb.last_commit_token()'), $saved, 'last_commit_token: not durable yet');
my $durable = $s->query("SELECT udb.durable_token('$saved')");
(my $expected = $saved) =~ s/\.a[0-9a-f]+$/.d/;
is($durable, $expected, 'durable_token: the same position, durable');
is($s->query('SELECT udb.last_commit_token()'), $durable, 'last_commit_token: durable by now');
# Somebody else's flush may save it; then lose another one.
my $lost;
foreach my $a (2 .. 20)
{
	$lost = asynchronous_write($a);
	$primary->stop('immediate');
	$primary->start;
	last if $primary->safe_psql('postgres', "SELECT count(*) FROM t WHERE a = $a") == 0;
	$lost = undef;
	$s = session($primary);
	$s->query('SET synchronous_commit = off; SET udb.report_token = on');
}
ok($lost, 'an asynchronous write is lost by a crash') or die;
isnt($lost, $saved, 'two asynchronous tokens');
cmp_ok($primary->safe_psql('postgres', 'SELECT count(*) FROM t WHERE a = 1'), '>', 0, 'what was made durable is there');

sub state_of { my ($rc, $out, $err) = $primary->psql('postgres', "\\set VERBOSITY sqlstate\n$_[0]"); return $err =~ /ERROR:  (\w+)/ ? $1 : $out; }

like(state_of("SELECT udb.durable_token('$lost')"), qr/^UD02[35]$/, 'the lost write is not vouched for');
# The position is used again, for something else.
$primary->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(100, 20000)');
is(state_of("SELECT udb.token_reached('$lost')"), 't', 'its position is reached by other writes');
is(state_of("SELECT udb.durable_token('$lost')"), 'UD025', 'even so it is not vouched for');
is(state_of("SELECT udb.durable_token('$saved')"), 'UD025', 'nor is any other of before the crash');
is(state_of("SELECT udb.durable_token('$durable')"), $durable, 'but one that was durable is');

# a receipt is durable by what it is
$s = session($primary);
$s->query('SET synchronous_commit = off; SET udb.report_token = on');
asynchronous_write(50);
my $receipt = $s->query("SELECT udb.write_receipt()->'source_token'->>'value'");
like($receipt, qr/\.d$/, 'a receipt says durable');
$primary->stop('immediate');
$primary->start;
cmp_ok($primary->safe_psql('postgres', 'SELECT count(*) FROM t WHERE a = 50'), '>', 0, 'and it is');
is(state_of("SELECT udb.token_reached('postgres:$receipt')"), 't', 'and reached');

# ---- a backend of the standby crashes --------------------------------------------------------------

my $standby = new_standby($primary, 'standby');
$primary->safe_psql('postgres', 'ALTER SYSTEM RESET wal_writer_delay');
sub pause { $standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	wait_for_sql($standby, q(SELECT pg_get_wal_replay_pause_state() = 'paused')); }
sub fenced
{
	my ($what) = @_;

	pause();
	my $token = (split /\n/, $primary->safe_psql('postgres', 'INSERT INTO t VALUES (4); SELECT udb.last_commit_token()'))[-1];
	my $w = session($standby);
	$w->send("SET udb.fence_timeout = -1; SET udb.fence = '$token'; SELECT udb.token_reached('$token'), (SELECT waited_ms < 60000 FROM udb.fence_status())");
	wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', 1);
	return ($w, $token);
}

my ($w, $token) = fenced();
crash_backend($standby, $w->pid);
wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', 0);
pass('a waiter that is killed leaves nothing behind');
wait_for_sql($standby, "SELECT udb.token_reached('$token')");
($w, $token) = fenced();
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
is($w->receive, 't|t', 'the next one is woken');

# a crash of the startup process, or of all, ends the wait with the connection
($w, $token) = fenced();
crash_server($standby);
my ($out, $err) = $w->receive_all;
like($err, qr/connection to server was lost|terminating connection/, 'a waiting session leaves with its postmaster');
$standby->start;
wait_for_sql($standby, "SELECT udb.token_reached('$token')");
pass('and the standby comes back');

done_testing();
