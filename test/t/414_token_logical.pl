# Tokens and logical replication: the subscriber is another cluster, and its commits are its own.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $publisher = new_cluster('publisher', streaming => 1, conf => "wal_level = logical\n");
my $subscriber = new_cluster('subscriber', conf => "wal_level = logical\nudb.report_token = on\n");
$_->safe_psql('postgres', 'CREATE TABLE t (a int)') foreach $publisher, $subscriber;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE t');
(my $conninfo = $publisher->connstr('postgres')) =~ s/'/''/g;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$conninfo' PUBLICATION p");

my $w = session($publisher);
my $s = session($subscriber);
$s->query('INSERT INTO t VALUES (0)');
my $own = $s->query('SELECT udb.last_commit_token()');
my $before = $s->query('SELECT udb.current_token()');
$w->query('INSERT INTO t VALUES (1)');
my $token = $w->query('SELECT udb.last_commit_token()');
wait_for_sql($subscriber, 'SELECT count(*) = 2 FROM t');
pass('changes are applied with the report switched on');
is(sqlstate($subscriber, "SELECT udb.token_reached('$token')"), 'UD021', 'the publisher\'s token is of another cluster there');
is($s->query('SELECT udb.last_commit_token()'), $own, 'what the apply worker commits is no session\'s commit');
is($s->query("SELECT udb.token_covers(udb.current_token(), '$before') AND NOT udb.token_covers('$before', udb.current_token())"),
	't', 'but current_token() covers it');

# A logical decoding session reads what was written; it commits nothing.
$w->query("SELECT pg_create_logical_replication_slot('x', 'test_decoding')");
$w->query('INSERT INTO t VALUES (2)');
$token = $w->query('SELECT udb.last_commit_token()');
like($w->query("SELECT string_agg(data, ' ') FROM pg_logical_slot_get_changes('x', NULL, NULL)"), qr/INSERT/, 'decoding');
is($w->query('SELECT udb.last_commit_token()'), $token, 'is no commit');

done_testing();
