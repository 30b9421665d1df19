# Helpers for the TAP tests: clusters with udb in them, sessions that stay open, and crashes.
#
#   my $node = new_cluster('main', conf => "udb.some = 1\n");
#   my $standby = new_standby($node, 'standby');
#   my $s = session($node);             # a psql that stays connected
#   $s->query('BEGIN');                 # returns the output, dies on an error
#   my $error = $s->error('SELECT 1/0');    # returns the error's text, dies if there is none
#   $s->send('SELECT pg_sleep(9)');     # does not wait ...
#   my $output = $s->receive;           # ... this does
#   wait_for_sql($node, 'SELECT count(*) FROM t', 3);
#   sqlstate($node, 'SELECT 1/0');       # 22012, or empty if there is no error
#   crash_backend($node, $s->pid);      # kill -9, then wait until the server is back
#   crash_server($node);                # kill -9 of the postmaster; then $node->start
#
# PostgreSQL's own background_psql differs between majors, and between minor versions of 15, which is why
# sessions are made here.
package UdbTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Carp;
use Time::HiRes qw(usleep);

our @EXPORT = qw(new_cluster new_standby session wait_for wait_for_sql kill9 crash_backend crash_server sqlstate);

my $patience = $PostgreSQL::Test::Utils::timeout_default // 180;

