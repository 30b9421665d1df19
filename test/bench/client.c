/*-------------------------------------------------------------------------
 *
 * client.c
 *	  The client side of the benchmarks that psql and pgbench cannot do:
 *	  consumers that wait, and what has to be timed from the outside.
 *
 *	client statement SQL					one, once
 *	client consumers udb|listen N			N of them, until SIGTERM
 *	client latency udb|listen COUNT			from COMMIT to the consumer
 *	client drain udb|skip|pgq BATCH			all that is there
 *	client cycles SECONDS PER_SECOND EVENTS DB1 DB2
 *											enqueue and consume, turn by turn
 *	client memory one|many					of a backend, a million events
 *
 * Results are printed as numbers on one line; who reads them is the script
 * "run".  Connections are made with libpq's environment.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libpq-fe.h"

#define PAYLOAD_80 "{\"order\": 4711, \"state\": \"paid\", \"total\": \"129.90\", \"customer\": \"c-017\", \"n\": 1}"

static volatile sig_atomic_t stop = 0;

static void
on_term(int signo)
{
	stop = 1;
}

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "client: %s: %s", what, why);
	exit(1);
}

static double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void
pause_until(double when)
{
	double		left = when - seconds();
	struct timespec ts;

	if (left <= 0)
		return;
	ts.tv_sec = (time_t) left;
	ts.tv_nsec = (long) ((left - ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

static int
compare_double(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

static double
percentile(double *values, int n, int percent)
{
	qsort(values, n, sizeof(double), compare_double);
	return values[(n - 1) * percent / 100];
}

/* ---- libpq ---- */

static PGconn *
connect_to(const char *dbname)
{
	const char *keys[] = {"dbname", NULL};
	const char *values[] = {dbname, NULL};
	PGconn	   *conn = PQconnectdbParams(keys, values, 1);

	if (PQstatus(conn) != CONNECTION_OK)
		die("connect", PQerrorMessage(conn));
	return conn;
}

static PGresult *
checked(PGconn *conn, PGresult *res, const char *what)
{
	ExecStatusType status = PQresultStatus(res);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die(what, PQerrorMessage(conn));
	return res;
}

static void
run(PGconn *conn, const char *sql)
{
	PQclear(checked(conn, PQexec(conn, sql), sql));
}

static void
prepare(PGconn *conn, const char *name, const char *sql)
{
	PQclear(checked(conn, PQprepare(conn, name, sql, 0, NULL), sql));
}

/* Results in binary; set where formatting them would be most of the work. */
static bool binary = false;

static PGresult *
call(PGconn *conn, const char *name, const char *arg1, const char *arg2)
{
	const char *args[] = {arg1, arg2};
	int			n = arg1 == NULL ? 0 : arg2 == NULL ? 1 : 2;

	return checked(conn, PQexecPrepared(conn, name, n, args, NULL, NULL, binary), name);
}

static long
call_long(PGconn *conn, const char *name, const char *arg1, const char *arg2)
{
	PGresult   *res = call(conn, name, arg1, arg2);
	long		result = PQgetisnull(res, 0, 0) ? 0 : atol(PQgetvalue(res, 0, 0));

	PQclear(res);
	return result;
}

/* The first column of the last row, a bigint. */
static char *
last_value(PGresult *res, char *buffer, size_t size)
{
	const char *value = PQgetvalue(res, PQntuples(res) - 1, 0);

	if (PQfformat(res, 0) == 1)
	{
		uint64_t	n = 0;

		for (int i = 0; i < 8; i++)
			n = n << 8 | (unsigned char) value[i];
		snprintf(buffer, size, "%lld", (long long) n);
	}
	else
		snprintf(buffer, size, "%s", value);
	return buffer;
}

/* ---- one statement ---- */

/* Nanoseconds that a process has been on a CPU. */
static double
cpu_ns(int pid)
{
	char		path[64];
	double		ns = 0;
	FILE	   *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	f = fopen(path, "r");
	if (f == NULL || fscanf(f, "%lf", &ns) != 1)
		die(path, "cannot be read\n");
	fclose(f);
	return ns;
}

/* Prints milliseconds: how long it took, and how long of it on a CPU. */
static void
do_statement(const char *sql)
{
	PGconn	   *conn = connect_to(NULL);
	int			pid = PQbackendPID(conn);
	double		cpu;
	double		begin;

	run(conn, "SELECT count(*) FROM source");	/* hint bits, caches */
	cpu = cpu_ns(pid);
	begin = seconds();
	run(conn, sql);
	printf("%.3f %.3f\n", (seconds() - begin) * 1e3, (cpu_ns(pid) - cpu) / 1e6);
}

/* ---- consumers ---- */

