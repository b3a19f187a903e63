// SPDX-License-Identifier: GPL-2.0
/*
 * Meters what keeps a CPU from its tasks: hard interrupts, softirqs, tasklets, timers, high-resolution timers, work items.
 *
 * A run is from a tracepoint's entry to its exit, less what interrupted it: a timer is not blamed for the network card that
 * came in between. What one of them calls and what is counted by itself (the timers of a softirq) is part of its run, but
 * not of its own time, so that own times can be added up.
 *
 * Nothing here takes a lock or allocates, except task-local storage the first time a worker works.
 */
#include "work_items.bpf.h"
#include "nesting.bpf.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* This CPU's state, with the run counted; null while paused. */
static __always_inline struct run_cpu *metering(enum run_program program)
{
	struct run_cpu *cpu = this_cpu();

	if (*(volatile __u32 *)&paused || !cpu)
		return 0;
	cpu->runs[program]++;
	return cpu;
}

/* The same for what begins; null also where it is not to be timed now. */
static __always_inline struct run_cpu *metering_begin(enum run_program program, enum window window)
{
	struct run_cpu *cpu = metering(program);

	return cpu && WINDOW_OF(state_of_window(window)) == WINDOW_OPEN ? cpu : 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_entry, int irq, struct irqaction *action)
{
	struct run_cpu *cpu = metering_begin(RUN_PROGRAM_IRQ_ENTRY, WINDOW_IRQS);

	if (cpu)
		begin_run(cpu, WINDOW_IRQS, RUNNER_IRQ, RUNNER_KEY(RUNNER_IRQ, IRQ_ID(irq, action->handler)));
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_exit, int irq, struct irqaction *action)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_IRQ_EXIT);

	if (cpu)
		finish_run(cpu, WINDOW_IRQS, RUNNER_IRQ, action->name);
	return 0;
}

