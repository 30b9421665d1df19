# 16 workers that claim, fail, let claims run out, acknowledge and roll back at random, senders with keys, and a
# snapshot held: each job is done exactly once, jobs of a key in order. And who waits is woken.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker_interval = 1s\nudb.sweep_jobs_interval = 1s\nfsync = off\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
CREATE TABLE done (n int, job_id bigint, key text, at bigserial);
SQL
my $script = $node->data_dir . '/../work.sql';
open(my $fh, '>', $script) or die $!;
# a third of the claims is rolled back, given back, or forgotten
print $fh <<'SQL';
\set what random(1, 12)
\set n random(1, 10)
\if :what = 1
BEGIN;
SELECT count(*) FROM udb.claim_jobs('q', 'w' || :client_id, :n, '1 min');
ROLLBACK;
\elif :what = 2
SELECT count(udb.retry_job(job_id, claim_token, '1 ms')) FROM udb.claim_jobs('q', 'w' || :client_id, :n, '1 min');
\elif :what = 3
SELECT count(*) FROM udb.claim_jobs('q', 'w' || :client_id, :n, '30 ms');
\elif :what = 4
SELECT count(*) FROM udb.send_jobs('q', ARRAY(SELECT to_jsonb(nextval('sent')) FROM generate_series(1, 3)), max_attempts => 1000,
	ordering_keys => ARRAY['k' || random(1, 5), NULL, NULL]);
\else
BEGIN;
WITH c AS MATERIALIZED (SELECT * FROM udb.claim_jobs('q', 'w' || :client_id, :n, '1 min')),
	d AS (INSERT INTO done SELECT payload::int, job_id, ordering_key FROM c)
SELECT udb.ack_jobs(coalesce(array_agg(job_id), '{}'), coalesce(max(claim_token), 0)) FROM c;
COMMIT;
\endif
SQL
close $fh;
sql('CREATE SEQUENCE sent; CREATE FUNCTION random(a int, b int) RETURNS int LANGUAGE sql AS $$ SELECT a + floor(random() * (b - a + 1))::int $$');
my $holder = session($node);
$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query('SELECT 1');
$node->command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 60, '-f', $script, $node->connstr('postgres') ],
	'16 workers at random');
$holder->query('COMMIT');
my $rest = q{WITH c AS MATERIALIZED (SELECT * FROM udb.claim_jobs('q', 'last', 100, '1 min')),
	d AS (INSERT INTO done SELECT payload::int, job_id, ordering_key FROM c)
	SELECT udb.ack_jobs(coalesce(array_agg(job_id), '{}'), coalesce(max(claim_token), 0)) FROM c};
# what is forgotten every minute may not be what finds a job
my $begin = time;
wait_for('the rest', sub { sql($rest); sql('SELECT count(*) FROM udb.jobs') == 0 });
cmp_ok(time - $begin, '<', 30, 'the rest is found soon');
is(sql('SELECT count(*) = (SELECT last_value FROM sent), count(DISTINCT n) = count(*) FROM done'), 't|t', 'each job is done once');
is(sql('SELECT count(*) FROM udb.dead_jobs'), 0, 'none has died');
is(sql('SELECT count(*) FROM (SELECT job_id < lag(job_id) OVER (PARTITION BY key ORDER BY at) AS back FROM done WHERE key IS NOT NULL) k WHERE back'),
	0, 'those of a key in order') or diag(sql('SELECT * FROM done WHERE key IS NOT NULL ORDER BY key, at'));

# ---- waiting ----

sub waiting
{
	my ($n) = @_;
	return wait_for_sql($node,
		"SELECT count(*) = $n FROM pg_stat_activity WHERE state = 'active' AND wait_event_type = 'Extension' AND query ~ '(wait_for|await)_jobs' AND pid <> pg_backend_pid()");
}
my $waiter = session($node);
sub woken_by
{
	my ($what, $sql) = @_;

	$waiter->send(q{SELECT udb.wait_for_jobs('w', '100 s')});
	waiting(1);
	sql($sql);
	my $start = time;
	is($waiter->receive, 't', "woken by $what");
	cmp_ok(time - $start, '<', 20, 'and soon');
}
my $clear = q{DELETE FROM udb.jobs};
is(sql(q{SELECT udb.wait_for_jobs('w', '10 ms')}), 'f', 'nothing to wait for');
woken_by('a job', q{SELECT udb.send_job('w')});
is(sql(q{SELECT udb.wait_for_jobs('w', '100 s')}), 't', 'with one there is no wait');
sql($clear);
woken_by('the time of a delayed one', q{SELECT udb.send_job('w', delay => '300 ms')});
my $token = sql(q{SELECT claim_token FROM udb.claim_jobs('w', 'x', 1, '1 h')});
woken_by('a retry', qq{SELECT udb.retry_job(job_id, $token, '0') FROM udb.jobs});
$token = sql(q{SELECT claim_token FROM udb.claim_jobs('w', 'x', 1, '300 ms')});
woken_by('a claim that runs out', 'SELECT 1');
sql($clear);
sql(q{SELECT udb.send_job('w', ordering_key => 'k'), udb.send_job('w', ordering_key => 'k')});
$token = sql(q{SELECT claim_token FROM udb.claim_jobs('w', 'x', 10, '1 h')});
woken_by('the end of the one before', qq{SELECT udb.ack_job(min(job_id), $token) FROM udb.jobs});
sql($clear);
sql(q{SELECT udb.send_job('w')});
my $claimer = session($node);
$claimer->query(q{BEGIN; SELECT count(*) FROM udb.claim_jobs('w', 'x', 1, '1 h')});
$waiter->send(q{SELECT udb.wait_for_jobs('w', '100 s')});
waiting(1);
$claimer->query('ROLLBACK');
is($waiter->receive, 't', 'woken by a claim that is rolled back');
sql($clear);
$waiter->send(q{CALL udb.await_jobs('w', '100 s')});
waiting(1);
is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'await_jobs' AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)}),
	0, 'the procedure holds no snapshot');
sql(q{SELECT udb.send_job('w')});
is($waiter->receive, 't', 'and is woken too');

# ---- the sweep, by the worker ----

sql(q{DELETE FROM udb.jobs; SELECT udb.send_job('s', max_attempts => 1), udb.send_job('s', priority => -1), udb.send_job('t', expires => '10 ms'),
	udb.send_job('u', run_at => clock_timestamp(), expires => '10 ms', ordering_key => 'k'), udb.send_job('u', ordering_key => 'k')});
sql(q{SELECT count(*) FROM udb.claim_jobs('s', 'x', 2, '10 ms')});
wait_for_sql($node, q{SELECT string_agg(queue || ' ' || last_error, ', ' ORDER BY job_id) FROM udb.dead_jobs}, 's claim expired, t expired, u expired');
pass('the worker buries what is over');
is(sql(q{SELECT string_agg(queue || ' ' || state, ', ' ORDER BY job_id) FROM udb.jobs}), 's ready, u ready', 'and what is left can run');

# with nothing to do it writes nothing
sql('SELECT udb.sweep_jobs()');
my $wal = sql('SELECT pg_current_wal_insert_lsn()');
is(sql(q{SELECT udb.sweep_jobs(), pg_current_xact_id_if_assigned() IS NULL}), '0|t', 'an idle sweep takes no transaction id');

done_testing();
