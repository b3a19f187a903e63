/* Processes by bare clone and clone3 calls, past libc's fork, and by vfork: they take locks, and so does the parent afterwards. */
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

#include "processes.h"

static GUARDED(pthread_mutex_t) mutex;

static int child_status(void)
{
	if (pthread_mutex_lock(&mutex.lock) || pthread_mutex_unlock(&mutex.lock))
		return 1;
	return 42;
}

int main(void)
{
	FILL_GUARDS(mutex);
	SAY(pthread_mutex_init(&mutex.lock, NULL));
	for (int i = 0; i < 20; i++) {
		struct clone_args arguments = {.exit_signal = SIGCHLD};
		pid_t child = i % 2 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
				    : syscall(SYS_clone3, &arguments, sizeof(arguments));

		if (!child)
			syscall(SYS_exit_group, child_status());
		printf("child ended: %d\n", end_of(child));
		SAY(pthread_mutex_lock(&mutex.lock));
		SAY(pthread_mutex_unlock(&mutex.lock));
	}
	for (int i = 0; i < 10; i++) {
		/* It runs in the parent's memory, and the parent waits. */
		pid_t child = vfork();

		if (!child)
			_exit(child_status());
		printf("vforked child ended: %d\n", end_of(child));
	}
	SAY(pthread_mutex_lock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	SAY_GUARDS(mutex);
	return RAN;
}
