"""Long tables of addresses are written as bytes, and hold what short ones do."""

import random

import numpy as np
import pytest

import chainrule
from chainrule.compiler.codegen import ir
from chainrule.core.backend import Value

pytest.importorskip("llvmlite")


def irregular(count):
    """A sum of products of elements in no order, each used about three times."""
    draw = random.Random(count)
    pairs = [(draw.randrange(count), draw.randrange(count)) for _ in range(3 * count)]

    def function(xs):
        return sum(chainrule.tanh(xs[i] * xs[j]) for i, j in pairs)

    return function


def test_long_tables_are_written_as_bytes_and_short_ones_as_numbers():
    assert ir.table_text(np.arange(-2, 2)) == "[4 x i64] [i64 -2, i64 -1, i64 0, i64 1]"
    for largest, bits in ((2**31 - 1, 32), (2**31, 64), (2**62, 64)):
        numbers = np.array([-1, 0, 10, 34, 92, -(2**31), largest] * 100)
        code = ir.Code()
        code.table(numbers, "%i")
        ((_, row),) = code.tables.values()
        assert f"load i{bits}, ptr" in "\n".join(code.lines)
        size, text = ir.table_text(row).split(' c"')
        assert size == f"[{bits // 8 * len(numbers)} x i8]"
        found = bytes.fromhex(text.removesuffix('"').replace("\\", ""))
        assert np.frombuffer(found, f"int{bits}").tolist() == numbers.tolist()


@pytest.mark.parametrize("count", [40, 300])
def test_both_ways_give_the_same_bits(count, monkeypatch):
    function = irregular(count)
    xs = np.random.default_rng(count).uniform(-1, 1, count)
    found = []
    for few in (0, 10**9):
        monkeypatch.setattr(ir, "FEW_NUMBERS", few)
        fast = chainrule.compile(function, lift=True, on_fallback="raise")
        value, gradient = fast.value_and_grad(xs)
        assert "machine code" in fast.report()
        found.append((value, gradient.tolist()))
    assert found[0] == found[1]
    leaves = [Value(x) for x in xs]
    result = function(leaves)
    result.backward()
    assert found[0][0] == pytest.approx(result.data, rel=1e-12)
    assert found[0][1] == pytest.approx([v.grad for v in leaves], rel=1e-9, abs=1e-12)
