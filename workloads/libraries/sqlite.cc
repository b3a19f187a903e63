// SQLite: threads with one connection, or with one each to the same database.
#include "scenes.h"

#include <sqlite3.h>
#include <string>

static void must(int result)
{
	if (result != SQLITE_OK && result != SQLITE_DONE && result != SQLITE_ROW) {
		std::fprintf(stderr, "sqlite: %s\n", sqlite3_errstr(result));
		std::_Exit(1);
	}
}

static sqlite3 *connect_to(const char *path)
{
	sqlite3 *connection;

	must(sqlite3_open(path, &connection));
	must(sqlite3_busy_timeout(connection, 60000));
	return connection;
}

static sqlite3_stmt *prepare(sqlite3 *connection, const char *sql)
{
	sqlite3_stmt *statement;

	must(sqlite3_prepare_v2(connection, sql, -1, &statement, nullptr));
	return statement;
}

/* What a query calls, which takes its time. Who sleeps in a query waits for the database, as far as anybody can see. */
static void be_slow(sqlite3_context *context, int, sqlite3_value **)
{
	compute(5);
	sqlite3_result_int(context, 1);
}

APART static void ask(sqlite3_stmt *statement)
{
	must(sqlite3_step(statement));
	must(sqlite3_reset(statement));
}

static void connection()
{
	sqlite3 *shared = connect_to(":memory:");

	must(sqlite3_create_function(shared, "be_slow", 0, SQLITE_UTF8, nullptr, be_slow, nullptr, nullptr));
	repeat(4, [shared] {
		static thread_local sqlite3_stmt *statement = prepare(shared, "select be_slow()");
		ask(statement);
	});
	std::_Exit(0);
}

APART static void write_order(sqlite3 *connection)
{
	must(sqlite3_exec(connection, "begin immediate", nullptr, nullptr, nullptr));
	hold();
	must(sqlite3_exec(connection, "commit", nullptr, nullptr, nullptr));
}

static void database()
{
	char path[] = "/tmp/lockmeter-sqlite-XXXXXX";

	if (mkstemp(path) < 0)
		std::_Exit(1);
	must(sqlite3_exec(connect_to(path), "create table stock (pieces)", nullptr, nullptr, nullptr));
	repeat(4, [&path] {
		static thread_local sqlite3 *own = connect_to(path);
		write_order(own);
	});
	std::remove(path);
	std::remove((std::string(path) + "-journal").c_str());
	std::_Exit(0);
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"connection", connection}, {"database", database}};
	return play(scenes, arguments, argument);
}
