/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What runs on a CPU right now: interrupts, softirqs and what they call, on a short stack for each CPU.
 *
 * A program on a lower level may be interrupted at any point by one on a higher, which leaves the stack as it found it.
 */
#ifndef LOCKMETER_LATENCY_NESTING_BPF_H
#define LOCKMETER_LATENCY_NESTING_BPF_H

#include "counting.bpf.h"
#include "waits.bpf.h"

#define RUNNER_OF(key) ((__u32)((key) >> 56))

/* A high-resolution timer runs on the level of the one that looks for expired ones: the timer interrupt or its own softirq. */
static __always_inline __u32 level_of(__u32 runner, const struct run_cpu *cpu, __u32 depth)
{
	const struct run *outer;

	if (runner == RUNNER_IRQ)
		return LEVEL_HARD;
	if (runner != RUNNER_HRTIMER)
		return LEVEL_SOFT;
	if (!depth)
		return LEVEL_HARD;
	outer = &cpu->stack[(depth - 1) % NESTED_RUNS];
	if (outer->level == LEVEL_SOFT && outer->key == RUNNER_KEY(RUNNER_SOFTIRQ, SOFTIRQ_HRTIMER))
		return LEVEL_SOFT;
	return LEVEL_HARD;
}

static __always_inline struct run *begin_run(struct run_cpu *cpu, enum window window, __u32 runner, __u64 key)
{
	struct run_buffer *buffer;
	struct run *run;
	__u32 depth;

	if (cpu->resumed != *(volatile __u32 *)&resumed) {
		cpu->resumed = *(volatile __u32 *)&resumed;
		cpu->depth = 0;
	}
	depth = live_depth(cpu);
	if (depth >= NESTED_RUNS) {
		/* No kernel nests so deep: ends were not seen. */
		buffer = this_buffer(&buffers);
		if (buffer)
			__sync_fetch_and_add(&buffer->losses[RUN_LOSS_RUN_UNPAIRED], NESTED_RUNS);
		depth = 0;
	}
	/* Takes the place first: an interrupt from here on takes the next. */
	cpu->depth = depth + 1;
	barrier();
	run = &cpu->stack[depth % NESTED_RUNS];
	run->level = level_of(runner, cpu, depth);
	run->key = key;
	run->window = (state_of_window(window) >> WINDOW_BITS << WINDOW_BITS) | window;
	run->delay = UNKNOWN_NS;
	run->called_ns = 0;
	if (threshold_ns)
		forget_waits(&cpu->waits[depth % NESTED_RUNS]);
	/* Before the clock is read: an interrupt in between makes the run a little too short, never too long. */
	*(volatile __u64 *)&run->interrupted_ns = 0;
	run->begin_ns = bpf_ktime_get_ns();
	return run;
}

struct ended {
	__u64 key;
	__u64 begin_ns;
	__u64 delay;
	__u64 run_ns;
	__u64 own_ns;
	struct lock_waits *waits;
};

/* What ran on a level above has interrupted `outer`; on the same it was called by it. */
static __always_inline void tell_outer(struct run *outer, const struct run *inner, __u64 wall_ns, __u64 run_ns,
				       __u64 interrupted_ns)
{
	if (outer->level != inner->level) {
		__sync_fetch_and_add(&outer->interrupted_ns, wall_ns);
		return;
	}
	if (interrupted_ns)
		__sync_fetch_and_add(&outer->interrupted_ns, interrupted_ns);
	if (is_counted(RUNNER_OF(inner->key)))
		outer->called_ns += run_ns;
}

/* Takes this CPU's innermost run of a kind off the stack; 0 if there is none. */
static __always_inline int end_run(struct run_cpu *cpu, struct run_buffer *buffer, enum window window, __u32 runner,
				   __u64 now, struct ended *ended)
{
	__u64 wall_ns, interrupted_ns;
	struct run *run, *outer;
	__u32 at = cpu->depth;

	if (cpu->resumed != *(volatile __u32 *)&resumed)
		return 0;
	for (int i = 0; i < NESTED_RUNS && at; i++) {
		run = &cpu->stack[(at - 1) % NESTED_RUNS];
		if (RUNNER_OF(run->key) == runner)
			break;
		at--;
	}
	if (!at) {
		/* Where there are windows, what began before one is left to the kernel's own count. */
		if (!(state_of_window(window) >> WINDOW_BITS))
			lose_run(buffer, RUN_LOSS_RUN_UNPAIRED);
		return 0;
	}
	if (cpu->depth > at && !(state_of_window(window) >> WINDOW_BITS))
		__sync_fetch_and_add(&buffer->losses[RUN_LOSS_RUN_UNPAIRED], cpu->depth - at);
	at--;
	run = &cpu->stack[at % NESTED_RUNS];
	interrupted_ns = *(volatile __u64 *)&run->interrupted_ns;
	wall_ns = now - run->begin_ns;
	ended->key = run->key;
	ended->begin_ns = run->begin_ns;
	ended->delay = run->delay;
	ended->run_ns = wall_ns > interrupted_ns ? wall_ns - interrupted_ns : 0;
	ended->own_ns = ended->run_ns > run->called_ns ? ended->run_ns - run->called_ns : 0;
	ended->waits = &cpu->waits[at % NESTED_RUNS];
	if (at && is_live(&cpu->stack[(at - 1) % NESTED_RUNS])) {
		outer = &cpu->stack[(at - 1) % NESTED_RUNS];
		tell_outer(outer, run, wall_ns, ended->run_ns, interrupted_ns);
		if (threshold_ns && outer->level == run->level && ended->waits->used)
			pass_on_waits(&cpu->waits[(at - 1) % NESTED_RUNS], ended->waits);
	} else {
		cpu->interrupts_ns += wall_ns;
	}
	barrier();
	cpu->depth = at;
	return 1;
}

static __always_inline void finish_run(struct run_cpu *cpu, enum window window, __u32 runner, const char *name)
{
	__u64 now = bpf_ktime_get_ns();
	struct run_buffer *buffer = this_buffer(&buffers);
	struct ended ended;

	if (!buffer)
		return;
	if (!end_run(cpu, buffer, window, runner, now, &ended) || !is_counted(runner))
		return;
	count_run(buffer, ended.key, ended.run_ns, ended.own_ns, ended.delay, name);
	if (is_long(ended.run_ns, ended.waits)) {
		struct single_run run = {
			.key = ended.key,
			.begin_ns = ended.begin_ns,
			.run_ns = ended.run_ns,
			.delay = ended.delay,
		};

		list_long_run(buffer, &run, ended.waits);
	}
}

#endif
