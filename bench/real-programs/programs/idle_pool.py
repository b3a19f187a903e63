"""A multiprocessing.Pool of six processes that has a tiny job ten times a second. Ends with its input."""

import multiprocessing
import sys
import threading
import time


def job(number):
    return number + 1


def hand_out(pool):
    while True:
        pool.apply(job, (1,))
        time.sleep(0.1)


def main():
    pool = multiprocessing.get_context("fork").Pool(6)
    threading.Thread(target=hand_out, args=(pool,), daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        pass
    pool.terminate()


main()
