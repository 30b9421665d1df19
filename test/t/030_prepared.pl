# Transactions that are prepared after an enqueue hold the horizon until they end, also over crashes and
# on a standby that is promoted.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', streaming => 1);

sub sql { return $node->safe_psql('postgres', $_[0]); }

# What a new reader sees: notes of the events, in order.
sub feed
{
	my ($server, $after) = @_;

	$after //= 0;
	return ($server // $node)->safe_psql('postgres',
		"SELECT coalesce(string_agg(payload ->> 0, ' '), '') FROM udb.peek($after, 1000)");
}

sub prepare
{
	my ($server, $gid) = @_;

	return $server->safe_psql('postgres', <<SQL);
BEGIN;
SELECT udb.enqueue('t', '["$gid"]');
PREPARE TRANSACTION '$gid';
SQL
}
sub enqueue { return ($_[1] // $node)->safe_psql('postgres', "SELECT udb.enqueue('t', '[\"$_[0]\"]')"); }

# Holding, and letting go.
enqueue('a');
my $held = prepare($node, 'p1');
enqueue('b');
is(feed(), 'a', 'an event behind a prepared transaction is not served');
is(sql('SELECT udb.outbox_stable_seq()'), $held - 1, 'the horizon is right below it');
is(sql('SELECT pid, gid, usename = current_user, first_position, last_position, state FROM udb.horizon_holder()'),
	"|p1|t|$held|$held|prepared", 'horizon_holder() names the prepared transaction');

# One that has not enqueued holds nothing.
sql("CREATE TABLE other (i int); BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'unrelated'");
is(sql('SELECT count(*) FROM udb.horizon_holder()'), 1, 'a prepared transaction that did not enqueue is no holder');

# A waiter in another session is woken by COMMIT PREPARED.
sql("SELECT udb.create_consumer('c'); SELECT udb.checkpoint('c', $held - 1)");
my $waiter = session($node);
$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%wait_for_events%' AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()");
ok(!$waiter->done, 'a waiter waits while the prepared transaction holds the horizon');
my $start = time;
sql("COMMIT PREPARED 'p1'");
is($waiter->receive, 't', 'COMMIT PREPARED wakes it');
cmp_ok(time - $start, '<', 20, 'soon');
is(feed(), 'a p1 b', 'the event is where its position says');
is(sql('SELECT count(*) FROM udb.horizon_holder()'), 0, 'nobody holds the horizon any more');

# The same with ROLLBACK PREPARED.
sql("SELECT udb.checkpoint('c', udb.outbox_stable_seq())");
prepare($node, 'p2');
enqueue('c');
$waiter->send("SELECT udb.wait_for_events('c', '100 s')");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%wait_for_events%' AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()");
$start = time;
sql("ROLLBACK PREPARED 'p2'");
is($waiter->receive, 't', 'ROLLBACK PREPARED wakes a waiter');
cmp_ok(time - $start, '<', 20, 'soon');
is(feed(), 'a p1 b c', 'what was rolled back does not appear');
sql("ROLLBACK PREPARED 'unrelated'");

# Savepoints: the rolled back part held positions too.
my $positions = sql(<<'SQL');
BEGIN;
SAVEPOINT s;
SELECT udb.enqueue('t', '["gone"]');
ROLLBACK TO s;
SELECT udb.enqueue('t', '["p3"]');
PREPARE TRANSACTION 'p3';
SQL
my ($gone, $kept) = split /\n/, $positions;
is(sql('SELECT first_position, last_position FROM udb.horizon_holder()'), "$gone|$kept",
	'positions of a rolled back savepoint count as held');

# A PREPARE that fails leaves nothing behind.
my $s = session($node);
$s->query("BEGIN; SELECT udb.enqueue('t', '[\"never\"]')");
like($s->error("PREPARE TRANSACTION 'p3'"), qr/already in use/, 'a gid that is in use is refused');
is(sql('SELECT count(*) FROM udb.horizon_holder()'), 1, 'the failed PREPARE holds nothing');
$s->quit;

# Over crashes: of all backends, of the postmaster, and with DDL in between.
enqueue('d');
my $before = feed();
is($before, 'a p1 b c', 'held before the crash');
sql('CREATE TABLE ddl (i int); ALTER TABLE ddl ADD j int');
$waiter->quit;
crash_backend($node, session($node)->pid);
is(feed(), $before, 'held after the crash of a backend');
crash_server($node);
$node->start;
is(feed(), $before, 'held after the crash of the server');
is(sql("SELECT gid, state, first_position = $gone FROM udb.horizon_holder()"), 'p3|prepared|t',
	'horizon_holder() names it after the crash');
my $after_crash = enqueue('e');
cmp_ok($after_crash, '>', $kept, 'positions go on above it');
is(feed(), $before, 'what is enqueued after the crash is behind it');
$node->stop('immediate');
$node->start;
is(feed(), $before, 'held after an immediate shutdown');
$node->restart;
is(feed(), $before, 'held after a clean restart');
sql("COMMIT PREPARED 'p3'");
is(feed(), 'a p1 b c p3 d e', 'COMMIT PREPARED after crashes: all of it, in order');

# After a crash that nobody has looked at the outbox since.
prepare($node, 'p4');
enqueue('f');
crash_server($node);
$node->start;
sql("COMMIT PREPARED 'p4'");
is(feed(), 'a p1 b c p3 d e p4 f', 'COMMIT PREPARED as the first thing after a crash');

# Many at a time, ended in another order than they were made.
prepare($node, "m$_") for 1 .. 5;
enqueue('g');
sql("COMMIT PREPARED 'm$_'") for 4, 2, 5;
my $tail = length('a p1 b c p3 d e p4 f');
is(substr(feed(), $tail), '', 'the first of many holds all');
sql("ROLLBACK PREPARED 'm1'");
is(substr(feed(), $tail), ' m2', 'then the next one does');
sql("COMMIT PREPARED 'm3'");
is(substr(feed(), $tail), ' m2 m3 m4 m5 g', 'until there is none left');

# On a standby that is promoted. Somebody has asked the standby about the horizon before.
prepare($node, 'p5');
my $last = sql('SELECT udb.outbox_stable_seq()');
my $standby = new_standby($node, 'standby');
my ($rc, $out, $err) = $standby->psql('postgres', 'SELECT * FROM udb.horizon_holder()',
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($err, qr/ERROR:\s+UD005/, 'who holds the horizon is not known on a standby');
prepare($node, 'p6');
enqueue('h');
$node->wait_for_catchup($standby);
crash_server($node);
$standby->promote;
is(feed($standby, $last), '', 'prepared transactions hold the horizon of the promoted standby');
is($standby->safe_psql('postgres', 'SELECT gid FROM udb.horizon_holder()'), "p5\np6",
	'both are named, also the one that was replayed later');
$standby->safe_psql('postgres', "COMMIT PREPARED 'p6'");
is(feed($standby, $last), '', 'the older one still holds');
$standby->safe_psql('postgres', "COMMIT PREPARED 'p5'");
is(feed($standby, $last), 'p5 p6 h', 'all of it, in order');

done_testing();
