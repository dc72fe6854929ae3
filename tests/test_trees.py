"""Nested arguments flattened and put together again; equal structures are one node."""

import copy
import dataclasses
import enum
import gc
import math
import pickle
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import Value, trees
from chainrule.trees import FLOAT, INT, VALUE, Again, Branch, Numbers, Opaque, SameValue, Static
from chainrule.trees.structure import _nodes


class Point(NamedTuple):
    x: Any
    y: Any


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Layer:
    weights: Any
    bias: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    weights: Any
    bias: Any = dataclasses.field(init=False, default=None)

    @classmethod
    def of(cls, weights, bias):
        made = cls(weights)
        object.__setattr__(made, "bias", bias)
        return made


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


# --- random trees -------------------------------------------------------------------------------

shapes = st.sampled_from([(), (1,), (2,), (1, 2), (2, 1), (0,)])
arrays = st.builds(np.ones, shapes, st.sampled_from([np.float64, np.float32, np.int64, np.int32]))
numbers = st.floats(allow_nan=False) | st.integers() | st.sampled_from([np.int32(3)])
statics = st.sampled_from(["a", "b", b"a", None, True, False, Colour.RED, Colour.BLUE])
keys = st.sampled_from(["a", "b", "", 1, 1.0, True, (1, 2), None, Colour.RED])


def nested(leaves):
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
            | st.builds(Point, inner, inner)
            | st.builds(Pair, inner, inner)
            | st.builds(Layer, inner, inner)
            | st.builds(Frozen.of, inner, inner)
        ),
        max_leaves=10,
    )


plain = nested(numbers | arrays | statics | st.builds(Value, st.floats(allow_nan=False)))
# The same trees in several places, so that some come twice.
shared = st.lists(plain, min_size=1, max_size=3).flatmap(lambda pool: nested(st.sampled_from(pool)))


def refilled(structure, flat, like=None):
    """The tree again from its rows; statics and what comes again by their nodes."""
    floats, ints, containers, made = iter(flat.floats), iter(flat.ints), [], []

    def counted(container):
        containers.append(container)
        return container

    def leaf(node, original):
        match node:
            case Numbers(shape, kind) if kind is INT:
                row = [next(ints) for _ in range(math.prod(shape))]
                return counted(np.array(row, np.int64).reshape(shape))
            case Static(kind, (dtype, shape, contents)) if kind is np.ndarray:
                return counted(np.frombuffer(contents, dtype).reshape(shape))
            case Static(kind, value) if issubclass(kind, np.integer):
                return kind(value)
            case Static(kind, value):
                return kind[value[0]] if issubclass(kind, enum.Enum) else value
            case SameValue(place):
                return made[place]
            case Again(number):
                return containers[number]
        if node is INT:
            return next(ints)
        made.append(next(floats))
        return counted(made[-1]) if isinstance(node, Numbers) else made[-1]

    def branch(node, items, original):
        built = node.build(items, original)
        return counted(built) if node.is_mutable else built

    built = trees.unflatten(structure, leaf, like, branch)
    assert next(floats, None) is None
    assert next(ints, None) is None
    return built


def fingerprint(tree):
    """A structure in other words: text, with Values and containers numbered as they come."""
    seen: dict[int, int] = {}

    def walk(x):
        kind = type(x)
        if isinstance(x, Value):
            return f"Value {seen.setdefault(id(x), len(seen))}"
        if kind is float or kind is int:
            return kind.__name__
        if not isinstance(x, (np.ndarray, list, tuple, dict, Layer, Frozen)):
            return f"{kind} {x!r}"
        if id(x) in seen:
            return f"again {seen[id(x)]}"
        if isinstance(x, np.ndarray):
            text = f"{x.dtype.kind} {x.shape}"
            if x.dtype == np.int32:
                text += f"{x.dtype} {x.tolist()}"
        elif kind is dict:
            text = "".join(f"{type(key)} {key!r}: {walk(item)}, " for key, item in x.items())
        elif dataclasses.is_dataclass(x):
            text = f"{walk(x.weights)}, {walk(x.bias)}"
        else:
            text = ", ".join(map(walk, x))
        if not isinstance(x, tuple):
            seen[id(x)] = len(seen)
        return f"{kind}({text})"

    return walk(tree)


