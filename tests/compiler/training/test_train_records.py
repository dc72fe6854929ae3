"""Parameters in dataclasses and named tuples train as those in a dict do, step by step."""

import collections
import dataclasses

import numpy as np
import pytest

import chainrule
from chainrule import optim


@dataclasses.dataclass
class Net:
    w: np.ndarray
    b: np.ndarray


Pair = collections.namedtuple("Pair", "w b")


def arrays():
    return np.array([1.0, -0.5]), np.array([0.5])


def loss_of(p, x, y):
    return (p.w[0] * x + p.w[1] * x * x + p.b[0] - y) ** 2


def loss_of_dict(p, x, y):
    return (p["w"][0] * x + p["w"][1] * x * x + p["b"][0] - y) ** 2


SAMPLES = [(0.5, 1.0), (1.5, -1.0), (-0.7, 0.3)]


@pytest.mark.parametrize("lift", [None, False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("kind", [Net, Pair])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_records_train_as_dicts_do(kind, batch, lift, clip):
    def trained(f, params):
        fast = chainrule.compile(f, lift=lift)
        adam = optim.Adam(params, lr=0.1)
        losses = fast.train(params, SAMPLES, adam, 7, batch=batch, clip=clip)
        return losses, params

    losses, record = trained(loss_of, kind(*arrays()))
    expected, params = trained(loss_of_dict, dict(zip("wb", arrays(), strict=True)))
    assert losses == pytest.approx(expected, rel=1e-12)
    assert record.w == pytest.approx(params["w"], rel=1e-12)
    assert record.b == pytest.approx(params["b"], rel=1e-12)
    assert abs(record.w - arrays()[0]).max() > 0.1


@pytest.mark.parametrize("kind", [Net, Pair])
def test_batches_give_gradients_in_the_record_itself(kind):
    value, gradient = chainrule.compile(loss_of).batch_value_and_grad(kind(*arrays()), SAMPLES)
    single = [chainrule.value_and_grad(loss_of)(kind(*arrays()), *sample) for sample in SAMPLES]
    assert type(gradient) is kind
    assert value == pytest.approx(np.mean([v for v, _ in single]))
    assert gradient.w == pytest.approx(np.mean([g.w for _, g in single], axis=0))


def test_a_wrong_leaf_is_named_by_its_field():
    with pytest.raises(TypeError, match=r"params\.b must be"):
        optim.SGD(Net(np.zeros(2), "text"), lr=0.1)
