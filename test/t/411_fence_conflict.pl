# What replay can wait for besides snapshots is not held up by a fence either, and a fence on what is not
# flushed yet does not wait for somebody else's commit.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $primary = new_cluster('primary', streaming => 1, conf => "autovacuum = off\n");
# A conflict never resolves by itself here.
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = -1\n");
$primary->safe_psql('postgres', 'CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE TABLE u (a int)');

my $w = session($primary);
my $s = session($standby);
my $other = session($standby);
$s->query("\\set VERBOSITY verbose\nSET udb.fence_timeout = -1");

# Run the statement on the primary; returns its token.
sub token_of
{
	my ($sql) = @_;

	$w->query($sql);
	return $w->query('SELECT udb.last_commit_token()');
}
sub caught_up { my ($token) = @_; wait_for_sql($standby, "SELECT udb.token_reached('$token')"); }
my $startup = "SELECT wait_event_type || ':' || wait_event FROM pg_stat_activity WHERE backend_type = 'startup'";

caught_up(token_of('INSERT INTO t VALUES (2)'));

# ---- locks -------------------------------------------------------------------------------------------

# The transaction has a lock that replay needs to go on to the token.
foreach my $first ('SELECT count(*) FROM t', 'LOCK TABLE t IN ACCESS SHARE MODE')
{
	foreach my $fence ("SET LOCAL udb.fence = '%s'", "CALL udb.wait_for('%s', '1 hour')", "SELECT udb.wait_for_token('%s', '1 hour')")
	{
		$s->query("BEGIN; $first");
		my $token = token_of('TRUNCATE t');
		wait_for_sql($standby, $startup, 'Lock:relation');
		like($s->error(sprintf $fence, $token), qr/UD027.*replay waits for a lock/s, "gives up: $first; $fence");
		$s->query('ROLLBACK');
		caught_up($token);
	}
}
# Somebody else's lock is no reason to give up.
foreach my $fence ("SET udb.fence = '%s'", "BEGIN; SELECT count(*) FROM u; SET LOCAL udb.fence = '%s'; COMMIT",
	"CALL udb.wait_for('%s', '1 hour')", "SELECT udb.wait_for_token('%s', '1 hour')")
{
	$other->query('BEGIN; SELECT count(*) FROM t');
	my $token = token_of('TRUNCATE t');
	wait_for_sql($standby, $startup, 'Lock:relation');
	$s->send(sprintf($fence, $token));
	wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', 1);
	# several times as long as it takes to give up
	$standby->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
	ok(!$s->done, "goes on waiting while another session has the lock: $fence");
	$other->query('COMMIT');
	$s->receive;
	pass('and gets there');
}

# ---- buffer pins ---------------------------------------------------------------------------------------

# A cursor pins the page that a VACUUM cleans up after an aborted insert, which conflicts with no snapshot.
{
	caught_up(token_of('INSERT INTO u SELECT generate_series(1, 10)'));
	$s->query('BEGIN; DECLARE c CURSOR FOR SELECT * FROM u; FETCH 1 FROM c');
	$w->query('BEGIN; INSERT INTO u SELECT generate_series(1, 10); ROLLBACK');
	my $token = token_of('VACUUM (FREEZE) u; INSERT INTO t VALUES (3)');
	wait_for_sql($standby, $startup, 'BufferPin:BufferPin');
	like($s->error("SELECT udb.wait_for_token('$token', '1 hour')"), qr/UD027.*replay waits for queries/s,
		'gives up when a cursor has the page that replay needs');
	$s->query('ROLLBACK');
	caught_up($token);
}

# ---- through the extended protocol -----------------------------------------------------------------------

sub params
{
	my ($sql, @params) = @_;
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start([ 'udb_fence_client', 'params', $standby->connstr('postgres'), $sql, @params ],
		'>', \$out, '2>', \$err);
	return ($run, \$out, \$err);
}
{
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	wait_for_sql($standby, q(SELECT pg_get_wal_replay_pause_state() = 'paused'));
	$w->query('INSERT INTO u SELECT generate_series(1, 100); DELETE FROM u');
	my $token = token_of('VACUUM u; INSERT INTO t VALUES (4)');
	my ($run, $out, $err) = params('CALL udb.wait_for($1, $2)', $token, '1 hour');
	wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', 1);
	is($standby->safe_psql('postgres', q(SELECT a.backend_xmin IS NULL AND a.backend_xid IS NULL
		FROM udb.fence_waiters w JOIN pg_stat_activity a USING (pid))), 't', 'CALL with parameters holds no snapshot');
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
	$run->finish;
	is($$err, '', 'and returns');
}

# ---- what is not flushed yet ---------------------------------------------------------------------------------

# The bgwriter would have it flushed some time, as would the next commit.
{
	my ($bgwriter) = $primary->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'");
	$w->query('SET synchronous_commit = on');
	kill('STOP', $bgwriter) or die;
	my $open = session($primary);
	$open->query('BEGIN; INSERT INTO t VALUES (5)');
	my $token = $primary->safe_psql('postgres', 'SELECT udb.current_token()');
	like($token, qr/\.a[0-9a-f]+$/, 'current_token: covers an open transaction, and is not durable');
	my ($rc, $out, $err) = $standby->psql('postgres', "SET udb.fence_timeout = '60 s'; SET udb.fence = '$token'");
	is($err, '', 'a fence on it does not wait for the next commit');
	kill('CONT', $bgwriter);
	$open->query('ROLLBACK');
}

done_testing();
