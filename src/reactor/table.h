/*-------------------------------------------------------------------------
 *
 * table.h
 *	  Reading rows of registries, without a plan.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_REACTOR_TABLE_H
#define UDB_REACTOR_TABLE_H

#include "postgres.h"
#include "access/genam.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* A row of udb.registries. */
typedef struct UdbRegistry
{
	int64		watermark;
	int64		last_removal;
	TimestampTz created_at;		/* tells it from a later namesake */
	bool		own;			/* written by this transaction, and not committed yet */
} UdbRegistry;

/* A row of udb.registry_records; what is in it lives until the next one is read. */
typedef struct UdbRecord
{
	const char *key;
	int			keylen;
	Datum		record;			/* jsonb, as it is stored */
} UdbRecord;

/* Several records, in no certain order. */
typedef struct UdbRecordScan
{
	Relation	table;
	SysScanDesc scan;
} UdbRecordScan;

/* A snapshot of what is committed now, whatever that of the transaction; registered. */
extern Snapshot udb_registry_snapshot(void);

/* False if there is no registry of this name. */
extern bool udb_registry_get(const text *name, Snapshot snapshot, UdbRegistry *registry);

/* Raise 42704. */
extern void udb_registry_missing(const text *name);

/*
 * Read records by key, if that is not NULL, or all whose seq is above "since",
 * by that index.
 */
extern void udb_records_begin(UdbRecordScan *scan, const text *registry, const text *key,
							  int64 since, Snapshot snapshot);
extern bool udb_records_next(UdbRecordScan *scan, UdbRecord *record);
extern void udb_records_end(UdbRecordScan *scan);

/* What a consumer has applied of which registry; false if there is no such consumer. */
extern bool udb_registry_consumer_get(const text *consumer, Snapshot snapshot, text **registry,
									  int64 *applied);

#endif							/* UDB_REACTOR_TABLE_H */
