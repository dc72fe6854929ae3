"""Every row of the op table, proved: value, derivatives of both orders, edges, errors, spellings.

One family of tests runs over `ops.TABLE`, so a new row is covered the moment it is added. It is
tried at ordinary points wherever it is defined; static parameters to try are named here.
The yardstick is mpmath at 50 digits, with formulas of its own (number_systems.py).
"""

import itertools
import math
import operator

import mpmath
import numpy as np
import pytest
from number_systems import MPMATH
from temporary_rows import temporary_row

import chainrule
from chainrule import Value, gradients, hessian
from chainrule.core import ops
from chainrule.core.ops import TABLE, Edge, Op

ORDINARY = (-3.1, -1.7, -0.6, -0.2, 0.3, 0.8, 1.4, 2.6)
FAR = (-700.0, -40.0, -9.0, -1e-8, -1e-300, 1e-300, 1e-8, 9.0, 40.0, 700.0)
HUGE = (-1e300, -1e160, 1e160, 1e300)
PROBES = (-1000.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 1000.0)  # at and beyond the domains' ends

PARAMETERS = {
    "pow": [(p,) for p in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)],
    "leaky_relu": [(0.01,), (0.25,), (-1.0,)],
    "clip": [(-1.0, 1.5), (-math.inf, 1.0)],
    "where": [(0.0,), (1.0,)],
    "polygamma": [(1.0,), (2.0,), (3.0,)],
}
# What mpmath has under another name, and the operators.
YARDSTICK = {
    **MPMATH,
    "add": operator.add,
    "mul": operator.mul,
    "pow": mpmath.power,
    "power": mpmath.power,
}
# Far out, 1 + tanh(u) cancels: gelu_tanh has absolute precision there, as everywhere it is defined.
# Near their zeros, the logarithm of the gamma function and its derivatives have it too.
ABSOLUTE = {"gelu_tanh": 1e-14, "lgamma": 2e-15, "digamma": 2e-15}
OPERATORS = {"add": operator.add, "mul": operator.mul, "pow": operator.pow, "power": operator.pow}


def rows(suitable=lambda op: True):
    """A test for each row, or each suitable one."""
    return pytest.mark.parametrize(
        "op", [pytest.param(op, id=name) for name, op in TABLE.items() if suitable(op)]
    )


every_row = rows()


def yardstick(op: Op):
    exact = YARDSTICK.get(op.name) or getattr(mpmath, op.name, None)
    assert exact is not None, (
        f"number_systems.py needs a formula for {op.name}, to check it against"
    )
    return exact


def points(op: Op, numbers=ORDINARY):
    """Operands and parameters where the row is defined."""
    columns = [numbers] if op.arity == 1 else [numbers[i :: op.arity] for i in range(op.arity)]
    found = [
        (xs, parameters)
        for parameters in PARAMETERS.get(op.name, [op.defaults])
        for xs in itertools.product(*columns)
        if math.isfinite(op(*xs, *parameters))
    ]
    assert found, f"{op.name} is defined at none of {numbers}: PARAMETERS may have to name some"
    return found


def node(op: Op, xs, parameters=()) -> Value:
    """The row applied to Values."""
    return Value._apply_op(op, [Value(x) for x in xs], parameters)


def exactly(op: Op, xs, parameters, orders=None):
    """The value, or a derivative of these orders, at 50 digits."""
    exact = yardstick(op)
    with mpmath.workdps(50):
        operands = tuple(map(mpmath.mpf, xs))
        static = tuple(map(mpmath.mpf, parameters))
        if orders is None:
            return mpmath.mpf(exact(*operands, *static))
        along = operands if len(operands) > 1 else operands[0]
        return mpmath.diff(
            lambda *moved: exact(*moved, *static), along, orders if len(orders) > 1 else orders[0]
        )


def unit(i, count, *more):
    orders = [0] * count
    for j in (i, *more):
        orders[j] += 1
    return tuple(orders)


def close(found, true, relative, absolute=0.0):
    return abs(mpmath.mpf(found) - true) <= relative * abs(true) + absolute


# --- numbers --------------------------------------------------------------------------------------


@every_row
def test_value(op):
    for xs, parameters in points(op):
        true = exactly(op, xs, parameters)
        assert close(op(*xs, *parameters), true, 2e-15, ABSOLUTE.get(op.name, 0.0)), (
            xs,
            parameters,
        )


@every_row
def test_value_far_out(op):
    for xs, parameters in points(op, FAR):
        true = exactly(op, xs, parameters)
        if abs(true) > 1e-290 or true == 0:  # beyond, floats lose digits
            found = op(*xs, *parameters)
            assert close(found, true, 1e-14, ABSOLUTE.get(op.name, 0.0)), (xs, parameters, found)


