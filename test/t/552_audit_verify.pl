# Verifying takes no more memory for more rows, nor for large ones, and can be cancelled; on a standby too.
# UDB_AUDIT_ROWS=1000000 for the full size.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

my $rows = $ENV{UDB_AUDIT_ROWS} // 50_000;
my $large = 40;
my $node = new_cluster('verify', streaming => 1, conf => "synchronous_commit = off\nmax_wal_size = 4GB\nautovacuum = off\n");

# Memory of a backend's own, in kB.
sub own_memory
{
	my ($pid) = @_;

	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 : die 'no RssAnon';
}

# Verify in a session of its own: what it returns, the most memory that it takes, and the time.
sub verify
{
	my ($server) = @_;
	my $s = session($server);
	my $most = 0;

	$s->query('SELECT outcome FROM udb.verify_admin_audit_chain(10)');
	my $before = own_memory($s->pid);
	my $start = time;
	$s->send('SELECT outcome, checked_count FROM udb.verify_admin_audit_chain()');
	until ($s->done)
	{
		my $now = own_memory($s->pid) - $before;

		$most = $now if $now > $most;
		usleep(2_000);
	}
	my $result = $s->receive;
	my $took = time - $start;
	$s->quit;
	return ($result, $most, $took);
}

my $start = time;
$node->safe_psql('postgres', <<"SQL");
SELECT count(udb.append_admin_audit('actor-' || i % 100, 'operation', 'target-' || i, jsonb_build_object('n', i, 'options', '{"z": [1, 2], "aa": true}'::jsonb),
	'ok', 'tenant', 'project', 'correlation-' || i)) FROM generate_series(1, $rows) i
SQL
note sprintf('%d rows appended in %.1f s', $rows, time - $start);

my ($result, $most, $took) = verify($node);
note sprintf('verified in %.1f s with %d kB', $took, $most);
is($result, "passed|$rows", 'all rows verify');
cmp_ok($most, '<', 8 * 1024, 'in less than 8 MB');

# a MB each, which no page can hold
$node->safe_psql('postgres', <<"SQL");
SELECT count(udb.append_admin_audit('actor', 'large', 'target', jsonb_build_object('n', i,
	'random', (SELECT string_agg(md5(i::text || k), '') FROM generate_series(1, 32768) k)), 'ok')) FROM generate_series(1, $large) i
SQL
($result, $most, $took) = verify($node);
is($result, 'passed|' . ($rows + $large), "$large rows of a MB each verify, too");
note sprintf('verified in %.1f s with %d kB', $took, $most);
cmp_ok($most, '<', 16 * 1024, 'in less than 16 MB');

# ---- on a standby, where nothing can be appended ----

my $standby = new_standby($node, 'standby');
$node->wait_for_catchup($standby);
($result) = verify($standby);
is($result, 'passed|' . ($rows + $large), 'a standby verifies');
is(sqlstate($standby, "SELECT udb.append_admin_audit('a', 'o', 't', '{}', 'ok')"), '25006', 'and appends nothing');
is($standby->safe_psql('postgres', 'SELECT udb.latest_admin_audit_hash()'), $node->safe_psql('postgres', 'SELECT udb.latest_admin_audit_hash()'),
	'its latest hash is the same');
$standby->promote;
$standby->safe_psql('postgres', "SELECT udb.append_admin_audit('a', 'o', 't', '{}', 'ok')");
is($standby->safe_psql('postgres', 'SELECT outcome, checked_count FROM udb.verify_admin_audit_chain()'), 'passed|' . ($rows + $large + 1),
	'after a promotion the chain goes on');

# ---- it can be cancelled ----

my $s = session($node);
$s->query("SET statement_timeout = '50ms'");
like($s->error('SELECT udb.verify_admin_audit_chain() FROM generate_series(1, 1000)'), qr/canceling statement due to statement timeout/,
	'verifying can be cancelled');
$s->query("SET statement_timeout = 0");
is($s->query('SELECT outcome FROM udb.verify_admin_audit_chain(100)'), 'passed', 'and called again');
$s->quit;

done_testing();
