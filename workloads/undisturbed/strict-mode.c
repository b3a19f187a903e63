/*
 * Enters the strict mode of seccomp, which allows read, write, _exit and sigreturn, and not the time stamp counter.  Then takes and
 * releases free locks of each kind, thousands of times.
 */
#include <linux/seccomp.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t semaphore;

static void take_all(void)
{
	for (int i = 0; i < 5000; i++) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_lock(&recursive);
		pthread_mutex_lock(&recursive);
		pthread_rwlock_rdlock(&rwlock);
		pthread_spin_lock(&spin);
		sem_post(&semaphore);
		sem_wait(&semaphore);
		pthread_spin_unlock(&spin);
		pthread_rwlock_unlock(&rwlock);
		pthread_mutex_unlock(&recursive);
		pthread_mutex_unlock(&recursive);
		pthread_mutex_unlock(&mutex);
	}
}

int main(void)
{
	static const char said[] = "still here\n";

	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	sem_init(&semaphore, 0, 0);
	take_all();
	pthread_mutex_lock(&mutex);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 1;
	pthread_mutex_unlock(&mutex);
	take_all();
	write(1, said, sizeof(said) - 1);
	syscall(SYS_exit, 7);
}
