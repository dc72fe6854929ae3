"""``fast.trainer``: prepared once; how its steps are asked for makes no difference to a bit."""

import collections
import math
import re

import numpy as np
import pytest
from test_compile_train import (
    LETTERS,
    close,
    loss,
    parameters,
    quadratic,
    sequences,
    simple,
    state,
)

import chainrule
from chainrule import Value, Windows, optim, random
from chainrule.compiler.runtime.costs import allowance


def by_values(samples, steps, batch, clip, make, seed=1):
    """The losses of an eager script: Values, ``backward()``, ``clip_gradients``, ``step()``."""
    values = chainrule.trees.map_leaves(
        lambda x: np.vectorize(Value, otypes=[object])(x).tolist(), parameters(seed=seed)
    )
    flat_values = [v for _, v in chainrule.trees.leaves(values, "params")]
    optimiser, losses = make(flat_values), []
    for step in range(steps):
        optimiser.zero_grad()
        total = 0.0
        for i in range(batch):
            value = loss(values, *samples(step * batch + i))
            value.backward(1 / batch)
            total += value.data
        if clip is not None:
            optim.clip_gradients(flat_values, clip)
        optimiser.step()
        losses.append(total / batch)
    return losses


def recordings(fast):
    """How many there are."""
    return re.search(r"(\d+) recordings", fast.report())[1]


def make_adamw(params):
    return optim.AdamW(params, lr=optim.warmup(optim.cosine(0.02, 1000), 50), weight_decay=0.1)


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "steps"), [(1, 1000), (6, 120)])
def test_clipped_and_decayed_steps_on_a_schedule_equal_those_of_an_eager_script(
    machine_steps, batch, steps
):
    samples, params = sequences(), parameters()
    fast = chainrule.compile(loss, lift=True)
    trainer = fast.trainer(params, samples, make_adamw(params), batch, clip=0.3)
    while trainer.taken < steps:
        trainer.advance(min(70, steps - trainer.taken))
    wanted = by_values(lambda k: samples[k % len(samples)], steps, batch, 0.3, make_adamw)
    close(trainer.losses, wanted)
    assert machine_steps == [steps]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batch", [1, 5, 16])
def test_how_steps_are_asked_for_makes_no_difference_to_a_bit(machine_steps, batch, dtype):
    samples = sequences(number=41, longest=8)
    fast, found = chainrule.compile(loss, lift=True, dtype=dtype), []
    for parts in ([60], [1] * 60, [7, 30, 2, 1, 20]):
        params = parameters(np.dtype(dtype))
        optimiser = optim.Adam(params, lr=0.01)
        trainer = fast.trainer(params, samples, optimiser, batch, clip=0.5)
        losses = [trainer.advance(part) for part in parts]
        assert np.concatenate(losses).tobytes() == trainer.losses.tobytes()
        found.append((trainer.losses.tobytes(), *state(params, optimiser)))
    assert found == found[:1] * 3
    assert machine_steps == [180]


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("lift", [True, False])
def test_a_checkpoint_goes_on_to_the_same_bits_in_another_trainer(batch, lift):
    samples = sequences(number=23, longest=7)

    def started():
        params = parameters()
        fast = chainrule.compile(loss, lift=lift)
        return fast.trainer(params, samples, make_adamw(params), batch, clip=1.0)

    whole, first, second = started(), started(), started()
    whole.advance(25)
    first.advance(9)
    kept = first.state_dict()
    first.advance(5)  # which does not change what is kept
    second.advance(2)  # of another past
    second.load_state_dict(kept)
    second.advance(16)
    assert second.losses.tobytes() == whole.losses.tobytes()
    assert state(second.params, second.optimizer) == state(whole.params, whole.optimizer)


