"""Threads that compute blocks: when there are some, that they are kept, and how work ends."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import chainrule
from chainrule import tanh
from chainrule.compiler import workers
from chainrule.compiler.mapping import blocks


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of few samples, so that there are many of them."""
    monkeypatch.setattr(blocks, "WORK", 1000)


def chain(w, x):
    for _ in range(60):
        x = tanh(x * w)
    return x


def test_threads_that_compute_blocks_are_kept(small_blocks):
    fast, samples = chainrule.compile(chain, lift=True), np.linspace(-1.0, 1.0, 800)
    fast.map_value_and_grad(0.5, samples, threads=3)
    before = set(threading.enumerate())
    found = [fast.map_value_and_grad(0.5, samples, threads=n, reduce="sum") for n in (3, 3, 1)]
    assert set(threading.enumerate()) == before
    assert found[0] == found[1] == found[2]


def test_threads_are_used_only_where_the_work_is_worth_it(monkeypatch):
    """Some milliseconds of it, however many blocks there are."""
    begun = []
    monkeypatch.setattr(workers, "_pool", lambda threads: begun.append(threads) or pool)
    fast = chainrule.compile(chain, lift=True)
    with ThreadPoolExecutor(2) as pool:
        fast.map_value_and_grad(0.5, np.linspace(-1.0, 1.0, 40_000), threads=2, reduce="sum")
        work = 40_000 * next(iter(lane_works(fast)))
        assert 2_000_000 < work < 16_000_000
        assert begun == []
        fast.map_value_and_grad(0.5, np.linspace(-1.0, 1.0, 400_000), threads=2, reduce="sum")
        assert begun == [2]


def lane_works(fast):
    """How many numbers the machine code for lanes computes for a sample."""
    structures = fast.dispatch.structures.values()
    return [code.work for s in structures for v in s.variants for code in v.lanes.values()]


def failing(part):
    if part == 5:
        raise KeyboardInterrupt
    time.sleep(0.001)
    return part


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_nothing_runs_on_after_an_error(threads):
    seen, running = [], []

    def work(part):
        running.append(part)
        try:
            return failing(part)
        finally:
            running.remove(part)

    with pytest.raises(KeyboardInterrupt):
        seen.extend(workers.in_order(work, range(100), threads))
    assert running == []
    assert seen == list(range(5))
    assert list(workers.in_order(work, range(5), threads)) == list(range(5))


def test_who_stops_reading_ends_the_work():
    running = []

    def work(part):
        running.append(part)
        time.sleep(0.002)
        running.remove(part)
        return part

    some = workers.in_order(work, range(100), 2)
    assert next(some) == 0
    some.close()
    assert running == []


def test_parts_are_computed_here_where_no_thread_can_start(monkeypatch):
    class Ended:
        def submit(self, *_):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(workers, "_pool", lambda threads: Ended())
    assert list(workers.in_order(abs, range(20), 2)) == list(range(20))


def test_kept_threads_are_no_others():
    list(workers.in_order(abs, range(20), 2))
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    alone = workers.are_alone()
    other.start()
    with_another = workers.are_alone()
    stop.set()
    other.join()
    assert (alone, with_another) == (True, False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_threads_of_its_own():
    text = """
import os
import sys
from chainrule.compiler import workers
assert list(workers.in_order(abs, range(20), 2)) == list(range(20))
child = os.fork()
assert list(workers.in_order(abs, range(20), 2)) == list(range(20))
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", text], timeout=60, check=False)
    assert done.returncode == 0


def test_the_end_of_the_interpreter_is_no_error():
    text = """
import atexit
from chainrule.compiler import workers
atexit.register(lambda: print(list(workers.in_order(abs, range(9), 2))))
list(workers.in_order(abs, range(20), 2))
"""
    done = subprocess.run([sys.executable, "-c", text], timeout=60, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{list(range(9))}\n", "")
