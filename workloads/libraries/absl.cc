// Abseil's locks and conditions.
#include "scenes.h"

#include <absl/base/internal/spinlock.h>
#include <absl/synchronization/blocking_counter.h>
#include <absl/synchronization/mutex.h>
#include <absl/synchronization/notification.h>

static absl::Mutex ledger;
static absl::Mutex jobs_lock;
static absl::CondVar jobs;
static bool job;

APART static void post_entry()
{
	{
		absl::MutexLock lock(&ledger);
		hold();
	}
	STAY;
}

APART static void read_entries()
{
	{
		absl::ReaderMutexLock lock(&ledger);
		hold();
	}
	STAY;
}

static void mutex()
{
	repeat(4, post_entry);
}

static void readers()
{
	repeat_beside(post_entry, 3, read_entries);
}

// Threads that wait for something to be true, each in another way.
static void idle()
{
	for (int thread = 0; thread < 2; thread++) {
		std::thread([] {
			absl::MutexLock lock(&jobs_lock);
			while (!job)
				jobs.Wait(&jobs_lock);
		}).detach();
		std::thread([] {
			absl::MutexLock lock(&jobs_lock);
			jobs_lock.Await(absl::Condition(&job));
		}).detach();
	}
	static absl::Notification never;
	std::thread([] { never.WaitForNotification(); }).detach();
	static absl::BlockingCounter counter(1);
	std::thread([] { counter.Wait(); }).detach();
	until_input_ends();
}

static absl::base_internal::SpinLock counter_lock;

APART static void count()
{
	{
		absl::base_internal::SpinLockHolder lock(&counter_lock);
		// So short that those who wait for it spin, and seldom sleep.
		for (int step = 0; step < 200; step++)
			STAY;
	}
	STAY;
}

static void spin()
{
	repeat(3, count);
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"mutex", mutex}, {"readers", readers}, {"idle", idle}, {"spin", spin}};
	return play(scenes, arguments, argument);
}
