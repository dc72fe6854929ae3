"""Branches whose two sides can both be computed: a function's source, converted.

In: the code of a function. Out: code in which each such ``if`` and ``a if c else b`` asks ``forks``
whether to run one side or both, and each loop that may end sooner or later asks ``turns``. Sides
may assign names and items of lists; what they do besides is checked when they run. A function in
which everything is checked so may be called by sides too. The source is found by the code's file
and line, and used only if Python compiles it to the very code that the function has. What cannot
be converted stays as it is.
"""

from __future__ import annotations

import ast
import os
import types
from collections.abc import Callable
from typing import Any, TypeGuard

from chainrule.compiler.capture import repeats
from chainrule.compiler.capture.cells import cell_of, exchanged, stored_cells, with_exchanges
from chainrule.compiler.capture.repeats import GOING, OWN
from chainrule.compiler.capture.repeats import Unconvertible as _No
from chainrule.compiler.capture.sources import Function, compiled, definition
from chainrule.compiler.capture.templates import (
    copied,
    flag,
    hook,
    is_own,
    later,
    parsed,
    template,
    uses,
)

_ITEM = "__chainrule_item"  # of a sum, or one that is stored
RESULT = f"{OWN}result"  # a variable of functions that sides may call
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
_COMPARISONS = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_BINDING = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Not: "not_"}


def converted(code: types.CodeType) -> types.CodeType | None:
    """The code with branches that may run both sides; None where there are none, or no source."""
    found = definition(code)
    if found is None:
        return None
    module, function = found
    if isinstance(function, ast.FunctionDef):
        with_exchanges(function)
    converter = _Converter(function, f"{code.co_filename}:{code.co_name}")
    converter.function(function)
    if not converter.count:
        return None
    ast.fix_missing_locations(module)
    made = compiled(module, code)
    if made is None or made.co_freevars != code.co_freevars:
        return None
    return made