typedef struct Consumer
{
	pthread_t	thread;
	PGconn	   *conn;
	bool		udb;
	char		name[32];
	char		position[32];
	long		events;
	long		wakes;
} Consumer;

static void
open_consumer(Consumer *c, bool udb, int i)
{
	memset(c, 0, sizeof(Consumer));
	c->udb = udb;
	c->conn = connect_to(NULL);
	snprintf(c->name, sizeof(c->name), "c%d", i);
	if (udb)
	{
		prepare(c->conn, "wait", "SELECT udb.wait_for_events($1, '200 ms')");
		prepare(c->conn, "read", "SELECT event_seq, payload FROM udb.read($1, 1000)");
		prepare(c->conn, "checkpoint", "SELECT udb.checkpoint($1, $2)");
	}
	else
	{
		prepare(c->conn, "read", "SELECT event_seq, payload FROM plain WHERE event_seq > $1"
				" ORDER BY event_seq LIMIT 1000");
		prepare(c->conn, "position", "SELECT coalesce(max(event_seq), 0) FROM plain");
		run(c->conn, "LISTEN plain");
		snprintf(c->position, sizeof(c->position), "%ld",
				 call_long(c->conn, "position", NULL, NULL));
	}
}

/* Wait until there may be something; false after 200 ms without. */
static bool
wait_for_something(Consumer *c)
{
	PGnotify   *notify;
	bool		notified = false;

	if (c->udb)
	{
		PGresult   *res = call(c->conn, "wait", c->name, NULL);
		bool		ready = PQgetvalue(res, 0, 0)[0] == 't';

		PQclear(res);
		return ready;
	}

	/* what came in with the results of earlier queries is no reason to sleep */
	for (int i = 0; i < 2 && !notified; i++)
	{
		if (i > 0)
		{
			struct pollfd fd = {.fd = PQsocket(c->conn), .events = POLLIN};

			if (poll(&fd, 1, 200) <= 0)
				return false;
			if (!PQconsumeInput(c->conn))
				die("consumer", PQerrorMessage(c->conn));
		}
		while ((notify = PQnotifies(c->conn)) != NULL)
		{
			PQfreemem(notify);
			notified = true;
		}
	}
	return notified;
}

/* One batch; returns its events, and the caller clears the result. */
static int
read_batch(Consumer *c, PGresult **res)
{
	int			n;

	*res = call(c->conn, "read", c->udb ? c->name : c->position, NULL);
	n = PQntuples(*res);
	if (n > 0)
		last_value(*res, c->position, sizeof(c->position));
	c->events += n;
	return n;
}

static void *
consumer_main(void *arg)
{
	Consumer   *c = arg;

	while (!stop)
	{
		PGresult   *res;
		int			n;

		if (!wait_for_something(c))
			continue;
		c->wakes++;
		do
		{
			n = read_batch(c, &res);
			PQclear(res);
			if (n > 0 && c->udb)
				PQclear(call(c->conn, "checkpoint", c->name, c->position));
		} while (n == 1000 && !stop);
	}
	PQfinish(c->conn);
	return NULL;
}

/* Prints: events, wakes; both over all consumers. */
static void
do_consumers(bool udb, int n)
{
	struct sigaction action = {.sa_handler = on_term};
	Consumer   *consumers = calloc(n, sizeof(Consumer));
	long		events = 0;
	long		wakes = 0;

	sigaction(SIGTERM, &action, NULL);
	for (int i = 0; i < n; i++)
		open_consumer(&consumers[i], udb, i);
	for (int i = 0; i < n; i++)
		pthread_create(&consumers[i].thread, NULL, consumer_main, &consumers[i]);
	printf("ready %d\n", (int) getpid());
	fflush(stdout);
	for (int i = 0; i < n; i++)
	{
		pthread_join(consumers[i].thread, NULL);
		events += consumers[i].events;
		wakes += consumers[i].wakes;
	}
	printf("%ld %ld\n", events, wakes);
}

/* ---- latency ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int	seen_events = 0;
static double seen_at = 0;

static void *
latency_consumer(void *arg)
{
	Consumer   *c = arg;

	while (!stop)
	{
		PGresult   *res;
		int			n;

		if (!wait_for_something(c) || (n = read_batch(c, &res)) == 0)
			continue;
		pthread_mutex_lock(&lock);
		seen_at = seconds();
		seen_events += n;
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&lock);
		PQclear(res);
		if (c->udb)
			PQclear(call(c->conn, "checkpoint", c->name, c->position));
	}
	return NULL;
}

/*
 * Prints microseconds: median and 99th percentile from sending COMMIT until
 * the consumer has the event, the median from COMMIT's return until then, and
 * the median time that COMMIT itself took.
 */
