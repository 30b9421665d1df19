# Migrations and crashes: a step that is cut off by kill -9 leaves nothing, a step that runs alone is finished
# by the next call, and an interrupted call takes its worker along.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('migrate');
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
CREATE TABLE item AS SELECT generate_series(1, 1000) AS id;
SELECT udb.register_migration('app', 1, 'one', 'CREATE TABLE one ()');
SELECT udb.register_migration('app', 2, 'two', 'CREATE TABLE two (); SELECT pg_advisory_xact_lock(5); CREATE TABLE three ()');
SELECT udb.register_migration('app', 3, 'alone', 'CREATE INDEX CONCURRENTLY item_id ON item (id); SELECT pg_advisory_lock(6)',
	'SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(''item_id'')', false);
SELECT udb.register_migration('app', 4, 'four', 'CREATE TABLE four ()');
SQL

# ---- kill -9 in the middle of a step ----

my $holder = session($node);
$holder->query('SELECT pg_advisory_lock(5), pg_advisory_lock(6)');
my $s = session($node);
$s->send("CALL udb.migrate('app')");
my $waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid =";
wait_for_sql($node, "$waits 5", 1);
crash_backend($node, $s->pid);
is(sql("SELECT udb.schema_stamp('app'), to_regclass('one'), to_regclass('two')"), '1|one|',
	'a crash keeps the steps before, and leaves nothing of the one that was running');

# ---- kill -9 of a step that runs alone ----

$holder = session($node);
$holder->query('SELECT pg_advisory_lock(6)');
$s = session($node);
$s->send("CALL udb.migrate('app')");
wait_for_sql($node, "$waits 6", 1);
is(sql("SELECT udb.schema_stamp('app'), to_regclass('three'), to_regclass('item_id')"), '2|three|item_id',
	'the next call has gone on');
my $worker = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb migration'");
crash_backend($node, $worker);
is(sql("SELECT udb.schema_stamp('app'), to_regclass('item_id')"), '2|item_id',
	'after a crash what ran alone has taken effect, but is not stamped');
my ($rc, $out, $err) = $node->psql('postgres', "CALL udb.migrate('app')");
is($rc, 0, 'it is run again');
like($err, qr/step 3 "alone" of component "app" had taken effect already.*relation "item_id" already exists/s, 'and found to be done');
is(sql("SELECT udb.schema_stamp('app'), to_regclass('four')"), '4|four', 'and the rest follows');
is(sql("SELECT version, outcome FROM udb.migration_history ORDER BY 1"), "1|applied\n2|applied\n3|healed\n4|applied",
	'all of which is in the history');

# ---- interrupted ----

sql(<<'SQL');
SELECT udb.register_migration('slow', 1, 'slow', 'VACUUM item; SELECT pg_sleep(1000)', 'SELECT false', false);
SQL
$s = session($node);
$s->send("CALL udb.migrate('slow')");
wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb migration' AND query LIKE '%pg_sleep%'", 1);
is(sql('SELECT backend_xmin IS NULL AND backend_xid IS NULL FROM pg_stat_activity WHERE pid = ' . $s->pid), 't',
	'who waits for a worker holds no snapshot');
sql('SELECT pg_cancel_backend(' . $s->pid . ')');
($out, $err) = $s->receive_all;
like($err, qr/canceling statement due to user request/, 'waiting for it can be cancelled');
wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb migration'", 0);
is(sql("SELECT udb.schema_stamp('slow')"), 0, 'which ends the worker and stamps nothing');

# ---- four at a time, often ----

sql("SELECT udb.register_migration('many', v, 'v' || v, format('CREATE TABLE many_%s (); INSERT INTO count VALUES (%s)', v, v)) FROM generate_series(1, 40) v");
sql('CREATE TABLE count (version int)');
my @four = map { session($node) } 1 .. 4;
$_->send("CALL udb.migrate('many')") foreach @four;
is(join(',', map { $_->receive } @four), ',,,', 'four sessions migrate at once without an error');
is(sql("SELECT count(*), count(DISTINCT version), udb.schema_stamp('many') FROM count"), '40|40|40', 'and run each step once');
is(sql("SELECT count(*) FROM udb.migration_history WHERE component = 'many' AND outcome = 'applied'"), 40, 'as the history says');

# ---- no room for a worker ----

$node->append_conf('postgresql.conf', "max_worker_processes = 1\n");
$node->restart;
sql("SELECT udb.register_migration('room', 1, 'vacuum', 'VACUUM item', 'SELECT true', false)");
($rc, $out, $err) = $node->psql('postgres', "CALL udb.migrate('room')");
like($err, qr/could not start a worker.*Increase max_worker_processes/s, 'without a free worker there is a clear error');
is(sql("SELECT udb.schema_stamp('room')"), 0, 'and no stamp');
$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");
$node->restart;

# ---- dump and restore ----

my $other = new_cluster('restored', extension => 0);
my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $file ], 'it can be dumped');
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $file ], 'and restored');
is($other->safe_psql('postgres', "SELECT udb.require_schema('many'), udb.schema_stamp('many')"), '|40', 'with its stamps');
($rc, $out, $err) = $other->psql('postgres', "SELECT udb.register_migration('many', 1, 'v1', 'SELECT 1')");
like($err, qr/has been applied with other SQL/, 'and its checksums');

done_testing();
