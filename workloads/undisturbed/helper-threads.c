/* Threads that libc makes for itself: for timers, asynchronous reads and message queues. They call the program, which locks. */
#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t done;
static int called;

static void call(union sigval value)
{
	pthread_mutex_lock(&mutex);
	called += value.sival_int;
	pthread_mutex_unlock(&mutex);
	sem_post(&done);
}

int main(void)
{
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 1, .sigev_notify_function = call};
	struct itimerspec soon_once = {.it_value.tv_nsec = MILLISECOND};
	struct aiocb reads[10];
	char bytes[10][16], name[64];
	int null = open("/dev/zero", O_RDONLY);
	timer_t timers[10];
	mqd_t queue;

	sem_init(&done, 0, 0);
	for (int i = 0; i < 10; i++) {
		SAY(timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
		SAY(timer_settime(timers[i], 0, &soon_once, NULL));
	}
	for (int i = 0; i < 10; i++)
		sem_wait(&done);
	for (int i = 0; i < 10; i++)
		SAY(timer_delete(timers[i]));
	event.sigev_value.sival_int = 100;
	for (int i = 0; i < 10; i++) {
		reads[i] = (struct aiocb){
			.aio_fildes = null, .aio_buf = bytes[i], .aio_nbytes = 16, .aio_sigevent = event};
		SAY(aio_read(&reads[i]));
	}
	for (int i = 0; i < 10; i++)
		sem_wait(&done);
	for (int i = 0; i < 10; i++)
		SAY((int)aio_return(&reads[i]));
	snprintf(name, sizeof(name), "/lockmeter-undisturbed-%d", getpid());
	queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
	if (queue != (mqd_t)-1) {
		event.sigev_value.sival_int = 10000;
		SAY(mq_unlink(name));
		SAY(mq_notify(queue, &event));
		SAY(mq_send(queue, "word", 4, 0));
		sem_wait(&done);
	}
	printf("called %d\n", called);
	return RAN;
}
