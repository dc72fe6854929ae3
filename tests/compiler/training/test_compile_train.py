"""``fast.train``: the loop over ``value_and_grad`` and ``optimiser.step``, never torn apart."""

import math
import random
import threading
from itertools import pairwise

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning, Value, optim
from chainrule.compiler.training import driver as training

LETTERS, WIDTH = 5, 3


def loss(params, tokens):
    """A little recurrent model: it reads a sequence and predicts each next token."""
    state, total = [0.0] * WIDTH, 0
    for token, target in pairwise(tokens):
        state = [
            (sum(w * s for w, s in zip(row, state, strict=True)) + x).tanh()
            for row, x in zip(params["layers"][0], params["embedding"][token], strict=True)
        ]
        scores = [sum(w * s for w, s in zip(row, state, strict=True)) for row in params["head"]]
        exps = [score.exp() for score in scores]
        total = total - (exps[target] / sum(exps)).log()
    return total * (1 / (len(tokens) - 1)) + params["bias"] * params["bias"]


def parameters(dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "embedding": rng.normal(0, 0.3, (LETTERS, WIDTH)).astype(dtype),
        "layers": (rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(dtype),),
        "head": rng.normal(0, 0.3, (LETTERS, WIDTH)).astype(dtype),
        "bias": np.array(0.5, dtype),
    }


def sequences(number=12, longest=6, seed=2):
    """Samples of mixed lengths."""
    rng = random.Random(seed)
    lengths = [2 + place % (longest - 1) for place in range(number)]
    return [([rng.randrange(LETTERS) for _ in range(length)],) for length in lengths]


OPTIMISERS = {
    "sgd": lambda params: optim.SGD(params, lr=optim.linear(0.1, 1500), momentum=0.5),
    "adam": lambda params: optim.Adam(params, lr=optim.cosine(0.02, 1500), betas=(0.85, 0.99)),
    "adamw": lambda params: optim.AdamW(params, lr=0.01, weight_decay=0.01),
}


def by_hand(function, params, samples, optimiser, steps, batch=1):
    """What ``train`` is a short way to write."""
    losses = []
    for step in range(optimiser.steps, optimiser.steps + steps):
        chosen = [samples[(step * batch + i) % len(samples)] for i in range(batch)]
        if batch == 1:
            value, grads = function.value_and_grad(params, *chosen[0])
        else:
            value, grads = function.batch_value_and_grad(params, chosen)
        optimiser.step(grads)
        losses.append(value)
    return losses


def flat(params):
    return np.concatenate([leaf.ravel() for _, leaf in optim.leaves(params, "params")])


def state(params, optimiser):
    """Everything that a step changes."""
    moments = [getattr(optimiser, name) for name in optimiser.moments]
    return [optimiser.steps, flat(params).tobytes(), *[moment.tobytes() for moment in moments]]


def close(found, wanted, tolerance=1e-9):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def same(found, wanted):
    """Whether two states are those after the same steps, up to rounding."""
    return found[0] == wanted[0] and all(
        np.allclose(np.frombuffer(a), np.frombuffer(b), rtol=0, atol=1e-9)
        for a, b in zip(found[1:], wanted[1:], strict=True)
    )


def quadratic(params, target):
    return sum((p - target) ** 2 for p in params["p"])


def simple(**options):
    """A function, parameters and an optimiser that need next to no time."""
    params = {"p": np.array([1.0, -2.0])}
    return chainrule.compile(quadratic), params, optim.Adam(params, **({"lr": 0.1} | options))


# --- the same as the loop -------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_thousand_steps_equal_the_loop_by_hand(name):
    fast, samples = chainrule.compile(loss), sequences()
    params, others = parameters(), parameters()
    optimiser, other = OPTIMISERS[name](params), OPTIMISERS[name](others)
    losses = fast.train(params, samples, optimiser, 1000)
    wanted = by_hand(fast, others, samples, other, 1000)
    assert losses.dtype == np.float64
    assert losses.shape == (1000,)
    close(losses, wanted)
    close(flat(params), flat(others))
    for moment in optimiser.moments:
        close(getattr(optimiser, moment), getattr(other, moment))
    assert optimiser.steps == 1000
    assert np.mean(losses[-50:]) < np.mean(losses[:50]) - 0.1


