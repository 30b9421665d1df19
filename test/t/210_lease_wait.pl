# Waiting for a lease: woken by its release, by its expiry and by the end of whatever transaction had it;
# first come, first served; and nobody is left behind when a waiting session gives up or goes away.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(time);
use UdbTest;

my $node = new_cluster('wait');
my $owner = session($node);
my @s = map { session($node) } 0 .. 4;

sub line
{
	my ($n, $lease) = @_;

	return wait_for_sql($node, "SELECT udb._lease_waiting('" . ($lease // 'job') . "')", $n);
}
# Let session $i wait for the lease, and return when it is in line as number $n.
sub wait_in_line
{
	my ($i, $n, %opt) = @_;

	$s[$i]->send("SELECT owner, fencing_token FROM udb.acquire_lease('" . ($opt{lease} // 'job')
		  . "', 's$i', '" . ($opt{ttl} // '1 h') . "', '" . ($opt{wait} // '100 s') . "')");
	line($n, $opt{lease});
	return;
}
sub fresh { $node->safe_psql('postgres', 'DELETE FROM udb.advisory_leases'); $owner->query("SELECT udb.try_acquire_lease('job', 'owner', '1 h')"); return; }

# ---- what wakes ----

fresh();
wait_in_line(0, 1);
is($node->safe_psql('postgres', 'SELECT owner_id, waiting FROM udb.lease_status'), 'owner|1', 'the view shows who waits');
my $start = time;
$owner->query("SELECT udb.release_lease('job', 'owner')");
is($s[0]->receive, 's0|2', 'who waits gets the lease when it is released');
cmp_ok(time - $start, '<', 0.9, 'at once');

fresh();
wait_in_line(0, 1);
$owner->query("SELECT udb.renew_lease('job', 'owner', 1, '0.3 s')");
is($s[0]->receive, 's0|2', 'or when it expires');

fresh();
$owner->query("BEGIN");
$owner->query("SELECT udb.release_lease('job', 'owner')");
wait_in_line(0, 1);
ok(!$s[0]->done, 'a release that is not committed lets nobody in');
$start = time;
$owner->query('COMMIT');
is($s[0]->receive, 's0|2', 'its commit does');
cmp_ok(time - $start, '<', 0.9, 'at once');

fresh();
$owner->query('BEGIN');
$owner->query("SELECT udb.try_acquire_lease('new', 'owner', '1 h')");
wait_in_line(0, 1, lease => 'new');
$start = time;
$owner->query('ROLLBACK');
is($s[0]->receive, 's0|1', 'and so does the rollback of who was first');
cmp_ok(time - $start, '<', 0.9, 'at once');

fresh();
$owner->query('BEGIN');
$owner->query("SELECT udb.assert_lease('job', 'owner', 1)");
$node->safe_psql('postgres', "SELECT udb.release_lease('job', 'owner')");
wait_in_line(0, 1);
ok(!$s[0]->done, 'a lease that is asserted cannot be taken, though it is released');
$start = time;
$owner->query('COMMIT');
is($s[0]->receive, 's0|2', 'before the asserting transaction ends');
cmp_ok(time - $start, '<', 0.9, 'but then at once');

fresh();
$owner->query('BEGIN; SAVEPOINT s');
$owner->query("SELECT udb.try_acquire_lease('new', 'owner', '1 h')");
wait_in_line(0, 1, lease => 'new');
$start = time;
$owner->query('ROLLBACK TO s');
is($s[0]->receive, 's0|1', 'a rollback to a savepoint counts too');
cmp_ok(time - $start, '<', 0.9, 'at once');
$owner->query('COMMIT');

fresh();
$owner->query('BEGIN');
$owner->query("SELECT udb.release_lease('job', 'owner')");
$owner->query("PREPARE TRANSACTION 'release'");
wait_in_line(0, 1);
$owner->query("COMMIT PREPARED 'release'");
is($s[0]->receive, 's0|2', 'and so does the end of a prepared transaction');

# ---- in which order ----

fresh();
wait_in_line($_, $_ + 1) foreach 0 .. 4;
my @order;
$owner->query("SELECT udb.release_lease('job', 'owner')");
foreach my $i (0 .. 4)
{
	push @order, $s[$i]->receive;
	$s[$i]->query("SELECT udb.release_lease('job', 's$i')");
}
is("@order", 's0|2 s1|3 s2|4 s3|5 s4|6', 'first come, first served');

# ---- who gives up ----

fresh();
$start = time;
is($s[0]->query("SELECT udb.acquire_lease('job', 's0', '1 h', '0.3 s') IS NULL"), 't', 'after its time a session gives up');
cmp_ok(time - $start, '>=', 0.3, 'not sooner');
line(0);

wait_in_line(0, 1, wait => '1 s');
wait_in_line(1, 2);
wait_in_line(2, 3);
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s[1]->pid . ')');
my ($out, $err) = $s[1]->receive_all;
like($err, qr/canceling statement/, 'waiting can be cancelled');
is($s[0]->receive, '|', 'the first in line gives up');
line(1);
$owner->query("SELECT udb.renew_lease('job', 'owner', 1, '0.2 s')");
is($s[2]->receive, 's2|2', 'the last one is the first now, and gets it when it expires');
$s[2]->query("SELECT udb.release_lease('job', 's2')");

fresh();
wait_in_line(0, 1);
wait_in_line(1, 2);
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $s[0]->pid . ')');
line(1);
$owner->query("SELECT udb.release_lease('job', 'owner')");
is($s[1]->receive, 's1|2', 'a session that is gone is not in the way');
$s[0] = session($node);

# ---- what waiting costs ----

fresh();
wait_in_line(0, 1);
wait_in_line(1, 2);
my $count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND state = 'active' AND query LIKE '%acquire_lease%'";
is($node->safe_psql('postgres', $count), 2, 'who waits sleeps');
my $cpu = sub { my $t = 0; foreach my $p (map { $s[$_]->pid } 0, 1) { open(my $f, '<', "/proc/$p/stat") or next; my @f = split ' ', <$f>; $t += $f[13] + $f[14] } return $t; };
my $used = $cpu->();
sleep 2;
cmp_ok($cpu->() - $used, '<=', 2, 'and uses no processor');
$node->safe_psql('postgres', "SELECT udb.try_acquire_lease('other', 'x', '1 h')");
ok(!$s[0]->done && !$s[1]->done, 'another lease is no concern of theirs');
$owner->query("SELECT udb.release_lease('job', 'owner')");
is($s[0]->receive, 's0|2', 'until it is time');
$s[0]->query("SELECT udb.release_lease('job', 's0')");
$s[1]->receive;

done_testing();
