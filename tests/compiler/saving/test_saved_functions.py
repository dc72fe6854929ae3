"""``save`` and ``load``: a loaded function gives the bits of the one that was saved, or raises."""

import dataclasses
import enum
import inspect
import math
import subprocess
import sys
import textwrap
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

import chainrule
from chainrule import FallbackError, SaveError, Value, exp, log, sqrt, tanh
from chainrule.compiler.runtime.ledger import allowance
from chainrule.gpt import GPT, Config

RNG = np.random.default_rng(7)


@dataclasses.dataclass
class Line:
    slope: float
    offset: float


Point = namedtuple("Point", "x y")


class Kind(enum.Enum):
    SQUARE = 2
    CUBE = 3


def network(params, points, targets):
    total = 0.0
    for point, target in zip(points, targets, strict=True):
        hidden = [tanh(sum(w * x for w, x in zip(row, point, strict=True))) for row in params["W"]]
        output = sum(v * h for v, h in zip(params["v"], hidden, strict=True))
        total = total + (output - target) ** 2
    return total


def huber(x, data):
    total = 0.0
    for y in data:
        distance = abs(x - y)
        total = total + (distance**2 if distance < 1.0 else 2 * distance - 1.0)
    return total


def polynomial(coefficients, n, kind=Kind.SQUARE):
    total = 0.0
    for k, c in enumerate(coefficients):
        total = total + c * (n * k - 1) + c**2 * n
    return total**kind.value


def line(params, points):
    return sum((params.slope * p.x + params.offset - p.y) ** 2 for p in points)


TABLE = {3: 2, 5: 0, 9: 1}


def looked_up(weights, keys):
    return sum(weights[TABLE[k]] * weights[-k] for k in keys) * len(keys)


def statistics(scale, data):
    mean = sum(data) / len(data)
    spread = sqrt(sum((scale * x - mean) ** 2 for x in data))
    rows = [data * 2.0, (mean + 1.0, "text", None, {3: True, "b": b"x"})]
    return scale * spread, {"mean": mean, "rows": rows}


def namespaced(p, options):
    return p.a * options.rate + exp(p.b) * options.rate**2 if options.on else p.a


CONFIG = Config(width=4, heads=2, block=8)
MODEL = GPT(CONFIG, 6)


def gpt(weights, tokens):
    return GPT.of(CONFIG, weights).loss(tokens)


def network_arguments():
    params = {"W": RNG.normal(size=(6, 3)), "v": RNG.normal(size=6)}
    return params, RNG.normal(size=(20, 3)), RNG.normal(size=20)


NEAR, FAR = [0.1, 0.2, 0.3] * 30, [0.1, 5.0, -3.0] * 30
CASES = {
    "mlp": (network, [network_arguments()]),
    "gpt": (gpt, [(MODEL.arrays(), [5, *[k % 5 for k in range(n)], 5]) for n in (5, 2, 3)]),
    "branches": (huber, [(0.0, NEAR), (0.0, FAR), (4.25, FAR)]),
    "integers": (
        polynomial,
        [([1.0, 2.0, 3.0] * 40, 2), ([1.0, 2.0, 3.0] * 40, -1), ([0.5, 1.5], 3, Kind.CUBE)],
    ),
    "dataclass": (line, [(Line(2.0, 1.0), [Point(float(k), k * 0.5) for k in range(60)])]),
    "dict tables": (looked_up, [([1.0, 2.0, 4.0, *[0.5] * 7], [3, 9, 5, 3]), ([1.5] * 9, [9])]),
    "nest results": (statistics, [(2.0, RNG.normal(size=90)), (3.0, RNG.normal(size=4))]),
}


def bits(tree):
    """A tree with each float as its digits, so that equal means the same to the last bit."""
    if isinstance(tree, dict):
        return {key: bits(x) for key, x in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree).__name__, [bits(x) for x in tree]
    if dataclasses.is_dataclass(tree):
        return type(tree), bits(dataclasses.astuple(tree))
    if isinstance(tree, np.ndarray):
        return tree.shape, tree.dtype.str, tree.tobytes()
    if isinstance(tree, Value):
        return Value, tree.data.hex()
    return tree.hex() if isinstance(tree, float) else tree


def path_of(function):
    return function.dispatch.last.value


