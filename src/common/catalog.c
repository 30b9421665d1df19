/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  OIDs of the extension's own relations, cached for the session.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "common/catalog.h"

static UdbRelation *known = NULL;

/* A relation that is dropped, or recreated by DROP and CREATE EXTENSION */
static void
forget_relation(Datum arg, Oid relid)
{
	for (UdbRelation *r = known; r != NULL; r = r->next)
		if (!OidIsValid(relid) || r->oid == relid)
			r->oid = InvalidOid;
}

Oid
udb_relation_oid(UdbRelation *relation)
{
	static bool registered = false;

	if (likely(OidIsValid(relation->oid)))
		return relation->oid;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget_relation, (Datum) 0);
		registered = true;
	}
	if (!relation->listed)
	{
		relation->next = known;
		relation->listed = true;
		known = relation;
	}
	relation->oid = get_relname_relid(relation->name, get_namespace_oid(UDB_SCHEMA, false));
	if (!OidIsValid(relation->oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s.%s\" does not exist", UDB_SCHEMA, relation->name),
				 errhint("Run CREATE EXTENSION udb in this database.")));
	return relation->oid;
}

Oid
udb_owner(void)
{
	/* a table, as the schema may have been there before the extension */
	static UdbRelation witness = {"error_codes"};
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(udb_relation_oid(&witness)));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", witness.oid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}
