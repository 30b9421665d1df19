-- What resolve() reads, and what it does not read again. Changes that are made in secret, with the triggers off,
-- are how that is found out: only who reads the table sees them.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION t_secret(r text, k text, record jsonb) RETURNS void LANGUAGE plpgsql
	SET session_replication_role = replica AS $$
BEGIN
	UPDATE udb.registry_records SET record = $3 WHERE registry = $1 AND key = $2;
END
$$;
CREATE FUNCTION t_kept() RETURNS bigint LANGUAGE sql AS $$
	SELECT coalesce(sum(total_bytes), 0)::bigint FROM pg_backend_memory_contexts WHERE name IN ('udb registries', 'udb registry')
$$;
SELECT udb.create_registry('t_cache'), udb.create_registry('t_other');
SELECT udb.put_record('t_cache', 'a', '1'), udb.put_record('t_cache', 'b', '2'), udb.put_record('t_cache', 'c', '3');
SELECT udb.put_record('t_other', 'a', '"other"');

-- a small registry is read whole, and not again
SELECT udb.resolve('t_cache', 'a');
SELECT t_secret('t_cache', 'a', '"secret"'), t_secret('t_cache', 'b', '"secret"'), t_secret('t_cache', 'c', '"secret"');
SELECT udb.resolve('t_cache', 'a'), udb.resolve('t_cache', 'b'), udb.resolve('t_cache', 'x') IS NULL;
-- nor when something is committed to another registry, or rolled back in this one, or nothing was changed
SELECT udb.put_record('t_other', 'a', '"other 2"');
SELECT udb.resolve('t_cache', 'a'), udb.resolve('t_other', 'a');
BEGIN;
SELECT udb.put_record('t_cache', 'b', '"mine"');
SELECT udb.resolve('t_cache', 'b');
ROLLBACK;
SELECT udb.resolve('t_cache', 'a'), udb.resolve('t_cache', 'b');
SELECT udb.update_record('t_cache', 'x', '1');
SELECT udb.resolve('t_cache', 'b');
-- after a change what has changed is read, and no more
SELECT udb.touch_record('t_cache', 'b'), udb.put_record('t_cache', 'd', '4');
SELECT udb.resolve('t_cache', 'a'), udb.resolve('t_cache', 'b'), udb.resolve('t_cache', 'c'), udb.resolve('t_cache', 'd');
-- a removal leaves no trace, so all is read again
SELECT udb.remove_record('t_cache', 'd');
SELECT udb.resolve('t_cache', 'a'), udb.resolve('t_cache', 'b'), udb.resolve('t_cache', 'c'), udb.resolve('t_cache', 'd') IS NULL;

-- whoever writes the tables past the functions is noticed, wherever he does
UPDATE udb.registry_records SET record = '"open"' WHERE registry = 't_cache' AND key = 'c';
SELECT udb.resolve('t_cache', 'c');
SELECT t_secret('t_other', 'a', '"secret"');
DELETE FROM udb.registry_records WHERE registry = 't_cache' AND key = 'c';
SELECT udb.resolve('t_cache', 'c') IS NULL, udb.resolve('t_other', 'a');
INSERT INTO udb.registry_records VALUES ('t_cache', 'e', '5', 6);
SELECT udb.resolve('t_cache', 'e');
BEGIN;
TRUNCATE udb.registry_records;
SELECT udb.resolve('t_cache', 'a') IS NULL;
ROLLBACK;
SELECT udb.resolve('t_cache', 'a');

-- of a large one only what is asked for is read, and what is not there is remembered too
SELECT udb.create_registry('t_large');
INSERT INTO udb.registry_records SELECT 't_large', 'k' || i, to_jsonb(repeat('x', 100) || i), i FROM generate_series(1, 1500) i;
UPDATE udb.registries SET watermark = 1500 WHERE registry = 't_large';
SELECT right(udb.resolve('t_large', 'k1500') ->> 0, 4), udb.resolve('t_large', 'new') IS NULL;
SELECT t_secret('t_large', 'k1500', '"secret"');
SELECT right(udb.resolve('t_large', 'k1500') ->> 0, 4), udb.resolve('t_large', 'new') IS NULL;
SELECT udb.put_record('t_large', 'new', '"new"');
SELECT right(udb.resolve('t_large', 'k1500') ->> 0, 4), udb.resolve('t_large', 'new');
SELECT udb.remove_record('t_large', 'new');
SELECT udb.resolve('t_large', 'k1500'), udb.resolve('t_large', 'new') IS NULL;
-- a session that has missed more than is worth while begins anew
SELECT t_secret('t_large', 'k1500', '"secret 2"'), t_secret('t_cache', 'a', '"secret 2"');
SELECT udb.resolve('t_large', 'k1500'), udb.resolve('t_cache', 'a');
SELECT count(udb.touch_record('t_large', 'k' || i)) FROM generate_series(1, 1001) i;
SELECT udb.resolve('t_large', 'k1500'), udb.resolve('t_cache', 'a');

