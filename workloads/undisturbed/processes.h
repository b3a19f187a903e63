/* Children whose end is part of the transcript. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <signal.h>
#include <sys/wait.h>

#include "transcript.h"

/* How a child ended: its status, or minus the signal. */
static inline int end_of(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, __WALL) == -1)
		if (errno != EINTR)
			return 1000 + errno;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* fork, with nothing left to be written twice. A child that hangs is ended by SIGALRM. */
static inline pid_t fork_clean(void)
{
	fflush(stdout);
	pid_t child = fork();
	if (!child)
		alarm(60);
	return child;
}

#endif
