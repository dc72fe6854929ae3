"""Moments of an optimiser that are almost 0: in machine code they become 0."""

from typing import Any

import numpy as np
import pytest
from test_compile_batches import by_hand

import chainrule
from chainrule import optim

pytest.importorskip("llvmlite")


def squares(p, tokens):
    return sum((w - 1.0) ** 2 for t in tokens for w in p["w"][t])


#: The first row is read once, and then never again.
SAMPLES = [([0, 1],), *[([1 + k % 3],) for k in range(9_999)]]
TINY = {name: np.finfo(name).tiny for name in ("float64", "float32")}


def trained(make: Any, dtype: str, steps: int, batch: int = 1) -> tuple[Any, Any]:
    params = {"w": np.linspace(-0.5, 0.5, 16).reshape(4, 4).astype(dtype)}
    optimiser = make(params)
    fast = chainrule.compile(squares, dtype=dtype, lift=True)
    losses = fast.train(params, SAMPLES, optimiser, steps, batch)
    return losses, optimiser


def adam(params: Any) -> Any:
    return optim.Adam(params, lr=0.001, betas=(0.7, 0.9))


def momentum(params: Any) -> Any:
    return optim.SGD(params, lr=0.001, momentum=0.7)


@pytest.mark.parametrize("make", [adam, momentum])
@pytest.mark.parametrize(("dtype", "steps"), [("float64", 9_000), ("float32", 1_500)])
def test_what_is_left_of_an_old_gradient_becomes_zero(make, dtype, steps):
    losses, optimiser = trained(make, dtype, steps)
    for name in optimiser.moments:
        moment = np.abs(getattr(optimiser, name).reshape(4, 4))
        assert not moment[0].any()
        assert ((moment == 0) | (moment >= TINY[dtype])).all()
    hand = {"w": np.linspace(-0.5, 0.5, 16).reshape(4, 4)}
    wanted = by_hand(squares, hand, SAMPLES, make(hand), min(steps, 1_000), 1)
    tolerance = 1e-9 if dtype == "float64" else 1e-3
    assert np.abs(losses[: len(wanted)] - wanted).max() < tolerance


@pytest.mark.parametrize(
    "make",
    [
        lambda params: optim.Adam(params, lr=0.001, betas=(0.7, 0.9), eps=1e-150),
        lambda params: optim.Adam(params, lr=5e3, betas=(0.7, 0.9)),
        lambda params: optim.SGD(params, lr=5e3, momentum=0.7),
    ],
)
def test_where_it_might_show_nothing_becomes_zero(make):
    """Divided by almost nothing, or times a large rate, such a moment may still count."""
    params = {"w": np.zeros((4, 4))}
    fast = chainrule.compile(lambda p, t: sum(0.0 * w for w in p["w"][t]), lift=True)
    optimiser = make(params)
    first = optimiser.moments[0]
    getattr(optimiser, first)[:] = 2.0**-1050
    fast.train(params, [(1,), (2,)], optimiser, 1)
    assert (getattr(optimiser, first) > 0).all()


@pytest.mark.parametrize(
    ("start", "gradient", "make"),
    [
        (0.0, 1e-308, lambda params: optim.Adam(params, lr=1.0)),
        (0.0, 1e-309, lambda params: optim.SGD(params, lr=1.0, momentum=0.9)),
        (1.0, 1e-308, lambda params: optim.SGD(params, lr=1.0, momentum=0.9, weight_decay=1.0)),
    ],
)
def test_beside_a_parameter_that_is_or_becomes_almost_zero_every_moment_counts(
    start, gradient, make, machine_steps
):
    """Also beside one that decays faster than the moment does."""

    def product(p, x):
        return sum(w * x for w in p["w"])

    params, hand = ({"w": np.full(20, start)} for _ in range(2))
    samples = [(gradient,)]
    chainrule.compile(product, lift=True).train(params, samples, make(params), 6)
    assert machine_steps[0] > 3
    by_hand(product, hand, samples, make(hand), 6, 1)
    assert params["w"] == pytest.approx(hand["w"], rel=1e-12, abs=0.0)
