-- Time goes by.
CREATE FUNCTION clock_elapse(interval) RETURNS void LANGUAGE c STRICT
	AS 'MODULE_PATHNAME', 'test_clock_elapse';
-- Somebody sets the system's clock, forth or back.
CREATE FUNCTION clock_step(interval) RETURNS void LANGUAGE c STRICT
	AS 'MODULE_PATHNAME', 'test_clock_step';
