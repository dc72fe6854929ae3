"""How many steps a run has decides what is recorded and built for it, and the results agree."""

import signal

import numpy as np
import pytest
from recurrent_programs import at_every_position, text
from recurrent_programs import params as recurrent_params

import chainrule
from chainrule import optim, tanh
from chainrule.compiler.runtime.costs import RECORD
from chainrule.compiler.runtime.ledger import EAGER, IN_RUN, Ledger, Run, allowance
from chainrule.compiler.training import function as training_function
from chainrule.compiler.training.machine_loop import MachineLoop

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def no_allowance():
    if chainrule.engine != "native":
        pytest.skip("these are the costs of the native engine")
    allowance.left = 0.0


def texts(count=200, longest=30):
    return [(text(longest - (5 * k) % (longest - 2), k),) for k in range(count)]


def weights(dtype="float64"):
    return {name: np.array(rows, dtype) for name, rows in recurrent_params().items()}


def texts_task():
    return weights(), texts()


def network(p, x, y):
    hidden = [tanh(w * x + b) for w, b in zip(p["w"], p["b"], strict=True)]
    return (sum(v * h for v, h in zip(p["v"], hidden, strict=True)) - y) ** 2


def network_task(width=8, count=50):
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, count).tolist()
    return {name: rng.normal(size=width) for name in "wbv"}, [(x, x * x) for x in points]


def eager_steps(function, params, samples, optimiser, steps, batch=1, clip=None):
    """The loop that one would write."""
    slopes, losses = chainrule.value_and_grad(function), []
    for step in range(optimiser.steps, optimiser.steps + steps):
        chosen = [samples[(step * batch + k) % len(samples)] for k in range(batch)]
        found = [slopes(params, *sample) for sample in chosen]
        losses.append(sum(value / batch for value, _ in found))
        grads = {name: sum(g[name] / batch for _, g in found) for name in params}
        if clip is not None:
            optim.clip_gradients(grads, clip)
        optimiser.step(grads)
    return losses


def both(function, task, steps, rtol, parts=1, **options):
    """Train by parts of so many steps, compare with the loop, and return the compiled function."""
    (params, samples), (others, _) = task(), task()
    optimiser, other = optim.Adam(params, lr=0.01), optim.Adam(others, lr=0.01)
    fast = chainrule.compile(function)
    losses = [fast.train(params, samples, optimiser, steps, **options) for _ in range(parts)]
    wanted = eager_steps(function, others, samples, other, parts * steps, **options)
    np.testing.assert_allclose(np.concatenate(losses), wanted, rtol=rtol)
    for name in params:
        np.testing.assert_allclose(params[name], others[name], rtol=rtol, atol=rtol)
    return fast


def recordings(fast):
    return fast.dispatch.counts.traces


def is_lifted(fast):
    return fast.report().splitlines()[0].endswith(": lifted")


# --- short and long runs --------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"batch": 3}, {"clip": 0.5}], ids=str)
def test_a_short_run_over_many_lengths_records_nothing(options):
    fast = both(at_every_position, texts_task, 10, 1e-12, **options)
    assert recordings(fast) == 0
    assert fast.dispatch.counts.eager == 10 * options.get("batch", 1)


def test_a_long_run_is_machine_code_from_its_first_step_on():
    (params, samples), (others, _) = network_task(100), network_task(100)
    fast = chainrule.compile(network)
    losses = fast.train(params, samples, optim.SGD(params, lr=1e-4), 12_000)
    wanted = eager_steps(network, others, samples, optim.SGD(others, lr=1e-4), 1000)
    np.testing.assert_allclose(losses[:1000], wanted, rtol=1e-9)
    assert is_lifted(fast)
    assert recordings(fast) == 1
    assert fast.dispatch.counts.eager == 0


