-- The contract of leases, as every store has to keep it.
BEGIN;
SELECT plan(29);

-- fresh
SELECT ok(udb.try_acquire_lease('c', 'a', '1 min'), 'a fresh lease is acquired');
SELECT results_eq($$SELECT owner_id, fencing_token FROM udb.advisory_leases WHERE lease_name = 'c'$$,
	$$VALUES ('a', 1::bigint)$$, 'by its owner, with token 1');
SELECT lives_ok($$SELECT udb.assert_lease('c', 'a', 1)$$, 'which can be asserted');

-- refusal
SELECT ok(NOT udb.try_acquire_lease('c', 'b', '1 min'), 'another owner is refused');
SELECT is(udb.acquire_lease('c', 'b', '1 min'), NULL, 'in both ways');
SELECT is(udb.acquire_lease('c', 'b', '1 min', '20 ms'), NULL, 'and after waiting');
SELECT throws_ok($$SELECT udb.assert_lease('c', 'b', 1)$$, 'UD030', NULL, 'and cannot assert it');

-- refresh
SELECT ok(udb.try_acquire_lease('c', 'a', '2 min'), 'the same owner extends it');
SELECT is((udb.acquire_lease('c', 'a', '2 min')).fencing_token, 1::bigint, 'and keeps its token');
SELECT ok(udb.renew_lease('c', 'a', 1, '3 min'), 'so does renewing it');
SELECT ok((SELECT remaining > '2 min' FROM udb.lease_status WHERE lease_name = 'c'), 'which moves its end');
SELECT ok(NOT udb.renew_lease('c', 'a', 2, '3 min'), 'but not with another token');

-- wrong owner
SELECT ok(NOT udb.release_lease('c', 'b'), 'another owner cannot release it');
SELECT ok(held, 'and changes nothing') FROM udb.lease_status WHERE lease_name = 'c';
SELECT lives_ok($$SELECT udb.assert_lease('c', 'a', 1)$$, 'at all');

-- release, then takeover
SELECT ok(udb.release_lease('c', 'a'), 'its owner releases it');
SELECT ok(udb.release_lease('c', 'a'), 'and may do so again');
SELECT ok(NOT udb.renew_lease('c', 'a', 1, '1 min'), 'a released lease cannot be renewed');
SELECT throws_ok($$SELECT udb.assert_lease('c', 'a', 1)$$, 'UD030', NULL, 'nor asserted');
SELECT is((udb.acquire_lease('c', 'b', '1 min')).fencing_token, 2::bigint, 'the next owner gets the next token');
SELECT ok(NOT udb.release_lease('c', 'a'), 'the last owner can no longer release it');

-- expiry
SELECT ok(udb.try_acquire_lease('z', 'a', '0'), 'a lease can be acquired for no time');
SELECT ok(udb.try_acquire_lease('z', 'b', '10 ms'), 'and is at once takeable');
SELECT is((udb.acquire_lease('z', 'a', '1 min', '30 s')).fencing_token, 3::bigint,
	'who waits gets it when it expires');
SELECT ok(NOT udb.renew_lease('z', 'b', 2, '1 min'), 'and who let it expire has lost it');

-- errors
SELECT throws_ok($$SELECT udb.try_acquire_lease('c', 'b', '-1 s')$$, '22023', NULL, 'a negative ttl is an error');
SELECT throws_ok($$SELECT udb.try_acquire_lease(NULL, 'b', '1 s')$$, '22004', NULL, 'so is no name');
SELECT throws_ok($$SELECT udb.try_acquire_lease('', 'b', '1 s')$$, '42602', NULL, 'and an empty one');
SELECT throws_ok($$SELECT udb.try_acquire_lease('c', '', '1 s')$$, '42602', NULL, 'and an empty owner');

SELECT * FROM finish();
ROLLBACK;
