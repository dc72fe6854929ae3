"""From nodes to arrays: what a recorder was told of becomes a ``Recording``.

In: the recorder, the Values that the function may have used, what it returned. Out: the flat
arrays, in which instructions read what gathers selected, with guards and outputs by position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.handing import Change, Passed, Same
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.kinds import Kinds
from chainrule.compiler.capture.marks import Noted
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.recordings import (
    CONSTANT,
    FIRST_RULE,
    ArrayOutput,
    Guard,
    Ints,
    Output,
    Recording,
    as_needed,
)
from chainrule.compiler.capture.standins import (
    Condition,
    Detached,
    Unrecordable,
    is_narrow,
    plain,
)
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, kernels
from chainrule.core.ops import Op
from chainrule.trees import Floats, Leaf, map_leaves


def finish(
    recorder: Recorder,
    inputs: list[Value],
    result: Any,
    like: Recording | None = None,
    held: set[int] | None = None,
    seen: Sequence[Value] = (),
    changes: Sequence[Change] = (),
    is_plain: bool = False,
    beside: bool = False,
) -> Recording:
    """The recorder's nodes as a Recording; ``inputs`` are the Values the function may have used.

    Called while recording: a gather that is returned becomes an instruction. ``like``: a recording
    that this one may repeat; then they share its arrays. ``held``: the ids of those inputs that are
    Values in eager mode; ``Observed`` where it can be told from the Values ``seen``, or otherwise,
    whether what a max gave is one too. ``changes``: of what was passed. ``is_plain``: nothing is
    differentiated, and integers that are computed at each call may be returned. ``beside``: so
    they may be beside the value, as the second of a pair.
    """
    selector = recorder.selector

    def returned_of(tree: Any, integers: bool) -> Any:
        return map_leaves(lambda x: _returned(recorder, x, integers), tree, records=is_plain)

    if beside and type(result) is tuple and len(result) == 2:
        pair = returned_of(result[0], is_plain), returned_of(result[1], True)
        returned = returned_of([change.items for change in changes], is_plain), pair
    else:
        returned = returned_of(([change.items for change in changes], result), is_plain)
    numbers = list(selector.numbers.values())
    count = len(inputs) + len(numbers)
    selected = list(selector.pending.values())
    wanted = [v for v, _, _ in recorder.guards]
    map_leaves(lambda x: wanted.extend(_values_in(x)), returned, records=True)
    for items in {id(p.items): p.items for p in selected}.values():
        wanted += items
    unclear = _Unclear(recorder, inputs, seen) if held is not None and recorder.either else None
    if unclear is not None:
        wanted += unclear.values
    given, methods = _in_plain_calls(recorder, inputs)
    wanted += [*given, *methods]
    gathers = [p.leaf for p in selected]
    if type(recorder.nodes) is list:
        flat = _flatten(recorder, [*inputs, *numbers], gathers, wanted)
    else:
        flat = _written(recorder, numbers, gathers, wanted, like)
    position = dict(zip(map(id, wanted), flat.positions.tolist(), strict=True))
    operands = flat.operands
    recorder.certain = [position[id(v)] for v in given], [position[id(v)] for v in methods]
    if unclear is not None:
        assert held is not None
        unclear.check(flat, position, [id(v) in held for v in (*inputs, *numbers)])
    if selected:  # instructions read what gathers selected, instead of what stood for it
        chosen = [position[id(p.items[recorder.integers.value(p.node)])] for p in selected]
        wanted_operands = np.array(chosen, np.int32)[flat.owners]
        if (operands.reshape(-1)[flat.places] != wanted_operands).any():
            if like is not None and operands is like.operands:
                operands = operands.copy()
            operands.reshape(-1)[flat.places] = wanted_operands
    stored, result = map_leaves(lambda x: _as_output(x, position), returned, records=True)
    if recorder.carries:
        found: list[Value] = []
        map_leaves(lambda x: found.extend(_values_in(x)), returned, records=True)
        slope = recorder.nodes.slope
        recorder.carried = {position[id(v)]: (v._number, slope(v)) for v in found}
    unflagged = np.zeros(len(flat.codes), np.bool_)
    unflagged[np.array(recorder.unflagged, np.intp) + count] = True
    return Recording(
        inputs=count,
        codes=flat.codes,
        operands=operands,
        constants=flat.constants,
        number=flat.number,
        rules=flat.rules,
        unflagged=unflagged,
        guards=tuple(Guard(position[id(v)], float(t), line) for v, t, line in recorder.guards),
        result=result,
        selection=selector.finish(
            lambda values: [position[id(v)] for v in values], flat.places, flat.owners
        ),
        changes=tuple([replace(x, items=to) for x, to in zip(changes, stored, strict=True)]),
    )


def note(recorder: Recorder, result: Any) -> tuple[Recording, Noted]:
    """What the function returned where only marks were noted; the recording has no instructions.

    Called while recording, as ``finish`` is.
    """
    returned = map_leaves(lambda x: _returned(recorder, x), result)
    wanted: list[Value] = []
    map_leaves(lambda x: wanted.extend(_values_in(x)), returned)
    found = [recorder.nodes.mark(v) for v in wanted]
    for v, x in zip(wanted, found, strict=True):
        if x is None:
            raise _unknown(v)
    position = {id(v): k for k, v in enumerate(wanted)}
    settled = [*recorder.settled, *[line for _, _, line in recorder.guards]]
    noted = Noted(
        [mark for mark, _ in found],
        np.frombuffer(recorder.nodes.hashed(), np.uint32),
        recorder.integer_marks.partial(recorder.selector.ranges),
        np.array([v._number for v in wanted], np.float64),
        found[0][1] if found else 0.0,
        (*settled, *recorder.integers.lines),
        recorder.integers.steps,
    )
    return Recording.empty(map_leaves(lambda x: _as_output(x, position), returned)), noted


def _in_plain_calls(recorder: Recorder, inputs: list[Value]) -> tuple[list[Value], list[Value]]:
    """What functions gave that give Values in a plain call too, and what must be Values there."""
    if recorder.told:
        return [], []
    pending = recorder.selector.pending
    methods: dict[int, Value] = {}
    for v in recorder.methods.values():
        items = pending[id(v)].items if id(v) in pending else (v,)
        methods.update({id(x): x for x in items})
    is_recorded = _recorded(recorder, inputs)
    if not all(map(is_recorded, methods.values())):
        recorder.told = True
        return [], []
    return list(filter(is_recorded, recorder.given.values())), list(methods.values())


def _recorded(recorder: Recorder, inputs: list[Value]) -> Callable[[Value], bool]:
    """What tells whether a Value has a place in the recording."""
    known = {id(v) for v in (*inputs, *recorder.selector.numbers.values())}
    nodes: Any = recorder.nodes
    if type(nodes) is list:
        known.update(map(id, nodes))
        nodes = ()
    return lambda v: id(v) in known or v in nodes


class _Unclear:
    """What may be a Value or a number in eager mode, and what might tell which; see ``kinds``."""

    def __init__(self, recorder: Recorder, inputs: list[Value], seen: Sequence[Value]) -> None:
        self.pending = recorder.selector.pending
        chosen = [made for made, _ in recorder.selector.chosen.values()]
        self.merged = [made for made in chosen if id(made) not in recorder.extremes]
        self.either = list(recorder.either.values())
        self.numbers = [made for _, made in recorder._detached.values()]
        is_recorded = _recorded(recorder, inputs)
        self.narrow, self.seen = (
            [v for v in found if id(v) in self.pending or is_recorded(v)]
            for found in (recorder.narrow.values(), (*seen, *recorder.asked.values()))
        )

    @property
    def values(self) -> list[Value]:
        """Those whose positions are wanted."""
        found = [*self.merged, *self.either, *self.numbers, *self.narrow, *self.seen]
        return [v for v in found if id(v) not in self.pending]

    def check(self, flat: _Flat, position: dict[int, int], values: list[bool]) -> None:
        """Record again by branches where it can be told; ``values``: which inputs are Values."""

        def places(found: Sequence[Value]) -> frozenset[int]:
            return frozenset(itertools.chain(*[self._places(v, position) for v in found]))

        pending = list(self.pending.values())
        gathers: dict[int, frozenset[int]] = {}
        of_items: dict[int, frozenset[int]] = {}
        for place, owner in zip(flat.places.tolist(), flat.owners.tolist(), strict=True):
            items = pending[owner].items
            if id(items) not in of_items:
                of_items[id(items)] = places(items)
            gathers[place // 3] = gathers.get(place // 3, frozenset()) | of_items[id(items)]
        Kinds(
            flat.codes,
            np.where(flat.operands < 0, -1, flat.operands) if pending else flat.operands,
            flat.rules,
            values,
            places(self.numbers),
            places(self.merged),
            gathers,
        ).check(places(self.either), places(self.narrow), places(self.seen))

    def _places(self, value: Value, position: dict[int, int]) -> Sequence[int]:
        gather = self.pending.get(id(value))
        items = (value,) if gather is None else gather.items
        return [position[id(v)] for v in items]


@dataclass(frozen=True, eq=False)
class _Returned(Leaf):
    """A number that the function returned, and whether it is a Value or a number of numpy's."""

    value: Value
    is_value: bool
    is_numpys: bool
    is_integer: bool = False


