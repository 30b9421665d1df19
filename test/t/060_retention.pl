# Retention drops what is old and passed by all, and nothing else; it waits for nobody and nobody for it.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => <<'CONF');
udb.outbox_segment_size = 100
udb.outbox_retention = '1s'
udb.worker_interval = 1s
log_lock_waits = on
deadlock_timeout = 200ms
CONF

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub enqueue
{
	my ($n, $topic) = @_;
	$topic //= 't';
	return sql("SELECT max(s) FROM (SELECT udb.enqueue('$topic', to_jsonb(i)) AS s FROM generate_series(1, $n) i) x");
}
my $dropped_through = 'SELECT coalesce(max(dropped_through), 0) FROM udb.outbox_state';
my $head = 'SELECT min(first_position) FROM udb.outbox_segments';
# Sweeps that were made since, so that "not dropped" is not just "not yet". The second one has begun later.
sub let_worker_look
{
	my $runs = sql("SELECT runs FROM udb.worker_status WHERE sweep = 'outbox retention'");

	wait_for_sql($node,
		"SELECT runs >= $runs + 2 AND last_duration IS NOT NULL FROM udb.worker_status WHERE sweep = 'outbox retention'");
	return;
}
sub expired { return wait_for_sql($node, "SELECT count(*) >= $_[0] FROM udb.outbox_segments WHERE expired"); }

# ---- consumers that are behind -------------------------------------------------------------------

sql("SELECT udb.create_consumer('behind'); SELECT udb.create_consumer('paused'); SELECT udb.pause_consumer('paused')");
sql("SELECT udb.create_consumer('rare', ARRAY['rare'])");
my $last = enqueue(450);
expired(4);
let_worker_look();
is(sql($dropped_through), 0, 'nothing is dropped that no consumer has passed');
is(sql("SELECT string_agg(name, ' ' ORDER BY name) FROM udb.consumer_status WHERE holds_retention"), 'behind paused rare',
	'consumer_status says who holds retention');

sql("SELECT udb.checkpoint('behind', $last)");
let_worker_look();
is(sql($dropped_through), 0, 'a paused consumer holds it too');
is(sql("SELECT string_agg(name, ' ' ORDER BY name) FROM udb.consumer_status WHERE name <> 'rare' AND holds_retention"), 'paused',
	'and it alone, besides who waits for rare topics');
sql("SELECT udb.seek_consumer('paused', 250)");
wait_for_sql($node, $dropped_through, 200);
let_worker_look();
is(sql($dropped_through), 200, 'segments that it has passed are dropped, its own stays');
is(sql("SELECT position FROM udb.consumers WHERE name = 'rare'"), 200,
	'a consumer of a topic that did not come is moved along, and no further');
is(sql("SELECT udb.resume_consumer('paused'); SELECT count(*), min(event_seq), max(event_seq) FROM udb.read('paused', 1000)"),
	"\n200|251|$last", 'the consumer that was waited for has lost nothing');
sql("SELECT udb.checkpoint('paused', $last)");
wait_for_sql($node, $dropped_through, 400);
let_worker_look();
is(sql($dropped_through), 400, 'the newest segment stays, though all have passed its events');
is(sql('SELECT count(*), min(event_seq) FROM udb.outbox_events'), '50|401', 'its events too');

# A rare event holds retention until it is read.
my $rare = enqueue(1, 'rare');
$last = enqueue(300);
sql("SELECT udb.checkpoint(c, $last) FROM unnest(ARRAY['behind', 'paused']) c");
expired(2);
let_worker_look();
is(sql($dropped_through), 400, 'a rare event that was not read holds retention');
is(sql("SELECT event_seq FROM udb.read('rare')"), $rare, 'and is there');
sql("SELECT udb.checkpoint('rare', $rare)");
wait_for_sql($node, "SELECT ($dropped_through) >= 500");
pass('once it is passed, its segment is dropped');

# ---- positions that are gone ---------------------------------------------------------------------

wait_for_sql($node, "SELECT count(*) = 0 FROM udb.outbox_segments WHERE expired");
my $gone = sql($dropped_through);
is(sqlstate($node, "SELECT * FROM udb.peek($gone - 1)"), 'UD002', 'reading below the log is an error of its own');
like(($node->psql('postgres', "SELECT * FROM udb.peek(17)"))[2],
	qr/ERROR:  events after position 17 have been dropped\nDETAIL:  Retention has dropped all up to position $gone\.\nHINT:  Read after position $gone to skip/,
	'with the right numbers');
