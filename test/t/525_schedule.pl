# Schedules and the worker: on time, at once after a change, and never twice across crashes, restarts and promotion.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

# the timer alone would be too late for all that is tested here
my $node = new_cluster('schedule', streaming => 1, conf => "udb.worker_interval = 3600\n");
sub sql { return $node->safe_psql('postgres', $_[0]); }
my $worker = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'postgres'";
my $sent = "SELECT count(*) FROM udb.jobs WHERE queue =";

wait_for_sql($node, "SELECT count(*) FROM ($worker) w", 1);
sql('CREATE EXTENSION udb_test CASCADE');

# ---- on time ----

sql("SELECT udb.schedule('second', '\@every 1s', 'second')");
wait_for_sql($node, "SELECT count(*) >= 5 FROM udb.jobs WHERE queue = 'second'");
sql("SELECT udb.unschedule('second')");
my @apart = split /\n/, sql("SELECT extract(epoch FROM created_at - lag(created_at) OVER (ORDER BY job_id)) FROM udb.jobs WHERE queue = 'second' OFFSET 1");
cmp_ok(scalar(@apart), '>=', 4, 'a schedule fires again and again');
is_deeply([ grep { $_ < 0.5 || $_ > 1.5 } @apart ], [], 'a second apart');
note("seconds apart: @apart");

# a schedule that begins later does not wait for one that the worker knew already
sql("SELECT udb.schedule('hour', '\@every 1h', 'hour')");
sql("SELECT udb.schedule('soon', '\@every 1s', 'soon')");
wait_for_sql($node, "SELECT count(*) > 0 FROM udb.jobs WHERE queue = 'soon'");
my ($delay) = sql("SELECT extract(epoch FROM last_fired_at - last_run_at) FROM udb.schedule_status WHERE name = 'soon'");
note("late by $delay s");
cmp_ok($delay, '<', 1, 'and fires on time');
sql("SELECT udb.unschedule('soon')");
is(sql("$sent 'hour'"), 0, 'which one that is not due does not do');

# rolled back, or in a subtransaction that was, it does not fire; at the end of the transaction it does
sql("BEGIN; SAVEPOINT s; SELECT udb.schedule('never', '\@every 1s', 'never'); ROLLBACK TO s; SELECT udb.schedule('inner', '\@every 1s', 'inner'); COMMIT");
wait_for_sql($node, "SELECT count(*) > 0 FROM udb.jobs WHERE queue = 'inner'");
is(sql("$sent 'never'"), 0, 'a schedule that was rolled back does not fire');
sql("SELECT udb.unschedule('inner')");

# ---- while nothing is due, the worker does nothing ----

# the time that it knew may still wake it once
sql('SELECT pg_sleep(1.5)');
my $runs = sql("SELECT runs FROM udb.worker_status WHERE sweep = 'schedules'");
my $lsn = sql('SELECT pg_current_wal_insert_lsn()');
my $xid = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
sql('SELECT pg_sleep(2)');
is(sql("SELECT runs FROM udb.worker_status WHERE sweep = 'schedules'"), $runs, 'the worker sleeps until something is due');
is(sql('SELECT pg_snapshot_xmax(pg_current_snapshot())'), $xid, 'and takes no transaction id');

# ---- one that is locked does not keep the worker busy, nor hold the others ----

my $holder = session($node);
$holder->query("SELECT udb.schedule('locked', '\@every 1h', 'locked')");
sql("UPDATE udb.schedules SET next_run_at = clock_timestamp() - interval '1 min' WHERE name = 'locked'");
$holder->query('BEGIN');
$holder->query("SELECT FROM udb.schedules WHERE name = 'locked' FOR UPDATE");
sql("SELECT udb.schedule('free', '\@every 1s', 'free')");
wait_for_sql($node, "SELECT count(*) >= 2 FROM udb.jobs WHERE queue = 'free'");
$runs = sql("SELECT runs FROM udb.worker_status WHERE sweep = 'schedules'");
sql('SELECT pg_sleep(2)');
cmp_ok(sql("SELECT runs FROM udb.worker_status WHERE sweep = 'schedules'") - $runs, '<=', 10, 'a locked schedule keeps nobody busy');
is(sql("$sent 'locked'"), 0, 'and does not fire');
$holder->query('COMMIT');
wait_for_sql($node, "$sent 'locked'", 1);
is(sql("SELECT udb.unschedule('free'), udb.unschedule('locked')"), 't|t', 'until it is free');

# ---- kill -9 in the middle of a firing: of the server's, and of the worker ----

# a day ago, and missed ever since
sub make_due
{
	my ($name) = @_;
	my $s = session($node);

	# in one transaction, so that the worker does not come in between
	$s->query("BEGIN; SELECT udb.schedule('$name', '\@every 1h', '$name', ordering_key => 'k')");
	$s->query("UPDATE udb.schedules SET next_run_at = clock_timestamp() - interval '1 day' WHERE name = '$name'");
	return $s;
}

