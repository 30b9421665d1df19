# Without shared_preload_libraries there is one clear error, and nothing else happens.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('main', start => 0);

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->start;
my ($rc, $out, $err) = $node->psql('postgres', 'CREATE EXTENSION udb', extra_params => [ '-v', 'VERBOSITY=verbose' ]);
is($rc, 3, 'CREATE EXTENSION fails');
like($err, qr/ERROR:  55000: udb must be loaded via shared_preload_libraries\nHINT:  Add this line to postgresql\.conf and restart the server: shared_preload_libraries = 'udb'/,
	'with one error and the line to add');
is(sqlstate($node, "LOAD 'udb'"), '55000', 'loading the library by hand is refused too');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'udb'"), 0, 'the extension is not there');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'udb'"), 0, 'nor anything of it');

# As the hint says.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'udb'\n");
$node->restart;
is(sqlstate($node, 'CREATE EXTENSION udb'), '', 'with the line added it works');

# Taken away again, the extension being there: each use says so.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
is(sqlstate($node, "SELECT udb.enqueue('t', '1')"), '55000', 'without the line each use fails');

done_testing();
