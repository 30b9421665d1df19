# Many who wait, give up and are cancelled at once, all connections waiting, feedback to the primary, restart
# points, and a startup process that is killed.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use UdbTest;

my $primary = new_cluster('primary', streaming => 1, conf => "autovacuum = off\nudb.worker = off\n");
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE t (a int);
CREATE TABLE fence_rounds (k int PRIMARY KEY, v int) WITH (fillfactor = 50);
INSERT INTO fence_rounds SELECT i, 0 FROM generate_series(1, 100) i;
SQL
# A conflict never resolves by itself here; with feedback there is none.
my $standby = new_standby($primary, 'standby',
	conf => "max_standby_streaming_delay = -1\nhot_standby_feedback = on\nwal_receiver_status_interval = 1\n");

# A token that so many bytes more than what is there now will reach.
sub ahead
{
	my ($bytes) = @_;
	my $token = (split /\n/, $primary->safe_psql('postgres', 'INSERT INTO t VALUES (1); SELECT udb.last_commit_token()'))[-1];

	return $token =~ s/\.([0-9a-f]+)\.[da][0-9a-f]*$/sprintf '.%x.d', hex($1) + $bytes/er;
}
sub wait_for_waiters { wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters', $_[0]); }
# Write about 1.3 megabytes.
sub write_much { $primary->safe_psql('postgres', 'INSERT INTO t SELECT generate_series(1, 20000)'); }

# ---- the primary keeps what a waiting query could see ----------------------------------------------------

my $s = session($standby);
$s->send("SELECT udb.wait_for_token('" . ahead(1_000_000) . "', '1 hour')");
wait_for_waiters(1);
wait_for_sql($primary, 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication');
$primary->safe_psql('postgres', $_) foreach 'DELETE FROM t', 'VACUUM t';
write_much();
is($s->receive, 't', 'with hot_standby_feedback a function that waits is in nobody\'s way');

# ---- a storm ---------------------------------------------------------------------------------------------

my $far = ahead(2**48);
my $script = PostgreSQL::Test::Utils::tempdir() . '/storm.pgbench';
append_to_file($script, "\\set ms random(0, 20)\nSELECT udb.wait_for_token('$far', :ms * interval '1 ms');\n");
my @rounds;
my @reports = ('', '');
my $storm_out = '';
my $storm = IPC::Run::start([ 'pgbench', '-n', '-c', 25, '-j', 1, '-T', 4, '-f', $script, $standby->connstr('postgres') ],
	'>', \$storm_out, '2>&1');
foreach my $i (0, 1)
{
	push @rounds, IPC::Run::start([ 'udb_fence_client', 'rounds', 'set', 400, $i + 1, $primary->connstr('postgres'),
			$standby->connstr('postgres') ], '>', \$reports[$i], '2>&1');
}
my @victims = map { session($standby) } 1 .. 6;
my $admin = session($standby);
$_->query('SET udb.fence_timeout = -1') foreach @victims;
my ($cancelled, $end) = (0, time + 3);
while (time < $end)
{
	$_->send("SET udb.fence = '$far'") foreach @victims;
	wait_for_sql($standby, 'SELECT count(*) FROM udb.fence_waiters WHERE since < now()
		AND pid IN (' . join(', ', map { $_->pid } @victims) . ')', 6);
	$admin->query('SELECT pg_cancel_backend(pid) FROM udb.fence_waiters WHERE pid = ' . $_->pid) foreach @victims;
	$admin->query('CHECKPOINT');
	foreach (@victims)
	{
		my ($out, $err) = $_->receive_all;
		$cancelled++ if $err =~ /canceling statement due to user request/;
	}
}
cmp_ok($cancelled, '>', 0, "$cancelled waits cancelled");
is($cancelled % 6, 0, 'each of those that were sent');
ok($storm->finish, 'short waits by the hundred end by themselves') or diag $storm_out;
$_->finish foreach @rounds;
like($_, qr/^set rounds=400 stale=0 /, 'and nobody reads what is stale') foreach @reports;
wait_for_waiters(0);
pass('all the slots are free');
$_->quit foreach @victims, $admin;

# ---- all the connections there are --------------------------------------------------------------------------

my $token = ahead(1_000_000);
unlink $script;
append_to_file($script, "SELECT 1 / udb.wait_for_token('$token', '1 hour')::int;\n");
$s->quit;
wait_for_sql($standby, q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'));
my $n = $standby->safe_psql('postgres', q(SELECT current_setting('max_connections')::int - 2));
my $all = IPC::Run::start([ 'pgbench', '-n', '-c', $n, '-j', 1, '-t', 1, '-f', $script, $standby->connstr('postgres') ],
	'>', \$storm_out, '2>&1');
wait_for_waiters($n);
write_much();
ok($all->finish, "$n sessions of " . ($n + 2) . ' wait, and all are woken') or diag $storm_out;
wait_for_waiters(0);

# ---- ways to set the fence that are not statements --------------------------------------------------------

foreach my $options ("-c udb.fence=$token", "--udb.fence=$token")
{
	my ($rc, $out, $err) = $standby->psql('postgres', 'SHOW udb.fence', connstr => $standby->connstr('postgres') . " options='$options'");
	isnt($rc, 0, "refused: options='$options'");
	like($err, qr/can only be set by SET/, 'and told why');
}

# ---- the startup process is killed ---------------------------------------------------------------------------

$s = session($standby);
$s->send("SET udb.fence_timeout = -1; SET udb.fence = '$far'");
wait_for_waiters(1);
my $startup = $standby->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'");
my ($postmaster) = split /\n/, slurp_file($standby->data_dir . '/postmaster.pid');
kill9($startup);
my ($out, $err) = $s->receive_all;
like($err, qr/connection to server was lost|terminating connection/, 'a wait ends with the startup process');
wait_for('the server to go', sub { !-e $standby->data_dir . '/postmaster.pid' });
$standby->stop('immediate', fail_ok => 1);
$standby->start;
is($standby->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters'), 0, 'and is forgotten');
$s = session($standby);
$s->send("SET udb.fence = '" . ahead(1_000_000) . "'; SELECT udb.token_reached('$token')");
write_much();
is($s->receive, 't', 'the next one is woken');

done_testing();
