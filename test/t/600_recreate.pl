# Sessions that wait for events while the extension is dropped and created again do not sleep on.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main');

$node->safe_psql('postgres', <<'SQL');
SELECT max(udb.enqueue('t', to_jsonb(n))) FROM generate_series(1, 50) n;
SELECT udb.create_consumer('c', start_at => 'latest');
SQL
my %waits = (
	function  => "SELECT udb.wait_for_events('c', '150 s')",
	procedure => "CALL udb.await_events('c', '150 s')");
my %sessions = map { $_ => session($node) } keys %waits;

$sessions{$_}->send($waits{$_}) foreach keys %waits;
wait_for_sql($node, "SELECT count(*) = 2 FROM pg_stat_activity WHERE query LIKE '%\\_events(''c''%' AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()");

# In one transaction, so that they find a consumer of this name when they look.
$node->safe_psql('postgres', <<'SQL');
BEGIN;
DROP EXTENSION udb;
CREATE EXTENSION udb;
SELECT udb.create_consumer('c');
COMMIT;
SELECT udb.enqueue('t', '1');
SQL
my $end = time + 60;
foreach my $kind (sort keys %sessions)
{
	my $answer = $sessions{$kind}->receive;

	is($answer, 't', "who waits by $kind is woken by an event of the new log");
}
cmp_ok(time, '<', $end, 'long before the time is over');

done_testing();
