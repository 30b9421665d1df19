# Behind a transaction pooler each client gets its own token, with its own commit.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my ($pgbouncer) = grep { -x $_ } '/usr/sbin/pgbouncer', '/usr/bin/pgbouncer', '/usr/local/bin/pgbouncer';
die 'pgbouncer is not installed' unless $pgbouncer;

my $node = new_cluster('main');
$node->safe_psql('postgres', 'CREATE TABLE fence_tokens (i serial)');

my $dir = PostgreSQL::Test::Utils::tempdir();
my $port = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$dir/users", '"' . getpwuid($<) . "\" \"\"\n");
append_to_file("$dir/ini", <<CONF);
[databases]
postgres = host=${\$node->host} port=${\$node->port} dbname=postgres
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
auth_file = $dir/users
pool_mode = transaction
default_pool_size = 1
logfile = $dir/log
pidfile = $dir/pid
CONF
# any: whoever connects is the user that the database line names
my $ini = slurp_file("$dir/ini");
my $user = getpwuid($<);
$ini =~ s/(dbname=postgres)/$1 user=$user/;
unlink "$dir/ini";
append_to_file("$dir/ini", $ini);
my $bouncer = IPC::Run::start([ $pgbouncer, "$dir/ini" ], '>', "$dir/out", '2>&1');
my $connstr = "host=$dir port=$port dbname=postgres user=$user";
# psql that finds no socket leaves before it has read its input, which IPC::Run takes for a failure
wait_for('pgbouncer listens', sub { -S "$dir/.s.PGSQL.$port" });
wait_for('pgbouncer', sub { $node->psql('postgres', 'SELECT 1', connstr => $connstr) == 0 });

my ($out, $err) = ('', '');
IPC::Run::run([ 'udb_fence_client', 'tokens', $connstr ], '>', \$out, '2>', \$err);
is($err, '', 'two clients write by turns on one server connection');
note $out;

my (%last, %seen);
my $own = 1;
my $others = 1;
foreach my $line (grep { /^commit/ } split /\n/, $out)
{
	my ($who, @tokens) = (split / /, $line)[1 .. 3];

	$own = 0 if $tokens[$who] !~ /^postgres:1\./ || $seen{ $tokens[$who] }++;
	$others = 0 if $tokens[ 1 - $who ] ne ($last{ 1 - $who } // '-');
	$last{$who} = $tokens[$who];
}
is(scalar(keys %seen), 6, 'six commits, six tokens');
ok($own, 'each came to the client that committed');
ok($others, 'and to nobody else');
my ($shown) = $out =~ /^show (\S+)/m;
is($shown, $last{1}, 'SHOW says what the last user of the server connection wrote: not to be used here');

kill 'TERM', slurp_file("$dir/pid") =~ /(\d+)/;
$bouncer->finish;
done_testing();
