"""What is changed and put back within a call: whoever else reads it may have the same one."""

import bisect
import heapq
import operator

import numpy as np
import pytest

import chainrule
from chainrule.compiler.capture.changing import IN_PLACE, OPERATORS

P = [0.5, -1.5, 2.0]
KEPT = [1.0, 2.0]
NAMED = {"a": 1.0, "b": 2.0}
TRUTHS = np.array([True, False])


def extended(p, xs):
    xs += [p[0]]
    found = KEPT[-1]
    del xs[-1]
    return found * p[1]


def repeated(p, xs):
    xs *= 2
    found = len(KEPT)
    del xs[2:]
    return found * p[1]


def sliced(p, xs):
    before = xs[:]
    del xs[:]
    found = len(KEPT)
    xs[:] = before
    return found * p[1]


def by_the_class(p, xs):
    list.append(xs, p[0])
    found = KEPT[-1]
    del xs[-1]
    return found * p[1]


def by_its_name(p, xs):
    xs.__iadd__([p[0]])
    found = KEPT[-1]
    xs.__delitem__(-1)
    return found * p[1]


def on_a_heap(p, xs):
    heapq.heappush(xs, p[1])
    found = KEPT[0]
    heapq.heappop(xs)
    return found * p[1]


def in_order(p, xs):
    bisect.insort(xs, p[1])
    found = KEPT[0]
    del xs[0]
    return found * p[1]


def by_a_function(p, xs):
    before = xs[0]
    operator.setitem(xs, 0, p[1])
    found = KEPT[0]
    operator.setitem(xs, 0, before)
    return found * p[1]


def joined(p, xs):
    xs |= {"c": p[0]}
    found = len(NAMED)
    del xs["c"]
    return found * p[1]


def updated(p, xs):
    dict.update(xs, c=p[0])
    found = len(NAMED)
    del xs["c"]
    return found * p[1]


def begun_again(p, xs):
    before = dict(xs)
    del xs["a"], xs["b"]
    found = len(NAMED)
    xs.__init__(before)
    return found * p[1]


def flipped(p, xs):
    xs ^= True
    found = 2.0 if TRUTHS[0] else 3.0
    xs ^= True
    return found * p[1]


OF_LISTS = extended, repeated, sliced, by_the_class, by_its_name, on_a_heap, in_order, by_a_function


@pytest.mark.parametrize(
    ("f", "kept", "others"),
    [
        *[(f, KEPT, lambda: [5.0, 6.0]) for f in OF_LISTS],
        *[(f, NAMED, lambda: {"a": 5.0, "b": 6.0}) for f in (joined, updated, begun_again)],
        (flipped, TRUTHS, lambda: np.array([True, False])),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_the_function_reads_by_itself_may_be_what_it_changes(f, kept, others):
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    for k in range(9):
        given = kept if k % 3 == 2 else others()
        before = repr(given)
        assert fast(P, given) == f(P, given)
        assert repr(given) == before
    fast.value_and_grad(P, others())
    assert fast.value_and_grad(P, kept)[0] == f(P, kept)


def test_lists_of_its_own_are_changed_in_recordings():
    def nearest(p, xs):
        heap, total = [], 0.0
        for k, x in enumerate(xs):
            heapq.heappush(heap, (k, x * p[0]))
        while heap:
            total += heapq.heappop(heap)[1]
        found = [total]
        found += [total * 2.0]
        list.append(found, p[1])
        operator.iadd(found, [1.0])
        return sum(found)

    fast = chainrule.compile(nearest, lift=True)
    for xs in ([1.0, 2.0], [3.0, -1.0]):
        assert fast(P, xs) == pytest.approx(nearest(P, xs))
    assert " 0 eager" in fast.report()


def test_other_threads_compute_in_place_meanwhile():
    assert IN_PLACE.keys() == {f"INPLACE_{name}" for name in OPERATORS}
    for name, hook in IN_PLACE.items():
        f = getattr(operator, OPERATORS[name.removeprefix("INPLACE_")])
        for a, b in ((1, 2), (1.5, 2), ([1], [2]), ([1], 2), ({1}, {2}), ("a", "b"), (None, 1)):
            found = []
            for g in (hook, f):
                a_copy = a.copy() if hasattr(a, "copy") else a
                try:
                    found.append((g(a_copy, b), a_copy))
                except TypeError as error:
                    found.append(str(error))
            assert found[0] == found[1]


TABLE = np.array([1.0, 2.0])


def by_its_items(a, x):
    a.flat[:] = x


def by_a_view(a, x):
    a.view(np.recarray)[:] = x


def by_a_window(a, x):
    np.lib.stride_tricks.sliding_window_view(a, 1, writeable=True)[:, 0] = x


WRITING = {
    **{f.__name__: f for f in (by_its_items, by_a_view, by_a_window)},
    "put": lambda a, x: a.put([0, 1], x),
    "out": lambda a, x: np.add(x, 0.0, out=a),
    "the last argument": lambda a, x: np.add(x, 0.0, a),
    "out of a function": lambda a, x: np.clip(x, -9.0, 9.0, out=a),
    "its last argument": lambda a, x: np.clip(x, -9.0, 9.0, a),
    "of a sum": lambda a, x: np.add.reduce([x], 0, None, a),
}


@pytest.mark.parametrize("way", WRITING)
def test_an_array_that_it_writes_into_may_be_passed_too(way):
    write = WRITING[way]

    def back(p, x):
        before = TABLE.copy()
        write(TABLE, [5.0, 6.0])
        found = x[0] * p[0]
        write(TABLE, before)
        return found

    agrees_with_the_table_passed(back)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        *[("+= 1", "+= -1"), ("-= 1", "-= -1"), ("*= 2", "*= 0.5")],
        *[("/= 2", "/= 0.5"), ("**= 2", "**= 0.5")],
    ],
)
def test_an_array_that_it_computes_in_may_be_passed_too(there, back):
    names = {"TABLE": TABLE}
    lines = f"table = TABLE\n table {there}\n found = x[0] * p[0]\n table {back}\n return found"
    exec(f"def f(p, x):\n {lines}", names)
    agrees_with_the_table_passed(names["f"])


