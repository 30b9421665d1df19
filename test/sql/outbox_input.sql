-- Bad input: a named error, or the empty result where that is what was asked for; and nothing is changed.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on

-- the SQLSTATE and the message of a statement, or what it returned
CREATE FUNCTION pg_temp.try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE statement INTO result;
	RETURN coalesce('returned ' || result, 'no rows');
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate || ' ' || sqlerrm;
END
$$;

SELECT udb.create_consumer('t_input', ARRAY['t_input'], 'latest') >= 0;
SELECT udb.enqueue('t_input', '1', 'k', '018f0000-0000-7000-8000-000000000101') AS seq \gset

-- what must not change until the end
CREATE FUNCTION pg_temp.state() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ',
		(SELECT count(*) FROM udb.outbox_events WHERE topic LIKE 't\_input%' OR topic ~ '^x*$'),
		(SELECT array_agg(c ORDER BY name) FROM udb.consumers c WHERE name LIKE 't\_input%' OR name ~ '^(x*|語*)$'),
		(SELECT count(*) FROM udb.dead_events WHERE consumer = 't_input'))
$$;
SELECT pg_temp.state() AS before \gset

-- enqueue
SELECT pg_temp.try($$SELECT udb.enqueue(NULL, '1')$$);
SELECT pg_temp.try($$SELECT udb.enqueue('', '1')$$);
SELECT pg_temp.try($$SELECT udb.enqueue(repeat('x', 256), '1')$$);
SELECT pg_temp.try($$SELECT udb.enqueue(repeat('x', 10000000), '1')$$);
SELECT pg_temp.try($$SELECT udb.enqueue(repeat('語', 86), '1')$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', NULL)$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '1', NULL)$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '1', repeat('k', 1025))$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '1', headers => '[]')$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '1', headers => 'null')$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '1', headers => '"text"')$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '2', 'k', '018f0000-0000-7000-8000-000000000101')$$)
	~ '^UD001 event id "018f0000-0000-7000-8000-000000000101" reused with different content$';

-- too large: a payload of 200 MB, one that is small only when compressed, and headers
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', to_jsonb(repeat('x', 200 * 1024 * 1024)))$$);
CREATE TEMP TABLE stored AS SELECT to_jsonb(repeat('x', 17 * 1024 * 1024)) AS payload;
SELECT pg_column_size(payload) < 1024 * 1024 FROM stored;
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', payload) FROM stored$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', ARRAY['1', payload]) FROM stored$$);
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', '1', headers => jsonb_build_object('h', payload)) FROM stored$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', headers => ARRAY['{}', jsonb_build_object('h', payload)])
	FROM stored$$);

-- the limit is a setting, and exact; not everybody may raise it
SET udb.outbox_max_payload = '1kB';
SELECT pg_column_size(to_jsonb(repeat('x', 1024 - 12)));
BEGIN;
SELECT udb.enqueue('t_input', to_jsonb(repeat('x', 1024 - 12))) > 0;
ROLLBACK;
SELECT pg_temp.try($$SELECT udb.enqueue('t_input', to_jsonb(repeat('x', 1024 - 11)))$$);
\set VERBOSITY sqlstate
SET udb.outbox_max_payload = 0;
SET udb.outbox_max_payload = '129MB';
CREATE ROLE regress_udb_limited;
SET ROLE regress_udb_limited;
SET udb.outbox_max_payload = '128MB';
RESET ROLE;
\set VERBOSITY terse
DROP ROLE regress_udb_limited;
RESET udb.outbox_max_payload;

-- enqueue_many
SELECT pg_temp.try($$SELECT udb.enqueue_many(NULL, '{1}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('', '{1}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('', '{}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many(repeat('x', 256), '{1}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', NULL)$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,NULL}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', '{k,NULL}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', ARRAY['k', repeat('k', 1025)])$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', '{k}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', '{}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{}', '{k}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', NULL, ARRAY[NULL, NULL, NULL]::uuid[])$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', headers => '{NULL}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', headers => ARRAY['{}', '[]']::jsonb[])$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{{1,2},{3,4}}')$$);
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2}', '{{a,b}}')$$);
-- an id twice in one call, though its content is the same, with others around it
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{1,2,1}', NULL,
	ARRAY['018f0000-0000-7000-8000-000000000102', NULL, '018f0000-0000-7000-8000-000000000102']::uuid[])$$);
