# 64 sessions fight for one lease, and some are killed while they hold it: there is never more than one holder,
# tokens only grow, and the lease is never lost for longer than its ttl.
#
# Each holder writes under assert_lease() into a ledger without constraints, whose positions come from a row
# that it reads and writes without a lock: a second holder at the same time would break the sequence.
use strict;
use warnings;
use IPC::Run qw(start);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

# A killed server leaves clients with closed connections.
$SIG{PIPE} = 'IGNORE';

my $sessions = 64;
my $seconds = $ENV{UDB_LEASE_SECONDS} // 30;
my $node = new_cluster('fight', conf => <<'CONF');
max_connections = 120
synchronous_commit = off
client_connection_check_interval = 100ms
CONF

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE ledger (pos bigint, owner text, token bigint, began timestamptz, written timestamptz);
CREATE TABLE tail (pos bigint);
INSERT INTO tail VALUES (0);
CREATE TABLE lost (owner text, token bigint);
-- One round: get the lease, write a few times under assert_lease, and release it, or leave that to the ttl.
CREATE PROCEDURE fight(me text, rounds int) LANGUAGE plpgsql AS $$
DECLARE
	l udb.lease;
	last bigint;
BEGIN
	FOR r IN 1..rounds LOOP
		IF random() < 0.7 THEN
			l := udb.acquire_lease('prize', me, '500 ms', '2 s');
		ELSE
			l := udb.acquire_lease('prize', me, '500 ms');
		END IF;
		COMMIT;
		IF l.name IS NULL THEN
			CONTINUE;
		END IF;
		FOR w IN 1..3 LOOP
			BEGIN
				PERFORM udb.assert_lease('prize', me, l.fencing_token);
				SELECT pos INTO last FROM tail;
				PERFORM pg_sleep(random() * 0.003);
				INSERT INTO ledger VALUES (last + 1, me, l.fencing_token, l.acquired_at, udb.lease_clock());
				UPDATE tail SET pos = last + 1;
			EXCEPTION WHEN SQLSTATE 'UD030' THEN
				INSERT INTO lost VALUES (me, l.fencing_token);
			END;
			COMMIT;
			IF random() < 0.3 THEN
				PERFORM udb.renew_lease('prize', me, l.fencing_token, '500 ms');
				COMMIT;
			END IF;
		END LOOP;
		-- some forget to release it, and some hang for longer than they may and go on writing
		IF random() < 0.02 THEN
			PERFORM pg_sleep(0.8);
			COMMIT;
			BEGIN
				PERFORM udb.assert_lease('prize', me, l.fencing_token);
				SELECT pos INTO last FROM tail;
				INSERT INTO ledger VALUES (last + 1, me, l.fencing_token, l.acquired_at, udb.lease_clock());
				UPDATE tail SET pos = last + 1;
			EXCEPTION WHEN SQLSTATE 'UD030' THEN
				INSERT INTO lost VALUES (me, l.fencing_token);
			END;
			COMMIT;
		ELSIF random() < 0.98 THEN
			PERFORM udb.release_lease('prize', me);
			COMMIT;
		END IF;
	END LOOP;
END
$$;
SQL

my (@fighters, %starts, $kills);

sub fighter
{
	my ($i) = @_;
	# Who comes back is somebody else: the one who was killed may still have a transaction running.
	my $name = "f${i}_" . $starts{$i}++;
	my $f = { in => "CALL fight('$name', 1000000);\n", out => '', err => '' };

	$f->{run} = start(
		[ 'psql', '-X', '-q', '-d', $node->connstr('postgres') . " application_name='$name'", '-f', '-' ],
		'<', \$f->{in}, '>', \$f->{out}, '2>', \$f->{err});
	$f->{run}->pump_nb;
	$fighters[$i] = $f;
	return;
}

# The client of whoever holds the lease, killed for good; its backend is left to find out.
sub kill_holding_client
{
	my $holder = $node->safe_psql('postgres', "SELECT owner_id FROM udb.lease_status WHERE held");

	return unless $holder =~ /^f(\d+)_/;
	my $run = $fighters[$1]->{run};
	$run->signal('KILL');
	eval { $run->finish };
	$kills++;
	fighter($1);
	return;
}

sub check_ledger
{
	my ($what) = @_;
	my $gaps = $node->safe_psql('postgres', <<'SQL');
SELECT count(*) FROM (SELECT pos, token, owner, row_number() OVER (ORDER BY pos) AS n,
	lag(token) OVER w AS last_token, lag(owner) OVER w AS last_owner, lag(written) OVER w AS last_written
	FROM ledger WINDOW w AS (ORDER BY pos)) l
WHERE pos <> n OR token < last_token OR (token = last_token AND owner <> last_owner)
SQL
	is($gaps, 0, "$what: each holder wrote after the one before, with a token that is not lower");
	is($node->safe_psql('postgres', 'SELECT (SELECT pos FROM tail) = (SELECT count(*) FROM ledger)'), 't',
		"$what: no two have written at the same position");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT token FROM ledger GROUP BY token HAVING count(DISTINCT owner) > 1) t'),
		0, "$what: no two owners had the same token");
	return;
}

# ---- clients are killed ----

fighter($_) foreach 0 .. $sessions - 1;
wait_for_sql($node, 'SELECT count(*) > 20 FROM ledger');
my $end = time + $seconds;
while (time < $end)
{
	usleep(300_000);
	kill_holding_client();
}
my ($written, $owners, $tokens) = split /\|/,
	$node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT owner), count(DISTINCT token) FROM ledger');
note "$written writes of $owners owners in $tokens terms, $kills holders killed, "
	. $node->safe_psql('postgres', 'SELECT count(*) FROM lost') . ' writes refused';
cmp_ok($owners, '>', 20, 'many owners had it');
cmp_ok($kills, '>', 3, 'some of which were killed with it');
check_ledger('clients killed');

# A gap between two writes of different terms is at most the ttl, plus what the others need to wake and write.
# The 0.5 s on top are for a machine that is busy with something else.
my $longest = $node->safe_psql('postgres', <<'SQL');
SELECT max(written - last) FROM (SELECT written, token, lag(written) OVER w AS last, lag(token) OVER w AS last_token
	FROM ledger WINDOW w AS (ORDER BY pos)) l WHERE token > last_token
SQL
note "longest time from the last write of one owner to the first one of the next: $longest";
# who hangs for 0.8 s has renewed it at most 0.5 s before it lost it
is($node->safe_psql('postgres', "SELECT interval '$longest' < interval '0.5 s' + interval '0.8 s' + interval '0.5 s'"), 't',
	'the lease is not lost for longer than its ttl');

# ---- backends are killed, which takes the whole server down ----

foreach my $round (1 .. 3)
{
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM ledger');
	my $pid = wait_for('a holder', sub {
		$node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity, udb.lease_status WHERE held AND application_name = owner_id") });

	crash_backend($node, $pid);
	eval { $fighters[$_]->{run}->finish } foreach 0 .. $sessions - 1;
	my $lease = $node->safe_psql('postgres', 'SELECT fencing_token FROM udb.advisory_leases');
	my $last = $node->safe_psql('postgres', 'SELECT max(token) FROM ledger');
	cmp_ok($lease, '>=', $last, "crash $round: the token has not gone back");
	fighter($_) foreach 0 .. $sessions - 1;
	wait_for_sql($node, "SELECT count(*) > $before + 20 FROM ledger");
}
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^f[0-9]+_'");
eval { $_->{run}->finish } foreach @fighters;
check_ledger('backends killed');

done_testing();
