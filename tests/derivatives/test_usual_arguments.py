"""The usual arguments go through C: what comes out is what the general way gives for them."""

import collections
import copy
import dataclasses
import functools
import gc
import inspect
import threading
import typing
import weakref

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.core.backend import modes
from chainrule.derivatives import arguments

pytestmark = pytest.mark.skipif(chainrule.engine != "native", reason="C is what is compared")

Pair = collections.namedtuple("Pair", "a b")


class Typed(typing.NamedTuple):
    w: object
    b: object = 1.0


@dataclasses.dataclass
class Model:
    w: object
    b: object
    kind: typing.ClassVar[str] = "linear"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    w: object


@dataclasses.dataclass
class Checked:
    """Its code runs when the user makes one, and not when a derivative is put into one."""

    w: object
    scale: dataclasses.InitVar[float] = 2.0

    def __post_init__(self, scale):
        assert isinstance(self.w, float)
        self.w = self.w * scale


USUAL = {
    "a float": 2.5,
    "an int": 3,
    "a list": [1.0, 2, -0.0, float("inf")],
    "nothing": [],
    "a tuple in a dict": {"w": (1.0, [2.0, 3.0]), 1: {True: 4.0}},
    "an array": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "float32": np.array([0.1, 0.2], np.float32),
    "integers": np.arange(6).reshape(2, 3)[:, ::2],
    "an empty array": np.zeros((0, 3)),
    "a 0-d array": np.array(1.5),
    "a list of arrays": [np.ones(2), [np.zeros((1, 2)), 7]],
    "a numpy number": np.float64(1.0),
    "numpy numbers": [np.float32(0.1), np.int64(-3), np.float64("nan")],
    "columns": np.arange(6.0).reshape(2, 3).T,
    "every other": np.arange(6.0)[::-2],
    "one number for all": np.broadcast_to(np.float64(2.5), (2, 3)),
    "big-endian": np.array([1.5, 2.5], ">f8"),
    "few bits": np.array([1, 255], np.uint8),
    "half precision": np.array([0.1], np.float16),
    "long": np.array([1, 2**63], np.uint64),
    "beyond exact floats": np.array([2**53 + 1]),
    "not finite": np.array([np.inf, -0.0, np.nan]),
    "read-only": np.frombuffer(np.ones(2).tobytes()),
    "a named tuple": Pair(1.0, [2.0, np.ones(2)]),
    "a typed one": [Typed(Pair(1, 2.0))],
    "a dataclass": Model([1.0, 2.0], {"c": np.zeros(2)}),
    "a frozen one in a tuple": (Frozen(Frozen(3.0)),),
    "one with code": Checked(1.5),
}

OTHERS = {
    "a Value": Value(1.0),
    "a Value in a list": [1.0, Value(2.0)],
    "a bool": True,
    "text": "12",
    "None": [None],
    "a numpy number without a sign": np.uint8(1),
    "a list's child": type("Mine", (list,), {})([1.0]),
    "objects": np.array([1.0, Value(2.0)], object),
    "bools": np.array([True]),
    "complex numbers": np.array([1j]),
    "beyond floats": [10**400],
    "a matrix": np.array([[1.0, 2.0]]).view(np.matrix),
    "a masked array": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "a range": range(3),
    "strings": np.array(["1", "2"]),
    "strings as objects": np.array(["1", 2.0], object),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "a record array": np.zeros(2, [("a", float)]),
    "a tuple's child": type("Mine", (tuple,), {})([1.0]),
    "a dataclass itself": Model,
    "text in a dataclass": Model("1", 2.0),
    "a dataclass that is a mapping": dataclasses.make_dataclass(
        "Both", ["w"], namespace={"items": lambda self: [], "keys": lambda self: []}
    )(1.0),
    "an ordered dict": collections.OrderedDict(a=1.0),
    "a set": {1.0},
}


def kinds(tree):
    """The types of everything in a tree, and its numbers."""
    if isinstance(tree, dict):
        return {key: kinds(item) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree), [kinds(item) for item in tree]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [kinds(getattr(tree, one.name)) for one in dataclasses.fields(tree)]
        return type(tree), fields, sorted(getattr(tree, "__dict__", ()))
    if isinstance(tree, np.ndarray):
        return type(tree), tree.dtype, tree.shape, [kinds(item) for item in tree.ravel().tolist()]
    return type(tree), repr(tree.data) if isinstance(tree, Value) else repr(tree)


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_come_out_as_the_general_way_gives_them(name):
    x = copy.deepcopy(USUAL[name])
    tree, leaves = arguments.usual_values(x)
    general = arguments.flatten_argument(x)
    numbers = [Value(v) for v in general.numbers]
    assert kinds(tree) == kinds(general.filled(numbers))
    assert [repr(v.data) for v in leaves] == [repr(v) for v in general.numbers]
    for row in ([float(i) for i in range(len(leaves))], leaves):
        assert kinds(arguments.usual_like(x, row)) == kinds(general.like(row))
    assert kinds(x) == kinds(USUAL[name])


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_to_the_general_way(name):
    assert arguments.usual_values(OTHERS[name]) is None


