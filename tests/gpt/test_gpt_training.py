"""Training: it learns, it can be stopped anywhere, and it goes on bit for bit."""

import math

import numpy as np
import pytest

from chainrule import Value, gpt, linear, topological_order
from chainrule.gpt import charts, metrics, training
from chainrule.gpt.metrics import Row

DOCUMENTS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab", "cc", "bad", "dab", "ca"]
SENTENCES = ["the cat sat", "the dog sat", "a cat ran", "a dog ran", "the cat ran", "a dog sat"]
TINY = gpt.Config(width=2, heads=1, block=3, steps=40, seed=3)


def parameters(run):
    return [p.data.hex() for p in run.model.parameters()]


def start(config=TINY):
    return gpt.Run.start(DOCUMENTS, config)


@pytest.mark.parametrize(
    ("preset", "documents", "changes"),
    [
        ("microgpt", DOCUMENTS, {"width": 8}),
        ("course", DOCUMENTS, {"width": 8}),
        ("book", SENTENCES, {"width": 8}),
    ],
)
def test_the_loss_decreases_for_every_preset(preset, documents, changes):
    config = gpt.Config.preset(preset).replace(steps=60, **changes)
    rows = gpt.train(gpt.Run.start(documents, config, validation=0.0))
    losses = [row.loss for row in rows]
    assert len(losses) == 60
    assert sum(losses[-12:]) / 12 < sum(losses[:12]) / 12 - 0.2
    assert losses[0] == pytest.approx(
        math.log(gpt.Run.start(documents, config).tokenizer.size), abs=0.3
    )


def test_the_learning_rate_follows_the_schedule():
    rows = gpt.train(start(TINY.replace(steps=4)))
    assert [row.learning_rate for row in rows] == [0.01 * (1 - step / 4) for step in range(4)]
    flat = TINY.replace(steps=2, schedule="constant")
    assert [row.learning_rate for row in gpt.train(start(flat))] == [0.01, 0.01]


def test_a_batch_is_the_mean_of_its_documents():
    run = start(TINY.replace(batch=3))
    documents = [run.tokenizer.encode(text) for text in run.data.batch(0, 3)]
    alone = []
    for tokens in documents:
        loss = run.model.loss(tokens)
        loss.backward(1 / 3)
        alone.append(loss.data)
    grads = [p.grad for p in run.model.parameters()]
    run.model.zero_grad()
    assert run.engine.backward(documents, [{}] * 3) == sum(alone) / 3
    assert [p.grad for p in run.model.parameters()] == grads
    together = sum(run.model.loss(tokens) for tokens in documents) / 3
    run.model.zero_grad()
    together.backward()
    assert [p.grad for p in run.model.parameters()] == pytest.approx(grads, rel=1e-9, abs=1e-15)


def test_validation_looks_at_what_was_held_out_and_builds_no_graph():
    run = start()
    assert len(run.data.validation) == 1
    expected = run.model.loss(run.tokenizer.encode(run.data.validation[0])).data
    assert run.validation_loss() == expected
    assert gpt.Run.start(["ab"], TINY).validation_loss() is None
    assert all(len(topological_order(p)) == 1 for p in run.model.parameters())
    assert all(isinstance(p, Value) and p.grad == 0.0 for p in run.model.parameters())


def test_rows_report_the_validation_loss_now_and_then_and_at_the_end():
    seen = []
    rows = gpt.train(start(TINY.replace(steps=7)), validate_every=3, report=seen.append)
    assert seen == rows
    assert [row.step for row in rows if row.validation_loss is not None] == [3, 6, 7]


# --- folders ------------------------------------------------------------------------------------


