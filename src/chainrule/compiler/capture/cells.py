"""Statements about rows of lists, as trees: exchanges of two, and items of one.

In: the tree of a function. Out: the parts of ``A[k], A[p] = A[p], A[k]``, of ``A[p][j]`` and of
``A[p][j] = x``, where it makes no difference how often and in which order they are evaluated:
names, integers, and sums and differences of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

Parts = tuple[ast.expr, ...]


def exchanged(node: ast.stmt) -> Parts | None:
    """``A``, ``k`` and ``p`` of ``A[k], A[p] = A[p], A[k]``; None for anything else."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    sides = [x.elts if isinstance(x, ast.Tuple) else [] for x in (node.targets[0], node.value)]
    if [len(x) for x in sides] != [2, 2]:
        return None
    (first, second), (other, one) = sides
    here, there = _item(first), _item(second)
    if here is None or there is None or not _same(first, one) or not _same(second, other):
        return None
    (container, a), (also, b) = here, there
    return (container, a, b) if _same(container, also) else None


def cell_of(node: ast.AST) -> Parts | None:
    """``A``, ``p`` and ``j`` of ``A[p][j]``; None for anything else."""
    if not isinstance(node, ast.Subscript) or not _is_simple(node.slice):
        return None
    row = _item(node.value)
    return None if row is None else (*row, node.slice)


def stored_cells(node: ast.Assign) -> list[ast.expr]:
    """The targets of ``A[p][j] = x``, or of one such after the other; none of anything else."""
    (target, *others), value = node.targets, node.value
    targets, count = [target], 1
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        targets, count = target.elts, len(value.elts)
        count *= not any(isinstance(x, ast.Starred) for x in value.elts)
    known = not others and len(targets) == count and all(map(cell_of, targets))
    return targets if known else []


def with_exchanges(function: ast.FunctionDef) -> None:
    """Put exchanges in place of ``t = A[k]; A[k] = A[p]; A[p] = t``, if that is all t is for."""
    found: dict[str, list[tuple[list[ast.stmt], int]]] = {}
    for statements in _blocks(function):
        for k in range(len(statements) - 2):
            name = _between(*statements[k : k + 3])
            if name is not None:
                found.setdefault(name, []).append((statements, k))
    uses = [x.id for x in ast.walk(function) if isinstance(x, ast.Name)]
    others = [x.arg for x in ast.walk(function) if isinstance(x, ast.arg)]
    scopes = [x for x in ast.walk(function) if isinstance(x, ast.Global | ast.Nonlocal)]
    others += [name for x in scopes for name in x.names]
    own = {x.id for x in _own_names(function)}
    places = [
        place
        for name, some in found.items()
        if uses.count(name) == 2 * len(some) and name not in others and name in own
        for place in some
    ]
    for statements, k in sorted(places, key=lambda place: -place[1]):
        first, second = statements[k : k + 2]
        assert isinstance(first, ast.Assign)
        assert isinstance(second, ast.Assign)
        pair = [_as(x, ast.Store()) for x in (second.targets[0], second.value)]
        back = [_as(x, ast.Load()) for x in (second.value, second.targets[0])]
        made = ast.Assign([ast.Tuple(pair, ast.Store())], ast.Tuple(back, ast.Load()))
        statements[k : k + 3] = [ast.fix_missing_locations(ast.copy_location(made, first))]


def _between(first: ast.stmt, second: ast.stmt, third: ast.stmt) -> str | None:
    """The name ``t`` of such an exchange."""
    steps = [(x.targets, x.value) for x in (first, second, third) if isinstance(x, ast.Assign)]
    if len(steps) < 3 or any(len(targets) != 1 for targets, _ in steps):
        return None
    ((name,), one), ((into,), other), ((last,), value) = steps
    if not isinstance(name, ast.Name) or not isinstance(value, ast.Name) or name.id != value.id:
        return None
    parts = _item(one), _item(other)
    if parts[0] is None or parts[1] is None or not _same(parts[0][0], parts[1][0]):
        return None
    return name.id if _same(one, into) and _same(other, last) else None


def _item(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """``A`` and ``k`` of ``A[k]``."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    return (node.value, node.slice) if _is_simple(node.slice) else None


def _is_simple(node: ast.AST) -> bool:
    """Whether it may be evaluated at another moment of the statement: names and integers."""
    if isinstance(node, ast.BinOp):
        known = isinstance(node.op, ast.Add | ast.Sub)
        return known and _is_simple(node.left) and _is_simple(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Constant) and type(node.value) is int
    )


def _same(a: ast.AST, b: ast.AST) -> bool:
    """Whether two parts of the source are alike, whether they are read or stored into."""
    return ast.unparse(a) == ast.unparse(b)


def _as(node: ast.expr, context: ast.expr_context) -> Any:
    """An item that is read, or stored into."""
    assert isinstance(node, ast.Subscript)
    return ast.copy_location(ast.Subscript(node.value, node.slice, context), node)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements."""
    for x in ast.walk(node):
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(x, part, None)
            if isinstance(statements, list):
                yield statements


def _own_names(function: ast.FunctionDef) -> Iterator[ast.Name]:
    """The names in a function that are not in one inside it."""
    stack: list[ast.AST] = [*function.body]
    while stack:
        x = stack.pop()
        if isinstance(x, ast.Name):
            yield x
        if not isinstance(x, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(x))
