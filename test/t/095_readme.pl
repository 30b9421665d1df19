# README and the catalog say the same: functions, relations, settings, error codes. And its sessions work.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $tree = $ENV{UDB_TREE} // '.';
my $readme = slurp_file("$tree/README.md");
my @lines = split /\n/, $readme;
my $node = new_cluster('readme');
my $public = "pronamespace = 'udb'::regnamespace AND proname !~ '^_'";

sub rows
{
	my ($sql) = @_;

	return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $sql);
}

# The cells of the table row whose first cell is this.
sub row
{
	my ($first) = @_;
	my ($line) = grep { /^\| \Q$first\E \|/ } @lines;

	return () unless defined $line;
	my (undef, @cells) = split / *\| */, $line, -1;
	pop @cells;
	return @cells;
}

# ---- the session under "Getting started" ----

$readme =~ /^## Getting started\n(.*?)^## /ms or die 'README has no section "Getting started"';
my @session = $1 =~ /^```sql\n(.*?)^```/msg;
my $first = session($node);
my ($second, @output);
foreach my $sql (@session)
{
	if ($sql =~ /'bob'/ && $sql !~ /COMMIT/)
	{
		$second = session($node);
		$second->query($sql);
		next;
	}
	# before the batch is applied, the text says that the second session commits
	$second->query('COMMIT') if $second && $sql =~ /checkpoint/;
	push @output, $first->query($sql);
}
is(scalar(@output), 5, 'README has a session of six steps, one of which is somebody else\'s');
is($output[1], '1', 'the first event has the position that README shows');
like($output[2], qr/^3\n1\|orders\|ada\|\{"order": 1, "total": 40\}$/m, 'and is read, while the third is not');
like($output[3], qr/^@{[$second->pid]}\|[^|]+\|2\|idle in transaction\|/, 'the second session is named');
is($output[4], "3\n1|40\n2|75\n3|12", 'in the end all three are there');
$_->quit foreach $first, $second;

# ---- those under "Leases" and "Migrations" ----

my $third = session($node);
foreach my $section ('Leases', 'Migrations')
{
	$readme =~ /^## $section\n(.*?)^## /ms or die "README has no section \"$section\"";
	@output = map { $third->query($_) } $1 =~ /^```sql\n(.*?)^```/msg;
	if ($section eq 'Leases')
	{
		is(scalar(@output), 4, 'README has a session with a lease');
		like($output[0], qr/^nightly-report\|host-1:4711\|1\|/, 'which is given');
		is($output[1], 't', 'and renewed');
		is($output[3], "t\nnightly-report|host-1:4711|f|0", 'and released');
		is($node->safe_psql('postgres', 'SELECT count(*), max(total) FROM reports'), '1|127', 'what it protects is written');
	}
	else
	{
		is(scalar(@output), 2, 'README has a session with migrations');
		like($output[0], qr/^1\|table\|t\n2\|index on weight\|f$/m, 'which are pending');
		like($output[1], qr/^1\|table\|applied\n2\|index on weight\|applied$/m, 'and applied');
	}
}
$third->quit;

# ---- the one under "Sagas", where the worker takes part ----

my $fourth = session($node);
my $saga = '0190e6a4-5b7e-7c3d-9b1f-2f4c7a1d0e42';
$readme =~ /^## Sagas\n(.*?)^## /ms or die 'README has no section "Sagas"';
@output = ();
foreach my $sql ($1 =~ /^```sql\n(.*?)^```/msg)
{
	wait_for_sql($node, "SELECT status FROM udb.get_saga('$saga')", 'compensated') if $sql =~ /get_saga/;
	push @output, $fourth->query($sql);
}
is($output[1], 't', 'README has a saga, of which a step is recorded');
is($output[3], qq({"item": "lamp", "saga": {"step": "reserve", "result": {"shelf": 4}, "saga_id": "$saga"}}|t),
	'whose compensation comes as README shows it');
is($output[4], 'compensated|completed|card refused', 'and which is compensated then');
is($node->safe_psql('postgres', 'SELECT free FROM stock'), 5, 'by who does the job');
$fourth->quit;
# ---- that under "Projection tasks" ----

{
	$readme =~ /^## Projection tasks\n(.*?)^## /ms or die 'README has no section "Projection tasks"';
	my $s = session($node);
	my @results = map { $s->query($_) } $1 =~ /^```sql\n(.*?)^```/msg;
	is($results[0], 't', 'README has a session with a projection task, which is made');
	is($results[1], 'orders:7:v1|t', 'and claimed and completed');
	is($results[2], "cleared|\n0|1", 'and lets a fence pass');
	$s->quit;
}