/* Interrupts of the CPU itself have tracepoints of their own. */
#define VECTOR_PROGRAMS(tracepoint, name, vector, program, window)                                                     \
	SEC("tp_btf/" #tracepoint "_entry")                                                                            \
	int BPF_PROG(name##_entry)                                                                                     \
	{                                                                                                              \
		struct run_cpu *cpu = metering_begin(RUN_PROGRAM_##program##_ENTRY, window);                           \
		__u64 key = RUNNER_KEY(RUNNER_IRQ, IRQ_ID(VECTOR_NUMBERS + (vector), 0));                              \
                                                                                                                       \
		if (cpu)                                                                                               \
			begin_run(cpu, window, RUNNER_IRQ, key);                                                       \
		return 0;                                                                                              \
	}                                                                                                              \
                                                                                                                       \
	SEC("tp_btf/" #tracepoint "_exit")                                                                             \
	int BPF_PROG(name##_exit)                                                                                      \
	{                                                                                                              \
		struct run_cpu *cpu = metering(RUN_PROGRAM_##program##_EXIT);                                          \
                                                                                                                       \
		if (cpu)                                                                                               \
			finish_run(cpu, window, RUNNER_IRQ, 0);                                                        \
		return 0;                                                                                              \
	}

VECTOR_PROGRAMS(local_timer, local_timer, VECTOR_LOCAL_TIMER, LOCAL_TIMER, WINDOW_ALWAYS)
VECTOR_PROGRAMS(reschedule, reschedule, VECTOR_RESCHEDULE, RESCHEDULE, WINDOW_VECTORS)
VECTOR_PROGRAMS(call_function, call, VECTOR_CALL_FUNCTION, CALL, WINDOW_VECTORS)
VECTOR_PROGRAMS(call_function_single, call_single, VECTOR_CALL_FUNCTION, CALL_SINGLE, WINDOW_VECTORS)
VECTOR_PROGRAMS(irq_work, irq_work, VECTOR_IRQ_WORK, IRQ_WORK, WINDOW_ALWAYS)
VECTOR_PROGRAMS(thermal_apic, thermal, VECTOR_THERMAL, THERMAL, WINDOW_ALWAYS)

/* The first of several raises: the others change nothing. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vector)
{
	struct run_cpu *cpu = metering_begin(RUN_PROGRAM_SOFTIRQ_RAISE, WINDOW_SOFTIRQS);

	if (cpu && !cpu->raised_ns[vector % SOFTIRQS])
		cpu->raised_ns[vector % SOFTIRQS] = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vector)
{
	struct run_cpu *cpu = metering_begin(RUN_PROGRAM_SOFTIRQ_ENTRY, WINDOW_SOFTIRQS);
	__u64 raised_ns;
	struct run *run;

	if (!cpu)
		return 0;
	run = begin_run(cpu, WINDOW_SOFTIRQS, RUNNER_SOFTIRQ, RUNNER_KEY(RUNNER_SOFTIRQ, vector));
	raised_ns = cpu->raised_ns[vector % SOFTIRQS];
	cpu->raised_ns[vector % SOFTIRQS] = 0;
	if (raised_ns && raised_ns < run->begin_ns && cpu->entered[vector % SOFTIRQS] == run->window >> WINDOW_BITS)
		run->delay = run->begin_ns - raised_ns;
	cpu->entered[vector % SOFTIRQS] = run->window >> WINDOW_BITS;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_SOFTIRQ_EXIT);

	if (cpu)
		finish_run(cpu, WINDOW_SOFTIRQS, RUNNER_SOFTIRQ, 0);
	return 0;
}

SEC("tp_btf/tasklet_entry")
int BPF_PROG(tasklet_entry, void *tasklet, void *function)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_TASKLET_ENTRY);

	if (cpu)
		begin_run(cpu, WINDOW_ALWAYS, RUNNER_TASKLET, RUNNER_KEY(RUNNER_TASKLET, function));
	return 0;
}

SEC("tp_btf/tasklet_exit")
int BPF_PROG(tasklet_exit)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_TASKLET_EXIT);

	if (cpu)
		finish_run(cpu, WINDOW_ALWAYS, RUNNER_TASKLET, 0);
	return 0;
}

/* `tick`: when the wheel had it due. What its slots round up was agreed, and is no delay. */
SEC("tp_btf/timer_expire_entry")
int BPF_PROG(timer_entry, struct timer_list *timer, unsigned long tick)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_TIMER_ENTRY);
	struct run *run;
	__s64 late;

	if (!cpu)
		return 0;
	run = begin_run(cpu, WINDOW_ALWAYS, RUNNER_TIMER, RUNNER_KEY(RUNNER_TIMER, timer->function));
	late = bpf_jiffies64() - tick;
	run->delay = late > 0 ? late : 0;
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(timer_exit)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_TIMER_EXIT);

	if (cpu)
		finish_run(cpu, WINDOW_ALWAYS, RUNNER_TIMER, 0);
	return 0;
}

/* From when it may run at the earliest: the slack that its owner granted (50 us of every sleep) counts as delay. */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_entry, struct hrtimer *timer)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_HRTIMER_ENTRY);
	struct run *run;
	__s64 late_ns;

	if (!cpu)
		return 0;
	run = begin_run(cpu, WINDOW_ALWAYS, RUNNER_HRTIMER, RUNNER_KEY(RUNNER_HRTIMER, timer->function));
	late_ns = run->begin_ns + timer->base->offset - timer->_softexpires;
	run->delay = late_ns > 0 ? late_ns : 0;
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_exit)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_HRTIMER_EXIT);

	if (cpu)
		finish_run(cpu, WINDOW_ALWAYS, RUNNER_HRTIMER, 0);
	return 0;
}

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(work_queue, int cpu_asked_for, void *pool, struct work_struct *work)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_WORK_QUEUE);

	if (!cpu)
		return 0;
	*(volatile __u64 *)&cpu->work_queued = (__u64)work;
	remember_queued(*(volatile __u64 *)&cpu->work_queued);
	return 0;
}

