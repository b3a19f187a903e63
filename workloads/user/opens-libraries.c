/*
 * Opens libraries in turn, calls each, closes it, and deletes it if it is called `deleted…`: the next one is mapped where this one was.
 *
 *     opens-libraries LIBRARY…
 *
 * Prints where each lay. Exit status: 7 ran, 9 could not open one.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* For libraries that have no lock of their own. */
pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW);
		void (*run)(void) = library ? (void (*)(void))dlsym(library, "run_library") : NULL;

		if (!run)
			return 9;
		printf("%p\n", (void *)run);
		run();
		dlclose(library);
		if (strstr(argv[i], "deleted"))
			unlink(argv[i]);
	}
	return 7;
}
