"""``to_numpy``, ``to_jax`` and ``to_torch``: a function of Values as a function of arrays.

In: a function and example arguments. Out: a ``Translated`` function over arguments of the same
structure, its source, and nothing else: what cannot be translated, or does not give eager's value
and gradient, raises a ``TranslationError`` that says why in one line.
"""

from __future__ import annotations

import importlib
import linecache
import operator
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import confirm, trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.formulas import input_names
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.input_names import expectations, kinds
from chainrule.compiler.formulas.reading import WIDTH, Reading, read
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.program import Program
from chainrule.compiler.runtime.results import wanted_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.runtime.verification import check_against_eager
from chainrule.compiler.translate.catching import place_of_handler
from chainrule.compiler.translate.checking import (
    Evaluate,
    check,
    check_forward,
    eager,
    passed_arguments,
    plain_arguments,
    with_arrays,
)
from chainrule.compiler.translate.dialects import DIALECTS, Dialect
from chainrule.compiler.translate.evaluating import evaluated_by_jax, evaluated_by_torch
from chainrule.compiler.translate.module import Module, Signature, Source
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.core.interrupts import Held
from chainrule.files import write_atomically
from chainrule.trees import Again, Branch, Node, SameValue

SHORT = 40  # characters of a constant that are shown
PARTS = 64  # a sum has at most so many, each a term of its own in the source


class TranslationError(ValueError):
    """A function that has no array source, and why.

    >>> import chainrule
    >>> sign = chainrule.compile(lambda p: p[0] if p[0] > 0 else -p[0])
    >>> try:
    ...     sign.to_numpy([1.0])
    ... except chainrule.TranslationError as error:
    ...     print(str(error).partition(" at ")[0])
    <lambda> has no numpy source: it holds for one case only: a branch
    """


class Translated:
    """A function of arrays, written as source from a function of Values.

    Call it with arguments of the structure it was made with. ``source`` is the text of a module
    that runs without chainrule; ``save(path)`` writes it to a file.
    """

    def __init__(
        self,
        source: str,
        name: str,
        dialect: str,
        example: tuple[Any, ...],
        compare: Callable[[Callable[..., Any], tuple[Any, ...]], None] | None = None,
    ) -> None:
        """``compare``: does so with the function itself, for these arguments."""
        self.source, self.__name__, self.dialect = source, name, dialect
        self._example, self._compare = example, compare
        #: how many items its lists may have, where these are padded
        self.lengths: tuple[int, ...] = ()
        self.function = _loaded(source, name, is_module=dialect == "torch")
        self.__wrapped__ = self.function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The value, of arrays."""
        return self.function(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<{self.__name__} in {self.dialect}, {len(self.source.splitlines())} lines>"

    def check(self, *arguments: Any) -> None:
        """Compare it with the function itself, for one call; a TranslationError where they differ.

        The value is compared and, in JAX and torch, a derivative along a line. The function runs
        forward only and keeps no graph, so that a large call takes time rather than memory.
        """
        if self._compare is None:
            raise TranslationError(f"{self.__name__} has nothing to be compared with")
        try:
            self._compare(self.function, arguments)
        except Untranslatable as reason:
            raise TranslationError(f"{self.__name__} in {self.dialect}: {reason}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the source to a file; JAX's also compiled, to one that ends in .stablehlo.

        ``jax.export.deserialize(content).call(*arguments)`` runs the latter, without any source, on
        a CPU or a GPU. Its numbers are float32, or float64 where JAX has that switched on.
        """
        file = Path(path)
        if file.suffix != ".stablehlo":
            write_atomically(file, self.source)
            return
        if self.dialect != "jax":
            raise TranslationError("a .stablehlo file is written from JAX source: use to_jax")
        jax = _imported_jax()
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x), jax.numpy.result_type(x)), self._example
        )
        exported = jax.export.export(jax.jit(self.function), platforms=("cpu", "cuda"))(*shapes)
        write_atomically(file, bytes(exported.serialize()))


