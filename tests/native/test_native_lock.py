"""The lock of a compiled function: its own thread may take it again, others wait."""

import signal
import threading
import time

import pytest

_native = pytest.importorskip("chainrule._native")


def in_thread(function):
    """What a function gives in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_its_thread_takes_it_again_and_gives_it_back_as_often():
    lock = _native.Lock()
    with lock, lock:
        assert lock.acquire()
        assert in_thread(lambda: lock.acquire(blocking=False)) is False
        lock.release()
        assert in_thread(lambda: lock.acquire(blocking=False)) is False
    assert in_thread(lambda: lock.acquire(blocking=False)) is True


def refusal_of(release):
    with pytest.raises(RuntimeError) as caught:
        release()
    return str(caught.value)


def test_only_who_has_it_gives_it_back():
    lock = _native.Lock()
    assert refusal_of(lock.release) == "this thread does not have the lock"
    lock.acquire()
    refusal = in_thread(lambda: refusal_of(lock.release))
    assert refusal == "this thread does not have the lock"
    lock.release()


def test_no_two_threads_have_it_at_once_and_all_of_them_get_it():
    lock, inside, most, entered = _native.Lock(), [], [], [0] * 6

    def enter(k):
        for _ in range(300):
            with lock:
                inside.append(k)
                most.append(len(inside))
                if k % 2:
                    time.sleep(0)  # others run here
                inside.remove(k)
                entered[k] += 1

    threads = [threading.Thread(target=enter, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert entered == [300] * 6


def test_who_waits_may_be_interrupted():
    lock, held, done = _native.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    done.set()
    thread.join()
    assert lock.acquire(blocking=False)  # whoever waited in vain has left nothing behind
    assert in_thread(lambda: lock.acquire(blocking=False)) is False
