/*-------------------------------------------------------------------------
 *
 * inval.h
 *	  How sessions learn that a registry has changed.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_REACTOR_INVAL_H
#define UDB_REACTOR_INVAL_H

#include "postgres.h"

/*
 * Changes whenever some registry may have changed since it was read before.
 * What was true at a generation is true as long as this is the generation.
 */
extern uint64 udb_registry_generation;

/* Changes when nothing that was remembered may be used any more. */
extern uint64 udb_registry_resets;

extern void udb_registry_inval_init(void);

/*
 * Listen.  Call before anything is read that is to be remembered, and take the
 * two numbers after that and before reading.
 */
extern void udb_registry_listen(void);

/*
 * This transaction has changed a registry through the functions: once it has
 * committed, others compare watermarks.
 */
extern void udb_registry_changed(void);

/* This transaction has written the tables by other means: all forget all. */
extern void udb_registry_reset(void);

#endif							/* UDB_REACTOR_INVAL_H */
