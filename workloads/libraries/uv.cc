// libuv's locks, and its pool of threads.
#include "scenes.h"

#include <uv.h>

static uv_mutex_t ledger, jobs_lock;
static uv_rwlock_t prices;
static uv_cond_t jobs;
static uv_sem_t turns;

APART static void post_entry()
{
	uv_mutex_lock(&ledger);
	hold();
	uv_mutex_unlock(&ledger);
	STAY;
}

APART static void set_price()
{
	uv_rwlock_wrlock(&prices);
	hold();
	uv_rwlock_wrunlock(&prices);
	STAY;
}

APART static void read_price()
{
	uv_rwlock_rdlock(&prices);
	hold();
	uv_rwlock_rdunlock(&prices);
	STAY;
}

APART static void take_turn()
{
	uv_sem_wait(&turns);
	hold();
	uv_sem_post(&turns);
	STAY;
}

static void mutex()
{
	repeat(4, post_entry);
}

static void readers()
{
	repeat_beside(set_price, 3, read_price);
}

static void semaphore()
{
	repeat(4, take_turn);
}

// The pool has had work, and the loop gets no events.
static void idle()
{
	uv_loop_t *loop = uv_default_loop();
	uv_work_t work[4];
	for (uv_work_t &job : work)
		uv_queue_work(
			loop, &job, [](uv_work_t *) { compute(1); }, [](uv_work_t *, int) {});
	uv_run(loop, UV_RUN_DEFAULT);
	for (int thread = 0; thread < 2; thread++)
		std::thread([] {
			uv_mutex_lock(&jobs_lock);
			uv_cond_wait(&jobs, &jobs_lock);
		}).detach();
	static uv_async_t never;
	uv_async_init(loop, &never, nullptr);
	std::thread([loop] { uv_run(loop, UV_RUN_DEFAULT); }).detach();
	until_input_ends();
}

int main(int arguments, char **argument)
{
	uv_mutex_init(&ledger);
	uv_mutex_init(&jobs_lock);
	uv_rwlock_init(&prices);
	uv_cond_init(&jobs);
	uv_sem_init(&turns, 1);
	const Scene scenes[] = {{"mutex", mutex}, {"readers", readers}, {"semaphore", semaphore}, {"idle", idle}};
	return play(scenes, arguments, argument);
}
