/*-------------------------------------------------------------------------
 *
 * prepared.c
 *	  To be told when a prepared transaction has ended.
 *
 * COMMIT PREPARED and ROLLBACK PREPARED end a transaction without its callbacks,
 * in a session that knows nothing of it.  One hook serves all parts that have to
 * wake somebody then.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "common/prepared.h"

#define MAX_FUNCTIONS 8

static void (*functions[MAX_FUNCTIONS])(bool committed);
static int	nfunctions = 0;

static ProcessUtility_hook_type prev_process_utility = NULL;

static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	bool		committed = false;
	bool		rolled_back = false;

	/* the statement is gone afterwards */
	if (IsA(pstmt->utilityStmt, TransactionStmt))
	{
		TransactionStmtKind kind = ((TransactionStmt *) pstmt->utilityStmt)->kind;

		committed = kind == TRANS_STMT_COMMIT_PREPARED;
		rolled_back = kind == TRANS_STMT_ROLLBACK_PREPARED;
	}

	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);

	if (committed || rolled_back)
		for (int i = 0; i < nfunctions; i++)
			functions[i](committed);
}

void
udb_on_prepared_end(void (*function)(bool committed))
{
	if (nfunctions >= MAX_FUNCTIONS)
		elog(ERROR, "too many functions wait for prepared transactions");
	if (nfunctions == 0)
	{
		prev_process_utility = ProcessUtility_hook;
		ProcessUtility_hook = process_utility;
	}
	functions[nfunctions++] = function;
}
