/*-------------------------------------------------------------------------
 *
 * udb.h
 *	  Name and version of the extension, and the marks for exported symbols.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_H
#define UDB_H

#include "postgres.h"
#include "fmgr.h"

#define UDB_NAME "udb"
#define UDB_SCHEMA "udb"
/* normally given by the Makefile, which takes it from udb.control */
#ifndef UDB_VERSION
#error "UDB_VERSION is not defined: build with the Makefile"
#endif

/*
 * The library is built with hidden symbols.  On PostgreSQL 15 PGDLLEXPORT is
 * empty and PG_FUNCTION_INFO_V1 does not export the function itself, so SQL
 * callable functions are declared through UDB_FUNCTION.
 */
#define UDB_EXPORT __attribute__((visibility("default")))

#define UDB_FUNCTION(name) \
	UDB_EXPORT Datum name(PG_FUNCTION_ARGS); \
	UDB_EXPORT const Pg_finfo_record *CppConcat(pg_finfo_, name)(void); \
	PG_FUNCTION_INFO_V1(name)

#endif							/* UDB_H */