-- an id that is taken, after others that are not
SELECT pg_temp.try($$SELECT udb.enqueue_many('t_input', '{7,8,2}', NULL,
	ARRAY[NULL, '018f0000-0000-7000-8000-000000000103', '018f0000-0000-7000-8000-000000000101']::uuid[])$$);

-- no such consumer
SELECT pg_temp.try(format('SELECT udb.%s', call)) FROM unnest(ARRAY['read(''nobody'')', 'read(''nobody'', 0)',
	'checkpoint(''nobody'', 0)', 'checkpoint(''nobody'', 1)', 'wait_for_events(''nobody'', ''0'')',
	'dead_letter_event(''nobody'', 1)', 'redrive_dead_letters(''nobody'')', 'drop_consumer(''nobody'')',
	'seek_consumer(''nobody'', 0)', 'seek_consumer(''nobody'', ''latest'')', 'pause_consumer(''nobody'')',
	'resume_consumer(''nobody'')', 'read(''T_INPUT'')', 'read(''t_input '')']) call;
CALL udb.await_events('nobody', '0');

-- a name that is null, empty or too long, in every function that takes one
SELECT pg_temp.try(format('SELECT udb.%s', format(call, name)))
FROM unnest(ARRAY['create_consumer(%1$L)', 'drop_consumer(%1$L)', 'seek_consumer(%1$L, 0)',
		'seek_consumer(%1$L, ''latest'')', 'pause_consumer(%1$L)', 'resume_consumer(%1$L)', 'read(%1$L)',
		'checkpoint(%1$L, 1)', 'wait_for_events(%1$L, ''0'')', 'dead_letter_event(%1$L, 1)',
		'redrive_dead_letters(%1$L)']) WITH ORDINALITY c(call, i),
	unnest(ARRAY[NULL, '', repeat('x', 64), repeat('語', 22)]) WITH ORDINALITY n(name, j)
WHERE i = 1 OR j < 3
ORDER BY i, j;
CALL udb.await_events(NULL, '0');
CALL udb.await_events('', '0');
-- the longest that will do
BEGIN;
SELECT udb.create_consumer(repeat('x', 63)) >= 0, udb.create_consumer(repeat('語', 21)) >= 0;
SELECT octet_length(name) FROM udb.consumers WHERE name ~ '^(x*|語*)$';
ROLLBACK;

-- null for the other arguments
SELECT pg_temp.try(format('SELECT udb.%s', call)) FROM unnest(ARRAY['read(''t_input'', NULL)',
	'peek(NULL)', 'peek(0, NULL)', 'checkpoint(''t_input'', NULL)', 'wait_for_events(''t_input'', NULL)',
	'dead_letter_event(''t_input'', NULL)', 'seek_consumer(''t_input'', NULL)',
	'seek_consumer(''t_input'', NULL::bigint)', 'create_consumer(''t_input2'', NULL, NULL)']) call;
CALL udb.await_events('t_input', NULL);

-- an extent that is not positive gives nothing, and there is something
SELECT count(*) FROM udb.read('t_input', 1);
SELECT count(*) FROM udb.read('t_input', 0);
SELECT count(*) FROM udb.read('t_input', -1);
SELECT count(*) FROM udb.read('t_input', -2147483648);
SELECT count(*) FROM udb.read('t_input', 2147483647);
SELECT count(*) FROM udb.peek(:seq - 1, 1);
SELECT count(*) FROM udb.peek(:seq - 1, 0);
SELECT count(*) FROM udb.peek(:seq - 1, -1);

