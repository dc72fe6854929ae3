"""Loops that may go on for another number of turns: their statements, prepared for ``sides``.

In: the body of a loop, as trees. Out: the same without ``break`` and ``continue``: what follows
them is the other side of a branch, and a name says whether the loop goes on. In the same way, the
body of a function with one ``return`` at its end. ``Unconvertible`` where that cannot be done.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

OWN = "__chainrule_"  # names of the converted code's own begin so
GOING = f"{OWN}going_"  # and that of whether a loop goes on
_HEADERS = frozenset(("range", "zip", "enumerate"))


class Unconvertible(Exception):
    """Something that both sides of a branch cannot be computed with."""


def may_end_otherwise(node: ast.For | ast.While) -> bool:
    """Whether other calls may go through a loop more or fewer times."""
    if isinstance(node, ast.While):
        return True
    return _breaks(node.body) or _counts(node.iter)


def _counts(node: ast.expr) -> bool:
    """Whether a header has a ``range`` whose ends are not written there."""
    if not is_header(node):
        return False
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    if node.func.id == "range":
        return not all(isinstance(x, ast.Constant) for x in node.args)
    return any(map(_counts, node.args))


def counting_lines(node: ast.For | ast.While) -> set[int]:
    """The lines of a header with such a ``range``."""
    if isinstance(node, ast.While) or not _counts(node.iter):
        return set()
    return {*range(node.iter.lineno, (node.iter.end_lineno or node.iter.lineno) + 1)}


def is_header(node: ast.expr) -> bool:
    """Whether it is a call of ``range``, ``zip`` or ``enumerate``, as they are usually called."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _HEADERS
        and not node.keywords
        and not any(isinstance(x, ast.Starred) for x in node.args)
    )


def _own_statements(statements: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """The statements of a loop's body, those in branches too; none of loops and functions in it."""
    for x in statements:
        yield x
        if isinstance(x, ast.If):
            yield from _own_statements([*x.body, *x.orelse])
        elif isinstance(x, ast.For | ast.While):
            yield from _own_statements(x.orelse)


def _breaks(statements: list[ast.stmt]) -> bool:
    return any(isinstance(x, ast.Break) for x in _own_statements(statements))


def breaks(node: ast.For | ast.While) -> bool:
    """Whether it may be left in the middle."""
    return _breaks(node.body)


def without_jumps(statements: list[ast.stmt], at_break: list[ast.stmt]) -> list[ast.stmt]:
    """The body of a loop, with ``at_break`` in place of each ``break``."""
    for k, x in enumerate(statements):
        if isinstance(x, ast.Break):
            return [*statements[:k], *at_break]
        if isinstance(x, ast.Continue):
            return statements[:k]
        if not isinstance(x, ast.If) or not _jumps([x]):
            continue
        rest = statements[k + 1 :]
        body, orelse = x.body, x.orelse
        if _ends_in_jump(body):
            orelse = [*orelse, *rest]
        elif _ends_in_jump(orelse):
            body = [*body, *rest]
        else:
            raise Unconvertible
        sides = [without_jumps(side, at_break) for side in (body, orelse)]
        sides[0] = sides[0] or [ast.copy_location(ast.Pass(), x)]
        return [*statements[:k], ast.copy_location(ast.If(x.test, *sides), x)]
    return statements


def _jumps(statements: list[ast.stmt]) -> bool:
    return any(isinstance(x, ast.Break | ast.Continue) for x in _own_statements(statements))


def _ends_in_jump(statements: list[ast.stmt]) -> bool:
    """Whether nothing after these statements is reached."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return _ends_in_jump(last.body) and _ends_in_jump(last.orelse)
    return isinstance(last, ast.Break | ast.Continue)


def with_one_return(statements: list[ast.stmt], result: str) -> list[ast.stmt]:
    """The body of a function that ends by assigning what it returns to ``result``.

    What follows a branch that returns is the other side of it.
    """
    for k, x in enumerate(statements):
        if isinstance(x, ast.Return):
            value = x.value or ast.copy_location(ast.Constant(None), x)
            target = ast.copy_location(ast.Name(result, ast.Store()), x)
            return [*statements[:k], ast.copy_location(ast.Assign([target], value), x)]
        if not any(isinstance(inner, ast.Return) for inner in ast.walk(x)):
            continue
        if not isinstance(x, ast.If):
            raise Unconvertible
        body, orelse, rest = x.body, x.orelse, statements[k + 1 :]
        if _returns(body):
            orelse = [*orelse, *rest]
        elif _returns(orelse):
            body = [*body, *rest]
        else:
            raise Unconvertible
        sides = [with_one_return(side, result) for side in (body, orelse)]
        return [*statements[:k], ast.copy_location(ast.If(x.test, *sides), x)]
    raise Unconvertible  # it may return nothing


def _returns(statements: list[ast.stmt]) -> bool:
    """Whether nothing after these statements is reached."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, ast.Return)


def assigned_first(statements: list[ast.stmt]) -> set[str]:
    """Names that every turn assigns before it may use them."""
    found: set[str] = set()
    used: set[str] = set()
    for x in statements:
        plain = isinstance(x, ast.Assign) and len(x.targets) == 1
        values: list[ast.AST] = [x.value] if plain else [x]  # type: ignore[attr-defined]
        used |= _names(values)
        if plain:
            assert isinstance(x, ast.Assign)
            found |= bound_by(x.targets[0]) - used
            used |= _names([x.targets[0]]) - found
    return found


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {x.id for node in nodes for x in ast.walk(node) if isinstance(x, ast.Name)}


def bound_by(target: ast.expr) -> set[str]:
    """The names of a target that is a name, or a tuple of such."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Tuple):
        return {name for x in target.elts for name in bound_by(x)}
    return set()


def without_continue(statements: list[ast.stmt]) -> list[ast.stmt]:
    """``if c: continue`` and what follows, as the two sides of one branch."""
    for k, x in enumerate(statements):
        ends = isinstance(x, ast.If) and not x.orelse and isinstance(x.body[-1], ast.Continue)
        if ends and k + 1 < len(statements):
            assert isinstance(x, ast.If)
            body: list[ast.stmt] = x.body[:-1] or [ast.copy_location(ast.Pass(), x)]
            rest = without_continue(statements[k + 1 :])
            made = ast.copy_location(ast.If(x.test, body, rest), x)
            return [*statements[:k], made]
    return statements
