/*-------------------------------------------------------------------------
 *
 * fence_client.c
 *	  Write on a primary, fence and read on a standby, many times.
 *
 *	udb_fence_client rounds MODE ROUNDS KEY PRIMARY STANDBY
 *	udb_fence_client tokens CONNINFO
 *	udb_fence_client inserts BLOCKS ROWS CONNINFO
 *	udb_fence_client wire CONNINFO QUERY...
 *	udb_fence_client pipeline CONNINFO
 *	udb_fence_client params CONNINFO QUERY [VALUE...]
 *
 * rounds prints "MODE rounds=N stale=N queries=N p50=US p95=US p99=US", where
 * the times are from the commit's answer until the read's, in microseconds, and
 * queries is how many it took on the standby for each round.  Modes:
 *
 *	set		SET udb.fence and the read in one message
 *	call	CALL udb.wait_for, then the read
 *	func	SELECT udb.wait_for_token, again while its snapshot is in the way, then
 *			the read
 *	busy	ask for the replay position without pause
 *	poll1, poll2, poll10	the same, with a pause of so many milliseconds
 *	server10	a procedure on the server that looks every 10 ms
 *	none	no fence at all, to see that the read is able to be stale
 *
 * inserts makes single-row inserts in one session, in blocks by turns with and
 * without udb.report_token, and prints for each pair of blocks the microseconds
 * a commit takes, with and without, then those that its backend is on a CPU, and
 * then those of this client.
 *
 * wire runs each query, and prints what the protocol's messages were, after a
 * line that is the query.
 *
 * pipeline sends five inserts, the third of which fails, in one pipeline with a
 * synchronization point after each, and prints the token after each of these.
 *
 * params runs a query with parameters.
 *
 * tokens opens two connections, lets both insert by turns, and prints for each
 * commit what PQparameterStatus() of both connections says.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libpq-fe.h"

static long queries = 0;

static void
die(PGconn *conn, const char *what)
{
	fprintf(stderr, "%s: %s", what, PQerrorMessage(conn));
	exit(1);
}

static PGconn *
connect_to(const char *conninfo)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		die(conn, "could not connect");
	return conn;
}

/*
 * Run a query and return the first field of its last result, or NULL if it
 * failed with "tolerated", an SQLSTATE.
 */
static const char *
query_tolerant(PGconn *conn, const char *sql, const char *tolerated)
{
	static char value[256];
	PGresult   *res = PQexec(conn, sql);
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	queries++;
	if (tolerated != NULL && sqlstate != NULL && strcmp(sqlstate, tolerated) == 0)
	{
		PQclear(res);
		return NULL;
	}
	if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
		die(conn, sql);
	value[0] = '\0';
	if (PQntuples(res) > 0)
		snprintf(value, sizeof(value), "%s", PQgetvalue(res, 0, 0));
	PQclear(res);
	return value;
}

static const char *
query(PGconn *conn, const char *sql)
{
	return query_tolerant(conn, sql, NULL);
}

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static const char *
last_token(PGconn *conn)
{
	const char *token = PQparameterStatus(conn, "udb.last_token");

	if (token == NULL || *token == '\0')
	{
		fprintf(stderr, "no token was reported\n");
		exit(1);
	}
	return token;
}

/* The position in a token, which is its fifth part. */
static uint64_t
token_lsn(const char *token)
{
	for (int dots = 0; dots < 4; token++)
		if (*token == '.')
			dots++;
	return strtoull(token, NULL, 16);
}

static void
poll_position(PGconn *standby, uint64_t lsn, int pause_ms)
{
	for (;;)
	{
		unsigned	hi;
		unsigned	lo;

		if (sscanf(query(standby, "SELECT pg_last_wal_replay_lsn()"), "%X/%X", &hi, &lo) == 2 &&
			(((uint64_t) hi << 32) | lo) >= lsn)
			return;
		if (pause_ms > 0)
			usleep(pause_ms * 1000);
	}
}

