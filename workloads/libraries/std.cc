// What C++'s standard library makes of futexes itself.
#include "scenes.h"

#include <barrier>
#include <latch>
#include <mutex>
#include <semaphore>

static std::counting_semaphore<4> turns(1), none(0);
static std::latch latch(9);
static std::barrier barrier(9);
static std::atomic<int> word;

APART static void take_turn()
{
	turns.acquire();
	hold();
	turns.release();
	STAY;
}

static void semaphore()
{
	repeat(4, take_turn);
}

APART static void post_entry(std::mutex &mutex)
{
	std::lock_guard<std::mutex> guard(mutex);
	hold();
}

/* All of them want a mutex that lies on the stack of the first thread. */
static void mutex_on_stack()
{
	std::mutex mutex;

	repeat(4, [&mutex] { post_entry(mutex); });
}

static void idle()
{
	std::thread([] { latch.wait(); }).detach();
	std::thread([] { barrier.arrive_and_wait(); }).detach();
	std::thread([] { word.wait(0); }).detach();
	std::thread([] { none.acquire(); }).detach();
	until_input_ends();
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"semaphore", semaphore}, {"mutex on stack", mutex_on_stack}, {"idle", idle}};
	return play(scenes, arguments, argument);
}
