// Boost's locks, conditions and barriers, and Asio's pool of threads.
#include "scenes.h"

#include <boost/asio/thread_pool.hpp>
#include <boost/thread/barrier.hpp>
#include <boost/thread/condition_variable.hpp>
#include <boost/thread/mutex.hpp>
#include <boost/thread/recursive_mutex.hpp>
#include <boost/thread/shared_mutex.hpp>
#include <boost/thread/sync_bounded_queue.hpp>

static boost::mutex ledger;
static boost::recursive_mutex tree;
static boost::shared_mutex prices;
static boost::mutex jobs_lock;
static boost::condition_variable jobs;

APART static void post_entry()
{
	{
		boost::mutex::scoped_lock lock(ledger);
		hold();
	}
	STAY;
}

APART static void walk_tree()
{
	{
		boost::recursive_mutex::scoped_lock lock(tree);
		hold();
	}
	STAY;
}

APART static void set_price()
{
	{
		boost::unique_lock<boost::shared_mutex> lock(prices);
		hold();
	}
	STAY;
}

static void mutex()
{
	repeat(4, post_entry);
}

static void recursive()
{
	repeat(4, walk_tree);
}

static void writers()
{
	repeat(4, set_price);
}

static void idle()
{
	boost::asio::thread_pool pool(2);
	static boost::sync_bounded_queue<int> queue(1);
	static boost::barrier barrier(3);
	for (int thread = 0; thread < 2; thread++) {
		std::thread([] {
			boost::unique_lock<boost::mutex> lock(jobs_lock);
			while (true)
				jobs.wait(lock);
		}).detach();
		std::thread([] { barrier.wait(); }).detach();
		std::thread([] { queue.pull_front(); }).detach();
	}
	until_input_ends();
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"mutex", mutex}, {"recursive", recursive}, {"writers", writers}, {"idle", idle}};
	return play(scenes, arguments, argument);
}
