/* Teams of threads by OpenMP: critical sections, its locks, barriers and tasks, and pthread's mutex in between. */
#include <omp.h>

#include "transcript.h"

int main(void)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	omp_lock_t lock;
	int counted = 0, locked = 0, critical = 0, tasks = 0;

	omp_init_lock(&lock);
#pragma omp parallel num_threads(4)
	{
		for (int i = 0; i < 200; i++) {
			pthread_mutex_lock(&mutex);
			counted++;
			pthread_mutex_unlock(&mutex);
			omp_set_lock(&lock);
			locked++;
			omp_unset_lock(&lock);
#pragma omp critical
			critical++;
		}
#pragma omp barrier
#pragma omp single
		for (int i = 0; i < 100; i++) {
#pragma omp task
			{
#pragma omp atomic
				tasks++;
			}
		}
	}
	printf("counted %d, locked %d, critical %d, tasks %d\n", counted, locked, critical, tasks);
	return RAN;
}