@pytest.mark.parametrize("lift", [False, True], ids=["tape", "machine code"])
@pytest.mark.parametrize("case", CASES)
def test_a_loaded_function_gives_the_same_bits_on_the_same_path(tmp_path, case, lift):
    function, calls = CASES[case]
    fast = chainrule.compile(function, lift=lift, on_fallback="raise")
    for arguments in calls:
        fast.value_and_grad(*arguments)
        fast(*arguments)
    fast.save(tmp_path / "saved")
    loaded = chainrule.load(tmp_path / "saved")
    for arguments in calls:
        expected = bits(fast.value_and_grad(*arguments))
        path = path_of(fast)
        assert bits(loaded.value_and_grad(*arguments)) == expected
        assert path_of(loaded) == path
        assert bits(loaded(*arguments)) == bits(fast(*arguments))
    assert path == ("machine code" if lift else "tape")
    assert loaded.dispatch.counts.eager == 0


def test_other_numbers_and_integers_are_computed_and_the_fast_path_answers(tmp_path):
    fast = chainrule.compile(gpt, lift=True)
    weights = MODEL.arrays()
    fast.save(tmp_path / "saved", weights, [5, 0, 1, 2, 5])
    loaded = chainrule.load(tmp_path / "saved", build=True)
    for tokens in ([5, 4, 4, 0, 5], [0, 1, 2, 3, 4], [1, 1, 1, 1, 1]):
        weights = {name: array + 0.01 for name, array in weights.items()}
        expected = bits(fast.value_and_grad(weights, tokens))
        assert bits(loaded.value_and_grad(weights, tokens)) == expected
    if chainrule.engine == "native":
        assert loaded.dispatch.fast_path is not None


def test_the_tape_answers_until_machine_code_pays(tmp_path, monkeypatch):
    fast = chainrule.compile(network)
    arguments = network_arguments()
    fast.save(tmp_path / "saved", *arguments)
    monkeypatch.setattr(allowance, "left", 0.3)
    loaded = chainrule.load(tmp_path / "saved")
    paths = []
    for _ in range(10_000):
        loaded.value_and_grad(*arguments)
        paths.append(path_of(loaded))
        if paths[-1] == "machine code":
            break
    assert paths[0] == "tape"
    assert paths[-1] == "machine code"
    assert bits(loaded.value_and_grad(*arguments)) == bits(fast.value_and_grad(*arguments))


def test_single_precision_comes_back_as_it_was(tmp_path):
    fast = chainrule.compile(network, dtype="float32")
    arguments = network_arguments()
    fast.save(tmp_path / "saved", *arguments)
    loaded = chainrule.load(tmp_path / "saved", build=True)
    assert bits(loaded.value_and_grad(*arguments)) == bits(fast.value_and_grad(*arguments))
    assert path_of(loaded) == "machine code"


def test_map_batches_and_train_work_on_a_loaded_function(tmp_path):
    def square(p, x, y):
        return (p["w"] * x + p["b"] - y) ** 2

    fast = chainrule.compile(square, lift=True)
    xs, ys = RNG.normal(size=(2, 100))
    fast.map({"w": 1.0, "b": 0.5}, xs, ys)
    fast.map_value_and_grad({"w": 1.0, "b": 0.5}, xs, ys)
    fast.save(tmp_path / "saved", {"w": np.array(1.0), "b": np.array(0.5)}, 2.0, 3.0)
    loaded = chainrule.load(tmp_path / "saved")
    for method in ("map", "map_value_and_grad"):
        found = getattr(loaded, method)({"w": 1.0, "b": 0.5}, xs, ys)
        assert bits(found) == bits(getattr(fast, method)({"w": 1.0, "b": 0.5}, xs, ys))
    samples, runs = [*zip(xs.tolist(), ys.tolist(), strict=True)], []
    for function in (fast, loaded):
        params = {"w": np.array(0.0), "b": np.array(0.0)}
        optimiser = chainrule.optim.SGD(params, lr=0.01)
        losses = function.train(params, samples, optimiser, steps=50, batch=2)
        runs.append(bits((losses, params, function.batch_value_and_grad(params, samples[:9]))))
    assert runs[0] == runs[1]


def test_derivatives_of_a_loaded_function(tmp_path):
    def f(x, scale):
        return scale * exp(x[0]) * x[1] ** 2 + x[0] * x[1]

    x = np.array([0.3, 1.2])
    chainrule.compile(f).save(tmp_path / "saved", x, 2.0)
    loaded = chainrule.load(tmp_path / "saved")
    assert bits(chainrule.grad(loaded)(x, 2.0)) == bits(chainrule.grad(f)(x, 2.0))
    assert bits(chainrule.value_and_grad(loaded)(x, 2.0)) == bits(
        chainrule.value_and_grad(f)(x, 2.0)
    )
    assert bits(chainrule.hessian(loaded)(x, 2.0)) == bits(chainrule.hessian(f)(x, 2.0))
    assert bits(chainrule.hvp(loaded)(x, x, 2.0)) == bits(chainrule.hvp(f)(x, x, 2.0))
    nested = chainrule.grad(lambda s: chainrule.grad(loaded)(s * x, 2.0)[0])
    assert nested(1.5) == chainrule.grad(lambda s: chainrule.grad(f)(s * x, 2.0)[0])(1.5)
    values = [Value(0.3), Value(1.2)]
    with pytest.raises(FallbackError, match=r"is \[float × 2\], and in the file float\[2\]"):
        loaded(values, 2.0)  # a list is not an array
    array = np.array(values)
    loaded(array, 2.0).backward()
    assert [v.grad for v in values] == chainrule.grad(f)(x, 2.0).tolist()


