# A dump restored into a new cluster: events and cursors stay readable, positions go on above.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $conf = "udb.outbox_segment_size = 100\nudb.outbox_retention = 0\nudb.worker = off\n";
my $node = new_cluster('main', conf => $conf);
my $dumps = $node->basedir;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Segments, some of them dropped; consumers of all kinds; parked and redriven events. Sweeps by hand.
sql(<<'SQL');
SELECT udb.create_consumer('all');
SELECT udb.create_consumer('some', ARRAY['a', 'b']);
SELECT udb.create_consumer('idle');
SELECT udb.pause_consumer('idle');
SELECT count(udb.enqueue(chr(97 + i % 3), to_jsonb(i), 'k' || i % 7, headers => '{"h": 1}'))
	FROM generate_series(1, 450) i;
SELECT udb.checkpoint('all', 310), udb.checkpoint('some', 220), udb.seek_consumer('idle', 250);
SELECT udb.dead_letter_event('all', 320, 'bad'), udb.dead_letter_event('all', 330, 'bad too');
SELECT udb.redrive_dead_letters('all');
SELECT udb.dead_letter_event('all', 340, 'later');
SELECT udb.sweep_outbox_retention();
SQL
is(sql('SELECT dropped_through FROM udb.outbox_state'), 200, 'two segments were dropped before the dump');

# All that a consumer or an administrator can see, and that should survive.
my $see = <<'SQL';
SELECT 'event', e.* FROM udb.outbox_events e ORDER BY event_seq;
SELECT 'segment', segment, first_position, end_position FROM udb.outbox_segments ORDER BY first_position;
SELECT 'consumer', name, topics, position, paused, created_at FROM udb.consumers ORDER BY name;
SELECT 'dead', d.* FROM udb.dead_events d ORDER BY consumer, event_seq;
SELECT 'all', e.* FROM udb.read('all', 1000) e;
SELECT 'some', e.* FROM udb.read('some', 1000) e;
SELECT 'idle', count(*) FROM udb.read('idle', 1000) e;
SELECT 'peek', e.* FROM udb.peek(200, 1000) e;
SELECT 'status', name, lag_events, parked_events FROM udb.consumer_status ORDER BY name;
SELECT 'dropped', dropped_through FROM udb.outbox_state;
SQL
my $seen = sql($see);
my $stable = sql('SELECT udb.outbox_stable_seq()');
my $unread = sql("SELECT count(*) FROM udb.read('all', 1000)");
cmp_ok(length $seen, '>', 50_000, 'there is a lot to compare');

my $fresh = new_cluster('fresh', conf => $conf, extension => 0);

my @formats = (
	[ 'plain', [ '-Fp' ], sub { return [ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $_[0], '-d', $_[1] ] } ],
	[ 'custom', [ '-Fc' ], sub { return [ 'pg_restore', '--exit-on-error', '-d', $_[1], $_[0] ] } ],
	[ 'single', [ '-Fc' ], sub { return [ 'pg_restore', '--single-transaction', '-d', $_[1], $_[0] ] } ],
	[ 'jobs', [ '-Fc' ], sub { return [ 'pg_restore', '--exit-on-error', '-j', '4', '-d', $_[1], $_[0] ] } ]);

