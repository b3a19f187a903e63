/*
 * A mutex where another one was: a connection has one that a call initialises, and is freed without destroying it, as much code does. A
 * cache, whose std::mutex no call initialises, comes to lie at its address.
 *
 *     reused-address [connection] [wait]
 *
 * Three threads take the cache's lock in turn; with `connection` that of a connection which was not freed. With `wait` all of it begins
 * when standard input ends.
 *
 * Prints one line of JSON: whether the two had one address. Exit status: 7.
 */
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

constexpr int THREADS = 3;
constexpr int TURNS = 20;

struct Conn {
	char pad[64];
	pthread_mutex_t lock;
};

struct Cache {
	char pad[64];
	std::mutex lock;
};

/* None of them ends in a tail call: they shall be on the stack. */
#define ON_THE_STACK asm volatile("" ::: "memory")

__attribute__((noinline)) Conn *connection_new()
{
	auto connection = static_cast<Conn *>(malloc(sizeof(Conn)));

	pthread_mutex_init(&connection->lock, nullptr);
	return connection;
}

__attribute__((noinline)) void connection_send(Conn *connection)
{
	pthread_mutex_lock(&connection->lock);
	usleep(5000);
	pthread_mutex_unlock(&connection->lock);
	ON_THE_STACK;
}

__attribute__((noinline)) void connection_free(Conn *connection)
{
	pthread_mutex_lock(&connection->lock);
	pthread_mutex_unlock(&connection->lock);
	free(connection);
	ON_THE_STACK;
}

__attribute__((noinline)) Cache *cache_new()
{
	return new (malloc(sizeof(Cache))) Cache();
}

__attribute__((noinline)) void cache_lookup(Cache *cache)
{
	cache->lock.lock();
	usleep(5000);
	cache->lock.unlock();
	ON_THE_STACK;
}

template <typename Use> static void in_threads(Use use)
{
	std::thread threads[THREADS];

	for (auto &thread : threads)
		thread = std::thread([use] {
			for (int turn = 0; turn < TURNS; turn++) {
				use();
				usleep(50);
			}
		});
	for (auto &thread : threads)
		thread.join();
}

int main(int argc, char **argv)
{
	bool keeps = false;

	for (int at = 1; at < argc; at++) {
		keeps |= !strcmp(argv[at], "connection");
		if (!strcmp(argv[at], "wait"))
			while (getchar() != EOF)
				;
	}
	Conn *connection = connection_new();
	if (keeps) {
		in_threads([connection] { connection_send(connection); });
		return 7;
	}
	void *before = &connection->lock;
	connection_free(connection);
	Cache *cache = cache_new();
	printf("{\"workload\":\"reused-address\",\"same\":%s}\n", &cache->lock == before ? "true" : "false");
	fflush(stdout);
	in_threads([cache] { cache_lookup(cache); });
	return 7;
}
