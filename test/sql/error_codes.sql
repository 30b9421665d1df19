-- applications branch on these: a code is never renumbered and never reused
SELECT * FROM udb.error_codes ORDER BY sqlstate;

-- all of class UD, each once
SELECT count(*) = count(DISTINCT sqlstate) AND count(*) = count(DISTINCT condition_name) AS distinct_codes,
	bool_and(sqlstate ~ '^UD[0-9]{3}$') AS all_of_class_ud
FROM udb.error_codes;

-- anybody may look them up
CREATE ROLE regress_udb_nobody;
SET ROLE regress_udb_nobody;
SELECT condition_name FROM udb.error_codes WHERE sqlstate = 'UD001';
RESET ROLE;
DROP ROLE regress_udb_nobody;
