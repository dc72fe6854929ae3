"""Checkpoints: complete or refused, whatever happens to the file or to the process."""

import dataclasses
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

import forging
import numpy as np
import pytest
from safetensors.numpy import save as serialize

from chainrule import gpt, tensor_files
from chainrule.gpt import checkpoints

DOCUMENTS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab", "cc", "bad", "dab", "ca"]
CONFIG = gpt.Config(width=2, heads=1, block=3, steps=400, seed=3)
SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run stopped at step 3."""
    folder = tmp_path_factory.mktemp("trained")
    run = gpt.Run.start(DOCUMENTS, CONFIG)
    gpt.train(run, folder, stop=lambda: run.step >= 3)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of it to break."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def content(folder):
    return (folder / checkpoints.FILE).read_bytes()


def overwrite(folder, data):
    (folder / checkpoints.FILE).write_bytes(data)


def refused(folder):
    """The message of the refusal: one line that names the file."""
    with pytest.raises(gpt.GPTError) as caught:
        gpt.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert "run" in message
    return message


def same(a, b):
    assert a.config == b.config
    assert a.tokenizer.tokens == b.tokenizer.tokens
    assert (a.step, a.rng, a.source) == (b.step, b.rng, b.source)
    assert (a.validation, a.fingerprint) == (b.validation, b.fingerprint)
    assert (a.engine, a.dtype) == (b.engine, b.dtype)
    assert a.weights.keys() == b.weights.keys()
    for name, array in a.weights.items():
        assert array.tobytes() == b.weights[name].tobytes()
    assert a.optimizer["steps"] == b.optimizer["steps"]
    for name in "mv":
        assert a.optimizer[name].tobytes() == b.optimizer[name].tobytes()


def test_a_checkpoint_of_an_earlier_version_goes_on_as_it_would_have(tmp_path):
    """It says nothing of what did not exist then, and its loss was the logarithm of a softmax."""
    config = gpt.Config(width=2, heads=1, block=3, steps=9, log_softmax=False)
    documents = ["abca", "bccab", "cab", "dabcad"]
    runs = [gpt.Run.start(documents, config) for _ in range(2)]
    gpt.train(runs[0])
    gpt.train(runs[1], tmp_path, stop=lambda: runs[1].step == 4)
    file = tmp_path / checkpoints.FILE
    metadata, tensors = forging.parts(file)
    choices = json.loads(metadata["config"])
    for name in ("log_softmax", "weight_decay", "clip", "stream"):
        del choices[name]
    del metadata["model"]
    forging.write(file, metadata | {"config": json.dumps(choices)}, tensors)
    resumed = gpt.Run.resume(gpt.load(tmp_path), documents, "")
    assert resumed.config == config
    gpt.train(resumed)
    assert resumed.model.arrays()["head"].tobytes() == runs[0].model.arrays()["head"].tobytes()


def test_everything_goes_out_and_comes_back_bit_for_bit(tmp_path):
    odd = ["zoë 小明", "\u2028 a\tb", '"\\']
    run = gpt.Run.start(odd, CONFIG.replace(seed=-5), source="a file")
    for _ in range(3):
        run.advance()
    checkpoint = run.checkpoint()
    gpt.save(checkpoint, tmp_path)
    same(gpt.load(tmp_path), checkpoint)
    same(gpt.load(tmp_path / checkpoints.FILE), checkpoint)
    count = len(run.model.parameters())
    assert repr(checkpoint) == f"Checkpoint(step 3 of 400, {count} parameters)"


def test_the_file_is_one_any_safetensors_reader_opens(folder):
    from safetensors import safe_open

    with safe_open(folder / checkpoints.FILE, framework="np") as file:
        metadata = file.metadata()
        assert metadata["format"] == "chainrule.gpt"
        assert json.loads(metadata["config"])["width"] == 2
        assert file.get_tensor("weights.head").shape == (5, 2)


def test_no_pickle_is_read_or_written(folder):
    assert b"pickle" not in content(folder)
    overwrite(folder, b"\x80\x04\x95" + b"cos\nsystem\n(S'true'\ntR." + b"\0" * 64)
    refused(folder)


# --- damage -------------------------------------------------------------------------------------


def test_a_checkpoint_cut_short_anywhere_is_refused(folder):
    whole = content(folder)
    for length in [*range(40), *range(40, len(whole), 97), len(whole) - 1]:
        overwrite(folder, whole[:length])
        assert "damaged" in refused(folder), length
    overwrite(folder, whole + b"\0")
    assert "damaged" in refused(folder)


def test_any_flipped_bit_is_noticed(folder):
    whole = bytearray(content(folder))
    rng = random.Random(1)
    places = range(len(whole) * 8)
    for place in rng.sample(places, 20_000 if SOAK else 600):
        whole[place // 8] ^= 1 << place % 8
        overwrite(folder, whole)
        refused(folder)
        whole[place // 8] ^= 1 << place % 8
    overwrite(folder, whole)
    gpt.load(folder)


@pytest.mark.parametrize("length", [0, 1, 99_999_999, 100_000_001, 2**40, 2**63, 2**64 - 1])
def test_an_oversized_header_is_refused_without_being_read(folder, length):
    overwrite(folder, struct.pack("<Q", length) + content(folder)[8:])
    assert "damaged" in refused(folder)


def resave(folder, tensors=None, metadata=None, **changes):
    """The checkpoint with something else in it, and a checksum that fits."""
    from safetensors import safe_open

    with safe_open(folder / checkpoints.FILE, framework="np") as file:
        found = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        texts = dict(file.metadata())
    for name, array in (tensors or {}).items():
        if array is None:
            del found[name]
        else:
            found[name] = array
    texts |= metadata or {}
    for key, change in changes.items():
        texts[key] = json.dumps(json.loads(texts[key]) | change)
    texts["checksum"] = tensor_files.checksum(texts, found)
    overwrite(folder, serialize(found, texts))


def test_resaving_by_itself_changes_nothing(folder):
    before = gpt.load(folder)
    resave(folder)
    same(gpt.load(folder), before)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["weights.layers.0.mlp.widen", "optimizer.v"])
def test_numbers_that_are_not_finite_are_refused(folder, name, number):
    array = np.array(gpt.load(folder).weights["layers.0.mlp.widen"])
    array = np.zeros(checkpoint_size(folder)) if name == "optimizer.v" else array
    array.reshape(-1)[1] = number
    resave(folder, {name: array})
    assert f"{name!r} holds a number that is not finite" in refused(folder)


def checkpoint_size(folder):
    return gpt.load(folder).optimizer["m"].size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensors": {"weights.head": np.zeros((5, 3))}}, "not those of its configuration"),
        ({"tensors": {"weights.head": None}}, "not those of its configuration"),
        ({"tensors": {"weights.extra": np.zeros(1)}}, "not those of its configuration"),
        ({"tensors": {"optimizer.m": np.zeros(3)}}, "not those of its configuration"),
        ({"tensors": {"weights.head": np.zeros((5, 2), np.float32)}}, "not one of float64"),
        ({"config": {"width": 4}}, "not those of its configuration"),
        ({"config": {"layers": 1_000_000}}, "not those of its configuration"),
        ({"config": {"width": 10**30}}, "width must be a whole number"),
        ({"config": {"heads": 0}}, "heads must be a whole number"),
        ({"config": {"more": 1}}, "does not hold the expected fields"),
        ({"config": {"steps": 2}}, "it claims step 3 of 2"),
        ({"tokenizer": {"tokens": ["a", 3]}}, "not one of a tokenizer"),
        ({"tokenizer": {"tokens": ["a"]}}, "not those of its configuration"),
        ({"data": {"source": 3}}, "what its data were"),
        ({"data": {"more": 3}}, "what its data were"),
        ({"metadata": {"step": "-1"}}, "its step is not a number"),
        ({"metadata": {"step": "9" * 5000}}, "its step is not a number"),
        ({"metadata": {"optimizer_steps": ""}}, "its optimizer_steps is not a number"),
        ({"metadata": {"rng": "[3, [1, 2], null]"}}, "its random state cannot be read"),
        ({"metadata": {"rng": "{}"}}, "its random state cannot be read"),
        ({"metadata": {"rng": "import os"}}, "its rng cannot be read"),
        ({"metadata": {"config": "[" * 100_000}}, "its config cannot be read"),
        ({"metadata": {"config": "[]"}}, "does not hold the expected fields"),
        ({"metadata": {"optimizer_steps": "4"}}, "it claims step 3, its optimiser 4"),
        ({"metadata": {"engine": "steam"}}, "it was computed by 'steam' in 'float64', which are"),
        ({"metadata": {"dtype": "int8"}}, "it was computed by 'eager' in 'int8', which are"),
        ({"metadata": {"version": "2"}}, "it has version 2"),
        ({"metadata": {"format": "other"}}, "not one of chainrule's checkpoints"),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_refused(folder, changes, message):
    resave(folder, **changes)
    assert message in refused(folder)


def test_a_forged_checkpoint_is_used_or_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    forged, refused_ = set(), 0
    for name, command, code, errors in forging.outcomes(tmp_path):
        forged.add(name)
        assert code in (0, 1), (name, command)
        assert errors.count("\n") == code, (name, command, errors)
        assert errors.startswith("chainrule: ") or not code, (name, command, errors)
        assert errors.isprintable() or errors[:-1].isprintable(), (name, command)
        refused_ += code
    assert len(forged) > 700
    assert refused_ > 1_000


def test_equal_checkpoints_are_equal_bytes(tmp_path):
    """Whatever the order of hash tables is in the process that writes them."""
    code = (
        "import sys; from chainrule import gpt\n"
        "config = gpt.Config(width=4, heads=1, block=4, steps=3)\n"
        "gpt.train(gpt.Run.start(['ada', 'bob', 'zoë'], config), sys.argv[1])"
    )
    for name in ("one", "two", "three"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=True)
    files = [
        {p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two", "three")
    ]
    assert len(files[0]) == 3
    assert files[0] == files[1] == files[2]


def test_foreign_files_are_refused(folder):
    overwrite(folder, serialize({"weights": np.zeros(3)}, {"format": "pt"}))
    assert "not one of chainrule's checkpoints" in refused(folder)
    overwrite(folder, serialize({"weights": np.zeros(3)}))
    assert "not one of chainrule's checkpoints" in refused(folder)
    for data in (b"", b"PK\x03\x04" + b"\0" * 100, b"hello\n" * 20, os.urandom(4096)):
        overwrite(folder, data)
        assert "damaged or not a safetensors file" in refused(folder)


def test_what_is_not_there_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(gpt.GPTError, match=r"there is no checkpoint in '.*run'"):
        gpt.load(tmp_path / "run")
    with pytest.raises(gpt.GPTError, match=r"there is no checkpoint at '.*nowhere'"):
        gpt.load(tmp_path / "nowhere")
    (tmp_path / "run" / checkpoints.FILE).mkdir()
    with pytest.raises(gpt.GPTError, match="there is no checkpoint"):
        gpt.load(tmp_path / "run")


# --- saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_checkpoint_and_nothing_else(folder, monkeypatch, failing):
    before = gpt.load(folder)
    names = sorted(path.name for path in folder.iterdir())

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        gpt.save(dataclasses.replace(before, step=4), folder)
    monkeypatch.undo()
    same(gpt.load(folder), before)
    assert sorted(path.name for path in folder.iterdir()) == names


def test_the_new_file_is_on_the_disk_before_it_takes_the_old_ones_place(folder, monkeypatch):
    events = []
    real_fsync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: (events.append("fsync"), real_fsync(f)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), real_replace(a, b)))
    gpt.save(gpt.load(folder), folder)
    assert events == ["fsync", "replace", "fsync"]


# --- kill -9 ------------------------------------------------------------------------------------

CHILD = """
import sys
from chainrule import gpt
folder, documents, save_every, *new = sys.argv[1:]
documents = documents.split()
if new:
    run = gpt.Run.start(documents, gpt.Config(width=2, heads=1, block=3, steps=400, seed=3))
