/*-------------------------------------------------------------------------
 *
 * outbox.h
 *	  The outbox's entry for _PG_init.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_H
#define UDB_OUTBOX_H

/* Call while being preloaded, after udb_shmem_init. */
extern void udb_outbox_init(void);

#endif							/* UDB_OUTBOX_H */
