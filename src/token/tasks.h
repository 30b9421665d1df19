/*-------------------------------------------------------------------------
 *
 * tasks.h
 *	  Waiting for projection tasks to end.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_TASKS_H
#define UDB_TOKEN_TASKS_H

#include "postgres.h"
#include "utils/array.h"
#include "utils/uuid.h"

typedef enum UdbTasksState
{
	UDB_TASKS_DONE,
	UDB_TASKS_PENDING,
	UDB_TASKS_MISSING /* some are not there, or have failed */
} UdbTasksState;

/* Call while being preloaded. */
extern void udb_tasks_init(void);

/*
 * Wait until none of the tasks is pending, or the time is over.  "ids" are
 * idempotency keys, or task ids as text.  timeout is in microseconds.  *detail
 * is a sentence about the worst of them unless all are done.
 */
extern UdbTasksState udb_tasks_wait(ArrayType *ids, int64 timeout, char **detail);

/* What udb_tasks_ended() is to be told of a task of this database; never 0. */
extern uint64 udb_tasks_key(const pg_uuid_t *task_id);

/*
 * A task has ended, and that is visible: wake who waits for it; with key 0
 * whoever waits in this database.  Takes no lock, allocates nothing and cannot
 * throw.
 */
extern void udb_tasks_ended(uint64 key);

#endif							/* UDB_TOKEN_TASKS_H */
