# udb.worker_status: what it says is what the worker has done, failures and reloads included.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('status', conf => <<'CONF');
udb.worker_interval = 1s
udb.max_databases = 2
udb.outbox_segment_size = 100
CONF

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }
sub status { return sql("SELECT $_[1] FROM udb.worker_status WHERE sweep = '$_[0]'", $_[2]); }
sub wait_status { return wait_for_sql($node, "SELECT $_[1] FROM udb.worker_status WHERE sweep = '$_[0]'", 't', $_[2]); }
sub reconfigure
{
	my ($setting, $value) = @_;
	sql("ALTER SYSTEM SET $setting = $value");
	$node->reload;
	return;
}

# ---- what it shows -------------------------------------------------------------------------------

wait_for_sql($node, 'SELECT bool_and(runs > 0 AND last_duration IS NOT NULL) FROM udb.worker_status');
is(sql("SELECT string_agg(sweep, ', ' ORDER BY sweep) FROM udb.worker_status WHERE sweep IN ('outbox segments', 'outbox notify', 'outbox retention', 'dead events')"),
	'dead events, outbox notify, outbox retention, outbox segments', 'there is a row for each sweep');
is(sql('SELECT count(*) - count(DISTINCT sweep) FROM udb.worker_status'), 0, 'and one only');
is(sql("SELECT bool_and(s.worker_pid = a.pid AND s.worker_started_at BETWEEN a.backend_start AND s.last_run) FROM udb.worker_status s, pg_stat_activity a WHERE a.backend_type = 'udb worker'"),
	't', 'it names the worker, and since when it runs');
is(sql("SELECT bool_and(failures = 0 AND last_error IS NULL AND last_error_at IS NULL) FROM udb.worker_status"),
	't', 'nothing has failed');
is(sql("SELECT bool_and(last_duration >= '0' AND last_duration < '1 min' AND last_run <= clock_timestamp() AND next_run - last_run <= '2 s') FROM udb.worker_status"),
	't', 'times are plausible');
is(sql('SELECT count(DISTINCT next_run) FROM udb.worker_status'), 1, 'sweeps with the same interval share a wake-up');

my $runs = status('dead events', 'runs');
wait_status('dead events', "runs >= $runs + 3");
cmp_ok(sql("SELECT extract(epoch FROM clock_timestamp() - worker_started_at) * 1.2 + 2 - runs FROM udb.worker_status WHERE sweep = 'dead events'"),
	'>', 0, 'a sweep runs again and again, once in an interval');

# What was changed: a segment made ahead, and ten dead letters that were handled.
sql("SELECT count(udb.enqueue('t', '1')) FROM generate_series(1, 80)");
wait_status('outbox segments', 'total_changed >= 1');
sql("SELECT udb.create_consumer('c'); SELECT count(udb.dead_letter_event('c', event_seq)) FROM udb.peek(0, 10); SELECT udb.redrive_dead_letters('c')");
is(status('dead events', 'total_changed'), 0, 'what is not done yet is not counted');
sql("SELECT udb.checkpoint('c', udb.outbox_stable_seq())");
wait_status('dead events', 'total_changed = 10');
wait_status('dead events', 'last_changed = 0');
is(status('dead events', 'total_changed'), 10, 'changes are counted, and the last run had nothing to do');
is(sql('SELECT udb.sweep_dead_events()'), 0, 'called by hand, a sweep finds that it was done');
wait_status('outbox notify', 'total_changed > 0');
pass('notifications are counted');

# ---- settings ------------------------------------------------------------------------------------

