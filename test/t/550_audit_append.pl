# 32 sessions append to the audit log, some clients and backends and twice the server are killed, and a prepared
# transaction keeps its turn over a crash: there is one unbroken chain with all that was committed, and no more.
use strict;
use warnings;
use IPC::Run qw(start);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

# A killed server leaves clients with closed connections.
$SIG{PIPE} = 'IGNORE';

my $sessions = 32;
my $seconds = $ENV{UDB_AUDIT_SECONDS} // 4;
my $node = new_cluster('append', conf => "client_connection_check_interval = 100ms\n");

# What each transaction has appended is written down by itself as well.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE done (audit_id uuid);
CREATE PROCEDURE work(me text) LANGUAGE plpgsql AS $$
DECLARE
	last uuid;
BEGIN
	FOR round IN 1..10 LOOP
		FOR i IN 0..(random() * 2)::int LOOP
			BEGIN
				last := udb.append_admin_audit(me, 'work', 'target', jsonb_build_object('i', i, 'a', repeat('x', (random() * 50)::int)), 'ok');
				INSERT INTO done VALUES (last);
				IF random() < 0.2 THEN
					RAISE division_by_zero;
				END IF;
			EXCEPTION WHEN division_by_zero THEN
				NULL;
			END;
		END LOOP;
		IF random() < 0.2 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
END
$$;
SQL

sub check_chain
{
	my ($what) = @_;

	is($node->safe_psql('postgres', 'SELECT outcome, reason FROM udb.verify_admin_audit_chain()'), 'passed|', "$what: the chain verifies");
	is($node->safe_psql('postgres', <<'SQL'), 0, "$what: and is one, without gaps");
SELECT count(*) FROM (SELECT chain_position, row_number() OVER w AS n, previous_hash, lag(current_hash, 1, '') OVER w AS before
	FROM udb.admin_audit_log WINDOW w AS (ORDER BY chain_position)) l WHERE chain_position <> n OR previous_hash <> before
SQL
	is($node->safe_psql('postgres', 'SELECT count(*) FROM done FULL JOIN udb.admin_audit_log l USING (audit_id) WHERE done IS NULL OR l IS NULL'),
		0, "$what: it has what was committed, and nothing else");
	return;
}

# Many calls, since a backend that never waits for its client does not notice that the postmaster is gone.
my @workers;
my $dir = PostgreSQL::Test::Utils::tempdir;
sub start_worker
{
	my ($i) = @_;
	my $w = { out => '', err => '' };

	append_to_file("$dir/w$i.sql", "CALL work('w$i');\n" x 10_000) unless -e "$dir/w$i.sql";
	$w->{run} = start(
		[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') . " application_name=w$i", '-f', "$dir/w$i.sql" ],
		'<', \undef, '>', \$w->{out}, '2>', \$w->{err});
	$w->{run}->pump_nb;
	$workers[$i] = $w;
	return;
}

sub finish_workers
{
	eval { $_->{run}->finish } foreach @workers;
	return;
}

sub wait_for_more
{
	my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM done');

	return wait_for_sql($node, "SELECT count(*) > $count + 300 FROM done");
}

# ---- clients are killed ----

start_worker($_) foreach 0 .. $sessions - 1;
wait_for_sql($node, "SELECT count(*) = $sessions FROM pg_stat_activity WHERE application_name ~ '^w[0-9]'");
my $end = time + $seconds;
my $kills = 0;
while (time < $end)
{
	my $i = int(rand($sessions));

	$workers[$i]{run}->signal('KILL');
	eval { $workers[$i]{run}->finish };
	$kills++;
	start_worker($i);
	usleep(100_000);
}
wait_for_more();
note "$kills clients killed, " . $node->safe_psql('postgres', 'SELECT count(*) FROM done') . ' rows';
check_chain('clients killed');

# ---- a backend is killed, and so is the server ----

crash_backend($node, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE application_name = 'w3' LIMIT 1"));
finish_workers();
check_chain('a backend killed');
foreach my $round (1, 2)
{
	start_worker($_) foreach 0 .. $sessions - 1;
	wait_for_more();
	crash_server($node);
	$node->start;
	finish_workers();
	check_chain("server killed, $round");
}

# ---- a prepared transaction has appended, and the server is killed ----

my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM done');
$node->safe_psql('postgres', <<'SQL');
BEGIN;
INSERT INTO done SELECT udb.append_admin_audit('prepared', 'op', 't', '{}', 'ok');
PREPARE TRANSACTION 'one';
SQL
crash_server($node);
$node->start;
my $append = "INSERT INTO done SELECT udb.append_admin_audit('after', 'op', 't', '{}', 'ok')";
is(sqlstate($node, "SET lock_timeout = '10ms'; $append"), '55P03', 'nobody passes a prepared transaction');
my $waiting = session($node);
$waiting->send($append);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = @{[$waiting->pid]} AND wait_event_type = 'Lock'");
$node->safe_psql('postgres', "COMMIT PREPARED 'one'");
$waiting->receive;
$waiting->quit;
is($node->safe_psql('postgres', "SELECT string_agg(actor, ' ' ORDER BY chain_position) FROM udb.admin_audit_log WHERE chain_position > $count"),
	'prepared after', 'after its end the other one links to it');
check_chain('prepared');

done_testing();
