"""Copy and pickle whole graphs without recursion, for both engines.

A graph of a million nodes is deeper than any call stack, so a node is not reduced to its children.
It is reduced to arrays: every interior node below it as one row of numbers, in topological order.
Leaves stay objects, so that pickle's and deepcopy's memo keeps a shared leaf shared:
``loads(dumps([a, a * b]))`` holds one ``a``. Interior nodes shared by two separately pickled Values
become two nodes.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.core.ops import TABLE, Op


def reduce(value: Any) -> tuple[Any, ...]:
    """What ``__reduce_ex__`` returns."""
    base = _engine_class(value)
    if not value.children:
        restore = (_restore_leaf, (type(value), value.data, value.grad, value.label))
        state = _own_state(value, base)
        return (*restore, state) if state else restore
    return _restore_graph, (base, *_flatten(value._order(), base))


def _engine_class(value: Any) -> Any:
    """``Value`` itself, of whichever engine made this one."""
    return [cls for cls in type(value).__mro__ if "_apply_op" in vars(cls)][0]  # noqa: RUF015


def _own_state(value: Any, base: type) -> tuple[Any, Any] | None:
    """What a subclass added to an instance: its ``__dict__`` and its slots."""
    if type(value) is base:
        return None
    inherited = set(_slot_names(base))
    names = [n for n in _slot_names(type(value)) if n not in inherited and hasattr(value, n)]
    slots = {name: getattr(value, name) for name in names}
    attributes = getattr(value, "__dict__", None) or None
    return (attributes, slots) if attributes or slots else None


def _slot_names(cls: type) -> list[str]:
    names: list[str] = copyreg._slotnames(cls)  # type: ignore[attr-defined]
    return names


def _restore_leaf(cls: Any, data: float, grad: float, label: str) -> Any:
    leaf = cls.__new__(cls)
    leaf._build(data, grad, label, "", (), (), ())
    return leaf


def _flatten(order: Sequence[Any], base: type) -> tuple[Any, ...]:
    """The graph as leaves (objects) and interior rows (arrays); children are positions in both."""
    leaves = [v for v in order if not v.children]
    interior = [v for v in order if v.children]
    position = {id(v): i for i, v in enumerate(leaves)}
    position.update([(id(v), len(leaves) + i) for i, v in enumerate(interior)])
    places: dict[int, int] = {}  # by identity: names may be equal that are more than a name
    ops = [places.setdefault(id(v._rule), len(places)) for v in interior]
    names = list({id(v._rule): _op_name(v) for v in interior}.values())
    arrays = (
        np.array(ops, np.int32),
        np.array([(v.data, v.grad) for v in interior]),
        np.array([len(v.children) for v in interior], np.int64),
        np.array([position[id(c)] for v in interior for c in v.children], np.int64),
        np.array([g for v in interior for g in v.local_grads]),
    )
    parameters = {i: v._parameters for i, v in enumerate(interior) if v._parameters}
    labels = {i: v.label for i, v in enumerate(interior) if v.label}
    subclasses = {
        i: (type(v), _own_state(v, base)) for i, v in enumerate(interior) if type(v) is not base
    }
    return leaves, names, arrays, parameters, labels, subclasses


def _op_name(value: Any) -> tuple[str, bool]:
    """A row's name, or a custom operation's word; the flag tells which."""
    rule = value._rule
    return (rule.name, True) if isinstance(rule, Op) else (rule, False)


def _restore_graph(
    base: Any,
    leaves: list[Any],
    names: list[tuple[str, bool]],
    arrays: tuple[Any, ...],
    parameters: dict[int, tuple[float, ...]],
    labels: dict[int, str],
    subclasses: dict[int, tuple[Any, Any]],
) -> Any:
    rules = [TABLE.get(name, name) if in_table else name for name, in_table in names]
    ops, numbers, counts, children, local_grads = [array.tolist() for array in arrays]
    nodes = list(leaves)
    start = 0
    for i, (op, (data, grad), count) in enumerate(zip(ops, numbers, counts, strict=True)):
        cls, state = subclasses.get(i, (base, None))
        node = cls.__new__(cls)
        stop = start + count
        node._build(
            data,
            grad,
            labels.get(i, ""),
            rules[op],
            parameters.get(i, ()),
            tuple([nodes[c] for c in children[start:stop]]),
            tuple(local_grads[start:stop]),
        )
        _restore_state(node, state)
        nodes.append(node)
        start = stop
    return nodes[-1]


def shallow(value: Any) -> Any:
    """``copy.copy``: a new node with the same numbers, children and attributes."""
    cls: Any = type(value)
    node = cls.__new__(cls)
    node._build(
        value.data,
        value.grad,
        value.label,
        value._rule,
        value._parameters,
        value.children,
        value.local_grads,
    )
    _restore_state(node, _own_state(value, _engine_class(value)))
    return node


def _restore_state(node: Any, state: tuple[Any, Any] | None) -> None:
    attributes, slots = state or (None, None)
    if attributes:
        node.__dict__.update(attributes)
    if slots:
        setter: Callable[..., None] = object.__setattr__
        for name, content in slots.items():
            setter(node, name, content)
