"""Arguments of every kind, in every structure."""

from collections import Counter, namedtuple

import numpy as np
import pytest
from compile_twins import (
    Box,
    P,
    graded,
    numbers,
    outcome,
    same,
)
from handed_trees import picture

import chainrule
from chainrule import Value, vsum
from chainrule.compiler.capture.arguments import (
    copied_arguments,
    eager_arguments,
    flatten_call,
    nudges,
)

Pair = namedtuple("Pair", "weight factor")
WEIGHT = Value(0.7)


def test_an_object_argument_that_changes_is_seen():
    def script(compile):
        fast = compile(lambda x, box: x * box.factor + box.offsets[0])
        x = Value(3.0)
        box = Box(factor=2.0, offsets=[1.0])
        yield fast(x, box)
        box.factor = 5.0
        yield fast(x, box)
        box.offsets[0] = -7.0
        yield fast(x, box)
        yield fast(x, Box(factor=1.0, offsets=[0.0]))
        yield fast(x, box=box)

    same(script)


def test_a_model_as_an_argument_is_seen():
    class Model:
        def __init__(self, beta):
            self.beta, self.weight = beta, Value(2.0)

        def scale(self, x):
            return x * self.beta

    def script(compile):
        fast = compile(lambda model, x: model.scale(x) * model.weight)
        model, other = Model(2.0), Model(5.0)
        x = Value(1.5)
        yield graded(fast(model, x), x, model.weight)
        model.beta = 7.0
        yield graded(fast(model, x), x, model.weight)
        model.weight.data = 11.0
        yield graded(fast(model, x), x, model.weight)
        yield graded(fast(other, x), x, other.weight)
        model.weight = Value(13.0)
        yield graded(fast(model, x), x, model.weight)

    same(script)


def test_a_method_called_through_its_class_is_seen():
    def script(compile):
        class Local:
            def __init__(self):
                self.beta = 2.0

            def loss(self, x):
                return x * self.beta

        Local.loss = compile(Local.loss)
        model = Local()
        x = Value(3.0)
        yield Local.loss(model, x)
        model.beta = 5.0
        yield Local.loss(model, x)
        yield model.loss(x)
        model.beta = 7.0
        yield model.loss(x)
        yield Local.loss(model, x)

    same(script)


SCALE = 2.0


def helper(x):
    return x * SCALE


def test_a_function_as_an_argument_is_seen():
    def script(compile):
        global SCALE
        SCALE = 2.0
        fast = compile(lambda x, activation: activation(x) + 1)
        x = Value(3.0)
        for SCALE in (2.0, 5.0):  # noqa: B007
            yield fast(x, helper)
            yield fast(x, lambda v: v * v)
            yield fast(x, Value.tanh)
            yield fast(x, chainrule.exp)

    same(script)


def changing_arguments():
    import array
    import collections

    return {
        "set": ({1.0, 2.0}, lambda s: sum(s), lambda s: s.add(9.0)),
        "deque": (collections.deque([1.0, 2.0]), sum, lambda s: s.append(9.0)),
        "Counter": (Counter("aab"), lambda s: s["a"], lambda s: s.update("a")),
        "defaultdict": (
            collections.defaultdict(float, a=1.0),
            lambda s: s["a"],
            lambda s: s.update(a=9.0),
        ),
        "OrderedDict": (
            collections.OrderedDict(a=1.0),
            lambda s: s["a"],
            lambda s: s.update(a=9.0),
        ),
        "array.array": (array.array("d", [1.0]), sum, lambda s: s.append(9.0)),
        "bytearray": (bytearray(b"a"), sum, lambda s: s.append(9)),
        "list subclass": (type("Mine", (list,), {})([1.0, 2.0]), sum, lambda s: s.append(9.0)),
    }  # fmt: skip


