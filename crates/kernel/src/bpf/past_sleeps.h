/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The last sleeps of a thread, which are told of whom it made wait: also to the loader.
 */
#ifndef LOCKMETER_PAST_SLEEPS_H
#define LOCKMETER_PAST_SLEEPS_H

struct past_sleep {
	__u64 begin_ns;
	__u64 end_ns;
	/* For what, as the threads' time says it. */
	__u64 state;
};

/* Sleeps that are kept of a thread. */
#define PAST_SLEEPS 4

struct past_sleeps {
	__u64 kept;
	struct past_sleep sleeps[PAST_SLEEPS];
};

#endif
