"""What stands for a generator of random numbers while a function is recorded: its draws are inputs.

``random.Random(seed)`` and ``np.random.default_rng(seed)`` of an integer that was passed: what a
recorded function draws from one is computed again at every call, by a generator of that call's
seed (``draws``), as a step of the integer program. So a float is data, and an integer is traced.
What cannot be repeated so makes the seed static, or ends the recording.
"""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arrays import data_array
from chainrule.compiler.capture.draws import DEFAULT_RNG, RANDOM, Ask, Draws, row_of
from chainrule.compiler.capture.integers import BEYOND
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.standins import Detached, StandIn, plain
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value, modes

_PLAIN = frozenset((int, float, bool, type(None), np.float64, np.int64))
#: methods of ``random.Random`` that give a number
_NUMBERS = frozenset(
    (
        *("random", "uniform", "triangular", "gauss", "normalvariate", "lognormvariate"),
        *("expovariate", "vonmisesvariate", "gammavariate", "betavariate", "paretovariate"),
        *("weibullvariate", "randrange", "randint", "getrandbits"),
    )
)
#: methods of ``np.random.Generator`` that give numbers, or arrays of them; the last two of integers
_ARRAYS = frozenset(
    (
        *("random", "standard_normal", "normal", "uniform", "exponential", "gamma", "beta"),
        *("standard_exponential", "lognormal", "laplace", "logistic", "gumbel", "integers"),
        *("poisson", "binomial", "geometric", "permutation", "choice"),
    )
)
_OF_INTEGERS = frozenset(("permutation", "choice"))
_KEYWORDS = frozenset(
    (
        *("size", "loc", "scale", "low", "high", "endpoint", "lam", "n", "p", "shape", "a", "b"),
        *("mean", "sigma", "replace", "mu", "lambd", "alpha", "beta", "kappa", "mode"),
        *("start", "stop", "step", "k"),
    )
)
_NOTHING = object()