def test_an_endless_argument_is_an_error():
    x = [1.0]
    x.append(x)
    with pytest.raises(RecursionError):
        chainrule.grad(lambda v: v[0])(x)


def test_an_argument_that_grows_meanwhile_is_an_error():
    x = [1.0, 2.0]

    def f(v):
        x.append(3.0)
        return v[0] * v[1]

    with pytest.raises((IndexError, StopIteration, RuntimeError)):
        chainrule.value_and_grad(f)(x)


# --- the whole call in C --------------------------------------------------------------------------


def total(x):
    """The sum of the squares of all numbers of a tree, whatever holds them."""
    if isinstance(x, dict):
        return total(list(x.values()))
    if isinstance(x, np.ndarray):
        return total(x.ravel().tolist())
    if isinstance(x, (list, tuple)):
        return sum([total(item) for item in x], 0.0)
    if dataclasses.is_dataclass(x):
        return total([getattr(x, one.name) for one in dataclasses.fields(x)])
    return x * x


def outcome(call, *arguments):
    try:
        return kinds(call(*arguments))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", [*USUAL, *OTHERS])
@pytest.mark.parametrize("transform", [chainrule.grad, chainrule.value_and_grad])
def test_c_and_python_give_the_same_for_every_argument(transform, name, monkeypatch):
    x = {**USUAL, **OTHERS}[name]
    quick = outcome(transform(total), copy.copy(x))
    monkeypatch.setattr("chainrule.derivatives.transforms.kernels", None)
    monkeypatch.setattr("chainrule.derivatives.transforms.usual_values", lambda x: None)
    assert quick == outcome(transform(total), copy.copy(x))


RETURNED = {
    "a Value": lambda x: x[0] * x[1],
    "an input": lambda x: x[0],
    "a number": lambda x: 3,
    "a bool": lambda x: True,
    "nothing": lambda x: None,
    "an array": lambda x: np.array(x),
    "a 0-d array": lambda x: np.array(x[0] * 2.0),
    "a list": lambda x: x,
    "a pair": lambda x: (x[0] * x[1], {"a": x[0], "n": 3, "s": "text", "deep": [x[1], (1.0,)]}),
    "a pair with an array": lambda x: (x[0] * x[1], np.array(x)),
    "a pair with None": lambda x: (x[0], None),
    "a named pair": lambda x: Pair(x[0], x[1]),
    "a triple": lambda x: (x[0], 1, 2),
    "a pair without a Value": lambda x: ("text", x[0]),
    "an error": lambda x: x[5],
}


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("has_aux", [False, True])
@pytest.mark.parametrize("transform", [chainrule.grad, chainrule.value_and_grad])
def test_c_and_python_give_the_same_for_whatever_is_returned(transform, has_aux, name, monkeypatch):
    quick = outcome(transform(RETURNED[name], has_aux=has_aux), [2.0, 3.0])
    monkeypatch.setattr("chainrule.derivatives.transforms.kernels", None)
    assert quick == outcome(transform(RETURNED[name], has_aux=has_aux), [2.0, 3.0])


@pytest.mark.parametrize("argnums", [0, 1, -1, -2, (0,), (1, 0), (0, -1), (0, -2), 2, (0, 0), -3])
def test_c_and_python_give_the_same_for_argnums(argnums, monkeypatch):
    def f(x, y, *, scale=1.0):
        return x[0] * y["b"] * scale + x[1]

    def called(arguments):
        return outcome(lambda *a: chainrule.value_and_grad(f, argnums)(*a, scale=2.0), *arguments)

    arguments = [1.0, np.float64(2.0)], {"b": 3.0}
    quick = called(arguments)
    monkeypatch.setattr("chainrule.derivatives.transforms.kernels", None)
    assert quick == called(arguments)


def test_a_derivative_looks_like_its_function():
    def loss(x: float, y: float = 2.0) -> float:
        """Squared."""
        return (x - y) ** 2

    for derivative in (chainrule.grad(loss), chainrule.value_and_grad(loss)):
        assert derivative.__name__ == "loss"
        assert derivative.__doc__ == "Squared."
        assert inspect.signature(derivative) == inspect.signature(loss)
    assert chainrule.grad(loss)(1.0, y=3.0) == -4.0


