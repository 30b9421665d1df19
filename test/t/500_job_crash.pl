# Jobs over crashes: of workers between claim and acknowledgement, of the server, and with no background worker.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker = off\nautovacuum = off\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }

# ---- no background worker: claims alone do what time asks for ----

sql(q{SELECT udb.send_job('q', '"delayed"', delay => '200 ms'), udb.send_job('x', expires => '1 ms'); SELECT pg_sleep(0.02)});
is(sql(q{SELECT count(*) FROM udb.claim_jobs('x', 'w')}), 0, 'a job that has expired is not handed out');
is(sql(q{SELECT queue, last_error FROM udb.dead_jobs}), 'x|expired', 'it is dead');
wait_for_sql($node, q{SELECT payload = '"delayed"' FROM udb.claim_jobs('q', 'w', 10, '300 ms')});
pass('a delayed job is handed out when it is due');
is(sql(q{SELECT count(*) FROM udb.claim_jobs('q', 'x', 10)}), 0, 'once');
wait_for_sql($node, q{SELECT payload = '"delayed"' AND last_error = 'claim expired' FROM udb.claim_jobs('q', 'x', 10, '1 h')});
pass('and again when that claim has run out');
is(sql('TRUNCATE udb.jobs, udb.dead_jobs; SELECT count(*) FROM udb.jobs'), 0, 'clean');

# ---- workers killed between claim and acknowledgement ----

# Each job that is done leaves a row, in the transaction of its acknowledgement.
sql(q{CREATE TABLE done (n int PRIMARY KEY, worker text)});
sql(q{SELECT count(*) FROM udb.send_jobs('k', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 60) i))});
my $token = sql(q{SELECT max(claim_token) FROM udb.claim_jobs('k', 'victim', 20, '1 s')});
my $victim = session($node);
$victim->query(q{BEGIN; INSERT INTO done SELECT payload::int, 'victim' FROM udb.jobs WHERE worker_id = 'victim'});
is($victim->query(qq{SELECT udb.ack_jobs(ARRAY(SELECT job_id FROM udb.jobs WHERE worker_id = 'victim'), $token)}), 20,
	'a worker acknowledges its jobs');
crash_backend($node, $victim->pid);
is(sql('SELECT count(*) FROM done'), 0, 'but is killed before it commits');
is(sql(q{SELECT count(*) FROM udb.jobs WHERE state = 'claimed'}), 20, 'so they still are its own');
my $work = q{
	WITH c AS MATERIALIZED (SELECT * FROM udb.claim_jobs('k', 'worker', 7, '1 h')),
		d AS (INSERT INTO done SELECT payload::int, worker_id FROM c)
	SELECT coalesce(udb.ack_jobs(array_agg(job_id), max(claim_token)), 0) FROM c HAVING count(*) > 0};
wait_for('all jobs to be done', sub { sql($work); sql('SELECT count(*) FROM done') == 60 });
is(sql('SELECT count(*) FROM udb.jobs'), 0, 'the others do them all, each once');

# ---- the server killed, tokens and jobs ----

my $before = sql(q{SELECT udb.send_job('s', '1') * 0 + nextval('udb.job_claim_token')});
sql(q{SET synchronous_commit = off; SELECT count(*) FROM udb.send_jobs('s', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 100) i))});
my $async = session($node);
$async->query('SET synchronous_commit = off');
my $last = $async->query(q{SELECT max(claim_token) FROM generate_series(1, 50) i, LATERAL udb.claim_jobs('s', 'lost' || i)});
crash_server($node);
$node->start;
my $next = sql(q{SELECT max(claim_token) FROM udb.claim_jobs('s', 'after', 1, '1 h')});
cmp_ok($next, '>', $last, 'after a crash tokens are greater than any before, those of asynchronous commits too');
is(sql(qq{SELECT count(*) FILTER (WHERE udb.ack_job(job_id, $last)) FROM udb.jobs WHERE worker_id = 'after'}), 0, 'so an old one is stale');

# a claim that was confirmed survives
sql(q{TRUNCATE udb.jobs; SELECT udb.send_job('d', '"durable"')});
$token = sql(q{SELECT claim_token FROM udb.claim_jobs('d', 'w', 1, '1 h')});
crash_server($node);
$node->start;
is(sql(q{SELECT count(*) FROM udb.claim_jobs('d', 'x')}), 0, 'a claim holds over a crash');
is(sql(qq{SELECT udb.ack_job(job_id, $token) FROM udb.jobs}), 't', 'and so does its token');

# a prepared claim holds its jobs over a crash
sql(q{SELECT udb.send_job('p', '"prepared"')});
sql(q{BEGIN; SELECT payload FROM udb.claim_jobs('p', 'w', 1, '1 h'); PREPARE TRANSACTION 'claim'});
crash_server($node);
$node->start;
is(sql(q{SELECT count(*) FROM udb.claim_jobs('p', 'x')}), 0, 'a prepared claim too');
my $waiter = session($node);
$waiter->send(q{SELECT udb.wait_for_jobs('p', '100 s')});
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query ~ 'wait_for_jobs' AND pid <> pg_backend_pid()});
sql(q{ROLLBACK PREPARED 'claim'});
is($waiter->receive, 't', 'until it is rolled back, which wakes who waits');

# ---- a dump, restored ----

sql(q{TRUNCATE udb.jobs, udb.dead_jobs; SELECT udb.send_job('a', '1', unique_key => 'u'), udb.send_job('b', '2', delay => '1 h'),
	udb.send_job('c', '3', ordering_key => 'o'), udb.send_job('c', '4', ordering_key => 'o'), udb.send_job('e', '5')});
$token = sql(q{SELECT claim_token FROM udb.claim_jobs('a', 'w', 1, '1 h')});
sql(q{SELECT udb.fail_job(job_id, claim_token, 'bad') FROM udb.claim_jobs('e', 'w', 1, '1 h')});
my $contents = 'SELECT j FROM udb.jobs j ORDER BY job_id; SELECT d FROM udb.dead_jobs d ORDER BY job_id';
my $was = sql($contents);
my $dump = $node->data_dir . '/../jobs.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'dumped');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '-d', $node->connstr('restored'), $dump ], 'restored');
is($node->safe_psql('restored', $contents), $was, 'jobs are as they were');
cmp_ok($node->safe_psql('restored', q{SELECT udb.send_job('z')}), '>', $node->safe_psql('restored', q{SELECT max(job_id) FROM (SELECT job_id FROM udb.jobs WHERE queue <> 'z' UNION SELECT job_id FROM udb.dead_jobs) j}),
	'new ones come after them');
cmp_ok($node->safe_psql('restored', q{SELECT claim_token FROM udb.claim_jobs('z', 'w')}), '>', $token, 'and so do tokens');
is($node->safe_psql('restored', qq{SELECT udb.ack_job(job_id, $token) FROM udb.jobs WHERE queue = 'a'}), 't', 'a claim goes on');
is($node->safe_psql('restored', q{SELECT payload FROM udb.claim_jobs('c', 'w', 10)}), '3', 'and order is kept');

done_testing();
