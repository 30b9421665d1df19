# Sagas on a standby: they are there to be seen, nobody changes them; after a promotion the worker goes on with what was
# under way, and nothing is undone twice. Claims go on too.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', streaming => 1);

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE undone (n bigserial, step text);
CREATE FUNCTION work() RETURNS bigint LANGUAGE sql AS $$
	WITH claimed AS MATERIALIZED (SELECT * FROM udb.claim_jobs('undo', 'w', 100)),
		done AS (INSERT INTO undone (step) SELECT payload #>> '{saga,step}' FROM claimed)
	SELECT count(*) FILTER (WHERE udb.ack_job(job_id, claim_token)) FROM claimed
$$;
SQL
my $standby = new_standby($node, 'standby');
my $saga = $node->safe_psql('postgres', <<'SQL');
SELECT udb.record_saga('018f0000-0000-4000-8000-000000000001', compensations =>
	'[{"step": "a", "queue": "undo"}, {"step": "b", "queue": "undo"}, {"step": "c", "queue": "undo"}]');
SQL
$node->safe_psql('postgres', "SELECT udb.saga_step('$saga', s) FROM unnest('{a,b,c}'::text[]) s");
$node->safe_psql('postgres', "SELECT udb.compensate_saga('$saga')");
$node->safe_psql('postgres', "SELECT udb.record_saga('018f0000-0000-4000-8000-000000000002', 'held', status => 'in_doubt')");
is($node->safe_psql('postgres', "SELECT tx_id FROM udb.claim_recoverable_sagas('1 h')"), 'held', 'a saga is claimed');
is($node->safe_psql('postgres', 'SELECT work()'), 1, 'the first of three steps is undone');
wait_for_sql($node, "SELECT count(*) FROM udb.jobs WHERE payload #>> '{saga,step}' = 'b'", 1);
$node->wait_for_catchup($standby);

is($standby->safe_psql('postgres', "SELECT status FROM udb.get_saga('$saga')"), 'in_progress', 'a standby shows sagas');
is($standby->safe_psql('postgres', 'SELECT in_progress, in_doubt FROM udb.saga_summary()'), '1|1', 'and counts them');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM udb.list_sagas()'), 2, 'and lists them');
is(sqlstate($standby, "SELECT udb.$_"), '25006', "but $_ is refused") foreach
	"record_saga()", "saga_step('$saga', 'x')", "compensate_saga('$saga')", "update_saga_status('$saga', 'failed')",
	"claim_recoverable_sagas('1 s')", "mark_saga_manual_review('$saga')", "increment_recovery_attempts('$saga')",
	"mark_stale_sagas_indeterminate('1 s')", "request_saga_recompensation('$saga')", 'sweep_sagas()';

crash_server($node);
$standby->promote;
wait_for('the saga to be compensated', sub {
	$standby->safe_psql('postgres', 'SELECT work()');
	$standby->safe_psql('postgres', "SELECT status FROM udb.get_saga('$saga')") eq 'compensated' });
is($standby->safe_psql('postgres', "SELECT string_agg(step, ' ' ORDER BY n) FROM undone"), 'c b a',
	'the promoted server goes on, and undoes nothing twice');
is($standby->safe_psql('postgres', "SELECT count(*) FROM udb.claim_recoverable_sagas('1 h')"), 0, 'a claim holds there too');

done_testing();
