/*-------------------------------------------------------------------------
 *
 * spi.h
 *	  Running udb's own SQL as its owner with a pinned search_path.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_SPI_H
#define UDB_SPI_H

#include "postgres.h"
#include "executor/spi.h"

typedef struct UdbSpi
{
	Oid			userid;			/* what to go back to */
	int			sec_context;
	int			guc_level;
} UdbSpi;

/*
 * Connect, become the owner of the extension and pin search_path.  On error all
 * three are undone by transaction or subtransaction abort.
 */
extern void udb_spi_begin(UdbSpi *spi);
extern void udb_spi_end(UdbSpi *spi);

/*
 * Run sql with a plan that is kept for the session in *plan (initially NULL).
 * nulls may be NULL.  Throws unless the SPI result is "expected".  Returns
 * SPI_processed; rows are in SPI_tuptable until udb_spi_end.
 */
extern uint64 udb_spi_execute(SPIPlanPtr *plan, const char *sql, int nargs,
							  const Oid *types, Datum *values, const char *nulls,
							  int expected);

/*
 * Run a utility statement as a part of the command that is under way, so that
 * it fires no event triggers: those are for what users do, and one that
 * enqueues would need what is being made for it.
 */
extern void udb_spi_subcommand(const char *sql);

#endif							/* UDB_SPI_H */
