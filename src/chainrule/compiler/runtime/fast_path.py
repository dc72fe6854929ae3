"""The fast path: a call like an earlier one, answered without flattening its arguments again.

Training asks for the same gradient over and over: the same dict of arrays with other numbers in
them, and some data. In: a call that ran on machine code. Out: a ``FastPath``, which finds calls of
the same structure by their ``signature``, a row of bytes that C writes as it looks at the
arguments, and answers them from the machine code. All others take the slow path.
"""

from __future__ import annotations

import array
import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import float64, ndarray

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.recorder import Output
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.machine import Fit
from chainrule.compiler.runtime.variants import Binding, Variant
from chainrule.core.backend import kernels

DOUBLE = np.dtype(float64)
STRUCTURES = 64  # that are cached
VARIANTS = 4  # of each, the least recently used goes
MOST = 2**28  # numbers: one item of a numpy array has less than 2**31 bytes

# The words of a signature, as in src/native/passed.c.
FLOAT, INT, ARRAY, FLOATS, INTS, LIST, TUPLE, DICT = range(1, 9)
Shape = tuple[int, ...]


@dataclass(eq=False)
class Form:
    """What the arguments of a call are like; ``known``: calls like it can be cached.

    ``shapes`` has the shape of every array of floats and None for every float; the ``first`` of
    them are the first argument's.
    """

    known: bool = True
    shapes: list[Shape | None] = field(default_factory=list)
    first: int = 0
    keys: list[Any] = field(default_factory=list)  # of dicts, whose addresses the signature has
    _words: list[int] = field(default_factory=list)
    _run: int = 0  # FLOAT or INT, where the last word is how many of them came

    @classmethod
    def of(cls, call: Call) -> Form:
        """The form of a call without keywords."""
        structures = call.structure[0]
        form = cls(not call.statics)
        form._put(len(structures))
        for k, structure in enumerate(structures):
            form._take(structure, k == 0)
            form._run = 0
            if k == 0:
                form.first = len(form.shapes)
        return form

    @property
    def signature(self) -> bytes:
        """What C's ``passed`` gives for such arguments, and for no others."""
        return array.array("q", self._words).tobytes()

    def _put(self, *words: int) -> None:
        self._words += words
        self._run = 0

    def _take(self, structure: Any, first: bool) -> None:
        """Take in a part of a call's structure, see ``inputs``."""
        if structure == "float":
            self.shapes.append(None)
            self._put_leaf(FLOAT)
            return
        if structure == "int":
            self._put_leaf(INT)
            return
        kind, parts = (structure, ()) if isinstance(structure, str) else structure
        if kind in ("floats", "ints"):
            self._take_array(kind, parts, first)
        elif kind in ("list", "tuple"):
            self._put(LIST if kind == "list" else TUPLE, len(parts))
            for part in parts:
                self._take(part, first)
        elif kind == "dict":
            self._put(DICT, len(parts))
            for (_, key), part in parts:
                self._put_key(key)
                self._take(part, first)
        else:
            self.known = False

    def _put_key(self, key: Any) -> None:
        """A string with its text, anything else by its address."""
        if type(key) is not str:
            self.keys.append(key)
            self._put(id(key))
            return
        try:
            text = key.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            self.known = False
            return
        self._put(-1 - len(text), *array.array("q", text + bytes(-len(text) % 8)))

    def _put_leaf(self, word: int) -> None:
        if self._run == word:
            self._words[-1] += 1
        else:
            self._put(word, 1)
        self._run = word

    def _take_array(self, kind: str, shape: Shape, first: bool) -> None:
        """An array; of the first argument a plan looks at the shapes."""
        self.known &= 0 not in shape
        if kind == "floats":
            self.shapes.append(shape)
        if first:
            self._put(ARRAY)
        else:
            self._put(FLOATS if kind == "floats" else INTS, len(shape), *shape)


