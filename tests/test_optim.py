"""Optimisers: microgpt's update bit for bit, Values and arrays alike, kernels or not."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import Value, optim

NATIVE = optim._engine.kernels


def bits(numbers):
    return [float(x).hex() for x in numbers]


class PlainKernels:
    """Kernels in Python: the calling convention of the native ones, and the formulas once more."""

    def __init__(self):
        self.calls = []

    def _adam(self, p, g, m, v, i, lr, b1, b2, eps, bias1, bias2, decay):
        if decay:
            p -= lr * decay * p
        m[i] = b1 * m[i] + (1 - b1) * g
        v[i] = b2 * v[i] + (1 - b2) * (g**2 if abs(g) < 1e150 else math.inf)
        return p - lr * (float(m[i]) / bias1) / ((float(v[i]) / bias2) ** 0.5 + eps)

    def adam(self, values, m, v, lr, b1, b2, eps, bias1, bias2, decay):
        self.calls.append("adam")
        for i, p in enumerate(values):
            p.data = self._adam(p.data, p.grad, m, v, i, lr, b1, b2, eps, bias1, bias2, decay)

    def adam_array(self, p, grad, m, v, lr, b1, b2, eps, bias1, bias2, decay):
        self.calls.append("adam_array")
        assert p.dtype == grad.dtype == m.dtype == v.dtype
        assert p.ndim == grad.ndim == m.ndim == 1
        real = p.dtype.type
        for i, g in enumerate(grad):
            q = p[i] - real(lr * decay) * p[i]
            m[i] = real(b1) * m[i] + real(1 - b1) * g
            v[i] = real(b2) * v[i] + real(1 - b2) * (g * g)
            step = real(lr) * (m[i] / real(bias1)) / (np.sqrt(v[i] / real(bias2)) + real(eps))
            p[i] = q - step

    def _sgd(self, p, g, velocity, i, lr, momentum, decay):
        if decay:
            p -= lr * decay * p
        velocity[i] = momentum * velocity[i] + g
        return p - lr * float(velocity[i])

    def sgd(self, values, velocity, lr, momentum, decay):
        self.calls.append("sgd")
        for i, p in enumerate(values):
            p.data = self._sgd(p.data, p.grad, velocity, i, lr, momentum, decay)

    def sgd_array(self, p, grad, velocity, lr, momentum, decay):
        self.calls.append("sgd_array")
        real = p.dtype.type
        for i, g in enumerate(grad):
            q = p[i] - real(lr * decay) * p[i]
            velocity[i] = real(momentum) * velocity[i] + g
            p[i] = q - real(lr) * velocity[i]


@pytest.fixture(params=["plain", "stand-in", "native"])
def kernels(request, monkeypatch):
    """Every way of computing an update that there is here."""
    if request.param == "native" and NATIVE is None:
        pytest.skip("the native engine is not built")
    chosen = {"plain": None, "stand-in": PlainKernels(), "native": NATIVE}[request.param]
    monkeypatch.setattr(optim._engine, "kernels", chosen, raising=False)
    return chosen


def gradients(count, steps, seed=1):
    rng = random.Random(seed)
    return [[rng.gauss(0, 10.0 ** rng.randint(-6, 3)) for _ in range(count)] for _ in range(steps)]


def microgpt_adam(start, grads, rates, beta1, beta2, eps):
    """The loop at the end of microgpt's training step, as written there."""
    data, m, v = list(start), [0.0] * len(start), [0.0] * len(start)
    for step, gs in enumerate(grads):
        for i, g in enumerate(gs):
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g**2
            m_hat = m[i] / (1 - beta1 ** (step + 1))
            v_hat = v[i] / (1 - beta2 ** (step + 1))
            data[i] -= rates(step) * m_hat / (v_hat**0.5 + eps)
    return data, m, v


