"""Runs a program eagerly and compiled, each in a fresh world of its own, and says what differs.

A ``Program`` comes in, a list of ``Difference`` goes out: values, gradients, types, exceptions,
what was printed, what became of the globals and of the arguments. The eager side is the definition:
``chainrule.value_and_grad(f)`` and ``f`` itself on the original objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import linecache
import math
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz_programs import Program
from fuzz_trees import SKIPPED, Node, first_difference, numbers_of, short, tree
from fuzz_ways import WAYS

import chainrule
from chainrule import Value, optim
from chainrule.compiler.mapping import costs
from chainrule.compiler.runtime.ledger import allowance
from chainrule.compiler.training import batches
from chainrule.derivatives import transforms
from chainrule.trees import leaves, map_leaves

allowance.left = math.inf  # recorded at the first call, whatever that costs


@dataclass(frozen=True)
class Difference:
    """One thing that the compiled call did otherwise.

    ``kind`` is value, gradient, structure (the numbers agree, but not what they are kept in),
    exception, printed, globals or arguments.
    """

    kind: str
    call: int
    where: str
    eager: str
    compiled: str

    def __str__(self) -> str:
        return (
            f"{self.kind} of call {self.call}{self.where}:\n"
            f"  eager:    {self.eager}\n  compiled: {self.compiled}"
        )


# --- a world --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What one call did."""

    result: Any  # a tree, or None
    error: tuple[str, str] | None  # type and message
    printed: str
    world: Any
    arguments: Any


class World:
    """A module of its own that the program runs in."""

    counter = 0

    def __init__(self, source: str, inner: bool = False) -> None:
        """``inner``: a compiled function is called by others."""
        World.counter += 1
        self.inner = inner
        self.module = types.ModuleType(f"fuzz_world_{World.counter}")
        self.file = f"fuzz_world_{World.counter}.py"
        linecache.cache[self.file] = (len(source), None, source.splitlines(True), self.file)
        sys.modules[self.module.__name__] = self.module  # dataclasses look there
        exec(compile(source, self.file, "exec"), self.module.__dict__)

    def close(self) -> None:
        """Forget it."""
        sys.modules.pop(self.module.__name__, None)
        linecache.cache.pop(self.file, None)

    def do(self, statement: str) -> None:
        """Execute a statement in the module."""
        exec(compile(statement, "<before>", "exec"), self.module.__dict__)

    def snapshot(self) -> Any:
        """Its globals as a tree."""
        state = {}
        for name, thing in vars(self.module).items():
            module = getattr(thing, "__module__", self.module.__name__)  # of classes and functions
            own = module == self.module.__name__ or isinstance(thing, Value)
            code = isinstance(thing, SKIPPED) or hasattr(type(thing), "batch_value_and_grad")
            if own and not code and not name.startswith("__"):
                state[name] = thing
        return tree(state)

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
        """One call and all that can be seen of it."""
        printed = io.StringIO()
        result: Any = None
        error = None
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = tree(function(*arguments))
            except Exception as problem:
                error = (type(problem).__name__, cleaned(str(problem), self.inner))
        return Outcome(result, error, printed.getvalue(), self.snapshot(), tree(arguments))


def cleaned(message: str, inner: bool) -> str:
    """A message without addresses and numbers of worlds, its floats rounded.

    What an inner compiled function returns is one node: its name is where an operand came from.
    """
    if inner:
        message = re.sub(r" came from .*", " came from …", message, flags=re.DOTALL)
    message = re.sub(r"0x[0-9a-f]+|fuzz_world_\d+", "…", message)
    return re.sub(r"\d+\.\d+(e[-+]\d+)?", lambda found: f"{float(found[0]):.6g}", message)


# --- what eager gives -----------------------------------------------------------------------------


def as_floats(extras: Any) -> Any:
    """Extras as they are reported: numbers in place of Values."""
    if isinstance(extras, Value):
        return extras.data
    if isinstance(extras, dict):
        return {key: as_floats(x) for key, x in extras.items()}
    if isinstance(extras, tuple) and hasattr(extras, "_fields"):
        return type(extras)(*map(as_floats, extras))
    if isinstance(extras, (list, tuple)):
        return type(extras)(map(as_floats, extras))
    return extras


def eager_value_and_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """``chainrule.value_and_grad``, and extras where ``f`` returns ``(loss, extras)``."""

    def main(result: Any) -> Any:
        return result[0] if isinstance(result, tuple) and len(result) == 2 else result

    def value_and_grad(params: Any, *data: Any) -> Any:
        value, gradient, result = transforms.value_and_derivative(
            "value_and_grad", f, params, data, {}, main
        )
        if main(result) is not result:
            value = (value, as_floats(result[1]))
        return value, gradient

    return value_and_grad