static void
do_latency(bool udb, int count)
{
	PGconn	   *conn = connect_to(NULL);
	Consumer	c;
	double	   *latency = calloc(count, sizeof(double));
	double	   *after = calloc(count, sizeof(double));
	double	   *commit = calloc(count, sizeof(double));

	open_consumer(&c, udb, 0);
	pthread_create(&c.thread, NULL, latency_consumer, &c);
	prepare(conn, "begin", "BEGIN");
	prepare(conn, "commit", "COMMIT");
	prepare(conn, "put", udb ?
			"SELECT udb.enqueue('orders', '" PAYLOAD_80 "', 'k1')" :
			"WITH i AS (INSERT INTO plain (topic, partition_key, payload)"
			" VALUES ('orders', 'k1', '" PAYLOAD_80 "') RETURNING event_seq)"
			" SELECT pg_notify('plain', '') FROM i");

	for (int i = -20; i < count; i++)	/* the first ones only warm up */
	{
		double		t0;
		double		t1;

		/* the consumer is back in its wait by then */
		pause_until(seconds() + 0.004);
		PQclear(call(conn, "begin", NULL, NULL));
		PQclear(call(conn, "put", NULL, NULL));
		t0 = seconds();
		PQclear(call(conn, "commit", NULL, NULL));
		t1 = seconds();
		pthread_mutex_lock(&lock);
		while (seen_events < i + 21)
			pthread_cond_wait(&cond, &lock);
		if (i >= 0)
		{
			latency[i] = (seen_at - t0) * 1e6;
			after[i] = (seen_at - t1) * 1e6;
			commit[i] = (t1 - t0) * 1e6;
		}
		pthread_mutex_unlock(&lock);
	}
	stop = 1;
	pthread_join(c.thread, NULL);
	printf("%.0f %.0f %.0f %.0f\n", percentile(latency, count, 50),
		   percentile(latency, count, 99), percentile(after, count, 50),
		   percentile(commit, count, 50));
}

/* ---- draining what is there ---- */

static int
drain_udb(PGconn *conn, const char *batch)
{
	PGresult   *res = call(conn, "read", "drain", batch);
	int			n = PQntuples(res);
	char		position[32];

	if (n > 0)
		PQclear(call(conn, "checkpoint", "drain", last_value(res, position, sizeof(position))));
	PQclear(res);
	return n;
}

static int
drain_skip(PGconn *conn, const char *batch)
{
	PGresult   *res = call(conn, "claim", batch, NULL);
	int			n = PQntuples(res);

	PQclear(res);
	return n;
}

static int
drain_pgq(PGconn *conn, const char *batch)
{
	PGresult   *res = call(conn, "next", NULL, NULL);
	char		id[32];
	int			n;

	if (PQgetisnull(res, 0, 0))
	{
		PQclear(res);
		return 0;
	}
	last_value(res, id, sizeof(id));
	PQclear(res);
	res = call(conn, "events", id, NULL);
	n = PQntuples(res);
	PQclear(res);
	PQclear(call(conn, "finish", id, NULL));
	return n > 0 ? n : -1;		/* an empty batch is not the end */
}

/* Prints: events, seconds it took, seconds that the backend was on a CPU. */
static void
do_drain(const char *how, const char *batch)
{
	double		cpu;
	PGconn	   *conn = connect_to(NULL);
	int			(*drain) (PGconn *, const char *);
	long		events = 0;
	double		begin;
	int			n;

	if (strcmp(how, "udb") == 0)
	{
		drain = drain_udb;
		prepare(conn, "read", "SELECT * FROM udb.read($1, $2)");
		prepare(conn, "checkpoint", "SELECT udb.checkpoint($1, $2)");
	}
	else if (strcmp(how, "skip") == 0)
	{
		drain = drain_skip;
		prepare(conn, "claim",
				"DELETE FROM plain WHERE event_seq IN (SELECT event_seq FROM plain"
				" ORDER BY event_seq LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING *");
	}
	else
	{
		drain = drain_pgq;
		prepare(conn, "next", "SELECT pgq.next_batch('bench', 'drain')");
		prepare(conn, "events", "SELECT * FROM pgq.get_batch_events($1)");
		prepare(conn, "finish", "SELECT pgq.finish_batch($1)");
	}

	binary = true;
	cpu = cpu_ns(PQbackendPID(conn));
	begin = seconds();
	while ((n = drain(conn, batch)) != 0)
		events += n > 0 ? n : 0;
	printf("%ld %.6f %.6f\n", events, seconds() - begin, (cpu_ns(PQbackendPID(conn)) - cpu) / 1e9);
}

/* ---- cycles of enqueue and consume, turn by turn in two databases ---- */

