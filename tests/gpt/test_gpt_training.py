"""Training: it learns, it can be stopped anywhere, and it goes on bit for bit."""

import math

import numpy as np
import pytest

from chainrule import Value, gpt, topological_order
from chainrule.gpt import metrics
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
    assert run.engine.backward(documents) == sum(alone) / 3
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
    assert names == ["checkpoint.safetensors", "loss.svg", "metrics.csv"]
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
    with pytest.raises(gpt.GPTError, match=r"broke down at step \d+ .* smaller learning rate"):
        gpt.train(run, tmp_path, save_every=1)
    checkpoint = gpt.load(tmp_path)
    assert checkpoint.step == run.step
    assert all(np.isfinite(array).all() for array in checkpoint.weights.values())


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