-- positions: below all of them is the beginning, above all of them is an error
SELECT count(*) > 0 FROM udb.peek(-1, 1);
SELECT count(*) > 0 FROM udb.peek(-9223372036854775808, 1);
SELECT pg_temp.try($$SELECT udb.peek(9223372036854775807)$$);
SELECT udb.checkpoint('t_input', -1) = position FROM udb.consumers WHERE name = 't_input';
SELECT udb.checkpoint('t_input', -9223372036854775808) = position FROM udb.consumers WHERE name = 't_input';
SELECT regexp_replace(pg_temp.try($$SELECT udb.checkpoint('t_input', 9223372036854775807)$$), 'horizon [0-9]+', 'horizon N');
SELECT pg_temp.try($$SELECT udb.seek_consumer('t_input', -1)$$);
SELECT pg_temp.try($$SELECT udb.seek_consumer('t_input', -9223372036854775808)$$);
SELECT pg_temp.try($$SELECT udb.seek_consumer('t_input', 9223372036854775807)$$);
SELECT pg_temp.try($$SELECT udb.dead_letter_event('t_input', 0)$$);
SELECT pg_temp.try($$SELECT udb.dead_letter_event('t_input', -1)$$);
SELECT pg_temp.try($$SELECT udb.dead_letter_event('t_input', 9223372036854775807)$$);

-- where to start
SELECT pg_temp.try(format('SELECT udb.create_consumer(''t_input2'', NULL, %L)', start))
FROM unnest(ARRAY['', ' ', 'first', 'EARLIEST', '1.5', '0x10', '1e3', '1 ', '-1', '9223372036854775807',
	'9223372036854775808', '-9223372036854775809']) start;
SELECT pg_temp.try(format('SELECT udb.seek_consumer(''t_input'', %L::text)', start))
FROM unnest(ARRAY['', 'first', '1.5', '-1', '9223372036854775807', '99999999999999999999']) start;
SELECT pg_temp.try($$SELECT udb.create_consumer('t_input')$$);
SELECT pg_temp.try($$SELECT udb.create_consumer('t_input', ARRAY['other'], 'latest')$$);

-- topics to filter by
SELECT pg_temp.try(format('SELECT udb.create_consumer(''t_input2'', %s)', topics)), pg_temp.try(format('SELECT udb.peek(0, 1, %s)', topics))
FROM unnest(ARRAY['''{}''', 'ARRAY[NULL]::text[]', 'ARRAY[''a'', NULL]', 'ARRAY['''']', 'ARRAY[''a'', '''']',
	'ARRAY[repeat(''x'', 256)]']) topics;

-- timeouts
SELECT pg_temp.try(format('SELECT udb.wait_for_events(''t_input'', %L)', timeout))
FROM unnest(ARRAY['-1 microsecond', '-1 day', '-178000000 years', '1 month -31 days', '1100 years', '178000000 years',
	'2147483647 months']) timeout;
CALL udb.await_events('t_input', '-1 second');
CALL udb.await_events('t_input', '1100 years');
-- PostgreSQL 17 has infinite intervals; older ones refuse them by themselves
SELECT CASE WHEN current_setting('server_version_num')::int >= 170000
	THEN pg_temp.try(format('SELECT udb.wait_for_events(''t_input'', %L)', timeout))
	ELSE '22008 argument "timeout" is out of range' END
FROM unnest(ARRAY['infinity', '-infinity']) timeout;

-- kinds of roles
SELECT pg_temp.try($$SELECT udb.grant_role('pg_monitor', 'king')$$);
SELECT pg_temp.try($$SELECT udb.grant_role('pg_monitor', '')$$);
SELECT pg_temp.try($$SELECT udb.grant_role('pg_monitor', NULL)$$);
SELECT pg_temp.try($$SELECT udb.grant_role(NULL, 'producer')$$);
SELECT pg_temp.try($$SELECT udb.grant_role('-', 'producer')$$);
SELECT pg_temp.try($$SELECT udb.grant_role(1, 'producer')$$);
SELECT pg_temp.try($$SELECT udb.grant_role('regress_udb_unknown', 'producer')$$);

-- not as triggers
SELECT pg_temp.try($$SELECT udb.outbox_trigger()$$);

-- after all this
SELECT pg_temp.state() = :'before';
SELECT udb.drop_consumer('t_input');
