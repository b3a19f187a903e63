/*
 * Priority-inheriting futexes: threads that take one by FUTEX_LOCK_PI.
 *
 * A waiter blocks on the rt-mutex that the kernel keeps for the futex (futex_lock_pi, rt_mutex_wait_proxy_lock).  That path has
 * no contention tracepoint, unlike rt_mutex_lock(), so the long waits show only as futex waits.  What the tracepoints do show
 * are the spinlocks on the way: the futex hash bucket's, and the wait_lock inside each rt-mutex.
 */
#include <linux/futex.h>

#include "workload.h"

static atomic_uint word; /* 0, or the holder's thread id with FUTEX_WAITERS */

static long futex(int operation)
{
	return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0);
}

static void lock(pid_t self)
{
	unsigned int unlocked = 0;

	if (atomic_compare_exchange_strong(&word, &unlocked, (unsigned int)self))
		return;
	while (futex(FUTEX_LOCK_PI)) {
		if (errno == ENOSYS)
			not_possible_here("this kernel has no priority-inheriting futexes");
		if (errno != EINTR && errno != EAGAIN)
			fail_errno("FUTEX_LOCK_PI");
	}
}

static void unlock(pid_t self)
{
	unsigned int uncontended = (unsigned int)self;

	if (!atomic_compare_exchange_strong(&word, &uncontended, 0) && futex(FUTEX_UNLOCK_PI))
		fail_errno("FUTEX_UNLOCK_PI");
}

static void lock_and_hold(struct worker *self)
{
	pid_t id = (pid_t)syscall(SYS_gettid);

	while (workload_running()) {
		uint64_t until_ns;

		lock(id);
		until_ns = now_ns() + workload_run->hold_ns;
		while (now_ns() < until_ns)
			;
		unlock(id);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload pi_futex = {
		.name = "pi-futex",
		.about = "threads take one priority-inheriting futex (an rt-mutex in the kernel)",
		.threads = 4,
		.min_threads = 1,
		.hold_ns = 5 * NSEC_PER_USEC,
		.accepts = WORKLOAD_HOLD,
		.worker = lock_and_hold,
	};

	return workload_main(argc, argv, &pi_futex);
}
