// GCC's OpenMP: critical sections, its locks, barriers, and a team without work.
#include "scenes.h"

#include <omp.h>

static omp_lock_t ledger;
static omp_nest_lock_t tree;

APART static void post_entry()
{
	omp_set_lock(&ledger);
	hold();
	omp_unset_lock(&ledger);
	STAY;
}

APART static void walk_tree()
{
	omp_set_nest_lock(&tree);
	hold();
	omp_unset_nest_lock(&tree);
	STAY;
}

APART static void add_total()
{
#pragma omp critical(total)
	hold();
	STAY;
}

static void team(void (*work)())
{
	std::thread([] {
		await_end_of_input();
		over = true;
	}).detach();
#pragma omp parallel num_threads(4)
	while (!over)
		work();
}

static void critical()
{
	team(add_total);
}

static void lock()
{
	omp_init_lock(&ledger);
	team(post_entry);
}

static void nested()
{
	omp_init_nest_lock(&tree);
	team(walk_tree);
}

// One thread of a team works, the others wait for it at the barrier.
static void barrier()
{
#pragma omp parallel num_threads(4)
	{
		if (omp_get_thread_num() == 0)
			until_input_ends();
#pragma omp barrier
	}
}

// A team that has had work, and gets no more.
static void idle()
{
#pragma omp parallel num_threads(4)
	compute(1);
	until_input_ends();
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {
		{"critical", critical}, {"lock", lock}, {"nested", nested}, {"barrier", barrier}, {"idle", idle}};
	return play(scenes, arguments, argument);
}
