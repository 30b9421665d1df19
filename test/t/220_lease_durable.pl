# Leases survive a restart, a crash, a dump and a failover, and their tokens never go back; what was not
# committed leaves nothing; what was prepared still counts after a crash.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', streaming => 1);
my $other = new_cluster('other', extension => 0);
my $state = "SELECT lease_name, owner_id, fencing_token, held FROM udb.lease_status ORDER BY 1";
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql("SELECT udb.try_acquire_lease('held', 'a', '1 h')");
sql("SELECT udb.try_acquire_lease('free', o, '0') FROM unnest(ARRAY['a', 'b', 'c']) o");
my $expected = "free|c|3|f\nheld|a|1|t";
is(sql($state), $expected, 'two leases');
$node->restart;
is(sql($state), $expected, 'are there after a restart');

# ---- a crash ----

my $s = session($node);
$s->query('BEGIN');
$s->query("SELECT udb.try_acquire_lease('free', 'd', '1 h'), udb.renew_lease('held', 'a', 1, '2 h'), udb.try_acquire_lease('new', 'd', '1 h')");
crash_backend($node, $s->pid);
is(sql($state), $expected, 'and after a crash, without what was not committed');
is(sql("SELECT udb.try_acquire_lease('held', 'b', '1 h')"), 'f', 'who had a lease still has it');
is(sql("SELECT (udb.acquire_lease('new', 'b', '1 h')).fencing_token"), 1, 'and who had not has not');

# A term that is lost in a crash could have its token given to another owner.
$node->append_conf('postgresql.conf', "wal_writer_delay = 10s\nsynchronous_commit = off\n");
$node->reload;
my $token = sql("SELECT (udb.acquire_lease('free', 'e', '1 h')).fencing_token");
is($token, 4, 'a term that starts');
crash_server($node);
$node->start;
is(sql("SELECT fencing_token, owner_id FROM udb.advisory_leases WHERE lease_name = 'free'"), '4|e',
	'is not lost in a crash, even if commits are asynchronous');
$token = sql("SELECT (udb.acquire_lease('first', 'e', '1 h')).fencing_token");
crash_server($node);
$node->start;
is(sql("SELECT fencing_token, owner_id FROM udb.advisory_leases WHERE lease_name = 'first'"), '1|e', 'nor is the first');
$node->append_conf('postgresql.conf', "synchronous_commit = on\n");
$node->reload;

# ---- prepared transactions ----

sql("BEGIN; SELECT udb.assert_lease('held', 'a', 1); PREPARE TRANSACTION 'asserted'");
sql("BEGIN; SELECT udb.try_acquire_lease('prepared', 'a', '0'); PREPARE TRANSACTION 'acquired'");
sql("SELECT udb.release_lease('held', 'a')");
crash_server($node);
$node->start;
is(sql("SELECT udb.try_acquire_lease('held', 'b', '1 h')"), 'f', 'what a prepared transaction has asserted is kept after a crash');
is(sql("SELECT udb.try_acquire_lease('prepared', 'b', '1 h')"), 'f', 'and what it has acquired');
sql("COMMIT PREPARED 'asserted'");
sql("ROLLBACK PREPARED 'acquired'");
is(sql("SELECT udb.try_acquire_lease('held', 'b', '1 h')"), 't', 'until it is committed');
is(sql("SELECT (udb.acquire_lease('prepared', 'b', '1 h')).fencing_token"), 1, 'or rolled back');

# ---- tables are moved ----

my $tokens = sql($state);
sql('VACUUM FULL udb.advisory_leases');
is(sql("SELECT udb.try_acquire_lease(lease_name, 'nobody', '1 h') FROM udb.advisory_leases WHERE expires_at > now() GROUP BY 1"), 'f',
	'where the rows are looked for after VACUUM FULL, the right ones are found');
sql("SELECT udb.renew_lease(lease_name, owner_id, fencing_token, '1 h') FROM udb.advisory_leases");
is(sql($state), $tokens, 'and written');
is(sql("SET enable_seqscan = off; SELECT count(*) FROM udb.advisory_leases l WHERE EXISTS (SELECT FROM udb.advisory_leases m WHERE m.lease_name = l.lease_name)"),
	sql('SELECT count(*) FROM udb.advisory_leases'), 'and the index knows them');

# ---- dump and restore ----

my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $file ], 'leases can be dumped');
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $file ], 'and restored');
is($other->safe_psql('postgres', $state), $tokens, 'with all that is known of them');
is($other->safe_psql('postgres', "SELECT udb.release_lease('free', 'e'); SELECT (udb.acquire_lease('free', 'f', '1 h')).fencing_token"),
	"t\n5", 'tokens go on from there');

# ---- a standby ----

my $standby = new_standby($node, 'standby');
sql("SELECT udb.release_lease('free', 'e'); SELECT udb.try_acquire_lease('free', 'f', '1 h')");
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $state), sql($state), 'a standby shows the leases');
my ($rc, $out, $err) = $standby->psql('postgres', "SELECT udb.try_acquire_lease('free', 'g', '1 h')");
like($err, qr/cannot execute try_acquire_lease\(\) during recovery/, 'but gives none');
($rc, $out, $err) = $standby->psql('postgres', "SELECT udb.assert_lease('free', 'f', 5)");
like($err, qr/cannot execute assert_lease\(\) during recovery/, 'and asserts none');
$node->stop('immediate');
$standby->promote;
wait_for_sql($standby, 'SELECT NOT pg_is_in_recovery()');
is($standby->safe_psql('postgres', "SELECT udb.try_acquire_lease('free', 'g', '1 h')"), 'f', 'when it is promoted, who had a lease has it');
is($standby->safe_psql('postgres', "SELECT udb.release_lease('free', 'f'); SELECT (udb.acquire_lease('free', 'g', '1 h')).fencing_token"),
	"t\n6", 'and tokens go on');

done_testing();
