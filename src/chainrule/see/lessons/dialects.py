"""One way to use every hand-written engine: the texts' dialects behind the same few methods.

A module of the learner's comes in; out comes an ``Engine`` that makes numbers, combines them and
runs the backward pass, whatever the class calls these things: micrograd's operators and closures,
microgpt's children and local gradients, the C# chapter's ``Add``, ``Mul`` and ``Backward`` with
buffers, the TypeScript chapter's ``add`` and ``mul``.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

_CLASSES = ("Value", "Scalar", "Node", "Var", "Variable", "Tensor", "Number")
_DATA = ("data", "Data", "value", "val")
_GRAD = ("grad", "Grad", "gradient", "Gradient")
_BACKWARD = ("backward", "Backward", "backprop", "back_propagate")
_CHILDREN = ("_prev", "_children", "children", "_inputs", "inputs", "parents", "_parents", "prev")
_LOCAL = ("_local_grads", "local_grads", "localGrads", "_localGrads", "LocalGrads")
_SORT = ("topological_order", "topological_sort", "topo_sort", "toposort", "build_topo", "sort")
_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "mul": operator.mul,
    "pow": operator.pow,
    "sub": operator.sub,
    "truediv": operator.truediv,
    "neg": operator.neg,
}
_METHODS = {
    "truediv": ("div", "Div", "divide", "truediv"),
    "neg": ("neg", "Neg", "negate"),
    "sub": ("sub", "Sub", "subtract", "minus"),
    "pow": ("pow", "Pow", "power"),
    "add": ("add", "Add", "plus"),
    "mul": ("mul", "Mul", "times", "multiply"),
}


class Diagnosis(NamedTuple):
    """The idea that an engine lacks."""

    idea: str
    why: str
    right: str = ""  # the line of code
    lesson: str = ""  # the broken engine of ``chainrule lessons`` that shows it


class NoEngine(Exception):
    """The file holds nothing that could be tried; the text says what was looked for."""


class NoNode(Exception):
    """A function of the learner's gave no node; the text says what it gave."""


def _first(thing: Any, names: Iterable[str]) -> str:
    return next((name for name in names if hasattr(thing, name)), "")


class Engine:
    """A learner's engine; missing parts are the empty string or False."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.cls = _find_class(module)
        try:
            one = self.number(2.0)
        except TypeError as error:
            wanted = f"def __init__(self, data) in class {self.cls.__name__}"
            raise NoEngine(f"{wanted}: {self.cls.__name__}(2.0) gives {error}") from None
        self.data_name = _first(one, _DATA)
        self.grad_name = _first(one, _GRAD)
        self.method = _first(self.cls, _BACKWARD)
        self.function = "" if self.method else _first(module, _BACKWARD)
        self.diagnosis: Diagnosis | None = None  # what is wrong with it, once that is known

    # --- numbers --------------------------------------------------------------------------------

    def number(self, x: float) -> Any:
        """A leaf."""
        return self.cls(x)

    def data(self, v: Any) -> float:
        """The number that a node holds."""
        return float(getattr(v, self.data_name))

    def grad(self, v: Any) -> float:
        """Its gradient; nan where there is none, as in classes that begin with None."""
        grad = getattr(v, self.grad_name)
        return math.nan if grad is None else float(grad)

    def set_grad(self, v: Any, x: float) -> None:
        """What a training loop does between two steps."""
        setattr(v, self.grad_name, x)

    def children(self, v: Any) -> list[Any] | None:
        """What a node was made from, in the engine's own order; None where it does not say."""
        name = _first(v, _CHILDREN)
        found = getattr(v, name) if name else None
        if callable(found):
            found = found()
        return None if found is None and not name else list(found or ())

    def local_grads(self, v: Any) -> list[float] | None:
        """The local gradients of a node; None where they are kept in a closure."""
        name = _first(v, _LOCAL)
        found = getattr(v, name) if name else None
        return None if found is None else [float(x) for x in found]

    # --- operations -----------------------------------------------------------------------------

    def has(self, op: str) -> bool:
        """Whether the class has an operation, as an operator, a method or a function."""
        return bool(
            (op in _OPERATORS and hasattr(self.cls, f"__{op}__"))
            or _first(self.cls, self._names(op))
            or self._function(op)
        )

    def apply(self, op: str, *xs: Any) -> Any:
        """``a + b``, ``a.add(b)`` or ``add(a, b)``, whichever there is."""
        result = self._apply(op, *xs)
        if result is None or isinstance(result, (int, float)):
            sign = {"add": "a + b", "mul": "a * b"}.get(op, op)
            raise NoNode(f"{sign} gives {result!r} and not a {self.cls.__name__}")
        return result

    def _apply(self, op: str, *xs: Any) -> Any:
        if op in _OPERATORS and hasattr(self.cls, f"__{op}__"):
            return _OPERATORS[op](*xs)
        name = _first(self.cls, self._names(op))
        if name and isinstance(xs[0], self.cls):
            return getattr(xs[0], name)(*xs[1:])
        function = self._function(op)
        if function is None:
            raise TypeError(f"{self.cls.__name__} has no {op}")
        return function(*xs)

    def _names(self, op: str) -> Sequence[str]:
        return _METHODS.get(op, (op, op.capitalize(), {"relu": "ReLU"}.get(op, op)))

    def _function(self, op: str) -> Callable[..., Any] | None:
        found = getattr(self.module, op, None)
        return found if inspect.isfunction(found) else None

    # --- the backward pass ----------------------------------------------------------------------

    @property
    def has_backward(self) -> bool:
        """Whether there is a backward pass to try."""
        return bool(self.method or self.function)

    def backward(self, v: Any) -> None:
        """Run it, with fresh buffers where it asks for some."""
        run = getattr(v, self.method) if self.method else None
        if run is None:
            function = getattr(self.module, self.function)
            function(v)
        else:
            run(*_buffers(run))

    def one_step(self, v: Any) -> Callable[[], Any] | None:
        """One node's own step, where it is kept as a closure."""
        step = getattr(v, "_backward", None)
        return step if callable(step) and not _needed(step) else None

    def sort(self, v: Any) -> list[Any] | None:
        """The engine's own topological order, where it can be asked for."""
        for owner, arguments in ((v, ()), (self.module, (v,))):
            name = _first(owner, _SORT)
            found = getattr(owner, name, None) if name else None
            if callable(found) and len(_needed(found)) == len(arguments):
                order = found(*arguments)
                if order is None:
                    raise NoNode(f"{name} gives None and not a list")
                return list(order)
        return None


def _needed(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that have no default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]


def _buffers(run: Callable[..., Any]) -> list[Any]:
    """Empty buffers for a pass that takes its topo, visited and stack from outside."""
    made: list[Any] = []
    for parameter in _needed(run):
        name = parameter.name.lower()
        made.append(set() if "visit" in name or "seen" in name else [])
    return made


def _find_class(module: ModuleType) -> type:
    """The class to try: by its name, else the only one with a backward pass, else the only one."""
    own = [
        thing
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__ == module.__name__
    ]
    imported = [thing for thing in vars(module).values() if inspect.isclass(thing)]
    for candidates in (own, imported):
        for name in _CLASSES:
            named = getattr(module, name, None)
            if isinstance(named, type) and named in candidates:
                return named
    able = [c for c in own if _first(c, _BACKWARD)] or own
    if len(able) == 1:
        return able[0]
    raise NoEngine(
        f"which class is it: {', '.join(c.__name__ for c in able)}? Call it Value"
        if able
        else "a class: there is none in the file. Begin with class Value:"
    )
