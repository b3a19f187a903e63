/* Exceptions thrown while locks are held, and threads cancelled while C++ unwinds them: every lock is free afterwards. */
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <pthread.h>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <unistd.h>

static std::mutex mutex;
static std::recursive_mutex recursive;
static std::shared_mutex shared;
static std::condition_variable condition;
static int unwound;

struct Unwound {
	~Unwound()
	{
		unwound++;
	}
};

static void throw_deep(int depth)
{
	std::lock_guard<std::recursive_mutex> guard(recursive);
	Unwound here;
	if (!depth)
		throw std::runtime_error("thrown with locks held");
	throw_deep(depth - 1);
}

static void *wait_for_ever(void *argument)
{
	std::unique_lock<std::mutex> guard(mutex);
	Unwound here;
	condition.wait(guard, [] { return false; });
	return argument;
}

int main()
{
	for (int i = 0; i < 100; i++)
		try {
			std::lock_guard<std::mutex> guard(mutex);
			std::shared_lock<std::shared_mutex> reader(shared);
			throw_deep(20);
		} catch (const std::exception &error) {
			if (i == 99)
				printf("%s\n", error.what());
		}
	printf("unwound %d, free %d %d %d\n", unwound, mutex.try_lock(), recursive.try_lock(), shared.try_lock());
	mutex.unlock();
	for (int i = 0; i < 5; i++) {
		pthread_t thread;
		void *result;
		pthread_create(&thread, nullptr, wait_for_ever, nullptr);
		usleep(2000);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		printf("cancelled %d, unwound %d, free %d\n", result == PTHREAD_CANCELED, unwound, mutex.try_lock());
		mutex.unlock();
	}
	try {
		std::unique_lock<std::mutex> empty;
		empty.lock();
	} catch (const std::system_error &error) {
		printf("%s\n", error.what());
	}
	return 7;
}
