# Renewals leave no bloat, and cost no more because somebody holds an old snapshot. A tenth of what the
# benchmark does, so that it can be part of every run.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('bloat', conf => "fsync = off\nautovacuum = off\n");
my $leases = 200;
sub sql { return $node->safe_psql('postgres', $_[0]); }
sub size { return sql("SELECT pg_total_relation_size('udb.advisory_leases')"); }

sql(<<'SQL');
CREATE PROCEDURE renew(rounds int, leases int) LANGUAGE plpgsql AS $$
BEGIN
	FOR r IN 1..rounds LOOP
		PERFORM udb.renew_lease('l' || i, 'me', 1, '1 h') FROM generate_series(1, leases) i;
		COMMIT;
	END LOOP;
END $$;
SQL
sql("SELECT count(udb.try_acquire_lease('l' || i, 'me', '1 h')) FROM generate_series(1, $leases) i");
my $before = size();

sql("CALL renew(500, $leases)");
cmp_ok(size(), '<', $before * 3, 'after 100 000 renewals the table is about as large as before');
is(sql("SELECT count(*) FROM udb.lease_status WHERE held AND fencing_token = 1"), $leases, 'with all leases in it');

# ---- with an old snapshot ----

sub cost
{
	my $start = time;
	sql("CALL renew(20, $leases)");
	return time - $start;
}
cost();
my $first = cost();
my $holder = session($node);
$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query('SELECT 1');
$before = size();
sql("CALL renew(300, $leases)");
my $grown = size() - $before;
my $last = (sort { $a <=> $b } map { cost() } 1 .. 3)[1];
note sprintf('with a snapshot held, 60 000 renewals have added %d bytes each; renewing took %.2f times as long at the end',
	$grown / 60000, $last / $first);
cmp_ok($grown / 60000, '<', 160, 'with an old snapshot the table grows by a row a renewal');
cmp_ok($last / $first, '<', 2, 'but a renewal costs at most twice what it did');
is(sql("SET enable_seqscan = off; SELECT count(*) FROM udb.advisory_leases WHERE lease_name LIKE 'l%' AND fencing_token = 1"), $leases,
	'and the index finds each lease once');
is($holder->query('SELECT count(*) FROM udb.advisory_leases'), $leases, 'as does the old snapshot');
$holder->query('COMMIT');
sql('VACUUM udb.advisory_leases');
sql("CALL renew(20, $leases)");
is(sql("SELECT count(*) FROM udb.lease_status WHERE held"), $leases, 'afterwards all is well');

done_testing();
