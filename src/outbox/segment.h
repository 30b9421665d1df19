/*-------------------------------------------------------------------------
 *
 * segment.h
 *	  Segments: the partitions of udb.outbox_events.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_SEGMENT_H
#define UDB_OUTBOX_SEGMENT_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "outbox/state.h"

/* columns of udb.outbox_events, and of the type udb.event */
#define Anum_event_seq 1
#define Anum_event_id 2
#define Anum_topic 3
#define Anum_partition_key 4
#define Anum_payload 5
#define Anum_headers 6
#define Anum_created_at 7
#define Natts_event 7

typedef struct UdbSegment
{
	Oid			relid;
	uint64		first;			/* first position it holds */
	uint64		end;			/* first position it no longer holds */
	bool		newest;			/* no segment follows */
} UdbSegment;

/* All segments by position; *segments is palloc'd.  Returns their number. */
extern int	udb_segments(UdbSegment **segments);

/*
 * The same for who goes by the horizon: has every segment that holds a
 * committed event in (after, upto].
 */
extern int	udb_segments_between(uint64 after, uint64 upto, UdbSegment **segments);

/* The segment of a position, or false. */
extern bool udb_segment_find(uint64 position, UdbSegment *segment);

/*
 * The segment of a position; has the worker make it if it is missing, or makes
 * it in this transaction if there is no worker.
 */
extern void udb_segment_need(UdbOutbox *outbox, uint64 position, UdbSegment *segment);

/*
 * Open a segment, or return NULL when it has been dropped meanwhile.  Close it
 * with table_close.
 */
extern Relation udb_segment_open(Oid relid, LOCKMODE lockmode);

/*
 * Throw unless the columns of an event are where and what they should be; with
 * "exact", which is for inserts, unless there are no others either.
 */
extern void udb_segment_check(Relation segment, bool exact);

/* OID of the segment's unique, rising index over this one column; throws if none. */
extern Oid	udb_segment_index(Relation segment, AttrNumber attno);

/* Position and time of the last event that the snapshot sees; false if none. */
extern bool udb_segment_last_event(Relation rel, Snapshot snapshot, int64 *position,
								   TimestampTz *created_at);

/*
 * Create what is asked for and, when the newest segment is half full, the one
 * after it.  Returns the number created.  Runs in a transaction of its own.
 */
extern int	udb_segments_create_ahead(UdbOutbox *outbox);

/* Tell waiting sessions, after the commit of the above. */
extern void udb_segments_created(UdbOutbox *outbox);

/*
 * The position from which on the next segment should be asked for, beyond the
 * end if there is one already; and asking for it.
 */
extern uint64 udb_segment_alarm(const UdbSegment *segment);
extern void udb_segment_ask(UdbOutbox *outbox, uint64 position);

#endif							/* UDB_OUTBOX_SEGMENT_H */