@pytest.mark.parametrize("name", changing_arguments())
def test_a_container_argument_of_another_kind_that_changes_is_seen(name):
    def script(compile):
        container, read, change = changing_arguments()[name]
        fast = compile(lambda x, c: x * read(c))
        x = Value(3.0)
        yield fast(x, container)
        change(container)
        yield fast(x, container)

    same(script)


@pytest.mark.parametrize(
    "make",
    [
        lambda xs: iter(xs),
        lambda xs: (x for x in xs),
        lambda xs: zip(xs, strict=True),
        lambda xs: map(abs, xs),
        lambda xs: enumerate(xs),
        lambda xs: reversed(xs),
        lambda xs: range(3),
        lambda xs: dict(enumerate(xs)).values(),
    ],
    ids=["iter", "generator", "zip", "map", "enumerate", "reversed", "range", "view"],
)
def test_an_iterator_as_an_argument_is_not_used_up(make):
    def f(p, items):
        return vsum(
            p[i % 3] * (item[-1] if isinstance(item, tuple) else item)
            for i, item in enumerate(items)
        )

    def script(compile):
        p = numbers(1.0, 2.0, 3.0)
        fast = compile(f)
        for xs in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]):
            yield graded(fast(p, make(xs)), *p)

    same(script)


def test_named_tuples_and_dataclasses_are_read_afresh():
    import dataclasses

    @dataclasses.dataclass
    class Data:
        weight: object
        factor: float

    def script(compile):
        fast = compile(lambda pair: pair.weight * pair.factor)
        w = Value(3.0)
        for kind in (Pair, Data):
            for factor in (1.0, 2.0, 3.0):
                yield graded(fast(kind(w, factor)), w)

    same(script)


def test_very_many_structures_are_kept_in_bounds():
    fast = chainrule.compile(lambda x, box: x * box.factor, on_fallback="eager")
    x = Value(2.0)
    import gc
    import weakref

    gone = []
    for i in range(300):
        box = Box(factor=float(i))
        assert fast(x, box).data == 2.0 * i
        gone.append(weakref.ref(box))
    del box
    gc.collect()
    assert sum(ref() is not None for ref in gone) < 300, "old arguments are let go"


def test_very_many_variants_are_kept_in_bounds():
    def script(compile):
        fast = compile(lambda p, a, b: p[0] * (a + 1) * (b + 2) if a != b else p[1] * a)
        p = numbers(*P)
        for i in range(60):
            yield graded(fast(p, i % 20, i % 7), *p)

    ran = same(script)
    assert ran.functions[0].report().count("variant:") <= 16


def test_ever_new_branches_end_in_eager():
    def script(compile):
        fast = compile(lambda x, n: x * (n + 1) * (n % 3))
        x = Value(1.0)
        for n in range(230):
            yield fast(x, n)

    ran = same(script)
    assert ran.recordings < 700


def test_a_changed_structure_of_arguments_is_another_recording():
    def f(params, *rest, scale=1):
        total = vsum(params["w"])
        for r in rest:
            total = total * r if isinstance(r, (Value, int)) else total + vsum(r)
        return total * scale

    def script(compile):
        fast = compile(f)
        w = numbers(1.0, 2.0, 3.0)
        yield graded(fast({"w": w}), *w)
        yield graded(fast({"w": w[:2]}), *w)
        yield graded(fast({"w": []}) + w[0], *w)
        yield graded(fast({"w": tuple(w)}), *w)
        yield graded(fast({"w": w}, 2), *w)
        yield graded(fast({"w": w}, w[0]), *w)
        yield graded(fast({"w": w}, [w[0], w[1]]), *w)
        yield graded(fast({"w": w}, [w[1], w[0]]), *w)
        yield graded(fast({"w": w}, [w[1], w[1]]), *w)
        yield graded(fast({"w": w}, 2, 3, scale=4), *w)
        yield graded(fast({"w": w}, 3, 2, scale=5), *w)
        yield outcome(fast)[0]
        yield outcome(fast, {"v": w})

    assert same(script).eager <= 2 + 1


