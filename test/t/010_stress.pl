# Sixteen writers that do everything writers can do, and three consumers: one reads all, one only some topics
# and slowly, one is cut off in the middle of its transactions. In the end each has seen exactly what was
# committed, each event once, positions rising, and for each key in the order in which its writers committed.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use UdbTest;

my $seconds = 15;
my $node = new_cluster('main', conf => <<'CONF');
udb.outbox_segment_size = 400
max_locks_per_transaction = 256
autovacuum_naptime = 1s
deadlock_timeout = 100ms
CONF

# Writers of the same key exclude each other by the account's row; n counts its events. What a transaction
# enqueues it also writes to sent, and that is what the consumers have to see.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO account SELECT generate_series(0, 23);
CREATE TABLE sent (event_seq bigint PRIMARY KEY, event_id uuid UNIQUE, topic text, key text, n int);

-- One event, with an id of its own.
CREATE FUNCTION put(k int, id uuid DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	now_n int;
	seq bigint;
BEGIN
	UPDATE account SET n = n + 1 WHERE account.id = k RETURNING n INTO now_n;
	seq := udb.enqueue('t' || k % 4, jsonb_build_object('n', now_n), k::text, id);
	INSERT INTO sent VALUES (seq, id, 't' || k % 4, k, now_n);
	RETURN seq;
END $$;

-- Several in one call, some with an id.
CREATE FUNCTION put_many(k int, c int) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	now_n int;
	seqs bigint[];
	ids uuid[] := array(SELECT CASE WHEN random() < 0.1 THEN gen_random_uuid() END FROM generate_series(1, c));
BEGIN
	UPDATE account SET n = n + c WHERE account.id = k RETURNING n - c INTO now_n;
	seqs := udb.enqueue_many('t' || k % 4,
		array(SELECT jsonb_build_object('n', now_n + i) FROM generate_series(1, c) i),
		array_fill(k::text, ARRAY[c]), CASE WHEN random() < 0.3 THEN ids END);
	INSERT INTO sent SELECT s, NULL, 't' || k % 4, k, now_n + i FROM unnest(seqs) WITH ORDINALITY x (s, i);
	RETURN seqs;
END $$;

-- Given twice, it is the same event.
CREATE FUNCTION put_id(k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	id uuid := gen_random_uuid();
	seq bigint := put(k, id);
BEGIN
	IF udb.enqueue('t' || k % 4, (SELECT jsonb_build_object('n', n) FROM account WHERE account.id = k),
			k::text, id) <> seq THEN
		RAISE 'the same event got another position';
	END IF;
END $$;

-- Rolled back by an exception block, then done again.
CREATE FUNCTION put_again(k int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM put(k), put_many(k, 3);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	PERFORM put(k);
END $$;
SQL

foreach my $consumer ([ 'all', 'NULL' ], [ 'some', "ARRAY['t1', 't3']" ], [ 'cut', 'NULL' ])
{
	my ($name, $topics) = @$consumer;

	$node->safe_psql('postgres', <<SQL);
SELECT udb.create_consumer('$name', $topics);
CREATE TABLE got_$name (ord bigserial, event_seq bigint, event_id uuid, topic text, key text, n int);
CREATE INDEX ON got_$name (event_seq);
SQL
}

# ---- writers -------------------------------------------------------------------------------------

my @scripts = (
	[ one => 20, 'SELECT put(:k);' ],
	[ several => 10, "BEGIN;\nSELECT put(:k);\nSELECT put(:k);\nSELECT put(:k);\nCOMMIT;" ],
	[ two_keys => 10, "BEGIN;\nSELECT put(:k);\nSELECT put(:k + :d);\nCOMMIT;" ],
	[ slow => 10, "BEGIN;\nSELECT put(:k);\n\\sleep :ms ms\nSELECT put(:k);\n\\sleep :ms ms\nCOMMIT;" ],
	[ rollback => 8, "BEGIN;\nSELECT put(:k);\n\\sleep 3 ms\nSELECT put_many(:k, 5);\nROLLBACK;" ],
	[ savepoint => 12,
		"BEGIN;\nSAVEPOINT a;\nSELECT put_many(:k, 3);\nROLLBACK TO a;\nSELECT put(:k);\nSAVEPOINT b;\nSELECT put(:k);\n"
		  . "RELEASE b;\nSAVEPOINT c;\nSELECT put(:k);\nROLLBACK TO c;\nCOMMIT;" ],
	[ many => 8, 'SELECT put_many(:k, :c);' ],
	[ given_id => 8, 'SELECT put_id(:k);' ],
	[ exception => 8, 'SELECT put_again(:k);' ],
	# These do not look at a row that others may have changed, as their snapshots are fixed.
	[ fixed => 3,
		"BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM sent WHERE event_seq < 100;\n\\sleep 5 ms\n"
		  . "INSERT INTO sent SELECT udb.enqueue('t1', '{\"n\": 0}', 'none'), NULL, 't1', 'none', 0;\nCOMMIT;" ],
	[ async => 5, "SET synchronous_commit = off;\nSELECT put(:k);\nRESET synchronous_commit;" ],);
my @files = map {
	my ($name, $weight, $sql) = @$_;
	my $file = $node->basedir . "/$name.sql";

	append_to_file($file,
		"\\set k random(0, 19)\n\\set d random(1, 4)\n\\set ms random(1, 60)\n\\set c random(1, 60)\n$sql\n");
	('-f', "$file\@$weight");
} @scripts;

my ($writers_out, $writers_err) = ('', '');
my $writers = IPC::Run::start(
	[
		'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 16, '-j', 2, '-T', $seconds, @files, 'postgres'
	],
	'>', \$writers_out, '2>', \$writers_err);

# ---- consumers -----------------------------------------------------------------------------------

sub batch
{
	my ($name, $max, $end) = @_;

	return <<SQL;
BEGIN;
INSERT INTO got_$name (event_seq, event_id, topic, key, n)
	SELECT event_seq, event_id, topic, partition_key, (payload ->> 'n')::int FROM udb.read('$name', $max);
SELECT count(*), udb.checkpoint('$name', max(event_seq)) FROM got_$name HAVING count(*) > 0;
$end
SQL
}

my %consumer = (
	all => { max => 200, every => 0 },
	some => { max => 50, every => 0.15 },
	cut => { max => 100, every => 0.02 });
foreach my $c (values %consumer)
{
	$c->{session} = session($node);
	$c->{next} = $c->{seen} = $c->{cuts} = 0;
}

my $stop_at;
while (1)
{
	foreach my $name (keys %consumer)
	{
		my $c = $consumer{$name};

		if ($c->{busy})
		{
			next unless $c->{session}->done;
			my ($count) = $c->{session}->receive =~ /^(\d+)\|/;

			$c->{busy} = 0;
			$c->{batches}++;
			$c->{idle} = defined $stop_at && ($count // 0) == $c->{seen};
			$c->{seen} = $count // 0;
		}
		elsif ($name eq 'cut' && !defined $stop_at && $c->{batches} && $c->{batches} % 3 == 0)
		{
			# Leaves after the checkpoint and before the commit.
			$c->{session}->query(batch($name, $c->{max}, ''));
			$c->{session}->quit;
			$c->{session} = session($node);
			$c->{cuts}++;
			$c->{batches}++;
		}
		if (time >= $c->{next} || defined $stop_at)
		{
			$c->{session}->send(batch($name, defined $stop_at ? 5000 : $c->{max}, 'COMMIT;'));
			$c->{busy} = 1;
			$c->{next} = time + $c->{every};
		}
	}
	last if defined $stop_at && !grep { !$_->{idle} } values %consumer;
	die 'the consumers do not come to an end' if defined $stop_at && time > $stop_at + 60;
	if (!defined $stop_at)
	{
		eval { $writers->pump_nb };
		$stop_at = time unless $writers->pumpable;
	}
	usleep(1000);
}
$writers->finish;
foreach my $c (values %consumer)
{
	$c->{session}->receive if $c->{busy};
	$c->{session}->quit;
}

# ---- what came of it -----------------------------------------------------------------------------

is($writers->result(0), 0, 'the writers had no errors') or diag($writers_err);
unlike($writers_err, qr/ERROR|aborted/, 'and complained about nothing');
my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM sent');
my $segments = $node->safe_psql('postgres', 'SELECT count(*) FROM udb.outbox_segments');
note("$count events in $segments segments; cut off $consumer{cut}{cuts} times");
cmp_ok($count, '>', 3000, 'there was some load');
cmp_ok($segments, '>', 10, 'over many segments');
cmp_ok($consumer{cut}{cuts}, '>', 0, 'one consumer was cut off');
cmp_ok($consumer{some}{batches}, '<', $consumer{all}{batches}, 'one was slower than another');

sub holds { my ($sql, $what) = @_; is($node->safe_psql('postgres', $sql), 0, $what); return; }

holds('SELECT count(*) FROM udb.horizon_holder()', 'nobody holds the horizon');
holds('SELECT count(*) FROM sent FULL JOIN udb.outbox_events e USING (event_seq, topic) '
	  . 'WHERE sent.n IS DISTINCT FROM (e.payload ->> \'n\')::int OR sent.key IS DISTINCT FROM e.partition_key '
	  . 'OR (sent.event_id IS NOT NULL AND sent.event_id <> e.event_id)',
	'the log holds what was committed and nothing else');
holds('SELECT count(*) - count(DISTINCT event_id) FROM udb.outbox_events', 'event ids are unique over all segments');
foreach my $name (sort keys %consumer)
{
	my $mine = $name eq 'some' ? "topic IN ('t1', 't3')" : 'true';

	holds("SELECT count(*) FROM (SELECT * FROM sent WHERE $mine) s FULL JOIN got_$name g USING (event_seq, topic, key, n) WHERE s.topic IS NULL OR g.ord IS NULL",
		"$name has seen exactly the committed set");
	holds("SELECT count(*) - count(DISTINCT event_seq) FROM got_$name", "$name has seen each once");
	holds("SELECT count(*) FROM (SELECT event_seq <= lag(event_seq) OVER (ORDER BY ord) AS back FROM got_$name) x WHERE back",
		"$name: positions rise strictly");
	holds("SELECT count(*) FROM (SELECT n, row_number() OVER (PARTITION BY key ORDER BY ord) AS should FROM got_$name WHERE key <> 'none') x WHERE n <> should",
		"$name: each key in the order of its commits");
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM got_$name"), '>', 1000, "$name has seen something");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM account a WHERE n <> (SELECT count(*) FROM sent WHERE key = a.id::text)'),
	0, 'the accounts agree');

done_testing();
