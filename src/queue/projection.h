/*-------------------------------------------------------------------------
 *
 * projection.h
 *	  Projection tasks: who claims what, and who is told of their end.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_QUEUE_PROJECTION_H
#define UDB_QUEUE_PROJECTION_H

/* Call while being preloaded. */
extern void udb_projection_init(void);

#endif							/* UDB_QUEUE_PROJECTION_H */
