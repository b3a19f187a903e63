/* Coroutines by makecontext on small heap stacks: a lock is taken in one and released in another, and by another thread. */
#include <ucontext.h>

#include "transcript.h"

#define COROUTINES 20
#define ROUNDS 100
#define STACK 16384

struct coroutine {
	ucontext_t context;
	int rounds;
};

static pthread_mutex_t shared_by_threads = PTHREAD_MUTEX_INITIALIZER;
static int counted;

struct scheduler {
	ucontext_t back;
	struct coroutine coroutines[COROUTINES];
	pthread_mutex_t handed_over;
	int owner, handovers;
};

static __thread struct scheduler *scheduler;
static __thread int running;

static void run(void)
{
	struct coroutine *self = &scheduler->coroutines[running];

	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&shared_by_threads);
		counted++;
		pthread_mutex_unlock(&shared_by_threads);
		/* Locked by one coroutine, unlocked by the next. */
		if (scheduler->owner < 0) {
			pthread_mutex_lock(&scheduler->handed_over);
			scheduler->owner = running;
		} else {
			scheduler->owner = -1;
			scheduler->handovers++;
			pthread_mutex_unlock(&scheduler->handed_over);
		}
		self->rounds++;
		swapcontext(&self->context, &scheduler->back);
	}
}

static void *schedule(void *argument)
{
	long *handovers = argument;

	scheduler = calloc(1, sizeof(*scheduler));
	scheduler->owner = -1;
	pthread_mutex_init(&scheduler->handed_over, NULL);
	for (int i = 0; i < COROUTINES; i++) {
		struct coroutine *coroutine = &scheduler->coroutines[i];

		getcontext(&coroutine->context);
		coroutine->context.uc_stack.ss_sp = malloc(STACK);
		coroutine->context.uc_stack.ss_size = STACK;
		coroutine->context.uc_link = &scheduler->back;
		makecontext(&coroutine->context, run, 0);
	}
	for (int round = 0; round < ROUNDS; round++)
		for (running = 0; running < COROUTINES; running++)
			swapcontext(&scheduler->back, &scheduler->coroutines[running].context);
	*handovers = scheduler->handovers;
	return NULL;
}

int main(void)
{
	pthread_t threads[3];
	long handovers[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, schedule, &handovers[i]);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d, handed over %ld %ld %ld\n", counted, handovers[0], handovers[1], handovers[2]);
	return RAN;
}
