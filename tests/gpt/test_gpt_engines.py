"""Training by compiled code: the losses of eager to rounding, and its own to the last bit."""

import dataclasses
import importlib
import random
import signal

import numpy as np
import pytest

import chainrule
from chainrule import gpt
from chainrule.gpt import devices, engines, metrics
from chainrule.gpt.model import GPT

DOCUMENTS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab", "cc", "bad", "dab", "ca"]
LONG = 1000 if chainrule.engine == "native" else 100  # steps
TINY = gpt.Config(width=2, heads=1, block=3, steps=40, seed=3)


def start(config=TINY, engine="compiled", **options):
    return gpt.Run.start(DOCUMENTS, config, engine=engine, **options)


def parameters(run):
    return [p.data.hex() for p in run.model.parameters()]


def losses(run):
    return [row.loss for row in gpt.train(run)]


def difference(config, documents=DOCUMENTS):
    """How far the losses of the two engines are apart, at most."""
    runs = [gpt.Run.start(documents, config, engine=engine) for engine in ("eager", "compiled")]
    rows = [gpt.train(run) for run in runs]
    assert [row.step for row in rows[1]] == list(range(1, config.steps + 1))
    assert [row.learning_rate for row in rows[0]] == [row.learning_rate for row in rows[1]]
    measured = [[row.step for row in part if row.validation_loss is not None] for part in rows]
    assert measured[0] == measured[1] != []
    pairs = [(a.loss, b.loss) for a, b in zip(*rows, strict=True)]
    pairs += [
        (a.validation_loss, b.validation_loss)
        for a, b in zip(*rows, strict=True)
        if a.validation_loss is not None
    ]
    weights = [run.model.arrays() for run in runs]
    pairs += [
        (a, b) for name in weights[0] for a, b in
        zip(weights[0][name].ravel(), weights[1][name].ravel(), strict=True)
    ]  # fmt: skip
    return max(abs(a - b) for a, b in pairs)


def test_a_thousand_compiled_losses_are_within_1e_9_of_eager():
    assert difference(TINY.replace(steps=1000)) < 1e-9


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 3},
        {"batch": 16, "steps": 10},
        {"layers": 2, "width": 4, "heads": 2},
        {"activation": "squared relu", "zero_projections": True, "schedule": "cosine"},
        {"block": 8, "schedule": "constant"},
        {"dropout": 0.1, "width": 8, "heads": 2, "steps": LONG},
        {"dropout": 0.2, "batch": 5, "layers": 2},
        {"dropout": 0.4, "stream": True},
    ],
    ids=str,
)
def test_every_kind_of_model_compiles_to_the_losses_of_eager(changes):
    assert difference(TINY.replace(**changes)) < 1e-9


def test_a_share_that_is_dropped_changes_every_step_but_no_validation():
    plain, dropped = TINY.replace(learning_rate=0.0), TINY.replace(learning_rate=0.0, dropout=0.5)
    rows = [gpt.train(start(config, validation=0.3)) for config in (plain, dropped)]
    assert [r.validation_loss for r in rows[0]] == [r.validation_loss for r in rows[1]]
    again = len(DOCUMENTS) - 3  # steps until a document is read again
    losses = [row.loss for row in rows[1]]
    assert len(losses) > again
    assert all(a.loss == b.loss for a, b in zip(rows[0], rows[0][again:], strict=False))
    assert sum(a != b for a, b in zip(losses, losses[again:], strict=False)) > len(losses) / 2