def _loaded(source: str, name: str, is_module: bool) -> Callable[..., Any]:
    """The function that a source defines; tracebacks show its lines.

    ``is_module``: it can be imported, as torch.compile does to find what the function uses.
    """
    number = f"{hash(source) & 0xFFFFFFFF:08x}"
    file = f"<translated {name} {number}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType(f"translated_{name}_{number}")
    if is_module:
        sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), module.__dict__)
    function: Callable[..., Any] = getattr(module, name)
    return function


def formulas(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> str:
    """The function in index notation, recorded with these arguments."""
    with clear_lines(function, arguments, "formulas"):
        recorded = recorded_call(function, flatten_call(arguments, keywords, True))
        program, root = _programs(recorded, [])[0], wanted_of(recorded.recording)
        assert root is not None
        inputs = signature_of(function, recorded, False).inputs
        choice, address = Choice(recorded.recording), int(program.address[root.position])
        return read(program, inputs, choice, address)


def translate(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    to: str,
    specialise: bool = False,
) -> Translated:
    """The function as source of a dialect, recorded with these arguments and checked with them.

    ``specialise``: also where it has branches; it returns whether they were the recorded ones then.
    """
    dialect, evaluate = DIALECTS[to], evaluator(to, specialise)
    arguments = tuple(map(in_double, arguments))
    keywords = {name: in_double(x) for name, x in keywords.items()}
    with clear_lines(function, arguments, f"{to} source"):
        recorded = recorded_call(function, flatten_call(arguments, keywords, True))
        return _translate(function, recorded, dialect, evaluate, specialise)


def in_double(x: Any) -> Any:
    """An example with arrays of 64 bits in the place of JAX's, of torch's and of narrower ones.

    What holds none of these stays the same object: one that comes twice is noticed.
    """
    if isinstance(x, dict):
        items = {key: in_double(item) for key, item in x.items()}
        return items if any(items[key] is not x[key] for key in x) else x
    if type(x) in (list, tuple):
        inside = list(map(in_double, x))
        return type(x)(inside) if any(map(operator.is_not, inside, x)) else x
    library = type(x).__module__.partition(".")[0]
    if library == "torch" and hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.double() if x.is_floating_point() else x).numpy()
    if library in ("jax", "jaxlib"):
        x = np.asarray(x)
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiu":
        return x.astype(np.float64 if x.dtype.kind == "f" else np.int64, copy=False)
    return x


@contextmanager
def clear_lines(
    function: Callable[..., Any], arguments: tuple[Any, ...], what: str
) -> Iterator[None]:
    """What goes wrong ends as one line that names the function."""
    name = getattr(function, "__qualname__", type(function).__name__)
    if not arguments:
        raise TranslationError(f"{name} needs example arguments: the structure of its calls")
    try:
        yield
    except Unrecordable as reason:
        raise TranslationError(f"{name} runs eagerly: {reason}") from None
    except (Untranslatable, NotLiftable) as reason:
        raise TranslationError(f"{name} has no {what}: {reason}") from None


@dataclass(frozen=True, eq=False)
class Recorded:
    """A call, its recording, and the state that the function captured."""

    call: Call
    made: Trace
    captured: CapturedState

    @property
    def recording(self) -> Recording:
        """The recording itself."""
        return self.made.recording


def recorded_call(function: Callable[..., Any], call: Call) -> Recorded:
    """Record a call, and compare it with eager mode."""
    if call.refused is not None:
        raise Unrecordable(call.refused)
    if any(_comes_again(node) for node in (*call.structure[0], *call.structure[1].values())):
        raise Untranslatable("a list, dict, array or Value comes twice in its arguments: copy it")
    with Held(), random_states_kept():  # half a recording would leave max replaced
        return _record(function, call)


