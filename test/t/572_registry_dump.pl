# A dump restored elsewhere: the same records, and numbers that go on above all that were given out.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker = off\n");
my $dumps = $node->basedir;
sub sql { return $node->safe_psql('postgres', $_[0], @_[1 .. $#_]); }

sql(<<'SQL');
CREATE FUNCTION public.h(c text, r udb.registry_record[], removals boolean) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT udb.create_registry('r'), udb.create_registry('empty'), udb.create_registry('emptied');
SELECT count(udb.put_record('r', 'k' || i, to_jsonb(i))) FROM generate_series(1, 2000) i;
SELECT udb.remove_record('r', 'k2000'), udb.touch_record('r', 'k1');
SELECT udb.put_record('emptied', 'a', '1'), udb.remove_record('emptied', 'a');
SELECT udb.create_registry_consumer('c', 'r'), udb.create_registry_consumer('h', 'r', 'public.h(text, udb.registry_record[], boolean)');
SELECT count(*) FROM udb.reconcile('c', 500);
SQL
my $see = <<'SQL';
SELECT * FROM udb.registries ORDER BY 1;
SELECT * FROM udb.registry_records ORDER BY 1, 2;
SELECT * FROM udb.registry_consumers ORDER BY 1;
SELECT udb.resolve('r', 'k1'), udb.resolve('r', 'k1999'), udb.resolve('r', 'k2000'), udb.resolve('empty', 'x'), udb.resolve('emptied', 'a');
SQL
my $seen = sql($see);
my $fresh = new_cluster('fresh', conf => "udb.worker = off\n", extension => 0);

foreach my $format ([ 'plain', '-Fp', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f' ], [ 'jobs', '-Fc', 'pg_restore', '--exit-on-error', '-j', '4' ])
{
	my ($name, $how, $program, @options) = @$format;
	my $file = "$dumps/$name.dump";

	command_ok([ 'pg_dump', $how, '-f', $file, '-d', $node->connstr('postgres') ], "$name: pg_dump");
	$fresh->safe_psql('postgres', "CREATE DATABASE $name");
	my @database = ('-d', $fresh->connstr($name));
	command_ok($name eq 'plain' ? [ $program, @options, $file, @database ] : [ $program, @options, @database, $file ], "$name: restored");
	is($fresh->safe_psql($name, $see), $seen, "$name: all is as it was");
	is($fresh->safe_psql($name, "SELECT udb.put_record('r', 'new', '1'), udb.put_record('emptied', 'a', '1'), udb.put_record('empty', 'a', '1')"),
		'2003|3|1', "$name: numbers go on, also where no record is left");
	is($fresh->safe_psql($name, "SELECT min(seq), max(seq), count(*) FROM udb.reconcile('c', 10000)"), '502|2003|1500', "$name: and so does a consumer");
	is($fresh->safe_psql($name, "SELECT udb.sweep_registries(), udb.sweep_registries(), udb.sweep_registries()"), '1000|1000|0', "$name: a handler is called");
}

# data alone, into a database where a session has kept what was there before
my $session;
$fresh->safe_psql('postgres', 'CREATE DATABASE early');
$fresh->safe_psql('early', 'CREATE EXTENSION udb');
$fresh->safe_psql('early', "INSERT INTO udb.registries VALUES ('r', 2002, 2001)");
$session = session($fresh, database => 'early');
is($session->query("SELECT udb.resolve('r', 'k1') IS NULL"), 't', 'there is nothing yet');
my $copy = $node->safe_psql('postgres', "COPY (SELECT * FROM udb.registry_records WHERE registry = 'r') TO STDOUT");
append_to_file("$dumps/records", "$copy\n");
$fresh->safe_psql('early', "\\copy udb.registry_records FROM '$dumps/records'");
is($session->query("SELECT udb.resolve('r', 'k1'), udb.resolve('r', 'k1999')"), '1|1999', 'records that come after their registry are noticed');
$session->quit;

done_testing();
