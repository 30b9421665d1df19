# What happens to a sweep that is at work: DROP EXTENSION waits for it, DROP DATABASE ends it, and so does a crash, after
# which it is done again. It holds up nobody in other databases.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('stopped', extension => 0, conf => <<'CONF');
udb.worker_interval = 1s
autovacuum = off
udb.max_databases = 5
CONF

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }
my $workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'victim'";
my $stopped = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'victim' AND wait_event = 'PgSleep'";

# A database whose worker stops in the middle of a sweep that has written something, until the table stop is empty.
sub stopped_database
{
	sql('DROP DATABASE IF EXISTS victim');
	sql('CREATE DATABASE victim');
	sql(<<'SQL', 'victim');
CREATE EXTENSION udb;
CREATE TABLE swept (n int);
CREATE TABLE stop (here int);
INSERT INTO stop VALUES (1);
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO public.swept VALUES (1);
	WHILE EXISTS (SELECT FROM public.stop) LOOP
		PERFORM pg_sleep(0.1);
	END LOOP;
	RETURN NULL;
END $$;
SELECT udb.create_consumer('c'), udb.enqueue('t', '1');
SELECT udb.dead_letter_event('c', event_seq) FROM udb.peek(0);
SELECT udb.redrive_dead_letters('c');
CREATE TRIGGER stop AFTER DELETE ON udb.dead_events FOR EACH ROW EXECUTE FUNCTION stop();
SELECT udb.checkpoint('c', udb.outbox_stable_seq());
SQL
	wait_for_sql($node, $stopped);
	return;
}

# ---- while it is at work -------------------------------------------------------------------------

sql('CREATE DATABASE other');
sql('CREATE EXTENSION udb', 'other');
stopped_database();
is(sql("SELECT last_run < clock_timestamp(), last_duration IS NULL FROM udb.worker_status WHERE sweep = 'dead events'", 'victim'),
	't|t', 'a sweep that is at work has a start, and no duration yet');
is(sql('SELECT udb.sweep_outbox_segments(), udb.sweep_outbox_retention()', 'victim'), '0|0', 'others can be called meanwhile');
my $start = time;
sql('CREATE DATABASE third; DROP DATABASE other');
cmp_ok(time - $start, '<', 30, 'and other databases made and dropped, which needs an answer from every process');

# ---- DROP EXTENSION ------------------------------------------------------------------------------

my $dropper = session($node, database => 'victim');
$dropper->send('DROP EXTENSION udb');
wait_for_sql($node, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $dropper->pid);
pass('DROP EXTENSION waits for the sweep');
sql('DELETE FROM stop', 'victim');
$dropper->receive;
$dropper->quit;
is(sql('SELECT count(*) FROM swept', 'victim'), 1, 'which is done before');
wait_for_sql($node, $workers, 0);
pass('the worker leaves');
sql('CREATE EXTENSION udb', 'victim');
wait_for_sql($node, $workers, 1);
pass('and comes again with the next extension');

# With the longest interval there is, it leaves when the drop commits, and stays when that is rolled back.
sql("ALTER SYSTEM SET udb.worker_interval = '1h'");
$node->reload;
wait_for_sql($node, "SELECT bool_and(next_run > clock_timestamp() + interval '1 min') FROM udb.worker_status", 't', 'victim');
my $pid = sql('SELECT DISTINCT worker_pid FROM udb.worker_status', 'victim');
sql('BEGIN; DROP EXTENSION udb; ROLLBACK', 'victim');
is(sql('SELECT DISTINCT worker_pid FROM udb.worker_status', 'victim'), $pid, 'a DROP EXTENSION that is rolled back leaves the worker alone');
sql('BEGIN; SAVEPOINT a; DROP EXTENSION udb; ROLLBACK TO a; COMMIT', 'victim');
wait_for_sql($node, "SELECT bool_and(worker_pid <> $pid) FROM udb.worker_status", 't', 'victim');
pass('one that is rolled back to a savepoint costs nothing but a new worker');
sql('DROP EXTENSION udb', 'victim');
$start = time;
wait_for_sql($node, $workers, 0);
cmp_ok(time - $start, '<', 30, 'DROP EXTENSION makes the worker leave, long before its next job');
sql("ALTER SYSTEM SET udb.worker_interval = '1s'");
$node->reload;

# ---- DROP DATABASE -------------------------------------------------------------------------------

stopped_database();
$start = time;
my ($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE victim');
is($err, '', 'a database can be dropped in the middle of a sweep');
cmp_ok(time - $start, '<', 15, 'at once');
is(sql($workers), 0, 'its worker is gone');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb launcher'"), 1, 'the launcher is not');

# ---- crash ---------------------------------------------------------------------------------------

stopped_database();
$pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'victim'");
crash_backend($node, $pid);
wait_for_sql($node, $stopped);
pass('after a crash in the middle of a sweep it is at work again');
is(sql('SELECT count(*) FROM swept', 'victim'), 0, 'from the beginning');
is(sql("SELECT runs FROM udb.worker_status WHERE sweep = 'dead events'", 'victim'), 1, 'and so is the record of what was done');
# A worker that is terminated does not say what it was doing, but that it began.
$pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'victim'");
sql("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, "SELECT runs = 2 FROM udb.worker_status WHERE sweep = 'dead events' AND worker_pid <> $pid", 't', 'victim');
pass('a terminated worker is followed by another one, which tries again');
sql('DELETE FROM stop', 'victim');
wait_for_sql($node, 'SELECT count(*) = 0 FROM udb.dead_events', 't', 'victim');
is(sql('SELECT count(*) FROM swept', 'victim'), 1, 'in the end it is done once');

done_testing();