my $s = make_due('crash');
$holder = session($node);
$holder->query('SELECT pg_advisory_lock(7)');
$s->query("SELECT udb_test.pause_at('next-firing', 7)");
$s->send('SELECT udb.sweep_schedules(); COMMIT');
wait_for_sql($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted", 1);
crash_backend($node, $s->pid);
is(sql("$sent 'crash'") . sql("SELECT count(*) FROM udb.schedules WHERE name = 'crash'"), '00', 'a crash takes back a firing that was not committed, whole');

$s = make_due('crash');
$s->query('COMMIT');
wait_for_sql($node, "$sent 'crash'", 1);
is(sql("SELECT next_run_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 h', overdue FROM udb.schedule_status WHERE name = 'crash'"),
	't|00:00:00', 'a day of missed firings is one');

# the worker waits for the ordering key, in the middle of a firing
wait_for_sql($node, "SELECT count(*) FROM ($worker) w", 1);
$holder = session($node);
$holder->query("BEGIN; SELECT udb.send_job('killed', ordering_key => 'k')");
$s = make_due('killed');
$s->query('COMMIT');
wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb worker' AND wait_event_type = 'Lock'", 1);
crash_backend($node, sql($worker));
wait_for_sql($node, "$sent 'killed'", 1);
is(sql("SELECT last_job_id = (SELECT job_id FROM udb.jobs WHERE queue = 'killed') FROM udb.schedule_status WHERE name = 'killed'"), 't',
	'if the worker is killed, the next one fires, once');

# the firing was committed a moment before the crash: it is not repeated, even though the worker does not flush as a rule
$s = make_due('flushed');
$s->query('COMMIT');
wait_for_sql($node, "$sent 'flushed'", 1);
my $job = sql("SELECT job_id FROM udb.jobs WHERE queue = 'flushed'");
crash_server($node);
$node->start;
wait_for_sql($node, "SELECT count(*) FROM ($worker) w", 1);
sql('SELECT udb.sweep_schedules()');
is(sql("SELECT string_agg(job_id::text, ',') FROM udb.jobs WHERE queue = 'flushed'"), $job, 'what has fired before a crash is not fired again');

# ---- prepared: nobody tells the worker, its timer finds it ----

$node->append_conf('postgresql.conf', "udb.worker_interval = 1\n");
$node->reload;
$s = make_due('prepared');
$s->query("PREPARE TRANSACTION 'p'");
sql("COMMIT PREPARED 'p'");
wait_for_sql($node, "$sent 'prepared'", 1);
is(sql("SELECT overdue FROM udb.schedule_status WHERE name = 'prepared'"), '00:00:00', 'a schedule of a prepared transaction fires too');
$node->append_conf('postgresql.conf', "udb.worker_interval = 3600\n");
$node->reload;

# ---- restart ----

sql('ALTER SYSTEM SET udb.worker = off');
$node->reload;
wait_for_sql($node, "SELECT count(*) FROM ($worker) w", 0);
sql("SELECT udb.schedule('down', '\@every 1s', 'down')");
$node->stop;
sleep 3;
$node->start;
is(sql("$sent 'down'"), 0, 'without a worker nothing fires');
sql('ALTER SYSTEM RESET udb.worker');
$node->reload;
wait_for_sql($node, "SELECT count(*) >= 4 FROM udb.jobs WHERE queue = 'down'");
sql("SELECT udb.unschedule('down')");
is(sql(<<'SQL'), 't', 'after a restart the missed firings are one, and then it goes on by the second');
SELECT bool_and(apart > '0.2 s') FROM (SELECT lead(created_at, 1) OVER w - created_at AS apart, row_number() OVER w AS n
	FROM udb.jobs WHERE queue = 'down' WINDOW w AS (ORDER BY job_id)) j WHERE n > 1
SQL

# ---- promotion, and a dump ----

my $standby = new_standby($node, 'promoted');
sql('ALTER SYSTEM SET udb.worker = off');
$node->reload;
wait_for_sql($node, "SELECT count(*) FROM ($worker) w", 0);
$s = make_due('promoted');
$s->query('COMMIT');
my $before = sql("SELECT last_job_id FROM udb.schedules WHERE name = 'flushed'");
my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $file ], 'schedules can be dumped');
$node->wait_for_catchup($standby);
is(sqlstate($standby, 'SELECT udb.sweep_schedules()'), '25006', 'a standby does not fire');
$node->stop;
$standby->promote;
wait_for_sql($standby, "$sent 'promoted'", 1);
is($standby->safe_psql('postgres', "SELECT last_job_id FROM udb.schedules WHERE name = 'flushed'"), $before, 'after a promotion what was due fires, and nothing else');

my $other = new_cluster('restored', extension => 0, conf => "udb.worker = off\n");
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $file ], 'and restored');
is($other->safe_psql('postgres', 'SELECT udb.sweep_schedules()'), 1, 'where what was due fires');
is($other->safe_psql('postgres', "$sent 'promoted'"), 1, 'once');

# ---- README's session ----

my $readme = slurp_file(($ENV{UDB_TREE} // '.') . '/README.md');
$readme =~ /^## Schedules\n(.*?)^## /ms or die 'README has no section "Schedules"';
my @session = $1 =~ /^```sql\n(.*?)^```/msg;
$other->safe_psql('postgres', 'DELETE FROM udb.schedules');
is($other->safe_psql('postgres', $session[0]), "t\nt", 'README\'s session begins');
$other->append_conf('postgresql.conf', "udb.worker = on\n");
$other->reload;
wait_for_sql($other, "SELECT count(*) > 0 FROM udb.jobs WHERE queue = 'beats'");
is($other->safe_psql('postgres', $session[1]),
	"heartbeat|\@every 1s|UTC|beats|t|00:00:00|\nnightly report|30 2 * * mon-fri|Europe/Berlin|reports|f|00:00:00|", 'goes on');
is($other->safe_psql('postgres', $session[2]), "2026-03-29 03:00:00\nt", 'and ends as it shows');

done_testing();
