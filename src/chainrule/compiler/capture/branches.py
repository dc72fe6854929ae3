"""Branches that become choices: functions in which an ``if`` computes both of its sides.

In: a Python function, by its source. Out: code of the same meaning in which ``a if c else b``, and
``if`` statements that do nothing but assign numbers to local names, call a hook with the condition
and one small function for each side. A recording can then hold whichever way the branch goes, as if
``where`` had been written. Only source that compiles to the very code of the function is used.
"""

from __future__ import annotations

import ast
import copy
import math
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.compiler.capture.operators import UNARY
from chainrule.compiler.capture.sources import compiled, definition, imported, resolve, source_of
from chainrule.core import functions
from chainrule.core.backend import dot, linear, vsum

#: the names under which rewritten code calls the hooks
FORK, METHOD = "__chainrule_fork__", "__chainrule_method__"
_METHODS = frozenset((*UNARY, "relu", "sigmoid"))
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.Gt, ast.GtE)
_OF_ITERABLES = frozenset(("fsum", "prod", "dist", "sumprod"))  # which they may use up
_PURE = {
    id(x): x
    for x in (
        *[getattr(functions, name) for name in functions.__all__],
        *[x for name, x in vars(math).items() if callable(x) and name not in _OF_ITERABLES],
        *[x for x in vars(np).values() if isinstance(x, np.ufunc)],
        *(abs, float),
    )
}
_OF_LISTS = (dot, linear, vsum)
_LARGEST = (max, min)  # of several numbers


@dataclass(eq=False)
class _Merged:
    """What became of one code object; ``needs``: the functions that it takes names for."""

    original: types.CodeType
    code: types.CodeType | None
    needs: dict[tuple[str, ...], Any] = field(default_factory=dict)


_known: dict[int, _Merged] = {}
_MOST = 1000


def merged(function: types.FunctionType, code: types.CodeType) -> types.CodeType | None:
    """The code of a function with choices in place of branches; None where there are none."""
    found = _known.get(id(code))
    if found is None or found.original is not code:
        if len(_known) > _MOST:
            _known.clear()
        needs: dict[tuple[str, ...], Any] = {}
        try:
            made = _merge(function, code, needs)
        except (OSError, SyntaxError, ValueError, RecursionError, IndentationError):
            made = None
        found = _known[id(code)] = _Merged(code, made, needs)
    if any(resolve(function, chain) is not x for chain, x in found.needs.items()):
        return None
    return found.code


def _merge(
    function: types.FunctionType, code: types.CodeType, needs: dict[tuple[str, ...], Any]
) -> types.CodeType | None:
    tree = source_of(code)
    names = None if tree is None else imported(function, tree, code)
    if tree is None or names is None:
        return None
    merger = _Merger(function, code, needs)
    tree = copy.deepcopy(tree)
    merger.define(tree)
    if not merger.count:
        return None
    made = compiled(ast.fix_missing_locations(tree), code, names)
    if made is None or made.co_freevars != code.co_freevars:
        return None
    return made