class _Seeded(StandIn):
    """A generator whose seed is traced; ``_generator`` is the one that Python would have.

    Both are asked the same. Where a question cannot be repeated, the seed becomes static, and from
    then on the generator itself answers.
    """

    __slots__ = ("_draws", "_generator", "_is_static", "_node", "_recorder", "_seed")
    _make: Callable[..., Any]
    _recorder: Recorder
    _seed: Traced
    _draws: Draws
    _node: int  # of all its numbers; below zero for a seed that is the same at every call
    _generator: Any
    _is_static: bool

    def __init__(self, recorder: Recorder, seed: Traced) -> None:
        draws, integers = Draws(type(self)._make), recorder.integers
        keep = functools.partial(object.__setattr__, self)
        keep("_recorder", recorder)
        keep("_seed", seed)
        keep("_draws", draws)
        keep("_node", integers.step("seeded", integers.constant(draws), seed.node))
        keep("_generator", draws.generator(seed.value))
        keep("_is_static", False)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._generator)

    def plain(self, use: str = "") -> Any:
        """The generator itself: from here on the recording is for this seed."""
        if modes.recorder is not self._recorder:  # it was kept for longer than the recording
            raise RuntimeError("a generator is used after the call that made it")
        if self._node >= 0:
            self._seed.static()
        object.__setattr__(self, "_is_static", True)
        return self._generator

    def draw(self, ask: Ask) -> Any:
        """What the generator gives, each number of it traced."""
        recorder, integers = self._recorder, self._recorder.integers
        if modes.recorder is not recorder or recorder.forks:
            recorder.forbid("it draws a random number after the call, or in a branch not taken")
        if self._is_static:
            return ask.of(self._generator, 1)[0]
        try:
            found = ask.of(self._generator, 1)[0]
            row = row_of(found)
        except Exception:  # of this seed, for all that is known; it may have drawn some numbers
            again = self._draws.generator(self._seed.value)
            for before in self._draws.asks:
                before.of(again, 1)
            object.__setattr__(self, "_generator", again)
            return ask.of(self.plain(), 1)[0]
        if self._node < 0:
            return found
        drawn = integers.value(self._node)
        first = len(drawn)
        drawn += row
        self._draws.note(ask, row)
        places = [integers.constant(first + k) for k in range(len(row))]
        return self._traced(found, iter([integers.step("item", self._node, k) for k in places]))

    def _traced(self, found: Any, nodes: Any) -> Any:
        kind, recorder = type(found), self._recorder
        if kind is float or kind is np.float64:
            return Detached(recorder, recorder.selector.number(next(nodes)), True, kind)
        if kind is int or kind is np.int64:
            return Traced(recorder, next(nodes), kind)
        if kind is list:
            return [self._traced(x, nodes) for x in found]
        items = [self._traced(x, nodes) for x in found.ravel()]
        return data_array(items, found.shape, found.dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().__reduce_ex__(protocol)

    def __setattr__(self, name: str, x: Any) -> None:
        setattr(self.plain(), name, x)

    def __delattr__(self, name: str) -> None:
        delattr(self.plain(), name)

    def __repr__(self) -> str:
        return repr(self.plain())


def _fixed(x: Any) -> Any:
    """An argument that is the same at every call; ``_NOTHING`` where it is of another kind."""
    if type(x) is Traced:
        x = x.static()
    if type(x) is tuple:
        items = tuple(map(_fixed, x))
        return items if _NOTHING not in items else _NOTHING
    return x if type(x) in _PLAIN else _NOTHING


def _asked(method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Ask | None:
    """The call of a method; None where something is passed that may be another next time."""
    given = tuple(map(_fixed, arguments))
    named = tuple([(name, _fixed(x)) for name, x in keywords.items()])
    if any(x is _NOTHING for x in (*given, *[x for _, x in named])) or not (
        {*keywords} <= _KEYWORDS
    ):
        return None
    return Ask(method, given, named)


def _shifted(z: Any, mu: Any, sigma: Any) -> Any:
    return mu + z * sigma


#: methods of ``random.Random`` with parameters that may be data or Values: what is drawn, and what
#: Python computes of it (-0.0 + z is z, also where that is -0.0)
_COMPUTED: dict[str, tuple[Ask, Callable[[Any, Any, Any], Any]]] = {
    "uniform": (Ask("random"), lambda u, a, b: a + (b - a) * u),
    "gauss": (Ask("gauss", (-0.0, 1.0)), _shifted),
    "normalvariate": (Ask("normalvariate", (-0.0, 1.0)), _shifted),
}


class SeededRandom(_Seeded):
    """Stands for a ``random.Random``."""

    __slots__ = ()
    _make = RANDOM

    def __getattr__(self, name: str) -> Any:
        if self._is_static or not self._draws.are_known():
            return getattr(self.plain(), name)
        if name in _NUMBERS:
            return lambda *arguments, **keywords: self._number(name, arguments, keywords)
        if name in ("choice", "choices", "sample", "shuffle"):
            return lambda *arguments, **keywords: self._chosen(name, arguments, keywords)
        return getattr(self.plain(), name)

    def _number(self, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if method in _COMPUTED and not keywords and len(arguments) == 2:
            ask, compute = _COMPUTED[method]
            kinds = [type(x) for x in arguments]
            known = all(kind in (int, float, Value, Detached, Traced) for kind in kinds)
            if known and (Value in kinds or Detached in kinds) and not self._is_static:
                return compute(self.draw(ask), *arguments)
        asked = _asked(method, arguments, keywords)
        if asked is None:
            return getattr(self.plain(), method)(*arguments, **keywords)
        return self.draw(asked)

    def _chosen(self, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Items of a list, by integers that are drawn."""
        items = arguments[0] if arguments else None
        options = _asked(method, arguments[1:], keywords)
        known = type(items) is list or (type(items) is tuple and method != "shuffle")
        simple = options is not None and len(options.arguments) <= 1
        if method in ("choice", "shuffle"):
            simple = simple and not keywords and len(arguments) == 1
        elif method == "choices":
            simple = simple and len(arguments) == 1 and {*keywords} <= {"k"}
        else:
            simple = simple and {*keywords} <= {"k"}
        if not known or not simple or not items or self._is_static:
            return getattr(self.plain(), method)(*arguments, **keywords)
        assert options is not None
        count = len(items)
        if method == "choice":
            return self._item(items, self.draw(Ask("randrange", (count,))))
        if method == "shuffle":
            order = self.draw(Ask("shuffle", (count,)))
        else:
            asked = Ask(method, (range(count), *options.arguments), options.keywords)
            order = self.draw(asked)
        held = list(items)
        found = [self._item(held, place) for place in order]
        if method == "shuffle":
            items[:] = found
            return None
        return found

    def _item(self, items: Any, place: Any) -> Any:
        if type(place) is Traced:
            return self._recorder.selector.read(items, place)
        return items[place]


class SeededGenerator(_Seeded):
    """Stands for a ``np.random.Generator``."""

    __slots__ = ()
    _make = DEFAULT_RNG

    def __getattr__(self, name: str) -> Any:
        if name not in _ARRAYS:
            if hasattr(self._generator, name):
                self._recorder.forbid(f"it uses Generator.{name}, which cannot be repeated,")
            raise AttributeError(f"'Generator' object has no attribute {name!r}")
        return lambda *arguments, **keywords: self._numbers(name, arguments, keywords)

    def _numbers(self, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        arguments = tuple([plain(x) for x in arguments])
        keywords = {name: plain(x) for name, x in keywords.items()}
        asked = _asked(method, arguments, keywords)
        if asked is None or (
            method in _OF_INTEGERS
            and not (arguments and type(arguments[0]) is int and len(arguments) == 1)
        ):
            self._recorder.forbid(f"it passes Generator.{method} more than plain numbers")
        assert asked is not None
        return self.draw(asked)

    def plain(self, use: str = "") -> Any:
        """Refused: arrays of data would be arrays of objects for it."""
        self._recorder.forbid("it does more with a generator of numpy's than to draw numbers")


# --- making one -----------------------------------------------------------------------------------


def _is_seed(x: Any) -> bool:
    return type(x) is Traced and type(x.value) is int and x.kind in (int, np.int64)


def make_random(*arguments: Any, **keywords: Any) -> Any:
    """``random.Random(...)``."""
    recorder = modes.recorder
    if recorder is None:
        return RANDOM(*arguments, **keywords)
    given = (*arguments, *keywords.values()) or (None,)
    seed = given[0]
    if seed is None:
        recorder.forbid("it makes a generator of random numbers without a seed")
    if keywords or len(given) != 1:
        return RANDOM(*arguments, **keywords)
    if _is_seed(seed) and seed.kind is int and not recorder.forks:
        return SeededRandom(recorder, seed)
    return RANDOM(plain(seed))


def make_generator(*arguments: Any, **keywords: Any) -> Any:
    """``np.random.default_rng(...)``."""
    recorder = modes.recorder
    if recorder is None:
        return DEFAULT_RNG(*arguments, **keywords)
    given = (*arguments, *keywords.values())
    if len(given) != 1 or {*keywords} - {"seed"} or given[0] is None:
        recorder.forbid("it makes a generator of random numbers without a seed")
    (seed,) = given
    if type(seed) is int and 0 <= seed < BEYOND:
        seed = Traced(recorder, recorder.integers.constant(seed))
    if not _is_seed(seed) or recorder.forks or seed.value < 0:
        recorder.forbid("it makes a generator of random numbers of another seed than an integer")
    return SeededGenerator(recorder, seed)


#: by module and name: what is called in place of what makes a generator
MODULES: dict[tuple[Any, str], Any] = {
    (random, "Random"): (RANDOM, types.SimpleNamespace(Random=make_random)),
    (np.random, "default_rng"): (DEFAULT_RNG, types.SimpleNamespace(default_rng=make_generator)),
}
