/* Functions whose unwind tables are wrong, each in another way, take a contended lock: who follows the stack must not fall off it. */
#include "transcript.h"

#define THREADS 4
#define ROUNDS 300

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;

/* A function that calls pthread_mutex_lock, with this in its table. */
#define LOCKING(name, table)                                                                                           \
	int name(pthread_mutex_t *lock);                                                                               \
	asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"                                        \
	    ".cfi_startproc\n\tsub $8, %rsp\n" table "\n\tcall pthread_mutex_lock@PLT\n\tadd $8, %rsp\n\tret\n"        \
	    ".cfi_endproc\n.size " #name ", .-" #name "\n")

LOCKING(far_away, ".cfi_def_cfa rsp, 0x10000000");
LOCKING(nothing_pushed, ".cfi_def_cfa rsp, 0");
LOCKING(below_itself, ".cfi_def_cfa rsp, -4096");
/* The caller's frame begins where a word of the stack says. */
LOCKING(by_expression, ".cfi_escape 0x0f, 3, 0x77, 0, 6");
LOCKING(in_another_register, ".cfi_register rip, rbx");
LOCKING(by_frame_pointer, ".cfi_def_cfa rbp, 16\n.cfi_offset rbp, -16");

static int (*const locking[])(pthread_mutex_t *) = {far_away,	   nothing_pushed,	below_itself,
						    by_expression, in_another_register, by_frame_pointer};

static void *work(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		int status = locking[i % (sizeof(locking) / sizeof(*locking))](&mutex);

		if (status)
			printf("status %d\n", status);
		counted++;
		usleep(50);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
