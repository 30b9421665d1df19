# A standby serves no feed and takes no events; once promoted it does both, above all that was replicated.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('main', streaming => 1, conf => "udb.outbox_segment_size = 100\n");

$node->safe_psql('postgres', <<'SQL');
SELECT udb.create_consumer('c');
SELECT udb.create_consumer('other', ARRAY['rare']);
CREATE TABLE got (ord bigserial, event_seq bigint, note text);
SELECT count(udb.enqueue('t', to_jsonb('e' || i))) FROM generate_series(1, 250) i;
SQL
my $standby = new_standby($node, 'standby');

# One pass of a consumer.
sub consume
{
	my ($server) = @_;

	$server->safe_psql('postgres', <<'SQL');
BEGIN;
INSERT INTO got (event_seq, note) SELECT event_seq, payload #>> '{}' FROM udb.read('c', 90);
SELECT udb.checkpoint('c', max(event_seq)) FROM got;
COMMIT;
SQL
}

consume($node);
$node->wait_for_catchup($standby);

my %refused = (
	"SELECT * FROM udb.read('c')" => 'UD005',
	'SELECT * FROM udb.peek(0)' => 'UD005',
	'SELECT udb.outbox_stable_seq()' => 'UD005',
	"SELECT udb.checkpoint('c', 1)" => 'UD005',
	"SELECT udb.wait_for_events('c', '10 s')" => 'UD005',
	"CALL udb.await_events('c', '10 s')" => 'UD005',
	'SELECT * FROM udb.horizon_holder()' => 'UD005',
	"SELECT udb.enqueue('t', '1')" => '25006',
	"SELECT udb.enqueue_many('t', ARRAY['1'::jsonb])" => '25006',
	"SELECT udb.create_consumer('x')" => '25006',
	"SELECT udb.drop_consumer('c')" => '25006',
	"SELECT udb.seek_consumer('c', 0)" => '25006',
	"SELECT udb.pause_consumer('c')" => '25006',
	"SELECT udb.resume_consumer('c')" => '25006',
	"SELECT udb.dead_letter_event('c', 1, '')" => '25006',
	"SELECT udb.redrive_dead_letters('c')" => '25006',
	'SELECT udb.sweep_outbox_segments()' => '25006',
	'SELECT udb.sweep_outbox_retention()' => '25006',
	'SELECT udb.sweep_dead_events()' => '25006',);
is(sqlstate($standby, $_), $refused{$_}, "on a standby: $_") foreach sort keys %refused;
like(
	($standby->psql('postgres', "SELECT * FROM udb.read('c')"))[2],
	qr/ERROR:  the feed is not served on a standby\n.*HINT:  Connect to the primary/s,
	'the error says why and what to do');

is($standby->safe_psql('postgres', 'SELECT count(*) FROM udb.outbox_events'), 250,
	'the replicated table itself can be queried');
is($standby->safe_psql('postgres', "SELECT position = 90, lag_events FROM udb.consumer_status WHERE name = 'c'"),
	't|160', 'and so can the consumers\' status');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'udb'"), 0,
	'no worker of udb runs on a standby');

# Some more of everything, then the primary is lost. Positions that were handed out for transactions
# that never ended are among what must not be handed out again.
my $open = session($node);
$open->query("BEGIN; SELECT udb.enqueue('t', '\"lost\"')");
$node->safe_psql('postgres', "SELECT udb.enqueue('t', '\"last\"')");
my $highest = $node->safe_psql('postgres', "SELECT last_position FROM udb.horizon_holder()") + 1;
consume($node);
$node->wait_for_catchup($standby);
crash_server($node);
$standby->promote;
my $promoted = time;
wait_for_sql($standby, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'postgres'");
cmp_ok(time - $promoted, '<', 5, 'the worker is there within 5 s of the promotion');

my $next = $standby->safe_psql('postgres', "SELECT udb.enqueue('t', '\"after\"')");
cmp_ok($next, '>', $highest, 'positions go on above everything that was handed out');
consume($standby) for 1 .. 3;
is($standby->safe_psql('postgres', 'SELECT count(*), count(DISTINCT event_seq), count(DISTINCT note) FROM got'),
	'252|252|252', 'the consumer goes on from its position: nothing lost, nothing twice');
is($standby->safe_psql('postgres', "SELECT string_agg(note, ' ' ORDER BY ord) FROM (SELECT * FROM got ORDER BY ord DESC LIMIT 2) x"),
	'last after', 'and in order');
is($standby->safe_psql('postgres', 'SELECT bool_and(r) FROM (SELECT event_seq > lag(event_seq) OVER (ORDER BY ord) AS r FROM got) x'),
	't', 'positions rise');

# Segments are made by the worker of the promoted server.
$standby->safe_psql('postgres', "SELECT count(udb.enqueue('rare', '1')) FROM generate_series(1, 1000)");
is($standby->safe_psql('postgres', "SELECT count(*) FROM udb.read('other', 10000)"), 1000,
	'a consumer with a filter reads on the promoted server');

done_testing();
