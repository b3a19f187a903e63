"""Four threads that compute, and how long they were blocked: there is nothing but the interpreter's lock to wait for.

Answers each line with the time, the work done and the time blocked: what the scheduler has neither as run nor as waited for a CPU.
"""

import sys
import threading
import time

THREADS = 4


def compute(number, work):
    while True:
        total = 0
        for step in range(10_000):
            total += step
        work[number] += 1


def scheduled_ns(thread):
    with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as schedstat:
        on_cpu, for_cpu, _ = schedstat.read().split()
    return int(on_cpu) + int(for_cpu)


def main():
    work = [0] * THREADS
    threads = []
    for number in range(THREADS):
        thread = threading.Thread(target=compute, args=(number, work), daemon=True)
        thread.start()
        threads.append((thread.native_id, time.monotonic_ns()))
    print("ready", flush=True)
    for _ in sys.stdin:
        blocked_ns = sum(time.monotonic_ns() - began_ns - scheduled_ns(thread) for thread, began_ns in threads)
        print(time.monotonic_ns(), sum(work), blocked_ns, flush=True)


main()