def test_the_same_value_twice_is_not_two_values():
    def script(compile):
        fast = compile(lambda a, b: a * b + (a if a is b else b * 2))
        x, y = numbers(2.0, 3.0)
        for a, b in ((x, y), (x, x), (y, x), (y, y)):
            yield graded(fast(a, b), x, y)

    assert same(script).eager == 0


def test_the_same_list_twice_is_not_two_lists():
    def script(compile):
        fast = compile(lambda a, b: a[0] * b[0] + (a[1] if a is b else b[1] * 2))
        x, y = numbers(2.0, 3.0), numbers(4.0, 5.0)
        copy = list(x)
        for a, b in ((x, y), (x, x), (x, copy), (y, x), (y, y), (x, copy)):
            yield graded(fast(a, b), *x, *y)

    assert same(script).eager == 0


def test_the_same_dict_or_list_of_integers_twice_is_not_two():
    def script(compile):
        fast = compile(lambda x, a, b: x * (2 if a[0] is b[0] else 3) * a[0]["n"] + len(b))
        x = Value(2.0)
        for first, second in (({"n": 1}, {"n": 1}), ({"n": 2}, None), ({"n": 1}, {"n": 3})):
            yield graded(fast(x, [first], [second or first]), x)
        other = compile(lambda x, a, b: x * (2 if a is b else 3) * a[0] + b[-1])
        for ids in ([1, 2], [3, 4]):
            yield graded(other(x, ids, ids), x)
            yield graded(other(x, ids, list(ids)), x)

    assert same(script).eager == 0


def test_a_list_of_numbers_that_comes_twice_is_two_lists_of_values():
    def script(compile):
        fast = compile(lambda rows, x: rows[0][0] * rows[1][1] * x + rows[0][1])
        for row in ([2.0, 3.0], [5, 7]):
            yield fast.value_and_grad([row, row], 2.0)
            yield fast.value_and_grad([row, list(row)], 2.0)

    assert same(script).eager == 0


def test_one_value_in_two_places_of_the_first_argument_is_two_arguments():
    def f(p):
        return p[0] * p[0] * p[1] + p[2]

    def script(compile):
        fast = compile(f)
        a, b = Value(2.0), Value(3.0)
        for p in ([a, a, b], [a, b, a], [b, a * 2, a], [a, a, a]):
            yield fast.value_and_grad(p)
            yield a.grad, b.grad

    assert same(script).replayed == 0  # their derivatives are Values


def test_a_value_of_the_first_argument_that_is_captured_too_is_two():
    def script(compile):
        p = Value(2.0)
        fast = compile(lambda x: x[0] * x[0] * p + (x[0] if x[0] is p else p))
        for first in (p, Value(3.0), p * 2, p):
            yield fast.value_and_grad([first])
            p.data += 0.5

    same(script)


def test_one_value_in_two_places_of_the_first_argument_runs_eagerly_alike():
    def script(compile):
        fast = compile(lambda p: p[0] * p[0] * p[1] + float(p[0].data))
        a = Value(2.0)
        yield fast.value_and_grad([a, a])
        yield fast.value_and_grad([a, a * 3])

    assert same(script).replayed == 0


def test_labels_of_passed_values_are_seen():
    def weighted(p):
        return vsum(x * x for x in p if x.label != "bias") + p[0] * 2

    def script(compile):
        fast = compile(weighted)
        for labels in ("w", "bias"), ("bias", "w"), ("", ""), ("w", "bias"):
            p = [Value(x, label=label) for x, label in zip((2.0, 3.0), labels, strict=True)]
            yield graded(fast(p), *p)

    assert same(script).eager == 0


class Parameter(Value):
    frozen = False

    def scaled(self):
        return self * 2


class Scaled(Parameter):
    def scaled(self):
        return self * 5


