-- What the catalog says about udb's objects. A new object has to be labelled and described on purpose.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on

-- all is in the schema, and all in the schema that is not a segment is the extension's
SELECT pg_describe_object(classid, objid, 0) FROM pg_depend d
WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'udb')
	AND deptype = 'e' AND classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_type'::regclass)
	AND coalesce((SELECT pronamespace FROM pg_proc WHERE oid = objid AND classid = 'pg_proc'::regclass),
		(SELECT relnamespace FROM pg_class WHERE oid = objid AND classid = 'pg_class'::regclass),
		(SELECT typnamespace FROM pg_type WHERE oid = objid AND classid = 'pg_type'::regclass)) <> 'udb'::regnamespace;
SELECT 'not of the extension', oid::regprocedure FROM pg_proc p WHERE pronamespace = 'udb'::regnamespace
	AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e');

-- functions: kind, volatility (immutable, stable, volatile), parallel (safe, restricted, unsafe), definer, strict
SELECT oid::regprocedure, prokind, provolatile, proparallel, prosecdef, proisstrict, proretset, pg_get_function_result(oid)
FROM pg_proc WHERE pronamespace = 'udb'::regnamespace ORDER BY oid::regprocedure::text COLLATE "C";

-- with arguments and their defaults, since applications call them by name
SELECT proname || '(' || pg_get_function_arguments(oid) || ')'
FROM pg_proc WHERE pronamespace = 'udb'::regnamespace AND proname !~ '^_' ORDER BY oid::regprocedure::text COLLATE "C";

-- each one is described, also relations and types
SELECT 'no comment', oid::regprocedure FROM pg_proc
WHERE pronamespace = 'udb'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL;
SELECT 'no comment', oid::regclass FROM pg_class WHERE relnamespace = 'udb'::regnamespace
	AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition AND obj_description(oid, 'pg_class') IS NULL;
SELECT 'no comment', oid::regtype FROM pg_type t WHERE typnamespace = 'udb'::regnamespace AND typtype = 'c'
	AND (SELECT relkind FROM pg_class WHERE oid = typrelid) = 'c' AND obj_description(oid, 'pg_type') IS NULL;
SELECT 'no comment', nspname FROM pg_namespace WHERE nspname = 'udb' AND obj_description(oid, 'pg_namespace') IS NULL;
-- a comment is one line, without a full stop
SELECT 'comment', p.oid::regprocedure, d.description FROM pg_proc p JOIN pg_description d ON d.objoid = p.oid
	AND d.classoid = 'pg_proc'::regclass
WHERE pronamespace = 'udb'::regnamespace AND d.description ~ '\.$|\n|^[a-z]';

-- whoever acts with another's rights has a fixed search_path, and so has all that is not C
SELECT 'search_path', oid::regprocedure FROM pg_proc WHERE pronamespace = 'udb'::regnamespace
	AND (prosecdef OR prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c'))
	AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp'];

-- what writes, or tells about events, is not for everybody
SELECT oid::regprocedure, provolatile FROM pg_proc
WHERE pronamespace = 'udb'::regnamespace AND (proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = 0))
ORDER BY oid::regprocedure::text COLLATE "C";
SELECT oid::regclass FROM pg_class c
WHERE relnamespace = 'udb'::regnamespace AND EXISTS (SELECT FROM aclexplode(relacl) WHERE grantee = 0)
ORDER BY oid::regclass::text COLLATE "C";

-- relations and their columns
SELECT c.oid::regclass, c.relkind, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
	|| CASE WHEN a.attnotnull THEN ' not null' ELSE '' END, ', ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'udb'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'c') AND NOT c.relispartition
GROUP BY c.oid ORDER BY c.oid::regclass::text COLLATE "C";

-- what pg_dump takes along
SELECT t::regclass, condition FROM pg_extension, unnest(extconfig, extcondition) u(t, condition)
WHERE extname = 'udb' ORDER BY t::regclass::text COLLATE "C";

-- settings: default, unit, bounds, and when they take effect
SELECT name, boot_val, unit, min_val, max_val, context FROM pg_settings WHERE name LIKE 'udb.%' ORDER BY name COLLATE "C";
SELECT 'no description', name FROM pg_settings WHERE name LIKE 'udb.%' AND short_desc !~ '^(Sets|Runs|Sends|Shows) .*\.$';
-- a mistyped one is noticed
SET udb.retention = 1;

-- segments have the indexes that duplicates are found with, and no rights of their own
BEGIN;
SELECT udb.enqueue('t_catalog', '1') > 0;
SELECT DISTINCT pg_get_indexdef(indexrelid, 1, true), indisunique
FROM pg_index JOIN pg_inherits ON indrelid = inhrelid WHERE inhparent = 'udb.outbox_events'::regclass ORDER BY 1;
SELECT DISTINCT relowner = (SELECT extowner FROM pg_extension WHERE extname = 'udb'), relacl
FROM pg_class JOIN pg_inherits ON oid = inhrelid WHERE inhparent = 'udb.outbox_events'::regclass;
ROLLBACK;
