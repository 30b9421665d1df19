# A reader and a writer that are stopped in the middle while the extension is dropped and created again: the
# new log gets neither a horizon nor a position of the old one.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main');

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION pause_at(text, bigint, integer DEFAULT 0) RETURNS void LANGUAGE c STRICT AS 'udb_test', 'udb_test_pause_at';
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 50) n;
SQL
my ($lock, $reader, $writer, $slow) = map { session($node) } 1 .. 4;

$lock->query('SELECT pg_advisory_lock(1)');
$reader->query("SELECT pause_at('slots-read', 1)");
$writer->query("SELECT pause_at('position-taken', 1)");
$reader->send('SELECT udb.outbox_stable_seq()');
$writer->send("SELECT udb.enqueue('t', '\"late\"')");
wait_for_sql($node, "SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION udb; CREATE EXTENSION udb; COMMIT');
# Whoever has to make the first segment keeps others waiting until he commits.
$node->safe_psql('postgres', "SELECT udb.enqueue('t', '0')");
$slow->query("BEGIN; SELECT udb.enqueue('t', '1')");
$node->safe_psql('postgres', "SELECT udb.enqueue('t', '2')");
$lock->query('SELECT pg_advisory_unlock(1)');
$reader->receive_all;
my ($out, $err) = $writer->receive_all;

like($err, qr/ERROR:/, 'a writer with a position of the old log gets an error');
is($node->safe_psql('postgres', 'SELECT udb.outbox_stable_seq(), udb.outbox_max_seq()'),
	'1|3', 'the horizon is that of the new log');
$slow->query('COMMIT');
is($node->safe_psql('postgres', "SELECT string_agg(event_seq || ':' || (payload #>> '{}'), ' ') FROM udb.peek(0)"),
	'1:0 2:1 3:2', 'the new log has its own events');

done_testing();
