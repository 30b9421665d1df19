/*-------------------------------------------------------------------------
 *
 * append.c
 *	  Appending to the audit log.
 *
 * Terms: the witness is a second table, with a row for each of the log's.  It
 * holds what the hash does not cover, and is how a missing end of the log is
 * noticed; its last row is what the next one links to.
 *
 * Locking: one heavyweight lock a database, from before the last row is read
 * until the end of the transaction, so that nobody can link to the same row.
 * A subtransaction that is rolled back gives it back together with its rows; a
 * prepared transaction keeps it, also across a restart.  The last row is read
 * with a new snapshot whatever the isolation level, so that what was committed
 * before the lock was got is seen.
 *
 * Durability: rows are the heap's, and come and go with the transaction.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "audit/audit.h"
#include "common/catalog.h"
#include "common/check.h"
#include "common/compat.h"
#include "common/debugpoint.h"
#include "common/errors.h"
#include "common/locktag.h"
#include "common/uuid.h"

/* columns of udb.admin_audit_witness */
#define Anum_witness_position 1
#define Anum_witness_audit_id 2
#define Anum_witness_created_at 3
#define Anum_witness_hash 4
#define Natts_witness 4

/* bytes */
#define MAX_NAME 255
#define MAX_TEXT 8192
#define MAX_REQUEST (16 * 1024 * 1024)

static UdbRelation audit_log = {"admin_audit_log"};
static UdbRelation audit_log_pkey = {"admin_audit_log_pkey"};
static UdbRelation audit_witness = {"admin_audit_witness"};
static UdbRelation audit_witness_pkey = {"admin_audit_witness_pkey"};

/* Which argument is which column, and what it may be. */
typedef struct Argument
{
	const char *name;
	int			column;
	int			max_bytes;
	bool		required;		/* not null */
	bool		filled;			/* nor empty */
} Argument;

/* as in the SQL function; the store comes after them */
static const Argument arguments[] = {
	{"actor", Anum_actor, MAX_NAME, true, true},
	{"operation", Anum_operation, MAX_NAME, true, true},
	{"target", Anum_target, MAX_TEXT, true, false},
	{"request_json", Anum_request_json, MAX_REQUEST, true, false},
	{"result", Anum_result, MAX_TEXT, true, false},
	{"tenant_id", Anum_tenant_id, MAX_NAME, false, false},
	{"project_id", Anum_project_id, MAX_NAME, false, false},
	{"correlation_id", Anum_correlation_id, MAX_NAME, false, false},
	{"signer_key_id", Anum_signer_key_id, MAX_NAME, false, false},
	{"external_anchor", Anum_external_anchor, MAX_TEXT, false, false}};

#define ARG_STORE lengthof(arguments)

/* Check an argument, and put it into its column. */
static void
take_argument(FunctionCallInfo fcinfo, int argno, Datum *values, bool *nulls)
{
	const Argument *a = &arguments[argno];
	text	   *value;
	Size		len;

	nulls[a->column - 1] = PG_ARGISNULL(argno);
	if (PG_ARGISNULL(argno))
	{
		if (a->required)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not be null", a->name)));
		return;
	}
	/* a jsonb is a varlena too; it is looked into, so it has to be aligned */
	if (a->column == Anum_request_json)
		value = (text *) PG_GETARG_JSONB_P(argno);
	else
		value = PG_GETARG_TEXT_PP(argno);
	if (a->filled)
		udb_check_name(a->name, value, a->max_bytes);
	len = VARSIZE_ANY_EXHDR(value);
	if (len > a->max_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s of %zu bytes is too large", a->name, len),
				 errdetail("The limit is %d bytes.", a->max_bytes)));
	values[a->column - 1] = PointerGetDatum(value);
}

/* The row with the highest position, as of now; false if there is none. */
static bool
last_row(Relation rel, UdbRelation *pkey, TupleTableSlot *slot)
{
	Relation	index = index_open(udb_relation_oid(pkey), AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = udb_index_beginscan(rel, index, snapshot, 0);
	bool		found;

	index_rescan(scan, NULL, 0, NULL, 0);
	found = index_getnext_slot(scan, BackwardScanDirection, slot);
	if (found)
		ExecMaterializeSlot(slot);
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	return found;
}

/* Insert the row in the slot, and its index entries. */
static void
insert_row(Relation rel, TupleTableSlot *slot)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *rri = makeNode(ResultRelInfo);

	InitResultRelInfo(rri, rel, 0, NULL, 0);
	ExecOpenIndices(rri, false);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	udb_insert_index_tuples(rri, slot, estate);
	ExecCloseIndices(rri);
	FreeExecutorState(estate);
}

