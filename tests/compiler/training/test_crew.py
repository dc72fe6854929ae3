"""Threads kept for training steps: one call after another, errors, and children of the process."""

import os
import subprocess
import sys
import threading

import pytest

from chainrule.compiler import workers
from chainrule.compiler.training import crew


@pytest.fixture(autouse=True)
def none_idle(monkeypatch):
    monkeypatch.setattr(crew, "_idle", [])


def test_each_argument_has_a_thread_which_the_next_call_finds_again():
    met, rounds = threading.Barrier(3, timeout=60), []

    def work(argument: int) -> int:
        met.wait()  # so that all are there at once
        rounds[-1][argument] = threading.get_ident()
        return 10 * argument

    for _ in range(20):
        rounds.append({})
        assert crew.together(work, [1, 2, 3], lambda: None) == 10
    assert all(found.keys() == {1, 2, 3} for found in rounds)
    assert {found[1] for found in rounds} == {threading.get_ident()}
    assert len({frozenset(found.values()) for found in rounds}) == 1
    assert len(crew._idle) == 2
    assert workers.are_alone()


def test_a_thread_that_another_call_takes_first_is_replaced_by_a_new_one(monkeypatch):
    class TakenJustNow(list):
        def __bool__(self) -> bool:
            return True  # as it was when this call looked

    monkeypatch.setattr(crew, "_idle", TakenJustNow())
    done: list[int] = []
    assert crew.together(lambda k: done.append(k) or k, [1, 2], lambda: None) == 1
    assert sorted(done) == [1, 2]


def test_calls_at_the_same_time_do_not_wait_for_each_other():
    met = threading.Barrier(4, timeout=60)

    def call() -> None:
        crew.together(lambda argument: met.wait(), [1, 2], lambda: None)

    other = threading.Thread(target=call)
    other.start()
    call()
    other.join()
    assert len(crew._idle) == 2


def test_nothing_runs_on_after_an_error():
    """The other one is let go, and waited for."""
    free, ended = threading.Event(), []

    def work(argument: int) -> None:
        if argument == 1:
            raise KeyboardInterrupt
        assert free.wait(60)
        ended.append(argument)

    with pytest.raises(KeyboardInterrupt):
        crew.together(work, [1, 2, 3], free.set)
    assert sorted(ended) == [2, 3]
    assert crew.together(lambda argument: argument, [4, 5, 6], lambda: None) == 4


def test_an_error_while_waiting_waits_on():
    """As the handler of a signal may raise one at any time."""
    begun, ended = threading.Event(), []

    def work(argument: int) -> None:
        assert begun.wait(60)
        ended.append(argument)

    class Interrupted:
        """A lock that the first one to wait for is called away from."""

        def __init__(self, lock: threading.Lock) -> None:
            self._lock, self.release = lock, lock.release

        def acquire(self) -> None:
            if not begun.is_set():
                begun.set()
                raise TimeoutError
            self._lock.acquire()

    helper = crew._Helper()
    helper.begin(work, 2)
    function, argument, ends = helper._task
    helper._task = function, argument, Interrupted(ends)
    with pytest.raises(TimeoutError):
        helper.wait()
    assert ended == [2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no children here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_threads_of_its_own():
    code = (
        "import os\n"
        "from chainrule.compiler.training import crew\n"
        "def call(): return crew.together(lambda x: x, [7, 8], lambda: None)\n"
        "assert call() == 7 and len(crew._idle) == 1\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if not crew._idle and call() == 7 else 3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "0\n"
