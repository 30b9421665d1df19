/*-------------------------------------------------------------------------
 *
 * reactor.h
 *	  Registries and announcements: the entry for _PG_init.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_REACTOR_H
#define UDB_REACTOR_H

/* Call while being preloaded. */
extern void udb_reactor_init(void);

#endif							/* UDB_REACTOR_H */