my $pid = status('dead events', 'worker_pid');
reconfigure('udb.sweep_dead_events_interval', "'1h'");
wait_status('dead events', "next_run - clock_timestamp() > '5 min'");
pass('a longer interval is shown at once');
$runs = status('dead events', 'runs');
my $others = status('outbox retention', 'runs');
wait_status('outbox retention', "runs >= $others + 2");
is(status('dead events', 'runs'), $runs, 'and followed, while the others go on');
reconfigure('udb.sweep_dead_events_interval', 0);
wait_status('dead events', 'next_run IS NULL');
$others = status('outbox retention', 'runs');
wait_status('outbox retention', "runs >= $others + 2");
is(status('dead events', 'runs'), $runs, 'a sweep with interval 0 does not run by itself');
reconfigure('udb.sweep_dead_events_interval', 2);
wait_status('dead events', "runs >= $runs + 2");
pass('with an interval again it does');
is(status('dead events', 'next_run - clock_timestamp() <= interval \'2 s\''), 't', 'and in time');
reconfigure('udb.worker_interval', "'1h'");
wait_status('outbox retention', "next_run - clock_timestamp() > '5 min'");
is(status('dead events', 'next_run - clock_timestamp() <= interval \'2 s\''), 't', 'a sweep\'s own interval goes before that of all');
# One that is due does not wait for its time.
my $segments = status('outbox segments', 'total_changed');
sql("SELECT count(udb.enqueue('t', '1')) FROM generate_series(1, 100)");
wait_status('outbox segments', "total_changed > $segments");
pass('and what is due is done at once');
reconfigure('udb.worker_interval', "'1s'");
is(status('dead events', 'worker_pid'), $pid, 'all that in one worker');

# ---- a sweep that fails each time ----------------------------------------------------------------

my $log = -s $node->logfile;
sql('ALTER TABLE udb.dead_events RENAME TO dead_events_away');
my ($inside, $short) = (0, 0);
for my $n (1 .. 3)
{
	wait_status('dead events', "failures >= $n");
	my ($failures, $wait, $gone) = split /\|/,
	  status('dead events', "failures, extract(epoch FROM next_run - last_error_at), last_run IS NOT NULL AND last_duration IS NOT NULL");
	my $full = 2**($failures - 1);
	$inside++ if $wait > 0.74 * $full && $wait <= $full + 0.1;
	$short++ if $wait < $full - 0.002;
}
is($inside, 3, 'a sweep that fails is tried again after 1, 2, 4 seconds, less a quarter at most');
cmp_ok($short, '>', 0, 'and less by chance');
is(status('dead events', 'last_error'), 'relation "udb.dead_events" does not exist', 'its error is shown');
is(status('dead events', "last_error_at > clock_timestamp() - interval '1 min'"), 't', 'and when that was');
($runs, $others) = (status('dead events', 'runs'), status('outbox retention', 'runs'));
wait_status('outbox retention', "runs >= $others + 2 AND failures = 0");
cmp_ok(status('dead events', 'runs') - $runs, '<=', 1, 'the other sweeps go on in their time');
is(status('dead events', 'worker_pid'), $pid, 'in the same worker');
my @errors = slurp_file($node->logfile, $log) =~
  /(ERROR:  relation "udb\.dead_events" does not exist.*\n(?:.*\n){0,5}?.*CONTEXT:.*\n?.*udb worker job "dead events")/g;
cmp_ok(scalar @errors, '>=', 3, 'the log has each failure, and whose it was');
# A reload does not cut the waiting short.
my $next = status('dead events', 'next_run');
$node->reload;
wait_status('outbox retention', "runs >= $others + 4");
is(status('dead events', "failures > 3 OR next_run = '$next'"), 't', 'a reload leaves the back-off as it is');

sql('ALTER TABLE udb.dead_events_away RENAME TO dead_events');
wait_status('dead events', 'failures = 0');
is(status('dead events', 'last_error'), 'relation "udb.dead_events" does not exist', 'mended, it runs again; the error stays on record');

# ---- an error that is too long, and not ASCII ----------------------------------------------------

