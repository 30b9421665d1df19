# Tokens across failover, restore and clusters. What a bare LSN calls success can be a lost write.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $old = new_cluster('old', streaming => 1);
$old->safe_psql('postgres', 'CREATE TABLE t (a int)');
my $new = new_standby($old, 'new');
# cascades from the one that will be promoted
my $cascade = new_standby($old, 'cascade', start => 0);
$cascade->append_conf('postgresql.conf', "primary_conninfo = '" . $new->connstr . "'\n");
$cascade->start;
# will be a fork of its own, with the same number of timeline
my $fork = new_standby($old, 'fork', start => 0);

sub write_row
{
	my ($node, $a) = @_;
	# One session: the token is of the commit before.
	return (split /\n/, $node->safe_psql('postgres', "INSERT INTO t VALUES ($a); SELECT udb.last_commit_token()"))[-1];
}
sub outcome
{
	my ($node, $token, $timeout) = @_;
	my ($rc, $out, $err) = $node->psql('postgres',
		"\\set VERBOSITY sqlstate\nSET udb.fence_timeout = '" . ($timeout // '60 s') . "'; SET udb.fence = '$token'");

	return $err =~ /ERROR:  (\w+)/ ? $1 : $err ? $err : 'reached';
}
# The same by the other ways to ask, joined.
sub all_outcomes
{
	my ($node, $token) = @_;
	my @all = outcome($node, $token);

	foreach my $sql ("CALL udb.wait_for('$token', '60 s')", "SELECT udb.wait_for_token('$token', '60 s')",
		"SELECT udb.token_reached('$token')", qq(SELECT udb.wait_for_fence('{"source_token": "$token"}', '60 s')))
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$sql");
		push @all, $err =~ /ERROR:  (\w+)/ ? $1 : $err ? $err : 'reached';
	}
	return join ' ', @all;
}

my $early = write_row($old, 1);
$old->wait_for_catchup('new');
is(all_outcomes($new, $early), join(' ', ('reached') x 5), 'reached before the failover');

# ---- promotion during a wait ----------------------------------------------------------------------

# One write has arrived but is not applied, another one never arrives.
$new->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
wait_for_sql($new, q(SELECT pg_get_wal_replay_pause_state() = 'paused'));
my $received = write_row($old, 2);
$old->wait_for_catchup('new', 'flush', $old->lsn('insert'));
# Hold the sender: the receiver cannot be told to stop while replay is paused.
my $sender = $old->safe_psql('postgres', "SELECT pid FROM pg_stat_replication WHERE application_name = 'new'");
kill('STOP', $sender) or die "could not stop $sender";
my $lost = write_row($old, 3);

my @waiters = map { session($new) } 1 .. 4;
$_->query('SET udb.fence_timeout = -1') foreach @waiters;
$waiters[0]->send("SET udb.fence = '$received'; SELECT max(a) FROM t");
$waiters[1]->send("\\set VERBOSITY sqlstate\nSET udb.fence = '$lost'");
$waiters[2]->send("\\set VERBOSITY sqlstate\nCALL udb.wait_for('$lost', '1 hour')");
$waiters[3]->send("\\set VERBOSITY sqlstate\nSELECT udb.wait_for_token('$lost', '1 hour')");
wait_for_sql($new, 'SELECT count(*) FROM udb.fence_waiters', 4);
$new->promote;
kill('CONT', $sender);
is($waiters[0]->receive, 2, 'promotion during a wait: what had arrived is reached');
foreach my $i (1 .. 3)
{
	my ($out, $err) = $waiters[$i]->receive_all;
	like($err, qr/UD022/, "promotion during a wait: what had not is lost ($i)");
}
is($waiters[1]->query('SELECT outcome FROM udb.fence_status()'), 'diverged', 'status of a lost write');
is($new->safe_psql('postgres', 'SELECT count(*) FROM udb.fence_waiters'), 0, 'nobody waits any more');

# ---- the new primary --------------------------------------------------------------------------------

is(all_outcomes($new, $early), join(' ', ('reached') x 5), 'new primary: a write before the failover is reached');
is(all_outcomes($new, $received), join(' ', ('reached') x 5), 'new primary: the last one that it has got, too');
is(all_outcomes($new, $lost), join(' ', ('UD022') x 5), 'new primary: a lost write is lost');
my $after = write_row($new, 4);
like($after, qr/^postgres:1\.[0-9a-f]{16}\.2\.[1-9a-f][0-9a-f]*\./, 'its tokens are of timeline 2, which has a begin');
is(all_outcomes($new, $after), join(' ', ('reached') x 5), 'new primary: its own write');
my ($future) = map { s/\.[^.]*\.d$/.ffffff0000000000.d/r } $after;
is(all_outcomes($new, $future), join(' ', ('UD023') x 5), 'new primary: a position it has not written');
is($new->safe_psql('postgres', "SELECT udb.token_covers('$after', '$early') IS NULL"), 't', 'texts alone do not compare across timelines');

# the report takes the begin of the timeline along from the first commit on
is($new->safe_psql('postgres', "SET udb.report_token = on; INSERT INTO t VALUES (5); SELECT current_setting('udb.last_token') = udb.last_commit_token()::text"),
	't', 'a reported token has it too');

# ---- the old primary, which does not know -----------------------------------------------------------

is(all_outcomes($old, $after), join(' ', ('UD024') x 5), 'old primary: left behind');
is(all_outcomes($old, $lost), join(' ', ('reached') x 5), 'old primary: the write that only it has');

# ---- the cascading standby ----------------------------------------------------------------------------

is(outcome($cascade, $after), 'reached', 'cascading standby: follows to the new timeline');
is(all_outcomes($cascade, $early), join(' ', ('reached') x 5), 'cascading standby: a write before the failover');
is(all_outcomes($cascade, $lost), join(' ', ('UD022') x 5), 'cascading standby: the lost write');
is(outcome($cascade, $future, '50 ms'), 'UD026', 'cascading standby: what may still come is waited for');
$cascade->restart;
is(all_outcomes($cascade, $after), join(' ', ('reached') x 5), 'after a restart: reached');
is(all_outcomes($cascade, $lost), join(' ', ('UD022') x 5), 'after a restart: lost');

# ---- the old primary as a standby: it has gone past the fork ---------------------------------------------

$old->stop('fast');
$old->set_standby_mode;
$old->append_conf('postgresql.conf', "recovery_target_timeline = 'current'\n");
$old->start;
is(all_outcomes($old, $after), join(' ', ('UD022') x 5), 'old primary as a standby: can never follow');
is(all_outcomes($old, $lost), join(' ', ('reached') x 5), 'old primary as a standby: its own write');

# ---- a restored backup, promoted on its own -----------------------------------------------------------------

$fork->append_conf('postgresql.conf', "primary_conninfo = ''\n");
$fork->start;
$fork->promote;
my $forked = write_row($fork, 100);
like($forked, qr/^postgres:1\.[0-9a-f]{16}\.2\./, 'restored: the same number of timeline');
is(all_outcomes($fork, $after), join(' ', ('UD022') x 5), 'restored: not the same timeline');
is(all_outcomes($new, $forked), join(' ', ('UD022') x 5), 'and the other way round');
is(all_outcomes($fork, $received), join(' ', ('UD022') x 5), 'restored: a write after the backup is not there');

# ---- another cluster -------------------------------------------------------------------------------------------

my $other = new_cluster('other');
is(all_outcomes($other, $after), join(' ', ('UD021') x 5), 'another cluster');
my ($rc, $out, $err) = $other->psql('postgres', "SET udb.fence = '$after'");
like($err, qr/the token is from another cluster.*system identifier is \d+, that of this cluster is \d+/s, 'which names both');

# ---- a history file that is gone ---------------------------------------------------------------------------------

unlink $new->data_dir . '/pg_wal/00000002.history' or die;
($rc, $out, $err) = $new->psql('postgres', "SELECT udb.token_reached('$early')");
like($err, qr/history of timeline 2 is not known.*00000002\.history/s, 'a missing history file is an error, not a lost write');
like(write_row($new, 6), qr/\.2\.0\.[0-9a-f]+\.d$/, 'writing does not depend on it');

done_testing();
