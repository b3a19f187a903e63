/*
 * loads-libraries LIBRARY: loads and unloads a library with locks a thousand times, past the global scope, into a namespace of its own,
 * from several threads, and forks after its handlers are gone.
 */
#include <dlfcn.h>

#include "processes.h"

static const char *library;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int use(void *handle)
{
	int (*function)(void) = handle ? (int (*)(void))dlsym(handle, "library_use") : NULL;

	return function ? function() : -1;
}

static void *load_often(void *flags)
{
	for (int i = 0; i < 100; i++) {
		void *handle = dlopen(library, (int)(long)flags);

		pthread_mutex_lock(&mutex);
		use(handle);
		pthread_mutex_unlock(&mutex);
		dlclose(handle);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	static const int flags[] = {RTLD_NOW, RTLD_LAZY | RTLD_GLOBAL, RTLD_NOW | RTLD_DEEPBIND};
	pthread_t threads[3];
	void *handle;
	int sum = 0;

	if (count < 2)
		return 1;
	library = arguments[1];
	for (int way = 0; way < 3; way++) {
		for (int i = 0; i < 200; i++) {
			handle = dlopen(library, flags[way]);
			sum += use(handle);
			sum += dlclose(handle);
		}
		printf("way %d: %d\n", way, sum);
	}
	handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
	printf("in a namespace of its own: %d\n", use(handle));
	SAY(dlclose(handle));
	handle = dlopen(library, RTLD_NOW);
	((void (*)(void))dlsym(handle, "library_register"))();
	SAY(dlclose(handle));
	pid_t child = fork_clean();
	if (!child)
		_exit(42);
	SAY(end_of(child));
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, load_often, (void *)(long)flags[i]);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	SAY(dlopen("/no/such/library.so", RTLD_NOW) == NULL);
	puts(dlerror());
	return RAN;
}