def mean(trees: list[Any]) -> Any:
    """The mean of gradients of one structure."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: mean([t[key] for t in trees]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(mean(list(parts)) for parts in zip(*trees, strict=True)))
    if isinstance(first, (list, tuple)):
        return type(first)(mean(list(parts)) for parts in zip(*trees, strict=True))
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        fields = [field.name for field in dataclasses.fields(first)]
        parts = {name: mean([getattr(t, name) for t in trees]) for name in fields}
        return dataclasses.replace(first, **parts)
    return sum(trees[1:], first) / len(trees)


def eager_batch(f: Callable[..., Any]) -> Callable[..., Any]:
    """The mean over samples."""

    def batch_value_and_grad(params: Any, samples: list[Any]) -> Any:
        each = [eager_value_and_grad(f)(params, *sample) for sample in samples]
        return sum(value for value, _ in each) / len(each), mean([g for _, g in each])

    return batch_value_and_grad


def eager_train(f: Callable[..., Any]) -> Callable[..., Any]:
    """The loop that one would write, and what ``train`` says of a step that it does not take."""

    def train(params: Any, samples: list[Any]) -> Any:
        optimiser = optim.SGD(params, lr=0.05)
        losses = []
        for step in range(2 * len(samples)):
            value, gradient = eager_value_and_grad(f)(params, *samples[step % len(samples)])
            after = f"at step {step + 1}; the parameters are those after step {step}"
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value} {after}")
            for name, part in leaves(gradient, "params"):
                if not np.isfinite(part).all():
                    raise FloatingPointError(f"the gradient of {name} is not finite {after}")
            before = {name: array.copy() for name, array in optimiser.arrays.items()}
            optimiser.step(gradient)
            for name, array in optimiser.arrays.items():
                if not np.isfinite(array).all():
                    for part, old in before.items():
                        optimiser.arrays[part][...] = old
                    raise OverflowError(f"the update of {name} overflows {after}")
            losses.append(value)
        return np.array(losses), params

    return train


def plain_call(
    function: Callable[..., Any], values: bool, again: bool = True
) -> Callable[..., Any]:
    """A plain call, with Values for the parameters if wanted, and then their gradients as well.

    These are differentiated ``again``, as the result of the call and in an expression of it.
    """
    if not values:
        return function

    def call(params: Any, *data: Any) -> Any:
        leaves: list[Value] = []

        def lift(part: Any) -> Any:
            if isinstance(part, dict):
                return {key: lift(x) for key, x in part.items()}
            if isinstance(part, tuple) and hasattr(part, "_fields"):
                return type(part)(*map(lift, part))
            if isinstance(part, (list, tuple)):
                return type(part)(map(lift, part))
            if isinstance(part, np.ndarray):
                lifted = np.empty(part.shape, object)
                lifted.flat = [lift(x) for x in part.ravel().tolist()]
                return lifted
            if isinstance(part, float):
                leaves.append(Value(part))
                return leaves[-1]
            return part

        result = function(lift(params), *data)
        if isinstance(result, Value):
            result.backward()
            curved = curvature(result, leaves) if again else None
            return result.data, [leaf.grad for leaf in leaves], curved
        return result

    return call


def curvature(result: Value, leaves: list[Value]) -> Any:
    """The Hessian of a result, and of an expression that it is part of, times a vector."""
    found = []
    for y in (result, result * (0.5 * result + leaves[0])) if leaves else ():
        slopes = chainrule.gradients(y, leaves, create_graph=True)
        along = sum(slope * (1.0 + 0.25 * k) for k, slope in enumerate(slopes))
        found.append(chainrule.gradients(along, leaves))
    return found


def product(f: Callable[..., Any]) -> Callable[..., Any]:
    """The Hessian times the parameters themselves."""
    made = chainrule.hvp(f)
    return lambda params, *data: made(params, params, *data)


DERIVATIVES = {"jacobian": chainrule.jacobian, "hessian": chainrule.hessian, "hvp": product}


# --- the comparison -------------------------------------------------------------------------------


def functions(program: Program, eager: World, compiled: World) -> tuple[Any, Any]:
    """The eager function and its compiled counterpart."""
    f = vars(eager.module)["f"]
    fast = chainrule.compile(vars(compiled.module)["f"], **program.options)
    if program.mode == "value_and_grad":
        return eager_value_and_grad(f), fast.value_and_grad
    if program.mode == "batch":
        return eager_batch(f), fast.batch_value_and_grad
    if program.mode == "train":

        def train(params: Any, samples: list[Any]) -> Any:
            optimiser = optim.SGD(params, lr=0.05)
            return fast.train(params, samples, optimiser, 2 * len(samples)), params

        return eager_train(f), train
    if program.mode in DERIVATIVES:
        derivative = DERIVATIVES[program.mode]
        return derivative(f), derivative(fast)
    if program.mode in WAYS:
        return WAYS[program.mode](f, eager_value_and_grad(f), fast, program.seed)
    values = program.mode == "values"
    again = "checkpoint" not in program.source  # whose eager graph has numbers for derivatives
    return plain_call(f, values, again), plain_call(fast, values, again)


@contextlib.contextmanager
def batches_in_lanes(program: Program) -> Iterator[None]:
    """Small batches of every other program run as large ones would, and not as calls in a row."""
    usual = batches.FEWEST, batches.ALIKE, batches.PACKING, costs.PREPARE
    if len(program.source) % 2 == 0:
        batches.FEWEST, batches.ALIKE, batches.PACKING, costs.PREPARE = 2, 0, 0.0, 0.0
    try:
        yield
    finally:
        batches.FEWEST, batches.ALIKE, batches.PACKING, costs.PREPARE = usual


def differences(program: Program, strict: bool = False, stop: bool = True) -> list[Difference]:
    """What the compiled function does otherwise; with ``stop`` only up to the first call that does.

    Unless ``strict``, a gradient that is a list or tuple where eager gives an array is let through.
    """
    with warnings.catch_warnings(), batches_in_lanes(program):
        warnings.simplefilter("ignore")
        found = _found(program, strict, stop)
        numbers = {x.kind for x in found} <= {"value", "gradient"}
        rounded = program.options.get("lift") is not False
        rounded = rounded and program.mode in ("value_and_grad", *WAYS)
        if found and numbers and rounded and is_unstable(program, found[0].call):
            return _found(on_the_tape(program), strict, stop)
        return found


def on_the_tape(program: Program) -> Program:
    """The same without machine code: then bits agree."""
    return dataclasses.replace(program, options={**program.options, "lift": False})


def is_unstable(program: Program, number: int) -> bool:
    """Whether a call's parameters, moved by their last bits, move eager's own result as far.

    Such a program (``total += total % 0.9``, forty times) doubles every rounding each time.
    Machine code adds in another order.
    """
    outcomes = []
    for factor in (1.0, 1.0 + 1e-15):
        world = World(program.eager_source)
        try:
            slow, _ = functions(program, world, world)
            for call in program.calls[: number + 1]:
                if call.before:
                    world.do(call.before)
                arguments = eval(call.arguments, vars(world.module))
                if call is program.calls[number]:
                    move = functools.partial(scaled, factor)
                    arguments = (map_leaves(move, arguments[0], records=True), *arguments[1:])
                outcome = world.run(slow, arguments)
            outcomes.append(outcome)
        finally:
            world.close()
    return first_difference(outcomes[0].result, outcomes[1].result, exact=False) is not None


def scaled(factor: float, x: Any) -> Any:
    """A number or an array of them, scaled; anything else as it is."""
    return x * factor if isinstance(x, (float, np.ndarray)) else x


def _found(program: Program, strict: bool, stop: bool) -> list[Difference]:
    inner = program.eager_source != program.source
    eager, compiled = World(program.eager_source, inner), World(program.source, inner)
    try:
        return list(_differences(program, eager, compiled, strict, stop))
    finally:
        eager.close()
        compiled.close()


def _differences(program: Program, eager: World, compiled: World, strict: bool, stop: bool) -> Any:
    # On the tape bits agree. A plain call of floats divides as floats do, and Values by a power.
    # Products of arrays of data are BLAS's in eager mode, which adds as it likes.
    exact = program.options.get("lift") is False and program.mode == "value_and_grad"
    exact = exact and not re.search(r" @ |\bdot\(|\binner\(|\beinsum\(", program.source)
    slow, fast = functions(program, eager, compiled)
    for number, call in enumerate(program.calls):
        outcomes = []
        for world, function in ((eager, slow), (compiled, fast)):
            if call.before:
                world.do(call.before)
            arguments = eval(call.arguments, vars(world.module))
            outcomes.append(world.run(function, arguments))
        found = list(_compared(number, *outcomes, exact, strict))
        yield from found
        if found and stop:
            return


def _compared(number: int, a: Outcome, b: Outcome, exact: bool, strict: bool) -> Any:
    if a.error != b.error:
        yield Difference("exception", number, "", described(a), described(b))
    elif a.error is None:
        found = first_difference(a.result, b.result, exact)
        if found is not None:
            path, x, y = found
            loose = first_difference(numbers_of(a.result), numbers_of(b.result), exact)
            if loose is not None:
                path, x, y = loose
                if isinstance(x, Node) or isinstance(y, Node) or type(x) is not type(y):
                    kind = "structure"
                else:
                    kind = "gradient" if path[:1] == ("1",) else "value"
                yield Difference(kind, number, f" at {'/'.join(path)}", short(x), short(y))
            elif strict:
                yield Difference("structure", number, f" at {'/'.join(path)}", short(x), short(y))
    for kind, x, y in (
        ("printed", a.printed, b.printed),
        ("globals", a.world, b.world),
        ("arguments", a.arguments, b.arguments),
    ):
        found = first_difference(x, y, exact=False)
        if found is not None:
            path, p, q = found
            yield Difference(kind, number, f" at {'/'.join(path)}", short(p), short(q))


def described(outcome: Outcome) -> str:
    """An outcome in a line."""
    return ": ".join(outcome.error) if outcome.error else f"returned {short(outcome.result)}"