def test_a_thousand_steps_equal_those_of_an_eager_script():
    samples, params = sequences(), parameters()
    values = {
        name: np.vectorize(Value, otypes=[object])(x).tolist()
        for name, x in params.items()
        if name != "layers"
    }
    values["layers"] = (np.vectorize(Value, otypes=[object])(params["layers"][0]).tolist(),)
    nested = [*values["embedding"], *values["layers"][0], *values["head"], [values["bias"]]]
    eager = optim.Adam([p for row in nested for p in row], lr=0.01)
    wanted = []
    for step in range(1000):
        eager.zero_grad()
        value = loss(values, samples[step % len(samples)][0])
        value.backward()
        eager.step()
        wanted.append(value.data)
    fast, optimiser = chainrule.compile(loss), optim.Adam(params, lr=0.01)
    close(fast.train(params, samples, optimiser, 1000), wanted)


@pytest.mark.parametrize("batch", [2, 3, 16, 64])
def test_a_batch_is_the_mean_of_its_samples_whatever_their_lengths(batch):
    fast, samples = chainrule.compile(loss), sequences()
    params, others = parameters(), parameters()
    optimiser, other = OPTIMISERS["adam"](params), OPTIMISERS["adam"](others)
    losses = fast.train(params, samples, optimiser, 20, batch=batch)
    close(losses, by_hand(fast, others, samples, other, 20, batch))
    close(flat(params), flat(others))
    first = [fast.value_and_grad(parameters(), *sample)[0] for sample in (samples * 6)[:batch]]
    assert losses[0] == pytest.approx(np.mean(first), rel=1e-12)


def test_arrays_of_float32_stay_float32():
    fast, samples, params, others = (
        chainrule.compile(loss, on_fallback="eager"),  # it is told that steps are Python's
        sequences(),
        parameters(np.float32),
        parameters(),
    )
    optimiser = optim.Adam(params, lr=0.01)
    losses = fast.train(params, samples, optimiser, 50)
    assert {leaf.dtype for _, leaf in optim.leaves(params, "")} == {np.dtype(np.float32)}
    assert optimiser.m.dtype == np.float32
    assert losses.dtype == np.float64
    exact = fast.train(others, samples, optim.Adam(others, lr=0.01), 50)
    close(losses, exact, 1e-4)


def test_two_calls_are_one_longer_call():
    fast, samples = chainrule.compile(loss), sequences(number=7)
    params, others = parameters(), parameters()
    optimiser, other = OPTIMISERS["adam"](params), OPTIMISERS["adam"](others)
    parts = [fast.train(params, samples, optimiser, steps, batch=2) for steps in (5, 0, 1, 14)]
    assert [len(part) for part in parts] == [5, 0, 1, 14]
    close(np.concatenate(parts), fast.train(others, samples, other, 20, batch=2))
    close(flat(params), flat(others))


def test_a_run_goes_on_with_the_saved_state_of_an_optimiser():
    fast, samples = chainrule.compile(loss), sequences()
    params, others = parameters(), parameters()
    whole = fast.train(others, samples, optim.Adam(others), 30)
    first = optim.Adam(params)
    fast.train(params, samples, first, 13)
    second = optim.Adam(params)
    second.load_state_dict(first.state_dict())
    close(fast.train(params, samples, second, 17), whole[13:])


def test_extras_are_no_part_of_the_loss_and_a_function_needs_no_samples():
    @chainrule.compile
    def valley(x):
        total = sum((b - a * a) ** 2 * 100 + (1 - a) ** 2 for a, b in pairwise(x))
        return total, {"first": x[0].data}

    x = np.array([-0.5, 0.5, 0.25])
    losses = valley.train(x, [()], optim.Adam(x, lr=0.05), 800)
    assert losses[0] == pytest.approx(valley.value_and_grad(np.array([-0.5, 0.5, 0.25]))[0][0])
    assert losses[-1] < 1e-2
    y = np.array([-0.5, 0.5, 0.25])
    close(valley.train(y, [()], optim.Adam(y, lr=0.05), 5, batch=3), losses[:5])


def test_a_function_that_cannot_be_recorded_trains_eagerly():
    seen = []

    def counted(params, target):
        seen.append(float(params["p"][0].data))
        return quadratic(params, target)

    fast, params, optimiser = simple()
    others = {"p": params["p"].copy()}
    plain = chainrule.compile(counted, on_fallback="eager")
    losses = plain.train(others, [(0.5,)], optim.Adam(others, lr=0.1), 10)
    close(losses, fast.train(params, [(0.5,)], optimiser, 10))
    assert len(set(seen)) >= 10


