# A consumer that is dropped while retention looks at the consumers neither fails it nor holds it.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker = off\nudb.outbox_segment_size = 100\nudb.outbox_retention = 0\n");

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION pause_at(text, bigint, integer DEFAULT 0) RETURNS void LANGUAGE c STRICT AS 'udb_test', 'udb_test_pause_at';
SELECT udb.create_consumer('c');
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 150) n;
SQL
my ($lock, $sweep) = map { session($node) } 1 .. 2;

$lock->query('SELECT pg_advisory_lock(1)');
$sweep->query("SELECT pause_at('consumers-listed', 1)");
$sweep->send('SELECT udb.sweep_outbox_retention()');
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
$node->safe_psql('postgres', "SELECT udb.drop_consumer('c')");
$lock->query('SELECT pg_advisory_unlock(1)');
my ($out, $err) = $sweep->receive_all;

is($out . $err, '1', 'the segment that it alone held is dropped');

done_testing();