def test_a_folder_holds_the_checkpoint_the_metrics_and_a_picture(tmp_path):
    run = start(TINY.replace(steps=5))
    rows = gpt.train(run, tmp_path / "a" / "run")
    folder = tmp_path / "a" / "run"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["best.safetensors", "checkpoint.safetensors", "loss.svg", "metrics.csv"]
    assert metrics.read(folder) == rows
    assert gpt.load(folder).step == 5
    assert "polyline" in (folder / "loss.svg").read_text()
    lines = (folder / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,loss,learning_rate,validation_loss"
    assert lines[1] == f"1,{rows[0].loss!r},0.01,"


@pytest.mark.parametrize("stop_at", [0, 1, 7, 39, 40])
@pytest.mark.parametrize("save_every", [1, 6])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, stop_at, save_every):
    whole = start()
    options = {"save_every": save_every, "validate_every": 9}
    gpt.train(whole, tmp_path / "whole", **options)

    first = start()
    gpt.train(first, tmp_path / "parts", stop=lambda: first.step >= stop_at, **options)
    assert first.step == stop_at
    second = gpt.Run.resume(gpt.load(tmp_path / "parts"), DOCUMENTS, "again")
    assert second.step == stop_at
    gpt.train(second, tmp_path / "parts", **options)

    assert parameters(second) == parameters(whole)
    assert second.rng.getstate() == whole.rng.getstate()
    assert second.optimizer.m.tobytes() == whole.optimizer.m.tobytes()
    assert second.optimizer.v.tobytes() == whole.optimizer.v.tobytes()
    for name in ("metrics.csv", "loss.svg"):
        both = [(tmp_path / part / name).read_bytes() for part in ("whole", "parts")]
        assert both[0] == both[1], name


def test_metrics_beyond_the_checkpoint_and_torn_lines_go_when_a_run_resumes(tmp_path):
    whole = start()
    gpt.train(whole, tmp_path / "whole")
    run = start()
    gpt.train(run, tmp_path / "parts", stop=lambda: run.step >= 10)
    path = tmp_path / "parts" / "metrics.csv"
    path.write_text(path.read_text() + "11,1.5,0.1,\n12,1.25,0.1,\n13,1.0")
    resumed = gpt.Run.resume(gpt.load(tmp_path / "parts"), DOCUMENTS, "")
    gpt.train(resumed, tmp_path / "parts")
    assert path.read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()


def test_a_finished_run_takes_no_more_steps_unless_there_are_more(tmp_path):
    gpt.train(start(TINY.replace(steps=5)), tmp_path)
    again = gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "")
    before = parameters(again)
    assert gpt.train(again, tmp_path) == []
    assert parameters(again) == before
    longer = gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "", steps=8)
    assert [row.step for row in gpt.train(longer, tmp_path)] == [6, 7, 8]
    assert gpt.load(tmp_path).config.steps == 8
    with pytest.raises(gpt.GPTError, match="at step 8 already"):
        gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "", steps=7)


def test_a_run_resumes_only_with_its_own_documents(tmp_path):
    gpt.train(start(TINY.replace(steps=2)), tmp_path)
    checkpoint = gpt.load(tmp_path)
    with pytest.raises(gpt.GPTError, match="the documents have changed"):
        gpt.Run.resume(checkpoint, [*DOCUMENTS, "new"], checkpoint.source)
    with pytest.raises(gpt.GPTError, match="started on other documents"):
        gpt.Run.resume(checkpoint, DOCUMENTS[::-1], "elsewhere")


def test_fine_tuning_starts_from_the_weights_and_vocabulary_of_a_checkpoint(tmp_path):
    run = start(TINY.replace(steps=5))
    gpt.train(run, tmp_path)
    base = gpt.load(tmp_path)
    tuned = gpt.Run.start(["ab", "ba"], base.config, tokenizer=base.tokenizer, weights=base.weights)
    assert parameters(tuned) == parameters(run)
    assert tuned.step == 0
    assert tuned.tokenizer is base.tokenizer
    gpt.train(tuned)
    with pytest.raises(gpt.GPTError, match="never seen the character 'z'"):
        gpt.train(gpt.Run.start(["z"], base.config, tokenizer=base.tokenizer))


# --- what goes wrong ----------------------------------------------------------------------------


def test_training_that_breaks_down_says_where_and_keeps_the_last_checkpoint(tmp_path):
    run = start(TINY.replace(learning_rate=1e300, schedule="constant"))
    wanted = r"broke down at step \d+ .* smaller learning rate.* nor is any checkpoint; begin again"
    with pytest.raises(gpt.GPTError, match=wanted):
        gpt.train(run, tmp_path, save_every=1)
    checkpoint = gpt.load(tmp_path)
    assert checkpoint.step == run.step
    assert all(np.isfinite(array).all() for array in checkpoint.weights.values())


