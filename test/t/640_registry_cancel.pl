# A handler that ends in what a PL/pgSQL block does not catch by itself, or does not end: it fails like any other, and
# holds up neither the other consumers nor the worker.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('main', conf => "udb.worker_interval = 1\nudb.notify_interval = 100\n");
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(<<'SQL');
CREATE TABLE got (key text);
CREATE FUNCTION take(consumer text, records udb.registry_record[], removals boolean) RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.got SELECT key FROM unnest(records)
$$;
CREATE FUNCTION run(consumer text, records udb.registry_record[], removals boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE records[1].record ->> 0;
END
$$;
SELECT udb.create_registry('r');
SELECT udb.create_registry_consumer('bad', 'r', 'run(text, udb.registry_record[], boolean)'),
	udb.create_registry_consumer('good', 'r', 'take(text, udb.registry_record[], boolean)');
SQL

sub fails
{
	my ($key, $statement, $error, $meanwhile) = @_;

	sql("UPDATE udb.registry_consumers SET applied = (SELECT udb.watermark('r')), failures = 0, not_before = NULL WHERE consumer = 'bad'");
	sql("SELECT udb.put_record('r', '$key', to_jsonb(\$x\$$statement\$x\$::text))");
	$meanwhile->() if $meanwhile;
	wait_for_sql($node, "SELECT count(*) FROM got WHERE key = '$key'", 1);
	wait_for_sql($node, "SELECT failures > 0 AND last_error LIKE '$error' FROM udb.registry_consumers WHERE consumer = 'bad'");
	return;
}

my $worker = sql("SELECT max(worker_pid) FROM udb.worker_status");
fails('assertion', "DO \$\$ BEGIN ASSERT false, 'not so'; END \$\$", 'P0004: not so');
pass('a failed assertion');
fails('cancel', "DO \$\$ BEGIN RAISE query_canceled; END \$\$", '57014: query_canceled');
pass('an error that looks like a cancelled query');
fails('sleep', 'SELECT pg_sleep(600)', '57014: canceling statement%', sub {
	wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $worker AND wait_event = 'PgSleep'", 1);
	sql("SELECT pg_cancel_backend($worker)");
});
pass('a handler that somebody has cancelled');
is(sql("SELECT max(worker_pid) FROM udb.worker_status"), $worker, 'the worker is the same');
is(sql("SELECT failures || coalesce(last_error, '') FROM udb.worker_status WHERE sweep = 'registries'"), 0, 'and its sweep has not failed');

done_testing();
