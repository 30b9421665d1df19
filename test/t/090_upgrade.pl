# Upgrades. Each released install script is kept in sql/released for ever: it is installed here, upgraded to
# the current version, and must then be the same, in all that the catalog tells, as a fresh installation.
# Until something is released there is nothing to upgrade from; what can be held then is that the current
# version installs by name, and that the comparison below does see the kinds of change it is there for.
use strict;
use warnings;
use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $tree = $ENV{UDB_TREE} // '.';
my ($current) = slurp_file("$tree/udb.control") =~ /^default_version *= *'(.*)'/m;
my %released = map { basename($_) =~ /^udb--(.*)\.sql$/ ? ($1 => $_) : () } glob "$tree/sql/released/*.sql";
my @steps = map { [ basename($_) =~ /^udb--(.*)--(.*)\.sql$/ ] } glob "$tree/sql/udb--*--*.sql";

# Everything that belongs to the extension, one line a fact, without OIDs. Objects that hang on a member
# (columns, constraints, indexes, triggers) are described with it.
my $describe = <<'SQL';
WITH member AS (
	SELECT d.classid, d.objid, i.type, i.identity
	FROM pg_depend d, pg_identify_object(d.classid, d.objid, 0) i
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'udb')),
relation AS (SELECT m.identity, c.* FROM member m JOIN pg_class c ON c.oid = m.objid
	WHERE m.classid = 'pg_class'::regclass),
fact(line) AS (
	SELECT format('member %s %s: %s', type, identity, obj_description(objid, classid::regclass::name))
	FROM member
	UNION ALL
	-- An access list that was never touched means the same as the written out default.
	SELECT format('function %s: %s owner %s %s', m.identity,
		pg_get_functiondef(p.oid), p.proowner::regrole,
		(SELECT array_agg(a::text ORDER BY a::text)
		 FROM unnest(coalesce(p.proacl, acldefault('f', p.proowner))) a))
	FROM member m JOIN pg_proc p ON p.oid = m.objid
	WHERE m.classid = 'pg_proc'::regclass AND p.prokind <> 'a'
	UNION ALL
	SELECT format('relation %s: %s %s %s owner %s rls %s/%s options %s key %s %s', identity, relkind,
		relpersistence, relreplident, relowner::regrole, relrowsecurity, relforcerowsecurity, reloptions,
		CASE WHEN relkind = 'p' THEN pg_get_partkeydef(oid) END,
		(SELECT array_agg(a::text ORDER BY a::text) FROM unnest(coalesce(relacl,
			acldefault(CASE WHEN relkind = 'S' THEN 's' ELSE 'r' END::"char", relowner))) a))
	FROM relation
	UNION ALL
	SELECT format('column %s.%s: #%s %s not null %s default %s identity %s generated %s storage %s %s: %s',
		r.identity, a.attname, row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum),
		format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
		a.attidentity, a.attgenerated, a.attstorage, a.attacl, col_description(r.oid, a.attnum))
	FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
		AND r.relkind <> 'S'
	LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
	UNION ALL
	SELECT format('view %s: %s', identity, pg_get_viewdef(oid)) FROM relation WHERE relkind IN ('v', 'm')
	UNION ALL
	SELECT format('sequence %s: %s %s %s %s %s %s', identity, seqtypid::regtype, seqstart, seqincrement,
		seqmin, seqmax, seqcycle)
	FROM relation r JOIN pg_sequence s ON s.seqrelid = r.oid
	UNION ALL
	SELECT format('index %s', pg_get_indexdef(i.indexrelid))
	FROM relation r JOIN pg_index i ON i.indrelid = r.oid
	UNION ALL
	SELECT format('constraint %s on %s: %s', c.conname, r.identity, pg_get_constraintdef(c.oid))
	FROM relation r JOIN pg_constraint c ON c.conrelid = r.oid
	UNION ALL
	SELECT format('trigger on %s: %s', r.identity, pg_get_triggerdef(t.oid))
	FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
	UNION ALL
	SELECT format('policy %s on %s: %s', p.polname, r.identity, row(polcmd, polpermissive,
		polroles::regrole[], pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)))
	FROM relation r JOIN pg_policy p ON p.polrelid = r.oid
	UNION ALL
	SELECT format('type %s: %s %s not null %s default %s labels %s checks %s', m.identity, t.typtype,
		format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault,
		(SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid),
		(SELECT array_agg(pg_get_constraintdef(c.oid) ORDER BY conname) FROM pg_constraint c
		 WHERE c.contypid = t.oid))
	FROM member m JOIN pg_type t ON t.oid = m.objid WHERE m.classid = 'pg_type'::regclass
	UNION ALL
	SELECT format('operator %s: %s %s %s', m.identity, o.oprcode, o.oprrest, o.oprjoin)
	FROM member m JOIN pg_operator o ON o.oid = m.objid WHERE m.classid = 'pg_operator'::regclass
	UNION ALL
	SELECT format('foreign data wrapper %s: handler %s validator %s %s', m.identity,
		f.fdwhandler::regproc, f.fdwvalidator::regproc, f.fdwacl)
	FROM member m JOIN pg_foreign_data_wrapper f ON f.oid = m.objid
	WHERE m.classid = 'pg_foreign_data_wrapper'::regclass
	UNION ALL
	SELECT format('schema %s: %s', n.nspname, n.nspacl) FROM pg_namespace n WHERE n.nspname = 'udb'
	UNION ALL
	SELECT format('dumped %s: %s', t.rel::regclass, t.condition)
	FROM pg_extension e, unnest(e.extconfig, e.extcondition) t(rel, condition) WHERE e.extname = 'udb')