def test_a_run_that_broke_down_goes_on_from_its_best_model_with_a_smaller_rate(tmp_path):
    run = start(TINY.replace(schedule="constant"))
    run.optimizer.schedule = lambda step: 0.01 if step < 12 else 1e300
    wanted = rf"of no use; go on from the best model with .* {tmp_path}/best.safetensors --lr"
    with pytest.raises(gpt.GPTError, match=wanted):
        gpt.train(run, tmp_path, validate_every=5)
    best = gpt.load(tmp_path / "best.safetensors")
    assert best.step in (5, 10)
    again = gpt.Run.resume(best, DOCUMENTS, "", learning_rate=0.005, clip=1.0)
    rows = gpt.train(again, tmp_path)
    assert (rows[0].step, rows[0].learning_rate) == (best.step + 1, 0.005)
    assert len(metrics.read(tmp_path)) == again.step == 40


def test_the_best_checkpoint_is_that_of_the_lowest_validation_loss(tmp_path):
    run = start(TINY.replace(learning_rate=0.3, schedule="constant"))
    gpt.train(run, tmp_path, validate_every=3)
    measured = metrics.read(tmp_path).validations
    assert gpt.load(tmp_path / "best.safetensors").step == min(measured, key=measured.get) < 40
    best = gpt.Run.resume(gpt.load(tmp_path / "best.safetensors"), DOCUMENTS, "")
    assert best.validation_loss() == min(measured.values())


def test_a_checkpoint_is_saved_when_some_seconds_have_passed(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 4))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    saved = []
    run = start(TINY.replace(steps=9))
    report = lambda row: saved.append(gpt.load(tmp_path).step)  # noqa: E731
    gpt.train(run, tmp_path, save_seconds=10, report=report)
    assert saved == [0, 0, 3, 3, 3, 6, 6, 6, 9]


def test_only_training_changes_when_a_run_goes_on(tmp_path):
    gpt.train(start(TINY.replace(steps=2)), tmp_path)
    with pytest.raises(gpt.GPTError, match="width cannot change"):
        gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "", width=4)


def test_rows_of_many_steps_are_a_sequence_in_little_memory():
    rows = metrics.Rows(Row(k, k / 7, 0.1, k if k % 10 == 0 else None) for k in range(5, 105))
    assert (len(rows), rows[0], rows[-1].step) == (100, Row(5, 5 / 7, 0.1), 104)
    assert rows[5:7] == [Row(10, 10 / 7, 0.1, 10), Row(11, 11 / 7, 0.1)]
    assert rows == list(rows)
    with pytest.raises(ValueError, match="step 107 does not follow step 104"):
        rows.extend([Row(107, 1.0, 0.1)])


def test_the_picture_of_a_long_run_is_small_and_keeps_its_extremes():
    rows = metrics.Rows(
        Row(k, 3.0 + (k == 77_777) * 5, 0.1, 2.5 if k % 100 == 0 else None)
        for k in range(1, 100_001)
    )
    drawn = charts.losses({"": rows})
    assert len(drawn) < 100_000
    left, right = 52.0, 704.0
    assert f"{left + 0.77777 * (right - left):.1f},34.0" in drawn