class _Merger:
    """Rewrites one definition in place; ``count``: of branches that became choices."""

    def __init__(
        self, function: types.FunctionType, code: types.CodeType, needs: dict[tuple[str, ...], Any]
    ) -> None:
        self.count = 0
        self._function, self._needs = function, needs
        self._locals = {*code.co_varnames, *code.co_cellvars}
        self._stored: set[str] = set()  # names that are given a value anywhere inside
        self._declared: set[str] = set()  # global or nonlocal
        self._arms = 0

    def define(self, node: ast.FunctionDef) -> None:
        """Rewrite the body of a function."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global | ast.Nonlocal):
                self._declared.update(inner.names)
            elif isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                self._stored.add(inner.id)
            elif isinstance(inner, ast.arg):
                self._stored.add(inner.arg)
            elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
                self._stored.add(inner.name)
            elif isinstance(inner, ast.alias):
                self._stored.add((inner.asname or inner.name).partition(".")[0])
        a = node.args
        parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs]
        node.body = self._block(node.body, {x.arg for x in parameters})

    # --- statements -------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """Some statements rewritten; ``bound``: the local names that have a value before them."""
        made: list[ast.stmt] = []
        body = _returning(body)
        for place, statement in enumerate(body):
            rest = body[place + 1 :]
            if _leaves(statement, ast.Continue) and rest:
                assert isinstance(statement, ast.If)
                skipped = ast.copy_location(
                    ast.If(statement.test, [ast.Pass()], copy.deepcopy(rest)), statement
                )
                choice = self._statement(skipped, set(bound))
                if not isinstance(choice, ast.If):
                    return [*made, *_listed(choice)]
            made += _listed(self._statement(statement, bound))
        return made

    def _statement(self, node: ast.stmt, bound: set[str]) -> ast.stmt | list[ast.stmt]:
        if isinstance(node, ast.If):
            return self._if(node, bound)
        if isinstance(node, ast.For | ast.While):
            inside = set(bound)
            if isinstance(node, ast.For):
                node.iter = self._expression(node.iter)
                inside |= _names_in(node.target)
            node.body = self._block(node.body, inside)
            node.orelse = self._block(node.orelse, set(bound))
            return node
        if isinstance(node, ast.With):
            node.body = self._block(node.body, bound)
            return node
        if isinstance(node, ast.Delete):
            bound -= {name for target in node.targets for name in _names_in(target)}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Try):
            return node
        made = _Expressions(self).visit(node)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bound |= _names_in(target)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            bound |= _names_in(node.target)
        return made  # type: ignore[no-any-return]

    def _if(self, node: ast.If, bound: set[str]) -> ast.stmt | list[ast.stmt]:
        """A choice between two sides that only assign numbers; else the same ``if``."""
        if _only_assigns(node.body) and _only_assigns(node.orelse):
            node = self._nested(node)
        then, other = set(bound), set(bound)
        node.body = self._block(node.body, then) or [ast.Pass()]
        node.orelse = self._block(node.orelse, other)
        choice = self._choice(node, bound)
        bound |= then & other
        if choice is None:
            node.test = self._expression(node.test)
            return node
        self.count += 1
        return choice

    def _nested(self, node: ast.If) -> ast.If:
        """``if a and b`` as one ``if`` inside another, and its like."""
        parts = _split(node.test)
        if parts is None:
            return node
        word, first, second = parts
        body, orelse = node.body, node.orelse
        if word == "not" or second is None:
            made = ast.If(first, orelse or [ast.Pass()], body)
        elif not self._may_be_asked(second):
            return node
        else:
            inner = ast.copy_location(ast.If(second, body, orelse), node)
            again = copy.deepcopy(body if word == "or" else orelse)
            made = ast.If(first, again, [inner]) if word == "or" else ast.If(first, [inner], again)
        return ast.copy_location(made, node)

    def _may_be_asked(self, test: ast.expr) -> bool:
        """Whether a condition may be computed where Python would not come to it."""
        if isinstance(test, ast.BoolOp):
            return all(map(self._may_be_asked, test.values))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._may_be_asked(test.operand)
        return self.is_pure(test)

    def _choice(self, node: ast.If, bound: set[str]) -> list[ast.stmt] | None:
        sides = [self._assigned(node.body), self._assigned(node.orelse)]
        if any(side is None for side in sides):
            return None
        first, second = (side or {} for side in sides)
        augmenting = {n: first.get(n, False) or second.get(n, False) for n in {*first, *second}}
        names = sorted(augmenting, key=lambda name: (not augmenting[name], name))
        if not names or any(n in self._declared or n not in self._locals for n in names):
            return None
        if any(n not in bound and not (n in first and n in second) for n in names):
            return None
        passed = [n for n in names if n in bound]
        augmented = sum(augmenting[n] for n in passed)
        self._arms += 1
        arms = []
        definitions: list[ast.stmt] = []
        for word, body in (("then", node.body), ("else", node.orelse)):
            arms.append(f"__chainrule_{word}_{self._arms}__")
            result = ast.Return(ast.Tuple([_load(n) for n in names], ast.Load()))
            made = definition(arms[-1], passed, [*body, result])
            definitions.append(ast.copy_location(made, node))
        call = ast.Call(
            _load(FORK),
            [
                ast.Constant(augmented),
                self._expression(node.test),
                *map(_load, arms),
                *map(_load, passed),
            ],
            [],
        )
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        made_choice = ast.copy_location(ast.Assign([target], call), node)
        made_choice._is_choice = augmenting  # type: ignore[attr-defined]
        for one in definitions:
            one._is_choice = {}  # type: ignore[attr-defined]
        return [*definitions, made_choice]

    def _assigned(self, body: list[ast.stmt]) -> dict[str, bool] | None:
        """The names that statements assign, and whether by ``+=``; None if they do more."""
        found: dict[str, bool] = {}
        for node in body:
            inner = getattr(node, "_is_choice", None)
            if inner is not None:
                found = {n: found.get(n, False) or inner.get(n, False) for n in {*found, *inner}}
            elif isinstance(node, ast.Assign):
                names = _names_in(node.targets[0])
                if len(node.targets) != 1 or not names or not self.is_pure(node.value):
                    return None
                if not _names_only(node.targets[0], node.value):
                    return None
                found |= {name: found.get(name, False) for name in names}
            elif isinstance(node, ast.AugAssign):
                if not isinstance(node.target, ast.Name) or not self.is_pure(node.value):
                    return None
                if not isinstance(node.op, _OPERATORS):
                    return None
                found[node.target.id] = True
            elif not isinstance(node, ast.Pass):
                return None
        return found

    # --- expressions ------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> ast.expr:
        return _Expressions(self).visit(node)  # type: ignore[no-any-return]

    def simpler(self, node: ast.IfExp) -> ast.IfExp | None:
        """``x if a and b else y`` as ``(x if b else y) if a else y``, and its like."""
        parts = _split(node.test)
        if parts is None:
            return None
        word, first, second = parts
        body, orelse = node.body, node.orelse
        if word == "not" or second is None:
            return ast.copy_location(ast.IfExp(first, orelse, body), node)
        if not self._may_be_asked(second):
            return None
        again = copy.deepcopy(node)
        if word == "and":
            inner = ast.copy_location(ast.IfExp(second, body, orelse), node)
            return ast.copy_location(ast.IfExp(first, inner, again.orelse), node)
        inner = ast.copy_location(ast.IfExp(second, body, orelse), node)
        return ast.copy_location(ast.IfExp(first, again.body, inner), node)

    def is_pure(self, node: ast.AST) -> bool:
        """Whether computing this changes nothing, if operators on its operands do not."""
        if isinstance(node, ast.Constant | ast.Name):
            return True
        if isinstance(node, ast.BinOp):
            return (
                isinstance(node.op, _OPERATORS)
                and self.is_pure(node.left)
                and self.is_pure(node.right)
            )
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.USub | ast.UAdd) and self.is_pure(node.operand)
        if isinstance(node, ast.Attribute):
            return self.is_pure(node.value)
        if isinstance(node, ast.Subscript):
            return self.is_pure(node.value) and self.is_pure(node.slice)
        if isinstance(node, ast.Tuple):
            return isinstance(node.ctx, ast.Load) and all(map(self.is_pure, node.elts))
        if isinstance(node, ast.Compare):
            plain = all(isinstance(x, _COMPARISONS) for x in node.ops)
            return plain and all(map(self.is_pure, (node.left, *node.comparators)))
        if isinstance(node, ast.IfExp):
            return all(map(self.is_pure, (node.test, node.body, node.orelse)))
        if isinstance(node, ast.Call):
            return self._is_pure_call(node)
        return False

    def _is_pure_call(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Name) and function.id in (FORK, METHOD):
            return hasattr(node, "_is_choice")
        if node.keywords or not all(map(self.is_pure, node.args)):
            return False
        if isinstance(function, ast.Name) and function.id not in self._stored:
            return self._is_known((function.id,), len(node.args))
        if not isinstance(function, ast.Attribute):
            return False
        owner = function.value
        if isinstance(owner, ast.Name) and owner.id not in self._stored:
            return self._is_known((owner.id, function.attr), len(node.args))
        return False

    def takes_lists(self, node: ast.Call) -> bool:
        """Whether this is a call of a function of lists, such as ``dot``."""
        function = node.func
        if not isinstance(function, ast.Name) or function.id in self._stored or not node.args:
            return False
        found = resolve(self._function, (function.id,))
        if node.keywords or not any(found is x for x in _OF_LISTS):
            return False
        if not all(map(self.is_pure, node.args)):
            return False
        self._needs[(function.id,)] = found
        return True

    def _is_known(self, chain: tuple[str, ...], count: int) -> bool:
        found = resolve(self._function, chain)
        if id(found) not in _PURE and not (count > 1 and any(found is x for x in _LARGEST)):
            return False
        self._needs[chain] = found
        return True


class _Expressions(ast.NodeTransformer):
    """Conditional expressions, and methods of numbers, as calls of hooks."""

    def __init__(self, merger: _Merger) -> None:
        self._merger = merger

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Left alone: it may run later."""
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """``x.log()`` asks whether x is a number, and ``dot(a, b)`` whether these are lists."""
        self.generic_visit(node)
        function = node.func
        if self._merger.takes_lists(node):
            made = ast.Call(_load(METHOD), [*node.args[:1], function, *node.args[1:]], [])
            made._is_choice = True  # type: ignore[attr-defined]
            return ast.copy_location(made, node)
        if node.args or node.keywords or not isinstance(function, ast.Attribute):
            return node
        if function.attr not in _METHODS or not self._merger.is_pure(function.value):
            return node
        made = ast.Call(_load(METHOD), [function.value, ast.Constant(function.attr)], [])
        made._is_choice = True  # type: ignore[attr-defined]
        return ast.copy_location(made, node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """``a if c else b``."""
        simpler = self._merger.simpler(node)
        if simpler is not None:
            return self.visit_IfExp(simpler)
        self.generic_visit(node)
        if not (self._merger.is_pure(node.body) and self._merger.is_pure(node.orelse)):
            return node
        arms = [ast.Lambda(_NO_ARGUMENTS, side) for side in (node.body, node.orelse)]
        made = ast.Call(_load(FORK), [ast.Constant(-1), node.test, *arms], [])
        self._merger.count += 1
        made._is_choice = self._merger.is_pure(node.test) or None  # type: ignore[attr-defined]
        if not made._is_choice:  # type: ignore[attr-defined]
            del made._is_choice  # type: ignore[attr-defined]
        return ast.copy_location(made, node)


_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _listed(x: ast.stmt | list[ast.stmt]) -> list[ast.stmt]:
    return x if isinstance(x, list) else [x]


def _names_in(target: ast.expr) -> set[str]:
    """The names that an assignment to this gives a value."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Tuple | ast.List):
        return {name for item in target.elts for name in _names_in(item)}
    return _names_in(target.value) if isinstance(target, ast.Starred) else set()


def _names_only(target: ast.expr, value: ast.expr) -> bool:
    """Whether an assignment to this assigns nothing but names, and uses up no iterator."""
    if isinstance(target, ast.Name):
        return True
    pairs = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    return pairs and all(isinstance(x, ast.Name) for x in getattr(target, "elts", ()))


def _leaves(node: ast.stmt, kind: type[ast.stmt]) -> bool:
    """Whether this is ``if c: continue``."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    return len(node.body) == 1 and isinstance(node.body[0], kind)


def _returning(body: list[ast.stmt]) -> list[ast.stmt]:
    """``if c: return a`` before ``return b`` as ``return a if c else b``."""
    body = list(body)
    while len(body) > 1 and isinstance(body[-1], ast.Return):
        last, before = body[-1], body[-2]
        if not isinstance(before, ast.If) or last.value is None:
            break
        chosen = _chosen(before, last.value)
        if chosen is None:
            break
        body[-2:] = [ast.copy_location(ast.Return(chosen), before)]
    return body


def _chosen(node: ast.If, otherwise: ast.expr) -> ast.expr | None:
    """What an ``if`` with nothing but ``return`` in it gives, where else it goes on to others."""
    sides = []
    for side in (node.body, node.orelse):
        value: ast.expr | None
        if not side:
            value = otherwise
        elif len(side) > 1:
            return None
        elif isinstance(side[0], ast.If):
            value = _chosen(side[0], otherwise)
        else:
            value = side[0].value if isinstance(side[0], ast.Return) else None
        if value is None:
            return None
        sides.append(value)
    return ast.copy_location(ast.IfExp(node.test, *sides), node.test)


def _split(test: ast.expr) -> tuple[str, ast.expr, ast.expr | None] | None:
    """A condition of two parts: ``and``, ``or`` or ``not``, and the parts."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return "not", test.operand, None
    if isinstance(test, ast.BoolOp):
        first, *rest = test.values
        second = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(test.op, rest), test)
        return ("and" if isinstance(test.op, ast.And) else "or"), first, second
    if isinstance(test, ast.Compare) and len(test.ops) == 2:
        middle = test.comparators[0]
        if isinstance(middle, ast.Name | ast.Constant):
            pair = [
                ast.Compare(test.left, test.ops[:1], [middle]),
                ast.Compare(copy.deepcopy(middle), test.ops[1:], test.comparators[1:]),
            ]
            first, second = (ast.copy_location(x, test) for x in pair)
            return "and", first, second
    return None


def _only_assigns(body: list[ast.stmt]) -> bool:
    """Whether statements assign and do nothing else, whatever they compute for it."""
    return all(
        isinstance(x, ast.Assign | ast.AugAssign | ast.Pass)
        or (isinstance(x, ast.If) and _only_assigns(x.body) and _only_assigns(x.orelse))
        for x in body
    )
