# Limits and company: memory, old snapshots, isolation levels, logical replication, consumers dropped meanwhile.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', streaming => 1, conf => <<'CONF');
wal_level = logical
autovacuum = off
shared_buffers = 64MB
udb.outbox_segment_size = 1000
CONF

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub reconfigure
{
	my ($setting, $value) = @_;
	sql("ALTER SYSTEM SET $setting = $value");
	$node->reload;
	return wait_for_sql($node, "SELECT setting = '$value' FROM pg_settings WHERE name = '$setting'");
}

# ---- logical replication -------------------------------------------------------------------------

# The subscriber's table is a plain one. Some events are there before, some come while it copies.
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init;
$subscriber->start;
$subscriber->safe_psql('postgres', <<'SQL');
CREATE SCHEMA udb;
CREATE TABLE udb.outbox_events (event_seq bigint PRIMARY KEY, event_id uuid NOT NULL, topic text NOT NULL,
	partition_key text NOT NULL, payload jsonb NOT NULL, headers jsonb, created_at timestamptz NOT NULL);
SQL
sql("SELECT count(udb.enqueue('t', to_jsonb(i))) FROM generate_series(1, 500) i");
sql('CREATE PUBLICATION events FOR TABLE udb.outbox_events WITH (publish_via_partition_root = true)');
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION events CONNECTION '" . $node->connstr . " dbname=postgres' PUBLICATION events");
sql("SELECT count(udb.enqueue('t', to_jsonb(i))) FROM generate_series(501, 2500) i");
# Every way to append, with things that must not arrive.
sql(<<'SQL');
SELECT array_length(udb.enqueue_many('many', array_agg(to_jsonb(i))), 1) FROM generate_series(1, 3000) i;
SELECT udb.enqueue('big', to_jsonb(string_agg(md5(i::text), '')), headers => '{"a": 1}') FROM generate_series(1, 2000) i;
CREATE TABLE business (id int PRIMARY KEY, note text);
CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON business
	FOR EACH ROW EXECUTE FUNCTION udb.outbox_trigger('business', 'id');
INSERT INTO business SELECT i, 'note' FROM generate_series(1, 10) i;
BEGIN;
SELECT udb.enqueue('t', '"no"');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT udb.enqueue_many('t', ARRAY['"no"', '"no"']::jsonb[]);
ROLLBACK TO s;
SELECT udb.enqueue('t', '"yes"');
PREPARE TRANSACTION 'p';
COMMIT PREPARED 'p';
SQL
$node->wait_for_catchup('events');
my $digest = q(SELECT count(*), md5(string_agg(e::text, E'\n' ORDER BY event_seq)) FROM udb.outbox_events e);
wait_for_sql($subscriber, $digest, sql($digest));
is($subscriber->safe_psql('postgres', $digest), sql($digest), 'a subscriber gets every event, as it is');
is(sql('SELECT count(*) FROM udb.outbox_events'), 2500 + 3000 + 1 + 10 + 1, 'and there are as many as there should be');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION events');
$subscriber->stop;

# ---- isolation levels ----------------------------------------------------------------------------

sql("SELECT udb.create_consumer('c', NULL, 'latest')");
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	my ($a, $b) = (session($node), session($node));

	$a->query("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM business");
	$b->query("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM business");
	my $first = $a->query("SELECT udb.enqueue('$level', '\"a\"')");
	my $second = $b->query("SELECT udb.enqueue('$level', '\"b\"')");
	cmp_ok($second, '>', $first, "$level: two writers get positions");
	$b->query('COMMIT');
	is(sql("SELECT count(*) FROM udb.read('c')"), 0, "$level: the open one holds the horizon");
	$a->query('COMMIT');
	is(sql("SELECT string_agg(payload ->> 0, ' ') FROM udb.read('c')"), 'a b', "$level: both are read, in order");

	# Over a segment boundary, with an id that somebody else has given meanwhile.
	my $id = sql('SELECT gen_random_uuid()');
	$a->query("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM business");
	my $theirs = sql("SELECT udb.enqueue('id', '1', event_id => '$id')");
	sql("SELECT count(udb.enqueue('filler', '1')) FROM generate_series(1, 1500)");
	is($a->query("SELECT udb.enqueue('id', '1', event_id => '$id')"), $theirs,
		"$level: an id that was given after the snapshot is found");
	like($a->error("SELECT udb.enqueue('id', '2', event_id => '$id')"), qr/reused with different content/,
		"$level: and so is other content");
	$a->query('ROLLBACK');
	foreach my $read ("SELECT * FROM udb.read('c')", 'SELECT * FROM udb.peek(0)', "SELECT udb.wait_for_events('c', '1 s')")
	{
		is(sqlstate($node, "BEGIN ISOLATION LEVEL $level; $read"), 'UD006', "$level: no $read");
	}
	sql("SELECT udb.checkpoint('c', udb.outbox_stable_seq())");
	$_->quit foreach $a, $b;
}

