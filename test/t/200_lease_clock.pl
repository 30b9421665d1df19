# Leases and the clock: neither setting it back nor setting it forth makes two owners, a lease ends when its
# time has gone by, and after a restart a clock that is behind cannot bring back what has ended.
use strict;
use warnings;
use Test::More;
use UdbTest;

my $node = new_cluster('clock', extension => 0, start => 0);
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'udb, udb_test_clock'\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION udb; CREATE EXTENSION udb_test_clock');

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub try_it { return sql("SELECT udb.try_acquire_lease('job', '$_[0]', '$_[1]')"); }
sub renew { return sql("SELECT udb.renew_lease('job', '$_[0]', $_[1], '$_[2]')"); }
sub holder { return sql("SELECT owner_id, fencing_token, held FROM udb.lease_status WHERE lease_name = 'job'"); }
sub elapse { sql("SELECT clock_elapse('$_[0]')"); return; }
sub step { sql("SELECT clock_step('$_[0]')"); return; }
sub forget { sql('DELETE FROM udb.advisory_leases'); return; }

# ---- time goes by ----

is(try_it('a', '10 s'), 't', 'a takes the lease for ten seconds');
elapse('9 s');
is(try_it('b', '10 s'), 'f', 'which are not over after nine');
elapse('1 s');
is(holder(), 'a|1|f', 'but after ten');
is(renew('a', 1, '10 s'), 'f', 'and then a has lost it');
is(try_it('b', '10 s'), 't', 'so that b can take it');

# ---- set back ----

step('-1 hour');
is(try_it('a', '10 s'), 'f', 'b has it as well when the clock is set back by an hour');
is(renew('a', 1, '10 s'), 'f', 'and a has not');
is(renew('b', 2, '10 s'), 't', 'b can renew it');
is(sql('SELECT remaining <= interval \'10.1 s\' FROM udb.lease_status'), 't', 'for ten seconds and not for an hour');
step('1 hour');
is(try_it('a', '10 s'), 'f', 'and b still has it when the clock is set right');
is(holder(), 'b|2|t', 'by all signs');
step('-1 hour');
elapse('10.5 s');
is(try_it('a', '10 s'), 't', 'what is not renewed ends in time, also while the clock is wrong');
is(holder(), 'a|3|t', 'with a new token');

# ---- set forth ----

forget();
is(try_it('a', '10 s'), 't', 'a takes another one');
step('1 day');
is(try_it('b', '10 s'), 'f', 'and has it as well when the clock is set forth by a day');
elapse('9 s');
is(try_it('b', '10 s'), 'f', 'until its time is over');
elapse('1.5 s');
is(try_it('b', '10 s'), 't', 'and no longer');

# ---- the clock itself ----

my $before = sql('SELECT udb.lease_clock()');
step('-2 days');
is(sql("SELECT udb.lease_clock() > '$before'"), 't', 'the clock goes on when the system\'s is set back');
elapse('200 days');
is(sql("SELECT abs(extract(epoch FROM udb.lease_clock() - clock_timestamp()
	- interval '200 days' + interval '1 day' + interval '1 hour')) < 60"), 't', 'and in the end both meet');
step('-0.1 s');
$before = sql('SELECT udb.lease_clock()');
is(sql("SELECT udb.lease_clock() >= '$before'"), 't', 'nor does it go back by a little');

# ---- a restart with a clock that is behind ----

forget();
is(try_it('a', '10 s'), 't', 'a takes one at a time');
my $token_time = sql('SELECT acquired_at FROM udb.advisory_leases');
# This clock forgets at a restart what was added to it, and so is months behind.
$node->restart;
is(sql("SELECT udb.lease_clock() < '$token_time'"), 't', 'before which the server comes back');
is(try_it('b', '10 s'), 'f', 'and a still has it');
is(renew('a', 1, '10 s'), 't', 'can renew it');
is(sql("SELECT expires_at >= '$token_time'::timestamptz + interval '10 s' FROM udb.advisory_leases"), 't',
	'to no earlier than from when it was taken');
is(sql("SELECT udb.release_lease('job', 'a')"), 't', 'and release it');
is(try_it('b', '10 s'), 't', 'which lets b take it');
is(sql("SELECT acquired_at >= '$token_time' AND fencing_token = 2 FROM udb.advisory_leases"), 't',
	'later than a by time and token');

done_testing();
