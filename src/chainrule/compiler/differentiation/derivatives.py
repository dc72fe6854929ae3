"""The recording of a derivative: Jacobian, Hessian, or their product with a vector.

In: a recording of a function, with Values for the numbers it is differentiated by, and a
``Transform``. Out: the recording of what the eager transform returns, number by number. All that
the function itself computes and all of its guards stay in it, so that a call for which eager would
raise or branch otherwise is noticed here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import ArrayOutput, Output, Recording
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.differentiation.sweeps import Row, active_edges, forward, reverse, rows
from chainrule.compiler.differentiation.symbols import Extension, Term, with_inputs
from chainrule.derivatives.arguments import Argument, Block, array_of, flatten_results
from chainrule.derivatives.matrices import Pattern, blocks
from chainrule.derivatives.transforms import Transform
from chainrule.trees import map_leaves

MOST = 1_000_000  # products in the sweeps of one recording


def derive(
    transform: Transform,
    recording: Recording,
    argument: Argument,
    vector: Argument | None,
    again: bool = False,
) -> Recording:
    """The derivative of a recording by its first inputs, which are the numbers of ``argument``.

    ``vector``: what it is multiplied with, whose numbers become the inputs after these.
    ``again``: the derivative will be differentiated itself, so what it returns are Values. Where
    eager raises, this raises too: the caller leaves it to eager then.
    """
    if (
        recording.unflagged.any()
        and _depends(recording, len(argument.numbers))[recording.unflagged].any()
    ):
        raise Unrecordable("it allows undefined values, whose derivatives only eager knows")
    if recording.selection.gathers:
        raise Unrecordable("it differentiates what integers select")
    if vector is not None:
        recording = with_inputs(recording, len(argument.numbers), len(vector.numbers))
    return _Derivative(transform, recording, argument, vector, again).recording()


def _depends(recording: Recording, count: int) -> npt.NDArray[np.bool_]:
    """Of each instruction: whether it is computed from any of the first ``count`` inputs."""
    found = np.zeros(len(recording) + 1, np.bool_)  # the last is for no operand, which is -1
    found[:count] = True
    for i, operands in enumerate(recording.operands[count:].tolist(), count):
        found[i] = found[operands].any()
    return found[:-1]


def check_alike(vector: Argument, to: Argument) -> None:
    """Refuse a vector of another structure.

    Eager says what is wrong with it, or takes it: the keys of dicts may have any order.
    """
    if repr(vector.map(lambda block: block.shape)) != repr(to.map(lambda block: block.shape)):
        raise ValueError("a vector has not exactly the structure that it needs")


class _Derivative:
    """The derivative of one recording under construction."""

    def __init__(
        self,
        transform: Transform,
        recording: Recording,
        argument: Argument,
        vector: Argument | None,
        again: bool,
    ) -> None:
        self.transform, self.argument, self.vector = transform, argument, vector
        self.again = again
        self.extension = Extension(recording)
        self.inputs = range(len(argument.numbers))
        first, count = len(self.inputs), 0 if vector is None else len(vector.numbers)
        self.steps = range(first, first + count)  # the inputs that are the vector
        result = map_leaves(_as_array, recording.result, records=True)
        self.aux: tuple[Any, ...] = ()
        if transform.has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError("with has_aux it must return a pair")
            result, self.aux = result[0], (result[1],)
        self.results = flatten_results(result)
        if not all(type(x) in (Output, float, int) for x in self.results.numbers):
            raise TypeError("it returns something else than numbers")
        self.outputs: list[Term] = [
            x.position if isinstance(x, Output) else float(x) for x in self.results.numbers
        ]
        #: the same, without those that are plain numbers and have no derivative
        self.values: list[Term] = [
            x.position if isinstance(x, Output) and x.is_value else 0.0
            for x in self.results.numbers
        ]

    def recording(self) -> Recording:
        """The whole of it."""
        compute: Callable[[], Any] = getattr(self, f"_{self.transform.name}")
        terms = compute()
        if self.transform.has_aux and self.transform.name != "vjp":
            aux = map_leaves(_as_term, self.aux[0])
            terms = (*terms, aux) if self.transform.name == "jvp" else (terms, aux)
        found: list[Term] = []
        map_leaves(lambda x: found.extend(_terms_in(x)), terms, records=True)

        def result(at: Any) -> Any:
            return map_leaves(lambda x: _output(x, at, self.again), terms, records=True)

        return self.extension.finish(result, [x for x in found if type(x) is int])

    # --- what is returned: trees of terms, and of arrays of terms ---------------------------------

    def _jacobian(self) -> Any:
        return self._matrix(self._rows(self.values), self.results)

    def _hessian(self) -> Any:
        gradient = self._gradient()
        found = self._rows(gradient)
        for i in self.inputs:  # the lower triangle is enough
            for j in [k for k in found[i] if k < i]:
                found[j][i] = found[i][j]
            for j in [k for k in found[i] if k > i]:
                if i not in found[j]:  # only one of both was found to differ from 0
                    del found[i][j]
        return self._matrix(found, self.argument)

    def _hvp(self) -> Any:
        row = np.array(self._along(self._gradient()), object).reshape(1, -1)
        return self.argument.results(row)

    def _jvp(self) -> Any:
        along = self._along(self.values)
        return self.results.filled(self.outputs), self.results.filled(along)

    def _results(self) -> Any:
        return self.results.filled(self.outputs)

    def _vjp(self) -> Any:
        seeds: Row = {}
        assert self.vector is not None
        check_alike(self.vector, self.results)
        for y, step in zip(self.values, self.steps, strict=True):
            if type(y) is int:
                seeds[y] = self.extension.add(seeds[y], step) if y in seeds else step
        edges = active_edges(self.extension, self.inputs, seeds)
        row = reverse(self.extension, edges, seeds, self.inputs)
        return self.argument.filled([row.get(x, 0.0) for x in self.inputs])

    def _grad(self) -> Any:
        return self.argument.filled(self._gradient())

    def _value_and_grad(self) -> Any:
        return self.outputs[0], self._grad()

    # --- how it is computed -----------------------------------------------------------------------

    def _gradient(self) -> list[Term]:
        """The derivative of the only output by each input."""
        if not isinstance(self.results.tree, Block) or self.results.tree.shape:
            raise TypeError("it returns several numbers")
        (y,) = self.values
        if type(y) is not int:
            return [0.0 for _ in self.inputs]
        edges = active_edges(self.extension, self.inputs, [y])
        row = reverse(self.extension, edges, {y: 1.0}, self.inputs)
        return [row.get(x, 0.0) for x in self.inputs]

    def _rows(self, outputs: Sequence[Term]) -> list[Row]:
        """For each output its derivatives by the inputs, without those that are always 0."""
        positions = [y for y in outputs if type(y) is int]
        found = rows(self.extension, self.inputs, positions, MOST)
        if found is None:
            raise Unrecordable(f"its derivative takes more than {MOST:,} products")
        return [
            {x: d for x, d in found[y].items() if d != 0.0 or type(d) is int}
            if type(y) is int
            else {}
            for y in outputs
        ]

    def _along(self, outputs: Sequence[Term]) -> list[Term]:
        """The derivative of each output along the vector."""
        positions = [y for y in outputs if type(y) is int]
        seeds: dict[int, Row] = {x: {0: v} for x, v in zip(self.inputs, self.steps, strict=True)}
        edges = active_edges(self.extension, self.inputs, positions)
        found = forward(self.extension, edges, seeds, positions)
        return [found[y].get(0, 0.0) if type(y) is int else 0.0 for y in outputs]

    def _matrix(self, found: list[Row], results: Argument) -> Any:
        """Rows in the structure of the results and the argument, or as a sparse matrix."""
        if self.transform.sparse:
            columns = [sorted(row) for row in found]
            terms = [row[x] for row, places in zip(found, columns, strict=True) for x in places]
            return _Sparse(terms, Pattern.of(columns, len(self.inputs)))
        matrix = np.full((len(found), len(self.inputs)), 0.0, object)
        for row, terms_of in zip(matrix, found, strict=True):
            for x, term in terms_of.items():
                row[x] = term
        return blocks(results, self.argument, matrix)


class _Sparse:
    """The terms of a sparse matrix, and where they are."""

    def __init__(self, terms: list[Term], pattern: Pattern) -> None:
        self.terms, self.pattern = terms, pattern


def _as_array(x: Any) -> Any:
    """An array that a recording returns as an array of its items."""
    return array_of(x.items, x.shape, object) if isinstance(x, ArrayOutput) else x


def _as_term(x: Any) -> Any:
    """What comes along: numbers as they are, Values as numbers."""
    if isinstance(x, np.ndarray):
        return array_of([_as_term(item) for item in x.ravel().tolist()], x.shape, object)
    return x.position if isinstance(x, Output) else _Fixed(x)


class _Fixed:
    """Something that a function returns beside its result, and that is the same at every call."""

    def __init__(self, content: Any) -> None:
        self.content = content


def _terms_in(leaf: Any) -> list[Term]:
    if isinstance(leaf, _Sparse):
        return leaf.terms
    if isinstance(leaf, np.ndarray):
        return [x for item in leaf.ravel().tolist() for x in _terms_in(item)]
    return [] if isinstance(leaf, _Fixed) else [leaf]


def _output(leaf: Any, at: Any, is_value: bool) -> Any:
    """A term, or an array of terms, as what a recording returns; ``at``: the new positions."""
    if isinstance(leaf, _Sparse):
        items = [_output(x, at, is_value) for x in leaf.terms]
        return ArrayOutput.of(items, (len(items),), leaf.pattern)
    if isinstance(leaf, np.ndarray):
        items = [_output(x, at, is_value) for x in leaf.ravel().tolist()]
        return ArrayOutput.of(items, leaf.shape)
    if isinstance(leaf, _Fixed):
        return leaf.content
    return Output(int(at[leaf]), is_value) if isinstance(leaf, int) else leaf
