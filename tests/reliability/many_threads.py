"""Compiled functions, backward and train from several threads at once: the numbers of one thread.

All threads share the compiled functions, so that they record, build and replay them at the same
time; graphs and parameters that change are each thread's own. The tape must agree bit for bit,
machine code to rounding (it adds in its own order, and the first call may be answered by the tape).
"""

import math
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from trials import Outcome

import chainrule
from chainrule import Value, optim, tanh
from chainrule.compiler.runtime.ledger import allowance

COUNT = 239_704
THINGS = "calls in threads"
THREADS = 6
ROUND = 1_200  # calls, before all functions are new again
CASES = 12  # arguments of each kind of call
FLAGS = [0, 1, 0, 1]


def network(params: dict[str, Any], points: list[list[float]]) -> Any:
    total = 0.0
    for point in points:
        hidden = [tanh(sum(w * x for w, x in zip(row, point, strict=True))) for row in params["W"]]
        total = total + sum(v * h for v, h in zip(params["v"], hidden, strict=True)) ** 2
    return total


def select(p: list[float], tokens: list[int]) -> Any:
    """With gathers, and a branch: two recordings."""
    total, flags = p[0], 0
    for t in tokens:
        total = total + p[t] * p[0]
        flags += FLAGS[t]
    return total * 2 if flags >= 2 else total


def quadratic(params: dict[str, Any], target: float) -> Any:
    return sum((p - target) ** 2 for p in params["p"])


class Calls:
    """Functions compiled anew, and what can be asked of them: each gives a flat list of numbers."""

    def __init__(self) -> None:
        self.tape = chainrule.compile(network, lift=False)
        self.lifted = chainrule.compile(network, lift=True)
        self.plain = chainrule.compile(network)
        self.select = chainrule.compile(select, lift=False)
        self.trained = chainrule.compile(quadratic)
        self.hessian = chainrule.hessian(lambda x: (x[0] * x[1]) ** 2 + tanh(x[0]))
        self.kinds: dict[str, Callable[[int], list[float]]] = {
            "value_and_grad on the tape": lambda i: self.network(self.tape, i),
            "value_and_grad in machine code": lambda i: self.network(self.lifted, i),
            "a call that returns a Value": self.value,
            "gathers and branches": self.gather,
            "train": self.train,
            "backward": self.backward,
            "hessian": lambda i: self.hessian([0.1 * i, 0.5]).ravel().tolist(),
        }

    @staticmethod
    def network(fast: Any, i: int) -> list[float]:
        params, points = _network_case(i)
        value, gradient = fast.value_and_grad(params, points)
        return [value, *gradient["W"].ravel().tolist(), *gradient["v"].tolist()]

    def value(self, i: int) -> list[float]:
        params, points = _network_case(i)
        leaves = {"W": [[Value(x) for x in row] for row in params["W"]], "v": list(params["v"])}
        result = self.plain(leaves, points)
        result.backward()
        return [result.data, *(leaf.grad for row in leaves["W"] for leaf in row)]

    def gather(self, i: int) -> list[float]:
        tokens = [(i * k) % 4 for k in range(1, 3 + i % 3)]
        value, gradient = self.select.value_and_grad([1.0, 2.0, 3.0, float(i)], tokens)
        return [value, *gradient]

    def train(self, i: int) -> list[float]:
        params = {"p": np.array([1.0, -2.0, float(i)])}
        optimiser = optim.Adam(params, lr=0.1)
        losses = self.trained.train(params, [(0.5,), (1.5,)], optimiser, 3)
        return [*np.ravel(losses).tolist(), *params["p"].tolist()]

    @staticmethod
    def backward(i: int) -> list[float]:
        leaves = [Value(0.1 * i + k) for k in range(5)]
        result = leaves[0]
        for k in range(60):
            result = (result * 0.9 + leaves[k % 5]).tanh() if k % 3 else result - leaves[k % 5]
        result.backward()
        return [result.data, *(leaf.grad for leaf in leaves)]


def _network_case(i: int) -> tuple[dict[str, Any], list[list[float]]]:
    rng = np.random.default_rng(i)
    params = {"W": rng.normal(size=(4, 2)), "v": rng.normal(size=4)}
    return params, rng.normal(size=(3 + i % 3, 2)).tolist()  # three shapes: three variants


def same(found: list[float], wanted: list[float], exact: bool) -> bool:
    if exact or len(found) != len(wanted):
        return found == wanted
    pairs = zip(found, wanted, strict=True)
    return all(math.isclose(a, b, rel_tol=1e-11, abs_tol=1e-13) for a, b in pairs)


ROUNDED = ("value_and_grad in machine code", "a call that returns a Value", "train")


def trials(count: int, seed: int) -> Iterator[Outcome]:
    allowance.left = math.inf  # every function is recorded at its first call
    alone = Calls()
    wanted = {(kind, i): call(i) for kind, call in alone.kinds.items() for i in range(CASES)}
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a function that falls back to eager is a find
            for done in range(0, count, ROUND):
                yield from _round(min(ROUND, count - done), wanted, f"threads {seed} {done}")
    finally:
        sys.setswitchinterval(switching)


def _round(count: int, wanted: dict[tuple[str, int], list[float]], seed: str) -> Iterator[Outcome]:
    calls, tally, found = Calls(), dict.fromkeys(Calls().kinds, 0), []
    together, lock = threading.Barrier(THREADS), threading.Lock()

    def work(thread: int) -> None:
        rng = random.Random(f"{seed} {thread}")
        mine = dict.fromkeys(tally, 0)
        together.wait()
        for _ in range(len(range(thread, count, THREADS))):
            kind, i = rng.choice(list(mine)), rng.randrange(CASES)
            mine[kind] += 1
            try:
                result: Any = calls.kinds[kind](i)
                right = same(result, wanted[kind, i], kind not in ROUNDED)
            except Exception as error:
                result, right = repr(error), False
            if not right:
                found.append(f"{kind} {i} ({seed}): {result}, not {wanted[kind, i]}")
        with lock:
            for kind, number in mine.items():
                tally[kind] += number

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for kind, number in tally.items():
        if number:
            yield Outcome(kind, "\n".join(text for text in found if text.startswith(kind)), number)