def test_a_run_that_goes_on_has_the_picture_of_one_that_was_never_stopped(tmp_path):
    gpt.train(start(), tmp_path / "whole")
    calls = iter(range(99))
    gpt.train(start(), tmp_path / "parts", stop=lambda: next(calls) > 20)
    stopped = gpt.load(tmp_path / "parts")
    assert 0 < stopped.step < 40
    gpt.train(gpt.Run.resume(stopped, DOCUMENTS, ""), tmp_path / "parts")
    for name in ("loss.svg", "metrics.csv"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_metrics_that_end_before_the_checkpoint_are_said_before_a_step_is_taken(tmp_path):
    gpt.train(start(TINY.replace(steps=5)), tmp_path)
    path = tmp_path / "metrics.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    before, run = path.read_text(), gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "", 7)
    with pytest.raises(gpt.GPTError, match="ends with step 3, the checkpoint is that of step 5"):
        gpt.train(run, tmp_path)
    assert (run.step, path.read_text()) == (5, before)
    path.unlink()
    assert gpt.train(run, tmp_path)[-1].step == 7


def test_nothing_is_kept_of_a_step_but_its_line_on_the_disk(tmp_path):
    run = gpt.Run.start(DOCUMENTS, TINY, engine="compiled")
    trainers, kept = [], []

    def report(row):
        trainers.append(run.engine._trainer)
        kept.append(len(trainers[-1].losses))

    curve = training.train_summarised(run, tmp_path, report=report)
    assert (len(curve), trainers[-1].taken, set(kept)) == (40, 40, {0})
    assert list(curve.recent) == list(metrics.read(tmp_path).losses)


def test_seconds_are_those_of_steps_alone(monkeypatch):
    now = 0.0

    def passes(call, seconds):
        def slow(*arguments):
            nonlocal now
            now += seconds
            return call(*arguments)

        return slow

    run = start(TINY.replace(steps=6))
    monkeypatch.setattr(training.time, "perf_counter", lambda: now)
    for name, seconds in (("advance", 2.0), ("loss", 100.0), ("prepare", 100.0)):
        monkeypatch.setattr(run.engine, name, passes(getattr(run.engine, name), seconds))
    gpt.train(run, validate_every=2)
    assert (run.seconds, now) == (12.0, 412.0)


# --- streams ------------------------------------------------------------------------------------


TEXT = [
    "to be or",
    "",
    "  not to be",
    "that is",
    "the question",
    "whether",
    "tis nobler in the mind",
]
STREAM = TINY.replace(stream=True, block=6, steps=20, batch=2)


def test_a_stream_is_read_in_windows_as_it_stands():
    run = gpt.Run.start(TEXT, STREAM, validation=0.3)
    assert run.data.training == TEXT[:6]
    assert run.data.validation == TEXT[6:]
    windows = run.data.samples(run.tokenizer, 6, seed=3)
    text = "\n" + "\n".join(TEXT[:6]) + "\n"
    names = [run.tokenizer.name(token) for token in windows.tokens.tolist()]
    assert "".join("\n" if name == "·" else name for name in names) == text
    assert len(windows) == len(text) - 6
    held_out = run.held_out
    assert {len(tokens) for tokens in held_out} == {7}
    assert len(held_out) == 3
    assert held_out[0][-1] == held_out[1][0], "what one window predicts last the next reads first"


def test_a_text_of_one_line_is_split_within_it_and_one_that_is_too_short_refused():
    run = gpt.Run.start(["abcdefghij" * 4], STREAM, validation=0.25)
    assert [len(run.data.training[0]), len(run.data.validation[0])] == [30, 10]
    with pytest.raises(gpt.GPTError, match="a block of 6 needs at least 7: choose a smaller block"):
        gpt.train(gpt.Run.start(["abc"], STREAM, validation=0.0))


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_a_stopped_stream_goes_on_bit_for_bit(tmp_path, engine):
    config = STREAM.replace(clip=0.5, weight_decay=0.1)
    whole, first = (gpt.Run.start(TEXT, config, engine=engine) for _ in range(2))
    gpt.train(whole, tmp_path / "whole", validate_every=4)
    gpt.train(first, tmp_path / "parts", stop=lambda: first.step >= 7, save_every=1)
    second = gpt.Run.resume(gpt.load(tmp_path / "parts"), TEXT, "")
    gpt.train(second, tmp_path / "parts", validate_every=4)
    assert parameters(second) == parameters(whole)


def test_clipped_decayed_streams_compile_to_the_losses_of_eager():
    config = STREAM.replace(steps=200, clip=0.5, weight_decay=0.1, learning_rate=0.05)
    rows = [gpt.train(gpt.Run.start(TEXT, config, engine=e)) for e in ("eager", "compiled")]
    assert rows[0].losses.tolist() == pytest.approx(rows[1].losses.tolist(), abs=1e-9)
    plain = gpt.train(gpt.Run.start(TEXT, config.replace(clip=0.0), engine="compiled"))
    assert abs(plain.losses[-1] - rows[1].losses[-1]) > 1e-6


def test_what_documents_lose_beyond_the_block_is_counted():
    run = gpt.Run.start(["abcd", "abcdefgh", "ab"], TINY.replace(block=5), validation=0.0)
    assert run.data.lost(run.tokenizer, 5) == (1, 4, 9)
    assert run.data.lost(run.tokenizer, 9) == (0, 0, 9)
    stream = gpt.Run.start(TEXT, STREAM)
    assert stream.data.lost(stream.tokenizer, 6) == (0, 0, 0)


# --- models of one's own ------------------------------------------------------------------------


class Gated(gpt.GPT):
    """Its MLP has a gate, and weights for it."""

    @staticmethod
    def shapes(config, vocabulary):
        gates = {
            f"layers.{layer}.mlp.gate": (4 * config.width, config.width)
            for layer in range(config.layers)
        }
        return config.shapes(vocabulary) | gates

    def mlp(self, x, layer, note=lambda name, numbers: None):
        name = f"layers.{layer}.mlp"
        wide, gate = (linear(x, self.weights[f"{name}.{part}"]) for part in ("widen", "gate"))
        hidden = [w * g.sigmoid() for w, g in zip(wide, gate, strict=True)]
        return linear(hidden, self.weights[f"{name}.narrow"])


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_a_model_of_ones_own_trains_and_goes_on_bit_for_bit(tmp_path, engine):
    runs = [gpt.Run.start(DOCUMENTS, TINY, engine=engine, model=Gated) for _ in range(2)]
    assert len(runs[0].model.parameters()) == 74 + 16
    rows = gpt.train(runs[0], tmp_path / "whole")
    assert rows[-1].loss != gpt.train(gpt.Run.start(DOCUMENTS, TINY))[-1].loss
    gpt.train(runs[1], tmp_path / "parts", stop=lambda: runs[1].step >= 9, save_every=1)
    checkpoint = gpt.load(tmp_path / "parts")
    assert checkpoint.model_name.endswith(":Gated")
    with pytest.raises(gpt.GPTError, match=r"of the class \w+:Gated: name it with --model"):
        gpt.Run.resume(checkpoint, DOCUMENTS, "")
    second = gpt.Run.resume(checkpoint, DOCUMENTS, "", model=Gated)
    gpt.train(second, tmp_path / "parts")
    assert parameters(second) == parameters(runs[0])


def test_a_plain_model_is_not_loaded_as_another(tmp_path):
    gpt.train(start(TINY.replace(steps=1)), tmp_path)
    with pytest.raises(gpt.GPTError, match=r"of a gpt.GPT: not \w+:Gated"):
        gpt.load(tmp_path).model(Gated)


def test_intervals_must_be_positive():
    for name in ("save_every", "validate_every"):
        with pytest.raises(gpt.GPTError, match="at least 1"):
            gpt.train(start(), **{name: 0})


def test_metrics_that_are_none_are_refused(tmp_path):
    with pytest.raises(gpt.GPTError, match=r"there is no metrics.csv"):
        metrics.read(tmp_path)
    for content in (b"", b"a,b\n1,2\n", b"\xff\xfe\n"):
        (tmp_path / "metrics.csv").write_bytes(content)
        with pytest.raises(gpt.GPTError):
            metrics.read(tmp_path)


def test_metrics_are_read_up_to_the_first_line_that_makes_no_sense(tmp_path):
    rows = [Row(1, 0.1, 0.01), Row(2, 1 / 3, 0.01, 2.5)]
    header = "step,loss,learning_rate,validation_loss\n"
    good = header + "".join(row.line() for row in rows)
    for tail in (
        "",
        "3,2.5",
        "3,x,0.1,\n4,1.0,0.1,\n",
        "5,1.0,0.1,\n",
        "3,nan,0.1,\n",
        "\n",
        ",,,\n",
    ):
        (tmp_path / "metrics.csv").write_text(good + tail)
        assert metrics.read(tmp_path) == rows, tail