def test_a_state_that_does_not_fit_changes_nothing():
    fast, params, optimiser = simple()
    trainer = fast.trainer(params, [(0.5,)], optimiser)
    trainer.advance(3)
    kept = trainer.state_dict()
    before = state(params, optimiser)
    for changes, message in (
        ({"params": {}}, "not of these parameters"),
        ({"params": {"params['p']": np.zeros(3)}}, "has shape"),
        ({"optimizer": {"steps": 1}}, "the state holds"),
        ({"more": 1}, "the state holds"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer.load_state_dict({**kept, **changes})
        assert state(params, optimiser) == before
        assert trainer.taken == 3


def test_parameters_and_moments_may_be_set_between_calls():
    fast, params, optimiser = simple()
    trainer = fast.trainer(params, [(0.5,)], optimiser)
    trainer.advance(5)
    trainer.params["p"][...] = [3.0, 3.0]
    trainer.optimizer.m[:] = 0.0
    trainer.optimizer.v[:] = 0.0
    trainer.optimizer.steps = 0
    assert trainer.advance(1)[0] == pytest.approx(12.5)
    assert params["p"] == pytest.approx([2.9, 2.9], abs=1e-6)
    params["p"] = params["p"].copy()
    with pytest.raises(ValueError, match="it moves another params"):
        trainer.advance(1)


def test_samples_are_those_of_the_moment_it_was_made():
    fast, params, optimiser = simple()
    target = np.array(0.5)
    others = {"p": params["p"].copy()}
    trainer = fast.trainer(params, [(target,)], optimiser)
    target[...] = 7.0
    wanted = fast.train(others, [(np.array(0.5),)], optim.Adam(others, lr=0.1), 4)
    close(trainer.advance(4), wanted)


class Point:
    def __init__(self, x):
        self.x = x


ORIGIN = Point(5.0)


Pair = collections.namedtuple("Pair", "x y")
NOTHING, PAIR, LISTED = (0.0, 0.0), Pair(0.0, 0.0), [0.0, 0.0]
ROWS, ARRAY = {"rows": [[0.0, 1.0], [0.0, 2.0]]}, np.zeros(2)


def asking(p, x):
    known = x is NOTHING or x is PAIR or x is LISTED or x is ARRAY
    if known or any(x is row for row in ROWS["rows"]):
        return p["w"] * 3.0
    return (p["w"] - x[0]) ** 2


def asking_and_printing(p, x):
    print(end="")
    return asking(p, x)


@pytest.mark.parametrize("function", [asking, asking_and_printing])
def test_a_sample_that_is_what_the_function_has_itself_is_that(function):
    fast, params = chainrule.compile(function, on_fallback="eager"), {"w": np.array(0.5)}
    its_own = [NOTHING, PAIR, LISTED, ARRAY, *ROWS["rows"]]
    others = [(*LISTED,), Pair(0.0, 0.0), [0.0, 0.0], np.zeros(2)]
    samples, wanted = [(x,) for x in (*its_own, *others)], [1.5] * 6 + [0.25] * 4
    still = optim.SGD(params, lr=0.0)
    assert fast.trainer(params, samples, still).advance(10).tolist() == wanted
    ran = fast.train(params, samples, still, steps=10, callback=lambda losses, step: None)
    assert ran.tolist() == wanted
    assert fast.evaluator(params, samples)() == pytest.approx(sum(wanted) / 10)


OWN = np.arange(12.0).reshape(4, 3)
COLUMN, TABLE = OWN[:, 0], [[float(k)] for k in range(20_000)]


def beside_own(p, x):
    return ((p["w"] - x) ** 2).sum() + (COLUMN[0] + TABLE[0][0]) * 0.0


@pytest.mark.parametrize("way", ["trainer", "train"])
def test_what_only_lies_between_the_functions_numbers_or_beside_many_is_copied(way, monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.3)
    fast, params, sample = chainrule.compile(beside_own), {"w": np.zeros(2)}, OWN[1, 1:]
    before, optimiser = sample.copy(), optim.SGD(params, lr=0.1)

    def change(*_):
        sample[...] = 100.0

    try:
        if way == "trainer":
            trainer = fast.trainer(params, [(sample,)], optimiser)
            change()
            trainer.advance(6)
        else:
            fast.train(params, [(sample,)], optimiser, steps=6, callback=change, every=1)
    finally:
        sample[...] = before
    close(params["w"], before * (1.0 - 0.8**6))


def test_copies_of_arrays_have_their_order_and_are_as_writeable():
    def f(p, x):
        return p["w"] * (2.0 if x.flags.writeable else 3.0) * (5.0 if x.flags.c_contiguous else 7.0)

    fast, params = chainrule.compile(f, on_fallback="eager"), {"w": np.array(1.0)}
    rows = np.ones((2, 3))
    fixed = rows.copy()
    fixed.flags.writeable = False
    samples = [(x,) for x in (rows, np.asfortranarray(rows), fixed)]
    trainer = fast.trainer(params, samples, optim.SGD(params, lr=0.0))
    assert trainer.advance(3).tolist() == [10.0, 14.0, 15.0]


@pytest.mark.parametrize("wrap", [lambda point: point, lambda point: [point]])
def test_instances_of_other_classes_are_read_as_they_are_then(wrap):
    def error(p, held):
        point = held[0] if isinstance(held, list) else held
        return (p[0] * point.x - 1) ** 2 if point is not ORIGIN else p[0] * 100

    p, points = np.array([1.0]), [Point(2.0), Point(3.0), ORIGIN]
    samples = [(wrap(point),) for point in points]
    fast = chainrule.compile(error, on_fallback="eager")
    trainer, mean = fast.trainer(p, samples, optim.SGD(p, lr=0.0)), fast.evaluator(p, samples)
    assert trainer.advance(3).tolist() == [1.0, 4.0, 100.0], "a copy of ORIGIN would be another"
    assert mean() == 35.0
    points[0].x = 4.0
    assert trainer.advance(3).tolist() == [9.0, 4.0, 100.0]
    assert mean() == pytest.approx(113 / 3)


def test_messages_name_who_was_asked_and_what_was_resized():
    fast = chainrule.compile(lambda p, x: (p * x).sum() ** 2)
    with pytest.raises(ValueError, match="evaluator needs at least one sample"):
        fast.evaluator(np.ones(2), [])
    params = {"a": np.ones(5), "b": np.ones(2)}
    fast = chainrule.compile(lambda p, x: (p["a"] * x).sum() ** 2 + p["b"][0])
    trainer = fast.trainer(params, [(1.0,), (2.0,)], optim.Adam(params, lr=0.1))
    trainer.advance(2)
    for size in (8, 3):  # with fewer numbers, b would have moved by the moments of a
        params["a"].resize(size, refcheck=False)
        before = params["b"].copy()
        with pytest.raises(
            ValueError, match=r"params\['a'\] was resized: it has \d numbers, and had 5"
        ):
            trainer.advance(1)
        assert (params["b"] == before).all()


def test_captured_state_that_changes_is_seen_between_calls():
    params, factor = {"p": np.array([1.0, -2.0])}, [1.0]

    def scaled(p, x):
        return quadratic(p, x) * factor[0]

    trainer = chainrule.compile(scaled).trainer(params, [(0.0,)], optim.SGD(params, lr=0.0))
    assert trainer.advance(2).tolist() == [5.0, 5.0]
    factor[0] = 2.0
    assert trainer.advance(2).tolist() == [10.0, 10.0]


def test_every_kind_of_sample_is_recorded_before_the_first_step(machine_steps):
    seen = []
    fast, params = chainrule.compile(loss, lift=True), parameters()
    samples = sequences(number=12, longest=6)
    trainer = fast.trainer(
        params, samples, optim.Adam(params), progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(k, 5) for k in range(6)]
    made = recordings(fast)
    trainer.advance(12)
    assert recordings(fast) == made


def test_a_step_that_cannot_be_taken_leaves_the_bits_of_the_steps_before(machine_steps):
    """Whatever was asked for at once."""

    def steep(p, x):
        return sum((w * x) ** 4 for w in p["p"]) + sum(w * 0.001 for w in p["p"])

    samples = [(1.0,)] * 37 + [(1e90,)]
    found = []
    for at_once in (100, 1):
        params = {"p": np.linspace(0.1, 0.2, 20)}
        fast = chainrule.compile(steep, lift=True)
        trainer = fast.trainer(params, samples, optim.SGD(params, lr=1e-3))
        calls = 37 // at_once
        for _ in range(calls):
            trainer.advance(at_once)
        with pytest.raises(ArithmeticError):
            trainer.advance(at_once)
        assert trainer.taken == 37
        found.append(state(params, trainer.optimizer))
    assert found[0] == found[1]


# --- clipping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e170, 1e-170])
@pytest.mark.parametrize("clip", [1e-3, 1e3, 1e-160])
def test_a_clipped_step_is_clip_gradients_and_step(lift, size, clip):
    """Also where the squares of the gradient overflow or underflow, which machine code leaves."""

    def product(p, x):
        return sum(w * x for w in p["p"])

    params = {"p": np.arange(1.0, 21.0)}
    others = {"p": params["p"].copy()}
    fast = chainrule.compile(product, lift=lift)
    trainer = fast.trainer(params, [(size,)], optim.SGD(params, lr=1.0, momentum=0.5), clip=clip)
    other = optim.SGD(others, lr=1.0, momentum=0.5)
    for _ in range(3):
        _, grads = fast.value_and_grad(others, size)
        optim.clip_gradients(grads, clip)
        other.step(grads)
    trainer.advance(3)
    np.testing.assert_allclose(params["p"], others["p"], rtol=1e-12)
    np.testing.assert_allclose(trainer.optimizer.velocity, other.velocity, rtol=1e-12)


def test_the_norm_that_clipping_takes_is_of_all_arrays_together():
    params = {"a": np.array([3.0]), "b": np.array(4.0)}
    fast = chainrule.compile(lambda p: (p["a"][0] * p["a"][0] + p["b"] * p["b"]) / 2)
    fast.train(params, [()], optim.SGD(params, lr=1.0), 1, clip=1.0)
    close([params["a"][0], params["b"]], [2.4, 3.2])
    assert optim.clip_gradients([np.array([3e200]), np.array([[4e200]])], 1.0) == pytest.approx(
        5e200
    )


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_must_be_a_positive_number(clip):
    fast, params, optimiser = simple()
    with pytest.raises(ValueError, match="clip must be a positive number"):
        fast.train(params, [(0.0,)], optimiser, 1, clip=clip)


# --- windows --------------------------------------------------------------------------------------


TEXT = np.random.default_rng(5).integers(0, LETTERS, 300).astype(np.uint8)


@pytest.mark.parametrize("batch", [1, 6])
def test_windows_train_like_the_samples_at_their_places(machine_steps, batch):
    windows, params = Windows(TEXT, 7, seed=3), parameters()
    trainer = chainrule.compile(loss, lift=True).trainer(
        params, windows, optim.Adam(params, lr=0.01), batch
    )
    losses = np.concatenate([trainer.advance(n) for n in (1, 30, 9)])
    places = windows.places(0, 40 * batch)
    wanted = by_values(
        lambda k: windows[int(places[k])], 40, batch, None, lambda p: optim.Adam(p, lr=0.01)
    )
    close(losses, wanted)
    assert machine_steps == [40]
    again = parameters()
    fast = chainrule.compile(loss, lift=True)
    optimiser = optim.Adam(again, lr=0.01)
    assert len(fast.train(again, windows, optimiser, 0, batch)) == 0
    whole = fast.train(again, windows, optimiser, 40, batch)
    assert whole.tobytes() == losses.tobytes()


def test_windows_are_read_afresh_and_more_of_them_than_fit_into_one_call(machine_steps):
    text, params = TEXT.copy(), parameters()
    fast = chainrule.compile(loss, lift=True)
    windows = Windows(text, 4)
    trainer = fast.trainer(params, windows, optim.SGD(params, lr=0.0), 5000)
    for _ in range(2):
        chosen = [windows[k] for k in windows.places(trainer.taken * 5000, 5000).tolist()]
        found = trainer.advance(1)[0]
        assert found == pytest.approx(fast.batch_value_and_grad(params, chosen)[0], rel=1e-12)
        text[:] = text[::-1].copy()


def test_windows_are_a_sequence_of_every_place():
    windows = Windows([5, 6, 7, 8], 3)
    assert list(windows) == [([5, 6, 7],), ([6, 7, 8],)]
    assert (windows[-1], windows[:1]) == (([6, 7, 8],), [([5, 6, 7],)])
    assert repr(Windows(range(5000), 10)) == "<4,991 windows of 10 tokens>"
    with pytest.raises(IndexError):
        windows[2]


def test_places_follow_from_the_seed_and_reach_everywhere():
    windows = Windows(np.zeros(1000, int), 3, seed=1)
    places = windows.places(0, 100_000)
    assert (windows.places(70_000, 5) == places[70_000:70_005]).all()
    assert (windows.places(0, 9) != Windows(np.zeros(1000, int), 3, seed=2).places(0, 9)).any()
    counts = np.bincount(places, minlength=998)
    assert len(counts) == 998
    assert 50 < counts.min() <= counts.max() < 160


@pytest.mark.parametrize(
    ("tokens", "length", "error"),
    [([1.0], 1, TypeError), ([[1]], 1, TypeError), ([1, 2], 3, ValueError), ([1], 0, ValueError)],
)
def test_what_is_no_row_of_tokens(tokens, length, error):
    with pytest.raises(error):
        Windows(tokens, length)


# --- evaluators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lift", [True, False])
def test_an_evaluator_gives_the_mean_value_of_the_parameters_as_they_are(lift):
    fast, params = chainrule.compile(loss, lift=lift), parameters()
    training, held_out = sequences(number=20), sequences(number=13, longest=9, seed=8)
    trainer = fast.trainer(params, training, optim.Adam(params, lr=0.05), 4)
    mean = fast.evaluator(params, held_out)
    for _ in range(3):
        wanted = np.mean([fast.value_and_grad(params, *s)[0] for s in held_out])
        assert mean() == pytest.approx(wanted, rel=1e-12)
        trainer.advance(3)


def test_an_evaluator_shares_the_recordings_of_the_trainer():
    fast, params = chainrule.compile(loss, lift=True), parameters()
    fast.trainer(params, sequences(), optim.Adam(params))
    made = recordings(fast)
    fast.evaluator(params, sequences(seed=9))()
    assert recordings(fast) == made


def test_an_evaluator_raises_what_a_call_raises_and_sees_what_changes():
    factor = [1.0]

    def root(p, x):
        return sum(chainrule.sqrt(w * x) for w in p["p"]) * factor[0]

    params = {"p": np.array([4.0, 9.0])}
    mean = chainrule.compile(root, lift=True).evaluator(params, [(1.0,), (4.0,)])
    assert mean() == pytest.approx(7.5)
    factor[0] = 2.0
    assert mean() == pytest.approx(15.0)
    params["p"] = np.array([1.0, 1.0, 1.0])
    assert mean() == pytest.approx(9.0)
    params["p"][1] = -1.0
    with pytest.raises(ValueError, match="sqrt"):
        mean()


def test_an_evaluator_of_extras_and_of_what_is_eager():
    fast = chainrule.compile(lambda p, x: (p["w"] * x, {"more": 1}))
    assert fast.evaluator({"w": np.array(2.0)}, [(1.0,), (2.0,)])() == pytest.approx(3.0)
    seen = []

    def noisy(p, x):
        seen.append(x)
        return p["w"] * x

    plain = chainrule.compile(noisy, on_fallback="eager")
    assert plain.evaluator({"w": np.array(2.0)}, [(1.0,), (2.0,)])() == pytest.approx(3.0)


# --- random numbers -------------------------------------------------------------------------------


def dropping(p, tokens, key):
    """As ``loss``, of embeddings that lose some of their numbers."""
    total = 0.0
    for i, token in enumerate(tokens):
        row = random.dropout(p["embedding"][token], 0.3, random.fold_in(key, i))
        total = total + sum(x * w for x, w in zip(row, p["weights"], strict=True)) ** 2
    return total / len(tokens)


def embeddings():
    chance = np.random.default_rng(3)
    return {"embedding": chance.normal(size=(5, 4)), "weights": chance.normal(size=4)}


def keyed(batch, steps, calls=(), **options):
    """The losses and arrays of a trainer; ``calls``: how many steps at a time."""
    chance, params = np.random.default_rng(0), embeddings()
    samples = [(chance.integers(0, 5, n).tolist(),) for n in chance.integers(2, 8, 25)]
    fast = chainrule.compile(dropping, lift=True)
    trainer = fast.trainer(
        params, samples, optim.Adam(params, lr=0.01), batch, key=random.key(8), **options
    )
    for count in calls or [steps]:
        trainer.advance(count)
    return trainer.losses, params, samples


@pytest.mark.parametrize(("batch", "steps"), [(1, 1000), (6, 50)])
def test_the_samples_of_a_run_get_keys_by_their_number(machine_steps, batch, steps):
    losses, found, samples = keyed(batch, steps)
    params, wanted = embeddings(), []
    optimiser, eager = optim.Adam(params, lr=0.01), chainrule.value_and_grad(dropping)
    for step in range(steps):
        numbers = range(step * batch, (step + 1) * batch)
        results = [
            eager(params, *samples[n % len(samples)], random.fold_in(random.key(8), n))
            for n in numbers
        ]
        wanted.append(sum(value for value, _ in results) / batch)
        optimiser.step({name: sum(grads[name] for _, grads in results) / batch for name in params})
    assert np.abs(losses - wanted).max() < 1e-9
    assert max(np.abs(found[name] - params[name]).max() for name in params) < 1e-9


def test_how_steps_are_asked_for_does_not_change_a_bit_of_what_is_dropped(machine_steps):
    straight, pieces = keyed(4, 40), keyed(4, 40, [1, 7, 20, 12])
    assert straight[0].tolist() == pieces[0].tolist()
    alone = keyed(4, 40, threads=1)
    assert straight[0].tolist() == alone[0].tolist()


def test_windows_take_keys_too(machine_steps):
    params = embeddings()
    windows = Windows(np.arange(40) % 5, 4, seed=2)
    fast = chainrule.compile(dropping, lift=True)
    trainer = fast.trainer(params, windows, optim.SGD(params, lr=0.0), key=random.key(1))
    wanted = [
        dropping(params, *windows[place], random.fold_in(random.key(1), n))
        for n, place in enumerate(windows.places(0, 12).tolist())
    ]
    assert np.allclose(trainer.advance(12), wanted, rtol=1e-12)


def test_what_is_no_key_is_refused_before_anything_is_recorded():
    params = embeddings()
    fast = chainrule.compile(dropping)
    with pytest.raises(TypeError, match="a key is two numbers"):
        fast.trainer(params, [([1, 2],)], optim.SGD(params, lr=0.1), key=3)


# --- losses ---------------------------------------------------------------------------------------


def test_losses_that_are_forgotten_change_no_step(machine_steps):
    trainers = []
    for _ in range(2):
        params = embeddings()
        fast = chainrule.compile(dropping, lift=True)
        samples = [([k % 5, (k + 1) % 5],) for k in range(7)]
        optimiser = optim.Adam(params, lr=0.01)
        trainers.append(fast.trainer(params, samples, optimiser, key=random.key(8)))
    kept, other = trainers
    found = []
    for count in (3, 100, 1, 70):
        found += other.advance(count).tolist()
        other.forget_losses()
        assert len(other.losses) == 0
    last = other.advance(5).tolist()
    assert (other.losses.tolist(), other.taken) == (last, 179)
    assert kept.advance(179).tolist() == found + last == kept.losses.tolist()
    other.load_state_dict(kept.state_dict())
    assert other.losses.tolist() == kept.losses.tolist()
    assert other.advance(4).tolist() == kept.advance(4).tolist()
    assert other.losses.tolist() == kept.losses.tolist()


def test_who_trains_float32_parameters_by_code_of_float64_is_told_once():
    def f(p, x):
        return sum(chainrule.tanh(w * x) for w in p["w"]) ** 2

    params = {"w": np.full(300, 0.1, np.float32)}
    fast = chainrule.compile(f, lift=True)
    with pytest.warns(chainrule.FallbackWarning, match="compile it with dtype='float32'"):
        fast.train(params, [(0.5,), (1.0,)], optim.Adam(params), 2)
    fast.train(params, [(0.5,), (1.0,)], optim.Adam(params), 2)
