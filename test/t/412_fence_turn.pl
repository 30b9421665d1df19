# Whoever waits is woken at once, by replay, by a change of timeline and by a promotion. A waiting session
# also looks for itself once a second, which would hide that it is not: so three of them begin to wait a
# third of a second apart, and the slowest of them tells.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use UdbTest;

my $primary = new_cluster('primary', streaming => 1, conf => "autovacuum = off\nudb.worker = off\n");
$primary->safe_psql('postgres', 'CREATE TABLE t (a int)');
my $standby = new_standby($primary, 'standby');
my $late = new_standby($primary, 'late', start => 0);
my $cascade = new_standby($primary, 'cascade', start => 0,
	conf => "wal_retrieve_retry_interval = '50ms'\nprimary_conninfo = '" . $standby->connstr . "'\n");
$cascade->start;

sub write_row
{
	my ($node, $a) = @_;
	return (split /\n/, $node->safe_psql('postgres', "INSERT INTO t VALUES ($a); SELECT udb.last_commit_token()"))[-1];
}
# The token with another position, given as a number. What is ahead is a megabyte ahead at least: sessions
# write a little WAL by themselves.
sub at
{
	my ($token, $lsn) = @_;
	return $token =~ s/\.[0-9a-f]+\.[da][0-9a-f]*$/sprintf '.%x.d', $lsn/er;
}
sub lsn_of { return hex(($_[0] =~ /\.([0-9a-f]+)\.[da]/)[0]); }
sub now { return $_[0]->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())'); }

# Three sessions that have begun to wait, a third of a second apart.
sub three_waiters
{
	my ($node, @tokens) = @_;
	my @sessions = map { session($node) } 0 .. 2;
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters');

	foreach my $i (0 .. 2)
	{
		$sessions[$i]->query('SET udb.fence_timeout = -1');
		$sessions[$i]->send("SET udb.fence = '$tokens[$i]'");
		wait_for_sql($node, 'SELECT count(*) FROM udb.fence_waiters', $before + $i + 1);
		usleep(333_000);
	}
	return @sessions;
}
# Wait for them to end, all with this outcome, and see how long after the given time the last one was.
sub ok_prompt
{
	my ($what, $time, $outcome, @sessions) = @_;
	my $slowest = -1;
	my %outcomes;

	foreach my $s (@sessions)
	{
		my ($out, $err) = $s->receive_all;
		my ($got, $ended) = split /\|/, $s->query('SELECT outcome, extract(epoch FROM ended_at) FROM udb.fence_status()');

		$outcomes{$got}++;
		$slowest = $ended - $time if $ended - $time > $slowest;
		$s->quit;
	}
	is(join(' ', sort keys %outcomes), $outcome, "$what: $outcome");
	cmp_ok($slowest, '<', 0.6, sprintf '%s: within %.3f s', $what, $slowest);
	return;
}

# ---- by replay ------------------------------------------------------------------------------------

my $token = write_row($primary, 1);
my @waiters = three_waiters($standby, (at($token, lsn_of($token) + 1_000_000)) x 3);
$primary->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(1, 20000)');
ok_prompt('one position', now($primary), 'reached', @waiters);

# The first wake-up leaves the others asleep, but not forgotten. Replay goes past both positions at once, before
# a session looks for itself.
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
wait_for_sql($standby, q(SELECT pg_get_wal_replay_pause_state() = 'paused'));
$token = write_row($primary, 1);
my @first = three_waiters($standby, (at($token, lsn_of($token) + 1_000_000)) x 3);
@waiters = three_waiters($standby, (at($token, lsn_of($token) + 4_000_000)) x 3);
$primary->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(1, 80000)');
$primary->wait_for_catchup('standby', 'flush', $primary->lsn('flush'));
is($standby->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters'), 6, 'two positions are waited for');
my $resumed = $standby->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp()) FROM pg_wal_replay_resume()');
ok_prompt('the lower of two positions', $resumed, 'reached', @first);
ok_prompt('the higher of two positions', $resumed, 'reached', @waiters);

# A clean restart of the primary wakes everybody, for nothing.
$token = write_row($primary, 1);
@waiters = three_waiters($standby, (at($token, lsn_of($token) + 4_000_000)) x 3);
$primary->restart;
wait_for_sql($primary, q(SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'standby'));
is($standby->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters'), 3, 'after a restart of the primary they wait');
$primary->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(1, 80000)');
$primary->wait_for_catchup('standby');
ok_prompt('after a restart of the primary', now($primary), 'reached', @waiters);

# ---- by a promotion -----------------------------------------------------------------------------------

# Promote, and return when recovery ended, as a session saw it that looks all the time.
sub promoted_at
{
	my ($node) = @_;
	my $looks = session($node);

	$looks->send('DO $$ BEGIN WHILE pg_is_in_recovery() LOOP PERFORM pg_sleep(0.005); END LOOP; END $$;'
		  . 'SELECT extract(epoch FROM clock_timestamp())');
	$node->promote;
	return $looks->receive;
}

# The cascading standby waits for something on the next timeline, where it begins is not said.
$token = write_row($primary, 1);
$primary->wait_for_catchup('standby');
wait_for_sql($cascade, "SELECT udb.token_reached('$token')");
(my $next = $token) =~ s/\.1\.0\./.2.0./;
# The record that ends the old timeline goes past this one; so it tells when the others have to be woken.
my $end = session($cascade);
$end->send("SET udb.fence_timeout = -1; SET udb.fence = '" . at($next, lsn_of($token) + 8) . "'");
wait_for_sql($cascade, 'SELECT count(*) FROM udb.fence_waiters', 1);
my @next = three_waiters($cascade, ($next) x 3);
my $far = at($token, 0xffffff00 << 32);
@waiters = three_waiters($standby, ($far) x 3);
ok_prompt('promotion', promoted_at($standby), 'diverged', @waiters);
$end->receive;
ok_prompt('a new timeline', $end->query('SELECT extract(epoch FROM ended_at) FROM udb.fence_status()'), 'reached', @next);

# A standby that has nothing to replay before it is promoted.
$late->start;
$primary->stop;
wait_for_sql($late, 'SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)');
$late->safe_psql('postgres', 'CHECKPOINT');
is($late->safe_psql('postgres', 'SELECT pg_last_wal_replay_lsn() > redo_lsn FROM pg_control_checkpoint()'), 't',
	'its restart point is the shutdown checkpoint');
$late->restart;
@waiters = three_waiters($late, ($far) x 3);
ok_prompt('promotion before anything is replayed', promoted_at($late), 'diverged', @waiters);

done_testing();
