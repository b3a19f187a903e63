// oneTBB's locks, its bounded queue and its workers.
#include "scenes.h"

#include <oneapi/tbb/concurrent_queue.h>
#include <oneapi/tbb/mutex.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/rw_mutex.h>
#include <oneapi/tbb/spin_mutex.h>
#include <oneapi/tbb/task_arena.h>

static tbb::mutex ledger;
static tbb::rw_mutex prices;
static tbb::concurrent_bounded_queue<int> jobs;

APART static void post_entry()
{
	{
		tbb::mutex::scoped_lock lock(ledger);
		hold();
	}
	STAY;
}

// As functions of their own, and not as parts of their callers.
static void (tbb::rw_mutex::*volatile const lock_to_write)() = &tbb::rw_mutex::lock;
static void (tbb::rw_mutex::*volatile const lock_to_read)() = &tbb::rw_mutex::lock_shared;

APART static void set_price()
{
	(prices.*lock_to_write)();
	hold();
	prices.unlock();
	STAY;
}

APART static void read_price()
{
	(prices.*lock_to_read)();
	hold();
	prices.unlock_shared();
	STAY;
}

static void mutex()
{
	repeat(4, post_entry);
}

static void readers()
{
	repeat_beside(set_price, 3, read_price);
}

// Workers that have had work and get no more, and threads that wait for an element of an empty queue.
static void idle()
{
	tbb::task_arena arena(4);
	arena.execute([] { tbb::parallel_for(0, 64, [](int) { compute(1); }); });
	for (int thread = 0; thread < 2; thread++)
		std::thread([] {
			int job;
			jobs.pop(job);
		}).detach();
	until_input_ends();
}

static tbb::spin_mutex counter_lock;

static void (tbb::spin_mutex::*volatile const lock_counter)() = &tbb::spin_mutex::lock;

APART static void count()
{
	(counter_lock.*lock_counter)();
	hold();
	counter_lock.unlock();
	STAY;
}

// As compilers do it with optimisation: nothing of the lock is left on the stack.
APART static void count_inlined()
{
	counter_lock.lock();
	hold();
	counter_lock.unlock();
	STAY;
}

static void spin()
{
	repeat(3, count);
}

static void spin_inlined()
{
	repeat(3, count_inlined);
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"mutex", mutex}, {"readers", readers}, {"idle", idle}, {"spin", spin}, {"spin_inlined", spin_inlined}};
	return play(scenes, arguments, argument);
}
