"""Six processes that share a multiprocessing.Lock, and how long each of them waited for it.

Answers each line with the time, the work done and the time waited.
"""

import multiprocessing
import sys
import time

PROCESSES = 6


def compute(rounds):
    total = 0
    for number in range(rounds):
        total += number
    return total


def use_shared_lock(lock, number, work, waited_ns):
    while True:
        begun = time.perf_counter_ns()
        lock.acquire()
        waited_ns[number] += time.perf_counter_ns() - begun
        compute(20_000)
        lock.release()
        work[number] += 1
        compute(2_000)


def main():
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    work = context.RawArray("Q", PROCESSES)
    waited_ns = context.RawArray("Q", PROCESSES)
    for number in range(PROCESSES):
        context.Process(target=use_shared_lock, args=(lock, number, work, waited_ns), daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(time.perf_counter_ns(), sum(work), sum(waited_ns), flush=True)
    # Daemons end with this process.


main()