def test_the_class_and_the_attributes_of_a_passed_value_are_seen():
    def script(compile):
        fast = compile(lambda p, x: x * 3 if getattr(p, "frozen", None) else p.scaled() * x)
        p, q, x = Parameter(2.0), Scaled(2.0), Value(3.0)
        for v in (p, q, p, Value(2.0), q):
            yield outcome(lambda v=v: graded(fast(v, x), v, x))
        p.frozen = True
        yield graded(fast(p, x), p, x)
        p.frozen = False
        yield graded(fast(p, x), p, x)

    same(script)


def test_dict_keys_that_are_equal_but_not_the_same_are_told_apart():
    def script(compile):
        fast = compile(lambda d: sum(v * len(str(k)) for k, v in d.items()) * 1.0)
        x = Value(3.0)
        for key in (1, True, 1.0, np.int64(1), 1):
            yield fast({key: x})

    same(script)


def test_enumerations_are_static():
    import enum

    class Kind(enum.IntEnum):
        SMALL = 0
        LARGE = 1

    class Color(enum.Enum):
        RED = "red"
        BLUE = "blue"

    def script(compile):
        named = compile(lambda p, kind: p[kind] * len(kind.name))
        colored = compile(lambda p, color: p[0] * len(color.value))
        p = numbers(*P)
        for kind in (Kind.SMALL, Kind.LARGE, Kind.SMALL):
            yield graded(named(p, kind), *p)
        for color in (Color.RED, Color.BLUE, Color.RED):
            yield graded(colored(p, color), *p)

    same(script)


class Named(str):
    """A text with an attribute."""

    weight: float


def test_a_text_with_attributes_is_more_than_a_text():
    fast = chainrule.compile(lambda p, s: p * s.weight, on_fallback="eager")
    for weight in (1.0, 2.0):
        text = Named("a")
        text.weight = weight
        assert fast.value_and_grad(3.0, text) == (3.0 * weight, weight)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_arrays_of_a_nudged_call_are_laid_out_as_those_that_were_passed(kind):
    base = np.arange(24, dtype=kind).reshape(2, 3, 4) / 7
    arrays = [base, base.T, base[:, ::2], np.asfortranarray(base), np.array(base[0, 0, 1])]
    call = flatten_call((np.ones(2), *arrays), {}, differentiate=True)
    for moved in (call.nudged(lambda x: x, ()), call.nudged(lambda x: x * 1.5, ())):
        made, _ = eager_arguments(moved, float)
        for found, passed, row in zip(made[1:], arrays, moved.floats[1:], strict=True):
            assert type(found) is np.ndarray
            assert (found.dtype, found.shape) == (passed.dtype, passed.shape)
            assert found.strides == np.empty_like(passed).strides
            assert not np.shares_memory(found, passed)
            assert np.array_equal(found, row.astype(kind))


@pytest.mark.parametrize("lift", [None, True])
def test_an_array_of_objects_is_another_argument_than_a_list_of_them(lift):
    """They are flattened alike, and ``* 2`` is another thing for each."""

    def f(p, xs):
        ys = xs * 2
        return p * sum(ys) + len(ys)

    def g(p, x):
        q = p * 2
        return sum(q) * x + len(q)

    by_data, by_parameters = chainrule.compile(f, lift=lift), chainrule.compile(g, lift=lift)
    for _ in range(3):
        for xs in ([1.0, 2.0], np.array([1.0, 2.0], object), np.array([1.0, 2.0])):
            assert by_data.value_and_grad(1.5, xs) == chainrule.value_and_grad(f)(1.5, xs)
            found = by_parameters.value_and_grad(xs, 1.5)
            wanted = chainrule.value_and_grad(g)(xs, 1.5)
            assert found[0] == wanted[0]
            assert type(found[1]) is type(wanted[1])
            np.testing.assert_array_equal(found[1], wanted[1])


