# Jobs that others have claimed for long do not slow down claims, of one priority or of many: how many pages a
# claim looks at does not grow with them.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker = off\nautovacuum = off\nfsync = off\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }

# The fewest pages of some claims: once a minute one of them looks at all.
sub pages
{
	my ($queue) = @_;
	my $claim = "EXPLAIN (ANALYZE, BUFFERS) SELECT FROM udb.claim_jobs('$queue', 'w', 1, '1 hour')";
	my @pages;

	for my $plan (split(/^(?=Function Scan)/m, sql(join(';', ($claim) x 6))))
	{
		push @pages, $1 if $plan =~ /Buffers: shared hit=(\d+)/;
	}
	is(scalar @pages, 6, 'pages are counted');
	return (sort { $a <=> $b } @pages)[0];
}

for my $priorities (1, 50)
{
	for my $n (0, 10_000)
	{
		sql("SELECT udb.send_job('q$priorities-$n', priority => i % $priorities) FROM generate_series(1, $n + 500) i");
		is(sql("SELECT count(*) FROM udb.claim_jobs('q$priorities-$n', 'slow', $n, '1 hour')"), $n, "$n jobs of $priorities priorities are claimed");
	}
	sql('VACUUM udb.jobs');
	my $free = pages("q$priorities-0");
	my $busy = pages("q$priorities-10000");

	note("$free and $busy pages");
	# two descents for each priority that has no job left
	cmp_ok($busy, '<', $free + 10 * $priorities + 20, 'the next claim looks at few pages');
}

done_testing();
