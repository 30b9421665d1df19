# resolve() on a standby is never behind what has been replayed, and numbers go on after a promotion. On the primary a
# restart between PREPARE and COMMIT PREPARED makes no difference.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', streaming => 1, conf => "udb.worker = off\n");
$node->safe_psql('postgres', "SELECT udb.create_registry('r'), udb.create_registry('other'), udb.create_registry_consumer('c', 'r')");
$node->safe_psql('postgres', "SELECT udb.put_record('r', 'a', '0'), udb.put_record('r', 'b', '\"b\"')");
my $standby = new_standby($node, 'standby');
my $reader = session($standby);

$node->wait_for_catchup($standby);
is($reader->query("SELECT udb.resolve('r', 'a'), udb.resolve('r', 'b')"), '0|"b"', 'a standby resolves');

my $wrong = 0;
for my $i (1 .. 30)
{
	$node->safe_psql('postgres', "SELECT udb.put_record('r', 'a', '$i')");
	$node->wait_for_catchup($standby);
	$wrong++ if $reader->query("SELECT udb.resolve('r', 'a')") ne $i;
}
is($wrong, 0, 'in one session, each change as soon as it has been replayed');

# It does not read again what has not changed. Such a change is made past the triggers, to be found out by.
my $secret = sub { return "SET session_replication_role = replica; UPDATE udb.registry_records SET record = '$_[0]' WHERE registry = 'r' AND key = 'b'" };
$node->safe_psql('postgres', $secret->('"secret"'));
$node->safe_psql('postgres', "SELECT udb.put_record('other', 'a', '1')");
$node->wait_for_catchup($standby);
is($reader->query("SELECT udb.resolve('r', 'b'), udb.resolve('other', 'a')"), '"b"|1', 'what is committed elsewhere makes it read nothing again');
$node->safe_psql('postgres', "UPDATE udb.registry_records SET updated_at = updated_at WHERE registry = 'other'");
$node->wait_for_catchup($standby);
is($reader->query("SELECT udb.resolve('r', 'b')"), '"secret"', 'what is written past the functions makes it read all');

# prepared transactions, with a restart in between
my $here = session($node);
is($here->query("SELECT udb.resolve('r', 'a')"), '30', 'before');
$node->safe_psql('postgres', "BEGIN; SELECT udb.put_record('r', 'a', '\"prepared\"'), udb.remove_record('r', 'b'); PREPARE TRANSACTION 'one'");
$node->wait_for_catchup($standby);
is($here->query("SELECT udb.resolve('r', 'a')"), '30', 'a prepared change is not there');
is($reader->query("SELECT udb.resolve('r', 'a')"), '30', 'nor on the standby');
$here->quit;
$node->restart;
$here = session($node);
is($here->query("SELECT udb.resolve('r', 'a')"), '30', 'nor after a restart');
$node->safe_psql('postgres', "COMMIT PREPARED 'one'");
is($here->query("SELECT udb.resolve('r', 'a'), udb.resolve('r', 'b') IS NULL"), '"prepared"|t', 'but after COMMIT PREPARED');
$node->wait_for_catchup($standby);
is($reader->query("SELECT udb.resolve('r', 'a'), udb.resolve('r', 'b') IS NULL"), '"prepared"|t', 'on the standby, too');
$here->quit;

# what writes is refused
is(sqlstate($standby, "SELECT udb.put_record('r', 'a', '1')"), '25006', 'a standby puts nothing');
is(sqlstate($standby, "SELECT udb.wait_for_registry('c', '1 s')"), '25006', 'nobody waits there');
is(sqlstate($standby, "SELECT udb.reconcile('c')"), '25006', 'or reconciles');
is(sqlstate($standby, "SELECT udb.announce('t', 'k', '1')"), '25006', 'or announces');
is($standby->safe_psql('postgres', "SELECT udb.watermark('r'), count(*) FROM udb.rows_since('r')"), '34|1', 'rows are there to be read');

# a change that is not committed when the primary is lost
my $open = session($node);
$open->query("BEGIN; SELECT udb.put_record('r', 'a', '\"lost\"')");
$node->wait_for_catchup($standby);
crash_server($node);
$standby->promote;
is($reader->query("SELECT udb.resolve('r', 'a')"), '"prepared"', 'a session goes on over a promotion');
is($standby->safe_psql('postgres', "SELECT udb.put_record('r', 'a', '\"promoted\"')"), '35', 'numbers go on without a gap');
is($reader->query("SELECT udb.resolve('r', 'a')"), '"promoted"', 'and changes are seen');
is($reader->query("SELECT string_agg(key || seq, ' ') FROM udb.reconcile('c')"), 'a35', 'a consumer reconciles');
$reader->quit;
$open->quit;

done_testing();
