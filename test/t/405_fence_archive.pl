# Standbys without a stream: replay from an archive, and recovery that pauses at its target.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, has_archiving => 1);
$primary->append_conf('postgresql.conf', "shared_preload_libraries = 'udb'\n");
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION udb; CREATE TABLE t (a int)');
$primary->backup('base');

my $archive = PostgreSQL::Test::Cluster->new('archive');
$archive->init_from_backup($primary, 'base', has_restoring => 1);
$archive->append_conf('postgresql.conf', "wal_retrieve_retry_interval = '100ms'\n");
$archive->start;

sub write_row { return (split /\n/, $primary->safe_psql('postgres', "INSERT INTO t VALUES ($_[0]); SELECT udb.last_commit_token()"))[-1]; }

# ---- from the archive ------------------------------------------------------------------------------

my $token = write_row(1);
my $s = session($archive);
$s->query('SET udb.fence_timeout = -1');
$s->send("SET udb.fence = '$token'; SELECT max(a) FROM t");
wait_for_sql($archive, 'SELECT count(*) FROM udb.fence_waiters', 1);
ok(!$s->done, 'waits for a segment that is not archived yet');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
is($s->receive, 1, 'and is woken when it has been replayed');

# ---- a target at which recovery pauses ---------------------------------------------------------------

$primary->safe_psql('postgres', "SELECT pg_create_restore_point('here')");
my $beyond = write_row(2);
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
my $target = PostgreSQL::Test::Cluster->new('target');
$target->init_from_backup($primary, 'base', has_restoring => 1);
$target->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_action = 'pause'\n");
$target->start;
$s = session($target);
$s->query('SET udb.fence_timeout = -1');
is($s->query("SET udb.fence = '$token'; SELECT max(a) FROM t"), 1, 'what is before the target is reached');
wait_for_sql($target, q(SELECT pg_get_wal_replay_pause_state() = 'paused'));
my ($rc, $out, $err) = $target->psql('postgres', "SET udb.fence_timeout = '100 ms'; SET udb.fence = '$beyond'");
like($err, qr/not reached within.*Replay is paused/s, 'what is behind it is not, and the error says why');

# Nothing is replayed between here and the promotion that resuming means.
$s->send("\\set VERBOSITY sqlstate\nSET udb.fence = '$beyond'");
wait_for_sql($target, 'SELECT count(*) FROM udb.fence_waiters', 1);
$target->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
($out, $err) = $s->receive_all;
like($err, qr/UD022/, 'when recovery ends there, the wait does too: the write will never come');
wait_for_sql($target, 'SELECT NOT pg_is_in_recovery()');
like((split /\n/, $target->safe_psql('postgres', 'INSERT INTO t VALUES (3); SELECT udb.last_commit_token()'))[-1],
	qr/\.2\.[1-9a-f][0-9a-f]*\./, 'and the restored cluster is on a timeline of its own');

done_testing();
