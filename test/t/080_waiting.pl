# Waiting for events: woken at once by whatever moves the horizon, without a snapshot where that is promised,
# and leaving nothing behind however the wait ends.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

my $node = new_cluster('main', conf => "udb.notify = off\nmax_connections = 40\nautovacuum = off\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub enqueue { return sql("SELECT udb.enqueue('" . ($_[0] // 't') . "', '1')"); }
sub waiting
{
	my ($n) = @_;
	return wait_for_sql($node,
		"SELECT count(*) = $n FROM pg_stat_activity WHERE state = 'active' AND wait_event_type = 'Extension' AND query ~ '(wait_for|await)_events' AND pid <> pg_backend_pid()");
}
sub catch_up { return sql('SELECT udb.checkpoint(name, udb.outbox_stable_seq()) FROM udb.consumers'); }

sql("SELECT udb.create_consumer('c'); SELECT udb.create_consumer('d', ARRAY['rare']); SELECT udb.create_consumer('p')");
enqueue();

# ---- what it answers -----------------------------------------------------------------------------

is(sql("SELECT udb.wait_for_events('c', '100 s')"), 't', 'with something to read there is no wait');
catch_up();
my $start = time;
is(sql("SELECT udb.wait_for_events('c', '300 ms')"), 'f', 'false when the time is over');
cmp_ok(time - $start, '>=', 0.3, 'and not before');
is(sql("SELECT udb.wait_for_events('c', '0')"), 'f', 'a time of zero only looks');
is(sqlstate($node, "SELECT udb.wait_for_events('c', '-1 s')"), '22023', 'a negative time is refused');
is(sqlstate($node, "SELECT udb.wait_for_events('nobody', '1 s')"), '42704', 'an unknown consumer is refused');
is(sql("CALL udb.await_events('c', '10 ms')"), 'f', 'the procedure answers the same');
enqueue();
is(sql("CALL udb.await_events('c', '100 s')"), 't', 'in both cases');
is(sqlstate($node, "BEGIN; CALL udb.await_events('c', '1 s')"), '2D000', 'the procedure refuses to run in a transaction block');
sql('CREATE FUNCTION in_function() RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE ready boolean; '
	  . "BEGIN CALL udb.await_events('c', '1 s', ready); RETURN ready; END \$\$");
is(sqlstate($node, 'SELECT in_function()'), '2D000', 'and in a function');
catch_up();

# ---- how soon ------------------------------------------------------------------------------------

# Both ends on one clock: when the commit was sent, and when the waiter's query ended.
my $waiter = session($node);
my $writer = session($node);
my @delays;
for (1 .. 15)
{
	$waiter->send("SELECT udb.wait_for_events('c', '100 s'); SELECT extract(epoch FROM clock_timestamp())");
	waiting(1);
	my $sent = $writer->query("SELECT udb.enqueue('t', '1') * 0 + extract(epoch FROM clock_timestamp())");
	my ($ready, $woken) = split /\n/, $waiter->receive;

	push @delays, $woken - $sent if $ready eq 't';
	catch_up();
}
is(scalar @delays, 15, 'each commit wakes the waiter');
my $median = (sort { $a <=> $b } @delays)[7];
note(sprintf 'median %.2f ms, worst %.2f ms', $median * 1000, (sort { $a <=> $b } @delays)[-1] * 1000);
# No poll at some interval would be that quick each time; the margins are for busy machines.
cmp_ok((sort { $a <=> $b } @delays)[0], '<', 0.02, 'within milliseconds');
cmp_ok($median, '<', 0.1, 'as a rule');

# The end of the one that holds the horizon counts, not that of others; a rollback is an end too.
my $holder = session($node);
foreach my $end ('ROLLBACK', 'COMMIT', 'ROLLBACK TO s; COMMIT')
{
	$holder->query("BEGIN; SAVEPOINT s; SELECT udb.enqueue('t', '1')");
	$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
	waiting(1);
	enqueue();
	# Every one of these makes the waiter look, and none may let it go.
	sql("SELECT udb.seek_consumer('p', 0)");
	enqueue();
	waiting(1);
	ok(!$waiter->done, "$end: behind an open transaction there is nothing to wake for");
	$start = time;
	$holder->query($end);
	is($waiter->receive, 't', "$end: its end wakes the waiter");
	cmp_ok(time - $start, '<', 5, 'soon');
	catch_up();
}

# So does the end of its connection.
$holder->query("BEGIN; SELECT udb.enqueue('t', '1')");
enqueue();
$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
waiting(1);
sql('SELECT pg_terminate_backend(' . $holder->pid . ')');
is($waiter->receive, 't', 'the holder being terminated wakes the waiter');
$holder->quit;
catch_up();

# Topics: woken, and asleep again, until one of its own comes.
$waiter->send("SELECT udb.wait_for_events('d', '100 s')");
waiting(1);
enqueue() for 1 .. 5;
waiting(1);
ok(!$waiter->done, 'other topics do not end the wait');
enqueue('rare');
is($waiter->receive, 't', 'its own topic does');
catch_up();

# What else gives a consumer something to read.
my $first = enqueue();
catch_up();
$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
waiting(1);
sql("SELECT udb.seek_consumer('c', $first - 1)");
is($waiter->receive, 't', 'a consumer sent back wakes up');
catch_up();
sql("SELECT udb.pause_consumer('c')");
enqueue();
is(sql("SELECT udb.wait_for_events('c', '50 ms')"), 'f', 'a paused consumer has nothing to wait for');
$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
waiting(1);
sql("SELECT udb.resume_consumer('c')");
is($waiter->receive, 't', 'until it is resumed');
catch_up();

# ---- no snapshot ---------------------------------------------------------------------------------

$waiter->send("CALL udb.await_events('c', '100 s')");
waiting(1);
my $of_waiter = 'FROM pg_stat_activity WHERE pid = ' . $waiter->pid;
is(sql("SELECT backend_xmin IS NULL, backend_xid IS NULL $of_waiter"), 't|t', 'await_events() holds no snapshot while it waits');
# Also after it has been woken in vain, and looked.
sql("SELECT udb.seek_consumer('d', 0)");
wait_for_sql($node, "SELECT wait_event_type = 'Extension' AND backend_xmin IS NULL $of_waiter");
my $row = sql('CREATE TABLE dead (i int); INSERT INTO dead VALUES (1); DELETE FROM dead RETURNING 1');
like(($node->psql('postgres', 'VACUUM (VERBOSE) dead'))[2], qr/tuples: 1 removed, 0 remain, 0 are dead but not yet removable/,
	'so that vacuum can do its work');
enqueue();
is($waiter->receive, 't', 'and is woken as well');
catch_up();

# ---- ends that are not by events -----------------------------------------------------------------

foreach my $kind ("SELECT udb.wait_for_events('c', '100 s')", "CALL udb.await_events('c', '100 s')")
{
	my ($name) = $kind =~ /udb\.(\w+)/;

	$waiter->send($kind);
	waiting(1);
	sql('SELECT pg_cancel_backend(' . $waiter->pid . ')');
	like(($waiter->receive_all)[1], qr/canceling statement due to user request/, "$name can be cancelled");

	like($waiter->error("SET statement_timeout = 200;\n$kind"), qr/canceling statement due to statement timeout/,
		"$name obeys statement_timeout");
	$waiter->query('RESET statement_timeout');

	my $doomed = session($node);
	$doomed->send($kind);
	waiting(1);
	sql('SELECT pg_terminate_backend(' . $doomed->pid . ')');
	like(($doomed->receive_all)[1], qr/terminating connection due to administrator command/, "$name can be terminated");
	$doomed->quit;

	# Nothing is left that could swallow a wake-up or get one in its place.
	$waiter->send($kind);
	waiting(1);
	enqueue();
	is($waiter->receive, 't', "$name works after all that");
	catch_up();
}

# An error elsewhere in the session between two waits.
$waiter->error('SELECT 1 / 0');
$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
waiting(1);
enqueue();
is($waiter->receive, 't', 'and after an unrelated error');
catch_up();

# The consumer goes away under the waiter.
$waiter->send("SELECT udb.wait_for_events('p', '100 s')");
waiting(1);
sql("SELECT udb.drop_consumer('p')");
like(($waiter->receive_all)[1], qr/consumer "p" does not exist/, 'dropping the consumer ends the wait');
$waiter->quit;

# ---- many ----------------------------------------------------------------------------------------

my @waiters = map { session($node) } 1 .. 16;
for my $round (1 .. 5)
{
	$_->send("SELECT udb.wait_for_events('c', '100 s')") foreach @waiters;
	waiting(16);
	$start = time;
	enqueue();
	is(join('', map { $_->receive } @waiters), 't' x 16, "round $round: one commit wakes all sixteen");
	cmp_ok(time - $start, '<', 10, 'soon');
	catch_up();
}

# All of them waiting, some of them given up, while four others write.
$_->send("SELECT count(udb.wait_for_events('c', '1 s')) FROM generate_series(1, 3)") foreach @waiters;
my $load = $node->basedir . '/load.sql';
append_to_file($load, "SELECT udb.enqueue('t', '1'); SELECT udb.checkpoint('c', udb.outbox_stable_seq());\n");
$node->command_ok([ 'pgbench', '-n', '-c', 4, '-t', 200, '-h', $node->host, '-p', $node->port, '-f', $load, 'postgres' ],
	'writers and waiters at a time');
$_->receive foreach @waiters;
catch_up();
$_->send("SELECT udb.wait_for_events('c', '100 s')") foreach @waiters;
waiting(16);
enqueue();
is(join('', map { $_->receive } @waiters), 't' x 16, 'and the waiters are woken after that');
$_->quit foreach @waiters;

done_testing();