#define WINDOWS 5

/*
 * Each cycle enqueues some events in one transaction, reads them and moves the
 * cursor.  Prints a line for each window of time: events a second of enqueue
 * in both databases, then of consume, counting only the time spent in them;
 * then how many cycles there were.
 */
static void
do_cycles(double duration, double per_second, const char *events, const char *db[2])
{
	PGconn	   *conn[2];
	double		begin;
	long		cycles = 0;

	for (int i = 0; i < 2; i++)
	{
		conn[i] = connect_to(db[i]);
		/* a flush would hide what is looked for here */
		run(conn[i], "SET synchronous_commit = off");
		prepare(conn[i], "put", "SELECT count(udb.enqueue('orders', '" PAYLOAD_80 "', 'k1'))"
				" FROM generate_series(1, $1::integer)");
		prepare(conn[i], "read", "SELECT event_seq, payload FROM udb.read('cycles', 1000)");
		prepare(conn[i], "checkpoint", "SELECT udb.checkpoint('cycles', $1)");
	}

	begin = seconds();
	for (int w = 0; w < WINDOWS; w++)
	{
		double		spent[2][2] = {{0}};
		long		consumed[2] = {0};
		long		enqueued[2] = {0};

		while (seconds() < begin + duration * (w + 1) / WINDOWS)
		{
			for (int j = 0; j < 2; j++)
			{
				int			i = (j + cycles) % 2;
				double		t0 = seconds();
				double		t1;
				PGresult   *res;
				char		position[32];

				enqueued[i] += call_long(conn[i], "put", events, NULL);
				t1 = seconds();
				res = call(conn[i], "read", NULL, NULL);
				consumed[i] += PQntuples(res);
				if (PQntuples(res) > 0)
					PQclear(call(conn[i], "checkpoint",
								 last_value(res, position, sizeof(position)), NULL));
				PQclear(res);
				spent[0][i] += t1 - t0;
				spent[1][i] += seconds() - t1;
			}
			cycles++;
			pause_until(begin + cycles / per_second);
		}
		printf("%.0f %.0f %.0f %.0f %ld\n", enqueued[0] / spent[0][0], enqueued[1] / spent[0][1],
			   consumed[0] / spent[1][0], consumed[1] / spent[1][1], cycles);
	}
}

/* ---- memory ---- */

static pid_t watched;
static long peak = 0;

static long
private_kb(void)
{
	char		path[64];
	char		line[256];
	long		kb = 0;
	FILE	   *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int) watched);
	f = fopen(path, "r");
	if (f == NULL)
		die(path, "cannot be read\n");
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "RssAnon: %ld kB", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

static void *
watch_main(void *arg)
{
	while (!stop)
	{
		long		kb = private_kb();

		if (kb > peak)
			peak = kb;
		pause_until(seconds() + 0.02);
	}
	return NULL;
}

/* Prints: kB by which the backend's private memory grew, at its peak. */
static void
do_memory(bool many)
{
	PGconn	   *conn = connect_to(NULL);
	pthread_t	watch;
	const char *put = many ?
		"SELECT sum(cardinality(udb.enqueue_many('orders', payloads, keys))) FROM arrays" :
		"SELECT count(udb.enqueue('orders', payload, 'k1')) FROM source";
	long		before;

	watched = PQbackendPID(conn);
	run(conn, put);				/* caches are full and settled after this */
	before = peak = private_kb();
	pthread_create(&watch, NULL, watch_main, NULL);
	run(conn, "BEGIN");
	for (int i = 0; i < 5; i++)	/* 200 000 rows each */
		run(conn, put);
	run(conn, "COMMIT");
	stop = 1;
	pthread_join(watch, NULL);
	printf("%ld\n", peak - before);
}

int
main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (strcmp(mode, "statement") == 0 && argc == 3)
		do_statement(argv[2]);
	else if (strcmp(mode, "consumers") == 0 && argc == 4)
		do_consumers(strcmp(argv[2], "udb") == 0, atoi(argv[3]));
	else if (strcmp(mode, "latency") == 0 && argc == 4)
		do_latency(strcmp(argv[2], "udb") == 0, atoi(argv[3]));
	else if (strcmp(mode, "drain") == 0 && argc == 4)
		do_drain(argv[2], argv[3]);
	else if (strcmp(mode, "cycles") == 0 && argc == 7)
		do_cycles(atof(argv[2]), atof(argv[3]), argv[4], (const char **) &argv[5]);
	else if (strcmp(mode, "memory") == 0 && argc == 3)
		do_memory(strcmp(argv[2], "many") == 0);
	else
		die("usage", "see the head of client.c\n");
	return 0;
}