@every_row
def test_partials(op):
    for xs, parameters in points(op):
        y = node(op, xs, parameters)
        assert len(y.local_grads) == op.arity
        for i, slope in enumerate(y.local_grads):
            true = exactly(op, xs, parameters, unit(i, op.arity))
            assert close(slope, true, 1e-13, 1e-15), (xs, parameters, i)


@every_row
def test_partials_are_numbers_wherever_the_row_is_defined(op):
    for xs, parameters in points(op, (*FAR, *HUGE)):
        y = node(op, xs, parameters)
        assert not any(map(math.isnan, y.local_grads)), (xs, parameters)


@every_row
def test_second_derivatives_are_the_partials_evaluated_over_values(op):
    for xs, parameters in points(op):
        operands = [Value(x) for x in xs]
        y = Value._apply_op(op, operands, parameters)
        first = gradients(y, operands, create_graph=True)
        for i, slope in enumerate(first):
            assert slope.data == pytest.approx(y.local_grads[i], rel=1e-13, abs=1e-15)
            for j, second in enumerate(gradients(slope, operands)):
                true = exactly(op, xs, parameters, unit(i, op.arity, j))
                assert close(second, true, 1e-12, 1e-14), (xs, parameters, i, j)
        assert [x.grad for x in operands] == [0.0] * op.arity


@every_row
def test_floats_arrays_and_values_agree(op):
    for parameters in PARAMETERS.get(op.name, [op.defaults]):
        rows = [xs for xs, p in points(op) if p == parameters]
        if not rows:
            continue
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        over_array = op(*columns, *parameters)
        slopes = op.local_grads(over_array, columns, parameters)
        for k, xs in enumerate(rows):
            y = node(op, xs, parameters)
            assert y.data == op(*xs, *parameters)
            assert y._rule is op
            assert type(y.data) is float
            assert all(type(slope) is float for slope in y.local_grads)
            assert over_array[k] == pytest.approx(y.data, rel=1e-15, abs=1e-300)
            for slope, expected in zip(slopes, y.local_grads, strict=True):
                found = np.broadcast_to(slope, len(rows))[k]
                assert found == pytest.approx(expected, rel=1e-14, abs=1e-15)


@every_row
def test_a_nan_operand_propagates(op):
    for xs, parameters in points(op):
        for i in range(op.arity):
            operands = (*xs[:i], math.nan, *xs[i + 1 :])
            y = node(op, operands, parameters)
            not_chosen = op.name == "where" and bool(parameters[0]) == (i == 1)
            to_the_zeroth = op.name == "pow" and parameters == (0.0,)  # IEEE: nan**0 is 1
            assert math.isnan(y.data) != (not_chosen or to_the_zeroth), (operands, parameters)


# --- edges ----------------------------------------------------------------------------------------

EDGES = [
    pytest.param(op, edge, id=f"{name}{edge.operands}")
    for name, op in TABLE.items()
    for edge in op.edges
]


@pytest.mark.parametrize(("op", "edge"), EDGES)
def test_edges_are_as_pinned(op, edge):
    y = node(op, edge.operands, edge.parameters)
    assert (y.data, y.local_grads) == (edge.value, edge.partials)
    columns = [np.array([x, x]) for x in edge.operands]
    with np.errstate(all="ignore"):
        over_array = op(*columns, *edge.parameters)
        slopes = op.local_grads(over_array, columns, edge.parameters)
    assert np.all(over_array == edge.value)
    for slope, expected in zip(slopes, edge.partials, strict=True):
        assert np.all(slope == expected)


@pytest.mark.parametrize(("op", "edge"), EDGES)
def test_edges_are_as_pinned_over_values(op, edge):
    operands = [Value(x) for x in edge.operands]
    y = Value._apply_op(op, operands, edge.parameters)
    first = gradients(y, operands, create_graph=True)
    assert [slope.data for slope in first] == list(edge.partials)


@pytest.mark.parametrize(
    ("op", "edge"),
    [
        (ops.relu, Edge((0.0,), (), 0.0, (0.0,))),
        (ops.abs, Edge((0.0,), (), 0.0, (0.0,))),
        (ops.maximum, Edge((2.0, 2.0), (), 2.0, (0.5, 0.5))),
        (ops.minimum, Edge((2.0, 2.0), (), 2.0, (0.5, 0.5))),
        (ops.pow, Edge((0.0,), (0.0,), 1.0, (0.0,))),
        (ops.sqrt, Edge((0.0,), (), 0.0, (math.inf,))),
    ],
    ids=lambda x: x.name if isinstance(x, Op) else "",
)
def test_conventions_that_users_rely_on_are_pinned(op, edge):
    assert edge in op.edges