def test_adam_is_microgpts_bit_for_bit(kernels):
    start = [random.Random(i).gauss(0, 0.08) for i in range(40)]
    grads = gradients(40, 60)
    rates = optim.linear(0.01, 60)
    expected = microgpt_adam(start, grads, rates, 0.85, 0.99, 1e-8)
    params = [Value(x) for x in start]
    optimizer = optim.Adam(params, lr=rates, betas=(0.85, 0.99))
    for gs in grads:
        for p, g in zip(params, gs, strict=True):
            p.grad = g
        optimizer.step()
    assert bits(p.data for p in params) == bits(expected[0])
    assert bits(optimizer.m) == bits(expected[1])
    assert bits(optimizer.v) == bits(expected[2])
    if isinstance(kernels, PlainKernels):
        assert kernels.calls == ["adam"] * 60


MAKERS = {
    "sgd": lambda params: optim.SGD(params, lr=0.1),
    "momentum": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda params: optim.Adam(params, lr=0.1),
    "adamw": lambda params: optim.AdamW(params, lr=optim.cosine(0.1, 20), weight_decay=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_arrays_take_the_same_steps_as_values(name, kernels):
    start = [0.5, -1.0, 2.0, 0.0, 3.0, -0.25]
    values = [Value(x) for x in start]
    arrays = {"w": np.array(start[:4]).reshape(2, 2), "rest": [np.array(start[4:])]}
    over_values, over_arrays = MAKERS[name](values), MAKERS[name](arrays)
    for gs in gradients(6, 20):
        for p, g in zip(values, gs, strict=True):
            p.grad = g
        over_values.step()
        over_arrays.step({"w": np.array(gs[:4]).reshape(2, 2), "rest": [np.array(gs[4:])]})
    found = [*arrays["w"].ravel(), *arrays["rest"][0]]
    assert found == pytest.approx([p.data for p in values], rel=1e-12)
    assert over_values.steps == over_arrays.steps == 20


@pytest.mark.parametrize("name", MAKERS)
def test_every_kernel_equals_the_plain_path_bit_for_bit(name, kernels, monkeypatch):
    results = []
    for chosen in (kernels, None):
        monkeypatch.setattr(optim._engine, "kernels", chosen, raising=False)
        params = [Value(x / 7) for x in range(-10, 10)]
        optimizer = MAKERS[name](params)
        for gs in gradients(20, 30, seed=5):
            for p, g in zip(params, gs, strict=True):
                p.grad = g
            optimizer.step()
        state = optimizer.state_dict()
        moments = [bits(state[key]) for key in sorted(state) if key != "steps"]
        results.append((bits(p.data for p in params), moments))
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", MAKERS)
def test_every_array_kernel_equals_the_plain_path_bit_for_bit(name, dtype, kernels, monkeypatch):
    results = []
    for chosen in (kernels, None):
        monkeypatch.setattr(optim._engine, "kernels", chosen, raising=False)
        params = {"a": np.linspace(-1, 1, 12, dtype=dtype).reshape(3, 4), "b": np.ones(1, dtype)}
        optimizer = MAKERS[name](params)
        for gs in gradients(13, 30, seed=6):
            grads = np.array(gs, dtype)
            optimizer.step({"a": grads[:12].reshape(3, 4), "b": grads[12:]})
        state = optimizer.state_dict()
        assert all(state[key].dtype == dtype for key in optimizer.moments)
        moments = [state[key].tobytes() for key in optimizer.moments]
        results.append((params["a"].tobytes(), params["b"].tobytes(), moments))
    assert results[0] == results[1]


@given(st.floats(-1e3, 1e3), st.floats(0, 0.99), st.floats(0, 0.5))
def test_sgd_with_momentum_and_decay_follows_its_formula(grad, momentum, decay):
    p = Value(1.5)
    optimizer = optim.SGD([p], lr=0.1, momentum=momentum, weight_decay=decay)
    x, velocity = 1.5, 0.0
    for _ in range(3):
        p.grad = grad
        optimizer.step()
        x -= 0.1 * decay * x
        velocity = momentum * velocity + grad
        x -= 0.1 * velocity
    assert p.data == pytest.approx(x, rel=1e-12)


def test_float32_arrays_are_changed_in_place_and_stay_float32(kernels):
    w = np.array([1.0, 2.0], dtype=np.float32)
    same = w
    optim.Adam([w], lr=0.1).step([np.array([1.0, -1.0], dtype=np.float32)])
    assert same.dtype == np.float32
    assert same.tolist() == pytest.approx([0.9, 2.1])


def test_arrays_that_are_not_contiguous_are_changed_in_place(kernels):
    whole = np.ones((4, 4))
    view = whole[:, ::2]
    optim.SGD(view, lr=1.0).step(np.full((4, 2), 0.25))
    assert (whole[:, ::2] == 0.75).all()
    assert (whole[:, 1::2] == 1.0).all()


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_optimisers_minimise(name, kernels):
    x, y = Value(4.0), Value(-3.0)
    optimizer = MAKERS[name]([x, y])
    for _ in range(200):
        optimizer.zero_grad()
        loss = (x - 1) ** 2 + (y - 2) ** 2
        loss.backward()
        optimizer.step()
    assert loss.data < 0.01


# --- state --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_taken_midway_goes_on_bit_for_bit(name, kernels):
    grads = gradients(5, 20)

    def walk(optimizer, params, part):
        for gs in part:
            for p, g in zip(params, gs, strict=True):
                p.grad = g
            optimizer.step()

    straight = [Value(float(i)) for i in range(5)]
    walk(MAKERS[name](straight), straight, grads)

    first = [Value(float(i)) for i in range(5)]
    optimizer = MAKERS[name](first)
    walk(optimizer, first, grads[:7])
    state = optimizer.state_dict()
    walk(optimizer, first, grads[7:9])  # must not reach into the state taken before
    second = [Value(p) for p in _after(name, grads[:7])]
    again = MAKERS[name](second)
    again.load_state_dict(state)
    walk(again, second, grads[7:])
    assert bits(p.data for p in second) == bits(p.data for p in straight)


def _after(name, grads):
    params = [Value(float(i)) for i in range(5)]
    optimizer = MAKERS[name](params)
    for gs in grads:
        for p, g in zip(params, gs, strict=True):
            p.grad = g
        optimizer.step()
    return [p.data for p in params]


def test_a_state_that_does_not_fit_is_refused():
    optimizer = optim.Adam([Value(1.0)])
    with pytest.raises(ValueError, match="the state holds"):
        optimizer.load_state_dict({"steps": 1})
    with pytest.raises(ValueError, match=r"1 parameters need \(1,\)"):
        optimizer.load_state_dict({"steps": 1, "m": [0.0, 0.0], "v": [0.0, 0.0]})


def test_a_gradient_adam_cannot_square_is_an_error(kernels):
    params = [Value(1.0), Value(2.0)]
    params[0].grad, params[1].grad = 1.0, 1e200
    with pytest.raises(OverflowError, match="too large for Adam"):
        optim.Adam(params).step()


def test_an_error_in_the_plain_path_changes_nothing(monkeypatch):
    monkeypatch.setattr(optim._engine, "kernels", None, raising=False)
    params = [Value(1.0), Value(2.0)]
    optimizer = optim.Adam(params)
    params[0].grad, params[1].grad = 1.0, 1e200
    with pytest.raises(OverflowError, match="too large for Adam"):
        optimizer.step()
    assert [p.data for p in params] == [1.0, 2.0]
    assert optimizer.state_dict()["m"].tolist() == [0.0, 0.0]
    assert optimizer.steps == 0


# --- learning rates -----------------------------------------------------------------------------


def test_schedules_are_those_of_the_seeds_bit_for_bit():
    for step in range(500):
        assert optim.linear(0.01, 500)(step) == 0.01 * (1 - step / 500)
        cosine = 0.01 * 0.5 * (1 + math.cos(math.pi * step / 500))
        assert optim.cosine(0.01, 500)(step) == cosine
    assert optim.constant(0.3)(10**9) == 0.3


def test_schedules_end_at_zero_and_warm_up_reaches_its_schedule():
    assert optim.linear(1.0, 10)(10) == optim.linear(1.0, 10)(99) == 0.0
    assert optim.cosine(1.0, 10)(99) == 0.0
    warm = optim.warmup(optim.linear(1.0, 100), 10)
    assert warm(0) == 0.1
    assert [warm(step) for step in range(9, 100)] == [1 - step / 100 for step in range(9, 100)]
    assert optim.SGD([Value(1.0)], lr=warm).lr == 0.1


def test_clipping_scales_all_gradients_together():
    values = [Value(0.0) for _ in range(3)]
    for p, g in zip(values, (2.0, -4.0, 4.0), strict=True):
        p.grad = g
    assert optim.clip_gradients(values, 3.0) == 6.0
    assert [p.grad for p in values] == [1.0, -2.0, 2.0]
    assert optim.clip_gradients(values, 3.0) == 3.0
    assert [p.grad for p in values] == [1.0, -2.0, 2.0], "short enough already"
    grads = {"a": np.array([3.0]), "b": [np.array([4.0])]}
    assert optim.clip_gradients(grads, 1.0) == 5.0
    assert grads["a"][0] == pytest.approx(0.6)
    values[0].grad = math.inf
    with pytest.raises(ValueError, match="the norm of the gradients is inf"):
        optim.clip_gradients(values, 1.0)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: optim.Adam([]), ValueError, "needs parameters, got none"),
        (lambda: optim.Adam([Value(1.0), 2.0]), TypeError, r"params\[1\] is a float among Values"),
        (lambda: optim.Adam([1.0]), TypeError, r"params\[0\] must be a Value or an array"),
        (lambda: optim.Adam([np.arange(3)]), TypeError, "an array of int64"),
        (lambda: optim.Adam([Value(1.0)] * 2), ValueError, "appears twice"),
        (lambda: optim.Adam([np.ones(1), np.ones(1, np.float32)]), TypeError, "all of float64 or"),
        (lambda: optim.Adam([Value(1.0)], lr=-1.0), ValueError, "learning rate must be at least 0"),
        (lambda: optim.Adam([Value(1.0)], betas=(1.0, 0.9)), ValueError, "the first beta"),
        (lambda: optim.Adam([Value(1.0)], eps=0.0), ValueError, "eps must be positive"),
        (lambda: optim.SGD([Value(1.0)], momentum=1.0), ValueError, "momentum must be"),
        (lambda: optim.AdamW([Value(1.0)], weight_decay=-1), ValueError, "weight_decay"),
        (lambda: optim.linear(0.1, 0), ValueError, "steps must be positive"),
        (lambda: optim.Adam([Value(1.0)]).step([1.0]), TypeError, "call step\\(\\) without any"),
        (lambda: optim.Adam(np.ones(2)).step(), TypeError, "need step\\(grads\\)"),
        (lambda: optim.Adam({"a": np.ones(2)}).step({"b": np.ones(2)}), ValueError, "not shaped"),
        (lambda: optim.Adam([np.ones(2)]).step([np.ones(3)]), ValueError, r"has shape \(3,\)"),
    ],
)
def test_errors_say_what_is_wrong(call, error, message, kernels):
    with pytest.raises(error, match=message):
        call()


