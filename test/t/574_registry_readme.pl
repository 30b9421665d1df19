# The sessions with registries and announcements that README shows.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $readme = slurp_file(($ENV{UDB_TREE} // '.') . '/README.md');
my $node = new_cluster('readme');
my $session = session($node);
my %steps;

foreach my $section ('Registries', 'Announcements')
{
	$readme =~ /^## $section\n(.*?)^## /ms or die "README has no section \"$section\"";
	$steps{$section} = [ map { $session->query($_) } $1 =~ /^```sql\n(.*?)^```/msg ];
}
is(scalar(@{ $steps{Registries} }), 3, 'README has a session with a registry');
is($steps{Registries}[0], "\n1|2\n" . '{"plan": "basic", "limit": 10}', 'records are put and resolved');
is($steps{Registries}[1], "\n3\n4\ntenant-7|gold", 'and followed, the removed ones too');
wait_for_sql($node, "SELECT lag = 0 AND failures = 0 FROM udb.registry_consumer_status WHERE consumer = 'follow'");
pass('the handler is called');
is_deeply($steps{Announcements}, ['t|t|t'], 'what is announced goes all three ways');
$session->quit;

done_testing();
