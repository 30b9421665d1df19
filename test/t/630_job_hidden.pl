# No job is hidden: one that a claim had made ready before it was rolled back, one whose claim was shortened,
# those that a sweep could not deal with at once, and those of workers with a fixed snapshot. Each would be
# found within a minute anyway, when hints are forgotten; here nobody waits for that.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker = off\nfsync = off\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Whether the queue's job is claimed within seconds.
sub found
{
	my ($queue, $begin) = @_;

	return sql(($begin // '') . "SELECT udb.wait_for_jobs('$queue', '5 s'); SELECT count(*) FROM udb.claim_jobs('$queue', 'w')") =~ /^t\n1$/m;
}

# ---- made ready, and rolled back -----------------------------------------------------------------

# A claim that gets nothing knows when the job is due.
my $delayed = sub
{
	sql("SELECT udb.send_job('$_[0]', delay => '100 ms'); SELECT udb.claim_jobs('$_[0]', 'w'); SELECT pg_sleep(0.2)");
	return;
};

$delayed->('abort');
is(sql("BEGIN; SELECT count(*) FROM udb.claim_jobs('abort', 'w'); ROLLBACK"), 1, 'a delayed job is claimed');
ok(found('abort'), 'and, when that is rolled back, again');

$delayed->('savepoint');
is(sql("BEGIN; SAVEPOINT a; SELECT count(*) FROM udb.claim_jobs('savepoint', 'w'); ROLLBACK TO a; COMMIT"), 1, 'in a savepoint');
ok(found('savepoint'), 'the same');

sql("SELECT udb.send_job('many' || i, delay => '300 ms') FROM generate_series(1, 40) i; SELECT udb.claim_jobs('many40', 'w'); SELECT pg_sleep(0.4)");
sql('BEGIN; ' . join('', map { "SELECT count(*) FROM udb.claim_jobs('many$_', 'w');" } 1 .. 40) . 'ROLLBACK');
ok(found('many40'), 'in many queues');

my $worker = session($node);
my $waiter = session($node);
$delayed->('wake');
$worker->query("BEGIN; SELECT FROM udb.claim_jobs('wake', 'w')");
$waiter->send("CALL udb.await_jobs('wake', '1 min')");
wait_for_sql($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $waiter->pid);
my $start = time;
$worker->query('ROLLBACK');
is($waiter->receive, 't', 'who waits is told');
cmp_ok(time - $start, '<', 10, 'at once');

# ---- a claim that is shortened -------------------------------------------------------------------

sql("SELECT udb.send_job('short') FROM generate_series(1, 3)");
# the others have passed the first
sql("SELECT udb.claim_jobs('short', 'w', 1, '1 hour')") for 1 .. 4;
$waiter->send("CALL udb.await_jobs('short', '1 min')");
wait_for_sql($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $waiter->pid);
$start = time;
my $first = "(SELECT job_id FROM udb.jobs WHERE queue = 'short' ORDER BY job_id LIMIT 1)";
is(sql("SELECT udb.extend_job(job_id, claim_token, '200 ms') FROM udb.jobs WHERE job_id = $first"), 't', 'a claim is shortened');
is($waiter->receive, 't', 'who waits is told when it runs out');
cmp_ok(time - $start, '<', 10, 'in time');
is(sql("SELECT job_id = $first FROM udb.claim_jobs('short', 'w')"), 't', 'and the job is taken over');
is(sql("SELECT udb.extend_job(job_id, claim_token, '1 hour') FROM udb.jobs WHERE job_id = $first"), 't', 'that claim is extended');
is(sql("SELECT udb.ack_job(job_id, claim_token) FROM udb.jobs WHERE job_id = $first"), 't', 'and the job done');

# ---- more than a sweep deals with ----------------------------------------------------------------

sql("SELECT udb.send_job('sweep', max_attempts => 1) FROM generate_series(1, 2500); SELECT count(*) FROM udb.claim_jobs('sweep', 'w', 3000, '100 ms')");
wait_for_sql($node, "SELECT udb.sweep_jobs() >= 0 AND count(*) = 2500 FROM udb.dead_jobs WHERE queue = 'sweep'");
pass('all claims that have run out are swept');

# ---- fixed snapshots -----------------------------------------------------------------------------

my $fixed = 'SET default_transaction_isolation = "repeatable read"; ';
$delayed->('fixed');
ok(found('fixed', $fixed), 'a delayed job is claimed in REPEATABLE READ');
is(sql("$fixed SELECT udb.retry_job(job_id, claim_token, '1 ms') FROM udb.jobs WHERE queue = 'fixed'"), 't', 'it is tried again');
ok(found('fixed', $fixed), 'and claimed there again');
is(sql("SELECT attempts, state, due_at IS NULL FROM udb.jobs WHERE queue = 'fixed'"), '2|claimed|t', 'as it should be');

$delayed->('undone');
is(sql("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM udb.claim_jobs('undone', 'w'); ROLLBACK"), 1, 'and in SERIALIZABLE');
ok(found('undone'), 'when that is rolled back, by anybody');

sql("SELECT udb.send_job('passed', delay => '1 ms') FROM generate_series(1, 3); SELECT pg_sleep(0.01)");
$worker->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT');
is($worker->query('SELECT count(*) FROM udb.jobs WHERE queue = \'passed\''), 3, 'a snapshot is taken');
is(sql("SELECT count(*) FROM udb.claim_jobs('passed', 'w')"), 1, 'somebody else claims');
is($worker->query("SELECT count(*) FROM udb.claim_jobs('passed', 'w', 5)"), 0, 'what has changed since is not touched');
$worker->query('COMMIT');
is(sql("SELECT count(*) FROM udb.claim_jobs('passed', 'w', 5)"), 2, 'the others are there');

is(sql("$fixed SELECT udb.wait_for_jobs('nothing', '300 ms')"), 'f', 'there it waits for nothing');
my $late = session($node);
$late->query($fixed);
$late->send("CALL udb.await_jobs('new', '1 min')");
wait_for_sql($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $late->pid);
$start = time;
sql("SELECT udb.send_job('new')");
is($late->receive, 't', 'await_jobs() sees what is sent later');
cmp_ok(time - $start, '<', 10, 'at once');
is($late->query('SHOW transaction_isolation'), 'repeatable read', 'and leaves the next transaction alone');

# ---- long waits ----------------------------------------------------------------------------------

sql("SELECT udb.create_consumer('nobody')");
for my $call ("CALL udb.await_jobs('long', '900 years')", "SELECT udb.wait_for_jobs('long', '30 days')",
	"CALL udb.await_events('nobody', '900 years')")
{
	is(sqlstate($node, "SET statement_timeout = '300 ms'; $call"), '57014', "$call waits, and can be cancelled");
}

done_testing();
