/* C++'s own mutexes, conditions, futures, calls made once, and static objects that are made by the first thread that comes. */
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static std::mutex mutex;
static std::timed_mutex timed;
static std::recursive_timed_mutex recursive;
static std::shared_timed_mutex shared;
static std::condition_variable_any condition;
static std::once_flag once;
static int counted, called;

struct Slow {
	Slow()
	{
		std::this_thread::sleep_for(1ms);
		called++;
	}
	int value = 5;
};

static int work(int self)
{
	static Slow slow;
	for (int i = 0; i < 200; i++) {
		std::call_once(once, [] { called++; });
		std::scoped_lock both(mutex, timed);
		std::unique_lock<std::recursive_timed_mutex> again(recursive, 10s);
		std::lock_guard<std::recursive_timed_mutex> deeper(recursive);
		std::unique_lock<std::shared_timed_mutex> writer(shared);
		counted++;
		condition.notify_all();
	}
	std::shared_lock<std::shared_timed_mutex> reader(shared, 10s);
	return self * slow.value;
}

int main()
{
	std::vector<std::future<int>> results;
	int sum = 0;
	for (int i = 0; i < 4; i++)
		results.push_back(std::async(std::launch::async, work, i));
	{
		std::shared_lock<std::shared_timed_mutex> reader(shared);
		while (counted < 800)
			condition.wait(reader);
	}
	for (auto &result : results)
		sum += result.get();
	timed.lock();
	bool had = std::async(std::launch::async, [] { return timed.try_lock_for(1ms); }).get();
	printf("counted %d, called %d, sum %d, had a held lock %d\n", counted, called, sum, had);
	return 7;
}
