/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  OIDs of the extension's own relations, cached for the session.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_CATALOG_H
#define UDB_CATALOG_H

#include "postgres.h"

/* A relation of schema udb; make it static, and set only the name. */
typedef struct UdbRelation
{
	const char *name;
	Oid			oid;			/* InvalidOid: look it up */
	struct UdbRelation *next;	/* list of all that have been looked up */
	bool		listed;
} UdbRelation;

/*
 * The relation's OID.  Throws undefined_table when it does not exist, which
 * happens only if the library runs in a database without the extension.
 */
extern Oid	udb_relation_oid(UdbRelation *relation);

/* The owner of the extension's objects, as whom udb writes its own tables. */
extern Oid	udb_owner(void);

#endif							/* UDB_CATALOG_H */
