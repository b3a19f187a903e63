/*
 * pipe_inode_info.mutex: many threads write to and read from one pipe.
 *
 * pipe_write() and pipe_read() hold the pipe's mutex while they copy; the one that finds the pipe full or empty sleeps on its wait
 * queue and takes the mutex again when woken, so wakers and woken meet there.
 */
#include "workload.h"

#define MESSAGE_BYTES (16ul << 10)

static int pipe_ends[2];

static void open_pipe(void)
{
	if (pipe2(pipe_ends, O_CLOEXEC))
		fail_errno("pipe2");
}

static void write_or_read(struct worker *self)
{
	static const char message[MESSAGE_BYTES];
	char buffer[MESSAGE_BYTES];
	bool writes = self->index % 2 == 0;

	while (workload_running()) {
		ssize_t done = writes ? write(pipe_ends[1], message, sizeof(message))
				      : read(pipe_ends[0], buffer, sizeof(buffer));

		if (done < 0 && errno != EINTR)
			fail_errno("pipe");
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload pipe_crowd = {
		.name = "pipe-crowd",
		.about = "threads write to and read from one pipe (pipe_inode_info.mutex)",
		.threads = 8,
		.min_threads = 2,
		.setup = open_pipe,
		.worker = write_or_read,
	};

	return workload_main(argc, argv, &pipe_crowd);
}
