"""Rewritten code is as sound as Python's own: its lines are known, in long lines too."""

import inspect
import statistics
import sys

import bytecode
import pytest

import chainrule
from chainrule.compiler.capture.hooks import REWRITER

WIDE = " + ".join(f"p[{i} % 3] * q[{i} % 2]" for i in range(40))
SOURCE = f"""
def wide(p, q):
    try:
        found = {WIDE}
        rest = [p[0] * x for x in q if {" or ".join(["q[0] is None"] * 8)} or True]
        found = found + rest[0]
    except IndexError:
        found = p[0]
    return found
"""


def made(name):
    world = {}
    exec(compile(SOURCE, "wide.py", "exec"), world)
    return world[name]


def codes(code):
    yield code
    for x in code.co_consts:
        if hasattr(x, "co_code"):
            yield from codes(x)


def test_the_table_of_lines_ends_where_the_code_does():
    code = made("wide").__code__
    assert max(c for *_, c in code.co_positions() if c is not None) > 400
    rewritten = REWRITER.rewritten(code)
    assert rewritten is not None
    for before, after in zip(codes(code), codes(rewritten), strict=True):
        assert len(after.co_code) > len(before.co_code)
        assert list(after.co_lines())[-1][1] == len(after.co_code)
        assert len(list(after.co_positions())) == len(after.co_code) // 2
        lines = {line for *_, line in before.co_lines() if line is not None}
        assert {line for *_, line in after.co_lines() if line is not None} == lines


def test_rewritten_code_has_all_the_stack_that_it_needs():
    functions = [f for _, f in inspect.getmembers(statistics, inspect.isfunction)]
    found = [c for f in functions for c in codes(REWRITER.rewritten(f.__code__) or f.__code__)]
    assert len(found) > 30
    for code in found:
        needed = bytecode.ConcreteBytecode.from_code(code).compute_stacksize()
        assert code.co_stacksize >= needed, code.co_qualname


@pytest.mark.parametrize("traced", [False, True])
def test_long_lines_are_recorded_under_a_debugger_too(traced):
    wide = made("wide")
    fast = chainrule.compile(wide, on_fallback="eager")
    before, seen = sys.gettrace(), set()

    def trace(frame, event, argument):
        if frame.f_code.co_name == "wide":
            seen.add(frame.f_lineno)
        return trace

    calls = [([1.0, 2.0, 3.0], [4.0, 5.0]), ([0.5, -1.0, 2.0], [1.0, 3.0])]
    if traced:
        sys.settrace(trace)
    try:
        found = [fast.value_and_grad(*call) for call in calls]
    finally:
        sys.settrace(before)
    assert found == [chainrule.value_and_grad(wide)(*call) for call in calls]
    assert seen <= {2, 3, 4, 5, 6, 9}
    assert not traced or 4 in seen