@pytest.mark.parametrize("left", [0.0, 0.3])
def test_steps_that_are_too_few_for_machine_code_are_on_the_tape_with_eagers_bits(left):
    allowance.left = left
    (params, samples), (others, _) = network_task(100), network_task(100)
    fast = chainrule.compile(network)
    losses = fast.train(params, samples, optim.Adam(params, lr=0.01), 1000)
    wanted = eager_steps(network, others, samples, optim.Adam(others, lr=0.01), 1000)
    assert losses.tolist() == wanted
    assert all((params[name] == others[name]).all() for name in params)
    assert recordings(fast) == 1
    assert fast.dispatch.counts.replayed > 900
    assert not is_lifted(fast)


def test_samples_of_many_lengths_are_on_the_tape_where_each_comes_often():
    samples = [(text(20 + k % 4, k),) for k in range(100)]
    fast = both(at_every_position, lambda: (weights(), samples), 1000, 1e-12)
    assert recordings(fast) == 4
    assert fast.dispatch.counts.replayed > 600


def odd_paths(p, x):
    total = p["w"][0] * x
    for k in range(100):
        total = total * 0.5 + (p["w"][1] if hash((x, k)) % 2 else tanh(p["w"][0]))
    return total


def test_paths_that_never_come_again_are_eager_soon():
    allowance.left = 0.3
    samples = [(float(k),) for k in range(1000)]
    fast = both(odd_paths, lambda: ({"w": np.array([0.5, 0.25])}, samples), 1000, 1e-12)
    assert recordings(fast) < 12
    assert fast.dispatch.counts.eager > 900


def test_a_short_run_leaves_the_allowance_alone():
    allowance.left = 0.3
    fast = both(at_every_position, texts_task, 40, 1e-12)
    assert recordings(fast) == 0
    assert allowance.left == 0.3


def test_where_the_size_of_a_call_matters_the_first_step_tells():
    fast = both(at_every_position, texts_task, 6000, 1e-6)
    assert is_lifted(fast)
    assert fast.dispatch.counts.eager == 1


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")  # until then they are eager
def test_short_runs_become_machine_code_once_they_have_taken_long_enough():
    fast = both(at_every_position, texts_task, 20, 1e-6, parts=300)
    assert is_lifted(fast)
    assert 20 < fast.dispatch.counts.eager < 6000


def test_the_same_runs_give_the_same_bits():
    def run():
        params, samples = weights(), texts()
        fast, optimiser = chainrule.compile(at_every_position), optim.Adam(params, lr=0.01)
        losses = [fast.train(params, samples, optimiser, steps) for steps in (5, 300, 40, 600, 9)]
        return np.concatenate([*losses, *[array.ravel() for array in params.values()]])

    assert (run() == run()).all()


def test_only_what_the_steps_read_is_recorded():
    allowance.left = np.inf
    params = {"w": np.linspace(-1.0, 1.0, 90)}
    samples = [(np.linspace(0.0, 1.0, 30 + k).tolist(),) for k in range(60)]
    fast = chainrule.compile(lambda p, xs: sum(tanh(w * x) for w, x in zip(p["w"], xs)))  # noqa: B905
    fast.train(params, samples, optim.SGD(params, lr=0.1), steps=2)
    assert recordings(fast) == 2


def test_no_step_records_nothing():
    params, samples = network_task(100)
    fast = chainrule.compile(network)
    assert len(fast.train(params, samples, optim.SGD(params, lr=0.1), steps=0)) == 0
    assert recordings(fast) == fast.dispatch.counts.calls == 0


def test_a_few_steps_of_a_small_function_are_calls_like_any_others(monkeypatch):
    made = []
    begun = training_function.machine_loop
    monkeypatch.setattr(training_function, "machine_loop", lambda *a: made.append(a) or begun(*a))
    fast = both(network, lambda: network_task(30), 1, 1e-12, parts=2000)
    assert len(made) == 1  # by the first run: then it is known how small the function is
    assert fast.dispatch.counts.replayed > 200  # on the tape, once it was worth it


# --- what is known already ------------------------------------------------------------------------


def test_a_short_run_whose_code_is_there_runs_on_it():
    params, samples = network_task(100)
    fast, optimiser = chainrule.compile(network), optim.SGD(params, lr=0.01)
    fast.train(params, samples, optimiser, steps=20_000)
    before = fast.dispatch.counts.eager, recordings(fast)
    fast.train(params, samples, optimiser, steps=60)
    assert (fast.dispatch.counts.eager, recordings(fast)) == before


