/*-------------------------------------------------------------------------
 *
 * topics.c
 *	  Sets of topics, as filters.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "catalog/pg_type.h"

#include "outbox/append.h"
#include "outbox/topics.h"

static int
compare_text(const text *a, const text *b)
{
	Size		len_a = VARSIZE_ANY_EXHDR(a);
	Size		len_b = VARSIZE_ANY_EXHDR(b);
	int			cmp = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(len_a, len_b));

	if (cmp == 0 && len_a != len_b)
		cmp = len_a < len_b ? -1 : 1;
	return cmp;
}

static int
compare_element(const void *a, const void *b)
{
	return compare_text(*(text *const *) a, *(text *const *) b);
}

UdbTopics *
udb_topics(ArrayType *array)
{
	UdbTopics  *result;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	if (array == NULL)
		return NULL;
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &n);
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"topics\" must not be empty"),
				 errhint("Use NULL for all topics.")));

	result = palloc(offsetof(UdbTopics, topics) + sizeof(text *) * n);
	result->n = n;
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of \"topics\" must not be null", i + 1)));
		udb_append_check_topic(values[i]);
		result->topics[i] = DatumGetTextPP(values[i]);
	}
	qsort(result->topics, n, sizeof(text *), compare_element);
	return result;
}

bool
udb_topics_match(const UdbTopics *topics, Datum topic)
{
	text	   *key = DatumGetTextPP(topic);

	return bsearch(&key, topics->topics, topics->n, sizeof(text *), compare_element) != NULL;
}