def deciding_lines(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The lines, ``file.py:12``, of loops that go on for as many turns as an integer says, and
    those where it says which function is called.
    """
    found = definition(code)
    if found is None:
        return set(), set()
    converter = _Converter(found[1], "")
    converter.function(found[1])
    file = os.path.basename(code.co_filename)
    counting, choosing = converter.counting, converter.choosing
    return {f"{file}:{line}" for line in counting}, {f"{file}:{line}" for line in choosing}


# --- conversion -----------------------------------------------------------------------------------


class _Converter(ast.NodeTransformer):
    """Converts the branches of one function, and of those inside it."""

    def __init__(self, function: Function, place: str) -> None:
        self._place = place
        self.count = 0
        self.counting: set[int] = set()  # the lines of ``range`` in the headers of loops
        self.choosing: set[int] = set()  # those of calls of one of several functions
        self._all = uses([function])
        outside = (ast.Global, ast.Nonlocal)
        declared = [x.names for x in ast.walk(function) if isinstance(x, outside)]
        self._declared = {name for names in declared for name in names}
        inner = [x for x in ast.walk(function) if isinstance(x, ast.FunctionDef | ast.Lambda)]
        shared = [uses([x]) for x in inner if x is not function]
        arguments = [x.arg for x in ast.walk(function) if isinstance(x, ast.arg)]
        #: arguments, and names that closures may read later
        self._shared = {name for names in shared for name in names}.union(arguments)
        #: names of what is called there and then wherever it is read
        self._callees = _only_called(function) - self._shared - self._declared

    def function(self, node: Function) -> None:
        """Convert a function: all that it does is checked in a side, or else its branches are."""
        before = self.count
        try:
            if isinstance(node, ast.Lambda):
                found = _Side(self, self._site(node)).visit(copied(node.body))
                made = ast.NamedExpr(ast.Name(RESULT, ast.Store()), found)
                node.body = ast.copy_location(made, node.body)
            else:
                node.body = self._checked(node)
        except _No:
            self.count = before
            if isinstance(node, ast.Lambda):
                node.body = self.visit(node.body)
            else:
                node.body = self.block(node.body)

    def _checked(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """The body of a function that sides may call."""
        site, body = self._site(node), node.body
        text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        rest = repeats.with_one_return(copied(body[text:]), RESULT)
        made = _Side(self, site).statements(rest)
        (end,) = parsed(RESULT, body[-1])
        assert isinstance(end, ast.Expr)
        return [*body[:text], *made, ast.copy_location(ast.Return(end.value), end)]

    def _inner(self, node: Function) -> Any:
        """A function inside: its own names are others."""
        inner = _Converter(node, self._place)
        inner.count = self.count
        inner.function(node)
        self.count, self.counting = inner.count, self.counting | inner.counting
        self.choosing |= inner.choosing
        return node

    visit_FunctionDef = visit_Lambda = _inner

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """A list of statements."""
        found: list[ast.stmt] = []
        for statement in statements:
            made = self.visit(statement)
            found += made if isinstance(made, list) else [made]
        return found

    def _loop(self, node: Any) -> Any:
        before = self.count
        if repeats.may_end_otherwise(node):
            try:
                return self.repeated(node, None)[0]
            except _No:
                self.count = before
        node.body = self.block(repeats.without_continue(node.body))
        node.orelse = self.block(node.orelse)
        if isinstance(node, ast.For):
            node.iter = self.visit(node.iter)
        else:
            node.test = self.visit(node.test)
        return node

    visit_For = visit_While = _loop

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Bodies of classes have names of another kind."""
        return node

    def visit_If(self, node: ast.If) -> Any:
        """A branch, of which both sides may be run."""
        before = self.count
        try:
            return self.forked(node, None)[0]
        except _No:
            self.count = before
        node.test = self.visit(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Exchanges, and stores into rows."""
        exchange, cells = exchanged(node), stored_cells(node)
        if self.is_callee(node):
            assert isinstance(node.value, ast.Subscript)
            of = self.visit(node.value.value), self.visit(node.value.slice)
            node.value = self.choice(node.value, self._site(node), *of)
            return node
        if exchange is not None:
            made = hook("exchange", self._site(node), *exchange)
        elif cells and isinstance(node.value, ast.Tuple):
            places = [_storing(target, self._place_of(node), self.visit) for target in cells]
            made = hook("store_all", self._place_of(node), self.visit(node.value), *places)
        elif cells:
            parts = cell_of(cells[0]) or ()
            made = hook("put_cell", self._place_of(node), self.visit(node.value), *parts)
        else:
            return self.generic_visit(node)
        return ast.copy_location(ast.Expr(made), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """Items of rows."""
        cell = cell_of(node)
        if cell is None or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return ast.copy_location(hook("cell", self._place_of(node), *cell), node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """One of two expressions."""
        before = self.count
        try:
            return self.either(node, None)
        except _No:
            self.count = before
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        """``sum(x for ... if c)`` adds 0 where c does not hold."""
        if _is_choice(node.func):
            parts = self.visit(node.func.value), self.visit(node.func.slice)
            node.func = self.choice(node.func, self._site(node), *parts)
            node.args = list(map(self.visit, node.args))
            for named in node.keywords:
                named.value = self.visit(named.value)
            return node
        before, original = self.count, copied(node)
        try:
            made = self.sum(node, None)
        except _No:
            self.count, made = before, None
        ordinary: Any = self.generic_visit(original)
        if made is None:
            return ordinary
        called = hook("is_sum", ast.Name("sum", ast.Load()))
        return ast.copy_location(ast.IfExp(called, made, ordinary), node)

    def sum(self, node: ast.Call, around: _Side | None) -> ast.Call | None:
        """The same with the condition in what is summed; None for any other call."""
        if not isinstance(node.func, ast.Name) or node.func.id != "sum" or len(node.args) != 1:
            return None
        (over,) = node.args
        if not isinstance(over, ast.GeneratorExp | ast.ListComp) or node.keywords:
            return None
        *_, last = over.generators
        if len(last.ifs) != 1 or last.is_async:
            return None
        site = self._site(node)
        test = self._test(copied(last.ifs[0]), site) if around is None else around.test(last.ifs[0])
        kept = hook("kept", site, test, later(_Side(self, site).visit(copied(over.elt))))
        for x in over.generators:
            x.iter = self.visit(x.iter) if around is None else around.over(x.iter)
            if x is not last and x.ifs:
                raise _No
        last.ifs, over.elt = [], ast.Name(_ITEM, ast.Load())
        item = ast.Name(_ITEM, ast.Store())
        over.generators.append(ast.comprehension(item, kept, [], 0))
        return ast.fix_missing_locations(ast.copy_location(node, node))

    def is_callee(self, node: ast.Assign) -> bool:
        """Whether it is ``act = ACTIVATIONS[k]``, and all that ``act`` is for is to be called."""
        names = [x.id for x in node.targets if isinstance(x, ast.Name)]
        return (
            len(node.targets) == 1
            and self._callees.issuperset(names or [""])
            and (_is_choice(node.value))
        )

    def choice(self, node: ast.expr, site: ast.Constant, *parts: ast.expr) -> ast.Call:
        """One of several functions, to be called there and then, of a table and its key."""
        self.choosing |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        return ast.copy_location(hook("chosen", site, *parts), node)

    def either(self, node: ast.IfExp, around: _Side | None) -> ast.expr:
        """One of two expressions, converted; ``around``: the side that it is in."""
        site = self._site(node)
        side = _Side(self, site)
        parts = [later(side.visit(copied(x))) for x in (node.body, node.orelse)]
        test = self._test(copied(node.test), site) if around is None else around.test(node.test)
        return ast.copy_location(hook("either", site, test, *parts), node)

    def _site(self, node: Any) -> ast.Constant:
        self.count += 1
        return self._place_of(node)

    def _place_of(self, node: Any) -> ast.Constant:
        return ast.Constant(f"{self._place}:{node.lineno}:{node.col_offset}")

    def repeated(self, node: Any, around: _Side | None) -> tuple[list[ast.stmt], list[str]]:
        """A loop converted, and the names that it assigns; ``around``: the side that it is in."""
        site = self._site(node)
        loop, left = f"{OWN}loop_{self.count}", f"{OWN}left_{self.count}"
        going = f"{GOING}{self.count}"
        may_break = repeats.breaks(node)
        flags = [flag(going, False, node)] + [flag(left, True, node)] * bool(node.orelse)
        body = repeats.without_jumps(copied(node.body), flags)
        inner = repeats.assigned_first(body)
        over: list[ast.expr] = []
        if isinstance(node, ast.For):
            over = [self._header(copied(node.iter), site, around)]
            following = parsed(f"{going} = {loop}.next({going})", node.iter)
            item = parsed(f"{going} = {loop}.item()", node.iter)[0]
            assert isinstance(item, ast.Assign)
            item.targets, inner = [node.target], inner | repeats.bound_by(node.target)
            body = [item, *body]
        else:
            test = _Side(self, site).test(copied(node.test))
            following = parsed(f"{going} = {loop}.test({going}, lambda: 0)", node.test)
            following[0].value.args[1].body = test  # type: ignore[attr-defined]
        start = node.iter if isinstance(node, ast.For) else node.test
        body = [*[flag(going, True, node)] * may_break, *body]
        test = ast.copy_location(ast.Name(going, ast.Load()), start)
        branch = ast.If(test, body, [flag(going, False, node)] * may_break)
        own = uses([node])
        inner = {n for n in inner if own[n] == self._all[n] and n not in self._shared}
        turn, names = self.forked(ast.copy_location(branch, node), None, tuple(sorted(inner)))
        text = f"{loop} = 0\n{going} = True\n{left} = False\nwhile {loop}.more({going}): 0"
        made = parsed(text, start)
        made[0].value = hook("loop", site, *over)  # type: ignore[attr-defined]
        made[3].body = [*following, *turn]  # type: ignore[attr-defined]
        if node.orelse:
            ended = parsed(f"not {left}", start)[0].value  # type: ignore[attr-defined]
            after = ast.copy_location(ast.If(ended, node.orelse, []), node)
            orelse, others = self.forked(after, None)
            made, names = made + orelse, names + others
        self.counting |= repeats.counting_lines(node)
        return made, [name for name in names if not name.startswith(OWN)]

    def _header(self, node: ast.expr, site: ast.Constant, around: _Side | None) -> ast.expr:
        """What a loop goes through."""
        if not repeats.is_header(node):
            made: ast.expr = self.visit(node) if around is None else around.over(node)
            return made
        assert isinstance(node, ast.Call)
        given = [self._header(x, site, around) for x in node.args]
        return ast.copy_location(hook("through", site, node.func, *given), node)

    def forked(
        self, node: ast.If, around: _Side | None, forgotten: tuple[str, ...] | None = None
    ) -> tuple[list[ast.stmt], list[str]]:
        """A branch converted, and the names that it assigns; ``around``: the side that it is in.

        ``forgotten``: names that nothing outside of it reads, where that is known.
        """
        site = self._site(node)
        fork, side = f"{OWN}fork_{self.count}", _Side(self, site)
        body, orelse = (side.statements(copied(x)) for x in (node.body, node.orelse))
        names = tuple(dict.fromkeys(side.names))
        if self._declared.intersection(names):
            raise _No
        own = uses([node])
        inner = forgotten
        if inner is None:
            inner = tuple(
                [n for n in names if own[n] == self._all.get(n) and n not in self._shared]
            )
        test = self._test(copied(node.test), site) if around is None else around.test(node.test)
        made = parsed(template(fork, names, inner), node.test)
        forking, _, first, second, *_ = made
        assert isinstance(forking, ast.Assign)
        assert isinstance(first, ast.If)
        assert isinstance(second, ast.If)
        leaves = any(name.startswith(GOING) for name in names)
        asked = hook("leaving" if leaves else "fork", site, test)
        forking.value = ast.copy_location(asked, node.test)
        for part, side_of in ((first, body), (second, orelse)):
            attempt = part.body[0]
            assert isinstance(attempt, ast.Try)
            attempt.body = side_of or [ast.copy_location(ast.Pass(), node)]
        return made, side.names

    def _test(self, node: ast.expr, site: ast.Constant) -> ast.expr:
        """A condition of which only the truth counts."""
        side = _Side(self, site)
        if isinstance(node, ast.BoolOp):
            first, *others = node.values
            if any(isinstance(x, _BINDING) for x in ast.walk(first)):
                raise _No  # it is put into a function, and would bind or yield there
            parts = [self._test(first, site), *[side.test(x) for x in others]]
            name = "every" if isinstance(node.op, ast.And) else "some"
            return ast.copy_location(hook(name, site, *map(later, parts)), node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ast.copy_location(hook("opposite", self._test(node.operand, site)), node)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return side.test(node)
        made: ast.expr = self.visit(node)
        return made


def _is_choice(node: ast.expr) -> TypeGuard[ast.Subscript]:
    """Whether a callee is one of several functions, as ``ACTIVATIONS[k]`` is."""
    if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Constant):
        return False
    others = (ast.Slice, ast.Starred, *_BINDING)
    return not any(isinstance(x, others) for x in ast.walk(node.slice))


def _only_called(function: Function) -> set[str]:
    """Names that are read in order to call them, and in no other way."""
    names = [x for x in ast.walk(function) if isinstance(x, ast.Name)]
    called = {id(x.func) for x in ast.walk(function) if isinstance(x, ast.Call)}
    others = {x.id for x in names if not isinstance(x.ctx, ast.Store) and id(x) not in called}
    return {x.id for x in names} - others


def _is_simple_item(node: ast.expr) -> TypeGuard[ast.Subscript]:
    """Whether it is ``d[t]``: names that may be read twice."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return False
    return isinstance(node.slice, ast.Name | ast.Constant)


def _is_exchange(target: ast.expr, value: ast.expr) -> TypeGuard[ast.Tuple]:
    """Whether items are stored in one statement, each with a value of its own."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return False
    if len(target.elts) != len(value.elts) or any(isinstance(x, ast.Starred) for x in value.elts):
        return False
    return all(isinstance(x, ast.Subscript) for x in target.elts)


def _storing(target: ast.expr, site: ast.Constant, visit: Callable[[ast.expr], Any]) -> ast.Lambda:
    """What stores a value in a place."""
    assert isinstance(target, ast.Subscript)
    cell, value = cell_of(target), ast.Name(_ITEM, ast.Load())
    if cell is None:
        stored = hook("store", value, visit(target.value), visit(target.slice), site)
    else:
        stored = hook("put_cell", site, value, *map(visit, cell))
    made = later(stored)
    made.args.args.append(ast.arg(_ITEM))
    return made


def _fills(node: ast.expr) -> bool:
    """Whether it is ``s.add(t)``, or ``append`` of what is under a key: see ``keyed``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    under = isinstance(node.func.value, ast.Call | ast.Subscript)
    return node.func.attr == "add" or (node.func.attr == "append" and under)


class _Side(ast.NodeVisitor):
    """Converts what is in a side: everything in it is checked when it runs."""

    def __init__(self, converter: _Converter, site: ast.Constant) -> None:
        self._converter, self._site = converter, site
        self.names: list[str] = []

    def generic_visit(self, node: ast.AST) -> Any:
        """Whatever is not named below."""
        raise _No

    def statements(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """A list of statements."""
        found: list[ast.stmt] = []
        for statement in statements:
            made = self.visit(statement)
            found += made if isinstance(made, list) else [made]
        return found

    def test(self, node: ast.expr) -> ast.expr:
        """A condition of which only the truth counts."""
        here = self._site
        if isinstance(node, ast.BoolOp):
            name = "every" if isinstance(node.op, ast.And) else "some"
            made = hook(name, here, *[later(self.test(x)) for x in node.values])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            made = hook("opposite", self.test(node.operand))
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            if any(type(op) not in _COMPARISONS for op in node.ops):
                raise _No
            rest: list[ast.expr] = []
            for op, x in zip(node.ops, node.comparators, strict=True):
                rest += [ast.Constant(_COMPARISONS[type(op)]), later(self.visit(x))]
            made = hook("chain", here, self.visit(node.left), *rest)
        else:
            found: ast.expr = self.visit(node)
            return found
        return ast.copy_location(made, node)

    # --- statements -------------------------------------------------------------------------------

    def visit_Pass(self, node: ast.Pass) -> Any:
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) != 1:
            raise _No
        (target,) = node.targets
        exchange, cell = exchanged(node), cell_of(target)
        if exchange is not None:
            made = hook("exchange", self._site, *map(self.visit, exchange))
            return ast.copy_location(ast.Expr(made), node)
        if self._converter.is_callee(node):
            assert isinstance(node.value, ast.Subscript)
            parts = self.visit(node.value.value), self._key(node.value.slice)
            value: ast.expr = self._converter.choice(node.value, self._site, *parts)
        else:
            value = self.visit(node.value)
        if cell is not None:
            return self._store_cell(value, cell, node)
        if isinstance(target, ast.Subscript):
            return self._store(target, value, node)
        if isinstance(target, ast.Attribute):
            return self._put(target, value, node)
        if _is_exchange(target, node.value):
            return self._store_all(target.elts, value, node)
        if any(not isinstance(x, ast.Name | ast.Tuple | ast.Store) for x in ast.walk(target)):
            raise _No
        self.names += [x.id for x in ast.walk(target) if isinstance(x, ast.Name)]
        if isinstance(target, ast.Tuple) and not isinstance(node.value, ast.Tuple):
            value = hook("plain", self._site, value)
        return ast.copy_location(ast.Assign([target], value), node)

    def _store(self, target: ast.Subscript, value: ast.expr, node: ast.stmt) -> ast.stmt:
        container, key = self.visit(target.value), self.visit(target.slice)
        stored = hook("store", value, container, key, self._site)
        return ast.copy_location(ast.Expr(stored), node)

    def _store_cell(self, value: ast.expr, cell: tuple[ast.expr, ...], node: ast.stmt) -> ast.stmt:
        """``A[p][j] = x``."""
        stored = hook("put_cell", self._site, value, *map(self.visit, cell))
        return ast.copy_location(ast.Expr(stored), node)

    def _store_all(self, targets: list[ast.expr], values: ast.expr, node: ast.stmt) -> ast.stmt:
        """``v[i], v[j] = v[j], v[i]``: all values come first, then one store after the other."""
        places = [_storing(target, self._site, self.visit) for target in targets]
        stored = hook("store_all", self._site, values, *places)
        return ast.copy_location(ast.Expr(stored), node)

    def _put(self, target: ast.Attribute, value: ast.expr, node: ast.stmt) -> ast.stmt:
        given = value, self.visit(target.value), ast.Constant(target.attr), self._site
        return ast.copy_location(ast.Expr(hook("assign", *given)), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if type(node.op) not in _BINARY:
            raise _No
        if isinstance(node.target, ast.Attribute) and isinstance(node.target.value, ast.Name):
            word, old = ast.Constant("i" + _BINARY[type(node.op)]), copied(node.target)
            old.ctx = ast.Load()
            value = hook("binary", self._site, word, self.visit(old), self.visit(node.value))
            return self._put(node.target, value, node)
        cell = cell_of(node.target)
        if isinstance(node.target, ast.Subscript) and (cell or _is_simple_item(node.target)):
            word, old = ast.Constant("i" + _BINARY[type(node.op)]), copied(node.target)
            old.ctx = ast.Load()
            value = hook("binary", self._site, word, self.visit(old), self.visit(node.value))
            if cell is not None:
                return self._store_cell(value, cell, node)
            return self._store(node.target, value, node)
        if not isinstance(node.target, ast.Name):
            raise _No
        self.names.append(node.target.id)
        name, old = "i" + _BINARY[type(node.op)], ast.Name(node.target.id, ast.Load())
        value = hook("binary", self._site, ast.Constant(name), old, self.visit(node.value))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if not _fills(node.value):
            raise _No
        return ast.copy_location(ast.Expr(self.visit(node.value)), node)

    def visit_If(self, node: ast.If) -> Any:
        made, names = self._converter.forked(node, self)
        self.names += names
        return made

    def _loop(self, node: ast.For | ast.While) -> Any:
        made, names = self._converter.repeated(node, self)
        self.names += names
        return made

    visit_For = visit_While = _loop

    # --- expressions ------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        if type(node.op) not in _BINARY:
            raise _No
        name, pair = _BINARY[type(node.op)], (self.visit(node.left), self.visit(node.right))
        return ast.copy_location(hook("binary", self._site, ast.Constant(name), *pair), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if type(node.op) not in _UNARY:
            raise _No
        name = ast.Constant(_UNARY[type(node.op)])
        return ast.copy_location(hook("unary", self._site, name, self.visit(node.operand)), node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        left, ops, right = self.visit(node.left), node.ops, list(map(self.visit, node.comparators))
        if len(ops) == 1 and isinstance(ops[0], ast.Is | ast.IsNot):
            return ast.copy_location(ast.Compare(left, ops, right), node)
        if len(ops) == 1 and isinstance(ops[0], ast.In | ast.NotIn):
            made = hook("contains", self._site, left, *right)
            made = hook("opposite", made) if isinstance(ops[0], ast.NotIn) else made
            return ast.copy_location(made, node)
        if len(ops) > 1 or type(ops[0]) not in _COMPARISONS:
            raise _No
        name = ast.Constant(_COMPARISONS[type(ops[0])])
        return ast.copy_location(hook("binary", self._site, name, left, *right), node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self._converter.either(node, self)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        made = ast.Tuple(list(map(self.visit, node.elts)), node.ctx)
        return ast.copy_location(made, node)

    def visit_List(self, node: ast.List) -> Any:
        return ast.copy_location(ast.List(list(map(self.visit, node.elts)), node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        cell = cell_of(node)
        if cell is not None:
            made: ast.expr = hook("cell", self._site, *map(self.visit, cell))
            return ast.copy_location(made, node)
        container = hook("container", self._site, self.visit(node.value))
        made = ast.Subscript(container, self._key(node.slice), node.ctx)
        return ast.copy_location(made, node)

    def _key(self, node: ast.expr) -> ast.expr:
        """What a container is read by; slices may only be where Python has them."""
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple(list(map(self._key, node.elts)), node.ctx), node)
        if isinstance(node, ast.Slice):
            given = (node.lower, node.upper, node.step)
            return ast.copy_location(ast.Slice(*[x and self._key(x) for x in given]), node)
        return hook("plain", self._site, self.visit(node))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        name, x = ast.Constant(node.attr), self.visit(node.value)
        return ast.copy_location(hook("attribute", self._site, x, name), node)

    def visit_Call(self, node: ast.Call) -> Any:
        if is_own(node.func):
            return node
        if any(isinstance(x, ast.Starred) for x in node.args) or node.keywords:
            raise _No
        summed = self._converter.sum(copied(node), self)
        ordinary = self._called(node)
        if summed is None:
            return ordinary
        return ast.copy_location(ast.IfExp(hook("is_sum", node.func), summed, ordinary), node)

    def _called(self, node: ast.Call) -> ast.Call:
        given = []
        for x in node.args:
            made = self.visit(x)
            is_empty = isinstance(x, ast.List) and not x.elts  # which is known to be new
            if not isinstance(x, ast.Call | ast.GeneratorExp) and not is_empty:
                made = hook("plain", self._site, made)
            given.append(made)
        if _is_choice(node.func):
            parts = self.visit(node.func.value), self._key(node.func.slice)
            callee: ast.expr = self._converter.choice(node.func, self._site, *parts)
        else:
            callee = self.visit(node.func)
        called = hook("call", self._site, callee)
        return ast.copy_location(ast.Call(called, given, []), node)

    def visit_GeneratorExp(self, node: Any) -> Any:
        parts = []
        for x in node.generators:
            if x.is_async:
                raise _No
            tests = list(map(self.visit, x.ifs))
            parts.append(ast.comprehension(x.target, self.over(x.iter), tests, 0))
        item = hook("plain", self._site, self.visit(node.elt))
        return ast.copy_location(type(node)(item, parts), node)

    visit_ListComp = visit_GeneratorExp

    def over(self, node: ast.expr) -> ast.expr:
        """What a loop goes through."""
        found: ast.expr = self.visit(node)
        return found if isinstance(node, ast.Call) else hook("plain", self._site, found)