def test_a_function_that_waits_on_the_tape_is_built_for_a_long_run():
    params, samples = network_task(100)
    fast = chainrule.compile(network)
    while not recordings(fast):
        fast.value_and_grad(params, *samples[0])
    assert not is_lifted(fast)
    before = fast.dispatch.counts.calls
    fast.train(params, samples, optim.SGD(params, lr=0.01), steps=20_000)
    assert is_lifted(fast)
    assert recordings(fast) == 1
    assert fast.dispatch.counts.calls < before + 10  # steps in machine code are no calls


# --- what is asked for costs what it costs --------------------------------------------------------


def test_a_trainer_prepares_all():
    params, samples = weights(), texts()
    fast = chainrule.compile(at_every_position)
    fast.trainer(params, samples, optim.Adam(params, lr=0.01))
    assert is_lifted(fast)
    assert recordings(fast) >= len({len(tokens) for (tokens,) in samples})


def test_steps_of_a_trainer_have_the_same_bits_however_they_are_asked_for():
    losses = []
    for parts in ([20], [10, 10], [1, 19]):
        params, samples = weights(), texts()
        fast = chainrule.compile(at_every_position)
        trainer = fast.trainer(params, samples, optim.Adam(params, lr=0.01))
        losses.append(np.concatenate([trainer.advance(part) for part in parts]))
    assert (losses[0] == losses[1]).all()
    assert (losses[0] == losses[2]).all()


@pytest.mark.parametrize("options", [{"lift": True}, {"on_fallback": "raise"}], ids=str)
def test_who_asks_for_machine_code_gets_it_for_a_short_run(options):
    params, samples = weights(), texts(20)
    fast = chainrule.compile(at_every_position, **options)
    fast.train(params, samples, optim.SGD(params, lr=0.01), steps=2)
    assert is_lifted(fast)
    assert fast.dispatch.counts.eager == 0


# --- of all kinds ---------------------------------------------------------------------------------


def test_a_short_run_on_the_tape_alone_records_nothing():
    params, samples = weights(), texts()
    fast = chainrule.compile(at_every_position, lift=False)
    fast.train(params, samples, optim.SGD(params, lr=0.01), steps=10)
    assert recordings(fast) == 0


def test_a_long_run_on_the_tape_alone_is_recorded():
    params, samples = network_task(100)
    fast = chainrule.compile(network, lift=False)
    fast.train(params, samples, optim.SGD(params, lr=0.01), steps=2000)
    assert recordings(fast) == 1
    assert fast.dispatch.counts.replayed >= 1999


def test_short_runs_in_single_precision_agree():
    params, wanted = weights("float32"), weights()
    fast = chainrule.compile(at_every_position, dtype="float32")
    losses = fast.train(params, texts(), optim.SGD(params, lr=0.01), steps=10)
    eager = eager_steps(at_every_position, wanted, texts(), optim.SGD(wanted, lr=0.01), 10)
    np.testing.assert_allclose(losses, eager, rtol=1e-5)
    assert recordings(fast) == 0


def test_short_runs_over_windows_and_with_keys_agree_with_machine_code():
    def dropped(p, tokens, key):
        kept = chainrule.random.dropout([w * 2.0 for row in p["e"] for w in row], 0.5, key)
        return at_every_position(p, tokens) + sum(kept) ** 2

    def run(**options):
        params = weights()
        windows = chainrule.Windows(np.array(text(400, 1)), 50)
        fast = chainrule.compile(dropped, **options)
        key = chainrule.random.key(3)
        losses = fast.train(params, windows, optim.SGD(params, lr=0.01), steps=5, key=key)
        return losses, recordings(fast)

    (losses, made), (wanted, _) = run(), run(lift=True)
    np.testing.assert_allclose(losses, wanted, rtol=1e-9)
    assert made == 0


COUNTED = [0]


def counting(p, tokens):
    COUNTED[0] += 1
    return at_every_position(p, tokens)


