/* Calls that the kernel allows a process with a single thread alone, and one whose memory nobody shares. */
#include <sched.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	SAY(unshare(CLONE_THREAD | CLONE_VM | CLONE_SIGHAND));
	SAY(unshare(CLONE_NEWUSER));
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	printf("user %d\n", getuid());
	return RAN;
}
