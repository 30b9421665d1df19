/*-------------------------------------------------------------------------
 *
 * topics.h
 *	  Sets of topics, as filters.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#ifndef UDB_OUTBOX_TOPICS_H
#define UDB_OUTBOX_TOPICS_H

#include "postgres.h"
#include "utils/array.h"

typedef struct UdbTopics
{
	int			n;
	text	   *topics[FLEXIBLE_ARRAY_MEMBER];	/* sorted bytewise */
} UdbTopics;

/*
 * A palloc'd set, or NULL, that is all topics, for a NULL array.  Throws if
 * the array is empty or has an element that is no topic.
 */
extern UdbTopics *udb_topics(ArrayType *array);

/* Whether a set has this topic. */
extern bool udb_topics_match(const UdbTopics *topics, Datum topic);

#endif							/* UDB_OUTBOX_TOPICS_H */