def same(a, b):
    """Whether two trees are equal: types, keys in order, numbers, Values by identity."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, Value) or a is None:
        return a is b
    if type(a) is not type(b):
        return False
    if dataclasses.is_dataclass(a):
        return same(a.weights, b.weights) and same(a.bias, b.bias)
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(shared)
def test_unflatten_makes_the_tree_again(tree):
    flat, structure = trees.flatten(tree)
    assert same(tree, refilled(structure, flat))
    assert same(tree, refilled(structure, flat, like=tree))
    assert same(tree, trees.unflatten(structure, lambda _, original: original, tree))


@given(shared)
def test_what_was_one_object_is_one_object_again(tree):
    flat, structure = trees.flatten(tree)
    again_flat, again = trees.flatten(refilled(structure, flat))
    assert again is structure
    assert len(again_flat.floats) == len(flat.floats)


def apart(tree):
    """The tree with no container in it twice."""
    return trees.map_leaves(lambda x: x.copy() if isinstance(x, np.ndarray) else x, tree, True)


@given(
    shared.flatmap(
        lambda tree: st.tuples(
            st.just(tree), shared | st.just(copy.deepcopy(tree)) | st.just(apart(tree))
        )
    )
)
def test_structures_are_equal_where_trees_are_alike(pair):
    one, other = pair
    (_, a), (_, b) = trees.flatten(one), trees.flatten(other)
    assert (a is b) is (fingerprint(one) == fingerprint(other))
    assert (a == b) is (a is b)
    assert (repr(a) == repr(b)) or a is not b


@given(shared)
def test_other_numbers_have_the_same_structure(tree):
    def other(x):
        if type(x) in (float, int):
            return x * 2
        return np.array(x + 1) if isinstance(x, np.ndarray) and x.dtype != np.int32 else x

    structure = trees.flatten(tree)[1]
    made = trees.unflatten(structure, lambda _, x: other(x), tree)
    if "again" not in repr(structure):  # those would be two objects here
        assert trees.flatten(made)[1] is structure


@given(plain)
def test_floats_only_leaves_no_integers_and_nothing_again(tree):
    flat, structure = trees.flatten([tree, tree], floats_only=True)
    assert flat.ints == []
    assert flat.values == []
    assert structure.items[0] is structure.items[1]


@given(nested(st.floats(allow_nan=False)))
def test_leaves_and_map_leaves_come_in_the_order_of_flatten(tree):
    flat, _ = trees.flatten(tree)
    if not any(word in repr(tree) for word in ("Layer", "Frozen")):
        assert [x for _, x in trees.leaves(tree, "tree")] == flat.floats
    met = []
    assert same(trees.map_leaves(lambda x: met.append(x) or x, tree, records=True), tree)
    assert met == flat.floats


# --- one by one ---------------------------------------------------------------------------------


class Unknown:
    def __repr__(self):
        return "opaque"


OPAQUE = Unknown()


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (1.5, "float"),
        (Value(1.0), "value"),
        ({"w": np.ones((2, 3)), "n": 3}, "{'w': float[2, 3], 'n': int}"),
        ([1, (2.0, "tanh"), None], "[int, (float, 'tanh'), None]"),
        (Point(np.ones(2, np.int64), [True]), "Point(x=int[2], y=[True])"),
        (
            Layer([1.0], Frozen.of(2, 3.0)),
            "Layer(weights=[float], bias=Frozen(weights=int, bias=float))",
        ),
        (OPAQUE, "<Unknown>"),
        (np.array([Value(1.0), 2.0], object), "[value, float]"),
    ],
    ids=str,
)
def test_structures_are_readable(tree, text):
    assert repr(trees.flatten(tree)[1]) == text


def test_a_container_that_comes_twice_is_again_the_same():
    ids, floats, array = [1, 2], [0.5], np.ones(2)
    assert repr(trees.flatten([ids, {"k": ids}])[1]) == "[[int, int], {'k': again(0)}]"
    assert repr(trees.flatten([ids, [1, 2]])[1]) == "[[int, int], [int, int]]"
    assert repr(trees.flatten([floats, floats])[1]) == "[[float], again(0)]"
    assert repr(trees.flatten([floats, [0.5]])[1]) == "[[float], [float]]"
    assert repr(trees.flatten([ids, (), ids])[1]) == "[[int, int], (), again(0)]"
    assert repr(trees.flatten([floats, array, array])[1]) == "[[float], float[2], again(1)]"
    assert repr(trees.flatten([array, array.copy()])[1]) == "[float[2], float[2]]"
    layer = Layer(1, "a")
    assert repr(trees.flatten([layer, layer])[1]) == "[Layer(weights=int, bias='a'), again(0)]"
    flat, structure = trees.flatten([floats, floats, array, array], floats_only=True)
    assert repr(structure) == "[[float], [float], float[2], float[2]]", "to differentiate by: two"
    assert flat.size == 6


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.uint64, np.int8, np.int16, np.int32])
def test_integers_that_wrap_around_are_static(kind):
    one, other = np.array([1, 0], kind), np.array([1, 1], kind)
    structures = [trees.flatten(x)[1] for x in (one, one.copy(), other, one.reshape(2, 1))]
    assert structures[0] is structures[1]
    assert len(set(structures)) == 3
    assert all(type(x) is Static for x in structures)
    assert trees.flatten(one[0])[1] is trees.flatten(other[0])[1] is not trees.flatten(one[1])[1]
    assert type(trees.flatten(one[0])[1]) is Static
    assert trees.flatten(np.int64(1))[1] is INT
    if kind is not np.bool_:
        assert repr(trees.flatten(one, floats_only=True)[1]) == "float[2]"


def test_a_value_that_comes_twice_is_the_same():
    x, y = Value(1.0), Value(2.0)
    flat, structure = trees.flatten([x, np.ones(2), y, (y, x)])
    assert repr(structure) == "[value, float[2], value, (same(2), same(0))]"
    assert flat.values == [x, y]
    assert flat.sizes == [1, 2, 1]
    assert flat.size == 4


def test_labels_of_values_taken_for_floats_have_their_places():
    flat, structure = trees.flatten([1.0, Value(2.0, label="a"), Value(3.0)], floats_only=True)
    assert structure.items == (FLOAT, FLOAT, FLOAT)
    assert flat.labels == [(1, "a")]


def test_opaque_objects_are_told_of():
    class Mine(Value):
        pass

    flat, structure = trees.flatten([1.0, {1, 2}])
    assert (flat.opaque, structure.items[1]) == ("set", Opaque("set"))
    flat, structure = trees.flatten(Mine(1.0))
    assert (flat.opaque, structure) == ("Mine", VALUE)
    assert trees.flatten(Layer)[0].opaque == "type", "a dataclass itself is no record"


def test_arrays_of_anything_else_are_not_looked_into():
    assert trees.flatten({"w": np.ones(2, complex)})[0].opaque == "ndarray of complex128"
    assert trees.flatten(np.ma.masked_array([1.0]))[0].opaque == "MaskedArray"


def test_dicts_keep_the_keys_of_the_tree_they_are_like():
    one, other = (1, 2), tuple(range(1, 3))  # another one, of equal numbers
    assert one is not other
    kept = trees.flatten({one: 0.5})[1]
    structure = trees.flatten({other: 0.5})[1]
    assert structure is kept
    (key,) = trees.unflatten(structure, lambda _, x: x, {other: 0.5})
    assert key is other
    assert trees.flatten({(1.0, 2.0): 0.5})[1] is not kept  # these are equal, and not the same


def test_nodes_are_frozen_copied_and_pickled_as_themselves():
    _, structure = trees.flatten({"a": [1.0, Point(2, 3)]})
    with pytest.raises(dataclasses.FrozenInstanceError):
        structure.items = ()
    assert copy.deepcopy(structure) is structure
    assert pickle.loads(pickle.dumps(structure)) is structure


def test_nodes_that_nobody_needs_are_forgotten():
    gc.collect()
    before = len(_nodes)
    made = [trees.flatten([0.5] * k)[1] for k in range(1000, 1100)]
    assert len(_nodes) >= before + 100
    del made
    gc.collect()
    assert len(_nodes) <= before


def test_threads_that_make_a_structure_at_once_make_one():
    found: list[Branch] = []
    for k in range(50):
        tree = {f"{k}": [(0.5, k)] * 3}
        start = threading.Barrier(4)

        def flatten(tree=tree, start=start):
            start.wait()
            found.append(trees.flatten(tree)[1])

        threads = [threading.Thread(target=flatten) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found[-4:])) == 1