sql(<<'SQL');
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE '%', 'x' || repeat(U&'\00e4', 300); END $$;
CREATE TRIGGER complain BEFORE DELETE ON udb.dead_events FOR EACH STATEMENT EXECUTE FUNCTION complain();
SQL
wait_status('dead events', 'failures > 0');
is(status('dead events', "last_error = 'x' || repeat(U&'\\00e4', 127)"), 't', 'a long message is cut, between characters');

# ---- what outlives what --------------------------------------------------------------------------

my $error = status('dead events', 'last_error');
reconfigure('udb.worker', 'off');
wait_status('dead events', 'worker_pid IS NULL');
is(status('dead events', 'last_error'), $error, 'the error can be seen when the worker is gone');
is(sql('SELECT bool_and(next_run IS NULL AND worker_started_at IS NULL AND runs > 0) FROM udb.worker_status'), 't',
	'and there is no next run');
$runs = status('dead events', 'runs');
reconfigure('udb.worker', 'on');
wait_status('dead events', "runs > $runs AND worker_pid <> $pid");
pass('another worker counts on');
is(sql('SELECT udb.sweep_outbox_segments()'), 0, 'what is called by hand');
is(sql("SELECT sum(runs) FROM udb.worker_status WHERE sweep = 'no such'"), '', 'has no row of its own');

# Another extension in the same database, and another database in the same slot.
sql('DROP TRIGGER complain ON udb.dead_events; BEGIN; DROP EXTENSION udb; CREATE EXTENSION udb; COMMIT');
is(status('dead events', 'last_error IS NULL'), 't', 'a new extension has a record of its own');
wait_status('dead events', 'runs > 0 AND failures = 0');
is(status('dead events', 'total_changed'), 0, 'that begins with nothing');
sql("CREATE DATABASE other");
sql('CREATE EXTENSION udb', 'other');
wait_status('dead events', 'runs > 0', 'other');
sql('ALTER TABLE udb.dead_events RENAME TO dead_events_away', 'other');
wait_status('dead events', 'failures > 0', 'other');
is(status('dead events', 'failures'), 0, 'each database has its own');
sql('DROP DATABASE other; CREATE DATABASE other2');
sql('CREATE EXTENSION udb', 'other2');
wait_status('dead events', 'runs > 0', 'other2');
is(status('dead events', "failures || coalesce(last_error, ' none')", 'other2'), '0 none', 'also after another one\'s in the same slot');

# Only who may see it does.
is(sqlstate($node, 'CREATE ROLE nobody; SET ROLE nobody; SELECT * FROM udb.worker_status'), '42501', 'not everybody sees it');
is(sqlstate($node, 'SET ROLE nobody; SELECT * FROM udb._worker_status()'), '42501', 'nor what it is made of');
is(sqlstate($node, "SELECT udb.grant_role('nobody', 'monitor'); SET ROLE nobody; SELECT * FROM udb.worker_status"), '', 'a monitor does');

# ---- a sweep that has much to do -----------------------------------------------------------------

# Twelve old segments, each of which takes half a second to drop.
sql("SELECT count(udb.enqueue('t', '1')) FROM generate_series(1, 1300)");
sql(<<'SQL');
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
CREATE TRIGGER slow AFTER INSERT OR UPDATE ON udb.outbox_state FOR EACH ROW EXECUTE FUNCTION slow();
SQL
$runs = status('dead events', 'runs');
reconfigure('udb.outbox_retention', 1);
wait_status('outbox retention', 'last_changed > 0 AND last_duration IS NULL');
$others = status('outbox retention', 'last_run');
$runs = status('dead events', 'runs');
wait_status('dead events', "runs >= $runs + 2");
is(status('outbox retention', "last_run = '$others' AND last_duration IS NULL"), 't', 'others have their turn between its transactions');
wait_status('outbox retention', "last_run = '$others' AND last_changed >= 12 OR last_run > '$others'");
cmp_ok(status('outbox retention', 'total_changed'), '>=', 12, 'and it goes on until all is done');

done_testing();