@dataclass(frozen=True, eq=False)
class _ReturnedArray(Leaf):
    """An array that the function returned: a ``_Returned`` or a number for each item."""

    items: list[Any]
    shape: tuple[int, ...]
    is_value: bool  # it holds objects


def _values_in(leaf: Any) -> list[Value]:
    if isinstance(leaf, _ReturnedArray):
        return [x.value for x in leaf.items if isinstance(x, _Returned)]
    return [leaf.value] if isinstance(leaf, _Returned) else []


def _as_output(leaf: Any, position: dict[int, int]) -> Any:
    if isinstance(leaf, _ReturnedArray):
        items = [_as_output(x, position) for x in leaf.items]
        return replace(ArrayOutput.of(items, leaf.shape), is_value=leaf.is_value)
    if isinstance(leaf, _Returned):
        at = position[id(leaf.value)]
        return Output(at, leaf.is_value, leaf.is_numpys, leaf.is_integer)
    return leaf


def _returned_array(recorder: Recorder, array: Any) -> _ReturnedArray:
    """An array of Values, or of floats that were computed from data."""
    items = [_returned(recorder, x) for x in np.ndarray.view(array, np.ndarray).ravel().tolist()]
    kinds = {x.is_value if isinstance(x, _Returned) else type(x) for x in items}
    if array.dtype == object:
        fits = kinds <= {True, float, int}
    else:
        fits = array.dtype == np.float64 and kinds <= {False, float, np.float64}
    if not fits or not items:
        raise Unrecordable(f"it returns an array of {array.dtype}")
    return _ReturnedArray(items, array.shape, array.dtype == object)