/* Whether something is known to run on this CPU that keeps it from its task: then so does a work item that begins. */
static __always_inline int is_nested(struct run_cpu *cpu)
{
	return cpu->resumed == *(volatile __u32 *)&resumed && live_depth(cpu);
}

/* Whether a worker is in the midst of an item. One that begins meanwhile is a softirq's. */
static __always_inline int is_working(const struct worker *worker)
{
	return worker->key && worker->resumed == *(volatile __u32 *)&resumed;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_start, struct work_struct *work)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_WORK_START);
	__u64 key = RUNNER_KEY(RUNNER_WORK, work->func), address;
	struct task_struct *task = bpf_get_current_task_btf();
	struct worker *worker = 0;
	struct run_buffer *buffer;
	struct run *run;

	if (!cpu)
		return 0;
	cpu->items_begun++;
	*(volatile __u64 *)&cpu->work_started = (__u64)work;
	address = *(volatile __u64 *)&cpu->work_started;
	if (!is_nested(cpu))
		worker = bpf_task_storage_get(&workers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (worker && !is_working(worker)) {
		begin_item(worker, cpu, task, key, address);
		return 0;
	}
	if (worker || is_nested(cpu)) {
		run = begin_run(cpu, WINDOW_ALWAYS, RUNNER_WORK, key);
		run->delay = take_queued(address, run->begin_ns);
		return 0;
	}
	buffer = this_buffer(&buffers);
	if (buffer)
		lose_run(buffer, RUN_LOSS_NO_TASK_STORAGE);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(work_end)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_WORK_END);
	struct task_struct *task = bpf_get_current_task_btf();
	struct run_buffer *buffer = this_buffer(&buffers);
	struct worker *worker;

	if (!cpu || !buffer)
		return 0;
	if (is_nested(cpu)) {
		cpu->items_ended++;
		finish_run(cpu, WINDOW_ALWAYS, RUNNER_WORK, 0);
		return 0;
	}
	worker = bpf_task_storage_get(&workers, task, 0, 0);
	if (!worker || !is_working(worker)) {
		lose_run(buffer, RUN_LOSS_RUN_UNPAIRED);
		return 0;
	}
	cpu->items_ended++;
	end_item(worker, cpu, buffer, task);
	return 0;
}

static __always_inline struct worker *working(struct task_struct *task)
{
	struct worker *worker;

	if (!(task->flags & PF_WQ_WORKER))
		return 0;
	worker = bpf_task_storage_get(&workers, task, 0, 0);
	return worker && worker->key ? worker : 0;
}

/* Whose waits these are: those of what runs on this CPU, else of the item that this worker works on. */
static __always_inline struct lock_waits *waits_now(struct run_cpu *cpu)
{
	struct worker *worker;

	if (cpu->depth)
		return &cpu->waits[(cpu->depth - 1) % NESTED_RUNS];
	worker = working(bpf_get_current_task_btf());
	return worker ? &worker->waits : 0;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(lock_begin, void *lock, unsigned int flags)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_LOCK_BEGIN);
	struct run_buffer *buffer = this_buffer(&buffers);
	struct lock_waits *waits;

	if (!cpu || !buffer)
		return 0;
	waits = waits_now(cpu);
	if (waits)
		begin_wait(waits, (__u64)lock,
			   look_up_class((__u64)lock, &cpu->slab_cache, &buffer->losses[RUN_LOSS_CACHES_FULL]),
			   kind_mode_of(flags));
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(lock_end, void *lock)
{
	struct run_cpu *cpu = metering(RUN_PROGRAM_LOCK_END);
	struct lock_waits *waits;

	if (!cpu)
		return 0;
	waits = waits_now(cpu);
	if (waits)
		end_wait(ctx, waits, (__u64)lock);
	return 0;
}
