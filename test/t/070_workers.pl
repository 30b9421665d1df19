# Workers: where there should be one there is one, and nowhere else, and it is in nobody's way.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

my $node = new_cluster('main', extension => 0, conf => <<'CONF');
autovacuum = off
udb.worker_interval = 1s
udb.max_databases = 6
CONF

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }
my $workers = "SELECT coalesce(string_agg(datname, ' ' ORDER BY datname), '') FROM pg_stat_activity WHERE backend_type = 'udb worker'";
sub workers { return wait_for_sql($node, $workers, $_[0]); }
sub worker_pid { return sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = '" . ($_[0] // 'postgres') . "'"); }
sub reconfigure
{
	my ($setting, $value) = @_;
	sql("ALTER SYSTEM SET $setting = $value");
	$node->reload;
	return;
}

# ---- coming and going ----------------------------------------------------------------------------

is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'udb launcher'"), 1, 'there is one launcher');
is(sql($workers), '', 'and no worker where there is no extension');

my $s = session($node);
$s->query('BEGIN; CREATE EXTENSION udb');
is(sql($workers), '', 'an extension that is not yet there has no worker');
$s->query('COMMIT');
my $start = time;
workers('postgres');
cmp_ok(time - $start, '<', 5, 'a worker appears when CREATE EXTENSION commits');

sql('CREATE DATABASE undone');
$s = session($node, database => 'undone');
$s->query('BEGIN; CREATE EXTENSION udb; ROLLBACK');
$s->query('BEGIN; SAVEPOINT a; CREATE EXTENSION udb; ROLLBACK TO a; COMMIT');
# The launcher is known to have looked when it has served somebody who came later.
sql('CREATE DATABASE second');
sql('CREATE EXTENSION udb', 'second');
workers('postgres second');
pass('none appears when it is rolled back, though one does elsewhere');
$s->query('CREATE EXTENSION udb');
workers('postgres second undone');
pass('several databases have a worker each');

my $pid = worker_pid('second');
sql('SELECT pg_terminate_backend(' . $pid . ')');
wait_for_sql($node, "SELECT pid <> $pid FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'second'");
pass('a terminated worker comes back');
$pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb launcher'");
sql("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, "SELECT pid <> $pid FROM pg_stat_activity WHERE backend_type = 'udb launcher'");
workers('postgres second undone');
pass('so does the launcher, to as many workers as before');
$s->quit;
crash_backend($node, worker_pid('undone'));
workers('postgres second undone');
pass('after a crash all are back');
$node->restart;
workers('postgres second undone');
pass('after a restart too');

sql('DROP EXTENSION udb', 'undone');
workers('postgres second');
pass('DROP EXTENSION makes the worker leave');
sql('CREATE EXTENSION udb', 'undone');
workers('postgres second undone');
pass('and it can come again');
for (1 .. 3)
{
	sql("DROP EXTENSION udb; CREATE EXTENSION udb; SELECT udb.enqueue('t', '1')", 'second');
}
is(sql('SELECT udb.outbox_stable_seq()', 'second'), 1, 'a new extension in an old worker\'s database starts anew');

# ---- on and off ----------------------------------------------------------------------------------

reconfigure('udb.worker', 'off');
workers('');
is(sql("SELECT udb.enqueue('t', '1') > 0"), 't', 'switched off there is none, and enqueue works');
reconfigure('udb.worker', 'on');
workers('postgres second undone');
pass('switched on they are back');

# ---- databases that come and go ------------------------------------------------------------------

for my $round (1 .. 4)
{
	sql("CREATE DATABASE shortlived");
	sql("CREATE EXTENSION udb; SELECT udb.enqueue('t', '1')", 'shortlived');
	# Odd rounds do not wait for the worker, which may just be coming.
	workers('postgres second shortlived undone') if $round % 2 == 0;
	my ($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE shortlived');
	is($err, '', "round $round: a database with a worker can be dropped");
}

workers('postgres second undone');
is(sqlstate($node, 'CREATE DATABASE copy TEMPLATE second'), '', 'a database with a worker can be copied');
workers('copy postgres second undone') if sql("SELECT udb.outbox_stable_seq()", 'copy') ne '';
pass('both have a worker then');
is(sqlstate($node, 'ALTER DATABASE copy RENAME TO renamed'), '', 'and renamed');
workers('postgres renamed second undone');
is(sqlstate($node, 'ALTER DATABASE renamed RENAME TO postgres'), '42P04', 'a rename that fails');
workers('postgres renamed second undone');
pass('does not lose the worker');

# A slot that is used again, by a copy whose sequence has the same OID, is not mistaken for the old one.
is(sql("SELECT count(udb.enqueue('t', '1')) FROM generate_series(1, 100)", 'renamed'), 100, 'the copy is used');
sql('DROP DATABASE renamed');
sql("CREATE DATABASE filler$_") for 1 .. 2;
sql('CREATE EXTENSION udb', "filler$_") for 1 .. 2;
is(sqlstate($node, 'CREATE DATABASE again TEMPLATE second'), '', 'another copy');
my $below = sql('SELECT udb.outbox_stable_seq()', 'second');
my $writer = session($node, database => 'again');
my $held = $writer->query("BEGIN; SELECT udb.enqueue('t', '1')");
sql("SELECT udb.enqueue('t', '2')", 'again');
is(sql('SELECT udb.outbox_stable_seq()', 'again'), $held - 1, 'its open transactions hold its horizon');
is(sql('SELECT count(*) FROM udb.horizon_holder()', 'again'), 1, 'and are named');
cmp_ok($held, '>', $below, 'its positions go on above those of its template');
$writer->quit;

# One more than there is room for.
sql("CREATE DATABASE filler3");
my ($rc, $out, $err) = $node->psql('filler3', "CREATE EXTENSION udb; SELECT udb.enqueue('t', '1')",
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($err, qr/ERROR:  UD009: cannot use udb in more than 6 databases.*HINT:  Raise udb\.max_databases and restart/s,
	'too many databases are refused, with a hint');
is(sql("SELECT udb.enqueue('t', '1') > 0", 'filler2'), 't', 'the others go on');
# A dropped database makes room.
sql('DROP DATABASE filler1');
($rc, $out, $err) = $node->psql('filler3', "CREATE EXTENSION IF NOT EXISTS udb; SELECT udb.enqueue('t', '1')");
is("$out$err", '1', 'when one is dropped there is room again');
$writer = session($node, database => 'filler3');
$writer->quit;
sql("DROP DATABASE $_") foreach qw(filler2 filler3 again);

# ---- being in nobody's way -----------------------------------------------------------------------

workers('postgres second undone');
sql('CHECKPOINT');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'udb' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND state = 'idle'"),
	0, 'an idle worker holds no snapshot');
wait_for_sql($node, "SELECT bool_and(state = 'idle' AND backend_xmin IS NULL) FROM pg_stat_activity WHERE backend_type = 'udb worker'");
# The first rounds may still write hints; then at least three more must write nothing.
my ($lsn, $quiet, $since) = ('', 0, '');
wait_for('workers to be quiet', sub {
	my ($now, $run) = split /\|/, sql("SELECT pg_current_wal_insert_lsn(), (SELECT min(query_start) FROM pg_stat_activity WHERE backend_type = 'udb worker')");

	return 1 if $now eq $lsn && $run ne $since && ++$quiet >= 4;
	$quiet = 0 if $now ne $lsn;
	($lsn, $since) = ($now, $run);
	usleep(300_000);
	return 0;
});
pass('idle workers write no WAL, round after round');

# ---- NOTIFY --------------------------------------------------------------------------------------

my $listener = session($node);
sub notifications
{
	my ($output) = ($listener->receive_all)[0];
	return [ $output =~ /^Asynchronous notification (.*?) received/mg ];
}
# psql shows notifications after a query.
sub heard
{
	$listener->send('SELECT 1');
	return notifications();
}
sub hear
{
	my @got;
	wait_for('a notification', sub { push @got, @{ heard() }; return scalar @got });
	return \@got;
}
sub silence
{
	my @got;
	# A notification that somebody sends after it, by way of the same queue, comes last.
	sql("SELECT pg_sleep(0.3)") if $_[0];
	sql("NOTIFY other, 'mark'");
	wait_for('the mark', sub { push @got, @{ heard() }; return grep { /other/ } @got });
	return join ' ', grep { !/other/ } @got;
}

$listener->query('LISTEN udb_outbox; LISTEN other');
sql("SELECT udb.enqueue('t', '1')");
is(hear()->[0], '"udb_outbox"', 'a listener hears of an event, with an empty payload');
is(silence(), '', 'once');

my $load = $node->basedir . '/load.sql';
append_to_file($load, "SELECT udb.enqueue('t', '1');\n");
reconfigure('udb.notify_interval', "'500ms'");
$start = time;
$node->command_ok([ 'pgbench', '-n', '-c', 4, '-t', 250, '-h', $node->host, '-p', $node->port, '-f', $load, 'postgres' ],
	'a burst of a thousand commits');
my $took = time - $start;
my @got = @{ hear() };
push @got, grep { $_ ne '' } split / /, silence(1);
cmp_ok(scalar @got, '<=', $took / 0.5 + 3, 'is told in a few notifications');
note(scalar(@got) . " notifications in $took s");

# The last of the burst is told too: whoever reads when told has seen everything.
reconfigure('udb.notify_interval', "'10ms'");
silence(1);
sql("BEGIN; SELECT udb.enqueue('t', '1'); ROLLBACK");
$writer = session($node);
$writer->query("BEGIN; SELECT udb.enqueue('t', '1')");
my $stable = sql('SELECT udb.outbox_stable_seq()');
sql("SELECT udb.enqueue('t', '2')");
silence(1);
$writer->query('COMMIT');
hear();
cmp_ok(sql('SELECT udb.outbox_stable_seq()'), '>', $stable, 'the commit that lets the horizon go is told');

# The worker must not take a new extension's positions for ones it has told about.
sql("DROP EXTENSION udb; CREATE EXTENSION udb");
silence(1);
sql("SELECT udb.enqueue('t', '1')");
ok(hear(), 'after the extension was dropped and created again there are notifications');

reconfigure('udb.notify', 'off');
wait_for_sql($node, "SELECT setting = 'off' FROM pg_settings WHERE name = 'udb.notify'");
silence(1);
sql("SELECT udb.enqueue('t', '1')") for 1 .. 3;
is(silence(1), '', 'switched off there are none');
$listener->quit;
$writer->quit;

# ---- no room for workers -------------------------------------------------------------------------

# The launcher itself takes one of them; logical replication's another.
$node->append_conf('postgresql.conf', "max_worker_processes = 2\n");
$node->restart;
my $offset = -s $node->logfile;
wait_for('the complaint', sub { slurp_file($node->logfile) =~ /could not start a udb worker/ });
is(sql("SELECT udb.enqueue('t', '1') > 0"), 't', 'without a worker enqueue works');
my $launcher = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'udb launcher'");
sub cpu { my @f = split / /, slurp_file("/proc/$launcher/stat") =~ s/^.*\) //sr; return $f[11] + $f[12]; }
my $cpu = cpu();
sql("SELECT udb.enqueue('t', '1')") for 1 .. 30;
sql('SELECT pg_sleep(2)');
cmp_ok(cpu() - $cpu, '<', 50, 'the launcher does not spin');
my @complaints = slurp_file($node->logfile) =~ /(LOG:  could not start a udb worker.*\n.*DETAIL.*\n.*HINT:  Increase max_worker_processes)/g;
is(scalar @complaints, 1, 'there is one line in the log, with a hint');

done_testing();
