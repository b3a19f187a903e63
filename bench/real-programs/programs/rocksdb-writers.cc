// Eight threads that write to one RocksDB with the log synced, and how long they waited for their write group by RocksDB's own account.
//
// Answers each line with the time, the work done and the time waited.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <rocksdb/db.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

static std::atomic<unsigned long long> work, waited_ns;

static void write(rocksdb::DB *database, int thread)
{
	rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableTime);
	rocksdb::WriteOptions options;
	options.sync = true;
	unsigned long long before_ns = 0;
	for (unsigned long long number = 0;; number++) {
		std::string key = std::to_string(thread) + ":" + std::to_string(number % 10000);
		if (!database->Put(options, key, std::string(100, 'x')).ok())
			std::exit(1);
		unsigned long long so_far_ns = rocksdb::get_perf_context()->write_thread_wait_nanos;
		waited_ns += so_far_ns - before_ns;
		before_ns = so_far_ns;
		work++;
	}
}

int main(int, char **arguments)
{
	rocksdb::Options options;
	options.create_if_missing = true;
	// Its account has the yielding of a waiter, too, which runs meanwhile: here it blocks at once.
	options.enable_write_thread_adaptive_yield = false;
	rocksdb::DB *database = nullptr;
	if (!rocksdb::DB::Open(options, arguments[1], &database).ok())
		return 2;
	for (int thread = 0; thread < 8; thread++)
		std::thread(write, database, thread).detach();
	std::puts("ready");
	std::fflush(stdout);
	while (true) {
		int character = std::getchar();
		if (character == EOF)
			std::_Exit(0);
		auto now = std::chrono::steady_clock::now().time_since_epoch();
		long long now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
		std::printf("%lld %llu %llu\n", now_ns, work.load(), waited_ns.load());
		std::fflush(stdout);
	}
}
