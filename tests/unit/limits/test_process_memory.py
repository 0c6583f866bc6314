"""The memory of the process as the system measures it, and its release."""

import ctypes
import subprocess
import sys

import pytest

from gateway.limits.process_memory import cached, machine_bytes, resident_bytes, return_memory


def test_memory_is_read_from_the_system():
    assert 5_000_000 < resident_bytes() < machine_bytes()


def test_freed_memory_goes_back_to_the_system():
    held = [bytearray(100_000) for _ in range(2000)]
    kept = held[::100]
    full = resident_bytes()
    del held
    return_memory()
    assert resident_bytes() < full - 50_000_000
    assert kept


def test_a_look_at_the_memory_is_remembered_for_a_while() -> None:
    now, looks = 10.0, iter(range(1, 100))
    look = cached(lambda: next(looks), seconds=1.0, clock=lambda: now)
    assert [look(), look()] == [1, 1]
    now += 0.9
    assert look() == 1
    now += 0.1
    assert look() == 2


THREADS = """
import ctypes, sys, threading
from gateway.limits.process_memory import bound_heaps
bound_heaps(int(sys.argv[1]))
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
threads = threading.Barrier(12)
def work():
    held = [library.malloc(1000) for _ in range(100)]
    threads.wait()
    for one in held:
        library.free(one)
running = [threading.Thread(target=work) for _ in range(12)]
for one in running:
    one.start()
for one in running:
    one.join()
library.fdopen.restype = ctypes.c_void_p
library.malloc_info(0, ctypes.c_void_p(library.fdopen(1, b"w")))
library.fflush(None)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc: its heaps are not ours")
@pytest.mark.parametrize("heaps", [1, 3])
def test_threads_share_the_configured_number_of_heaps(heaps):
    output = subprocess.run(
        [sys.executable, "-P", "-c", THREADS, str(heaps)], capture_output=True, check=True
    )
    assert output.stdout.count(b"<heap nr=") == heaps
