# Many workers, with rollbacks, savepoints, retries and tasks that are made meanwhile in long and short transactions:
# each task is done exactly once, and none is left behind.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use UdbTest;

my $node = new_cluster('fight', conf => "autovacuum = off\n");
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE done (task_id uuid, claim_token bigint);
CREATE TABLE lost (n int);

-- One in ten fails, one in five is rolled back to a savepoint.
CREATE PROCEDURE work(backend text) LANGUAGE plpgsql AS $$
DECLARE
	t record;
	luck float := random();
BEGIN
	FOR t IN SELECT * FROM udb.claim_projection_tasks(7, 1000000, target_backend => backend) LOOP
		IF luck < 0.1 THEN
			PERFORM udb.fail_projection_task(t.task_id, 0, 'FAILED', 'bad luck', t.claim_token);
		ELSIF udb.complete_projection_task(t.task_id, t.claim_token) THEN
			INSERT INTO done VALUES (t.task_id, t.claim_token);
		ELSE
			INSERT INTO lost VALUES (1);
		END IF;
	END LOOP;
	IF luck > 0.8 THEN
		RAISE 'out of luck';
	END IF;
EXCEPTION WHEN raise_exception THEN
	NULL;
END
$$;

-- Nearly one in three is rolled back as a whole.
CREATE PROCEDURE work_or_not(backend text) LANGUAGE plpgsql AS $$
DECLARE
	tasks udb.projection_tasks[];
	t udb.projection_tasks;
BEGIN
	tasks := ARRAY(SELECT c FROM udb.claim_projection_tasks(7, 1000000, target_backend => backend) c);
	FOREACH t IN ARRAY tasks LOOP
		IF udb.complete_projection_task(t.task_id, t.claim_token) THEN
			INSERT INTO done VALUES (t.task_id, t.claim_token);
		ELSE
			INSERT INTO lost VALUES (1);
		END IF;
	END LOOP;
	IF random() > 0.7 THEN
		ROLLBACK;
	END IF;
END
$$;
SQL

my $dir = $node->basedir;
# A script of pgbench, and how often it is to be run.
sub script
{
	my ($name, $weight, $text) = @_;

	append_to_file("$dir/$name", $text);
	return ('-f', "$dir/$name\@$weight");
}
my $put = "SELECT udb.enqueue_projection_task('k' || :client_id || '.' || random(), 'p', source_table => 't', target_backend => 'b' || (random() * 2)::int)";
my @scripts = (
	script('put', 3, "$put;\n"),
	script('late', 1, "BEGIN;\n$put;\n$put;\n\\sleep 5 ms\n$put;\nCOMMIT;\n"),
	script('any', 3, "CALL work(NULL);\n"),
	script('some', 2, "CALL work('b1');\n"),
	script('not', 2, "CALL work_or_not(NULL);\n"));
# somebody holds a snapshot, so that nothing that is dead goes away
my $old = session($node);
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->command_ok([ 'pgbench', '-n', '-c', '6', '-T', '8', @scripts, '-d', 'postgres' ], 'workers and writers side by side');

my $tasks = $node->safe_psql('postgres', 'SELECT count(*) FROM udb.projection_tasks');
cmp_ok($tasks, '>', 500, "there were tasks ($tasks)");
# what is left, without those whose time has not come: one claim must see all, wherever it begins
$node->safe_psql('postgres', 'DO $$ BEGIN WHILE EXISTS (SELECT FROM udb.claim_projection_tasks(1000, 0)) LOOP NULL; END LOOP; END $$');
is($node->safe_psql('postgres', 'SELECT pending FROM udb.projection_task_summary()'), 0, 'no task is passed over');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lost'), 0, 'no claim was lost while its transaction was open');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT task_id FROM done GROUP BY 1 HAVING count(*) > 1) d"), 0, 'none was done twice');
is($node->safe_psql('postgres', "SELECT count(*) FROM done d FULL JOIN (SELECT * FROM udb.projection_tasks WHERE status = 'COMPLETED') t USING (task_id, claim_token)
	WHERE d.task_id IS NULL OR t.task_id IS NULL"), 0, 'and those are completed that were done, by the claim that has');
$old->query('COMMIT');

done_testing();
