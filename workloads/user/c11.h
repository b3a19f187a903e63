/* With -DC11 the same mutexes are taken by C11's functions: glibc's mtx_t is a pthread_mutex_t inside. */
#ifndef C11_H
#define C11_H

#include <pthread.h>

#ifdef C11
#include <threads.h>
#define pthread_mutex_lock(mutex) mtx_lock((mtx_t *)(mutex))
#define pthread_mutex_trylock(mutex) mtx_trylock((mtx_t *)(mutex))
#define pthread_mutex_unlock(mutex) mtx_unlock((mtx_t *)(mutex))
#endif

#endif
