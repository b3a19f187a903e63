/*
 * Locks lie on a page that may not be touched, as a collector's or a debugger's do. The handler of the fault makes it writable, and the
 * instruction runs again; or it jumps away from a call that then never returns.
 */
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "transcript.h"

#define PAGE 4096

static struct locks {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_spinlock_t spin;
	pthread_cond_t condition;
	sem_t semaphore;
} * locks;

static pthread_mutex_t elsewhere = PTHREAD_MUTEX_INITIALIZER;
static volatile int makes_writable, faults;
static sigjmp_buf away;

static void fault(int number, siginfo_t *info, void *context)
{
	char *at = info->si_addr;

	(void)number;
	(void)context;
	faults++;
	if (at < (char *)locks || at >= (char *)locks + PAGE)
		_exit(3);
	if (!makes_writable)
		siglongjmp(away, 1);
	mprotect(locks, PAGE, PROT_READ | PROT_WRITE);
}

/* -1: it jumped away. */
#define TOUCH(call)                                                                                                    \
	do {                                                                                                           \
		volatile int status_ = -1;                                                                             \
		mprotect(locks, PAGE, PROT_NONE);                                                                      \
		faults = 0;                                                                                            \
		if (!sigsetjmp(away, 1))                                                                               \
			status_ = (call);                                                                              \
		printf("%-50s %d after %d faults\n", #call, status_, faults);                                          \
	} while (0)

static void *touch_all(void *argument)
{
	mprotect(locks, PAGE, PROT_READ | PROT_WRITE);
	memset(locks, 0, PAGE);
	pthread_spin_init(&locks->spin, PTHREAD_PROCESS_PRIVATE);
	sem_init(&locks->semaphore, 0, 3);
	for (int i = 0; i < 3; i++) {
		TOUCH(pthread_mutex_lock(&locks->mutex));
		TOUCH(pthread_mutex_unlock(&locks->mutex));
		TOUCH(pthread_mutex_trylock(&locks->mutex));
		TOUCH(pthread_mutex_unlock(&locks->mutex));
		TOUCH(pthread_rwlock_rdlock(&locks->rwlock));
		TOUCH(pthread_rwlock_unlock(&locks->rwlock));
		TOUCH(pthread_rwlock_trywrlock(&locks->rwlock));
		TOUCH(pthread_rwlock_unlock(&locks->rwlock));
		TOUCH(pthread_spin_lock(&locks->spin));
		TOUCH(pthread_spin_unlock(&locks->spin));
		TOUCH(pthread_cond_signal(&locks->condition));
		TOUCH(sem_wait(&locks->semaphore));
		TOUCH(sem_post(&locks->semaphore));
		TOUCH(pthread_mutex_destroy(&locks->mutex));
		TOUCH(pthread_mutex_init(&locks->mutex, NULL));
		pthread_mutex_lock(&elsewhere);
		pthread_mutex_unlock(&elsewhere);
	}
	return argument;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

	locks = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGSEGV, &action, NULL);
	for (makes_writable = 1; makes_writable >= 0; makes_writable--)
		in_thread(touch_all, NULL);
	return RAN;
}
