# Jobs on a standby, and after its promotion: none is lost, none is handed out again before its time, and tokens
# grow although the standby had not got all that the primary had handed out.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $primary = new_cluster('primary', streaming => 1, conf => "udb.worker_interval = 1s\n");
my $standby = new_standby($primary, 'standby');

sub sql { return $primary->safe_psql('postgres', $_[0]); }

sql(q{SELECT count(*) FROM udb.send_jobs('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 100) i))});
my $held = sql(q{SELECT max(claim_token) FROM udb.claim_jobs('q', 'old', 30, '1 h')});
sql(q{SELECT udb.ack_jobs(ARRAY(SELECT job_id FROM udb.jobs WHERE worker_id = 'old' ORDER BY job_id LIMIT 10), max(claim_token)) FROM udb.jobs});
sql(q{SELECT count(*) FROM udb.claim_jobs('q', 'short', 20, '1 s')});
$primary->wait_for_catchup($standby);

is(sqlstate($standby, q{SELECT udb.claim_jobs('q', 'w')}), '25006', 'a standby hands out no jobs');
is(sqlstate($standby, q{SELECT udb.ack_job(1, 1)}), '25006', 'and acknowledges none');
is(sqlstate($standby, q{SELECT udb.send_job('q')}), '25006', 'nor are any sent there');
is(sqlstate($standby, q{SELECT udb.wait_for_jobs('q', '1 s')}), '25006', 'or waited for');
is($standby->safe_psql('postgres', q{SELECT ready + claimed FROM udb.queue_status}), 90, 'but they can be seen');

# what the standby does not get any more
$standby->stop;
my $lost = sql(q{SELECT max(claim_token) FROM generate_series(1, 40) i, LATERAL udb.claim_jobs('q', 'lost' || i, 1, '1 h')});
cmp_ok($lost, '>', $held + 32, 'the primary hands out more tokens than a sequence logs ahead');
$primary->stop('immediate');
$standby->start;
$standby->promote;
wait_for_sql($standby, 'SELECT NOT pg_is_in_recovery()');

my $first = $standby->safe_psql('postgres', q{SELECT max(claim_token) FROM udb.claim_jobs('q', 'new', 1, '1 h')});
cmp_ok($first, '>', $held, 'after promotion tokens are greater than those that were seen');
is($standby->safe_psql('postgres', qq{SELECT count(*) FILTER (WHERE udb.ack_job(job_id, t)) FROM udb.jobs, generate_series($lost - 50, $lost) t WHERE worker_id = 'new'}),
	0, 'no token that was lost fits a job');
is($standby->safe_psql('postgres', qq{SELECT udb.ack_jobs(ARRAY(SELECT job_id FROM udb.jobs WHERE worker_id = 'old'), $held)}), 20,
	'a claim from before holds');
# the rest: those whose claim has run out, and those that nobody had
wait_for('all other jobs', sub {
	$standby->safe_psql('postgres', q{SELECT count(*) FROM udb.claim_jobs('q', 'new', 100, '1 h')});
	$standby->safe_psql('postgres', q{SELECT count(*) FROM udb.jobs WHERE worker_id = 'new'}) == 70;
});
is($standby->safe_psql('postgres', q{SELECT count(DISTINCT payload), count(*) FROM udb.jobs}), '70|70', 'none is lost, none is there twice');

done_testing();
