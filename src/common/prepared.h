/*-------------------------------------------------------------------------
 *
 * prepared.h
 *	  To be told when a prepared transaction has ended.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_PREPARED_H
#define UDB_PREPARED_H

#include "postgres.h"

/*
 * Call while being preloaded.  The function is called after each COMMIT PREPARED
 * and ROLLBACK PREPARED of this session that has not failed.  Which transaction
 * it was, and what it did, is not known.
 */
extern void udb_on_prepared_end(void (*function)(bool committed));

#endif							/* UDB_PREPARED_H */
