"""CPython's locks, and threads that wait for something else: one scene, by its name, until the input ends."""

import os
import queue
import sys
import threading
import time

HOLD = 0.005

lock = threading.Lock()
tree = threading.RLock()
condition = threading.Condition()
never = threading.Event()


def post_entry():
    while True:
        with lock:
            time.sleep(HOLD)


def walk_tree():
    while True:
        with tree:
            time.sleep(HOLD)


def compute():
    number = 0
    while True:
        number += 1


def wait():
    with condition:
        condition.wait()


def join_workers():
    while True:
        worker = threading.Thread(target=time.sleep, args=(10 * HOLD,))
        worker.start()
        worker.join()


def start(threads, work):
    for _ in range(threads):
        threading.Thread(target=work, daemon=True).start()


def idle():
    start(2, queue.Queue().get)
    start(2, queue.SimpleQueue().get)
    start(2, wait)
    joined = threading.Thread(target=never.wait, daemon=True)
    joined.start()
    start(1, joined.join)


SCENES = {
    "lock": lambda: start(4, post_entry),
    "rlock": lambda: start(4, walk_tree),
    "compute": lambda: start(4, compute),
    "joins": lambda: start(4, join_workers),
    "joins beside a lock": lambda: (start(4, join_workers), start(4, post_entry)),
    "idle": idle,
}
SCENES[sys.argv[1]]()
sys.stdin.read()
# Without an end of the threads, which still start others.
os._exit(0)