else:
    checkpoint = gpt.load(folder)
    run = gpt.Run.resume(checkpoint, documents, checkpoint.source)
gpt.train(run, folder, save_every=int(save_every), validate_every=50,
          report=lambda row: print(row.step, flush=True))
"""


def child(folder, save_every, *new):
    arguments = [str(folder), " ".join(DOCUMENTS), str(save_every), *new]
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("round_", range(10 if SOAK else 1))
def test_a_run_killed_twenty_times_while_saving_ends_as_if_it_never_was(tmp_path, round_):
    whole = gpt.Run.start(DOCUMENTS, CONFIG)
    gpt.train(whole, tmp_path / "whole", validate_every=50)
    folder = tmp_path / "killed"
    folder.mkdir()
    rng = random.Random(f"kill {round_}")
    reached, partial = [], 0
    for life in range(20):
        process = child(folder, 1, *(["new"] if life == 0 else []))
        for _ in range(rng.randint(1, 12)):  # it takes steps, saving after each, ...
            process.stdout.readline()
        time.sleep(rng.uniform(0, 0.01))  # ... and is killed anywhere within one
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        partial += len(list(folder.glob(".*.partial")))
        reached.append(gpt.load(folder).step)
    assert reached == sorted(reached)
    assert reached[0] > 0
    assert reached[-1] < 400, "the run must not be over before the last kill"
    last = child(folder, 100)
    last.communicate()
    assert last.returncode == 0
    expected, found = gpt.load(tmp_path / "whole"), gpt.load(folder)
    same(found, expected)
    for name in ("metrics.csv", "loss.svg"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(folder.glob(".*")), "nothing half written, and no lock, is left"
    print(f"steps at the kills: {reached}; torn temporary files: {partial}")
