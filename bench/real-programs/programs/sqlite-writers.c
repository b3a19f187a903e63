/*
 * Several writers of one SQLite database, and how long they waited for each other.
 *
 *   processes FILE   four processes, each with a connection and a busy timeout, as the workers of a web server are. Each clocks its
 *                    `BEGIN IMMEDIATE`, which returns when it has the database's write lock: a POSIX record lock on FILE-shm
 *   threads FILE     four threads with one connection, in SQLite's default threading mode. Each takes the connection's mutex by
 *                    sqlite3_mutex_enter, as the manual tells who needs sqlite3_changes or sqlite3_errmsg, and clocks that
 *
 * Answers each line with the time, the work done and the time waited.
 */
#include "clocked-waits.h"
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define WRITERS 4

static struct sums *sums;
static sqlite3 *shared_connection;
static const char *path;

static void must(sqlite3 *connection, int result)
{
	if (result == SQLITE_OK || result == SQLITE_DONE)
		return;
	fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(connection));
	_exit(1);
}

static void sql(sqlite3 *connection, const char *text)
{
	must(connection, sqlite3_exec(connection, text, NULL, NULL, NULL));
}

static sqlite3 *connect_to_database(void)
{
	sqlite3 *connection;

	must(NULL, sqlite3_open(path, &connection));
	must(connection, sqlite3_busy_timeout(connection, 60000));
	sql(connection, "pragma journal_mode = wal");
	sql(connection, "pragma synchronous = normal");
	return connection;
}

static void step(sqlite3 *connection, sqlite3_stmt *statement)
{
	must(connection, sqlite3_step(statement));
	must(connection, sqlite3_reset(statement));
}

/* Of an order: the stock of twenty articles changes. */
static void order(sqlite3 *connection, sqlite3_stmt *update, unsigned *random)
{
	for (int i = 0; i < 20; i++) {
		*random = *random * 1103515245 + 12345;
		sqlite3_bind_int(update, 1, (*random >> 16) % 1000);
		step(connection, update);
	}
}

static sqlite3_stmt *prepare(sqlite3 *connection, const char *text)
{
	sqlite3_stmt *statement;

	must(connection, sqlite3_prepare_v2(connection, text, -1, &statement, NULL));
	return statement;
}

#define UPDATE "update stock set pieces = pieces - 1 where article = ?"

static void write_with_own_connection(struct sums *mine, unsigned random)
{
	sqlite3 *connection = connect_to_database();
	sqlite3_stmt *begin = prepare(connection, "begin immediate"), *commit = prepare(connection, "commit");
	sqlite3_stmt *update = prepare(connection, UPDATE);

	for (;;) {
		wait_begins(mine);
		step(connection, begin);
		wait_ends(mine);
		order(connection, update, &random);
		step(connection, commit);
		__atomic_fetch_add(&mine->work, 1, __ATOMIC_RELAXED);
	}
}

static void *write_with_shared_connection(void *argument)
{
	struct sums *mine = argument;
	unsigned random = mine - sums;
	sqlite3_mutex *mutex = sqlite3_db_mutex(shared_connection);
	sqlite3_stmt *update = prepare(shared_connection, UPDATE);

	for (;;) {
		wait_begins(mine);
		sqlite3_mutex_enter(mutex);
		wait_ends(mine);
		order(shared_connection, update, &random);
		if (sqlite3_changes(shared_connection) != 1)
			_exit(1);
		sqlite3_mutex_leave(mutex);
		__atomic_fetch_add(&mine->work, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pid_t parent = getpid();

	if (argc != 3)
		return 2;
	path = argv[2];
	sums = mmap(NULL, WRITERS * sizeof *sums, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sums == MAP_FAILED)
		return 2;
	shared_connection = connect_to_database();
	sql(shared_connection, "create table stock (article integer primary key, pieces integer)");
	sql(shared_connection, "with recursive n(i) as (select 0 union all select i + 1 from n where i < 999) "
			       "insert into stock select i, 1000000 from n");
	if (!strcmp(argv[1], "processes")) {
		/* A connection must not be carried across fork. */
		must(shared_connection, sqlite3_close(shared_connection));
		for (int i = 0; i < WRITERS; i++)
			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (getppid() != parent)
					_exit(1);
				write_with_own_connection(&sums[i], i);
			}
	} else {
		pthread_t thread;

		for (int i = 0; i < WRITERS; i++)
			if (pthread_create(&thread, NULL, write_with_shared_connection, &sums[i]))
				return 2;
	}
	printf("ready\n");
	fflush(stdout);
	answer_lines(sums, WRITERS);
	_exit(0);
}
