/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions that acquire and release locks that sleep. No guard: included once for each way of hooking them, which says what
 * these words expand to.
 */
ACQUIRES(mutex_lock, KIND_MUTEX, MODE_EXCLUSIVE)
WRAPS(mutex_lock_io, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS(mutex_lock_interruptible, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS(mutex_lock_killable, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS_UNTRACED(ww_mutex_lock, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS_UNTRACED(ww_mutex_lock_interruptible, KIND_MUTEX, MODE_EXCLUSIVE)
WRAPS_TRIES(ww_mutex_trylock, KIND_MUTEX, MODE_EXCLUSIVE)
TRIES(mutex_trylock, KIND_MUTEX, MODE_EXCLUSIVE)
RELEASES(mutex_unlock, KIND_MUTEX, MODE_EXCLUSIVE)

ACQUIRES(down_read, KIND_RWSEM, MODE_READ)
ACQUIRES_OR_FAILS(down_read_interruptible, KIND_RWSEM, MODE_READ)
ACQUIRES_OR_FAILS(down_read_killable, KIND_RWSEM, MODE_READ)
TRIES(down_read_trylock, KIND_RWSEM, MODE_READ)
ACQUIRES(down_write, KIND_RWSEM, MODE_WRITE)
ACQUIRES_OR_FAILS(down_write_killable, KIND_RWSEM, MODE_WRITE)
TRIES(down_write_trylock, KIND_RWSEM, MODE_WRITE)
RELEASES(up_read, KIND_RWSEM, MODE_READ)
RELEASES(up_write, KIND_RWSEM, MODE_WRITE)

DOWNGRADES(downgrade_write, KIND_RWSEM)

/* Before it sleeps, it spins for a writer that runs, and no tracepoint tells. */
WAITS_UNTRACED(rwsem_down_write_slowpath)

/* Readers of a percpu-rwsem touch only a counter of their CPU, inline: no function, no hook. */
ACQUIRES_UNTRACED(percpu_down_write, KIND_PERCPU_RWSEM, MODE_WRITE)
RELEASES(percpu_up_write, KIND_PERCPU_RWSEM, MODE_WRITE)