def test_arrays_that_are_not_contiguous_train_in_place():
    big = np.arange(12.0).reshape(3, 4) / 10
    fast, view = chainrule.compile(lambda p: sum(x * x for row in p for x in row)), big[:, ::2]
    kept = big[:, 1::2].copy()
    fast.train(view, [()], optim.SGD(view, lr=0.1), 1)
    close(big[:, ::2], 0.8 * np.arange(12.0).reshape(3, 4)[:, ::2] / 10)
    assert (big[:, 1::2] == kept).all()


# --- callbacks ------------------------------------------------------------------------------------


def test_the_callback_comes_at_its_interval_and_at_the_end():
    fast, params, optimiser = simple()
    calls = []
    options = {"callback": lambda losses, step: calls.append((len(losses), step)), "every": 4}
    fast.train(params, [(0.0,)], optimiser, 10, **options)
    assert calls == [(4, 4), (8, 8), (10, 10)]
    calls.clear()
    fast.train(params, [(0.0,)], optimiser, 8, **options)
    assert calls == [(4, 14), (8, 18)], "the step is the optimiser's, the losses are this call's"
    calls.clear()
    fast.train(params, [(0.0,)], optimiser, 0, **options)
    assert calls == []
    fast.train(params, [(0.0,)], optimiser, 250, callback=options["callback"])
    assert calls == [(100, 118), (200, 218), (250, 268)], "every 100 steps unless told otherwise"


def test_the_callback_sees_the_parameters_of_that_step():
    fast, params, optimiser = simple()
    other, others, other_optimiser = simple()
    seen = []

    def look(losses, step):
        seen.append((losses.tolist(), *state(params, optimiser)))

    fast.train(params, [(0.0,), (1.0,)], optimiser, 6, callback=look, every=2)
    losses = []
    for found, *now in seen:
        losses += by_hand(other, others, [(0.0,), (1.0,)], other_optimiser, 2)
        close(found, losses)
        assert same(now, state(others, other_optimiser))


@pytest.mark.parametrize("answer", [True, np.True_])
def test_the_callback_may_stop_the_run(answer):
    fast, params, optimiser = simple()
    losses = fast.train(
        params, [(0.0,)], optimiser, 10**9, callback=lambda _, step: answer if step >= 6 else None
        , every=3)  # fmt: skip
    assert len(losses) == optimiser.steps == 6
    rest = fast.train(params, [(0.0,)], optimiser, 4)
    whole, others, other = simple()
    close([*losses, *rest], whole.train(others, [(0.0,)], other, 10))


@pytest.mark.parametrize("answer", [None, False, np.False_, 1, "yes", [0]])
def test_only_true_stops_it(answer):
    fast, params, optimiser = simple()
    assert len(fast.train(params, [(0.0,)], optimiser, 5, callback=lambda *_: answer, every=1)) == 5


def test_the_losses_a_callback_gets_are_its_own_to_keep_but_not_to_change():
    fast, params, optimiser = simple()
    kept = []
    losses = fast.train(
        params, [(0.0,)], optimiser, 200, callback=lambda losses, _: kept.append(losses), every=7
    )
    for part in kept:
        assert (part == losses[: len(part)]).all()
    with pytest.raises(ValueError, match="read-only"):
        kept[0][0] = 1.0
    losses[0] = 1.0


def test_an_error_in_the_callback_leaves_everything_as_it_was_there():
    fast, params, optimiser = simple()
    other, others, other_optimiser = simple()

    def fails(losses, step):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fast.train(params, [(0.0,)], optimiser, 10, callback=fails, every=4)
    by_hand(other, others, [(0.0,)], other_optimiser, 4)
    assert same(state(params, optimiser), state(others, other_optimiser))


def test_a_callback_may_change_the_parameters_and_the_optimiser():
    fast, params, optimiser = simple()

    def clip(losses, step):
        np.clip(params["p"], -0.25, 0.25, out=params["p"])
        optimiser.m[...] = 0.0

    other, others, other_optimiser = simple()
    wanted = []
    for _ in range(6):
        wanted += by_hand(other, others, [(3.0,)], other_optimiser, 1)
        np.clip(others["p"], -0.25, 0.25, out=others["p"])
        other_optimiser.m[...] = 0.0
    close(fast.train(params, [(3.0,)], optimiser, 6, callback=clip, every=1), wanted)
    assert same(state(params, optimiser), state(others, other_optimiser))


# --- what is not finite ---------------------------------------------------------------------------


