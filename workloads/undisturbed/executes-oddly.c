/*
 * executes-oddly [child]: it executes itself in odd ways: without an environment, from a file in memory, by a descriptor, through a link of
 * the kernel's; and what cannot be executed, for which the kernel has an errno each: also arguments at addresses where nothing is.
 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "processes.h"

#define STARTED 9

extern char **environ;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Nothing is mapped there, which the compiler must not know. */
static char **volatile nowhere = (char **)16;
static char *volatile text_nowhere = (char *)16;

static void bad_environments(char **words);

/* Says how the child ended that called it; its errno, if it went on. */
#define IN_CHILD(call)                                                                                                 \
	do {                                                                                                           \
		pid_t child_ = fork_clean();                                                                           \
		if (!child_) {                                                                                         \
			errno = 4711;                                                                                  \
			int status_ = (call);                                                                          \
			printf("%d errno %d\n", status_, errno);                                                       \
			fflush(stdout);                                                                                \
			_exit(1);                                                                                      \
		}                                                                                                      \
		printf("%-60s ended %d\n", #call, end_of(child_));                                                     \
	} while (0)

/* A copy of this program in memory. */
static int in_memory(unsigned int flags)
{
	int self = open("/proc/self/exe", O_RDONLY), file = memfd_create("copy", flags);
	struct stat data;

	fstat(self, &data);
	sendfile(file, self, NULL, data.st_size);
	close(self);
	return file;
}

/* One that holds such an address, that has no end before nothing is mapped, or one of whose variables has none. */
static void bad_environments(char **words)
{
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *text = memory + 4092, *with_nowhere[] = {"A=1", text_nowhere, NULL}, *with_text[] = {text, NULL};
	char **endless = (char **)(memory + 4096) - 2, *long_text = malloc(10000), *with_long[] = {long_text, NULL};

	munmap(memory + 4096, 4096);
	IN_CHILD(execve("/proc/self/exe", words, with_nowhere));
	IN_CHILD(execve("/no/such/program", words, with_nowhere));
	memcpy(text, "A=bc", 4);
	IN_CHILD(execve("/proc/self/exe", words, with_text));
	endless[0] = endless[1] = "A=1";
	IN_CHILD(execve("/proc/self/exe", words, endless));
	memset(long_text, 'A', 10000);
	long_text[9999] = 0;
	IN_CHILD(execve("/proc/self/exe", words, with_long));
	free(long_text);
}

int main(int count, char **arguments)
{
	char *words[] = {"executes-oddly", "child", NULL}, *none[] = {NULL}, *one[] = {"A=b", NULL};
	static char long_word[3 << 20];
	char *long_words[] = {"executes-oddly", long_word, NULL};
	int file = in_memory(0), closed_on_exec = in_memory(MFD_CLOEXEC), self = open("/proc/self/exe", O_RDONLY);
	pid_t child;

	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	if (count > 1)
		return STARTED;
	IN_CHILD(execve("/proc/self/exe", words, environ));
	IN_CHILD(execve(arguments[0], words, NULL));
	IN_CHILD(execve(arguments[0], words, none));
	IN_CHILD(execve(arguments[0], words, one));
	IN_CHILD(fexecve(file, words, environ));
	IN_CHILD(fexecve(closed_on_exec, words, environ));
	IN_CHILD(fexecve(file, words, one));
	IN_CHILD(execveat(self, "", words, environ, AT_EMPTY_PATH));
	IN_CHILD(execl(arguments[0], "executes-oddly", "child", NULL));
	IN_CHILD(execvpe("true", words, none));

	IN_CHILD(execve("/nonexistent", words, environ));
	IN_CHILD(execve("/etc/passwd", words, environ));
	IN_CHILD(execve("/tmp", words, environ));
	IN_CHILD(execve("", words, environ));
	IN_CHILD(execvp("nonexistent-program", words));
	IN_CHILD(fexecve(-1, words, environ));
	IN_CHILD(execveat(self, "below", words, environ, 0));
	memset(long_word, 'x', sizeof(long_word) - 1);
	IN_CHILD(execve("/proc/self/exe", long_words, environ));

	IN_CHILD(execve(text_nowhere, words, environ));
	IN_CHILD(execve("/proc/self/exe", nowhere, environ));
	IN_CHILD(execve("/proc/self/exe", words, nowhere));
	IN_CHILD(execveat(self, text_nowhere, words, environ, AT_EMPTY_PATH));
	IN_CHILD(fexecve(self, words, nowhere));
	bad_environments(words);

	SAY(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ));
	printf("ended %d\n", end_of(child));
	SAY(posix_spawnp(&child, "nonexistent-program", NULL, NULL, words, environ));
	SAY(posix_spawn(&child, "/tmp", NULL, NULL, words, environ));
	fflush(stdout);
	SAY(system("exit 3"));
	SAY(system(NULL));
	clearenv();
	SAY(system("exit 4"));
	IN_CHILD(execve("/proc/self/exe", words, environ));
	return RAN;
}