@pytest.mark.parametrize("steps", [7, 300])
def test_what_a_function_counts_outside_is_counted_once_for_each_sample(steps):
    COUNTED[0] = 0
    params = weights()
    fast = chainrule.compile(counting, on_fallback="eager")
    fast.train(params, texts(), optim.SGD(params, lr=0.01), steps=steps)
    assert COUNTED[0] == steps


def falling(p, xs):
    return sum((p["a"] * x + p["b"]).log() for x in xs)


def test_an_error_of_a_short_run_leaves_the_last_whole_step():
    params, other = [{"a": np.array(1.0), "b": np.array(0.5)} for _ in range(2)]
    samples = [([1.0, 2.0],), ([0.5],), ([-9.0],)]
    fast, optimiser = chainrule.compile(falling), optim.SGD(params, lr=0.01)
    with pytest.raises(ValueError, match="log"):
        fast.train(params, samples, optimiser, steps=3)
    assert optimiser.steps == 2
    eager_steps(falling, other, samples, optim.SGD(other, lr=0.01), 2)
    assert params == other


def test_while_code_is_made_ctrl_c_does_not_wait(monkeypatch):
    handlers, start = [], MachineLoop.start

    def watched(loop):
        handlers.append(signal.getsignal(signal.SIGINT))
        return start(loop)

    monkeypatch.setattr(MachineLoop, "start", watched)
    params = weights()
    fast = chainrule.compile(at_every_position)
    fast.train(params, texts(), optim.SGD(params, lr=0.01), steps=6000)
    assert fast.dispatch.counts.eager == 1  # it was made after the first step
    assert handlers == [signal.getsignal(signal.SIGINT)]


# --- the ledger -----------------------------------------------------------------------------------


def trains(book, calls=100, alike=100.0, builds=False):
    return book.trains(1000, Run(calls, alike, builds))


def test_steps_that_were_calls_put_by_half_of_the_time_that_they_take_eagerly():
    book = Ledger()
    assert book.affords_training(0.0)
    assert not book.affords_training(1e-3)
    for _ in range(10):
        with trains(book):
            pass
    earned = 5 * EAGER.of(1000)
    assert book.affords_training(earned * 0.999)
    assert not book.affords_training(earned * 1.001)
    book.begins_training(earned / 2)
    assert book.affords_training(earned * 0.499)
    assert not book.affords_training(earned * 0.501)


def test_what_a_step_records_may_cost_a_part_of_what_the_calls_like_it_take():
    allowance.left = 0.3
    book = Ledger()
    book.instructions = 1000
    enough = RECORD.of(1000) / (IN_RUN * EAGER.of(1000))
    assert book.affords_recording()
    with trains(book, 1000, 1.01 * enough):
        assert book.affords_recording()
    with trains(book, 1000, 0.99 * enough):
        assert not book.affords_recording()
        assert book.calls_to_recording() == 1000
    assert book.affords_recording()


def test_what_steps_record_is_put_by_no_more():
    book = Ledger()
    book.instructions = 1000
    for _ in range(200):
        with trains(book):
            pass
    assert book.affords_training(99 * EAGER.of(1000))
    with trains(book):
        book.recorded(1000)
        book.checked(1000, 0.0)
    assert not book.affords_training(101 * EAGER.of(1000) - RECORD.of(1000))


@pytest.mark.parametrize("builds", [False, True])
def test_calls_of_steps_get_machine_code_where_whole_steps_cannot(builds):
    allowance.left = 0.3
    book = Ledger()
    with trains(book, builds=builds):
        assert book.affords_building(1000) is builds
    assert book.affords_building(1000)


def test_a_run_that_takes_longer_with_machine_code_begins_it_once_others_have_paid():
    allowance.left = 0.3
    book = Ledger()
    assert not book.affords_training(-1.0, longer=1e-3)
    while not book.affords_training(-1.0, longer=1e-3):
        with trains(book):
            pass
    assert book.affords_training(-1.0, longer=1e-3)


def test_the_allowance_is_for_training_too():
    allowance.left = 0.3
    assert Ledger().affords_training(0.29)
    assert not Ledger().affords_training(0.31)