def _returned(recorder: Recorder, x: Any, is_plain: bool = False) -> Any:
    """What stands in a recording for something that the function returned."""
    kind = type(x)
    if kind is Passed or kind is Same:
        return x
    if isinstance(x, np.ndarray):
        return _returned_array(recorder, x)
    if is_narrow(x):
        return plain(x)
    is_integer = is_plain and (kind is Traced or kind is Whole) and x.__class__ is x.kind is int
    is_integer = is_integer and -EXACT <= x.value <= EXACT
    if isinstance(x, Value) or kind is Detached or is_integer:
        value: Any = x if isinstance(x, Value) else recorder.source(x)
        if id(value) in recorder.selector.pending:
            value = value * 1.0
        is_numpys = kind is Detached and x.kind is np.float64
        return _Returned(value, isinstance(x, Value), is_numpys, is_integer)
    if kind is Traced or kind is Whole or kind is Condition or kind is TracedText:
        return plain(x)
    if isinstance(x, str) and " at 0x" in x:
        raise Unrecordable("it returns the address of an object")
    if x is not None and not isinstance(x, (bool, int, float, str, bytes, np.generic)):
        raise Unrecordable(f"it returns a {kind.__name__}")
    return x


def _unknown(value: Value) -> Unrecordable:
    """The refusal of a Value that nobody told of."""
    if value.op and isinstance(value._rule, str):
        return Unrecordable(f"the custom operation {value.op!r} has no rule to compute it again")
    name = f" {value.label!r}" if value.label else ""
    return Unrecordable(
        f"it uses a Value{name} ({value._number:g}) that is neither an argument nor found in its "
        "globals, closure or self"
    )


