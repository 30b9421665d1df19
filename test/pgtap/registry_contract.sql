-- The contract of registries, as every store has to keep it. Each statement is a transaction, unless it says
-- otherwise: what resolve() gives depends on what has been committed.
\set store ''
\getenv store UDB_STORE
SELECT plan(96);
SELECT set_config('test.store', :'store', false) \g /dev/null
CREATE FUNCTION pg_temp.store() RETURNS text LANGUAGE sql AS $$ SELECT nullif(current_setting('test.store'), '') $$;

CREATE FUNCTION pg_temp.put(key text, record jsonb, registry text DEFAULT 'c') RETURNS bigint LANGUAGE sql AS
	$$ SELECT udb.put_record($3, $1, $2, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.update(key text, record jsonb) RETURNS bigint LANGUAGE sql AS
	$$ SELECT udb.update_record('c', $1, $2, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.touch(key text) RETURNS bigint LANGUAGE sql AS
	$$ SELECT udb.touch_record('c', $1, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.remove(key text) RETURNS bigint LANGUAGE sql AS
	$$ SELECT udb.remove_record('c', $1, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.watermark(registry text DEFAULT 'c') RETURNS bigint LANGUAGE sql AS
	$$ SELECT udb.watermark($1, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.resolve(key text, registry text DEFAULT 'c') RETURNS jsonb LANGUAGE sql AS
	$$ SELECT udb.resolve($2, $1, store => pg_temp.store()) $$;
-- records as one text: key:record@number
CREATE FUNCTION pg_temp.since(seq bigint DEFAULT 0, row_limit integer DEFAULT 1000) RETURNS text LANGUAGE sql AS
	$$ SELECT coalesce(string_agg(format('%s:%s@%s', r.key, r.record, r.seq), ' '), '-')
	   FROM udb.rows_since('c', $1, $2, store => pg_temp.store()) r $$;
CREATE FUNCTION pg_temp.reconcile(consumer text, row_limit integer DEFAULT 1000) RETURNS text LANGUAGE sql AS
	$$ SELECT coalesce(string_agg(format('%s:%s@%s', r.key, r.record, r.seq), ' '), '-')
	   FROM udb.reconcile($1, $2, store => pg_temp.store()) r $$;
CREATE FUNCTION pg_temp.removed(consumer text, keys text[]) RETURNS text LANGUAGE sql AS
	$$ SELECT coalesce(string_agg(k, ' ' ORDER BY k), '-') FROM udb.removed_keys($1, $2, store => pg_temp.store()) k $$;
CREATE FUNCTION pg_temp.consumer(consumer text, applied bigint DEFAULT 0, registry text DEFAULT 'c') RETURNS void LANGUAGE sql AS
	$$ SELECT udb.create_registry_consumer($1, $3, applied => $2, store => pg_temp.store()) $$;
CREATE FUNCTION pg_temp.ready(consumer text, timeout interval DEFAULT '0') RETURNS boolean LANGUAGE sql AS
	$$ SELECT udb.wait_for_registry($1, $2, store => pg_temp.store()) $$;

CREATE FUNCTION pg_temp.code(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE query;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate;
END
$$;

-- an empty one
SELECT lives_ok($$SELECT udb.create_registry('c', store => pg_temp.store())$$, 'a registry is created');
SELECT throws_ok($$SELECT udb.create_registry('c', store => pg_temp.store())$$, '42710', NULL, 'but not twice');
SELECT is(pg_temp.watermark(), 0::bigint, 'its watermark is 0');
SELECT is(pg_temp.since(), '-', 'it has no rows');
SELECT is(pg_temp.resolve('a'), NULL, 'and no record');

-- each change takes one number
SELECT is(pg_temp.put('a', '{"n": 1}'), 1::bigint, 'the first change is number 1');
SELECT is(pg_temp.resolve('a'), '{"n": 1}', 'and can be resolved');
SELECT is(pg_temp.put('b', '2'), 2::bigint, 'the next is number 2');
SELECT is(pg_temp.put('a', '{"n": 3}'), 3::bigint, 'to replace a record takes a number');
SELECT is(pg_temp.resolve('a'), '{"n": 3}', 'and it is replaced');
SELECT is(pg_temp.resolve('b'), '2', 'the other one is not');
SELECT is(pg_temp.since(), 'b:2@2 a:{"n": 3}@3', 'rows are in the order of their numbers, each once');
SELECT is(pg_temp.update('b', 'null'), 4::bigint, 'so does update');
SELECT is(pg_temp.resolve('b'), 'null', 'a record can be a JSON null');
SELECT is(pg_temp.touch('a'), 5::bigint, 'and touch');
SELECT is(pg_temp.resolve('a'), '{"n": 3}', 'which changes nothing');
SELECT is(pg_temp.since(), 'b:null@4 a:{"n": 3}@5', 'but the number');
SELECT is(pg_temp.watermark(), 5::bigint, 'the watermark is the last number');
SELECT is(pg_temp.remove('b'), 6::bigint, 'and remove');
SELECT is(pg_temp.resolve('b'), NULL, 'after which the record is gone');
SELECT is(pg_temp.since(), 'a:{"n": 3}@5', 'it leaves no row');
SELECT is(pg_temp.watermark(), 6::bigint, 'but moves the watermark');

-- what is not there
SELECT is(pg_temp.update('b', '1'), NULL, 'update of no record is nothing');
SELECT is(pg_temp.touch('b'), NULL, 'nor is touch');
SELECT is(pg_temp.remove('b'), NULL, 'nor is remove');
SELECT is(pg_temp.watermark(), 6::bigint, 'and none of them takes a number');
SELECT is(pg_temp.resolve('b'), NULL, 'nor makes a record');
SELECT is(pg_temp.put('b', '7'), 7::bigint, 'a key can come back');
SELECT is(pg_temp.resolve('b'), '7', 'with another record');

-- numbers go back with what is rolled back
BEGIN;
SELECT is(pg_temp.put('a', '8'), 8::bigint, 'in a transaction');
SELECT is(pg_temp.resolve('a'), '8', 'its own change is seen');
SAVEPOINT s;
SELECT is(pg_temp.remove('a'), 9::bigint, 'and after a savepoint');
SELECT is(pg_temp.resolve('a'), NULL, 'too');
SELECT is(pg_temp.put('d', '10'), 10::bigint, 'with a record');
SELECT is(pg_temp.resolve('d'), '10', 'of its own');
ROLLBACK TO s;
SELECT is(pg_temp.resolve('a'), '8', 'what was before the savepoint is back');
SELECT is(pg_temp.resolve('d'), NULL, 'what was after it is gone');
SELECT is(pg_temp.put('e', '9'), 9::bigint, 'and the numbers go on from there');
ROLLBACK;
SELECT is(pg_temp.resolve('a'), '{"n": 3}', 'after rollback all is as it was');
SELECT is(pg_temp.resolve('e'), NULL, 'all of it');
SELECT is(pg_temp.put('f', '"f"'), 8::bigint, 'and the numbers have no gap');
SELECT is(pg_temp.resolve('f'), '"f"', 'though another record had this number before');
SELECT is(pg_temp.resolve('a'), '{"n": 3}', 'and what has not changed is right');

-- rows_since
SELECT is(pg_temp.since(5), 'b:7@7 f:"f"@8', 'rows since a number are those above it');
SELECT is(pg_temp.since(8), '-', 'none are above the last');
SELECT is(pg_temp.since(1000), '-', 'nor above one that was never given out');
SELECT is(pg_temp.since(-1), 'a:{"n": 3}@5 b:7@7 f:"f"@8', 'a negative number is the beginning');
SELECT is(pg_temp.since(0, 2), 'a:{"n": 3}@5 b:7@7', 'a limit takes the first ones');
SELECT is(pg_temp.since(0, 0), '-', 'a limit of 0 gives none');
SELECT is(pg_temp.since(0, -1), '-', 'nor does a negative one');

-- consumers
SELECT lives_ok($$SELECT pg_temp.consumer('k')$$, 'a consumer is registered');
SELECT throws_ok($$SELECT pg_temp.consumer('k')$$, '42710', NULL, 'but not twice');
SELECT ok(pg_temp.ready('k', '1 min'), 'it has something to do, and is told at once');
SELECT is(pg_temp.reconcile('k', 0), '-', 'a limit of 0 gives it nothing');
SELECT is(pg_temp.reconcile('k', -1), '-', 'nor does a negative one');
SELECT is(pg_temp.reconcile('k', 2), 'a:{"n": 3}@5 b:7@7', 'it gets the first rows');
SELECT is(pg_temp.reconcile('k', 2), 'f:"f"@8', 'and the others');
SELECT is(pg_temp.reconcile('k'), '-', 'and then none');
SELECT ok(NOT pg_temp.ready('k'), 'there is nothing left');
SELECT is(pg_temp.removed('k', '{a,b,c}'), '-', 'a fresh consumer knows of nothing that could have been removed');
SELECT is(pg_temp.touch('a'), 9::bigint, 'after a touch');
SELECT is(pg_temp.reconcile('k'), 'a:{"n": 3}@9', 'the row comes again');
BEGIN;
SELECT is(pg_temp.put('a', '10'), 10::bigint, 'what is reconciled');
SELECT is(pg_temp.reconcile('k'), 'a:10@10', 'in a transaction');
SELECT is(pg_temp.reconcile('k'), '-', 'which sees its own pass');
ROLLBACK;
SELECT is(pg_temp.reconcile('k'), '-', 'is not after a rollback');
SELECT is(pg_temp.put('a', '11'), 10::bigint, 'and what comes then');
SELECT is(pg_temp.reconcile('k'), 'a:11@10', 'is not missed');

-- removals
SELECT is(pg_temp.remove('b'), 11::bigint, 'after a removal');
SELECT ok(pg_temp.ready('k'), 'a consumer has something to do');
SELECT is(pg_temp.reconcile('k'), '-', 'though there is no row');
SELECT ok(NOT pg_temp.ready('k'), 'and has done it');
SELECT is(pg_temp.removed('k', '{a,b,f,z}'), 'b z', 'it learns which of its keys are gone');
SELECT is(pg_temp.removed('k', '{a,b,f,z}'), '-', 'once');
SELECT is(pg_temp.remove('f'), 12::bigint, 'until the next removal');
SELECT is(pg_temp.removed('k', '{a,f,f,NULL}'), 'f', 'of which it learns even before it reconciles');
SELECT lives_ok($$SELECT pg_temp.consumer('late', 11)$$, 'a consumer can begin where it has got to by other means');
SELECT is(pg_temp.reconcile('late') || ' ' || pg_temp.removed('late', '{a,f}'), '- f', 'and misses nothing after that');
SELECT throws_ok($$SELECT pg_temp.consumer('x', 13)$$, '22023', NULL, 'but not at what is still to come');

-- registries do not touch each other
SELECT lives_ok($$SELECT udb.create_registry('d', store => pg_temp.store())$$, 'a second registry');
SELECT is(pg_temp.put('a', '"d"', 'd'), 1::bigint, 'counts for itself');
SELECT is(pg_temp.resolve('a')::text || pg_temp.resolve('a', 'd'), '11"d"', 'and has its own records');

-- bad input
SELECT is(array_agg(n || ': ' || coalesce(e, 'no error')), ARRAY['1: 42704', '2: 42704', '3: 42704', '4: 42704',
		'5: 42704', '6: 42704', '7: 42704', '8: 42704', '9: 42704', '10: 42704', '11: 42704'], 'what does not exist is an error')
FROM (SELECT n, pg_temp.code(q) AS e FROM (VALUES
	(1, $$SELECT pg_temp.put('a', '1', 'no')$$), (2, $$SELECT udb.update_record('no', 'a', '1', store => pg_temp.store())$$),
	(3, $$SELECT udb.touch_record('no', 'a', store => pg_temp.store())$$),
	(4, $$SELECT udb.remove_record('no', 'a', store => pg_temp.store())$$), (5, $$SELECT pg_temp.watermark('no')$$),
	(6, $$SELECT pg_temp.resolve('a', 'no')$$), (7, $$SELECT udb.rows_since('no', store => pg_temp.store())$$),
	(8, $$SELECT udb.drop_registry('no', store => pg_temp.store())$$), (9, $$SELECT pg_temp.consumer('x', 0, 'no')$$),
	(10, $$SELECT pg_temp.reconcile('no')$$), (11, $$SELECT pg_temp.removed('no', '{}')$$)) v(n, q)) x;
SELECT is(array_agg(pg_temp.code(q)), array_fill('22004'::text, ARRAY[15]), 'nulls are errors')
FROM (VALUES ($$SELECT pg_temp.put(NULL, '1')$$), ($$SELECT pg_temp.put('a', NULL)$$), ($$SELECT pg_temp.put('a', '1', NULL)$$),
	($$SELECT pg_temp.update('a', NULL)$$), ($$SELECT pg_temp.touch(NULL)$$), ($$SELECT pg_temp.remove(NULL)$$),
	($$SELECT pg_temp.resolve(NULL)$$), ($$SELECT pg_temp.resolve('a', NULL)$$), ($$SELECT pg_temp.watermark(NULL)$$),
	($$SELECT pg_temp.since(NULL)$$), ($$SELECT pg_temp.since(0, NULL)$$), ($$SELECT pg_temp.reconcile('k', NULL)$$),
	($$SELECT pg_temp.removed('k', NULL)$$), ($$SELECT pg_temp.ready('k', NULL)$$),
	($$SELECT udb.create_registry(NULL, store => pg_temp.store())$$)) v(q);
SELECT is(array_agg(pg_temp.code(q)), ARRAY['42602', '42602', '42602', '42602', '42622', '42622', '42622', '42622', '22023'],
	'so are empty and over-long names, and a negative timeout')
FROM (VALUES ($$SELECT pg_temp.put('', '1')$$), ($$SELECT udb.create_registry('', store => pg_temp.store())$$),
	($$SELECT pg_temp.consumer('')$$), ($$SELECT pg_temp.resolve('')$$), ($$SELECT pg_temp.put(repeat('x', 1025), '1')$$),
	($$SELECT udb.create_registry(repeat('x', 256), store => pg_temp.store())$$), ($$SELECT pg_temp.consumer(repeat('x', 256))$$),
	($$SELECT pg_temp.resolve(repeat('x', 1025))$$), ($$SELECT pg_temp.ready('k', '-1 s')$$)) v(q);
SELECT is(pg_temp.watermark(), 12::bigint, 'and none of that has changed anything');
SELECT throws_ok($$SELECT udb.resolve('c', 'a', store => 'no such')$$, '42704', NULL, 'an unknown store is an error');

-- the end
SELECT throws_ok($$SELECT udb.drop_registry('c', store => pg_temp.store())$$, '2BP01', NULL,
	'a registry with consumers is not dropped');
SELECT lives_ok($$SELECT udb.drop_registry_consumer(c, store => pg_temp.store()) FROM unnest('{k,late}'::text[]) c$$,
	'when they are gone');
SELECT lives_ok($$SELECT udb.drop_registry(r, store => pg_temp.store()) FROM unnest('{c,d}'::text[]) r$$, 'it is');
SELECT throws_ok($$SELECT pg_temp.resolve('a')$$, '42704', NULL, 'and no longer resolved');
SELECT lives_ok($$SELECT udb.create_registry('c', store => pg_temp.store())$$, 'one of the same name');
SELECT is(pg_temp.resolve('a'), NULL, 'has nothing of the old one');
SELECT is(pg_temp.put('a', '"new"'), 1::bigint, 'and counts from 1');
SELECT is(pg_temp.resolve('a'), '"new"', 'in all ways');
SELECT lives_ok($$SELECT udb.drop_registry('c', store => pg_temp.store())$$, 'and is dropped as well');

SELECT * FROM finish();