# Make and start a cluster that has udb in database postgres.
#   conf => text        more lines for postgresql.conf
#   streaming => 1      can have standbys
#   extension => 0      leave CREATE EXTENSION to the caller
#   start => 0          leave the start to the caller as well
sub new_cluster
{
	my ($name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	# whatever the locale of who runs the tests
	$node->init(allows_streaming => $opt{streaming} ? 1 : 0, extra => [ '--encoding=UTF8', '--locale=C' ]);
	# PostgreSQL's own tests switch restart_after_crash off.
	$node->append_conf('postgresql.conf', <<'CONF' . ($opt{conf} // ''));
shared_preload_libraries = 'udb'
restart_after_crash = on
max_connections = 60
max_prepared_transactions = 20
max_worker_processes = 20
CONF
	if ($opt{start} // 1)
	{
		$node->start;
		$node->safe_psql('postgres', 'CREATE EXTENSION udb') if $opt{extension} // 1;
	}
	return $node;
}

# Make and start a standby that streams from $primary (which was made with streaming => 1).
sub new_standby
{
	my ($primary, $name, %opt) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $opt{conf}) if defined $opt{conf};
	$standby->start if $opt{start} // 1;
	return $standby;
}

# Call the sub until it returns true, and return that.
sub wait_for
{
	my ($what, $sub) = @_;
	my $end = time + $patience;

	while (1)
	{
		my $got = $sub->();

		return $got if $got;
		croak "timed out waiting for $what" if time > $end;
		usleep(50_000);
	}
}

# Run the query until it returns $expected ('t' if not given). A failed connection counts as "not yet".
sub wait_for_sql
{
	my ($node, $sql, $expected, $database) = @_;

	$node->poll_query_until($database // 'postgres', $sql, $expected // 't')
	  or croak "timed out waiting for: $sql";
	return 1;
}

# The SQLSTATE that a query ends with, or nothing if there is no error.
sub sqlstate
{
	my ($node, $sql, $database) = @_;
	my ($rc, $out, $err) =
	  $node->psql($database // 'postgres', $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	return $err =~ /(?:ERROR|FATAL):\s+(\w{5}):/ ? $1 : '';
}

# Kill a process for good, and return when it is gone. A child of ours would stay a zombie.
sub kill9
{
	my ($pid) = @_;

	croak "no process id" unless $pid && $pid > 1;
	kill('KILL', $pid) or croak "could not kill $pid: $!";
	wait_for("process $pid to go", sub { !kill(0, $pid) || _is_zombie($pid) });
	return;
}

# Kill one backend or worker, which makes the postmaster throw out all others and start over.
sub crash_backend
{
	my ($node, $pid) = @_;
	my $offset = -s $node->logfile;

	kill9($pid);
	wait_for('the server to start over',
		sub { slurp_file($node->logfile, $offset) =~ /all server processes terminated; reinitializing/ });
	wait_for_sql($node, 'SELECT true');
	return;
}

# Kill the postmaster. Its children notice and leave; a start before that would be refused.
sub crash_server
{
	my ($node) = @_;
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	my @children = grep { _parent($_) == $postmaster } map { m{(\d+)$} } glob '/proc/[0-9]*';
	my $end = time + 10;

	$node->kill9;
	wait_for('the server\'s processes to go',
		sub { !grep { kill(0, $_) && !_is_zombie($_) } $postmaster, @children });

	# Where nobody reaps orphans, a dead postmaster keeps its process id, and its lock files look taken.
	usleep(50_000) while kill(0, $postmaster) && time < $end;
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock'
	  if kill(0, $postmaster);
	return;
}

# Fields of /proc/PID/stat after the command, which is in brackets and may hold anything.
sub _stat
{
	my ($pid) = @_;
	open(my $fh, '<', "/proc/$pid/stat") or return ('', 0);
	my $line = <$fh> // '';

	close $fh;
	return $line =~ /^.*\) (\S) (\d+)/s ? ($1, $2) : ('', 0);
}
sub _is_zombie { return (_stat($_[0]))[0] eq 'Z'; }
sub _parent { return (_stat($_[0]))[1]; }

# Open a session: session($node, database => 'postgres', user => 'somebody').
sub session
{
	my ($node, %opt) = @_;

	return UdbTest::Session->new($node, %opt);
}

package UdbTest::Session;

use strict;
use warnings;
use Carp;
use IPC::Run;

sub new
{
	my ($class, $node, %opt) = @_;
	my $self = bless { in => '', out => '', err => '', count => 0 }, $class;
	my $connstr = $node->connstr($opt{database} // 'postgres');

	$connstr .= " user='$opt{user}'" if defined $opt{user};
	$self->{timer} = IPC::Run::timer($patience);
	$self->{run} = IPC::Run::start(
		[ 'psql', '-X', '-q', '-A', '-t', '-v', 'VERBOSITY=default', '-f', '-', '-d', $connstr ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err}, $self->{timer});
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

# The process id of the backend.
sub pid { return $_[0]->{pid}; }

# Start a query and return at once. There can be one at a time.
sub send
{
	my ($self, $sql) = @_;

	croak "the last query's result was not received" if $self->{sent};
	$self->{sent} = 'udb-end-' . ++$self->{count};
	$self->{out} = $self->{err} = '';
	# The mark goes to both streams, since either may come first.
	$self->{in} .= "$sql\n;\n\\echo $self->{sent}\n\\warn $self->{sent}\n";
	eval { $self->{run}->pump_nb };
	return;
}

# Whether the query that was sent has come to its end.
sub done
{
	my ($self) = @_;

	eval { $self->{run}->pump_nb };
	return $self->_complete;
}

sub _complete
{
	my ($self) = @_;
	my $mark = $self->{sent} // croak 'no query was sent';

	return $self->{out} =~ /^\Q$mark\E$/m && $self->{err} =~ /^\Q$mark\E$/m;
}

# Wait for the query that was sent. Returns its output and the messages it gave; a lost connection is
# among the messages.
sub receive_all
{
	my ($self) = @_;

	$self->{timer}->start($patience);
	while (!$self->_complete)
	{
		croak "timed out waiting for a query; so far: $self->{out}$self->{err}" if $self->{timer}->is_expired;
		# psql is gone when its connection is.
		last unless $self->{run}->pumpable && eval { $self->{run}->pump; 1 };
	}
	$self->{timer}->reset;
	my ($out, $err, $mark) = ($self->{out}, $self->{err}, delete $self->{sent});
	s/\n?^\Q$mark\E\n//m for $out, $err;
	return ($out, $err);
}

# Wait for the query that was sent, and return its output. Dies on an error.
sub receive
{
	my ($self) = @_;
	my ($out, $err) = $self->receive_all;

	croak "query failed: $err" if $err =~ /\bERROR:|\bFATAL:|connection to server was lost/;
	return $out;
}

# Run a query, and return its output. Dies on an error.
sub query
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->receive;
}

# Run a query that has to fail, and return the messages.
sub error
{
	my ($self, $sql) = @_;

	$self->send($sql);
	my ($out, $err) = $self->receive_all;
	croak "query did not fail: $sql" unless $err =~ /\bERROR:|\bFATAL:|connection to server was lost/;
	return $err;
}

# Leave. The open transaction, if any, is rolled back by that.
sub quit
{
	my ($self) = @_;

	$self->{in} .= "\\q\n";
	eval { $self->{run}->finish };
	return;
}

1;
