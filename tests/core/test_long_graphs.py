"""A chain of very many nodes: nothing recurses, nothing stays behind."""

import copy
import gc
import pickle
import sys
import weakref

import pytest

from chainrule import Value, engine, gradients, topological_order

# A million nodes in Python take a minute; what recurses there ends after a thousand.
LENGTH = 1_000_000 if engine == "native" else 200_000


class Leaf(Value):
    """A leaf that can be watched."""


def build():
    leaf, one = Leaf(2.0), Value(1.0)
    y = leaf
    for _ in range(LENGTH):
        y = y * one
    return leaf, one, y


def walk_down(root):
    """The bottom of the chain and its length, following first children."""
    length = 0
    while root.children:
        root = root.children[0]
        length += 1
    return root, length


@pytest.fixture(scope="module")
def chain():
    assert sys.getrecursionlimit() < LENGTH / 10
    return build()


def test_a_long_chain_backward(chain):
    leaf, one, y = chain
    y.zero_grad()
    y.backward()
    assert leaf.grad == 1.0
    assert one.grad == 2.0 * LENGTH
    y.backward()
    assert leaf.grad == 2.0
    y.zero_grad()
    assert (leaf.grad, one.grad) == (0.0, 0.0)


def test_a_long_chain_is_sorted(chain):
    leaf, one, y = chain
    order = topological_order(y)
    assert len(order) == LENGTH + 2
    assert order[0] is leaf
    assert order[1] is one
    assert order[-1] is y


def test_a_long_chain_by_gradients(chain):
    leaf, _, y = chain
    (g,) = gradients(y, [leaf])
    assert float(g) == 1.0


def test_a_long_chain_is_deepcopied(chain):
    leaf, one, y = chain
    twin = copy.deepcopy(y)
    bottom, length = walk_down(twin)
    assert length == LENGTH
    assert type(bottom) is Leaf
    assert bottom is not leaf
    assert twin.children[1] is not one
    twin.backward()
    assert (bottom.grad, twin.children[1].grad) == (1.0, 2.0 * LENGTH)
    assert leaf.grad == 0.0


def test_a_long_chain_is_pickled(chain):
    twin = pickle.loads(pickle.dumps(chain[2], protocol=pickle.HIGHEST_PROTOCOL))
    bottom, length = walk_down(twin)
    assert length == LENGTH
    assert type(bottom) is Leaf
    twin.backward()
    assert (bottom.grad, twin.children[1].grad) == (1.0, 2.0 * LENGTH)


def test_a_long_chain_is_freed():
    leaf, one, y = build()
    y.backward()
    watched = weakref.ref(leaf)
    del leaf, one
    assert watched() is not None
    del y
    gc.collect()
    assert watched() is None


def test_a_long_chain_through_second_children_and_plain_numbers():
    y = Value(0.0)
    start = y
    for _ in range(LENGTH // 5):
        y = 1.0 - y
    y.backward()
    assert y.data == 0.0
    assert start.grad == 1.0
    assert len(topological_order(copy.deepcopy(y))) == len(topological_order(y))