def test_a_model_that_drops_is_sampled_whole():
    run = start(TINY.replace(dropout=0.9, block=8))
    gpt.train(run)
    whole = GPT.of(TINY.replace(block=8), run.model.weights)
    texts = [gpt.generate(model, run.tokenizer, random.Random(1)) for model in (run.model, whole)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_a_run_with_dropout_goes_on_to_the_same_bits(engine):
    config = TINY.replace(dropout=0.3, batch=2, steps=20)
    straight = start(config, engine)
    gpt.train(straight)
    stopped = start(config, engine)
    for _ in range(7):
        stopped.advance()
    resumed = gpt.Run.resume(stopped.checkpoint(), DOCUMENTS, stopped.data.source)
    gpt.train(resumed)
    assert parameters(resumed) == parameters(straight)


def test_words_compile_too():
    sentences = ["the cat sat", "the dog sat", "a cat ran", "a dog ran", "the cat ran", "a dog sat"]
    assert difference(TINY.replace(tokens="word", block=4), sentences * 2) < 1e-9


def test_nothing_of_the_model_is_left_to_eager(recwarn):
    run = start(TINY.replace(batch=2))
    gpt.train(run)
    report = run.engine._function.report()
    assert " 0 eager" in report, report
    assert "eager because" not in report
    assert [str(warning.message) for warning in recwarn] == []


def test_a_model_of_given_weights_is_that_model():
    run = start(engine="eager")
    model = GPT.of(run.config, run.model.weights)
    assert model.loss([4, 0, 1]).data == run.model.loss([4, 0, 1]).data
    assert model.vocabulary == run.model.vocabulary
    assert model.parameters() == run.model.parameters()


@pytest.mark.parametrize(("batch", "stop_at"), [(1, 0), (1, 7), (1, 40), (3, 1), (3, 39)])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, batch, stop_at):
    options = {"save_every": 1, "validate_every": 9}
    whole, first = start(TINY.replace(batch=batch)), start(TINY.replace(batch=batch))
    gpt.train(whole, tmp_path / "whole", **options)
    gpt.train(first, tmp_path / "parts", stop=lambda: first.step >= stop_at, **options)
    assert first.step == stop_at
    second = gpt.Run.resume(gpt.load(tmp_path / "parts"), DOCUMENTS, "again")
    assert (second.step, second.engine.name) == (stop_at, "compiled")
    gpt.train(second, tmp_path / "parts", **options)
    assert parameters(second) == parameters(whole)
    assert second.rng.getstate() == whole.rng.getstate()
    assert second.optimizer.m.tobytes() == whole.optimizer.m.tobytes()
    assert second.optimizer.v.tobytes() == whole.optimizer.v.tobytes()
    both = [(tmp_path / part / "metrics.csv").read_bytes() for part in ("whole", "parts")]
    assert both[0] == both[1]


def test_the_model_always_has_the_weights_of_the_last_step():
    run = start()
    for _ in range(3):
        before = parameters(run)
        run.advance()
        assert parameters(run) != before
        assert run.checkpoint().weights["head"].tolist() == run.engine._weights["head"].tolist()
    assert run.step == run.checkpoint().step == 3


def test_saving_and_validating_come_at_their_steps_though_steps_come_in_lots(tmp_path):
    saved = []
    run = start(TINY.replace(steps=50))
    rows = gpt.train(
        run, tmp_path, save_every=8, validate_every=20,
        report=lambda row: saved.append((row.step, gpt.load(tmp_path).step)),
    )  # fmt: skip
    assert [row.step for row in rows] == list(range(1, 51))
    assert [row.step for row in rows if row.validation_loss is not None] == [20, 40, 50]
    assert all(0 <= step - checkpoint < 8 or checkpoint > step for step, checkpoint in saved)
    assert {0} | {checkpoint for _, checkpoint in saved} == {0, 8, 16, 24, 32, 40, 48}
    assert metrics.read(tmp_path) == rows
    assert gpt.load(tmp_path).step == 50


def test_what_breaks_down_says_where_and_keeps_the_last_checkpoint(tmp_path):
    run = start(TINY.replace(learning_rate=1e300, schedule="constant"))
    with pytest.raises(gpt.GPTError, match=r"broke down at step \d+ .* smaller learning rate"):
        gpt.train(run, tmp_path, save_every=1)
    checkpoint = gpt.load(tmp_path)
    assert checkpoint.step == run.step
    assert all(np.isfinite(array).all() for array in checkpoint.weights.values())


def test_documents_with_unknown_letters_are_refused():
    base = start(engine="eager")
    run = gpt.Run.start(["z"], TINY, tokenizer=base.tokenizer, engine="compiled")
    with pytest.raises(gpt.GPTError, match="never seen the character 'z'"):
        gpt.train(run)


# --- choosing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({}, "compiled"),  # chainrule train
        ({"steps": 100}, "eager"),
        ({"steps": 100, "batch": 16}, "compiled"),
        ({"steps": 100, "dropout": 0.1}, "eager"),
        ({"steps": 500, "dropout": 0.1}, "compiled"),
        ({"width": 64, "steps": 20}, "eager"),
        ({"width": 64, "steps": 200}, "compiled"),
        ({"width": 4, "heads": 1, "block": 4}, "eager"),
        ({"width": 64, "layers": 4, "block": 32, "steps": 5}, "eager"),
        ({"width": 64, "layers": 4, "block": 32, "steps": 100}, "compiled"),
        ({"width": 64, "layers": 4, "block": 32, "steps": 100, "dropout": 0.1}, "compiled"),
        ({"width": 64, "layers": 4, "block": 32, "steps": 20, "stream": True}, "compiled"),
        ({"width": 128, "layers": 2, "steps": 30}, "compiled"),  # built from small models
        ({"width": 128, "layers": 4, "block": 64, "steps": 1, "stream": True}, "compiled"),
    ],
    ids=str,
)
def test_auto_compiles_what_would_take_eager_longer(monkeypatch, changes, engine):
    monkeypatch.setattr(engines, "scalar_engine", "native")
    monkeypatch.setattr(engines, "find_spec", lambda name: True)
    run = gpt.Run.start(gpt.names(), gpt.Config().replace(**changes), engine="auto")
    assert run.engine.name == engine
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    run = gpt.Run.start(gpt.names(), gpt.Config().replace(**changes), engine="auto")
    assert run.engine.name == "eager", "the tape alone does not pay"


