/*-------------------------------------------------------------------------
 *
 * index.c
 *	  Entering many events into a B-tree index at once.
 *
 * Positions, and the ids that are made here, rise, so nearly every entry of a
 * batch goes to the end of the rightmost leaf page.  nbtree finds that page,
 * locks it, searches it and logs the change once for each entry, which is most
 * of what an event costs.  Here it is done once for all that fit on the page.
 *
 * A page is added to only if it is what nbtree's own cache of the insertion
 * target would accept (see _bt_search_insert() in nbtinsert.c): the rightmost
 * leaf, not being deleted, with room.  The first new key has to be greater
 * than the last one there and so, on the rightmost page, than all keys of the
 * index: a unique index needs no further check while the page is locked.
 * Whatever does not fit this, above all splits, is left to nbtree.
 *
 * Durability: the whole page is logged.  That is less than a record for each
 * entry if there are many, and needs no redo of our own.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "access/itup.h"
#include "access/nbtree.h"
#include "access/xloginsert.h"
#include "catalog/pg_am.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/predicate.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "outbox/index.h"

/* It is not worth looking for the page with fewer. */
#define MIN_ENTRIES 8

/* What nbtree's log record of an entry has besides the entry, about. */
#define RECORD_OVERHEAD 48

bool
udb_index_can_append(Relation index)
{
	Form_pg_index form = index->rd_index;
	TypeCacheEntry *type;

	if (index->rd_rel->relam != BTREE_AM_OID || form->indnatts != 1 || form->indnkeyatts != 1 ||
		index->rd_indoption[0] != 0)
		return false;
	type = lookup_type_cache(index->rd_opcintype[0], TYPECACHE_BTREE_OPFAMILY);
	return index->rd_opfamily[0] == type->btree_opf;
}

/* The block that is probably the rightmost leaf; the caller has to look. */
static BlockNumber
probable_target(Relation index)
{
	BlockNumber block = RelationGetTargetBlock(index);

	if (block != InvalidBlockNumber)
		return block;

	/* nbtree forgets its target at a split, which adds the new page at the end */
	block = RelationGetNumberOfBlocks(index);
	return block > 1 ? block - 1 : InvalidBlockNumber;
}

/* Whether an entry can follow all that the index holds, if this is its page. */
static bool
is_the_end(Relation index, Buffer buffer, IndexTuple first)
{
	Page		page = BufferGetPage(buffer);
	BTPageOpaque opaque;
	BTScanInsert key;

	if (PageIsNew(page))
		return false;
	_bt_checkpage(index, buffer);
	opaque = BTPageGetOpaque(page);
	if (!P_RIGHTMOST(opaque) || !P_ISLEAF(opaque) || P_IGNORE(opaque) ||
		PageGetMaxOffsetNumber(page) < P_FIRSTDATAKEY(opaque))
		return false;

	/* without the TID, an equal key compares as equal */
	key = _bt_mkscankey(index, first);
	key->scantid = NULL;
	return _bt_compare(index, key, page, PageGetMaxOffsetNumber(page)) > 0;
}

/* How many entries of this size to append to a page that has room for some. */
static int
how_many(Page page, Size size, int n)
{
	Size		room = PageGetExactFreeSpace(page);
	int			fit = Min(n, (int) (room / (size + sizeof(ItemIdData))));
	Size		image = BLCKSZ - room + fit * (size + sizeof(ItemIdData));

	/*
	 * Few entries on a full page are better logged one by one, unless that
	 * page gets full with them and is done.
	 */
	if (fit == n && fit * (size + RECORD_OVERHEAD) < image / 2)
		return 0;
	return fit;
}

int
udb_index_append_right(Relation index, int n, const Datum *keys, const ItemPointerData *tids)
{
	BlockNumber block = probable_target(index);
	IndexTuple	entries[MaxIndexTuplesPerPage];
	Size		size;
	Buffer		buffer;
	Page		page;
	int			fit = 0;

	if (block == InvalidBlockNumber || n < MIN_ENTRIES)
		return 0;

	/* before the page is locked; all have the size of the first */
	n = Min(n, (int) lengthof(entries));
	for (int i = 0; i < n; i++)
	{
		bool		isnull = false;
		Datum		key = keys[i];

		entries[i] = index_form_tuple(RelationGetDescr(index), &key, &isnull);
		entries[i]->t_tid = tids[i];
	}
	size = MAXALIGN(IndexTupleSize(entries[0]));

	buffer = ReadBuffer(index, block);
	if (!ConditionalLockBuffer(buffer))
	{
		ReleaseBuffer(buffer);
		return 0;
	}
	page = BufferGetPage(buffer);
	if (is_the_end(index, buffer, entries[0]))
		fit = how_many(page, size, n);
	if (fit > 0)
	{
		CheckForSerializableConflictIn(index, NULL, block);

		START_CRIT_SECTION();
		for (int i = 0; i < fit; i++)
			if (PageAddItem(page, (Item) entries[i], size,
							OffsetNumberNext(PageGetMaxOffsetNumber(page)),
							false, false) == InvalidOffsetNumber)
				elog(PANIC, "could not add to block %u of index \"%s\"",
					 block, RelationGetRelationName(index));
		MarkBufferDirty(buffer);
		if (RelationNeedsWAL(index))
			(void) log_newpage_buffer(buffer, true);
		END_CRIT_SECTION();
	}
	UnlockReleaseBuffer(buffer);
	return fit;
}
