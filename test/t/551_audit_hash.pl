# Hashes and canonical JSON agree with what Perl makes of the same data, in databases of several encodings; and a
# dumped and restored log verifies.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use Encode qw(encode decode);
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('hash', extension => 0);
my $dumps = PostgreSQL::Test::Utils::tempdir;

# Perl sorts by code point, which is the order of the bytes in UTF-8. It escapes 0x7f, which the contract does not.
my $json = JSON::PP->new->canonical->allow_nonref;
sub canonical { return $json->encode($_[0]) =~ s/\\u007f/\x7f/gr; }

# A value made of these characters.
sub text { my ($alphabet) = @_; return join '', map { $alphabet->[ rand @$alphabet ] } 1 .. int(rand(6)); }
sub value
{
	my ($alphabet, $levels) = @_;
	my $kind = $levels == 0 ? rand(0.4) : rand();

	return (JSON::PP::true, JSON::PP::false, undef, int(rand(2_000_000)) - 1_000_000, text($alphabet), text($alphabet))[ rand 6 ]
	  if $kind < 0.4;
	return [ map { value($alphabet, $levels - 1) } 1 .. int(rand(5)) ] if $kind < 0.6;
	return { map { (text($alphabet) => value($alphabet, $levels - 1)) } 1 .. int(rand(9)) };
}

sub literal { my $text = shift; return "'" . $text =~ s/'/''/gr . "'"; }

my $seed = $ENV{UDB_SEED} // time;
srand($seed);
note "UDB_SEED=$seed";
my @ascii = (' ', 'a' .. 'f', 'Z', '_', '"', '\\', '/', "'", map { chr } 1, 8 .. 13, 31, 127);
# The order of their bytes in EUC_JP is not that in UTF-8.
my %alphabets = (
	UTF8 => [ @ascii, map { chr } 0x80, 0xe9, 0x3a9, 0x2028, 0x4e2d, 0xe000, 0xffff, 0x10000, 0x1f600 ],
	LATIN1 => [ @ascii, map { chr } 0xa0, 0xe9, 0xff, 0xd7 ],
	EUC_JP => [ @ascii, map { chr } 0x4e00, 0x4e2d, 0x3042, 0x9f8d, 0x30a2, 0x2605 ]);

foreach my $encoding (sort keys %alphabets)
{
	my $alphabet = $alphabets{$encoding};
	my (@values, @rows, $sql);

	$node->safe_psql('postgres', "CREATE DATABASE t_\L$encoding\E ENCODING $encoding TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
	my $database = "t_\L$encoding";
	$node->safe_psql($database, 'CREATE EXTENSION udb');
	$sql = "SET client_encoding = 'UTF8';\n";
	foreach (1 .. 200)
	{
		my %row = (actor => text($alphabet) || 'a', operation => text($alphabet) || 'o', target => text($alphabet),
			request_json => value($alphabet, 4), result => text($alphabet));
		$row{$_} = rand() < 0.3 ? undef : text($alphabet) foreach qw(tenant_id project_id correlation_id signer_key_id external_anchor);
		push @rows, \%row;
		$sql .= 'SELECT count(udb.append_admin_audit(' . join(', ',
			map { $_ eq 'request_json' ? literal($json->encode($row{$_})) : defined $row{$_} ? literal($row{$_}) : 'NULL' }
			qw(actor operation target request_json result tenant_id project_id correlation_id signer_key_id external_anchor)) . "));\n";
	}
	my $file = "$dumps/$encoding.sql";
	append_to_file($file, encode('UTF-8', $sql));
	$node->command_ok([ 'psql', '-X', '-q', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $node->connstr($database) ],
		"$encoding: 200 rows are appended");

	my ($previous, $wrong, $wrong_text) = ('', 0, 0);
	my @hashes = split /\n/, $node->safe_psql($database, 'SELECT current_hash FROM udb.admin_audit_log ORDER BY chain_position');
	my @texts = split /\n/, $node->safe_psql($database,
		"SELECT encode(convert_to(udb.canonical_json(request_json), 'UTF8'), 'hex') FROM udb.admin_audit_log ORDER BY chain_position");
	foreach my $i (0 .. $#rows)
	{
		my $hash = sha256_hex(encode('UTF-8', canonical({ %{ $rows[$i] }, previous_hash => $previous })));

		$wrong++ if $hash ne $hashes[$i];
		$wrong_text++ if unpack('H*', encode('UTF-8', canonical($rows[$i]{request_json}))) ne $texts[$i];
		$previous = $hash;
	}
	is(scalar(@hashes), 200, "$encoding: there are as many");
	is($wrong, 0, "$encoding: with the hashes that Perl computes");
	is($wrong_text, 0, "$encoding: and its canonical JSON");
	my $verified = 'SELECT outcome, checked_count, last_hash FROM udb.verify_admin_audit_chain()';
	is($node->safe_psql($database, $verified), "passed|200|$previous", "$encoding: the chain verifies");

	# ---- dump and restore, into this encoding and into UTF8 ----

	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dumps/$encoding.dump", '-d', $node->connstr($database) ], "$encoding: dumped");
	foreach my $into ($encoding, 'UTF8')
	{
		my $copy = "copy_\L${encoding}_$into";

		next if $into eq 'UTF8' && $encoding eq 'UTF8' && $node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = '$copy'");
		$node->safe_psql('postgres', "CREATE DATABASE $copy ENCODING $into TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
		$node->command_ok([ 'pg_restore', '--exit-on-error', '-j', '2', '-d', $node->connstr(lc $copy), "$dumps/$encoding.dump" ],
			"$encoding: restored into $into");
		is($node->safe_psql(lc $copy, $verified), "passed|200|$previous", "$encoding: it verifies there");
		is($node->safe_psql(lc $copy, "SELECT count(udb.append_admin_audit('a', 'o', 't', '{}', 'ok'))"),
			1, "$encoding: and goes on");
		is($node->safe_psql(lc $copy, 'SELECT outcome, checked_count FROM udb.verify_admin_audit_chain()'), 'passed|201', "$encoding: from there");
	}
}

# A part of a dump is noticed: rows without their witness, and the other way round.
foreach my $lost ('admin_audit_log', 'admin_audit_witness')
{
	my $list = `pg_restore -l $dumps/UTF8.dump`;

	append_to_file("$dumps/$lost.list", $list =~ s/^(.* TABLE DATA udb $lost )/;$1/mr);
	$node->safe_psql('postgres', "CREATE DATABASE without_$lost");
	$node->command_ok([ 'pg_restore', '--exit-on-error', '-L', "$dumps/$lost.list", '-d', $node->connstr("without_$lost"), "$dumps/UTF8.dump" ],
		"restored without $lost");
	is($node->safe_psql("without_$lost", 'SELECT outcome, checked_count FROM udb.verify_admin_audit_chain()'), 'failed|0', 'which is found');
}
is(sqlstate($node, "SELECT udb.append_admin_audit('a', 'o', 't', '{}', 'ok')", 'without_admin_audit_witness'), 'UD060',
	'nothing is appended where the witness is missing');

done_testing();