def test_a_loaded_function_in_an_eager_or_compiled_one(tmp_path):
    chainrule.compile(lambda x: x**3).save(tmp_path / "saved", 2.0)
    loaded = chainrule.load(tmp_path / "saved")
    around = chainrule.compile(lambda x: loaded(x) * 2 + x, on_fallback="eager")
    assert around.value_and_grad(2.0) == (18.0, 25.0)


# --- calls that are not in the file ---------------------------------------------------------------


def test_a_branch_that_was_not_saved_raises_and_names_its_line(tmp_path):
    fast = chainrule.compile(huber)
    fast.value_and_grad(0.0, NEAR)
    fast.save(tmp_path / "saved")
    loaded = chainrule.load(tmp_path / "saved")
    assert loaded.value_and_grad(0.25, NEAR) == fast.value_and_grad(0.25, NEAR)
    with pytest.raises(FallbackError, match=r"not saved for this call: the branch at test_"):
        loaded.value_and_grad(9.0, NEAR)
    fast.value_and_grad(9.0, NEAR)  # records the other branch
    fast.save(tmp_path / "saved")
    both = chainrule.load(tmp_path / "saved")
    for x in (0.25, 9.0):
        assert both.value_and_grad(x, NEAR) == fast.value_and_grad(x, NEAR)


def test_a_static_integer_that_was_not_saved_raises_and_names_its_line(tmp_path):
    def power(x, n):
        return x**n if n > 1 else x * range(5)[n]

    chainrule.compile(power).save(tmp_path / "saved", 2.0, 3)
    loaded = chainrule.load(tmp_path / "saved")
    assert loaded.value_and_grad(3.0, 3) == (27.0, 27.0)
    with pytest.raises(FallbackError, match=r"decides at test_saved_functions.py:\d+ is"):
        loaded.value_and_grad(3.0, 0)
    with pytest.raises(FallbackError, match="was not saved for this call"):
        loaded(3.0, -2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], 3), r"argument 1 of value_and_grad is \[float × 2\], and in the file \[f"),
        (([1.0] * 3, 3.0), "argument 2 of value_and_grad is float, and in the file int"),
        (
            ([1.0] * 3, 3, Kind.CUBE),
            r"\(\[float × 3\], int, 'CUBE'\), and the file has va",
        ),
        ((np.ones(3), 3), r"is float\[3\], and in the file \[float × 3\]$"),
        (([1.0] * 3, object()), "an argument of type object"),
    ],
)
def test_another_structure_raises_and_says_which_there_are(tmp_path, arguments, message):
    fast = chainrule.compile(polynomial)
    fast.value_and_grad([1.0, 2.0, 3.0], 2)
    fast.save(tmp_path / "saved")
    loaded = chainrule.load(tmp_path / "saved")
    with pytest.raises(FallbackError, match=message):
        loaded.value_and_grad(*arguments)
    with pytest.raises(FallbackError, match=r"a plain call\(\[float × 3\], int\), and the f"):
        loaded([1.0, 2.0, 3.0], 2)
    assert loaded.value_and_grad([1.0, 2.0, 3.0], 2) == fast.value_and_grad([1.0, 2.0, 3.0], 2)


@pytest.mark.parametrize("x", [-1.0, 0.0, math.nan, math.inf])
def test_undefined_values_raise_what_eager_raises(tmp_path, x):
    def f(x):
        return log(x) + sqrt(x)

    chainrule.compile(f).save(tmp_path / "saved", 2.0)
    loaded = chainrule.load(tmp_path / "saved")
    try:
        expected = bits(chainrule.value_and_grad(f)(x))
    except (ArithmeticError, ValueError) as error:
        with pytest.raises(type(error), match=r"^log\("):
            loaded.value_and_grad(x)
        with chainrule.nonfinite("allow"):
            expected = bits(chainrule.value_and_grad(f)(x))
            assert bits(loaded.value_and_grad(x)) == expected
    else:
        assert bits(loaded.value_and_grad(x)) == expected


