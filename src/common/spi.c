/*-------------------------------------------------------------------------
 *
 * spi.c
 *	  Running udb's own SQL as its owner with a pinned search_path.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "common/catalog.h"
#include "common/spi.h"

void
udb_spi_begin(UdbSpi *spi)
{
	GetUserIdAndSecContext(&spi->userid, &spi->sec_context);
	SetUserIdAndSecContext(udb_owner(),
						   spi->sec_context | SECURITY_LOCAL_USERID_CHANGE);
	spi->guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

void
udb_spi_end(UdbSpi *spi)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	AtEOXact_GUC(false, spi->guc_level);
	SetUserIdAndSecContext(spi->userid, spi->sec_context);
}

uint64
udb_spi_execute(SPIPlanPtr *plan, const char *sql, int nargs, const Oid *types,
				Datum *values, const char *nulls, int expected)
{
	int			rc;

	if (*plan == NULL)
	{
		SPIPlanPtr	fresh = SPI_prepare(sql, nargs, unconstify(Oid *, types));

		if (fresh == NULL)
			elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
		if (SPI_keepplan(fresh) != 0)
			elog(ERROR, "SPI_keepplan failed");
		*plan = fresh;
	}
	rc = SPI_execute_plan(*plan, values, nulls, false, 0);
	if (rc != expected)
		elog(ERROR, "unexpected SPI result: %s", SPI_result_code_string(rc));
	return SPI_processed;
}

void
udb_spi_subcommand(const char *sql)
{
	RawStmt	   *raw = linitial_node(RawStmt, raw_parser(sql, RAW_PARSE_DEFAULT));
	PlannedStmt *stmt = makeNode(PlannedStmt);

	stmt->commandType = CMD_UTILITY;
	stmt->utilityStmt = raw->stmt;
	stmt->stmt_location = raw->stmt_location;
	stmt->stmt_len = raw->stmt_len;

	PushActiveSnapshot(GetTransactionSnapshot());
	ProcessUtility(stmt, sql, false, PROCESS_UTILITY_SUBCOMMAND, NULL, NULL, None_Receiver, NULL);
	PopActiveSnapshot();
	CommandCounterIncrement();
}
