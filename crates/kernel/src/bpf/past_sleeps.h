/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The last times in which a thread did not run, and why: for those whom it made wait. The loader reads them, too.
 */
#ifndef LOCKMETER_PAST_SLEEPS_H
#define LOCKMETER_PAST_SLEEPS_H

/* A sleep, or a time in which the thread had no CPU; or several of one kind. */
struct past_sleep {
	__u64 begin_ns;
	__u64 end_ns;
	/* For so long of that. */
	__u64 spent_ns;
	/* For what, as the threads' time says it, and in which call. */
	__u64 did;
};

/* The last ones are kept each, and of those before the ones of each kind together. */
#define LAST_SLEEPS 4
#define KINDS_OF_SLEEPS 3
#define PAST_SLEEPS (LAST_SLEEPS + KINDS_OF_SLEEPS)

struct past_sleeps {
	__u64 kept;
	struct past_sleep sleeps[PAST_SLEEPS];
};

#endif