def test_transforms_inside_a_function_run_in_c_are_nested():
    def inner(y):
        return y**3

    def outer(x):
        slope = chainrule.value_and_grad(inner)(x)[1]
        assert isinstance(slope, Value)
        return slope * x

    assert chainrule.value_and_grad(outer)(2.0) == (24.0, 36.0)
    assert modes.nested == 0
    assert modes.outermost is None


def test_an_inner_derivative_that_does_not_depend_on_the_outer_is_a_number():
    seen = []

    def outer(x):
        seen.append(chainrule.grad(lambda y: y * y)(3.0))
        return x * seen[-1]

    assert chainrule.grad(outer)(2.0) == 6.0
    assert seen == [6.0]


def test_an_error_inside_leaves_nothing_behind():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        chainrule.grad(fails)(1.0)
    assert modes.nested == 0
    assert modes.outermost is None
    assert chainrule.grad(lambda x: x * x)(3.0) == 6.0


def test_a_value_around_the_function_gives_values():
    w = Value(2.0)

    def f(x):
        return x * x * w

    slope = chainrule.grad(f)(3.0)
    slope.backward()
    assert (slope.data, w.grad) == (12.0, 6.0)
    w = 5.0
    assert chainrule.grad(f)(3.0) == 30.0


def test_a_value_that_comes_to_be_around_while_it_runs_gives_values():
    kept = None

    def f(x):
        nonlocal kept
        kept = x * x
        return kept * 3.0

    value, slope = chainrule.value_and_grad(f)(2.0)
    assert isinstance(value, Value)
    assert isinstance(slope, Value)
    assert (value.data, slope.data) == (12.0, 12.0)


def test_code_put_into_a_function_is_seen():
    def f(x):
        return x * x

    derivative = chainrule.grad(f)
    assert derivative(3.0) == 6.0
    f.__code__ = (lambda x: x * x * around).__code__  # noqa: F821
    f.__globals__["around"] = Value(2.0)
    try:
        assert isinstance(derivative(3.0), Value)
    finally:
        del f.__globals__["around"]


class Squares:
    scale = 2.0

    def method(self, x):
        return x * x * self.scale

    def __call__(self, x):
        return x * x * self.scale


@pytest.mark.parametrize(
    "f",
    [
        Squares().method,
        Squares(),
        functools.partial(lambda s, x: x * x * s, 2.0),
        functools.wraps(Squares.method)(lambda x: x * x * 2.0),
    ],
)
def test_whatever_can_be_called_is_differentiated(f):
    assert chainrule.value_and_grad(f)(3.0) == (18.0, 12.0)


def test_modes_are_as_before():
    def f(x):
        return x * x

    with chainrule.no_grad():
        assert chainrule.grad(f)(3.0) == 6.0
    with chainrule.nonfinite("allow"):
        assert chainrule.value_and_grad(lambda x: (x - 3.0).log())(3.0)[0] == -np.inf
    with pytest.raises(ValueError, match="log"):
        chainrule.value_and_grad(lambda x: (x - 3.0).log())(3.0)


def test_threads_do_not_see_each_others_functions():
    inside, go_on = threading.Event(), threading.Event()
    found = []

    def waits(x):
        inside.set()
        assert go_on.wait(10)
        return x * x

    thread = threading.Thread(target=lambda: found.append(chainrule.grad(waits)(3.0)))
    thread.start()
    assert inside.wait(10)
    found.append(chainrule.grad(lambda x: x * x)(2.0))
    go_on.set()
    thread.join()
    assert found == [4.0, 6.0]


def test_gradients_of_nodes_that_exist_are_left_alone():
    w = Value(2.0)
    (w * 3.0).backward()
    assert chainrule.grad(lambda x: x * x + w.data)(3.0) == 6.0
    assert w.grad == 3.0


def test_a_derivative_and_its_function_are_freed():
    def f(x):
        return x * held[0].scale

    held = [chainrule.grad(f)]
    held[0].scale = 3.0
    assert held[0](2.0) == 3.0
    gone = weakref.ref(f)
    held.clear()
    del f
    gc.collect()
    assert gone() is None


def test_many_calls_leave_no_nodes():
    from chainrule import _native

    calls = chainrule.value_and_grad(total)
    x = {"w": np.ones(3), "p": Pair(1.0, Model(2.0, [3.0]))}
    calls(x)
    gc.collect()
    before = _native.allocation_counts()[0]
    for _ in range(100):
        calls(x)
    assert _native.allocation_counts()[0] == before