def test_an_error_that_the_function_may_catch_is_not_raised(tmp_path):
    def guarded(p, x):
        try:
            return p[0] / x
        except ZeroDivisionError:
            return p[0] * 100

    chainrule.compile(guarded).save(tmp_path / "saved", [2.0], 1.0)
    loaded = chainrule.load(tmp_path / "saved")
    for call in (loaded.value_and_grad, loaded):
        assert call([2.0], 4.0) == (0.5 if call is loaded else (0.5, [0.25]))
        with pytest.raises(FallbackError, match="which its code may catch"):
            call([2.0], 0.0)


def test_undefined_plain_numbers_are_not_guessed(tmp_path):
    def inverse(p, x):
        return p[0] * (1 / x[0])

    def product(p, x):
        return p[0] * (x[0] * 1e300)

    for f, x in ((inverse, 0.0), (product, 1e200)):
        for example in ([1.0], np.ones(1)):
            chainrule.compile(f).save(tmp_path / "saved", [2.0], example)
            loaded = chainrule.load(tmp_path / "saved")
            bad = [x] if type(example) is list else np.array([x])
            for call in (loaded.value_and_grad, loaded):
                with pytest.raises(FallbackError, match="of plain numbers"):
                    call([2.0], bad)


def test_functions_of_math_hold_for_finite_data_only(tmp_path):
    chainrule.compile(lambda p, x: p * math.sin(x)).save(tmp_path / "saved", 2.0, 1.0)
    loaded = chainrule.load(tmp_path / "saved")
    assert loaded(2.0, 0.5) == 2.0 * math.sin(0.5)
    with pytest.raises(FallbackError, match="finite numbers only"):
        loaded.value_and_grad(2.0, math.inf)


def test_integers_too_large_to_be_numbers_raise(tmp_path):
    chainrule.compile(lambda x, n: x * n).save(tmp_path / "saved", 2.0, 3)
    loaded = chainrule.load(tmp_path / "saved")
    assert loaded.value_and_grad(2.0, -7) == (-14.0, -7.0)
    with pytest.raises(FallbackError, match="too large"):
        loaded.value_and_grad(2.0, 2**60 + 1)


# --- what is frozen -------------------------------------------------------------------------------


def test_what_was_captured_is_frozen_and_listed(tmp_path):
    rate, weights, bias = 0.5, np.array([1.0, 2.0]), Value(3.0, label="bias")

    def f(x):
        return rate * x * weights[0] + bias

    fast = chainrule.compile(f)
    fast.save(tmp_path / "saved", 2.0)
    loaded = chainrule.load(tmp_path / "saved")
    assert loaded.captured == {
        "bias": "Value(3.0)",
        "rate": "0.5",
        "weights": "array of float64 [2]",
    }
    assert "frozen: rate = 0.5" in loaded.report()
    bias.data, weights[0] = 100.0, 100.0
    assert loaded(2.0).data == 4.0
    with pytest.raises(SaveError, match="has changed since its last call"):
        fast.save(tmp_path / "saved")
    fast.save(tmp_path / "saved", 2.0)
    assert chainrule.load(tmp_path / "saved")(2.0).data == 200.0


def test_methods_freeze_self(tmp_path):
    class Model:
        def __init__(self, k):
            self.k = k

        @chainrule.compile
        def loss(self, x):
            return self.k * x**2

    model = Model(3.0)
    model.loss.save(tmp_path / "saved", 2.0)
    loaded = chainrule.load(tmp_path / "saved")
    assert loaded.value_and_grad(2.0) == (12.0, 12.0)
    assert loaded.captured == {"self.k": "3.0"}