@pytest.mark.parametrize("lift", [False, True])
def test_values_after_numbers_are_checked_by_their_own_gradients(lift):
    """A call a little way off has its Values anew, and they are not the first of the inputs."""

    def f(scale, rows):
        return scale * sum((a * b).tanh() for a, b in rows)

    def with_parameters(p, x, value):
        return p * x * value.tanh()

    fast = chainrule.compile(f, on_fallback="raise", lift=lift)
    for count in (2, 3, 2):
        rows = [[Value(0.3 + k), Value(0.2 - k)] for k in range(count)]
        found = []
        for function in (f, fast):
            for value in (x for row in rows for x in row):
                value.grad = 0.0
            made = function(0.5, rows)
            made.backward()
            found.append([made.data, *[x.grad for row in rows for x in row]])
        assert found[1] == pytest.approx(found[0], rel=1e-12)
    fast = chainrule.compile(with_parameters, on_fallback="raise", lift=lift)
    arguments = 0.7, 0.5, Value(0.3)
    wanted = chainrule.value_and_grad(with_parameters)(*arguments)
    assert fast.value_and_grad(*arguments) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("lift", [False, True])
def test_a_value_from_outside_that_is_passed_too_makes_the_derivative_a_value(lift):
    def f(p, value):
        return p * value.tanh() * WEIGHT

    fast = chainrule.compile(f, on_fallback="eager", lift=lift)
    for value in (Value(0.3), WEIGHT, WEIGHT):
        found = fast.value_and_grad(0.5, value)
        wanted = chainrule.value_and_grad(f)(0.5, value)
        assert [type(x) for x in found] == [type(x) for x in wanted] == [Value, Value]
        assert [x.data for x in found] == [x.data for x in wanted]


class Odd(float):
    """A float of a class of its own."""


ROWS = [
    [1.0, 2.0, 0.0, -0.0, 1e300],
    [[1.0, 2.0], [3.0, 4.0], []],
    [1.0, np.float64(2.0), np.float32(0.5), 3, True, None],
    ([1.0], (2.0, 3.0), {"a": [4.0, 5.0], "b": 6.0}),
    [float("inf"), float("nan"), 1.0],
    np.array([1.0, 2.0]),
]


@pytest.mark.parametrize("tree", ROWS[:4], ids=repr)
def test_arguments_are_made_again_with_the_types_they_had(tree):
    call = flatten_call((0.5, tree), {"again": [7.0, 8.0]}, differentiate=False)
    rebuilt = copied_arguments(call)
    assert picture(rebuilt.arguments) == picture([0.5, tree])
    assert rebuilt.keywords == {"again": [7.0, 8.0]}
    made, mine = [x for x, _ in rebuilt.lists], rebuilt.arguments[1]
    assert mine is not tree
    assert type(tree) is not list or any(x is mine for x in made)


@pytest.mark.parametrize("tree", ROWS, ids=repr)
def test_all_numbers_of_a_call_are_moved_a_little_and_written_in_their_order(tree):
    call = flatten_call(([3.0, 4.0], tree), {}, differentiate=False)
    before, after = np.zeros(call.size), np.zeros(call.size)
    call.write(before)
    call.nudged(nudges(1, 1e-3, 1e-3), ()).write(after)
    flat = np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in call.floats])
    assert np.array_equal(before, flat, equal_nan=True)
    finite = np.isfinite(before)
    assert (after[finite] != before[finite]).all()
    assert after[finite] == pytest.approx(before[finite], rel=1e-3, abs=1e-3)
    assert np.array_equal(after[~finite], before[~finite], equal_nan=True)


def test_a_list_of_floats_of_a_class_of_their_own_is_no_row():
    def f(p, xs):
        return [type(x).__name__ for x in xs] + [p * xs[0]]

    fast = chainrule.compile(f, on_fallback="eager")
    for xs in ([1.0, 2.0], [1.0, Odd(2.0)], [np.float64(1.0), 2.0]):
        assert fast(2.0, xs) == f(2.0, xs)
