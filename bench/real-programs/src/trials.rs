//! The list of what is tried, in order.

use std::time::Duration;

use crate::load::Trial;
use crate::{cargo_build, frozen, idle_servers, mariadb, ours, postgresql};

const OFTEN: Duration = Duration::from_millis(50);
const BY_CONSTRUCTION: &str = "by construction: who sleeps in a futex waits for the lock";
const BY_SCHEDULER: &str = "the scheduler's account of its threads, which have nothing else to be blocked for";
const NOTHING_TO_DO: &str = "by construction nobody waits for a lock; what else, /proc tells";

const LIKE_MOST: Trial = Trial {
    name: "",
    what: "",
    source: NOTHING_TO_DO,
    until_it_runs: false,
    by_command: false,
    task: None,
    every: OFTEN,
    start: ours::idle_pool,
};

pub const TRIALS: &[Trial] = &[
    Trial {
        name: "postgresql-hot-row",
        what: "PostgreSQL, 16 clients update one row",
        source: postgresql::SOURCE,
        start: postgresql::hot_row,
        ..LIKE_MOST
    },
    Trial {
        name: "mariadb-hot-row",
        what: "MariaDB, 16 clients update one row",
        source: mariadb::SOURCE,
        every: mariadb::EVERY,
        start: mariadb::hot_row,
        ..LIKE_MOST
    },
    Trial {
        name: "deadlock",
        what: "C, two threads in a deadlock, one behind them",
        source: BY_CONSTRUCTION,
        start: ours::deadlock,
        ..LIKE_MOST
    },
    Trial {
        name: "held-lock",
        what: "C, five threads behind a thread that keeps two locks",
        source: BY_CONSTRUCTION,
        start: ours::held_lock,
        ..LIKE_MOST
    },
    Trial {
        name: "frozen-file-system",
        what: "dd, four writers of a frozen ext4",
        source: frozen::SOURCE,
        task: Some(frozen::TASK),
        start: frozen::writers,
        ..LIKE_MOST
    },
    Trial {
        name: "python-processes",
        what: "Python, six processes want one multiprocessing.Lock",
        source: "each process's own clock around acquire()",
        until_it_runs: true,
        start: ours::python_processes,
        ..LIKE_MOST
    },
    Trial {
        name: "python-threads",
        what: "Python, four threads compute",
        source: BY_SCHEDULER,
        start: ours::python_threads,
        ..LIKE_MOST
    },
    Trial {
        name: "malloc-arena",
        what: "glibc, six threads allocate from one arena",
        source: BY_SCHEDULER,
        start: ours::malloc_arena,
        ..LIKE_MOST
    },
    Trial {
        name: "malloc-arena-command",
        what: "the same, started by lockmeter",
        source: BY_SCHEDULER,
        by_command: true,
        start: ours::malloc_arena,
        ..LIKE_MOST
    },
    Trial {
        name: "stdio-stream",
        what: "glibc, six threads print to one stream",
        source: BY_SCHEDULER,
        start: ours::stdio_stream,
        ..LIKE_MOST
    },
    Trial {
        name: "stdio-stream-command",
        what: "the same, started by lockmeter",
        source: BY_SCHEDULER,
        by_command: true,
        start: ours::stdio_stream,
        ..LIKE_MOST
    },
    Trial {
        name: "go-mutex",
        what: "Go, eight goroutines want one sync.Mutex",
        source: "runtime/metrics, /sync/mutex/wait/total:seconds",
        until_it_runs: true,
        start: ours::go_mutex,
        ..LIKE_MOST
    },
    Trial {
        name: "java-monitor",
        what: "Java, eight threads want one monitor",
        source: "ThreadMXBean, blocked and waited time",
        until_it_runs: true,
        start: ours::java_monitor,
        ..LIKE_MOST
    },
    Trial {
        name: "java-reentrant-lock",
        what: "Java, eight threads want one ReentrantLock",
        source: "ThreadMXBean, blocked and waited time",
        until_it_runs: true,
        start: ours::java_reentrant_lock,
        ..LIKE_MOST
    },
    Trial {
        name: "rocksdb-writers",
        what: "RocksDB, eight threads write with the log synced",
        source: "perf_context, write_thread_wait_nanos",
        until_it_runs: true,
        start: ours::rocksdb,
        ..LIKE_MOST
    },
    Trial {
        name: "node-worker-lock",
        what: "node.js, four workers share a lock made of Atomics",
        source: "each worker's own clock around the lock",
        until_it_runs: true,
        start: ours::node,
        ..LIKE_MOST
    },
    Trial {
        name: "ruby-threads",
        what: "Ruby, four threads compute",
        source: BY_SCHEDULER,
        start: ours::ruby_threads,
        ..LIKE_MOST
    },
    Trial {
        name: "ruby-mutex",
        what: "Ruby, six threads share a connection behind a Mutex",
        source: "each thread's own clock around Mutex#lock",
        until_it_runs: true,
        start: ours::ruby_mutex,
        ..LIKE_MOST
    },
    Trial {
        name: "sqlite-processes",
        what: "SQLite, four processes write to one database",
        source: "each process's own clock around BEGIN IMMEDIATE",
        until_it_runs: true,
        start: ours::sqlite_processes,
        ..LIKE_MOST
    },
    Trial {
        name: "sqlite-threads",
        what: "SQLite, four threads write by one connection",
        source: "each thread's own clock around sqlite3_mutex_enter",
        until_it_runs: true,
        start: ours::sqlite_threads,
        ..LIKE_MOST
    },
    Trial {
        name: "openmp-critical",
        what: "OpenMP, a team wants one critical section",
        source: "each thread's own clock around the way into it",
        until_it_runs: true,
        start: ours::openmp_critical,
        ..LIKE_MOST
    },
    Trial {
        name: "openmp-barrier",
        what: "OpenMP, a team waits for its slowest at a barrier, no lock",
        source: "each thread's own clock around the barrier",
        until_it_runs: true,
        start: ours::openmp_barrier,
        ..LIKE_MOST
    },
    Trial {
        name: "idle-cargo-build",
        what: "cargo build of a tiny crate, six times",
        source: cargo_build::SOURCE,
        by_command: true,
        start: cargo_build::builds,
        ..LIKE_MOST
    },
    Trial {
        name: "idle-thread-pools",
        what: "C++, 16 threads with 10 tiny jobs a second",
        start: ours::idle_pool,
        ..LIKE_MOST
    },
    Trial {
        name: "idle-python-pool",
        what: "Python, a multiprocessing.Pool with 10 tiny jobs a second",
        start: ours::idle_python_pool,
        ..LIKE_MOST
    },
    Trial { name: "idle-java", what: "Java, a pool with 20 tiny jobs a second", start: ours::idle_java, ..LIKE_MOST },
    Trial { name: "idle-postgresql", what: "PostgreSQL, 16 clients connected", start: postgresql::idle, ..LIKE_MOST },
    Trial {
        name: "idle-ruby",
        what: "Ruby, six threads at a Queue with 10 tiny jobs a second",
        start: ours::idle_ruby,
        ..LIKE_MOST
    },
    Trial {
        name: "idle-redis-io",
        what: "Redis with four I/O threads, no client",
        source: idle_servers::REDIS_SOURCE,
        start: idle_servers::redis,
        ..LIKE_MOST
    },
    Trial {
        name: "idle-apache",
        what: "Apache, eight prefork processes, two ports, no client",
        source: idle_servers::APACHE_SOURCE,
        start: idle_servers::apache,
        ..LIKE_MOST
    },
    Trial {
        name: "idle-mariadb",
        what: "MariaDB, no client",
        every: mariadb::EVERY,
        start: mariadb::idle,
        ..LIKE_MOST
    },
];
