/*-------------------------------------------------------------------------
 *
 * append.h
 *	  Appending events to the outbox.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_APPEND_H
#define UDB_OUTBOX_APPEND_H

#include "postgres.h"
#include "utils/uuid.h"

#include "outbox/state.h"
#include "outbox/store.h"

/*
 * Append an event in the current transaction and return its position, or the
 * position of the same event if it is there already.  Waits for a transaction
 * in progress that has appended the same event_id.  Throws UD001, and
 * invalid_parameter_value for what the checks below refuse.
 */
extern int64 udb_append(const UdbEventInput *event);

/*
 * The same for n events, in order; positions receives n bigints.  The caller
 * has called udb_append_begin.
 */
extern void udb_append_many(UdbOutbox *outbox, const UdbEventInput *events, int n,
							Datum *positions);

/*
 * This database's outbox, for a function of this name that takes positions.
 * Throws read_only_sql_transaction where the transaction cannot write.
 */
extern UdbOutbox *udb_append_begin(const char *function);

/* Register with the horizon and take n positions; returns the first. */
extern uint64 udb_append_positions(UdbOutbox *outbox, uint64 n);

/* Throw unless these are fit for an event. */
extern void udb_append_check_topic(Datum topic);
extern void udb_append_check_key(Datum partition_key);
extern void udb_append_check_payload(Datum payload);

#endif							/* UDB_OUTBOX_APPEND_H */
