/*-------------------------------------------------------------------------
 *
 * check.h
 *	  Checks of arguments that many functions have in common.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_CHECK_H
#define UDB_CHECK_H

#include "postgres.h"

/* Throws 42704 unless the store is NULL, which is this database. */
extern void udb_check_store(const text *store);

/*
 * Throws 22004 if the name is NULL, 42602 if it is empty, and 42622 if it has
 * more than max_bytes; "argument" is what the message calls it.
 */
extern void udb_check_name(const char *argument, const text *name, int max_bytes);

#endif							/* UDB_CHECK_H */
