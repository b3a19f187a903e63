/* fills-static-storage LIBRARY...: loads libraries whose thread-local data must fit into the static block, until one does not. */
#include <dlfcn.h>

#include "transcript.h"

static void *use(void *handle)
{
	int (*function)(void) = (int (*)(void))dlsym(handle, "library_use");

	return (void *)(long)function();
}

int main(int count, char **arguments)
{
	for (int i = 1; i < count; i++) {
		void *handle = dlopen(arguments[i], RTLD_NOW);

		printf("library %d: loaded %d", i, handle != NULL);
		if (handle)
			printf(", used %ld and %ld", (long)use(handle), (long)in_thread(use, handle));
		puts("");
	}
	return RAN;
}