SELECT line FROM fact ORDER BY line COLLATE "C"
SQL

my $node = new_cluster('upgrade', extension => 0);

# A database with the extension in it, whose name says what was done there.
sub database
{
	my ($name, @sql) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, $_) foreach @sql;
	return $name;
}
sub description { return $node->safe_psql($_[0], $describe); }

# Whole descriptions are long, so only the lines that differ are shown.
sub is_same
{
	my ($got, $expected, $name) = @_;
	my (%got, %expected);

	@got{ split /\n/, $got } = ();
	@expected{ split /\n/, $expected } = ();
	ok($got eq $expected, $name)
	  or diag(join "\n",
		(map { "only there: $_" } grep { !exists $expected{$_} } sort keys %got),
		(map { "missing: $_" } grep { !exists $got{$_} } sort keys %expected));
	return;
}

# ---- the current version ----

my $fresh = description(database('fresh', "CREATE EXTENSION udb VERSION '$current'"));
like($fresh, qr/^function udb\.version\(\)/m, "version $current can be installed by name");
is($node->safe_psql('fresh', "SELECT extversion FROM pg_extension WHERE extname = 'udb'"),
	$current, 'and is what the catalog says');
is_same(description(database('again', 'CREATE EXTENSION udb')), $fresh, 'it is also the default');

# ---- the comparison sees what it should ----

my $function = $node->safe_psql('fresh',
	"SELECT oid::regprocedure FROM pg_proc WHERE proname = 'version' AND pronamespace = 'udb'::regnamespace");
my $table = $node->safe_psql('fresh', <<'SQL');
SELECT c.oid::regclass FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.deptype = 'e'
WHERE d.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'p') ORDER BY c.relname LIMIT 1
SQL
my %change = (
	comment => "COMMENT ON FUNCTION $function IS 'something else'",
	grants => "GRANT EXECUTE ON FUNCTION $function TO pg_monitor",
	volatility => "ALTER FUNCTION $function VOLATILE CALLED ON NULL INPUT COST 77",
	column => "ALTER TABLE $table ADD COLUMN one_too_many int",
	constraint => "ALTER TABLE $table ADD CONSTRAINT one_too_many CHECK (true)",
	member => "CREATE VIEW udb.one_too_many AS SELECT 1; ALTER EXTENSION udb ADD VIEW udb.one_too_many");
foreach my $kind (sort keys %change)
{
	ok(description(database("changed_$kind", 'CREATE EXTENSION udb', $change{$kind})) ne $fresh,
		"a difference in a $kind would be seen");
}

# ---- what was released ----

note 'nothing is released yet, so there is no version to upgrade from' unless %released;
foreach my $version (sort keys %released)
{
	if ($version eq $current)
	{
		ok(slurp_file($released{$version}) eq slurp_file("$tree/sql/udb--$current.sql"),
			"the SQL is still what was released as $version");
		next;
	}
	(my $name = "from_$version") =~ s/\W/_/g;
	database($name, "CREATE EXTENSION udb VERSION '$version'",
		"SELECT udb.enqueue('upgrade', '{}')", 'ALTER EXTENSION udb UPDATE');
	is_same(description($name), $fresh, "$version upgraded to $current is the same as a fresh $current");
	is($node->safe_psql($name, 'SELECT count(*) FROM udb.outbox_events'), 1, 'and kept its event');
}
foreach my $step (@steps)
{
	ok($released{ $step->[0] }, "the upgrade script $step->[0] to $step->[1] starts at a released version");
}

done_testing();