def _record(function: Callable[..., Any], call: Call) -> Recorded:
    captured = survey(function, call.roots)
    if captured.reaches(call.containers) or (captured.hashes and call.has_identity):
        raise Untranslatable("it may tell an object that it is passed from a copy of it")
    try:
        made = trace(function, captured, call)
    except Exception as error:
        captured.restore()
        eager(function, call)  # which raises the function's own error, if it is that
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Untranslatable(f"recording it raised {text}") from error
    confirm(function, captured, call, made)
    check_against_eager(function, captured, Variant.of(made), call)
    handler = place_of_handler(captured)
    if handler is not None and len(made.recording) > made.recording.inputs:
        raise Untranslatable(
            f"its code may catch an error of arithmetic, at {handler}, and arrays raise none: "
            "write where(condition, a, b) instead of the handler"
        )
    return Recorded(call, made, captured)


def _translate(
    function: Callable[..., Any],
    recorded: Recorded,
    dialect: Dialect,
    evaluate: Callable[[Any], Evaluate],
    specialise: bool,
) -> Translated:
    if not specialise:
        refuse_guards(recorded.recording)
    signature = signature_of(function, recorded, specialise)
    source = source_of(recorded, signature, dialect).text
    example = example_of(recorded)
    compare = comparing(function, evaluate, specialise)
    translated = Translated(source, signature.name, dialect.name, example, compare)
    with random_states_kept():
        check(function, evaluate(translated.function), recorded.call, specialise)
    return translated


def example_of(recorded: Recorded) -> tuple[Any, ...]:
    """The arguments of the example: in arrays, but where the source tells these from lists."""
    asked = recorded.captured.asks_types
    return passed_arguments(recorded.call) if asked else plain_arguments(recorded.call)


def source_of(recorded: Recorded, signature: Signature, dialect: Dialect) -> Source:
    """The source of a recording, in the shorter of its two forms."""
    sources: list[Source] = []
    reasons: list[str] = []
    for program in _programs(recorded, reasons):
        try:
            reading = reading_of(program, recorded, signature)
            sources.append(Module(reading, signature, dialect).source())
        except Untranslatable as reason:
            reasons.append(str(reason))
    if not sources:
        raise Untranslatable(reasons[-1])
    return min(sources, key=lambda source: len(source.text.splitlines()))


