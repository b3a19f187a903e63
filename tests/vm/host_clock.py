"""The frequency of this machine's time-stamp counter, which under TCG is the guest's too. A guest that calibrates it by
itself while this machine is busy can be wrong by a factor of eight, and then keeps wrong time for good."""

import ctypes
import mmap
import time

READ_COUNTER = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
INTERVAL_S = 0.05
TRIES = 50


def frequency_khz():
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(READ_COUNTER)
    read_counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))

    def instant():
        """A counter value and the time in ns at which it was read: the least interrupted of some tries."""
        tries = [(time.monotonic_ns(), read_counter(), time.monotonic_ns()) for _ in range(TRIES)]
        before, count, after = min(tries, key=lambda one: one[2] - one[0])
        return count, (before + after) / 2

    first_count, first_ns = instant()
    time.sleep(INTERVAL_S)
    last_count, last_ns = instant()
    return round((last_count - first_count) / (last_ns - first_ns) * 1e6)
