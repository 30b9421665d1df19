# What the worker does with registries: handlers, of which one that always fails holds nobody up; one notification for
# many changes; nothing lost or done twice when processes are killed. And sessions that have lost messages.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker_interval = 1\nudb.notify_interval = 200\n");
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
SELECT udb.create_registry('r'), udb.create_registry('loop');
CREATE TABLE got (n serial, consumer text, key text, record jsonb, seq bigint, removals boolean);
CREATE FUNCTION take(consumer text, records udb.registry_record[], removals boolean) RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.got (consumer, key, record, seq, removals)
	SELECT consumer, r.key, r.record, r.seq, removals FROM unnest(records) r
$$;
CREATE FUNCTION fail(consumer text, records udb.registry_record[], removals boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE 'never';
END
$$;
CREATE FUNCTION again(consumer text, records udb.registry_record[], removals boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM udb.touch_record('loop', 'a');
END
$$;
SELECT udb.create_registry_consumer('fails', 'r', 'fail(text, udb.registry_record[], boolean)'),
	udb.create_registry_consumer('takes', 'r', 'take(text, udb.registry_record[], boolean)'),
	udb.create_registry_consumer('waits', 'r');
SQL

# ---- handlers ----

sql("SELECT udb.put_record('r', 'a', '1'), udb.put_record('r', 'b', '2')");
wait_for_sql($node, "SELECT string_agg(consumer || key || seq, ' ' ORDER BY n) FROM got", 'takesa1 takesb2');
wait_for_sql($node, "SELECT failures > 1 AND last_error = 'P0001: never' AND lag = 2 FROM udb.registry_consumer_status WHERE consumer = 'fails'");
pass('a handler that fails is tried again, and its error kept');
sql("SELECT udb.put_record('r', 'a', '3')");
wait_for_sql($node, "SELECT string_agg(consumer || key || seq, ' ' ORDER BY n) FROM got", 'takesa1 takesb2 takesa3');
pass('while another one gets all');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb worker'"), 1, 'by the same worker');
sql("CREATE OR REPLACE FUNCTION fail(consumer text, records udb.registry_record[], removals boolean) RETURNS void LANGUAGE sql AS \$\$ SELECT public.take(consumer, records, removals) \$\$");
wait_for_sql($node, "SELECT string_agg(key || seq, ' ' ORDER BY n) FROM got WHERE consumer = 'fails'", 'b2 a3');
is(sql("SELECT failures, last_error, lag FROM udb.registry_consumer_status WHERE consumer = 'fails'"), '0||0',
	'mended, it gets what it has missed, each row in its last state');

# a prepared change, whose end has no callbacks
sql("BEGIN; SELECT udb.put_record('r', 'c', '4'); PREPARE TRANSACTION 'one'");
sql("COMMIT PREPARED 'one'");
wait_for_sql($node, "SELECT count(*) FROM got WHERE seq = 4", 2);
pass('COMMIT PREPARED wakes the worker');

# ---- one that never comes to an end ----

sql("SELECT udb.create_registry_consumer('loops', 'loop', 'again(text, udb.registry_record[], boolean)'), udb.put_record('loop', 'a', '1')");
wait_for_sql($node, "SELECT udb.watermark('loop') > 150");
sql("SELECT udb.put_record('r', 'd', '5')");
wait_for_sql($node, "SELECT count(*) FROM got WHERE seq = 5", 2);
pass('a handler that changes its own registry leaves others their turn');
my $listener = session($node);
$listener->query('LISTEN udb_outbox');
sql("SELECT udb.enqueue('t', '1')");
wait_for('a notification of the outbox', sub { return $listener->query('SELECT 1') =~ /udb_outbox/ });
pass('and the worker\'s other jobs theirs');
sql("SELECT udb.drop_registry_consumer('loops')");

# ---- notifications ----

$listener->query('UNLISTEN *; LISTEN udb_registry');
wait_for('quiet', sub { sleep 1; return $listener->query('SELECT 1') !~ /udb_registry/ });
sql(join ';', map { "SELECT udb.put_record('r', 'k', '$_')" } 1 .. 200);
my $heard = '';
wait_for('a notification', sub { return ($heard .= $listener->query('SELECT 1')) =~ /udb_registry/ });
sleep 1;
$heard .= $listener->query('SELECT 1');
my $n = () = $heard =~ /Asynchronous notification "udb_registry"/g;
cmp_ok($n, '<', 20, "200 commits are $n notifications");
unlike($heard, qr/with payload/, 'without payload');
wait_for('quiet', sub { sleep 1; return $listener->query('SELECT 1') !~ /udb_registry/ });
sql("SELECT udb.announce('t', 'k', '1')");
wait_for('a notification of an announcement', sub { return $listener->query('SELECT 1') =~ /udb_registry/ });
pass('an announcement notifies, too');
$listener->quit;

# ---- nothing to do writes nothing ----

wait_for_sql($node, "SELECT sum(lag) FROM udb.registry_consumer_status WHERE handler IS NOT NULL", 0);
my $idle = sub { return sql('SELECT count(*) FROM (SELECT udb.sweep_registries()) x; SELECT pg_current_xact_id_if_assigned() IS NULL') };
is(sql("BEGIN; SELECT udb.sweep_registries(); SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT"), "0\nt",
	'a sweep that finds nothing takes no transaction id');

# ---- sessions that have fallen behind ----

my $reader = session($node);
my $lock = session($node);
$lock->query('SELECT pg_advisory_lock(1)');
$reader->query("SELECT udb.resolve('r', 'a'), udb.resolve('r', 'b')");
# while it is busy it takes no messages: four thousand make the server give up on it
$reader->send("SELECT pg_advisory_lock(1), udb.resolve('r', 'a'), udb.resolve('r', 'b') IS NULL");
wait_for_sql($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1);
sql("SELECT udb.put_record('r', 'a', '\"late\"'), udb.remove_record('r', 'b')");
sql("DO \$\$ BEGIN FOR i IN 1 .. 1500 LOOP EXECUTE 'CREATE TABLE filler (a int, b text)'; EXECUTE 'DROP TABLE filler'; COMMIT; END LOOP; END \$\$");
$lock->query('SELECT pg_advisory_unlock(1)');
is($reader->receive, '|"late"|t', 'a session that has lost messages resolves what is there now');

# what is written past the functions in another session
sql("UPDATE udb.registry_records SET record = '\"open\"' WHERE registry = 'r' AND key = 'a'");
is($reader->query("SELECT udb.resolve('r', 'a')"), '"open"', 'a session hears of what is written past the functions');
$reader->quit;
$lock->quit;

# ---- crashes ----

sql('TRUNCATE got');
sql("SELECT udb.drop_registry_consumer('fails')");
my $before = sql("SELECT udb.watermark('r')");
my @writers = map { session($node) } 1 .. 2;
for my $round (1 .. 3)
{
	$_->send("DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP PERFORM udb.put_record('r', 'x' || i % 50, to_jsonb(i)); COMMIT; END LOOP; END \$\$")
	  foreach @writers;
	wait_for_sql($node, "SELECT count(*) > 100 * $round FROM got");
	crash_backend($node, $round == 2 ? $writers[0]->pid : sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb worker' LIMIT 1"));
	$_->receive_all foreach @writers;
	$_->quit foreach @writers;
	@writers = map { session($node) } 1 .. 2;
}
$_->quit foreach @writers;
wait_for_sql($node, "SELECT lag = 0 FROM udb.registry_consumer_status WHERE consumer = 'takes'");
is(sql('SELECT count(*) - count(DISTINCT seq) FROM got'), 0, 'killed in between, no row is handed over twice');
is(sql("SELECT count(*) FROM udb.registry_records r WHERE registry = 'r' AND seq > $before AND NOT EXISTS (SELECT FROM got g WHERE g.seq = r.seq)"),
	0, 'and none is left out');
is(sql("SELECT bool_and(seq > before) FROM (SELECT seq, lag(seq, 1, 0) OVER (ORDER BY n) AS before FROM got) g"), 't', 'they come in order');
is(sql("SELECT max(seq) = udb.watermark('r') FROM udb.registry_records WHERE registry = 'r'"), 't', 'and the last number is the watermark');

done_testing();