# --- errors ---------------------------------------------------------------------------------------


def outcome(function, *arguments):
    """What comes of a call: a finite number, or the type of its error."""
    try:
        return function(*arguments)
    except (ValueError, ArithmeticError) as error:
        return type(error)


# math.pow has errors of its own; ours are those of **.
@rows(lambda op: hasattr(math, op.name) and op.name != "pow")
def test_undefined_points_raise_pythons_own_error(op):
    python = getattr(math, op.name)
    for xs in itertools.product(PROBES, repeat=op.arity):
        expected = outcome(python, *xs)
        found = outcome(lambda *xs: node(op, xs).data, *xs)
        assert found == expected, xs


@pytest.mark.parametrize(
    ("xs", "error"),
    [
        ((0.0, -1), ZeroDivisionError),
        ((0.0, -0.5), ZeroDivisionError),
        ((-2.0, 0.5), ValueError),
        ((1e200, 2), OverflowError),
    ],
)
def test_undefined_powers_raise_pythons_own_error(xs, error):
    with pytest.raises(error):
        node(ops.pow, xs[:1], xs[1:])
    with pytest.raises(error):
        Value(xs[0]) ** xs[1]


@pytest.mark.parametrize("base", [0.0, -2.0])
def test_a_variable_exponent_needs_a_positive_base(base):
    with pytest.raises(ValueError, match="base > 0"):
        node(ops.power, (base, 2.0))
    with pytest.raises(ValueError, match="base > 0"):
        base ** Value(2.0)


@pytest.mark.parametrize("op", [ops.add, ops.mul, ops.hypot], ids=lambda op: op.name)
def test_overflow_raises(op):
    with pytest.raises(OverflowError, match="overflow"):
        node(op, (1.7e308, 1.7e308))


def errors_of(op, *kinds):
    """What the row says at every probe where it raises, with a label on each operand."""
    messages = []
    for parameters in PARAMETERS.get(op.name, [op.defaults]):
        for xs in itertools.product(PROBES, repeat=op.arity):
            operands = [Value(x, label=f"operand {i}") for i, x in enumerate(xs)]
            try:
                Value._apply_op(op, operands, parameters)
            except kinds as error:
                messages.append(str(error))
            except ArithmeticError:
                pass
    return messages


@every_row
def test_a_row_raises_outside_its_domain_and_only_there(op):
    messages = errors_of(op, ValueError)
    assert bool(messages) == (op.domain is not None)
    assert all(op.domain in message and "undefined" in message for message in messages)


@every_row
def test_an_error_names_the_labels_of_the_operands(op):
    for message in errors_of(op, ValueError, ArithmeticError):
        assert all(f"'operand {i}'" in message for i in range(op.arity)), message


@every_row
@pytest.mark.parametrize("wrong", ["3", None, 1j, [1.0]], ids=repr)
def test_wrong_types_raise_and_say_what_to_pass(op, wrong):
    parameters = PARAMETERS.get(op.name, [op.defaults])[0]
    for i in range(op.arity):
        operands = [Value(0.5)] * op.arity
        operands[i] = wrong
        with pytest.raises(TypeError, match=f"operand of {op.name} must be a real number"):
            Value._apply_op(op, operands, parameters)
        if op.name in ("add", "mul", "power"):
            with pytest.raises(TypeError):  # Python's own words, both types in them
                OPERATORS[op.name](*operands)
        elif op.name != "pow":
            with pytest.raises(TypeError, match="must be"):
                function(op)(*operands, *parameters)


@rows(lambda op: op.parameters)
@pytest.mark.parametrize(
    "wrong", ["3", None, 1j, Value(2.0)], ids=["str", "None", "complex", "Value"]
)
def test_static_parameters_must_be_numbers(op, wrong):
    static = PARAMETERS.get(op.name, [op.defaults])[0]
    for i, name in enumerate(op.parameters):
        parameters = (*static[:i], wrong, *static[i + 1 :])
        if op.name == "where" and isinstance(wrong, Value):
            continue  # a condition is a truth, and a Value has one
        with pytest.raises(TypeError, match=f"{op.name}'s {name} must be a real number"):
            Value._apply_op(op, [Value(0.5)] * op.arity, parameters)


# --- spellings ------------------------------------------------------------------------------------


def function(op: Op):
    """The public function of a row that has one."""
    found = getattr(chainrule, op.name)
    return (lambda a, b, condition: found(condition, a, b)) if op.name == "where" else found


