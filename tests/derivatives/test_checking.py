"""check_gradients: passes what is right, names what is wrong, and names corners without failing."""

import re

import pytest

import chainrule
from chainrule import Value, check_gradients

SMOOTH = {
    "polynomial": (lambda a, b: a * a * b - 3 * b + a**3, (2.0, -1.5)),
    "quotient": (lambda a, b: a / b + b / a, (0.3, -4.0)),
    "functions": (lambda x: (x.sin() * x.exp()).tanh() + (x * x + 1).log(), (0.7,)),
    "large and small": (lambda a, b: a**2 * b, (1e6, 1e-6)),
    "logarithm near zero": (lambda x: x.log(), (1e-5,)),
    "large argument": (lambda x: (x / 1e8) ** 3 + x, (3e8,)),
    "zero argument": (lambda x: x.exp() + x * 2, (0.0,)),
    "relu away from its corner": (lambda x: x.relu() * x, (1.5,)),
    "flat": (lambda x: x.relu() + 2.0, (-3.0,)),
    "constant": (lambda x: Value(4.0), (1.0,)),
    "many inputs": (lambda *xs: chainrule.vsum([x * x for x in xs]).sqrt(), tuple(range(1, 12))),
    "two-argument functions": (lambda a, b: chainrule.atan2(a, b) + chainrule.hypot(a, b), (1, 2)),
    "power of values": (lambda a, b: a**b, (1.7, 2.3)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_pass_with_a_readable_report(name):
    f, inputs = SMOOTH[name]
    report = str(check_gradients(f, *inputs))
    assert report
    assert not report.startswith("<"), "it reads as words, not as an object at an address"
    assert report != "None"


def wrong_square(local):
    """y = x*x with a local gradient of its own making."""
    return lambda x: Value(x.data**2, (x,), (local,), op="bad_square")


def numbers_in(text):
    return [float(t) for t in re.findall(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?", text)]


def test_a_wrong_local_gradient_raises_naming_numbers_error_and_operation():
    with pytest.raises(AssertionError) as caught:
        check_gradients(wrong_square(7.5), 2.0)
    message = str(caught.value)
    assert "bad_square" in message
    assert any(n == pytest.approx(7.5, rel=1e-6) for n in numbers_in(message))
    assert any(n == pytest.approx(4.0, rel=1e-4) for n in numbers_in(message))
    assert "relative" in message.lower()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_worst_of_several_inputs_is_named(place):
    def f(alpha, beta, gamma):
        inputs = [alpha, beta, gamma]
        bad = wrong_square(inputs[place].data * 2 + 1.25)(inputs[place])
        return alpha * beta * gamma + bad

    with pytest.raises(AssertionError) as caught:
        check_gradients(f, 2.0, 3.0, 5.0)
    message = str(caught.value)
    name = ("alpha", "beta", "gamma")[place]
    others = {"alpha", "beta", "gamma"} - {name}
    by_place = re.search(rf"input\w*\s*[\[#(]?\s*{place}\b", message)
    assert name in message or by_place, message
    assert not any(re.search(rf"worst\D*\b{other}\b", message) for other in others)
    assert "bad_square" in message


def test_the_worst_input_wins_over_one_that_is_only_bad():
    def f(alpha, beta):
        return wrong_square(4.001)(alpha) + wrong_square(60.0)(beta)

    with pytest.raises(AssertionError) as caught:
        check_gradients(f, 2.0, 3.0)
    assert any(n == pytest.approx(60.0) for n in numbers_in(str(caught.value)))


def test_a_small_error_above_the_tolerance_is_found():
    with pytest.raises(AssertionError):
        check_gradients(wrong_square(4.0 * (1 + 1e-4)), 2.0)


def test_a_wrong_operation_deep_inside_is_the_one_named():
    def f(x):
        y = (x * 2.0).sin() + x
        return (wrong_square(2 * y.data + 1.0)(y) * 3.0).tanh() * x

    with pytest.raises(AssertionError, match="bad_square"):
        check_gradients(f, 0.1)


def test_a_gradient_that_is_missing_is_found():
    with pytest.raises(AssertionError):
        check_gradients(lambda x: Value(x.data**2), 2.0)


@pytest.mark.parametrize(
    ("f", "inputs", "word"),
    [
        (lambda x: x.relu(), (0.0,), "relu"),
        (lambda x: chainrule.leaky_relu(x, 0.1), (0.0,), "leaky_relu"),
        (abs, (0.0,), "abs"),
        (chainrule.maximum, (2.0, 2.0), "max"),
        (chainrule.minimum, (-1.0, -1.0), "min"),
        (lambda x: chainrule.clip(x, -1.0, 1.0), (1.0,), "clip"),
        (lambda x, y: (x * 2 - y).relu() + x * y, (1.5, 3.0), "relu"),
    ],
    ids=["relu", "leaky_relu", "abs", "maximum tie", "minimum tie", "clip", "inner relu"],
)
def test_corners_are_named_instead_of_failing(f, inputs, word):
    assert word in str(check_gradients(f, *inputs))


def test_an_infinite_derivative_of_another_input_is_not_blamed_for_a_corner():
    report = check_gradients(lambda x, y: x.relu() + y.sqrt(), 0.0, 0.0)
    assert [row.operation.split()[0] for row in report.not_smooth] == ["relu", "sqrt"]


@pytest.mark.parametrize("x", [1e-9, -1e-9, 1e-300])
def test_a_corner_closer_than_a_step_is_not_a_failure(x):
    assert f"{x:g}" in str(check_gradients(lambda v: v.relu() * 3.0, x))


def test_a_corner_at_one_input_does_not_hide_a_wrong_gradient_at_another():
    def f(alpha, beta):
        return alpha.relu() + wrong_square(1.0)(beta)

    with pytest.raises(AssertionError, match="bad_square"):
        check_gradients(f, 0.0, 3.0)


def test_a_function_that_does_not_return_one_number_raises_type_error():
    with pytest.raises(TypeError):
        check_gradients(lambda x: [x, x], 1.0)


def test_errors_of_the_function_pass_through():
    with pytest.raises(ValueError, match="log"):
        check_gradients(lambda x: x.log(), -1.0)


# --- where differences are not good enough --------------------------------------------------------


def wrong_sine(x):
    return Value(chainrule.sin(x.data), (x,), (0.3,), op="bad_sine")


@pytest.mark.parametrize("x", [1e6, 1e8, 1e10, 1e12])
def test_a_function_that_turns_fast_is_checked_with_steps_small_enough(x):
    report = check_gradients(lambda v: v.sin(), x)
    assert (report.ok, report.not_smooth) == (True, ())
    with pytest.raises(chainrule.GradientError, match="bad_sine"):
        check_gradients(wrong_sine, x)


@pytest.mark.parametrize("x", [1e14, 1e16, 1e17, 3e18])
@pytest.mark.parametrize("f", [lambda v: v.sin(), wrong_sine], ids=["right", "wrong"])
def test_where_no_step_is_small_enough_nothing_is_called_right_wrong_or_not_smooth(f, x):
    report = check_gradients(f, x)
    assert not report.ok
    assert (report.wrong, report.not_smooth, len(report.undecided)) == ((), (), 1)
    assert "not good enough" in str(report)
    assert "agree: 0 of 1" in str(report)


def test_a_result_that_is_all_rounding_is_not_called_right():
    def f(x):
        rounded = (x + 1e16) - 1e16
        return Value(rounded.data, (rounded,), (1.5,), op="off")

    assert not check_gradients(f, 3.0).ok


@pytest.mark.parametrize("power", [2, 3, 4])
def test_a_flat_point_is_decided(power):
    assert check_gradients(lambda x: (x - 3) ** power, 3.0).ok