def agrees_with_the_table_passed(f):
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    for k in range(9):
        x = TABLE if k % 3 == 2 else TABLE[:] if k % 3 == 1 else np.array([3.0, 4.0])
        assert fast(P, x) == f(P, x)
        assert TABLE.tolist() == [1.0, 2.0]


def test_no_memoryview_of_an_array_is_recorded():
    def back(p, x):
        memoryview(TABLE)[0] = 5.0
        found = x[0] * p[0]
        memoryview(TABLE)[0] = 1.0
        return found

    agrees_with_the_table_passed(back)


@pytest.mark.parametrize("write", [lambda a: np.negative(a, a), lambda a: np.add.at(a, [0], 1)])
@pytest.mark.parametrize("kind", [np.int16, np.int64, np.float64, np.uint8])
def test_an_array_that_numpy_writes_into_may_lie_in_the_memory_of_another(kind, write):
    def back(p, a, b):
        before = a.copy()
        write(a)
        found = b[0] * p[0]
        np.multiply(before, 1, out=a)
        return found

    fast = chainrule.compile(back, lift=True, on_fallback="eager")
    for k in range(8):
        a = np.array([1, 2, 3]).astype(kind)
        b = a[:2] if k % 2 else a[:2].copy()
        assert fast(P, a, b) == back(P, a, b)


class Point:
    def __init__(self, x):
        self.x = x


def by_setattr(point, x):
    point.x = x


def by_object(point, x):
    object.__setattr__(point, "x", x)


def by_its_dict(point, x):
    point.__dict__["x"] = x


def by_its_dict_in_place(point, x):
    point.__dict__ |= {"x": x}


@pytest.mark.parametrize("put", [by_setattr, by_object, by_its_dict, by_its_dict_in_place])
def test_an_objects_attributes_may_be_passed_beside_it(put):
    def back(p, point, attributes):
        before = point.x
        put(point, p[0])
        found = attributes["x"] * p[1]
        put(point, before)
        return found

    fast = chainrule.compile(back, lift=True, on_fallback="eager")
    for k in range(9):
        point = Point(4.0)
        attributes = vars(point) if k % 3 == 2 else {"x": 5.0}
        assert fast(P, point, attributes) == back(P, point, attributes)
        assert point.x == 4.0


def test_views_that_a_ufunc_writes_into():
    def back(p, a, b):
        part = a[:2]
        np.add.at(part, [0], 1)
        found = b[0] * p[0]
        np.subtract.at(part, [0], 1)
        return found

    fast = chainrule.compile(back, lift=True, on_fallback="eager")
    for k in range(6):
        a = np.array([1, 2, 3], np.int16)
        b = a[:2] if k % 2 else a[:2].copy()
        assert fast(P, a, b) == back(P, a, b)


def test_who_catches_that_an_array_may_not_be_written_into():
    def careful(p, a):
        try:
            a[0] = 5
        except ValueError:
            return p[0]
        return p[0] * 2.0

    fast = chainrule.compile(careful, lift=True, on_fallback="eager")
    for k in range(6):
        a = np.array([1, 2], np.int16)
        a.flags.writeable = k % 2 == 0
        assert fast(P, a) == careful(P, a)


def test_a_list_that_grows_on_one_side_of_a_branch():
    def back(p, xs):
        found = 0.0
        if p[0] > p[1]:
            xs += [p[0]]
            found = KEPT[-1]
            del xs[-1]
        return found * p[1]

    fast = chainrule.compile(back, lift=True, on_fallback="eager")
    for k in range(60):
        xs = KEPT if k % 3 == 2 else [5.0, 6.0]
        p = [0.5, -1.0 if k % 4 else 1.0]
        assert fast(p, xs) == back(p, xs)
