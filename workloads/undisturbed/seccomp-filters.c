/*
 * seccomp-filters before|after|tsync|exec|errno|trap: a filter that allows only the system calls that the program makes itself.
 * Installed before the first thread, after it, for all threads at once, or inherited over exec; it kills, fails the call or sends
 * SIGSYS.  Then threads contend, and new ones begin.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "transcript.h"

/* What glibc does for locks, threads, output and the end; a file that is written is looked at first. */
static const int allowed[] = {SYS_futex,      SYS_clock_nanosleep, SYS_write,	    SYS_exit,
			      SYS_exit_group, SYS_clone3,	   SYS_mmap,	    SYS_mprotect,
			      SYS_munmap,     SYS_madvise,	   SYS_rseq,	    SYS_set_robust_list,
			      SYS_brk,	      SYS_fstat,	   SYS_newfstatat,  SYS_rt_sigprocmask,
			      SYS_getrandom,  SYS_rt_sigreturn,	   SYS_rt_sigaction};

/* And what a program's start takes. */
static const int allowed_at_start[] = {SYS_execve,    SYS_arch_prctl, SYS_access, SYS_openat,
				       SYS_read,      SYS_pread64,    SYS_close,  SYS_set_tid_address,
				       SYS_prlimit64, SYS_getpid,     SYS_gettid, SYS_sigaltstack,
				       SYS_readlink,  SYS_lseek,      SYS_getcwd, SYS_sched_getaffinity};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static atomic_int go = 1, trapped;
static int counted;

static void *work(void *argument)
{
	while (!go)
		usleep(100);
	for (int i = 0; i < 100; i++) {
		pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

		pthread_mutex_lock(&mutex);
		counted++;
		if (i % 10 == 0)
			usleep(200);
		pthread_cond_broadcast(&condition);
		pthread_mutex_unlock(&mutex);
		pthread_mutex_lock(&recursive);
		pthread_mutex_unlock(&recursive);
		pthread_rwlock_wrlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		pthread_mutex_lock(&own);
		pthread_mutex_unlock(&own);
	}
	return argument;
}

static void trap(int number)
{
	(void)number;
	trapped++;
}

static int install(unsigned int action, unsigned int flags, int with_start)
{
	struct sock_filter program[128];
	struct sock_fprog filter = {.filter = program};
	size_t length = 0, calls = sizeof(allowed) / sizeof(*allowed);
	size_t at_start = with_start ? sizeof(allowed_at_start) / sizeof(*allowed_at_start) : 0;

	program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < calls + at_start; i++) {
		int call = i < calls ? allowed[i] : allowed_at_start[i - calls];

		program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 1);
		program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
	filter.len = (unsigned short)length;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

int main(int count, char **arguments)
{
	const char *form = count > 1 ? arguments[1] : "before";
	int is_after = !strcmp(form, "after") || !strcmp(form, "tsync");
	unsigned int action = !strcmp(form, "errno")  ? SECCOMP_RET_ERRNO | EPERM
			      : !strcmp(form, "trap") ? SECCOMP_RET_TRAP
						      : SECCOMP_RET_KILL_PROCESS;
	struct sigaction on_trap = {.sa_handler = trap};
	pthread_t threads[4], late;

	sigaction(SIGSYS, &on_trap, NULL);
	if (is_after) {
		go = 0;
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, work, NULL);
		usleep(1000);
	}
	if (strcmp(form, "inherited") &&
	    install(action, strcmp(form, "tsync") ? 0 : SECCOMP_FILTER_FLAG_TSYNC, !strcmp(form, "exec")))
		return 3;
	if (!strcmp(form, "exec")) {
		execl("/proc/self/exe", "seccomp-filters", "inherited", NULL);
		return 4;
	}
	go = 1;
	if (!is_after)
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, work, NULL);
	pthread_mutex_lock(&mutex);
	while (counted < 200)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	pthread_create(&late, NULL, work, NULL);
	pthread_join(late, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d, trapped %d\n", counted, trapped);
	return RAN;
}