class _Flat(NamedTuple):
    """The nodes as the arrays of a Recording.

    An operand for which a gather stood is in ``places`` (3 * instruction + operand), and which
    gather that is in ``owners``. ``positions``: of the Values that were wanted.
    """

    codes: Ints
    operands: Ints
    constants: Floats
    number: npt.NDArray[np.bool_]
    rules: tuple[Op, ...]
    places: Ints
    owners: Ints
    positions: Ints


def _written(
    recorder: Recorder,
    numbers: list[Value],
    gathers: list[Value],
    wanted: list[Value],
    like: Recording | None,
) -> _Flat:
    """What ``Instructions`` wrote while the function ran.

    The arrays of ``like`` where they would be the same but for what gathers selected.
    """
    arrays, rules, *rest, unknown = recorder.nodes.finish(numbers, gathers, wanted)
    if unknown is not None:
        raise _unknown(unknown)
    if arrays is None:
        assert like is not None
        same = like.codes, like.operands, like.constants, like.number
        return _Flat(*same, tuple(rules), *map(_integers, rest))
    return _made(arrays, rules, rest)


def _integers(row: bytearray) -> Ints:
    return np.frombuffer(row, np.int32)


def _made(arrays: Sequence[bytearray], rules: list[Op], rest: Sequence[bytearray]) -> _Flat:
    codes, operands, constants, number = arrays
    return _Flat(
        np.frombuffer(codes, np.int32),
        np.frombuffer(operands, np.int32).reshape(-1, 3),
        np.frombuffer(constants, np.float64).reshape(len(number), -1 if number else 1),
        np.frombuffer(number, np.bool_),
        tuple(rules),
        *map(_integers, rest),
    )


def _flatten(
    recorder: Recorder, inputs: list[Value], gathers: list[Value], wanted: list[Value]
) -> _Flat:
    if kernels is None:
        return _flatten_in_python(recorder, inputs, gathers, wanted)
    codes, operands, constants, number, rules, *rest, unknown = kernels.flatten(
        inputs, recorder.nodes, gathers, wanted
    )
    if unknown is not None:
        raise _unknown(unknown)
    made = _made([codes, operands, constants, number], rules, rest)
    return made._replace(constants=as_needed(made.constants, rules))


def _flatten_in_python(
    recorder: Recorder, inputs: list[Value], gathers: list[Value], wanted: list[Value]
) -> _Flat:
    position = {id(v): i for i, v in enumerate([*inputs, *recorder.nodes])}
    owner = {id(v): k for k, v in enumerate(gathers)}
    n = len(inputs) + len(recorder.nodes)
    codes = np.zeros(n, np.int32)
    operands = np.full((n, 3), -1, np.int32)
    constants = np.zeros((n, 2))
    number = np.zeros(n, np.bool_)
    rules: dict[Op, int] = {}
    places: list[int] = []
    owners: list[int] = []
    for i, node in enumerate(recorder.nodes, len(inputs)):
        rule = node._rule
        if not isinstance(rule, Op):
            if node.children:
                raise _unknown(node)
            codes[i] = CONSTANT
            constants[i, 0] = node._number
            continue
        codes[i] = FIRST_RULE + rules.setdefault(rule, len(rules))
        constants[i, : len(node._parameters)] = node._parameters
        for j, child in enumerate(node.children):
            if id(child) in recorder.plain:
                number[i] = True
                constants[i, 0] = child._number
            elif id(child) in owner:
                places.append(3 * i + j)
                owners.append(owner[id(child)])
            elif id(child) in position:
                operands[i, j] = position[id(child)]
            else:
                raise _unknown(child)
    for v in wanted:
        if id(v) not in position:
            raise _unknown(v)
    found = [position[id(v)] for v in wanted]
    rows = (np.array(row, np.int32) for row in (places, owners, found))
    return _Flat(codes, operands, as_needed(constants, [*rules]), number, tuple(rules), *rows)
