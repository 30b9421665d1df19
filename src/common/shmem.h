/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  One place that asks for shared memory, for all parts.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_SHMEM_H
#define UDB_SHMEM_H

#include "postgres.h"
#include "storage/lwlock.h"

/*
 * A part's area.  size() is called when all settings have their values.
 * init() runs at postmaster start, and again after a crash, with the area
 * zeroed; it may be NULL.
 */
typedef struct UdbShmemArea
{
	const char *name;
	Size		(*size) (void);
	void		(*init) (void *area);
	void	  **pointer;		/* set to the area's address */
} UdbShmemArea;

/* Call while being preloaded.  The struct must live for ever. */
extern void udb_shmem_register(const UdbShmemArea *area);

extern void udb_shmem_init(void);

/* The tranche of all LWLocks that live in udb's areas. */
extern int	udb_lwlock_tranche(void);

#endif							/* UDB_SHMEM_H */