# ---- functions ----

foreach my $f (rows("SELECT proname, prokind, pg_get_function_arguments(oid) FROM pg_proc WHERE $public ORDER BY 1, 3"))
{
	my ($name, $kind, $arguments) = @$f;

	$arguments =~ s/::(timestamp with time zone|\w+)(\[\])?//g;
	$arguments =~ s/"//g;
	$arguments =~ s/\bIN //g;
	$arguments =~ s/(, )?\bOUT [^,]*//g;
	$arguments = q{'topic' [, 'key column' ...]} if $name eq 'outbox_trigger';
	my @row = row(($kind eq 'p' ? 'procedure ' : '') . "`$name($arguments)`");
	is(scalar(@row), 3, "README has $name($arguments)");
}
my %functions = map { $_->[0] => 1 } rows("SELECT DISTINCT proname FROM pg_proc WHERE $public");
is_deeply([ grep { !$functions{$_} } map { /^\| (?:procedure )?`(\w+)\(/ ? $1 : () } @lines ],
	[], 'and none that does not exist');
is_deeply([ grep { !$functions{$_} } $readme =~ /\budb\.(\w+)\(/g ], [], 'nor does it call one');

# ---- relations ----

foreach my $r (rows(<<'SQL'))
SELECT relname, relkind, string_agg(attname, ' ' ORDER BY attnum)
FROM pg_class c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
WHERE relnamespace = 'udb'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition AND relname !~ '^_'
GROUP BY 1, 2 ORDER BY 1
SQL
{
	my ($name, $kind, $columns) = @$r;
	my @row = row(($kind eq 'v' ? 'view ' : '') . "`$name`");

	is(scalar(@row), 2, "README has $name");
	next if $name eq 'outbox_state';
	# instead of the event's columns, those of dead_events are summed up
	my @missing = grep { ($row[1] // '') !~ /`\Q$_\E`/ } split / /, $columns;
	@missing = grep { !/^(event_id|topic|partition_key|payload|headers|created_at)$/ } @missing if $name eq 'dead_events';
	is_deeply(\@missing, [], "and the columns of $name");
}

# ---- settings ----

my %effect = (postmaster => 'restart', sighup => 'reload', superuser => 'at once', user => 'at once', internal => 'never');
my @settings = rows(q{SELECT name, concat_ws(' ', boot_val, unit), context FROM pg_settings WHERE name LIKE 'udb.%'});
foreach my $s (@settings)
{
	my ($name, $default, $context) = @$s;
	my @row = row("`$name`");

	like($row[1] // '', qr/^\Q$default\E( \(|$)/, "README has the default of $name");
	is($row[3], $effect{$context}, 'and when it takes effect');
}
my %settings = map { $_->[0] => 1 } @settings;
is_deeply([ grep { !$settings{$_} } map { /^\| `(udb\.\w+)` \|/ ? $1 : () } @lines ], [], 'and no setting that does not exist');

# ---- error codes ----

is_deeply([ map { /^\| (UD\w+) \| (\w+) \| (.*) \|$/ ? "$1 $2: $3" : () } @lines ],
	[ map { "$_->[0] $_->[1]: $_->[2]" } rows('SELECT * FROM udb.error_codes ORDER BY 1') ],
	'README has the error codes, word for word');
my %codes = map { $_->[0] => 1 } rows('SELECT sqlstate FROM udb.error_codes');
is_deeply([ grep { !$codes{$_} } $readme =~ /\b(UD\d\d\d)\b/g ], [], 'and speaks of no other');

# ---- kinds of roles, links ----

my ($kinds) = $node->safe_psql('postgres', q{SELECT prosrc FROM pg_proc WHERE proname = 'grant_role'}) =~ /Use (.*)\./;
is_deeply([ grep { !row("`$_`") } $kinds =~ /(\w+)(?:,| or|$)/g ], [], 'README has the kinds of roles');
like($kinds, qr/^producer, .* or \w+$/, 'which are told to who mistypes one');
is_deeply([ grep { !-e "$tree/$_" } $readme =~ /\]\(([^)#:]+)\)/g ], [], 'links to files lead somewhere');
my %anchors = map { my $a = lc; $a =~ s/[^\w -]//g; $a =~ s/ /-/g; $a => 1 } $readme =~ /^#+ (.*)$/mg;
is_deeply([ grep { !$anchors{$_} } $readme =~ /\]\(#([^)]+)\)/g ], [], 'and so do those to sections');

done_testing();
