# More databases than background worker slots: nobody spins, the log says so once in 30 seconds, and each database has
# its turn. And how often those who are idle wake up.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

# One of them is the launcher's, one logical replication's: 12 are left.
my $node = new_cluster('turns', start => 0, conf => <<'CONF');
max_worker_processes = 14
max_parallel_workers = 0
autovacuum = off
udb.max_databases = 25
CONF
my $databases = 20;

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }
my $offset = 0;
sub complaints
{
	my @lines = slurp_file($node->logfile, $offset) =~
	  /LOG:  (could not start a udb worker for database \d+: no free background worker slot\n.*DETAIL:  Databases that wait for one: \d+\.\n.*HINT:  Increase max_worker_processes \(currently 14\)\.)/g;
	return @lines;
}
my $served = "SELECT string_agg(datname, ' ') FROM pg_stat_activity WHERE backend_type = 'udb worker'";
sub switches
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : die 'no count of context switches';
}

$node->start;
sql('CREATE DATABASE seed');
sql('CREATE EXTENSION udb', 'seed');
wait_for_sql($node, $served, 'seed');
sql("CREATE DATABASE db$_ TEMPLATE seed") for 1 .. $databases - 1;
# Copies have the extension without having created it: the first look tells.
$node->stop;
$offset = -s $node->logfile;
$node->start;

my $start = time;
wait_for('as many workers as there is room for',
	sub { return 12 == split / /, sql($served) });
wait_for('a complaint', sub { return complaints() });
like((complaints())[0], qr/Databases that wait for one: 9\./, 'the log tells how many databases wait');
is(scalar(grep { /db|seed|postgres/ } split / /, sql($served)), 12, 'all slots are used');

# ---- while nothing happens -----------------------------------------------------------------------

my %pids = map { $_ => 1 } split /\n/, sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb worker'");
my $launcher = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb launcher'");
my %before = map { $_ => switches($_) } keys %pids, $launcher;
my $since = time;
wait_for('12 seconds', sub { return time - $since > 12 });
my $seconds = time - $since;
my %woken = map { $_ => switches($_) - $before{$_} } keys %before;
my ($most) = sort { $b <=> $a } map { $woken{$_} } keys %pids;
note("in $seconds s the launcher woke $woken{$launcher} times, the workers at most $most times");
cmp_ok($most / $seconds, '<', 1, 'an idle worker wakes less than once a second');
cmp_ok($woken{$launcher} / $seconds, '<', 1, 'so does the launcher, though databases wait');
is(scalar(complaints()), 1, 'it says so once');

# ---- turns ---------------------------------------------------------------------------------------

my %seen;
wait_for('each database to have had a worker', sub {
	$seen{$_} = 1 foreach grep { $_ ne 'postgres' } split / /, sql($served);
	usleep(200_000);
	return keys %seen == $databases;
});
my $took = time - $start;
cmp_ok($took, '<', 75, 'every database has had a worker after its turn came');
note("all were served after $took s");
cmp_ok(scalar(complaints()), '<=', 1 + int((time - $start) / 30), 'and the log has no more than a line each 30 seconds');
wait_for('all slots to be in use again', sub { return 12 == split / /, sql($served) });
unlike(slurp_file($node->logfile, $offset), qr/FATAL:  terminating background worker "udb worker/, 'they leave by themselves');

# A place that becomes free is given away at once.
my $given = sql("SELECT datname FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname LIKE 'db%' LIMIT 1");
my %had = map { $_ => 1 } split / /, sql($served);
sql('DROP EXTENSION udb', $given);
$start = time;
wait_for('another database', sub { return grep { !$had{$_} } split / /, sql($served) });
cmp_ok(time - $start, '<', 20, 'a place that becomes free is given to the next');

# With room for all, all have one.
$node->append_conf('postgresql.conf', "max_worker_processes = 40\n");
$node->restart;
wait_for_sql($node, "SELECT count(*) = $databases - 1 FROM pg_stat_activity WHERE backend_type = 'udb worker'");
pass('with room for all, all have one');

done_testing();
