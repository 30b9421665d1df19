# Writers that commit, roll back, use savepoints and prepare, against readers in sessions that live long: nobody resolves
# what was replaced before he asked, and numbers have no gaps.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker = off\n");
sub sql { return $node->safe_psql('postgres', $_[0]); }

# What a writer has put is in "done" once its commit has returned. A reader looks there first, then resolves.
sql(<<'SQL');
SELECT udb.create_registry('r'), udb.create_registry('large');
SELECT count(udb.put_record('large', 'filler' || i, '0')) FROM generate_series(1, 1200) i;
CREATE TABLE done (key text PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 20);
CREATE TABLE took (registry text, seq bigint);
INSERT INTO done SELECT 'w' || i, 0 FROM generate_series(1, 3) i;
SELECT udb.put_record(r, 'w' || i, '0') FROM unnest('{r,large}'::text[]) r, generate_series(1, 3) i;

CREATE PROCEDURE write(w text, rounds int) LANGUAGE plpgsql AS $$
DECLARE
	s bigint;
BEGIN
	FOR i IN 1 .. rounds LOOP
		-- something that comes to nothing, first
		IF i % 3 = 0 THEN
			PERFORM udb.put_record('r', w, '-1'), udb.remove_record('large', w);
			ROLLBACK;
		ELSIF i % 3 = 1 THEN
			BEGIN
				PERFORM udb.put_record('r', w, '-2'), udb.resolve('r', w), 1 / 0;
			EXCEPTION WHEN division_by_zero THEN
			END;
		END IF;
		IF i % 7 = 0 THEN
			s := udb.remove_record('r', w);
			INSERT INTO took VALUES ('r', s);
		END IF;
		s := udb.put_record('r', w, to_jsonb(i));
		INSERT INTO took VALUES ('r', s);
		s := udb.put_record('large', w, to_jsonb(i));
		INSERT INTO took VALUES ('large', s);
		COMMIT;
		UPDATE done SET n = i WHERE key = w;
		COMMIT;
	END LOOP;
END
$$;
CREATE FUNCTION read(rounds int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	k text;
	least int;
	got jsonb;
	stale int := 0;
	moved int := 0;
	last jsonb;
BEGIN
	FOR i IN 1 .. rounds LOOP
		k := 'w' || i % 3 + 1;
		least := (SELECT n FROM done WHERE key = k);
		got := udb.resolve(CASE WHEN i % 2 = 0 THEN 'r' ELSE 'large' END, k);
		IF coalesce(got::int, -9) < least THEN
			stale := stale + 1;
		END IF;
		moved := moved + (got IS DISTINCT FROM last)::int;
		last := got;
	END LOOP;
	RETURN format('%s stale, moved %s', stale, moved > 100);
END
$$;
SQL

my @writers = map { session($node) } 1 .. 3;
my @readers = map { session($node) } 1 .. 2;
$writers[$_]->send("CALL write('w" . ($_ + 1) . "', 700)") for 0 .. 2;
$_->send('SELECT read(40000)') foreach @readers;
is($_->receive, '0 stale, moved t', 'a reader sees all that was committed before') foreach @readers;
is($_->receive, '', 'a writer is done') foreach @writers;
is($readers[0]->query("SELECT string_agg(udb.resolve(r, 'w' || i)::text, ' ') FROM unnest('{r,large}'::text[]) r, generate_series(1, 3) i"),
	'700 700 700 700 700 700', 'and in the end all is as it was written last');
is(sql("SELECT registry, count(DISTINCT seq) = count(*), min(seq), max(seq) - min(seq) + 1 - count(*), max(seq) = udb.watermark(registry) FROM took GROUP BY 1 ORDER BY 1"),
	"large|t|1204|0|t\nr|t|4|0|t", 'numbers have no gaps, and none was given out twice');

# The same with prepared transactions, one after the other.
my $wrong = 0;
for my $i (1 .. 40)
{
	$writers[0]->query("BEGIN; SELECT udb.put_record('r', 'w1', '$i'); PREPARE TRANSACTION 'p'");
	my $before = $readers[0]->query("SELECT udb.resolve('r', 'w1')");
	$writers[1]->query($i % 4 ? "COMMIT PREPARED 'p'" : "ROLLBACK PREPARED 'p'");
	my $after = $readers[0]->query("SELECT udb.resolve('r', 'w1')");
	$wrong++ if $after ne ($i % 4 ? $i : $before);
}
is($wrong, 0, 'nor is anything stale after COMMIT PREPARED');
$_->quit foreach @writers, @readers;

done_testing();