def test_parameters_may_come_from_a_generator_and_read_only_arrays_are_refused():
    optim.SGD(Value(float(i)) for i in range(3)).step()
    frozen = np.ones(2)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        optim.SGD([frozen])


@pytest.mark.parametrize(
    "schedule",
    [
        optim.constant(0.1),
        optim.constant(np.float32(0.1)),
        optim.linear(0.3, 1000),
        optim.linear(0.01, 7),
        optim.linear(np.float32(0.3), 100),
        optim.linear(0.1, 50.5),
        optim.linear(0.1, 2**60 + 1),
        optim.linear(1, 10),
        optim.cosine(0.1, 100),
        optim.warmup(optim.linear(0.1, 100), 10),
    ],
    ids=map(str, range(10)),
)
def test_rates_of_many_steps_are_those_of_each(schedule):
    for first, count in ((0, 1500), (3, 1), (10**6, 20), (5, 0), (2**53 - 1, 3)):
        found = optim.rates(schedule, first, count)
        wanted = [float(schedule(step)) for step in range(first, first + count)]
        assert found.tolist() == wanted


def test_rates_end_where_a_schedule_raises():
    assert optim.rates(lambda step: 1.0 / (3 - step), 0, 10).tolist() == [1 / 3, 0.5, 1.0]