is(sql("SELECT count(*) = $last - $gone FROM udb.peek($gone, 10000)"), 't', 'reading right after what was dropped works');
is(sqlstate($node, "SELECT udb.seek_consumer('rare', $gone - 1)"), 'UD002', 'a consumer cannot be sent there');
is(sql("SELECT udb.create_consumer('new', NULL, 'earliest')"), $gone, 'earliest is the head of what is there');
is(sql("SELECT min(event_seq) FROM udb.read('new')"), sql('SELECT min(event_seq) FROM udb.outbox_events'),
	'from where a new consumer reads');
sql("SELECT udb.drop_consumer('new')");

# ---- locks ---------------------------------------------------------------------------------------

# A reader in an open transaction holds its segment; others go on, retention catches up later.
my $reader = session($node);
$reader->query("BEGIN; SELECT count(*) FROM udb.peek($gone, 1000)");
$last = enqueue(250);
sql("SELECT udb.checkpoint(c, $last) FROM unnest(ARRAY['behind', 'paused', 'rare']) c");
expired(2);
sub nobody_waits
{
	my ($what) = @_;
	my $errors = '';

	for my $i (1 .. 20)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET lock_timeout = 100; SET statement_timeout = 3000; SELECT udb.enqueue('t', '1'); SELECT count(*) FROM udb.read('behind')");
		$errors .= $err;
		let_worker_look() if $i == 10;
	}
	is($errors, '', $what);
	return;
}
nobody_waits('enqueue and read do not wait while a reader keeps retention waiting');
is(sql($dropped_through), $gone, 'retention does not drop what is being read');
is($reader->query("SELECT count(*) > 0 FROM udb.peek($gone, 1000)"), 't', 'the reader can read on');
$reader->query('COMMIT');
wait_for_sql($node, "SELECT ($dropped_through) > $gone");
pass('and retention catches up when the reader has ended');

# The same for who holds only the whole table, as a dump does, or what is behind a segment.
foreach my $what ('the table', "a segment's TOAST table")
{
	sql('SELECT udb.checkpoint(name, udb.outbox_stable_seq()) FROM udb.consumers');
	wait_for_sql($node, 'SELECT count(*) = 0 FROM udb.outbox_segments WHERE expired');

	my $toast = sql('SELECT reltoastrelid::regclass FROM pg_class WHERE oid = (SELECT segment FROM udb.outbox_segments ORDER BY first_position LIMIT 1)');
	my $statement = $what eq 'the table' ? 'LOCK TABLE ONLY udb.outbox_events IN ACCESS SHARE MODE' : "SELECT count(*) FROM $toast";

	$gone = sql($dropped_through);
	$reader->query("BEGIN; $statement");
	$last = enqueue(250);
	sql("SELECT udb.checkpoint(c, $last) FROM unnest(ARRAY['behind', 'paused', 'rare']) c");
	expired(1);
	nobody_waits("nobody waits while somebody holds $what");
	is(sql($dropped_through), $gone, "which retention leaves alone");
	$reader->query('COMMIT');
	wait_for_sql($node, "SELECT ($dropped_through) > $gone");
	pass("until $what is free");
}
$reader->quit;

# An open transaction that has enqueued keeps its segment, however old.
my $writer = session($node);
my $held = $writer->query("BEGIN; SELECT udb.enqueue('t', '\"late\"')");
$last = enqueue(250);
expired(1);
let_worker_look();
cmp_ok(sql($head), '<=', $held, 'the segment of an open transaction stays');
$writer->query('COMMIT');
is(sql("SELECT count(*) FROM udb.read('behind', 1000) WHERE event_seq = $held"), 1, 'so that its event is read');
$writer->quit;

unlike(slurp_file($node->logfile), qr/ERROR:(?!.*(dropped))|WARNING:|still waiting/, 'the worker met no error and nobody waited for a lock');
is(sql('SELECT count(*) - count(DISTINCT event_seq) FROM udb.outbox_events'), 0, 'no position is there twice');

# Kept for ever.
$node->append_conf('postgresql.conf', 'udb.outbox_retention = -1');
$node->reload;
sql("SELECT udb.drop_consumer(c) FROM unnest(ARRAY['behind', 'paused', 'rare']) c");
wait_for_sql($node, "SELECT setting = '-1' FROM pg_settings WHERE name = 'udb.outbox_retention'");
let_worker_look();
$gone = sql($dropped_through);
$last = enqueue(300);
let_worker_look();
is(sql($dropped_through), $gone, 'with retention switched off nothing is dropped');
is(sql('SELECT udb.sweep_outbox_retention()'), 0, 'nor by hand');

done_testing();