# The first few lines that are not the same.
sub differences
{
	my ($now) = @_;
	my @old = split /\n/, $seen;
	my @new = split /\n/, $now;
	my @differ = grep { ($old[$_] // '') ne ($new[$_] // '') } 0 .. (@old > @new ? $#old : $#new);

	return join "\n", map { ($old[$_] // '(nothing)') . ' became ' . ($new[$_] // '(nothing)') } grep { defined } @differ[ 0 .. 4 ];
}

# Run a program and compare what it complains about with nothing.
sub silently
{
	my ($what, @command) = @_;
	my ($stdout, $stderr) = ('', '');
	my $ok = IPC::Run::run(\@command, '>', \$stdout, '2>', \$stderr);

	ok($ok, "$what ends well");
	is($stderr, '', "$what complains about nothing");
	return;
}

foreach my $format (@formats)
{
	my ($name, $options, $restore) = @$format;
	my $file = "$dumps/$name.dump";

	silently("$name: pg_dump", 'pg_dump', @$options, '-f', $file, '-d', $node->connstr('postgres'));
	$fresh->safe_psql('postgres', "CREATE DATABASE $name");
	silently("$name: restore", @{ $restore->($file, $fresh->connstr($name)) });

	is(differences($fresh->safe_psql($name, $see)), '', "$name: all is as it was");
	is($fresh->safe_psql($name, q(SELECT count(*) FROM pg_inherits WHERE inhparent = 'udb.outbox_events'::regclass)),
		sql(q(SELECT count(*) FROM pg_inherits WHERE inhparent = 'udb.outbox_events'::regclass)),
		"$name: segments are attached");
	is($fresh->safe_psql($name, 'SELECT count(*) FROM pg_index WHERE NOT indisvalid'), 0, "$name: indexes are valid");
	cmp_ok($fresh->safe_psql($name, "SELECT udb.enqueue('new', '1')"), '>', $stable,
		"$name: the next position is above all before");
	is($fresh->safe_psql($name, "SELECT topic FROM udb.read('all', 1000) OFFSET $unread"), 'new',
		"$name: and is read after what was there");
	is(sqlstate($fresh, 'SELECT * FROM udb.peek(150)', $name), 'UD002', "$name: what was dropped stays dropped");
	is(sqlstate($fresh, "SELECT udb.enqueue('t', '2', event_id => (SELECT event_id FROM udb.outbox_events WHERE event_seq = 400))", $name),
		'UD001', "$name: event ids of old events are known");
	is( $fresh->safe_psql($name, 'SELECT udb.sweep_outbox_retention()'), 0,
		"$name: retention keeps what consumers have not passed");
}

# With the worker running, and looking at the outbox before the data is there.
$fresh->append_conf('postgresql.conf', 'udb.worker = on');
$fresh->reload;
$fresh->safe_psql('postgres', 'CREATE DATABASE early');
$fresh->safe_psql('early', 'CREATE EXTENSION udb');
my $early = session($fresh, database => 'early');
is($early->query('SELECT udb.outbox_stable_seq()'), '0', 'an installed and unused udb');
wait_for_sql($fresh, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'udb worker' AND datname = 'early'");
IPC::Run::run([ 'psql', '-X', '-q', '-f', "$dumps/plain.dump", '-d', $fresh->connstr('early') ], '2>', \my $complaints);
is($complaints =~ s/^.*ERROR:  schema "udb" already exists\n//mr, '',
	'restoring into it complains only about the schema that is there');
is($early->query('SELECT count(*) FROM udb.read(\'some\', 1000)'), '153',
	'restored into an unused udb: readable in a session that was there before');
is(differences($fresh->safe_psql('early', $see)), '', 'and all is as it was');
cmp_ok($early->query("SELECT udb.enqueue('new', '1')"), '>', $stable, 'the next position is above all before');
$early->quit;

# Into one that has been used, restoring fails as a whole, and its own events stay. Both logs have the same
# positions; nothing good can come of mixing them.
$fresh->safe_psql('postgres', 'CREATE DATABASE used');
$fresh->safe_psql('used', "CREATE EXTENSION udb; SELECT udb.create_consumer('mine'); SELECT count(udb.enqueue('own', to_jsonb(i))) FROM generate_series(1, 150) i");
my $own = $fresh->safe_psql('used', "SELECT e.* FROM udb.read('mine', 1000) e");
ok( !IPC::Run::run([ 'pg_restore', '--single-transaction', '-d', $fresh->connstr('used'), "$dumps/custom.dump" ],
		'2>', \my $err),
	'restoring into a used one fails');
like($err, qr/already exists|duplicate key/, 'with an error');
is($fresh->safe_psql('used', "SELECT e.* FROM udb.read('mine', 1000) e"), $own, 'and changes nothing');

# An old dump: cursors that were kept elsewhere are above what it knows.
sql("SELECT count(udb.enqueue('a', to_jsonb(i))) FROM generate_series(1, 5000) i");
my $outside = sql('SELECT udb.outbox_stable_seq()');
$fresh->safe_psql('postgres', 'CREATE DATABASE old');
silently('old: restore', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dumps/plain.dump", '-d', $fresh->connstr('old'));
is(sqlstate($fresh, "SELECT * FROM udb.peek($outside)", 'old'), 'UD003', 'a cursor from after the dump is refused');
is(sqlstate($fresh, "SELECT udb.seek_consumer('all', $outside)", 'old'), 'UD003', 'and cannot be made a consumer\'s');
is(sqlstate($fresh, "SELECT udb.create_consumer('x', NULL, '$outside')", 'old'), 'UD003', 'nor a new one\'s');
like(($fresh->psql('old', "SELECT * FROM udb.peek($outside)"))[2],
	qr/ERROR:  position $outside has never been handed out\n.*HINT:  .*restored/s, 'the error says why');
is(sqlstate($fresh, "SELECT udb.checkpoint('all', $outside)", 'old'), 'UD004', 'nor can a consumer be moved there');

# A consumer's own row from after the dump, as somebody would get who restores only some tables.
$fresh->safe_psql('old', "UPDATE udb.consumers SET position = $outside WHERE name = 'all'");
is(sqlstate($fresh, "SELECT * FROM udb.read('all')", 'old'), 'UD003', 'its reads are refused too');
is($fresh->safe_psql('old', "SELECT udb.seek_consumer('all', 310)"), 310, 'seeking it back is the way out');
is($fresh->safe_psql('old', "SELECT count(*) FROM udb.read('all', 1000)"), $unread, 'and its events are there');

done_testing();
