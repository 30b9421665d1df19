/*-------------------------------------------------------------------------
 *
 * replay.h
 *	  Being told by the startup process what it has applied.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_TOKEN_REPLAY_H
#define UDB_TOKEN_REPLAY_H

#include "postgres.h"

/*
 * Wrap the resource managers, unless udb.replay_hook is off.  To be called in
 * the postmaster when all libraries have been loaded; again does no harm.
 * Returns whether they are wrapped.
 */
extern bool udb_replay_install(void);

#endif							/* UDB_TOKEN_REPLAY_H */