def descending(params, shift):
    """Its minimum is where the logarithm ends."""
    return (params["p"] - shift).log() + params["p"]


def square_root(params, shift):
    """At 0 its value is 0 and its slope infinite."""
    return (params["p"] * shift).sqrt()


def test_an_undefined_loss_raises_what_eager_raises_and_keeps_the_last_good_step():
    fast, params = chainrule.compile(descending), {"p": np.array(1.0)}
    optimiser, other = optim.SGD(params, lr=0.3), {"p": np.array(1.0)}
    other_optimiser = optim.SGD(other, lr=0.3)
    with pytest.raises(ValueError, match=r"log.* is undefined"):
        fast.train(params, [(0.0,)], optimiser, 50)
    assert 0 < optimiser.steps < 50
    by_hand(fast, other, [(0.0,)], other_optimiser, optimiser.steps)
    assert same(state(params, optimiser), state(other, other_optimiser))
    with pytest.raises(ValueError, match=r"log.* is undefined"):
        fast.train(params, [(0.0,), (0.0,)], optimiser, 50, batch=2)
    assert same(state(params, optimiser), state(other, other_optimiser))
    assert np.isfinite(fast.train(params, [(-9.0,)], optimiser, 3)).all(), "and it can go on"


def test_a_gradient_that_is_not_finite_raises_before_the_update():
    fast, params = chainrule.compile(square_root), {"p": np.array(0.0)}
    fast.value_and_grad({"p": np.array(4.0)}, 1.0)
    optimiser = optim.Adam(params)
    before = state(params, optimiser)
    with pytest.raises(FloatingPointError, match=r"the gradient of params\['p'\] is not finite"):
        fast.train(params, [(1.0,)], optimiser, 5)
    assert state(params, optimiser) == before


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_raises(number):
    fast, params, optimiser = simple()
    fast.value_and_grad(params, 1.0)
    params["p"][0] = number
    before = state(params, optimiser)
    with pytest.raises(ArithmeticError, match=r"at step 1; the parameters are those after step 0"):
        fast.train(params, [(1.0,)], optimiser, 5)
    assert state(params, optimiser) == before


@pytest.mark.parametrize(
    ("optimiser", "start", "name"),
    [
        (lambda p: optim.SGD(p, lr=1e308), 10.0, r"params\['p'\]"),
        (lambda p: optim.Adam(p, lr=0.1), 1e152, "Adam's v"),
        (lambda p: optim.AdamW(p, lr=1e10, weight_decay=1e300), 10.0, r"params\['p'\]"),
    ],
)
def test_an_update_that_overflows_is_not_made(optimiser, start, name):
    fast, params = chainrule.compile(lambda p, x: p["p"] * p["p"] * x), {"p": np.array(start)}
    optimiser = optimiser(params)
    before = state(params, optimiser)
    with pytest.raises(OverflowError, match=f"the update of {name} overflows at step 1; the par"):
        fast.train(params, [(1e3,)], optimiser, 5)
    assert state(params, optimiser) == before


def test_an_error_in_a_schedule_leaves_the_last_good_step():
    def rate(step):
        if step == 3:
            raise RuntimeError("no rate")
        return 0.1

    fast, params, optimiser = simple(lr=rate)
    with pytest.raises(RuntimeError, match="no rate"):
        fast.train(params, [(0.0,)], optimiser, 10)
    other, others, other_optimiser = simple()
    by_hand(other, others, [(0.0,)], other_optimiser, 3)
    assert same(state(params, optimiser), state(others, other_optimiser))


def test_a_schedule_may_ask_for_nothing():
    fast, params, optimiser = simple(lr=lambda step: 0.0)
    before = flat(params).tolist()
    assert len(set(fast.train(params, [(0.0,)], optimiser, 5).tolist())) == 1
    assert flat(params).tolist() == before


# --- arguments ------------------------------------------------------------------------------------

