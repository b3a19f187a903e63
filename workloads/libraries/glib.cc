// GLib's locks and conditions. Its headers take more room than the library: what is used of them stands here.
#include "scenes.h"

extern "C" {
struct GMutex {
	void *word;
};
struct GCond {
	void *word;
	unsigned words[2];
};
void g_mutex_lock(GMutex *);
void g_mutex_unlock(GMutex *);
void g_cond_wait(GCond *, GMutex *);
}

static GMutex ledger, jobs_lock;
static GCond jobs;

APART static void post_entry()
{
	g_mutex_lock(&ledger);
	hold();
	g_mutex_unlock(&ledger);
	STAY;
}

static void mutex()
{
	repeat(4, post_entry);
}

static void idle()
{
	for (int thread = 0; thread < 2; thread++)
		std::thread([] {
			g_mutex_lock(&jobs_lock);
			while (true)
				g_cond_wait(&jobs, &jobs_lock);
		}).detach();
	until_input_ends();
}

int main(int arguments, char **argument)
{
	const Scene scenes[] = {{"mutex", mutex}, {"idle", idle}};
	return play(scenes, arguments, argument);
}
