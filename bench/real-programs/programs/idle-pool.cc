// Two pools of eight threads that have a tiny job ten times a second: one takes jobs by a condition, one by a semaphore.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <semaphore.h>
#include <thread>

static std::mutex queue_lock;
static std::condition_variable queue_filled;
static int queued;
static sem_t jobs;

static void by_condition()
{
	for (;;) {
		std::unique_lock<std::mutex> held(queue_lock);
		queue_filled.wait(held, [] { return queued > 0; });
		queued--;
	}
}

static void by_semaphore()
{
	for (;;)
		while (sem_wait(&jobs) != 0) {
		}
}

static void produce()
{
	for (;;) {
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
		sem_post(&jobs);
		{
			std::lock_guard<std::mutex> held(queue_lock);
			queued++;
		}
		queue_filled.notify_one();
	}
}

int main()
{
	sem_init(&jobs, 0, 0);
	for (int number = 0; number < 8; number++) {
		std::thread(by_condition).detach();
		std::thread(by_semaphore).detach();
	}
	std::thread(produce).detach();
	std::puts("ready");
	std::fflush(stdout);
	while (std::getchar() != EOF) {
	}
	std::_Exit(0);
}
