"""Threads of Python that fight for a lock and for the interpreter: each of two holds the lock 2 ms at a time, then computes 1 ms."""

import threading
import time

lock = threading.Lock()


def work():
    for _ in range(50):
        with lock:
            time.sleep(0.002)
        end_ns = time.monotonic_ns() + 1_000_000
        while time.monotonic_ns() < end_ns:
            pass


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