/* Fence by the mode's means and read; returns what was read. */
static long
fenced_read(PGconn *standby, const char *mode, const char *token, long key)
{
	char		sql[512];
	char		read[128];
	uint64_t	lsn = token_lsn(token);

	snprintf(read, sizeof(read), "SELECT v FROM fence_rounds WHERE k = %ld", key);
	if (strcmp(mode, "set") == 0)
	{
		snprintf(sql, sizeof(sql), "SET udb.fence = '%s'; %s", token, read);
		return atol(query(standby, sql));
	}
	if (strcmp(mode, "call") == 0)
	{
		snprintf(sql, sizeof(sql), "CALL udb.wait_for('%s')", token);
		(void) query(standby, sql);
	}
	else if (strcmp(mode, "func") == 0)
	{
		const char *reached;

		/* an update prunes what the function's own snapshot could see */
		snprintf(sql, sizeof(sql), "SELECT udb.wait_for_token('%s')", token);
		while ((reached = query_tolerant(standby, sql, "UD027")) == NULL)
			;
		if (strcmp(reached, "t") != 0)
			return -1;
	}
	else if (strcmp(mode, "server10") == 0)
	{
		snprintf(sql, sizeof(sql), "CALL poll_replay('%X/%X')", (unsigned) (lsn >> 32),
				 (unsigned) lsn);
		(void) query(standby, sql);
	}
	else if (strcmp(mode, "busy") == 0)
		poll_position(standby, lsn, 0);
	else if (strncmp(mode, "poll", 4) == 0)
		poll_position(standby, lsn, atoi(mode + 4));
	else if (strcmp(mode, "none") != 0)
	{
		fprintf(stderr, "unknown mode \"%s\"\n", mode);
		exit(2);
	}
	return atol(query(standby, read));
}

static int
compare(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return x < y ? -1 : x > y;
}

static void
rounds(const char *mode, long n, long key, const char *primary_info, const char *standby_info)
{
	PGconn	   *primary = connect_to(primary_info);
	PGconn	   *standby = connect_to(standby_info);
	int64_t	   *times = malloc(sizeof(int64_t) * n);
	long		stale = 0;
	long		count = 0;

	(void) query(primary, "SET udb.report_token = on");
	for (long i = 1; i <= n; i++)
	{
		char		sql[128];
		int64_t		start;

		snprintf(sql, sizeof(sql), "UPDATE fence_rounds SET v = %ld WHERE k = %ld", i, key);
		(void) query(primary, sql);
		queries = 0;
		start = now_us();
		if (fenced_read(standby, mode, last_token(primary), key) != i)
			stale++;
		times[i - 1] = now_us() - start;
		count += queries;
	}
	qsort(times, n, sizeof(int64_t), compare);
	printf("%s rounds=%ld stale=%ld queries=%.1f p50=%" PRId64 " p95=%" PRId64 " p99=%" PRId64 "\n",
		   mode, n, stale, (double) count / n, times[n / 2], times[n * 95 / 100],
		   times[n * 99 / 100]);
	free(times);
	PQfinish(primary);
	PQfinish(standby);
}

static void
tokens(const char *conninfo)
{
	PGconn	   *conns[2] = {connect_to(conninfo), connect_to(conninfo)};

	for (int i = 0; i < 6; i++)
	{
		PGconn	   *conn = conns[i % 2];

		(void) query(conn, "BEGIN; SET LOCAL udb.report_token = on; "
						   "INSERT INTO fence_tokens DEFAULT VALUES; COMMIT");
		printf("commit %d", i % 2);
		for (int j = 0; j < 2; j++)
		{
			const char *token = PQparameterStatus(conns[j], "udb.last_token");

			printf(" %s", token && *token ? token : "-");
		}
		printf("\n");
	}
	/* what SHOW says is of whoever has used the server connection last */
	printf("show %s\n", query(conns[0], "SHOW udb.last_token"));
	PQfinish(conns[0]);
	PQfinish(conns[1]);
}

static void
wire(const char *conninfo, char **sql)
{
	PGconn	   *conn = connect_to(conninfo);

	for (; *sql != NULL; sql++)
	{
		printf("query %s\n", *sql);
		PQtrace(conn, stdout);
		PQsetTraceFlags(conn, PQTRACE_SUPPRESS_TIMESTAMPS);
		PQclear(PQexec(conn, *sql));
		PQuntrace(conn);
	}
	PQfinish(conn);
}

