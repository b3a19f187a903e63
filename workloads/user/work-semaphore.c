/*
 * A thread that waits for work on a semaphore as Java's machine does, in a library called libjvm.so, and for a semaphore of the
 * program's own. Built with -DMACHINE it is that library.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <unistd.h>

void await_work(sem_t *work);

#ifdef MACHINE

void await_work(sem_t *work)
{
	sem_wait(work);
	/* Not the last thing done, so that this function is on the stack. */
	__asm__ volatile("");
}

#else

static sem_t work, own_lock;

static void *serve(void *unused)
{
	await_work(&work);
	sem_wait(&own_lock);
	return unused;
}

/* The C library counts who waits in the upper half of a semaphore's first word. */
static void await_waiter(sem_t *semaphore)
{
	while (!(__atomic_load_n((uint64_t *)semaphore, __ATOMIC_RELAXED) >> 32))
		usleep(1000);
}

int main(void)
{
	pthread_t thread;

	sem_init(&work, 0, 0);
	sem_init(&own_lock, 0, 1);
	sem_wait(&own_lock);
	pthread_create(&thread, NULL, serve, NULL);
	await_waiter(&work);
	sem_post(&work);
	await_waiter(&own_lock);
	sem_post(&own_lock);
	return pthread_join(thread, NULL);
}

#endif