# A serialization failure takes its events along.
my ($x, $y) = (session($node), session($node));
$_->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(length(note)) FROM business') foreach $x, $y;
$x->query("INSERT INTO business VALUES (100, 'x'); SELECT udb.enqueue('x', '\"kept\"')");
$y->query("INSERT INTO business VALUES (101, 'y'); SELECT udb.enqueue('x', '\"lost\"')");
$x->query('COMMIT');
like($y->error('COMMIT'), qr/could not serialize/, 'one of two conflicting serializable writers fails');
is(sql("SELECT string_agg(payload ->> 0, ' ') FROM udb.read('c') WHERE topic = 'x'"), 'kept', 'and its event is not there');
$_->quit foreach $x, $y;

# ---- parked events of a consumer that is dropped meanwhile ----------------------------------------

my $position = sql("SELECT udb.enqueue('t', '1')");
my $parking = session($node);
$parking->query("BEGIN; SELECT udb.dead_letter_event('c', $position, 'bad')");
my $dropping = session($node);
$dropping->send("SELECT udb.drop_consumer('c')");
wait_for_sql($node, 'SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = ' . $dropping->pid);
$parking->query('COMMIT');
$dropping->receive;
is(sql('SELECT count(*) FROM udb.dead_events'), 0, 'dropping a consumer takes along what is being parked for it');
is(sqlstate($node, "SELECT udb.dead_letter_event('c', $position, 'bad')"), '42704', 'and nothing is parked for it later');
$_->quit foreach $parking, $dropping;

# ---- an old snapshot -----------------------------------------------------------------------------

# A cursor that has moved 3000 times leaves 3000 versions of its row, none of which can be removed.
sql("SELECT udb.create_consumer('busy', NULL, 'latest')");
my $old = session($node);
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM business');
my $work = $node->basedir . '/work.sql';
append_to_file($work, "SELECT udb.checkpoint('busy', udb.enqueue('t', '1') - 1);\n");
my $pages = "SELECT pg_relation_size('udb.consumers') / 8192 + pg_relation_size('udb.consumers_pkey') / 8192";
$node->command_ok([ 'pgbench', '-n', '-c', 1, '-t', 3000, '-h', $node->host, '-p', $node->port, '-f', $work, 'postgres' ],
	'three thousand checkpoints under an old snapshot');
cmp_ok(sql($pages), '>', 20, 'leave many pages of dead rows');
my $reader = session($node);
sub buffers
{
	my $plan = $reader->query("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) $_[0]");
	my ($hit) = $plan =~ /Buffers: shared hit=(\d+)/;
	my ($read) = $plan =~ /Buffers:.* read=(\d+)/;

	return ($hit // 0) + ($read // 0);
}
foreach my $statement ("SELECT * FROM udb.read('busy', 10)", "SELECT udb.checkpoint('busy', udb.outbox_stable_seq() - 0 * %d)")
{
	my ($name) = $statement =~ /udb\.(\w+)/;

	# Not the first time, which fills caches.
	my @seen;
	for my $i (1 .. 3)
	{
		sql("SELECT udb.enqueue('t', '1')");
		push @seen, buffers(sprintf $statement, $i);
	}
	note("$name: @seen buffers");
	cmp_ok($seen[-1], '<', 15, "$name does not visit them");
}
$old->query('COMMIT');
$_->quit foreach $old, $reader;

# ---- a million events in one transaction ---------------------------------------------------------

reconfigure('udb.outbox_segment_size', 1000000);
sub anonymous_kb
{
	my ($kb) = slurp_file('/proc/' . $_[0]->pid . '/status') =~ /^RssAnon:\s+(\d+) kB/m;
	return $kb;
}
foreach my $way ([ 'enqueue', "SELECT udb.enqueue('orders', '{\"id\": 1}', 'k1') FROM generate_series(1, %d)" ],
	[ 'enqueue_many',
		"SELECT udb.enqueue_many('orders', p) FROM (SELECT array_fill('{\"id\": 1}'::jsonb, ARRAY[1000]) AS p) a, generate_series(1, %d / 1000)" ])
{
	my ($name, $query) = @$way;
	my $writer = session($node);
	my $run = sub { $writer->query("DO \$\$ BEGIN PERFORM count(*) FROM (" . sprintf($query, $_[0]) . ') x; END $$') };

	$writer->query('BEGIN');
	$run->(10000);
	my $before = anonymous_kb($writer);
	my $at = $writer->query("SELECT last_position FROM udb.horizon_holder() WHERE pid = pg_backend_pid()");
	$run->(1_000_000);
	my $grown = anonymous_kb($writer) - $before;
	is($writer->query("SELECT last_position - $at FROM udb.horizon_holder() WHERE pid = pg_backend_pid()"), 1_000_000,
		"$name: a million positions in one transaction");
	note("$name: the backend grew by $grown kB");
	cmp_ok($grown, '<', 16 * 1024, "$name: the backend grows by less than 16 MB");
	$writer->query('ROLLBACK');
	$writer->quit;
}

done_testing();
