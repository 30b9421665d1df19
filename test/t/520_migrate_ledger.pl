# The migration ledger and crashes: a run that is cut off stays without an end, and the next call says so; a dump
# takes the ledger along; and an interrupted call leaves no lock.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('ledger', streaming => 1);
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
SELECT udb.register_migration('app', 1, 'one', 'CREATE TABLE one ()');
SELECT udb.register_migration('app', 2, 'two', 'CREATE TABLE two (); SELECT pg_advisory_xact_lock(5)');
SELECT udb.register_migration('app', 3, 'three', 'CREATE TABLE three ()');
CREATE VIEW runs AS SELECT catalog_version AS version, state, finished_at IS NOT NULL AS finished, error,
	(SELECT string_agg(format('%s %s', resource_uri, status), ', ' ORDER BY o.id) FROM udb.list_migration_ops(run_id) o) AS ops
	FROM udb.migration_runs WHERE project_id = 'app' ORDER BY started_at;
SQL
my $waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 5";
my $cut_off = 'the run was cut off before it could record its end';

# ---- kill -9 in the middle of a run ----

my $holder = session($node);
$holder->query('SELECT pg_advisory_lock(5)');
my $s = session($node);
$s->send("CALL udb.migrate('app')");
wait_for_sql($node, $waits, 1);
crash_backend($node, $s->pid);
is(sql('TABLE runs'), '3|APPLYING|f||app/1 APPLIED', 'a run that was cut off has no end, and what it has done');

# the next call is one that has nothing to do
sql("CALL udb.migrate('app', 1)");
is(sql('TABLE runs'), "3|ERROR|t|$cut_off|app/1 APPLIED", 'the next call says that it was cut off, and has no run itself');

# ---- terminated, while another session waits ----

$holder = session($node);
$holder->query('SELECT pg_advisory_lock(5)');
$s = session($node);
$s->send("CALL udb.migrate('app')");
wait_for_sql($node, $waits, 1);
my $next = session($node);
$next->send("CALL udb.migrate('app')");
wait_for_sql($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = " . $next->pid, 'advisory');
my $third = session($node);
$third->send("CALL udb.migrate('app')");
wait_for_sql($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = " . $third->pid, 'advisory');
sql('SELECT pg_cancel_backend(' . $third->pid . ')');
my ($out, $err) = $third->receive_all;
like($err, qr/canceling statement due to user request/, 'who waits for its turn can be cancelled');
sql('SELECT pg_terminate_backend(' . $s->pid . ', 60000)');
wait_for_sql($node, 'SELECT count(*) FROM runs', 3);
$holder->quit;
is($next->receive, '', 'who waits goes on');
is(sql('SELECT * FROM runs OFFSET 1'), "3|ERROR|t|$cut_off|\n3|COMPLETED|t||app/2 APPLIED, app/3 APPLIED",
	'and says that the first was cut off');
is(sql('SELECT count(*) FROM udb._migration_calls'), 0, 'no run is open');
is($third->query('SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = \'advisory\''), 0,
	'a session that was cancelled has no lock left');

# ---- a crash right after the run has begun, before its first step ----

sql("SELECT udb.register_migration('app', 4, 'four', 'CREATE TABLE four ()')");
sql('CREATE EXTENSION udb_test CASCADE');
$holder = session($node);
$holder->query('SELECT pg_advisory_lock(6)');
$s = session($node);
$s->query("SELECT udb_test.pause_at('migrate-step', 6)");
$s->send("CALL udb.migrate('app')");
wait_for_sql($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 6", 1);
is(sql('SELECT * FROM runs OFFSET 3'), '4|APPLYING|f||', 'a run is there before its first step');
crash_server($node);
$node->start;
sql("CALL udb.migrate('app')");
is(sql('SELECT * FROM runs OFFSET 3'), "4|ERROR|t|$cut_off|\n4|COMPLETED|t||app/4 APPLIED", 'after a crash the next call begins its own');

# ---- a standby that is promoted, and a dump that is restored, while a run is open ----

my $standby = new_standby($node, 'promoted');
sql("SELECT udb.register_migration('app', 5, 'five', 'SELECT pg_advisory_xact_lock(5)')");
$holder = session($node);
$holder->query('SELECT pg_advisory_lock(5)');
$s = session($node);
$s->send("CALL udb.migrate('app')");
wait_for_sql($node, $waits, 1);
my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $file ], 'it can be dumped');
$node->wait_for_catchup($standby);
$standby->promote;
$standby->safe_psql('postgres', "CALL udb.migrate('app')");
my $expected = "5|ERROR|t|$cut_off|\n5|COMPLETED|t||app/5 APPLIED";
is($standby->safe_psql('postgres', 'SELECT * FROM runs OFFSET 5'), $expected, 'after a promotion the run is known to be cut off');
$holder->quit;
$s->receive;
is(sql('SELECT * FROM runs OFFSET 5'), '5|COMPLETED|t||app/5 APPLIED', 'where it goes on it ends well');

my $other = new_cluster('restored', extension => 0);
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $file ], 'and restored');
is($other->safe_psql('postgres', 'SELECT state, ops FROM runs OFFSET 3'), "ERROR|\nCOMPLETED|app/4 APPLIED\nAPPLYING|", 'with all runs');
$other->safe_psql('postgres', "CALL udb.migrate('app')");
is($other->safe_psql('postgres', 'SELECT * FROM runs OFFSET 5'), $expected, 'where it goes on');
is($other->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM udb.migration_op_ledger'), '5|5', 'with ids that do not come twice');

# ---- README's session ----

my $readme = slurp_file(($ENV{UDB_TREE} // '.') . '/README.md');
$readme =~ /^## Migration ledger\n(.*?)^## /ms or die 'README has no section "Migration ledger"';
my @output = map { $other->safe_psql('postgres', $_) } $1 =~ /^```sql\n(.*?)^```/msg;
is($output[1], "shop|ERROR|0|mysql://catalog/items|APPLIED|\nshop|ERROR|1|mysql://catalog/prices|FAILED|disk full",
	'README\'s session gives what it shows');

done_testing();
