# The token of a commit comes with the commit: on the wire before ReadyForQuery, once, and not otherwise.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (a int);
CREATE TABLE fence_tokens (i serial);
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3 LOOP INSERT INTO t VALUES (i); COMMIT; END LOOP;
END $$;
SQL

# Run the queries in one session. Returns for each what the server answered: the messages' names, and
# the token in place of the message that tells it.
sub wire
{
	my @queries = @_;
	my ($out, $err, @answers) = ('', '');

	IPC::Run::run([ 'udb_fence_client', 'wire', $node->connstr('postgres'), @queries ], '>', \$out, '2>', \$err);
	die $err if $err;
	foreach my $line (split /\n/, $out)
	{
		my @field = split /\t/, $line;

		push @answers, [] if $line =~ /^query /;
		next unless $field[0] eq 'B';
		# NoticeResponse and the rows are of no interest
		push @{ $answers[-1] }, $line =~ /ParameterStatus\t \K"udb\.last_token" "(.*)"/ ? $1 : $field[2];
	}
	return map { join ' ', @$_ } @answers;
}
my $token = qr/postgres:1\.[0-9a-f]{16}\.1\.0\.[0-9a-f]+\.d/;

my ($set, @got) = wire('SET udb.report_token = on', 'INSERT INTO t VALUES (1)', 'SELECT udb.last_commit_token()',
	'SHOW udb.last_token', 'BEGIN', 'INSERT INTO t VALUES (2)', 'COMMIT', 'INSERT INTO t VALUES (3); INSERT INTO t VALUES (4)');
like($got[0], qr/^CommandComplete $token ReadyForQuery$/, 'a commit is followed by its token');
unlike($_, qr/postgres:/, 'a query by none') foreach @got[ 1, 2 ];
is($got[3], 'CommandComplete ReadyForQuery', 'nor BEGIN');
is($got[4], 'CommandComplete ReadyForQuery', 'nor a write in a transaction block');
like($got[5], qr/^CommandComplete $token ReadyForQuery$/, 'but its COMMIT');
isnt($got[5], $got[0], 'which has another token');
like($got[6], qr/^CommandComplete CommandComplete $token ReadyForQuery$/, 'two statements that are one transaction: one');

(undef, @got) = wire('SET udb.report_token = on', 'BEGIN; INSERT INTO t VALUES (1); ROLLBACK', 'INSERT INTO t VALUES (1/0)',
	'INSERT INTO t VALUES (1); SELECT 1/0', q(BEGIN; INSERT INTO t VALUES (9); PREPARE TRANSACTION 'report'),
	q(COMMIT PREPARED 'report'), q(BEGIN; INSERT INTO t VALUES (9); PREPARE TRANSACTION 'report'), q(ROLLBACK PREPARED 'report'));
unlike($got[$_], qr/postgres:/, "no token ($_)") foreach 0 .. 3, 5, 6;
like($got[4], qr/^CommandComplete $token ReadyForQuery$/, 'COMMIT PREPARED');

(undef, @got) = wire('SET udb.report_token = on', 'BEGIN; INSERT INTO t VALUES (1); COMMIT; SELECT 1/0', 'CALL commits()',
	'CREATE TEMP TABLE u AS SELECT 1');
like($got[0], qr/ErrorResponse $token ReadyForQuery$/, 'a commit and then an error: the token still comes');
like($got[1], qr/^CommandComplete $token ReadyForQuery$/, 'a procedure that commits several times: the last one');
like($got[2], qr/^CommandComplete $token ReadyForQuery$/, 'CREATE TABLE AS');

# what is set for the transaction counts for its own commit
@got = wire('INSERT INTO t VALUES (1)', 'BEGIN; SET LOCAL udb.report_token = on; INSERT INTO t VALUES (1); COMMIT',
	'INSERT INTO t VALUES (1)', 'SET udb.report_token = on', 'SET udb.report_token = off', 'INSERT INTO t VALUES (1)');
like($got[1], qr/ $token ReadyForQuery$/, 'SET LOCAL');
unlike($got[$_], qr/postgres:/, 'off is off') foreach 0, 2, 5;

# a small answer, then one that is larger than the send buffer
(undef, @got) = wire('SET udb.report_token = on', q(INSERT INTO t SELECT 1 FROM generate_series(1, 3000) RETURNING repeat('x', 20)));
like($got[0], qr/DataRow CommandComplete $token ReadyForQuery$/, 'a large answer');

# in a pipeline each synchronization point has its own
my ($out, $err) = ('', '');
IPC::Run::run([ 'udb_fence_client', 'pipeline', $node->connstr('postgres') ], '>', \$out, '2>', \$err);
is($err, '', 'a pipeline');
my @sync = $out =~ /^sync (\S+)$/mg;
is(scalar(@sync), 5, 'five synchronization points');
like($_, qr/^$token$/, 'have tokens') foreach @sync;
is($sync[2], $sync[1], 'the failed one keeps that of the one before');
my %distinct = map { $_ => 1 } @sync;
is(scalar(keys %distinct), 4, 'the others have their own');

# the names in it survive the encoding of the client
@got = wire('SET client_encoding = latin1; SET udb.report_token = on', 'INSERT INTO t VALUES (1)');
like($got[1], qr/ $token ReadyForQuery$/, 'with another encoding of the client');

# Where there is no client nobody is told: parallel workers, and the background worker, which commits.
my ($parallel) = $node->safe_psql('postgres',
	q(SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')));
@got = wire("SET udb.report_token = on", "SET $parallel = on", 'INSERT INTO t VALUES (1)', 'SELECT count(*) FROM t');
is($got[3], 'RowDescription DataRow CommandComplete ReadyForQuery', 'a query with parallel workers, after a report');
$node->safe_psql('postgres', 'ALTER SYSTEM SET udb.report_token = on');
$node->safe_psql('postgres', 'ALTER SYSTEM SET udb.outbox_segment_size = 100');
$node->restart;
$node->safe_psql('postgres', q(SELECT udb.enqueue('x', '{}') FROM generate_series(1, 90)));
wait_for_sql($node, "SELECT count(*) > 1 FROM udb.outbox_segments");
pass('the worker makes a segment with the report switched on');
like($node->safe_psql('postgres', "INSERT INTO t VALUES (1); SELECT current_setting('udb.last_token')"), qr/^$token$/,
	'as it is for everybody');

done_testing();
