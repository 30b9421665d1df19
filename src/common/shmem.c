/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  One place that asks for shared memory, for all parts.
 *
 * Durability: nothing here survives a crash or a restart.  Each part must be
 * right when it starts from zeroed memory.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "common/shmem.h"

#define UDB_MAX_AREAS 32

static const UdbShmemArea *areas[UDB_MAX_AREAS];
static int	nareas = 0;

/* the LWLock tranche's id, kept in shared memory so that all agree */
static int *tranche_id = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

void
udb_shmem_register(const UdbShmemArea *area)
{
	if (nareas >= UDB_MAX_AREAS)
		elog(ERROR, "too many shared memory areas");
	areas[nareas++] = area;
}

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(MAXALIGN(sizeof(int)));
	for (int i = 0; i < nareas; i++)
		RequestAddinShmemSpace(CACHELINEALIGN(areas[i]->size()));
}

static void
shmem_startup(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);

	tranche_id = ShmemInitStruct("udb tranche", sizeof(int), &found);
	if (!found)
		*tranche_id = LWLockNewTrancheId();
	LWLockRegisterTranche(*tranche_id, UDB_NAME);

	for (int i = 0; i < nareas; i++)
	{
		void	   *area = ShmemInitStruct(areas[i]->name, areas[i]->size(), &found);

		*areas[i]->pointer = area;
		if (!found)
		{
			memset(area, 0, areas[i]->size());
			if (areas[i]->init)
				areas[i]->init(area);
		}
	}

	LWLockRelease(AddinShmemInitLock);
}

void
udb_shmem_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}

int
udb_lwlock_tranche(void)
{
	return *tranche_id;
}
