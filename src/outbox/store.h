/*-------------------------------------------------------------------------
 *
 * store.h
 *	  Storing events: the open segment, its table and its indexes.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_STORE_H
#define UDB_OUTBOX_STORE_H

#include "postgres.h"
#include "utils/uuid.h"

#include "outbox/state.h"

/* An event to append; the pointers must stay valid during the call only. */
typedef struct UdbEventInput
{
	Datum		topic;			/* text, checked by udb_append_check_topic */
	Datum		partition_key;	/* text */
	Datum		payload;		/* jsonb */
	Datum		headers;		/* jsonb */
	bool		headers_null;
	const pg_uuid_t *event_id;	/* NULL: make one */
} UdbEventInput;

/* To be called once in each call of a function, before it takes positions. */
extern void udb_store_begin(UdbOutbox *outbox);

/*
 * Store an event under this id at a position that the transaction has taken.
 * May wait for the segment to be created.
 */
extern void udb_store_event(UdbOutbox *outbox, const UdbEventInput *event,
							const pg_uuid_t *event_id, uint64 position);

/*
 * Store events[0..n-1], none with a given event_id, at consecutive positions
 * from "first" on, as far as they are in the same segment and not too many.
 * Returns how many.
 */
extern int	udb_store_batch(UdbOutbox *outbox, const UdbEventInput *events, int n, uint64 first);

/*
 * End of transaction.  close runs before commit or prepare and releases what
 * is held open; forget runs after abort, which does that itself; subabort after
 * that of a subtransaction.
 */
extern void udb_store_close(void);
extern void udb_store_forget(void);
extern void udb_store_subabort(void);

#endif							/* UDB_OUTBOX_STORE_H */
