-- Canonical JSON: vectors.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on

-- keys are sorted by their bytes, not by their length, at every level and in whatever order they come
SELECT udb.canonical_json('{"bb": 1, "a": 2, "c": {"z": 1, "yy": 2, "x": {"10": 1, "9": 2}}}');
SELECT udb.canonical_json('{"c": {"x": {"9": 2, "10": 1}, "yy": 2, "z": 1}, "a": 2, "bb": 1}');
SELECT udb.canonical_json('[{"b": 1, "aa": [{"d": 1, "cc": 2}]}, [[{"f": 1, "ee": 2}]]]');
SELECT udb.canonical_json('{"a": 1, "": 2, "aa": 3, "A": 4, "_": 5, "a b": 6, "a\"": 7, "a!": 8}');
-- all orders of five keys with all kinds of lengths give one text
WITH RECURSIVE k(key) AS (VALUES ('b'), ('aa'), ('ab'), ('a'), ('ccc')),
	p(keys) AS (SELECT '{}'::text[] UNION ALL SELECT keys || key FROM p, k WHERE key <> ALL (keys)),
	o(value) AS (SELECT (SELECT '{' || string_agg(format('"%s": {"n": [%s], "mm": {}}', u, length(u)), ', ' ORDER BY i) || '}'
		FROM unnest(keys) WITH ORDINALITY x(u, i)) FROM p WHERE cardinality(keys) = 5)
SELECT count(*), count(DISTINCT value), min(udb.canonical_json(value::jsonb)) = max(udb.canonical_json(value::jsonb)),
	min(udb.canonical_json(value::jsonb))
FROM o;
-- by their bytes in UTF-8: U+FFFF comes before U+10000, unlike in UTF-16
SELECT udb.canonical_json('{"\ud800\udc00": 4, "\uffff": 3, "\ue000": 2, "é": 1, "z": 0, "Z": -1}')
	= '{"Z":-1,"z":0,"é":1,"' || chr(57344) || '":2,"' || chr(65535) || '":3,"' || chr(65536) || '":4}';

-- strings: unicode is kept, and what has to be escaped is escaped in the shortest way
SELECT udb.canonical_json('"\u00e9\u4e2d\ud83d\ude00 ä中😀 \u2028 </script> \/ ''"')
	= '"é中😀 ä中😀 ' || chr(8232) || ' </script> / ''"';
SELECT udb.canonical_json('"\" \\ \b \f \n \r \t"');
SELECT udb.canonical_json(to_jsonb(string_agg(chr(i), '' ORDER BY i))) FROM generate_series(1, 31) i;
SELECT udb.canonical_json(to_jsonb(chr(127) || chr(128) || chr(159))) = '"' || chr(127) || chr(128) || chr(159) || '"';
SELECT udb.canonical_json(jsonb_build_object(E'k\n"\\\x01', 'v'));
SELECT udb.canonical_json('"\u0041\u001F"');

-- numbers are as in the jsonb: trailing zeros stay, exponents do not
SELECT udb.canonical_json('[1, 1.0, 1.00, -0, -0.0, 0.1, -1.50, 1e3, 1.5e-7, 12345678901234567890123456789.000000001]');
SELECT udb.canonical_json('1.0'), udb.canonical_json('1.00'), udb.canonical_json('1');
SELECT udb.canonical_json('1e400') = '1' || repeat('0', 400), udb.canonical_json('1e-400') = '0.' || repeat('0', 399) || '1';
SELECT udb.canonical_json('-9007199254740993'), udb.canonical_json('0.30000000000000004');

-- the rest
SELECT udb.canonical_json('{}'), udb.canonical_json('[]'), udb.canonical_json('""'), udb.canonical_json('null'),
	udb.canonical_json('true'), udb.canonical_json('false');
SELECT udb.canonical_json('[{}, [], "", null, true, false, [[]], [{}], {"a": {}}, {"b": []}]');
SELECT udb.canonical_json(NULL) IS NULL;
-- keys that are given twice: jsonb has kept the last
SELECT udb.canonical_json('{"a": 1, "b": 2, "a": 3}');

-- agrees with jsonb's own text but for white space, where neither strings nor keys matter
SELECT count(*) FROM (SELECT jsonb_agg(jsonb_build_object('a', i, 'b', i / 7.0, 'c', jsonb_build_array(i % 2 = 0, NULL, i * 10::numeric ^ (i % 40)))) AS v
	FROM generate_series(1, 500) i GROUP BY i % 17) s WHERE udb.canonical_json(v) <> replace(v::text, ' ', '');
-- it is the same value again
WITH v(v) AS (SELECT jsonb_object_agg(md5(i::text) || repeat('x', i % 40), jsonb_build_object(chr(i + 200), chr(i + 1000), repeat(chr(35 + i % 80), i % 5), i)) FROM generate_series(1, 2000) i)
SELECT udb.canonical_json(v)::jsonb = v, length(udb.canonical_json(v)) > 100000 FROM v;
-- and the keys of a large object are sorted
WITH v(v) AS (SELECT jsonb_object_agg(i::text, i) FROM generate_series(1, 5000) i)
SELECT udb.canonical_json(v) = '{' || (SELECT string_agg(format('"%s":%s', i, i), ',' ORDER BY i::text COLLATE "C") FROM generate_series(1, 5000) i) || '}' FROM v;

-- deep nesting: as deep as jsonb can, also with less stack than it was made with
CREATE TEMP TABLE t_deep AS SELECT repeat('[', 4000)::text || repeat(']', 4000) AS v;
CREATE TEMP TABLE t_deeper AS SELECT (repeat('{"b":0,"aa":[', 2000) || '1' || repeat(']}', 2000))::jsonb AS v;
SELECT udb.canonical_json(v::jsonb) = v FROM t_deep;
SET max_stack_depth = '100kB';
SELECT udb.canonical_json(v) = repeat('{"aa":[', 2000) || '1' || repeat('],"b":0}', 2000) FROM t_deeper;
RESET max_stack_depth;

-- what takes long can be cancelled
SET statement_timeout = '100ms';
SELECT count(udb.canonical_json(v)) FROM (SELECT jsonb_agg(i) AS v FROM generate_series(1, 100) i) s, generate_series(1, 100000000);
RESET statement_timeout;