/* Fill an empty slot of a table with these columns, and insert it. */
static void
insert_values(Relation rel, TupleTableSlot *slot, const Datum *values, const bool *nulls, int natts)
{
	ExecClearTuple(slot);
	Assert(slot->tts_tupleDescriptor->natts == natts);
	memcpy(slot->tts_values, values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, nulls, natts * sizeof(bool));
	ExecStoreVirtualTuple(slot);
	insert_row(rel, slot);
}

/* Link the row to the last one, and store it together with its witness. */
static void
append_row(Datum *values, bool *nulls, const UdbAuditText *content)
{
	Relation	log = table_open(udb_relation_oid(&audit_log), RowExclusiveLock);
	Relation	witness = table_open(udb_relation_oid(&audit_witness), RowExclusiveLock);
	TupleTableSlot *log_slot = table_slot_create(log, NULL);
	TupleTableSlot *witness_slot = table_slot_create(witness, NULL);
	UdbDigest  *digest = udb_digest_create();
	Datum		witness_values[Natts_witness];
	bool		witness_nulls[Natts_witness] = {false};
	char		hash[UDB_DIGEST_HEX + 1];
	struct varlena *previous;
	int64		position = 1;

	if (last_row(witness, &audit_witness_pkey, witness_slot))
	{
		bool		isnull;
		Datum		last = slot_getattr(witness_slot, Anum_witness_position, &isnull);

		position = DatumGetInt64(last) + 1;
		last = slot_getattr(witness_slot, Anum_witness_hash, &isnull);
		previous = PG_DETOAST_DATUM_COPY(last);
	}
	else if (last_row(log, &audit_log_pkey, log_slot))
		ereport(ERROR,
				(errcode(udb_errcode(AUDIT_WITNESS_MISSING)),
				 errmsg("the audit log has rows, but its witness has none"),
				 errhint("Restore udb.admin_audit_witness together with udb.admin_audit_log.")));
	else
		previous = (struct varlena *) cstring_to_text("");

	udb_audit_hash(digest, content, VARDATA_ANY(previous), VARSIZE_ANY_EXHDR(previous), hash);
	udb_digest_free(digest);

	values[Anum_previous_hash - 1] = PointerGetDatum(previous);
	values[Anum_current_hash - 1] = CStringGetTextDatum(hash);
	values[Anum_created_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[Anum_chain_position - 1] = Int64GetDatum(position);
	insert_values(log, log_slot, values, nulls, Natts_audit);

	witness_values[Anum_witness_position - 1] = values[Anum_chain_position - 1];
	witness_values[Anum_witness_audit_id - 1] = values[Anum_audit_id - 1];
	witness_values[Anum_witness_created_at - 1] = values[Anum_created_at - 1];
	witness_values[Anum_witness_hash - 1] = values[Anum_current_hash - 1];
	insert_values(witness, witness_slot, witness_values, witness_nulls, Natts_witness);

	ExecDropSingleTupleTableSlot(log_slot);
	ExecDropSingleTupleTableSlot(witness_slot);
	table_close(log, NoLock);
	table_close(witness, NoLock);

	/* the next one in the same command shall find it */
	CommandCounterIncrement();
}

UDB_FUNCTION(udb_append_admin_audit);

/*
 * append_admin_audit(actor, operation, target, request_json, result, tenant_id,
 * project_id, correlation_id, signer_key_id, external_anchor, store) returns uuid
 */
Datum
udb_append_admin_audit(PG_FUNCTION_ARGS)
{
	LOCKTAG		tag = udb_locktag(UDB_LOCK_AUDIT, 0);
	Datum		values[Natts_audit] = {0};
	bool		nulls[Natts_audit] = {false};
	pg_uuid_t  *audit_id = palloc(sizeof(pg_uuid_t));
	UdbAuditText content;

	udb_check_store(PG_ARGISNULL(ARG_STORE) ? NULL : PG_GETARG_TEXT_PP(ARG_STORE));
	for (int i = 0; i < lengthof(arguments); i++)
		take_argument(fcinfo, i, values, nulls);
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute append_admin_audit() during recovery"),
				 errhint("Connect to the primary.")));
	PreventCommandIfReadOnly("append_admin_audit()");
	PreventCommandIfParallelMode("append_admin_audit()");

	/* all that does not need the lock comes before it */
	udb_audit_text(&content, values, nulls);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	UDB_DEBUG_POINT("audit-locked");

	/* not earlier, so that ids rise with positions */
	udb_uuid_v7(audit_id);
	values[Anum_audit_id - 1] = UUIDPGetDatum(audit_id);
	append_row(values, nulls, &content);
	PG_RETURN_UUID_P(audit_id);
}