-- memory: what does not fit is forgotten, a record that is too large for it is never kept, and 0 keeps nothing
SELECT count(udb.resolve('t_large', 'k' || i)) FROM generate_series(1, 1499) i;
SELECT t_kept() BETWEEN 200000 AND 1000000;
SET udb.registry_cache = '128kB';
SELECT udb.touch_record('t_large', 'k1');
SELECT count(udb.resolve('t_large', 'k' || i)) FROM generate_series(1, 1499) i;
SELECT t_kept() BETWEEN 1 AND 200000;
SELECT udb.put_record('t_cache', 'big', to_jsonb(repeat('y', 30000)));
SELECT length(udb.resolve('t_cache', 'big') ->> 0);
SELECT t_secret('t_cache', 'big', '"secret"');
SELECT udb.resolve('t_cache', 'big');
SET udb.registry_cache = 0;
SELECT t_secret('t_cache', 'a', '"seen"'), udb.touch_record('t_other', 'a');
SELECT udb.resolve('t_cache', 'a');
SELECT t_secret('t_cache', 'a', '"seen again"');
SELECT udb.resolve('t_cache', 'a');
RESET udb.registry_cache;

-- values that are stored out of line, or compressed
SELECT udb.put_record('t_cache', 'toast', jsonb_agg(i)) FROM generate_series(1, 20000) i;
SELECT jsonb_array_length(udb.resolve('t_cache', 'toast')), udb.resolve('t_cache', 'toast') -> 19999;
-- keys of any kind, with white space and whatever else
SELECT udb.put_record('t_cache', k, to_jsonb(k)) > 0 AND udb.resolve('t_cache', k) = to_jsonb(k)
FROM unnest(ARRAY[' ', 'é', E'a\nb', '"', '\', repeat('ü', 512)]) k;
SELECT udb.resolve('t_cache', k) = to_jsonb(k) FROM unnest(ARRAY[' ', 'é', E'a\nb', '"', '\', repeat('ü', 512)]) k;

-- dropped and made again, in one transaction and in two, it has nothing of the old one
SELECT udb.drop_registry('t_other');
SELECT udb.resolve('t_other', 'a');
SELECT udb.create_registry('t_other'), udb.put_record('t_other', 'z', '1');
SELECT udb.resolve('t_other', 'a') IS NULL, udb.resolve('t_other', 'z');
BEGIN;
SELECT udb.drop_registry('t_other'), udb.create_registry('t_other'), udb.put_record('t_other', 'y', '1');
SELECT udb.resolve('t_other', 'z') IS NULL, udb.resolve('t_other', 'y');
COMMIT;
SELECT udb.resolve('t_other', 'z') IS NULL, udb.resolve('t_other', 'y');
-- and one that is dropped in a transaction that is rolled back is there again
BEGIN;
SELECT udb.drop_registry('t_other');
SELECT udb.resolve('t_other', 'y');
ROLLBACK;
SELECT udb.resolve('t_other', 'y');

-- an error in the middle of a transaction, and what was done before it
BEGIN;
SELECT udb.put_record('t_other', 'y', '2');
SAVEPOINT s;
SELECT udb.put_record('t_other', 'y', '3'), 1 / 0;
ROLLBACK TO s;
SELECT udb.resolve('t_other', 'y');
COMMIT;
SELECT udb.resolve('t_other', 'y'), udb.watermark('t_other');

-- in a parallel query, and in a function that only reads
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode');
SELECT count(udb.resolve('t_other', key)) FROM (SELECT key FROM udb.registry_records WHERE registry = 't_other' OFFSET 0) k;
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode');
CREATE FUNCTION t_reads() RETURNS jsonb LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN udb.resolve('t_other', 'y'); END $$;
SELECT t_reads();
-- writing is refused where nothing can be written
BEGIN READ ONLY;
SELECT udb.resolve('t_other', 'y');
SAVEPOINT s;
SELECT udb.put_record('t_other', 'y', '2');
ROLLBACK TO s;
SELECT udb.touch_record('t_other', 'y');
ROLLBACK TO s;
SELECT udb.announce('t', 'k', '1');
ROLLBACK;

-- DROP and CREATE EXTENSION in a session that has kept records: in another database, for the sake of others
\set home :DBNAME
CREATE DATABASE regress_udb_registry;
\c regress_udb_registry
CREATE EXTENSION udb;
SELECT udb.create_registry('r'), udb.put_record('r', 'a', '"old"');
SELECT udb.resolve('r', 'a');
DROP EXTENSION udb;
CREATE EXTENSION udb;
SELECT udb.create_registry('r'), udb.put_record('r', 'a', '"new"');
SELECT udb.resolve('r', 'a');
\c :home
DROP DATABASE regress_udb_registry;
DROP FUNCTION t_secret, t_kept, t_reads;
SELECT udb.drop_registry(r) FROM unnest('{t_cache,t_other,t_large}'::text[]) r;
