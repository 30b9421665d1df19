/*-------------------------------------------------------------------------
 *
 * registry.h
 *	  Limits of registries.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_REACTOR_REGISTRY_H
#define UDB_REACTOR_REGISTRY_H

/* bytes; the tables have the same in their constraints */
#define UDB_REGISTRY_NAME_MAX 255
#define UDB_REGISTRY_KEY_MAX 1024
#define UDB_REGISTRY_CONSUMER_MAX 255

#endif							/* UDB_REACTOR_REGISTRY_H */
