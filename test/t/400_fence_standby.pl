# Fences on a streaming standby: they wait for the write, hold no snapshot, and end cleanly in every way.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $primary = new_cluster('primary', streaming => 1);
# A conflict with recovery never resolves by itself here: a fence that holds a snapshot would hang.
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = -1\n");

$primary->safe_psql('postgres', 'CREATE TABLE t (a int) WITH (autovacuum_enabled = off)');
my $writer = session($primary);
my $count = 0;

# Write a row; returns the commit's token.
sub write_row
{
	$writer->query('INSERT INTO t VALUES (' . ++$count . ')');
	return $writer->query('SELECT udb.last_commit_token()');
}
sub pause { $standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	wait_for_sql($standby, q(SELECT pg_get_wal_replay_pause_state() = 'paused')); }
sub resume { $standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()'); }
sub waiters { return $standby->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters'); }
sub wait_for_waiters { wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', $_[0]); }

my $s = session($standby);

# ---- each form waits until the write is there -----------------------------------------------------

my %forms = (
	'SET' => sub { "SET udb.fence = '$_[0]'; SELECT max(a) FROM t" },
	'SET LOCAL' => sub { "BEGIN; SET LOCAL udb.fence = '$_[0]'; SELECT max(a) FROM t; COMMIT" },
	'SET LOCAL in REPEATABLE READ' =>
	  sub { "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL udb.fence = '$_[0]'; SELECT max(a) FROM t; COMMIT" },
	'SET in a savepoint' =>
	  sub { "BEGIN; SAVEPOINT s; SET udb.fence = '$_[0]'; RELEASE s; SELECT max(a) FROM t; COMMIT" },
	'SET after a query' => sub { "BEGIN; SELECT FROM t LIMIT 0; SET udb.fence = '$_[0]'; SELECT max(a) FROM t; COMMIT" },
	'CALL' => sub { "CALL udb.wait_for('$_[0]', '1 min'); SELECT max(a) FROM t" },
	'CALL in a block' => sub { "BEGIN; CALL udb.wait_for('$_[0]', '1 min'); SELECT max(a) FROM t; COMMIT" },
	'function' => sub { "SELECT FROM udb.wait_for_token('$_[0]', '1 min'); SELECT max(a) FROM t" },
	'receipt' => sub { qq(SELECT FROM udb.wait_for_fence('{"source_token": "$_[0]"}', '1 min'); SELECT max(a) FROM t) });

$s->query('SET udb.fence_timeout = -1');
foreach my $form (sort keys %forms)
{
	pause();
	my $token = write_row();
	$s->send($forms{$form}->($token));
	wait_for_waiters(1);
	is($standby->safe_psql('postgres', 'SELECT pid, token FROM udb.fence_waiters'), $s->pid . "|$token",
		"$form: waits, and can be seen waiting");
	ok(!$s->done, "$form: has not returned before the write");
	resume();
	my $got = $s->receive;
	$got =~ s/^\s+|\s+$//g;
	is($got, $count, "$form: returns when the write is there");
	is($s->query('SELECT outcome FROM udb.fence_status()'), 'reached', "$form: status");
	is(waiters(), 0, "$form: leaves nothing behind");
}
cmp_ok($s->query('SELECT waited_ms FROM udb.fence_status()'), '>', 0, 'the waited time is told');

# ---- and what could not wait says so ---------------------------------------------------------------

pause();
my $token = write_row();
is($standby->safe_psql('postgres', "SELECT udb.token_reached('$token')"), 'f', 'token_reached before');
is($standby->safe_psql('postgres', "SELECT udb.wait_for_token('$token', '50 ms')"), 'f', 'function: false when the time is over');
is($standby->safe_psql('postgres', "SELECT udb.wait_for_token('$token', '0')"), 'f', 'function: false without waiting');
is($standby->safe_psql('postgres', qq(SELECT outcome, reason FROM udb.wait_for_fence('{"source_token": "$token"}', '50 ms'))),
	'stale|fence_timed_out', 'receipt: stale');
$s->query("RESET udb.fence; SET udb.fence_timeout = '50 ms'");
my $error = $s->error("\\set VERBOSITY verbose\nSET udb.fence = '$token'");
like($error, qr/UD026: SET udb\.fence: the token was not reached within \d+ ms/, 'SET: an error when the time is over');
like($error, qr/Replay is paused/, 'SET: says that replay is paused');
is($s->query('SELECT outcome FROM udb.fence_status()'), 'timed_out', 'status of a timeout');
is($s->query('SHOW udb.fence'), '', 'the setting is as before');
$s->query('SET udb.fence_timeout = 0');
like($s->error("SET udb.fence = '$token'"), qr/UD026/, 'SET: an error at once with a timeout of 0');
like($s->error("CALL udb.wait_for('$token', '50 ms')"), qr/UD026/, 'CALL: an error when the time is over');
like($s->error("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SET LOCAL udb.fence = '$token'"),
	qr/UD027/, 'SET: refused after the first query of REPEATABLE READ');
$s->query('ROLLBACK; SET udb.fence_timeout = -1');
foreach my $form ("SET udb.fence = '$token'", "CALL udb.wait_for('$token')")
{
	$s->query('BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 1 FROM c');
	like($s->error($form), qr/UD027.*snapshot/s, "refused with an open cursor: $form");
	$s->query('ROLLBACK');
}
is(waiters(), 0, 'nothing left behind by refusals');
resume();
wait_for_sql($standby, "SELECT udb.token_reached('$token')");
pass('token_reached after');

# ---- no conflict of a fence with what it waits for ----------------------------------------------------

sub remove_rows
{
	$writer->query('DELETE FROM t');
	$writer->query('VACUUM t');
	return write_row();
}
foreach my $form ('SET', 'SET LOCAL in REPEATABLE READ', 'CALL', 'CALL in a block')
{
	pause();
	write_row();
	my $token = write_row();
	# The snapshot, if any, is taken where the rows are still there.
	resume();
	wait_for_sql($standby, "SELECT udb.token_reached('$token')");
	pause();
	$token = remove_rows();
	$s->send($forms{$form}->($token));
	wait_for_waiters(1);
	resume();
	my $got = $s->receive;
	$got =~ s/^\s+|\s+$//g;
	is($got, $count, "$form: replay passes a VACUUM during the wait");
}
{
	write_row();
	my $token = write_row();
	wait_for_sql($standby, "SELECT udb.token_reached('$token')");
	pause();
	$token = remove_rows();
	$s->send("SELECT udb.wait_for_token('$token', '1 hour')");
	wait_for_waiters(1);
	resume();
	my ($out, $err) = $s->receive_all;
	like($err, qr/UD027.*replay waits for queries/s, 'function: gives up when replay waits for snapshots');
	wait_for_sql($standby, "SELECT udb.token_reached('$token')");
	pass('function: replay goes on then');
}

# Replay waits for the transaction to end that has held the snapshot, not for the snapshot.
{
	write_row();
	my $token = write_row();
	wait_for_sql($standby, "SELECT udb.token_reached('$token')");
	$s->query('BEGIN');
	$s->send('SELECT pg_sleep(3)');
	wait_for_sql($standby, 'SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = ' . $s->pid);
	$token = remove_rows();
	wait_for_sql($standby, "SELECT wait_event = 'RecoveryConflictSnapshot' FROM pg_stat_activity WHERE backend_type = 'startup'");
	$s->receive;
	like($s->error("SET LOCAL udb.fence = '$token'"), qr/UD027.*replay waits for queries/s,
		'SET after a query: gives up when replay waits for its transaction');
	$s->query('ROLLBACK');
	wait_for_sql($standby, "SELECT udb.token_reached('$token')");
	pass('and replay goes on then');
}

# ---- positions -----------------------------------------------------------------------------------------

# The start of a segment: what pg_current_wal_insert_lsn() says lies behind the header.
$writer->query('SELECT pg_switch_wal()');
my ($sysid, $lsn) = split /\|/, $primary->safe_psql('postgres', q(
	SELECT to_hex(system_identifier), pg_current_wal_insert_lsn() FROM pg_control_system()));
$lsn =~ m{(.*)/(.*)};
$lsn = sprintf '%x', hex($1) * 2**32 + hex $2;
is($s->query("SELECT udb.wait_for_token('postgres:1." . ('0' x (16 - length $sysid)) . "$sysid.1.0.$lsn.d', '1 min')"),
	't', 'a position behind a page header is reached');
my $current = $primary->safe_psql('postgres', 'SELECT udb.current_token()');
is($s->query("SELECT udb.wait_for_token('$current', '1 min')"), 't', 'current_token() is reached');
is($s->query("SELECT udb.token_reached(udb.current_token())"), 't', 'current_token() of a standby');
like($s->query('SELECT udb.current_token()'), qr/\.1\.0\.[0-9a-f]+\.d$/, 'what a standby has replayed is durable');
is($s->query('SELECT udb.last_commit_token() IS NULL'), 't', 'no last commit on a standby');

$writer->query("BEGIN; INSERT INTO t VALUES (-1); PREPARE TRANSACTION 'p'");
pause();
$writer->query("COMMIT PREPARED 'p'");
$token = $writer->query('SELECT udb.last_commit_token()');
$s->send("SET udb.fence = '$token'; SELECT count(*) FROM t WHERE a = -1");
wait_for_waiters(1);
resume();
is($s->receive, 1, 'COMMIT PREPARED gives a token that covers it');

$writer->query('SET synchronous_commit = off');
$token = write_row();
is($s->query("SET udb.fence = '$token'; SELECT max(a) FROM t"), $count, 'an asynchronous commit is waited for');
$writer->query('SET synchronous_commit = on');

# ---- a wait that is broken off ---------------------------------------------------------------------------

pause();
$token = write_row();
my $admin = session($standby);
$s->send("SET udb.fence = '$token'");
wait_for_waiters(1);
$admin->query('SELECT pg_cancel_backend(' . $s->pid . ')');
my ($out, $err) = $s->receive_all;
like($err, qr/canceling statement due to user request/, 'cancelled');
is(waiters(), 0, 'cancelled: the slot is free');
is($s->query('SELECT outcome FROM udb.fence_status()'), 'interrupted', 'cancelled: status');

like($s->error("SET statement_timeout = '50 ms'; SET udb.fence = '$token'"), qr/statement timeout/, 'statement_timeout');
$s->query('RESET statement_timeout');
is(waiters(), 0, 'statement_timeout: the slot is free');

like($s->error("BEGIN; SAVEPOINT s; SET LOCAL udb.fence_timeout = '20 ms'; SET LOCAL udb.fence = '$token'"), qr/UD026/, 'in a savepoint');
$s->query('ROLLBACK TO s');
is(waiters(), 0, 'savepoint rolled back: the slot is free');
is($s->query('SHOW udb.fence_timeout'), '-1', 'savepoint rolled back: so are the settings');
$s->query('COMMIT');

my $victim = session($standby);
$victim->send("SET udb.fence_timeout = -1; SET udb.fence = '$token'");
wait_for_waiters(1);
$admin->query('SELECT pg_terminate_backend(' . $victim->pid . ')');
($out, $err) = $victim->receive_all;
like($err, qr/terminating connection/, 'terminated');
wait_for_waiters(0);
pass('terminated: the slot is free');

# new sessions get the same slots
my @sessions = map { session($standby) } 1 .. 10;
$_->send("SET udb.fence_timeout = -1; SET udb.fence = '$token'; SELECT max(a) FROM t") foreach @sessions, $s;
wait_for_waiters(11);
pass('the slots can be used again');
resume();
is(join(' ', map { $_->receive } @sessions, $s), join(' ', ($count) x 11), 'and all of them are woken');
is(waiters(), 0, 'nobody waits any more');

# ---- shutdown during a wait --------------------------------------------------------------------------------

pause();
$token = write_row();
$s->send("SET udb.fence = '$token'");
wait_for_waiters(1);
$standby->stop('fast');
($out, $err) = $s->receive_all;
like($err, qr/terminating connection|connection to server was lost/, 'a waiting session does not hold up a shutdown');

done_testing();
