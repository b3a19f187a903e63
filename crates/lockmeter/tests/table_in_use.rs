//! Events of a thread whose table is being changed: they are counted by lock, in the samples that all threads share.

mod support;

use std::process::Command;

use serde_json::Value;
use support::{Folder, lockmeter, preload_library, run, text};

/// Its main thread takes a lock all the time, and its signal handler another one, until the handler has run often. Prints how often.
const SIGNAL_HANDLER: &str = "
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static pthread_mutex_t main_lock = PTHREAD_MUTEX_INITIALIZER, handler_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int handled;
static void handle(int signal)
{
	pthread_mutex_lock(&handler_lock);
	handled++;
	pthread_mutex_unlock(&handler_lock);
}
int main(void)
{
	struct itimerval often = {{0, 100}, {0, 100}};
	signal(SIGALRM, handle);
	setitimer(ITIMER_REAL, &often, NULL);
	while (handled < 2000) {
		pthread_mutex_lock(&main_lock);
		pthread_mutex_unlock(&main_lock);
	}
	signal(SIGALRM, SIG_IGN);
	printf(\"%d\\n\", handled);
	return 0;
}
";

/// Two tasks on stacks of the program's own take a lock, with the thread-local storage of the main thread. A thread before them has
/// glibc take locks as with several threads.
const TASKS_WITHOUT_STORAGE: &str = "
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char stacks[2][65536] __attribute__((aligned(16)));
static int handled;
static void *nothing(void *argument)
{
	return argument;
}
static int work(void *argument)
{
	for (int i = 0; i < 200000; i++) {
		pthread_mutex_lock(&lock);
		handled++;
		pthread_mutex_unlock(&lock);
	}
	return 0;
}
int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, nothing, NULL);
	pthread_join(thread, NULL);
	for (int i = 0; i < 2; i++)
		clone(work, stacks[i] + sizeof(stacks[i]), CLONE_VM | SIGCHLD, NULL);
	while (wait(NULL) > 0)
		;
	printf(\"%d\\n\", handled);
	return 0;
}
";

/// Builds and runs a program with every hold timed. What it printed, and the report.
fn meter(source: &str) -> (u64, Value) {
    let folder = Folder::new();
    let (code, program, recording) = (folder.file("program.c"), folder.file("program"), folder.file("recording"));
    std::fs::write(&code, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-o", &program, &code]);
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let mut record = lockmeter(["record", "--quiet", "--user", "--hold", "--every", "-o", &recording, "--", &program]);
    record.env("LOCKMETER_PRELOAD", preload_library());
    let recorded = run(record);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let shown = run(lockmeter(["report", "--format", "json", &recording]));
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    (text(&recorded.stdout).trim().parse().unwrap(), serde_json::from_slice(&shown.stdout).unwrap())
}

fn holds(report: &Value, lock: &str) -> u64 {
    let is_it = |row: &&Value| row["happened"] == "hold" && row["lock"].as_str().unwrap().ends_with(lock);
    report["rows"].as_array().unwrap().iter().filter(is_it).filter_map(|row| row["count"].as_u64()).sum()
}

/// Regression: two thirds of such a handler's holds were lost.
#[test]
fn every_hold_of_a_signal_handler_that_interrupts_the_recorder_is_counted() {
    let (handled, report) = meter(SIGNAL_HANDLER);
    assert_eq!(holds(&report, ":handler_lock"), handled, "{report:#}");
    assert!(report["lost"]["user_interrupted"].is_null(), "{}", report["lost"]);
}

/// Regression: most of the holds of such tasks were lost.
#[test]
fn holds_of_tasks_that_share_thread_local_storage_are_not_lost() {
    let (handled, report) = meter(TASKS_WITHOUT_STORAGE);
    assert!(report["lost"]["user_interrupted"].is_null(), "{}", report["lost"]);
    // Two tasks that find the table idle at the same time may both count to it, as one.
    let counted = holds(&report, ":lock");
    assert!(counted <= handled && counted * 10 > handled * 9, "{counted} of {handled}: {}", report["lost"]);
}
