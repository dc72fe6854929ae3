"""Threads that take training steps beside the one that asks for them, kept from call to call.

In: a function that runs without the interpreter lock, and an argument for each thread. Out: what it
gives in this one, once all are done. To start a thread and wait for its first sign of life takes as
long as several steps of a small model; one that waits for a lock is there at once. Threads that are
busy with the steps of one trainer are not waited for by another, which has more of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from chainrule.compiler.workers import NAME

_idle: list[_Helper] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has none of these threads


class _Helper:
    """A thread that waits for something to do; it keeps no interpreter from ending."""

    def __init__(self) -> None:
        self._task: tuple[Callable[[int], object], int, threading.Lock] | None = None
        self._begins = threading.Lock()
        self._begins.acquire()
        threading.Thread(target=self._serve, name=NAME, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._begins.acquire()
            assert self._task is not None
            function, argument, ends = self._task
            function(argument)
            self._task = None
            ends.release()

    def begin(self, function: Callable[[int], object], argument: int) -> None:
        """Call the function in this thread."""
        ends = threading.Lock()  # another one each time, whatever became of the one before
        ends.acquire()
        self._task = function, argument, ends
        self._begins.release()

    def wait(self) -> None:
        """Until it is done, also where the handler of a signal raises: arrays may be gone then."""
        raised: BaseException | None = None
        while (task := self._task) is not None:
            try:
                task[2].acquire()
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised


def _idle_or_new() -> _Helper:
    try:
        return _idle.pop()
    except IndexError:  # also where another thread took the last one just now
        return _Helper()


def together(
    function: Callable[[int], Any], arguments: Sequence[int], let_go: Callable[[], None]
) -> Any:
    """Call the function with each of the arguments, with the first one here; what it gives.

    ``let_go``: has those that wait for others end, where something is raised before all are there.
    None where there can be no more threads: then it has not been called at all.
    """
    helpers: list[_Helper] = []
    try:
        try:
            while len(helpers) < len(arguments) - 1:
                helpers.append(_idle_or_new())
        except RuntimeError:
            return None
        try:
            for helper, argument in zip(helpers, arguments[1:], strict=True):
                helper.begin(function, argument)
            return function(arguments[0])
        except BaseException:
            let_go()
            raise
        finally:
            for helper in helpers:
                helper.wait()
    finally:
        _idle.extend(helpers)
