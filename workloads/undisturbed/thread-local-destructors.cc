/* Destructors of thread-local and static objects that take locks, in threads that end, are cancelled, and in the one that exits. */
#include <cstdio>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>

static std::mutex mutex;
static int destroyed;

struct Locker {
	const char *name;
	std::mutex own;

	explicit Locker(const char *its_name) : name(its_name)
	{
		std::lock_guard<std::mutex> guard(mutex);
	}
	~Locker()
	{
		std::lock_guard<std::mutex> guard(own);
		std::lock_guard<std::mutex> outer(mutex);
		destroyed++;
		printf("destroyed: %s\n", name);
		fflush(stdout);
	}
};

static Locker global("static");
static thread_local Locker local("thread-local");

static void *wait_to_be_cancelled(void *argument)
{
	(void)local.name[0];
	for (;;)
		pause();
	return argument;
}

int main()
{
	for (int i = 0; i < 5; i++)
		std::thread([] { (void)local.name[0]; }).join();
	pthread_t cancelled;
	pthread_create(&cancelled, nullptr, wait_to_be_cancelled, nullptr);
	usleep(1000);
	pthread_cancel(cancelled);
	pthread_join(cancelled, nullptr);
	(void)local.name[0];
	printf("before the exit: %d\n", destroyed);
	return 7;
}