static void
pipeline(const char *conninfo)
{
	PGconn	   *conn = connect_to(conninfo);
	int			syncs = 0;

	(void) query(conn, "SET udb.report_token = on");
	PQenterPipelineMode(conn);
	for (int i = 1; i <= 5; i++)
	{
		const char *sql = i == 3 ? "INSERT INTO fence_tokens VALUES (1/0)" :
								   "INSERT INTO fence_tokens DEFAULT VALUES";

		if (!PQsendQueryParams(conn, sql, 0, NULL, NULL, NULL, NULL, 0) || !PQpipelineSync(conn))
			die(conn, "pipeline");
	}
	while (syncs < 5)
	{
		PGresult   *res = PQgetResult(conn);

		if (PQresultStatus(res) == PGRES_PIPELINE_SYNC)
		{
			const char *token = PQparameterStatus(conn, "udb.last_token");

			syncs++;
			printf("sync %s\n", token && *token ? token : "-");
		}
		PQclear(res);
	}
	PQfinish(conn);
}

static void
params(const char *conninfo, const char *sql, int n, const char *const *values)
{
	PGconn	   *conn = connect_to(conninfo);
	PGresult   *res = PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0);

	if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
		die(conn, sql);
	if (PQntuples(res) > 0)
		printf("%s\n", PQgetvalue(res, 0, 0));
	PQclear(res);
	PQfinish(conn);
}

/* Microseconds that a process has been on a CPU. */
static double
cpu_us(int pid)
{
	char		path[64];
	FILE	   *f;
	unsigned long long ns;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	if ((f = fopen(path, "r")) == NULL || fscanf(f, "%llu", &ns) != 1)
	{
		fprintf(stderr, "could not read %s\n", path);
		exit(1);
	}
	fclose(f);
	return ns / 1000.0;
}

static void
inserts(int blocks, int rows, const char *conninfo)
{
	PGconn	   *conn = connect_to(conninfo);
	int			pid = PQbackendPID(conn);

	PQclear(PQprepare(conn, "i", "INSERT INTO one_row VALUES (1)", 0, NULL));
	/* the first pair warms up; which one of a pair is first changes */
	for (int i = -1; i < blocks; i++)
	{
		double		wall[2];
		double		server[2];
		double		client[2];

		for (int j = 0; j < 2; j++)
		{
			int			on = (i ^ j) & 1;

			(void) query(conn, on ? "SET udb.report_token = on" : "SET udb.report_token = off");
			wall[on] = -now_us();
			server[on] = -cpu_us(pid);
			client[on] = -cpu_us(getpid());
			for (int k = 0; k < rows; k++)
			{
				PGresult   *res = PQexecPrepared(conn, "i", 0, NULL, NULL, NULL, 0);

				if (PQresultStatus(res) != PGRES_COMMAND_OK)
					die(conn, "INSERT");
				PQclear(res);
			}
			wall[on] += now_us();
			server[on] += cpu_us(pid);
			client[on] += cpu_us(getpid());
		}
		if (i >= 0)
			printf("%.3f %.3f %.3f %.3f %.3f %.3f\n", wall[1] / rows, wall[0] / rows,
				   server[1] / rows, server[0] / rows, client[1] / rows, client[0] / rows);
	}
	PQfinish(conn);
}

int
main(int argc, char **argv)
{
	if (argc == 7 && strcmp(argv[1], "rounds") == 0)
		rounds(argv[2], atol(argv[3]), atol(argv[4]), argv[5], argv[6]);
	else if (argc == 3 && strcmp(argv[1], "tokens") == 0)
		tokens(argv[2]);
	else if (argc >= 4 && strcmp(argv[1], "wire") == 0)
		wire(argv[2], argv + 3);
	else if (argc >= 4 && strcmp(argv[1], "params") == 0)
		params(argv[2], argv[3], argc - 4, (const char *const *) argv + 4);
	else if (argc == 3 && strcmp(argv[1], "pipeline") == 0)
		pipeline(argv[2]);
	else if (argc == 5 && strcmp(argv[1], "inserts") == 0)
		inserts(atoi(argv[2]), atoi(argv[3]), argv[4]);
	else
	{
		fprintf(stderr,
				"usage: %s rounds MODE ROUNDS KEY PRIMARY STANDBY\n       %s tokens CONNINFO\n"
				"       %s inserts BLOCKS ROWS CONNINFO\n       %s wire CONNINFO QUERY...\n"
				"       %s pipeline CONNINFO\n       %s params CONNINFO QUERY [VALUE...]\n",
				argv[0], argv[0], argv[0], argv[0], argv[0], argv[0]);
		return 2;
	}
	return 0;
}