@every_row
def test_every_row_is_an_operator_or_a_public_function(op):
    for xs, parameters in points(op):
        expected = node(op, xs, parameters)
        if op.name in OPERATORS:
            operands = [Value(xs[0]), *map(Value, xs[1:]), *parameters]
            found = OPERATORS[op.name](*operands)
        else:
            found = function(op)(*map(Value, xs), *parameters)
            number = function(op)(*xs, *parameters)
            assert type(number) is float
            assert number == expected.data
            array = function(op)(*[np.array([x, x]) for x in xs], *parameters)
            assert array.dtype == np.float64
            assert array.tolist() == [expected.data] * 2
        assert found._rule is op
        assert (found.data, found.local_grads) == (expected.data, expected.local_grads)


@rows(lambda op: op.name not in OPERATORS and op.name != "where")
def test_every_row_is_a_method_under_all_its_names(op):
    for xs, parameters in points(op):
        expected = node(op, xs, parameters)
        for name in (op.name, *op.aliases):
            found = getattr(Value(xs[0]), name)(*map(Value, xs[1:]), *parameters)
            assert found._rule is op
            assert found.data == expected.data


def ufuncs(op: Op):
    """numpy's functions of this name; those that compare and pick make no node."""
    if op.parameters or op.name in ("power", "maximum", "minimum", "sign"):
        return []
    found = [getattr(np, name, None) for name in (op.name, *op.aliases)]
    return [function for function in found if isinstance(function, np.ufunc)]


@rows(ufuncs)
def test_numpy_functions_of_the_name_work_on_arrays_of_values(op):
    for xs, _ in points(op):
        columns = [np.array([Value(x)], dtype=object) for x in xs]
        for ufunc in ufuncs(op):
            (found,) = ufunc(*columns)
            assert found._rule is op
            assert found.data == node(op, xs).data


def test_numpys_own_spellings_are_there():
    for name in "sin cos tan sinh cosh tanh".split():
        assert TABLE[name]
        inverse = TABLE[f"a{name}"]
        assert f"arc{name}" in inverse.aliases
    assert "arctan2" in ops.atan2.aliases
    assert Value(2.0).conjugate().data == 2.0


def test_names_symbols_and_formulas_are_complete():
    for name, op in TABLE.items():
        assert op.name == name
        assert op.symbol
        assert op.formula in repr(op)
        assert len(op.defaults) <= len(op.parameters)
        assert node(op, *points(op)[0]).op == op.display(points(op)[0][1])


# --- a row of one's own ---------------------------------------------------------------------------


@pytest.fixture
def gaussian():
    """exp(-rate·x²): a row with a static parameter, and gone again after the test."""
    with temporary_row(
        "gaussian",
        "exp(-rate·x²)",
        lambda x, rate: ops.exp(-rate * x * x),
        lambda y, x, rate: -2.0 * rate * x * y,
        parameters=("rate",),
        defaults=(1.0,),
        edges=(Edge((0.0,), (1.0,), 1.0, (0.0,)),),
    ) as row:
        yield row


def test_a_new_row_works_at_once(gaussian, monkeypatch):
    monkeypatch.setitem(YARDSTICK, "gaussian", lambda x, rate: mpmath.exp(-rate * x * x))
    monkeypatch.setitem(PARAMETERS, "gaussian", [(1.0,), (0.5,)])
    for proof in (
        test_value,
        test_partials,
        test_second_derivatives_are_the_partials_evaluated_over_values,
        test_floats_arrays_and_values_agree,
        test_a_nan_operand_propagates,
        test_a_row_raises_outside_its_domain_and_only_there,
    ):
        proof(gaussian)
    test_edges_are_as_pinned(gaussian, gaussian.edges[0])


def test_a_new_row_is_part_of_every_graph(gaussian):
    x = Value(0.5)
    y = gaussian(x * 2.0, 0.5) + 1.0
    y.backward()
    slope = -1.0 * math.exp(-0.5)  # d/dx exp(-(2x)²/2) = -4x·exp(-2x²)
    assert y.data == 1.0 + math.exp(-0.5)
    assert x.grad == pytest.approx(2.0 * slope, rel=1e-15)
    assert gaussian(0.0) == 1.0
    second = hessian(lambda x: gaussian(x[0], 0.5) * x[1])([1.0, 3.0])
    assert second == pytest.approx(np.array([[0.0, slope], [slope, 0.0]]), rel=1e-14, abs=1e-15)


def test_a_row_cannot_be_added_twice(gaussian):
    with pytest.raises(ValueError, match="already has a row named 'gaussian'"):
        ops.row("gaussian", "again", lambda x: x, lambda y, x: 1.0)
