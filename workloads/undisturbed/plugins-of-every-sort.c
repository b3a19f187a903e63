/* plugins-of-every-sort LIBRARY: it is loaded as usual, bound to itself first, for all, and with a libc of its own; locks, and is closed. */
#include <dlfcn.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void use(const char *how, void *library)
{
	int (*library_use)(void) = library ? (int (*)(void))dlsym(library, "library_use") : NULL;

	if (!library_use) {
		printf("%s: not loaded\n", how);
		return;
	}
	printf("%s: %d", how, library_use());
	printf(" %d\n", library_use());
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	SAY(dlclose(library));
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 1;
	for (int i = 0; i < 3; i++) {
		use("as usual", dlopen(arguments[1], RTLD_NOW));
		use("bound to itself", dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND));
		use("for all", dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL));
		use("with its own libc", dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW));
	}
	return RAN;
}
