"""The quick look at whether parameters are the same, and a trainer that relies on it."""

import numpy as np
import pytest

import chainrule
from chainrule import optim
from chainrule.compiler.training.watching import Watched


def tree():
    return {"w": np.zeros((2, 3)), "layers": [np.zeros(2), (np.zeros(1), {"b": np.zeros(4)})]}


def test_the_same_tree_is_the_same():
    params = tree()
    watched = Watched(params)
    params["w"] += 1.0
    params["layers"][1][1]["b"][:] = 2.0
    assert watched.same(params)
    assert watched.same(dict(params))
    array = np.zeros(3)
    assert Watched(array).same(array)
    assert not Watched(array).same(array.copy())
    assert Watched({}).same({})
    assert not Watched({}).same([])


def reordered(params):
    params["w"] = params.pop("w")


def renamed(params):
    kept = dict(params)
    params.clear()
    params.update({"v": kept["w"], "layers": kept["layers"]})


def locked(params):
    params["w"].flags.writeable = False


def grown(params):
    params["layers"].append(np.zeros(1))


def shrunk(params):
    params["layers"].pop()


def replaced(params):
    params["layers"][1][1]["b"] = np.zeros(4)


def added(params):
    params["layers"][1][1]["c"] = np.zeros(4)


CHANGES = [reordered, renamed, locked, grown, shrunk, replaced, added]


@pytest.mark.parametrize("change", CHANGES)
def test_another_tree_is_not(change):
    params = tree()
    watched = Watched(params)
    change(params)
    assert not watched.same(params)


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_an_array_of_another_shape_is_not():
    params = tree()
    watched = Watched(params)
    params["w"].shape = (3, 2)
    assert not watched.same(params)


class Key(str):
    def __eq__(self, other):
        raise AssertionError("code of users ran")

    def __hash__(self):
        return 1


@pytest.mark.parametrize(
    "params",
    [
        {"w": 1.0},
        {"w": np.zeros(2).view(np.recarray)},
        {Key("w"): np.zeros(2)},
        {("w",): np.zeros(2)},
        [np.zeros(2), None],
        type("Dict", (dict,), {})(w=np.zeros(2)),
    ],
    ids=map(str, range(6)),
)
def test_of_anything_else_nothing_is_remembered(params):
    assert not Watched(params).same(params)


# --- a trainer ------------------------------------------------------------------------------------


def loss(p, x):
    return sum((p["w"][i] * x[i] - p["b"]) ** 2 for i in range(3))


def trainer(params):
    samples = [([1.0, 2.0, 3.0],), ([0.5, -1.0, 2.0],)]
    fast = chainrule.compile(loss, lift=True)
    return fast.trainer(params, samples, optim.SGD(params, lr=0.01))


def parameters():
    return {"w": np.array([0.1, 0.2, 0.3]), "b": np.array(0.5)}


def test_a_replaced_parameter_is_refused():
    params = parameters()
    running = trainer(params)
    running.advance(3)
    before = params["w"]
    params["w"] = before.copy()
    with pytest.raises(ValueError, match="not made for these parameters"):
        running.advance(1)
    params["w"] = before
    running.advance(1)
    before.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        running.advance(1)


def test_a_dict_in_another_order_trains_to_the_same_losses():
    wanted = trainer(parameters()).advance(10).tolist()
    params = parameters()
    running = trainer(params)
    found = running.advance(4).tolist()
    params["w"] = params.pop("w")
    found += running.advance(6).tolist()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_another_optimiser_is_seen():
    params = parameters()
    running = trainer(params)
    running.advance(2)
    running.optimizer = optim.SGD(parameters(), lr=0.01)
    with pytest.raises(ValueError, match="not made for these parameters"):
        running.advance(1)