def test_auto_compiles_a_model_of_ones_own_like_ours(monkeypatch):
    class Own(gpt.GPT):
        """Another class is never built from small models."""

    monkeypatch.setattr(engines, "scalar_engine", "native")
    monkeypatch.setattr(engines, "find_spec", lambda name: True)
    config = gpt.Config(width=64, layers=4, block=32, steps=300, stream=True)
    run = gpt.Run.start(gpt.names(), config, engine="auto", model=Own)
    assert run.engine.name == "compiled"


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_documents_held_out_are_recorded_before_the_first_step_the_longest_of_all_first(dropout):
    documents = ["ab" * k for k in (2, 3, 3, 2, 3, 2, 3, 2)] + ["ab" * 5, "a"]
    config = gpt.Config(width=4, heads=1, steps=8, dropout=dropout)
    run = gpt.Run.start(documents, config, engine="compiled", validation=0.0)
    run.data = dataclasses.replace(run.data, training=documents[:8], validation=documents[8:])
    run.engine = engines.make("compiled", run.model, run.tokenizer, run.data)
    seen = []
    run.prepare(lambda done, total: seen.append((done, total)))
    assert sorted({*seen}) == [(k, 4) for k in range(5)]
    assert seen == sorted(seen)
    dispatch = run.engine._function.dispatch
    variants = [v for one in dispatch.structures.values() for v in one.variants]
    codes = {id(v.binding.machine) for v in variants if v.binding is not None}
    recorded = dispatch.counts.traces
    assert len(codes) == 1, "one machine code serves all lengths"
    run.take_steps(8)
    assert run.validation_loss() is not None
    assert dispatch.counts.traces == recorded, "nothing is recorded later"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "fast"}, "the engine must be one of .*, not 'fast'"),
        ({"dtype": "float16"}, "the dtype must be one of .*, not 'float16'"),
        ({"dtype": "float32", "engine": "eager"}, "--dtype float32 needs --engine compiled"),
    ],
)
def test_what_cannot_be_chosen(options, message):
    with pytest.raises(gpt.GPTError, match=message):
        start(**options)


def test_float32_trains_and_resumes_in_float32(tmp_path):
    whole, run = start(dtype="float32"), start(engine="auto", dtype="float32")
    rows = gpt.train(whole)
    gpt.train(run, tmp_path, stop=lambda: run.step >= 10, save_every=1)
    second = gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "again")
    assert second.engine.dtype == "float32"
    assert second.optimizer.m.dtype == np.float32
    gpt.train(second, tmp_path)
    assert parameters(second) == parameters(whole)
    assert [row.loss for row in rows] == pytest.approx(losses(start()), abs=1e-3)


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_ctrl_c_stops_between_steps_and_the_same_run_goes_on(tmp_path, engine):
    whole, run = start(engine=engine), start(engine=engine)
    gpt.train(whole, tmp_path / "whole")
    schedule, pressed = run.optimizer.schedule, []

    def rate(step):
        if step == 11 and not pressed:
            pressed.append(step)
            signal.raise_signal(signal.SIGINT)
        return schedule(step)

    run.optimizer.schedule = rate
    with pytest.raises(KeyboardInterrupt):
        gpt.train(run, tmp_path / "parts")
    assert run.step >= 12
    gpt.train(run, tmp_path / "parts")
    assert parameters(run) == parameters(whole)
    assert metrics.read(tmp_path / "parts") == metrics.read(tmp_path / "whole")


def test_ctrl_c_waits_until_jax_is_imported(monkeypatch):
    imported = []

    def slowly(name):
        if not imported:
            signal.raise_signal(signal.SIGINT)
        imported.append(name)

    monkeypatch.setattr(importlib, "import_module", slowly)
    with pytest.raises(KeyboardInterrupt):
        devices.imported_jax()
    assert imported == ["jax.experimental.multihost_utils", "jax"]