class _Gradient:
    """How the gradient of the first argument lies in one row of numbers."""

    def __init__(self, structure: Any) -> None:
        self._fields: list[tuple[int, Shape]] = []  # where each array begins
        self._size = 0
        self.template = self._name(structure)

    @property
    def record(self) -> np.dtype[Any] | None:
        """The row as one item, with a field for each array."""
        if not self._fields:
            return None
        return np.dtype(
            {
                "names": [f"f{k}" for k in range(len(self._fields))],
                "formats": [(DOUBLE, shape) for _, shape in self._fields],
                "offsets": [DOUBLE.itemsize * at for at, _ in self._fields],
                "itemsize": DOUBLE.itemsize * self._size,
            }
        )

    def _name(self, structure: Any) -> Any:
        """The nest with a field's name for each array and its position for each float."""
        if structure == "float":
            self._size += 1
            return self._size - 1
        kind, parts = structure
        if kind == "floats":
            self._fields.append((self._size, parts))
            self._size += math.prod(parts)
            return f"f{len(self._fields) - 1}"
        if kind == "dict":
            return {key: self._name(part) for (_, key), part in parts}
        items = [self._name(part) for part in parts]
        return items if kind == "list" else tuple(items)


@dataclass(frozen=True, eq=False)
class CachedCall:
    """What answers calls of one form, where their integers and branches are those of a variant."""

    variant: Variant
    binding: Binding
    form: Form
    plan: Any  # a kernels.Plan


def _choose(variant: Variant, binding: Binding, ids: tuple[int, ...]) -> Addresses | None:
    """What the gathers of a variant select for these integers, if it serves them."""
    return variant.gathered(binding, ids) if variant.binding is binding else None


def _plan_of(call: Call, form: Form, variant: Variant, binding: Binding) -> Any:
    """What runs calls of this form on the code of a variant; None where it cannot."""
    result, floats = variant.recording.result, call.size - call.first
    machine, fit = binding.machine, binding.fit
    if variant.recording.selection.numbers:
        return None  # they are computed by Python
    if not form.known or variant.captured or not 0 < call.first < MOST or kernels is None:
        return None
    if not isinstance(result, Output) or not result.is_value:
        return None
    root = int(fit.address[result.position])
    if root < 0 or not np.array_equal(fit.private[:floats], range(floats)):
        return None
    numbers = fit.private[floats:]
    if not (floats or variant.numeric or machine.reads_private):
        numbers = numbers[:0]
    gradient = _Gradient(call.structure[0][0])
    return kernels.Plan(
        tuple(form.shapes),
        form.first,
        gradient.template,
        gradient.record,
        ndarray,
        functools.partial(_choose, variant, binding),
        [],
        *machine.code.parts(fit, numbers),
        root,
    )


class FastPath:
    """The cached calls of a function, and what answers them."""

    def __init__(self) -> None:
        self.plans: dict[bytes, list[CachedCall]] = {}  # by signature
        self._met: set[Fit] = set()  # those that are cached, or cannot be

    def learn(self, call: Call, variant: Variant) -> None:
        """Let a variant answer calls such as this from now on."""
        binding = variant.binding
        if binding is None or binding.fit in self._met or call.keywords:
            return
        self._met.add(binding.fit)
        form = Form.of(call)
        plan, signature = _plan_of(call, form, variant, binding), form.signature
        if plan is None or (signature not in self.plans and len(self.plans) >= STRUCTURES):
            return
        cached = self.plans.setdefault(signature, [])
        cached.insert(0, CachedCall(variant, binding, form, plan))
        self._met -= {one.binding.fit for one in cached[VARIANTS:]}
        del cached[VARIANTS:]

    def answer(self, arguments: tuple[Any, ...]) -> tuple[float, Any] | None:
        """The value and its gradient, if such a call is cached and everything is finite."""
        if kernels is None:
            return None
        call = kernels.passed(arguments, ndarray, float64)
        cached = None if call is None else self.plans.get(call.signature)
        for one in cached or ():
            machine, fit = one.binding.machine, one.binding.fit
            if machine.current is not fit:
                machine.settle(fit)
            answer: tuple[float, Any] | None = one.plan.run(call)
            if answer is not None:
                if cached and cached[0] is not one:
                    cached.sort(key=lambda x: x is not one)
                return answer
        return None
