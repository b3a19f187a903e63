/* C11's threads: mutexes of every type by every function, conditions, calls made once, and thread-specific storage that locks. */
#include <threads.h>

#include "transcript.h"

static GUARDED(mtx_t) mutex;
static GUARDED(cnd_t) condition;
static once_flag once = ONCE_FLAG_INIT;
static tss_t key;
static int turn;

static int fail_to_take(void *argument)
{
	struct timespec until = soon(CLOCK_REALTIME, MILLISECOND), bad = {.tv_nsec = -1};

	(void)argument;
	SAY(mtx_trylock(&mutex.lock));
	SAY(mtx_timedlock(&mutex.lock, &until));
	SAY(mtx_timedlock(&mutex.lock, &bad));
	return 5;
}

static int wait_for(void *argument)
{
	(void)argument;
	SAY(mtx_lock(&mutex.lock));
	SAY(mtx_unlock(&mutex.lock));
	return 6;
}

static void mutexes(void)
{
	static const int types[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive};

	for (int type = 0; type < 4; type++) {
		thrd_t thread;
		int result;

		printf("-- type %d\n", types[type]);
		FILL_GUARDS(mutex);
		SAY(mtx_init(&mutex.lock, types[type]));
		SAY(mtx_lock(&mutex.lock));
		SAY(mtx_trylock(&mutex.lock));
		if (types[type] & mtx_recursive)
			SAY(mtx_unlock(&mutex.lock));
		fflush(stdout);
		thrd_create(&thread, fail_to_take, NULL);
		thrd_join(thread, &result);
		fflush(stdout);
		thrd_create(&thread, wait_for, NULL);
		usleep(2000);
		mtx_unlock(&mutex.lock);
		thrd_join(thread, &result);
		printf("the thread returned %d\n", result);
		mtx_destroy(&mutex.lock);
		SAY_GUARDS(mutex);
	}
	SAY(mtx_init(&mutex.lock, 99));
}

static int answer(void *argument)
{
	(void)argument;
	for (int i = 0; i < 50; i++) {
		mtx_lock(&mutex.lock);
		while (turn != 2 * i + 1)
			cnd_wait(&condition.lock, &mutex.lock);
		turn++;
		cnd_broadcast(&condition.lock);
		mtx_unlock(&mutex.lock);
	}
	return 0;
}

static void conditions(void)
{
	struct timespec until = soon(CLOCK_REALTIME, MILLISECOND), bad = {.tv_nsec = -1};
	thrd_t thread;

	FILL_GUARDS(mutex);
	FILL_GUARDS(condition);
	SAY(mtx_init(&mutex.lock, mtx_plain));
	SAY(cnd_init(&condition.lock));
	SAY(mtx_lock(&mutex.lock));
	SAY(cnd_timedwait(&condition.lock, &mutex.lock, &until));
	SAY(cnd_timedwait(&condition.lock, &mutex.lock, &bad));
	SAY(mtx_unlock(&mutex.lock));
	thrd_create(&thread, answer, NULL);
	for (int i = 0; i < 50; i++) {
		struct timespec late = soon(CLOCK_REALTIME, 60000 * MILLISECOND);

		mtx_lock(&mutex.lock);
		turn++;
		cnd_signal(&condition.lock);
		while (turn != 2 * i + 2)
			cnd_timedwait(&condition.lock, &mutex.lock, &late);
		mtx_unlock(&mutex.lock);
	}
	thrd_join(thread, NULL);
	printf("turns %d\n", turn);
	cnd_destroy(&condition.lock);
	mtx_destroy(&mutex.lock);
	SAY_GUARDS(condition);
	SAY_GUARDS(mutex);
}

static void call(void)
{
	SAY(mtx_init(&mutex.lock, mtx_plain));
	SAY(mtx_lock(&mutex.lock));
	SAY(mtx_unlock(&mutex.lock));
}

static void destroy_stored(void *argument)
{
	mtx_lock(&mutex.lock);
	printf("destroyed: %s\n", (char *)argument);
	mtx_unlock(&mutex.lock);
}

static int store(void *argument)
{
	call_once(&once, call);
	SAY(tss_set(key, argument));
	thrd_yield();
	thrd_exit(3);
}

int main(void)
{
	thrd_t thread;
	int result;

	mutexes();
	conditions();
	SAY(tss_create(&key, destroy_stored));
	for (int i = 0; i < 2; i++) {
		thrd_create(&thread, store, "stored");
		thrd_join(thread, &result);
		printf("the thread returned %d\n", result);
	}
	return RAN;
}