def test_it_works_without_the_source_in_another_process(tmp_path):
    fast = chainrule.compile(network, lift=True)
    params, points, targets = network_arguments()
    value, gradient = fast.value_and_grad(params, points, targets)
    fast.save(tmp_path / "saved")
    np.savez(tmp_path / "data.npz", points=points, targets=targets, **params)
    code = """
        import chainrule, numpy as np
        data = np.load("data.npz")
        f = chainrule.load("saved", build=True)
        params = {"W": data["W"], "v": data["v"]}
        value, grad = f.value_and_grad(params, data["points"], data["targets"])
        print(value.hex(), *[grad[name].tobytes().hex() for name in "Wv"], f.dispatch.last.name)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=True,
    )
    expected = [value.hex(), gradient["W"].tobytes().hex(), gradient["v"].tobytes().hex()]
    assert run.stdout.split() == [*expected, "MACHINE"]


def test_classes_are_known_by_name_and_fields(tmp_path):
    chainrule.compile(line).save(tmp_path / "saved", Line(2.0, 1.0), [Point(1.0, 2.0)])
    loaded = chainrule.load(tmp_path / "saved")
    same = dataclasses.make_dataclass("Line", ["slope", "offset"])
    other = dataclasses.make_dataclass("Line", ["offset", "slope"])
    value, gradient = loaded.value_and_grad(same(3.0, 1.0), [Point(1.0, 2.0)])
    assert (value, gradient) == (4.0, same(4.0, 4.0))
    with pytest.raises(FallbackError, match=r"Line\(offset=float, slope=float\)"):
        loaded.value_and_grad(other(3.0, 1.0), [Point(1.0, 2.0)])


def test_namespaces_flags_and_keywords_are_part_of_the_structure(tmp_path):
    p, options = Line(0.1, 0.2), SimpleNamespace(rate=2.0, on=True)

    def f(p, options):
        return p.slope * options.rate + exp(p.offset) if options.on else p.slope

    chainrule.compile(f).save(tmp_path / "saved", p, options=options)
    loaded = chainrule.load(tmp_path / "saved")
    assert bits(loaded.value_and_grad(p, options=options)) == bits(
        chainrule.compile(f).value_and_grad(p, options=options)
    )
    with pytest.raises(FallbackError, match="on=False"):
        loaded.value_and_grad(p, options=SimpleNamespace(rate=2.0, on=False))


# --- operations of one's own ----------------------------------------------------------------------


def test_operations_that_are_formulas_are_saved(tmp_path):
    @chainrule.operation(partials=lambda y, x, k: k * y * (1 - y))
    def logistic(x, *, k=1.0):
        return 1 / (1 + chainrule.exp(-k * x))

    @chainrule.operation(
        partials=(lambda y, a, b: 2 * logistic(a) * b, lambda y, a, b: logistic(a))
    )
    def gated(a, b):
        return chainrule.where(a > 0, logistic(a) * b, a * b)

    def f(xs):
        return sum(gated(x, logistic(x, k=2.0)) for x in xs)

    for lift in (False, True):
        fast = chainrule.compile(f, lift=lift)
        xs = RNG.normal(size=300)
        expected = bits(fast.value_and_grad(xs))
        fast.save(tmp_path / "saved")
        loaded = chainrule.load(tmp_path / "saved")
        assert bits(loaded.value_and_grad(xs)) == expected
        assert path_of(loaded) == ("machine code" if lift else "tape")


def test_opaque_operations_are_not(tmp_path):
    cube = chainrule.operation(
        lambda x: float(x) ** 3, name="cube", partials=lambda y, x: 3 * x**2, opaque=True
    )
    fast = chainrule.compile(lambda x: cube(x) + x)
    assert fast.value_and_grad(2.0) == (10.0, 13.0)
    with pytest.raises(SaveError, match="cannot be saved: its operation 'cube' is opaque"):
        fast.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


# --- what cannot be saved -------------------------------------------------------------------------


def test_eager_functions_refuse_with_the_reason_of_their_report(tmp_path):
    def noisy(x):
        print("hello")
        return x * 2

    fast = chainrule.compile(noisy, on_fallback="eager")
    with pytest.raises(SaveError, match="no call of it was recorded yet; give save an example"):
        fast.save(tmp_path / "saved")
    fast(2.0)
    reason = next(iter(fast.dispatch.notices.reasons))
    assert reason in fast.report()
    for example in ((), (2.0,)):
        with pytest.raises(SaveError) as error:
            fast.save(tmp_path / "saved", *example)
        assert str(error.value) == f"noisy cannot be saved: it runs eagerly because {reason}"
    assert not (tmp_path / "saved").exists()


def test_a_loaded_function_is_not_saved_pickled_or_translated(tmp_path):
    chainrule.compile(lambda x: x * 2).save(tmp_path / "saved", 2.0)
    loaded = chainrule.load(tmp_path / "saved")
    with pytest.raises(SaveError, match="copy that file"):
        loaded.save(tmp_path / "again")
    with pytest.raises(chainrule.TranslationError, match="without its source"):
        loaded.to_numpy(2.0)
    assert repr(loaded).startswith("<compiled <lambda>: ")
    assert str(inspect.signature(loaded)) == "(x)"


def test_equal_functions_are_equal_bytes(tmp_path):
    for name in "ab":
        fast = chainrule.compile(network, lift=True)
        params = {"W": np.ones((6, 3)), "v": np.ones(6)}
        fast.save(tmp_path / name, params, np.ones((20, 3)), np.ones(20))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
