# Crashes under load, of a backend and of the server: events whose COMMIT was acknowledged are there, events
# that were not committed are not, no position is used twice, and a consumer goes on from its checkpoint.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use UdbTest;

my $node = new_cluster('main', conf => <<'CONF');
fsync = on
synchronous_commit = on
udb.outbox_segment_size = 300
autovacuum = off
CONF
my $nwriters = 8;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
CREATE TABLE business (note text PRIMARY KEY);
CREATE TABLE got (ord bigserial, event_seq bigint, note text);
SELECT udb.create_consumer('c');
SQL

# A consumer that never stops to consume, and loses its connection as everybody does.
my $consume = <<'SQL';
BEGIN;
INSERT INTO got (event_seq, note) SELECT event_seq, payload #>> '{}' FROM udb.read('c', 50);
SELECT udb.checkpoint('c', max(event_seq)) FROM got HAVING count(*) > 0;
COMMIT;
SQL

# Clients that print what they were told, each line after the fact: "try" before COMMIT is sent, with the
# position, "ack" after it was answered. They stop when their connection does.
sub start_writers
{
	my ($round) = @_;
	my @writers;

	foreach my $w (1 .. $nwriters)
	{
		my $file = $node->basedir . "/writer_${round}_$w.sql";
		my $script = '';

		foreach my $i (1 .. 4000)
		{
			my $note = "$round-$w-$i";
			my $insert = "INSERT INTO business VALUES ('$note');\n";
			my $enqueue = "SELECT 'try $note ' || udb.enqueue('t', '\"$note\"');\n";

			# Every fifth rolls back, every seventh half of it.
			$script .=
			    $i % 5 == 0 ? "BEGIN;\n${insert}SELECT 'no $note ' || udb.enqueue('t', '\"$note\"');\nROLLBACK;\n"
			  : $i % 7 == 0 ? "BEGIN;\nSAVEPOINT s;\nSELECT 'no $note ' || udb.enqueue('t', '\"no\"');\nROLLBACK TO s;\n$insert${enqueue}COMMIT;\n\\echo ack $note\n"
			  : "BEGIN;\n$insert${enqueue}COMMIT;\n\\echo ack $note\n";
		}
		append_to_file($file, $script);

		my $writer = { out => '', err => '' };
		$writer->{run} = IPC::Run::start(
			[ 'psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $node->connstr('postgres') ],
			'>', \$writer->{out}, '2>', \$writer->{err});
		push @writers, $writer;
	}
	return @writers;
}

my (%acked, %tried, %highest, %writers_err);

# Run the load, crash, and see what the clients know.
sub round
{
	my ($round, $crash) = @_;
	my @writers = start_writers($round);
	my $consumer = session($node);
	my $passes = 0;
	my $enough = sql('SELECT count(*) FROM business') + 600;

	# In the middle of everything; the consumer is left in the middle of its transaction.
	wait_for('some load', sub {
		$_->{run}->pump_nb foreach @writers;
		$consumer->query($consume);
		$passes++;
		return $passes > 1 && $consumer->query('SELECT count(*) FROM business') >= $enough;
	});
	$consumer->query($consume =~ s/COMMIT;//r);
	$crash->($writers[0]);
	foreach my $writer (@writers)
	{
		eval { $writer->{run}->finish };
		$writers_err{$round} .= $writer->{err};
		foreach my $line (split /\n/, $writer->{out})
		{
			my ($what, $note, $position) = split / /, $line;

			$acked{$note} = 1 if $what eq 'ack';
			$tried{$note} = $position if $what eq 'try';
			$highest{$round} = $position if defined $position && $position > ($highest{$round} // 0);
		}
	}
	$consumer->quit;
	return;
}

sub check
{
	my ($round) = @_;
	my %there = map { split /\|/ } split /\n/, sql("SELECT payload #>> '{}', event_seq FROM udb.outbox_events");
	my @lost = grep { !exists $there{$_} } keys %acked;
	my @unknown = grep { !exists $tried{$_} } keys %there;
	my @moved = grep { exists $tried{$_} && $there{$_} != $tried{$_} } keys %there;
	my @doubt = grep { !exists $acked{$_} } keys %there;

	like($writers_err{$round}, qr/server closed the connection|terminating connection/,
		"$round: the writers were cut off");
	cmp_ok(scalar(keys %acked), '>', 400, "$round: commits were acknowledged");
	is("@lost", '', "$round: every acknowledged event is there");
	is("@unknown", '', "$round: no other event is there");
	is("@moved", '', "$round: at the position that its writer was told");
	cmp_ok(scalar(@doubt), '<=', $nwriters * keys %highest, "$round: at most the last of each writer is there unacknowledged");
	is(sql("SELECT count(*) FROM business FULL JOIN udb.outbox_events ON note = payload #>> '{}' WHERE note IS NULL OR payload IS NULL"),
		0, "$round: events and business rows stand or fall together");
	is(sql('SELECT count(*) - count(DISTINCT event_seq) FROM udb.outbox_events'), 0, "$round: no position is there twice");

	my $first = sql("INSERT INTO business VALUES ('after $round') RETURNING udb.enqueue('t', to_jsonb(note))");

	cmp_ok($first, '>', $highest{$round}, "$round: positions go on above all that were handed out");
	$tried{"after $round"} = $first;
	$acked{"after $round"} = 1;
	is(sql('SELECT count(*) FROM udb.horizon_holder()'), 0, "$round: nobody holds the horizon");

	my $drain = session($node);
	do { $drain->query($consume) } until $drain->query("SELECT count(*) FROM udb.read('c', 1)") == 0;
	$drain->quit;
	is(sql("SELECT count(*) FROM got FULL JOIN udb.outbox_events e USING (event_seq) WHERE note IS DISTINCT FROM payload #>> '{}'"),
		0, "$round: the consumer has seen every event");
	is(sql('SELECT count(*) - count(DISTINCT event_seq) FROM got'), 0, "$round: and none twice");
	is(sql('SELECT count(*) FROM (SELECT event_seq <= lag(event_seq) OVER (ORDER BY ord) AS back FROM got) x WHERE back'),
		0, "$round: in order");
	return;
}

# One of the writers' backends dies.
round('backend', sub {
	my ($writer) = @_;
	my $pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND query ~ 'business|enqueue|COMMIT' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");

	crash_backend($node, $pid);
});
check('backend');

# The whole server dies.
round('server', sub {
	crash_server($node);
	$node->start;
});
check('server');

# ---- asynchronous commit -------------------------------------------------------------------------

# Such a commit is visible before it is durable. A crash may take it, but not after a reader has seen it.
# A row that nobody makes durable shows that the crash does take something; the WAL writer may have been
# quicker, so that is tried some times.
$node->append_conf('postgresql.conf', "wal_writer_delay = 10s\ncheckpoint_timeout = 1h\n");
$node->restart;
sql('CREATE TABLE fate (note text)');
my ($taken, %served) = (0);
for my $try (1 .. 8)
{
	my $writer = session($node);
	my $reader = session($node);
	my $from = sql('SELECT udb.outbox_stable_seq()');

	$reader->query('SELECT count(*) FROM udb.peek(0)');
	$writer->query('SET synchronous_commit = off');
	# The first asynchronous commit after a rest wakes the WAL writer; let it have that one.
	$writer->query("INSERT INTO fate VALUES ('first')");
	wait_for('the WAL writer', sub { sql('SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()') eq 't' });
	$writer->query("INSERT INTO business VALUES ('async $try-$_'); SELECT udb.enqueue('t', '\"async $try-$_\"')") for 1 .. 3;
	foreach my $line (split /\n/, $reader->query("SELECT event_seq, payload #>> '{}' FROM udb.peek($from)"))
	{
		my ($position, $note) = split /\|/, $line;

		$served{$note} = $position;
	}
	$writer->query("INSERT INTO fate VALUES ('after $try')");
	crash_server($node);
	$node->start;
	$taken++ unless sql("SELECT count(*) FROM fate WHERE note = 'after $try'");
	$writer->quit;
	$reader->quit;

	my $next = sql("SELECT udb.enqueue('t', '\"next $try\"')");
	my ($top) = sort { $b <=> $a } values %served;
	cmp_ok($next, '>', $top, "async: position after crash $try is above what was served");
	last if $taken;
}
cmp_ok($taken, '>', 0, 'async: a crash takes asynchronous commits that nobody has read');
cmp_ok(scalar(keys %served), '>=', 3, 'async: events of asynchronous commits are served');
my %there = map { split /\|/ } split /\n/, sql("SELECT payload #>> '{}', event_seq FROM udb.outbox_events");
is(join(' ', grep { ($there{$_} // 0) != $served{$_} } sort keys %served), '',
	'async: what was served is there after the crash');

done_testing();
