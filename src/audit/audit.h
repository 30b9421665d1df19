/*-------------------------------------------------------------------------
 *
 * audit.h
 *	  The admin audit log: rows that are chained by their hashes.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_AUDIT_H
#define UDB_AUDIT_H

#include "postgres.h"
#include "lib/stringinfo.h"
#include "utils/jsonb.h"

#include "common/digest.h"

/* columns of udb.admin_audit_log */
#define Anum_audit_id 1
#define Anum_actor 2
#define Anum_operation 3
#define Anum_target 4
#define Anum_request_json 5
#define Anum_result 6
#define Anum_tenant_id 7
#define Anum_project_id 8
#define Anum_correlation_id 9
#define Anum_previous_hash 10
#define Anum_current_hash 11
#define Anum_signer_key_id 12
#define Anum_external_anchor 13
#define Anum_created_at 14
#define Anum_chain_position 15
#define Natts_audit 15

/*
 * The object whose hash is current_hash, in canonical JSON and UTF-8, without
 * what stands between its two parts: the value of previous_hash.
 */
typedef struct UdbAuditText
{
	StringInfoData before;
	StringInfoData after;
} UdbAuditText;

/* Make it of a row's columns, in the current memory context. */
extern void udb_audit_text(UdbAuditText *text, const Datum *values, const bool *nulls);

/* Hash it; hex has UDB_DIGEST_HEX + 1 bytes. */
extern void udb_audit_hash(UdbDigest *digest, const UdbAuditText *text, const char *previous_hash,
						   int previous_len, char *hex);

#endif							/* UDB_AUDIT_H */
