// Qt's locks and conditions, and its pool of threads.
#include "scenes.h"

#include <QMutex>
#include <QReadWriteLock>
#include <QRunnable>
#include <QSemaphore>
#include <QThreadPool>
#include <QWaitCondition>

static QMutex ledger;
static QReadWriteLock prices;
static QSemaphore turns(1);
static QMutex jobs_lock;
static QWaitCondition jobs;

APART static void post_entry()
{
	{
		QMutexLocker lock(&ledger);
		hold();
	}
	STAY;
}

APART static void walk_tree()
{
	static QRecursiveMutex tree;
	{
		QMutexLocker lock(&tree);
		hold();
	}
	STAY;
}

APART static void set_price()
{
	{
		QWriteLocker lock(&prices);
		hold();
	}
	STAY;
}

APART static void read_price()
{
	{
		QReadLocker lock(&prices);
		hold();
	}
	STAY;
}

APART static void take_turn()
{
	turns.acquire();
	hold();
	turns.release();
	STAY;
}

APART static void take_turn_in_time()
{
	if (turns.tryAcquire(1, 10000)) {
		hold();
		turns.release();
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

static void readers()
{
	repeat_beside(set_price, 3, read_price);
}

static void semaphore()
{
	repeat(4, take_turn);
}

static void timed()
{
	repeat(4, take_turn_in_time);
}

class Job : public QRunnable
{
	void run() override
	{
		compute(1);
	}
};

static void idle()
{
	QThreadPool pool;
	pool.setExpiryTimeout(-1);
	for (int job = 0; job < 8; job++)
		pool.start(new Job);
	static QSemaphore none(0);
	for (int thread = 0; thread < 2; thread++) {
		std::thread([] {
			QMutexLocker lock(&jobs_lock);
			jobs.wait(&jobs_lock);
		}).detach();
		std::thread([] { none.acquire(); }).detach();
	}
	until_input_ends();
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"mutex", mutex},     {"recursive", recursive}, {"writers", writers},
				{"readers", readers}, {"semaphore", semaphore}, {"timed", timed},
				{"idle", idle}};
	return play(scenes, arguments, argument);
}
