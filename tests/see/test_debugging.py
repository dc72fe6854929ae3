"""Where a NaN or an infinity came from, in data and in gradients, and source lines."""

import inspect
import math
import threading

import pytest
from hypothesis import given
from number_systems import chainrule_functions
from programs import ALL_OPS, programs, run

from chainrule import Value, log, nonfinite, sqrt
from chainrule.see.debugging import debug, find_nonfinite


def line_below():
    """The place of the line after the caller's, as errors and reports show it."""
    frame = inspect.currentframe().f_back
    return f"test_debugging.py:{frame.f_lineno + 1}"


@given(programs(ALL_OPS))
def test_a_finite_graph_has_nothing_to_find(program):
    output = run(program, [Value(x) for x in program.inputs], chainrule_functions())[-1]
    assert find_nonfinite(output) is None


def test_the_maker_is_told_from_the_carriers():
    p = Value(0.0, label="p")
    with nonfinite("allow"):
        y = log(p)
        z = y * 2
        loss = z + 1
    report = find_nonfinite(loss)
    assert report.kind == "data"
    assert report.maker is y
    assert report.value == -math.inf
    assert report.operands == (p,)
    assert report.carriers == (z, loss)
    assert report.location is None
    text = str(report)
    assert text.startswith("-inf was made by y = log(p) = log(0)\n")
    assert "p = 0.0 (an input)" in text
    assert "2 nodes only carry it on: z, loss" in text
    assert "with chainrule.debug()" in text
    assert repr(report) == text


def test_debug_names_the_line_of_the_maker_and_of_its_operands():
    a, b = Value(2.0, label="a"), Value(2.0, label="b")
    with nonfinite("allow"), debug():
        made = line_below()
        p = a * b + -4.0
        logged = line_below()
        y = log(p)
    report = find_nonfinite(y + 1)
    assert report.location == logged
    assert f"at {logged}" in str(report)
    assert f"p = 0.0 (from v1 + -4 at {made})" in str(report).replace("(-4)", "-4")
    assert "with chainrule.debug()" not in str(report)


def test_nodes_made_outside_the_block_remember_nothing():
    x = Value(2.0)
    with debug():
        inside = x * 3
    outside = x * 3
    assert inside._location.startswith("test_debugging.py:")
    assert outside._location is None


def test_debug_is_per_thread_and_ends_with_its_block():
    seen = []
    with debug():
        worker = threading.Thread(target=lambda: seen.append((Value(1.0) * 2)._location))
        worker.start()
        worker.join()
    with pytest.raises(ZeroDivisionError), debug():
        Value(0.0) ** -1
    seen.append((Value(1.0) * 2)._location)
    assert seen == [None, None]


def test_undefined_values_name_the_line_of_their_operand():
    a = Value(1.0, label="a")
    with debug():
        made = line_below()
        p = a * -1
        with pytest.raises(ValueError, match=f"came from .* at {made}"):
            log(p)


def test_several_makers_are_counted():
    p = Value(0.0, label="p")
    with nonfinite("allow"):
        y = log(p) + p**-1
    report = find_nonfinite(y)
    assert report.maker.op == "log"
    assert "1 other node also made one" in str(report)


def test_overflow_is_made_by_the_product():
    h = Value(1e200, label="h")
    with nonfinite("allow"):
        y = h * h * 0
    report = find_nonfinite(y)
    assert report.maker is y.children[0]
    assert "inf was made by v1 = h * h = 1e+200 × 1e+200" in str(report)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_input_may_be_the_origin(bad):
    x = Value(bad, label="x")
    with nonfinite("allow"):
        y = x * 2
    report = find_nonfinite(y)
    assert report.maker is x
    assert "was there from the start: input x is" in str(report)


def test_a_gradient_is_traced_to_the_derivative_that_is_infinite():
    x = Value(0.0, label="x")
    with debug():
        made = line_below()
        y = sqrt(x)
        z = y * 3 + x
    report = find_nonfinite(z)
    assert report.kind == "gradient"
    assert report.maker is y
    assert report.value == math.inf
    text = str(report)
    assert f"the gradient inf was made going back through y = sqrt(x) = sqrt(0) at {made}" in text
    assert "y.grad = 3.0 is finite, but the local gradient ∂y/∂x = 0.5 / y is inf" in text
    assert "so x.grad became inf" in text
    assert (x.grad, y.grad, z.grad) == (0.0, 0.0, 0.0)


def test_what_lies_below_the_maker_only_carries_the_gradient():
    a = Value(0.0, label="a")
    x = a * 2
    y = sqrt(x)
    report = find_nonfinite(y)
    assert report.maker is y
    assert a in report.carriers
    assert x not in report.carriers


def test_a_gradient_that_overflows_is_found():
    k = Value(0.0, label="k")
    y = k * 1e300 * 1e300
    report = find_nonfinite(y)
    assert report.kind == "gradient"
    assert report.maker is y.children[0]
    assert "overflows" in str(report)


def test_a_sum_of_gradients_that_overflows_is_found():
    k = Value(0.0, label="k")
    report = find_nonfinite(k * 1.5e308 + k * 1.5e308)
    assert "adding 1.5e+308 to what k.grad had overflows" in str(report)


def test_a_zero_gradient_stops_an_infinite_derivative():
    x = Value(0.0)
    assert find_nonfinite(sqrt(x) * 0.0) is None


def test_gradients_left_by_something_else_are_reported_as_such():
    a = Value(2.0, label="a")
    y = a * 3
    a.grad = math.nan
    report = find_nonfinite(y)
    assert report.maker is a
    assert "not because of this graph" in str(report)


def test_a_custom_operation_can_be_the_maker():
    x = Value(2.0, label="x")
    y = Value(5.0, (x,), (math.inf,), op="mine", label="y")
    assert "y = mine(x) = mine(2)" in str(find_nonfinite(y))


def test_find_nonfinite_takes_a_value_only():
    with pytest.raises(TypeError, match="find_nonfinite takes a Value"):
        find_nonfinite(math.nan)


def test_a_long_graph_is_searched():
    x = Value(0.0, label="x")
    with nonfinite("allow"):
        y = log(x)
        for _ in range(50_000):
            y = y + 1.0
    report = find_nonfinite(y)
    assert report.maker.op == "log"
    assert len(report.carriers) == 50_000
    assert len(str(report)) < 1_000