def comparing(
    function: Callable[..., Any], evaluate: Callable[[Any], Evaluate], specialise: bool
) -> Callable[[Callable[..., Any], tuple[Any, ...]], None]:
    """How a translated function is compared with the function itself, later."""

    def compare(made: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        call = flatten_call(tuple(map(in_double, arguments)), {}, True)
        check_forward(function, evaluate(made), call, specialise)

    return compare


_ADVICE = (
    "write where(condition, a, b), or ask for specialise=True, which returns beside the result "
    "whether this case holds"
)


def _comes_again(node: Node) -> bool:
    if isinstance(node, Branch):
        return any(map(_comes_again, node.items))
    return isinstance(node, Again | SameValue)


def refuse_guards(recording: Recording) -> None:
    """A recording that holds for one case only is no program for others."""
    lines = [f"a branch at {guard.line}" for guard in recording.guards]
    lines += [
        f"a branch on integers at {guard.line}"
        if guard.truth
        else f"an integer is static at {guard.line}"
        for guard in recording.selection.program.guards
    ]
    if lines:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise Untranslatable(f"it holds for one case only: {lines[0]}{more}; {_ADVICE}")


def _programs(recorded: Recorded, reasons: list[str]) -> list[Program]:
    """The array programs of a recording: without loops in time, and with them."""
    found = []
    for with_loops in (False, True):
        try:
            made = lifted(recorded, with_loops)
            if made is not None:
                found.append(made)
        except NotLiftable as reason:
            reasons.append(str(reason))
    if not found:
        raise Untranslatable(reasons[-1])
    return found


def lifted(recorded: Recorded, with_loops: bool) -> Program | None:
    """An array program of a recording; None where it has no loops in time."""
    root = wanted_of(recorded.recording)
    if root is None:
        raise Untranslatable("it returns no single Value, and no numbers")
    source = RecordedCall.of(recorded.call, recorded.recording, root.position, margins=False)
    return source.without_steps(with_loops)


def reading_of(
    program: Program,
    recorded: Recorded,
    signature: Signature,
    length: Callable[[str], int] = len,
) -> Reading:
    """The formulas of an array program; ``length``: of a formula, which decides what is inlined."""
    recording = recorded.recording
    root = wanted_of(recording)
    assert root is not None
    outputs = [int(program.address[x.position]) for x in recording.outputs]
    address, choice = int(program.address[root.position]), Choice(recording)
    return Reading(program, signature.inputs, choice, address, outputs, PARTS, True, length)


def signature_of(function: Callable[..., Any], recorded: Recorded, specialised: bool) -> Signature:
    """How the function is called, and what its source says about it."""
    made = recorded.made
    structures, named = recorded.call.structure
    inputs = input_names.inputs(
        function, structures, named.items(), made.captured, recorded.captured
    )
    parameters = (*input_names.parameters(function, len(structures)), *named)
    name = getattr(function, "__name__", "function")
    name = name if name.isidentifier() else "function"
    where = getattr(function, "__module__", "")
    summary = [
        f"{name}, written as arrays by chainrule from scalar Python ({where}).",
        "",
        "Each line of the function has its formula above it.",
    ]
    constants = _constants(function, recorded.captured)
    if constants:
        words = f"Constants, as they were in its surroundings: {', '.join(constants)}"
        summary += ["", *textwrap.wrap(words, WIDTH - 4, subsequent_indent="  ")]
    parts = [*structures, *named.values()]
    known = [pair for x in zip(parts, parameters, strict=True) for pair in expectations(*x)]
    asked = zip(parts, parameters, strict=True) if recorded.captured.asks_types else ()
    types = tuple([pair for x in asked for pair in kinds(*x)])
    result, about = made.recording.result, tuple(summary)
    return Signature(
        name, parameters, tuple(inputs), result, specialised, tuple(known), types, about
    )


def _constants(function: Callable[..., Any], captured: CapturedState) -> list[str]:
    """The numbers and words that a function finds outside of its arguments, by name."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    found = [(name, x) for space, name, x in captured.names if isinstance(space, dict)]
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        with suppress(ValueError):  # an empty cell
            found.append((name, cell.cell_contents))
    made = {}
    for name, x in found:
        if isinstance(x, int | float | str | list | tuple | np.ndarray):
            text = " ".join(repr(x).split())
            made[name] = f"{name} = {text if len(text) <= SHORT else '...'}"
    return list(made.values())


def _imported_jax() -> Any:
    try:
        with Held():  # Ctrl-C in the middle of this import crashes some processes
            importlib.import_module("jax.export")
            return importlib.import_module("jax")
    except ImportError:
        raise TranslationError("to_jax needs JAX: pip install 'chainrule[jax]'") from None


def _imported_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise TranslationError("to_torch needs torch: pip install 'chainrule[torch]'") from None


def evaluator(to: str, specialised: bool) -> Callable[[Any], Evaluate]:
    """How a translated function is evaluated, in double precision, with its gradient if it can."""
    make: Callable[[Any], Evaluate]
    if to == "numpy":
        make = _evaluated_by_numpy
    elif to == "torch":
        make = partial(evaluated_by_torch, _imported_torch(), specialised)
    else:
        make = partial(evaluated_by_jax, _imported_jax(), specialised)
    return lambda function: with_arrays(function, make(function))


def _evaluated_by_numpy(function: Callable[..., Any]) -> Evaluate:
    return lambda arguments: (function(*arguments), None)