GOOD = {"p": np.array([1.0, -2.0])}
FROZEN = np.ones(2)
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"samples": []}, ValueError, "train needs at least one sample"),
        ({"samples": [(1.0,), [1.0]]}, TypeError, r"samples\[1\] is a list"),
        ({"samples": [1.0]}, TypeError, r"a sample is a tuple .* samples\[0\] is a float"),
        ({"samples": 5}, TypeError, "not iterable"),
        ({"steps": -1}, ValueError, "steps must be at least 0, not -1"),
        ({"steps": 2.0}, TypeError, "steps must be an integer, not a float"),
        ({"steps": None}, TypeError, "steps must be an integer, not a NoneType"),
        ({"batch": 0}, ValueError, "batch must be at least 1, not 0"),
        ({"batch": "2"}, TypeError, "batch must be an integer, not a str"),
        ({"every": 0}, ValueError, "every must be at least 1, not 0"),
        ({"callback": 3}, TypeError, "callback must be a function, not a int"),
        ({"params": {"p": [1.0, 2.0]}}, TypeError, r"params\['p'\]\[0\] is a float, which cannot"),
        ({"params": {"p": Value(1.0)}}, TypeError, r"params\['p'\] is a Value: train changes arr"),
        ({"params": {"p": np.array([1, 2])}}, TypeError, "is an array of int64, not of float64"),
        ({"params": {"p": np.ones(2, np.float16)}}, TypeError, "is an array of float16, not of fl"),
        ({"params": {"p": np.array([Value(1.0)])}}, TypeError, "is an array of object, not of fl"),
        ({"params": {"p": FROZEN}}, ValueError, r"params\['p'\] is a read-only array"),
        ({"params": {"p": GOOD["p"].copy()}}, ValueError, r"it moves another params\['p'\]"),
        ({"params": {"q": GOOD["p"]}}, ValueError, r"not made for these parameters: it"),
        ({"params": {**GOOD, "q": np.ones(1)}}, ValueError, r"it does not move params\['q'\]"),
        ({"params": {}}, ValueError, r"it moves another params\['p'\]"),
        ({"optimiser": None}, TypeError, "train takes an optimiser of chainrule.optim, not None"),
        ({"optimiser": optim.Adam}, TypeError, "train takes an optimiser of chainrule.optim, not"),
        ({"optimiser": optim.Adam([Value(1.0)])}, ValueError, r"it does not move params\['p'\]"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line_and_change_nothing(changes, error, message):
    arguments = {
        "params": GOOD,
        "samples": [(1.0,)],
        "optimiser": optim.Adam(GOOD),
        "steps": 3,
        "batch": 1,
    }
    with pytest.raises(error, match=message) as caught:
        chainrule.compile(quadratic).train(**(arguments | changes))
    assert "\n" not in str(caught.value)
    assert GOOD["p"].tolist() == [1.0, -2.0]


def test_counts_may_be_integers_of_numpy_and_samples_any_iterable():
    fast, params, optimiser = simple()
    samples = ((x,) for x in (0.0, 1.0, 2.0))
    steps, batch, every = np.int64(4), np.int32(2), np.int8(1)
    losses = fast.train(params, samples, optimiser, steps, batch, lambda *_: None, every)
    assert losses.shape == (4,)


def test_a_wrong_number_of_arguments_in_a_sample_is_the_functions_own_error():
    fast, params, optimiser = simple()
    with pytest.raises(TypeError, match="positional argument"):
        fast.train(params, [(1.0,), (1.0, 2.0)], optimiser, 5)
    assert optimiser.steps == 1


def test_training_is_no_part_of_a_recording():
    fast, params, optimiser = simple()

    @chainrule.compile
    def outer(x):
        fast.train(params, [(0.0,)], optimiser, 1)
        return x * 2

    with pytest.warns(FallbackWarning, match="train of a compiled function"):
        assert outer(3.0) == 6.0
    assert optimiser.steps == 1, "the eager run trained, the recording did not"


def test_a_method_trains():
    class Model:
        scale = 2.0

        @chainrule.compile
        def loss(self, params, target):
            return quadratic(params, target * self.scale)

    model, params = Model(), {"p": np.array([1.0])}
    model.loss.train(params, [(3.0,)], optim.Adam(params, lr=0.1), 400)
    assert params["p"][0] == pytest.approx(6.0, abs=1e-3)


def test_another_thread_may_train():
    fast, params, optimiser = simple()
    found = []
    thread = threading.Thread(
        target=lambda: found.append(fast.train(params, [(0.0,)], optimiser, 5))
    )
    thread.start()
    thread.join()
    other, others, other_optimiser = simple()
    close(found[0], other.train(others, [(0.0,)], other_optimiser, 5))


# --- an inner loop in the place of Python ---------------------------------------------------------


class Pretended:
    """A compiled function with an inner loop that leaves some of the steps to others."""

    def __init__(self, function, refuses=lambda step: False):
        self.function, self.refuses = function, refuses
        self.value_and_grad = function.value_and_grad
        self.asked = []

    def owns(self, steps):
        return lambda x: False

    def inner_loop(self, params, samples, optimiser, steps):
        self.task = params, samples, optimiser, steps.batch
        return self

    def begin(self):
        return True

    def run(self, first_step, count):
        params, samples, optimiser, batch = self.task
        assert optimiser.steps == first_step
        self.asked.append((first_step, count))
        taken = 0
        while taken < count and not self.refuses(first_step + taken):
            taken += 1
        losses = by_hand(self.function, params, samples, optimiser, taken, batch)
        optimiser.steps = first_step
        return np.array(losses)


def never(step):
    return False


def always(step):
    return True


@pytest.mark.parametrize(
    "refuses", [never, always, lambda step: step % 5 == 0, lambda step: step in (7, 8, 9, 30)]
)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_inner_loop_and_python_share_the_steps(refuses, batch):
    samples, params, others = sequences(), parameters(), parameters()
    fast = chainrule.compile(loss)
    pretended = Pretended(fast, refuses)
    optimiser, other = OPTIMISERS["adam"](params), OPTIMISERS["adam"](others)
    steps = []
    losses = training.train(
        pretended, params, samples, optimiser, 40, batch,
        callback=lambda losses, step: steps.append((len(losses), step)), every=15,
    )  # fmt: skip
    wanted = by_hand(fast, others, samples, other, 40, batch)
    limit = 0.0 if batch == 1 else 1e-10  # samples of a step in Python are added up one by one
    np.testing.assert_allclose(losses, wanted, rtol=limit)
    np.testing.assert_allclose(flat(params), flat(others), rtol=limit)
    assert batch > 1 or same(state(params, optimiser), state(others, other))
    assert steps == [(15, 15), (30, 30), (40, 40)]
    assert all(count >= 1 for _, count in pretended.asked)


def test_the_inner_loop_is_asked_for_more_and_more_steps_but_never_beyond_a_callback():
    fast, params, optimiser = simple()
    pretended = Pretended(fast)
    training.train(pretended, params, [(0.0,)], optimiser, 300, callback=lambda *_: None)
    ends = [first + count for first, count in pretended.asked]
    assert ends[-1] == 300
    assert {100, 200} <= set(ends)
    assert max(count for _, count in pretended.asked) > 8


def test_an_error_of_a_step_that_the_inner_loop_refused_keeps_the_steps_before():
    fast, params = chainrule.compile(descending), {"p": np.array(1.0)}
    other, optimiser = {"p": np.array(1.0)}, optim.SGD(params, lr=0.3)
    pretended = Pretended(fast, lambda step: params["p"] <= 0.35 or step == 1)
    with pytest.raises(ValueError, match="undefined"):
        training.train(pretended, params, [(0.0,)], optimiser, 50)
    other_optimiser = optim.SGD(other, lr=0.3)
    by_hand(fast, other, [(0.0,)], other_optimiser, optimiser.steps)
    assert same(state(params, optimiser), state(other, other_optimiser))


@pytest.mark.parametrize("lift", [True, False])
def test_a_parameter_that_becomes_read_only_leaves_everything_as_it_was(lift):
    params = {"a": np.array([0.3, 0.2]), "b": np.array([0.5, 0.1, 0.4])}
    optimiser = optim.Adam(params, lr=0.1)
    seen = []

    def callback(losses, step):
        seen[:] = [x.copy() for x in (*params.values(), optimiser.m, optimiser.v)]
        params["b"].flags.writeable = step < 6

    def loss(p, x):
        return sum(w * w * x for row in p.values() for w in row)

    fast = chainrule.compile(loss, lift=lift, on_fallback="raise")
    with pytest.raises(ValueError, match="read-only"):
        fast.train(params, [(1.0,), (2.0,)], optimiser, 50, callback=callback, every=3)
    assert optimiser.steps == 6
    now = (*params.values(), optimiser.m, optimiser.v)
    assert [x.tobytes() for x in seen] == [x.tobytes() for x in now]


@pytest.mark.parametrize("lift", [True, False])
def test_a_callback_may_not_put_other_arrays_in_place(lift):
    params = {"a": np.array([0.3, 0.2])}

    def callback(losses, step):
        params["a"] = params["a"].copy()

    fast = chainrule.compile(lambda p, x: sum(w * w * x for w in p["a"]), lift=lift)
    with pytest.raises(ValueError, match="not made for these parameters"):
        fast.train(params, [(1.0,)], optim.SGD(params, lr=0.1), 9, callback=callback, every=3)
