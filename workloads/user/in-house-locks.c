/*
 * A program with locks of its own, which no library knows. Each is made of something else than the last, and the program says in JSON how
 * long it waited for each:
 *
 *   book_lock     a futex with three states; the lock keeps who has it, 8 bytes behind the futex word
 *   door_enter    a flag that is looked at every millisecond: the thread sleeps for a time, in no futex call
 *   next_job      a pool of workers that wait on a futex for work, of which there is none: they are idle
 *
 * Two threads hold the book for 20 ms (audit_book) and 2 ms (take_order), two more the door for 20 ms. It runs for as many milliseconds as
 * its argument says; without an argument until its input ends.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
/* So that a call before it is no jump, and its caller stays on the stack. */
#define STAY __asm__ volatile("")

enum { FREE, TAKEN, AWAITED };

static struct book {
	atomic_uint state;
	unsigned reserved;
	atomic_uint owner;
} book;
static atomic_bool door, over;
static atomic_uint jobs;
static atomic_llong book_waited_ns, door_waited_ns;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static long futex(atomic_uint *word, int operation, unsigned value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

APART static void book_lock(struct book *book)
{
	long long began_ns = now_ns();
	unsigned state = FREE;

	if (!atomic_compare_exchange_strong(&book->state, &state, TAKEN))
		while (atomic_exchange(&book->state, AWAITED) != FREE)
			futex(&book->state, FUTEX_WAIT_PRIVATE, AWAITED);
	atomic_store(&book->owner, syscall(SYS_gettid));
	book_waited_ns += now_ns() - began_ns;
	STAY;
}

APART static void book_unlock(struct book *book)
{
	atomic_store(&book->owner, 0);
	if (atomic_exchange(&book->state, FREE) == AWAITED)
		futex(&book->state, FUTEX_WAKE_PRIVATE, 1);
	STAY;
}

APART static void door_enter(void)
{
	long long began_ns = now_ns();

	while (atomic_exchange(&door, true))
		sleep_ms(1);
	door_waited_ns += now_ns() - began_ns;
	STAY;
}

APART static void door_leave(void)
{
	atomic_store(&door, false);
}

APART static void next_job(void)
{
	while (!atomic_load(&jobs))
		futex(&jobs, FUTEX_WAIT_PRIVATE, 0);
	STAY;
}

#define HOLDS(name, take, give, ms)                                                                                    \
	APART static void name(void)                                                                                   \
	{                                                                                                              \
		take;                                                                                                  \
		sleep_ms(ms);                                                                                          \
		give;                                                                                                  \
		STAY;                                                                                                  \
	}

HOLDS(audit_book, book_lock(&book), book_unlock(&book), 20)
HOLDS(take_order, book_lock(&book), book_unlock(&book), 2)
HOLDS(serve_guest, door_enter(), door_leave(), 20)

static void *repeats(void *work)
{
	while (!over) {
		((void (*)(void))work)();
		sched_yield();
	}
	return NULL;
}

static void *works(void *unused)
{
	next_job();
	return unused;
}

int main(int arguments, char **argument)
{
	void (*const work[])(void) = {audit_book, take_order, serve_guest, serve_guest};
	pthread_t threads[6];

	for (int at = 0; at < 4; at++)
		pthread_create(&threads[at], NULL, repeats, work[at]);
	for (int at = 4; at < 6; at++)
		pthread_create(&threads[at], NULL, works, NULL);
	if (arguments > 1)
		sleep_ms(atol(argument[1]));
	else
		while (getchar() != EOF)
			;
	over = true;
	for (int at = 0; at < 4; at++)
		pthread_join(threads[at], NULL);
	jobs = 1;
	futex(&jobs, FUTEX_WAKE_PRIVATE, 2);
	for (int at = 4; at < 6; at++)
		pthread_join(threads[at], NULL);
	printf("{\"book_waited_ns\":%lld,\"door_waited_ns\":%lld}\n", book_waited_ns, door_waited_ns);
}
