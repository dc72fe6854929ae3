"""Training by JAX: the losses of eager, on any number of devices and processes.

Processes are started by the command line, as people start them, on one machine: their collectives
go through gloo. They cost seconds each, so a few of them test several things at once.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from chainrule import gpt
from chainrule.cli import app
from chainrule.gpt import array_loss, checkpoints, metrics, model

jax = pytest.importorskip("jax")

DOCUMENTS = ["abca", "b", "cab", "d", "acdb", "bb", "dc", "abab", "c", "bad", "dab", "a"]
TINY = gpt.Config(
    width=4, heads=2, block=3, steps=6, batch=4, learning_rate=0.05, schedule="constant", seed=3
)
OPTIONS = [
    *("--width", "4", "--heads", "2", "--block", "3", "--batch", "4", "--lr", "0.05"),
    *("--schedule", "constant", "--seed", "3", "--samples", "0"),
]


def start(config=TINY, engine="jax", **options):
    return gpt.Run.start(DOCUMENTS, config, engine=engine, **options)


def rows_of(config, engine="jax", **options):
    run = start(config, engine, **options)
    return gpt.train(run, validate_every=3), run.engine.weights()


SLURM_PORTS = range(61440, 65536)  # one of which JAX takes by the number of the job


def free_port(among=None):
    for port in [0] if among is None else random.sample(among, 100):
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("localhost", port))
            return found.getsockname()[1]
    raise AssertionError("no port is free")


class Processes:
    """Some processes that train together, one device each; ``slurm``: found by its variables."""

    def __init__(self, count, *arguments, devices=1, slurm=False):
        port = free_port(SLURM_PORTS if slurm else None)
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        self.started = []
        for k in range(count):
            together = ["--coordinator", f"localhost:{port}"]
            together += ["--processes", str(count), "--process", str(k)]
            if slurm:
                together = ["--coordinator", "auto"]
                environment |= {
                    "SLURM_JOB_ID": str(port - SLURM_PORTS.start),
                    "SLURM_STEP_NODELIST": "localhost",
                    "SLURM_NTASKS": str(count),
                    "SLURM_PROCID": str(k),
                    "SLURM_LOCALID": "0",
                }
            command = [sys.executable, "-m", "chainrule", "train", *map(str, arguments)]
            self.started.append(
                subprocess.Popen(
                    [*command, *(together if count > 1 else ())],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.started:
            process.kill()
            with contextlib.suppress(ValueError):  # it was read to its end
                process.communicate()  # which closes its pipes

    def finish(self):
        """Wait for all; what the first one printed."""
        found = [process.communicate(timeout=500) for process in self.started]
        assert [p.returncode for p in self.started] == [0] * len(self.started), found
        printed = [re.sub(r"\[Gloo\].*\n", "", out) for out, _ in found]
        assert printed[1:] == [""] * (len(found) - 1)
        return printed[0]


@dataclass
class Trained:
    """What became of a run."""

    losses: list[float]
    weights: dict[str, Any]
    moments: Any


@pytest.fixture(scope="module")
def whole():
    """The run of one process, on one device, that others are compared with."""
    run = start()
    losses = gpt.train(run).losses
    return Trained(losses, run.engine.weights(), run.optimizer.state_dict()["v"])


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(DOCUMENTS))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip": 0.5, "weight_decay": 0.01, "log_softmax": False, "layers": 2},
        {"dropout": 0.3},  # by the same random numbers
    ],
)
def test_its_losses_and_weights_are_eagers(changes):
    config = TINY.replace(**changes)
    (wanted, weights), (found, ours) = rows_of(config, "eager"), rows_of(config)
    assert found.losses == pytest.approx(wanted.losses, abs=1e-12)
    assert list(found.validations.values()) == pytest.approx(
        list(wanted.validations.values()), abs=1e-12
    )
    for name, array in weights.items():
        assert ours[name] == pytest.approx(array, abs=1e-10)


@pytest.mark.parametrize("changes", [{}, {"stream": True}])
def test_a_large_model_is_not_recorded_and_has_eagers_losses(changes, monkeypatch):
    config = TINY.replace(**changes)
    (wanted, weights), recorded = rows_of(config, "eager"), []
    monkeypatch.setattr(model, "LARGE", 0)
    monkeypatch.setattr(array_loss, "_recorded", lambda *arguments: recorded.append(arguments))
    found, ours = rows_of(config)
    assert not recorded
    assert found.losses == pytest.approx(wanted.losses, abs=1e-12)
    assert list(found.validations.values()) == pytest.approx(
        list(wanted.validations.values()), abs=1e-12
    )
    for name, array in weights.items():
        assert ours[name] == pytest.approx(array, abs=1e-10)


def test_the_source_of_a_large_model_is_compared_with_it_at_its_size(monkeypatch):
    monkeypatch.setattr(model, "LARGE", 0)
    right = array_loss.sum_of_positions

    def wrong(config):
        loss = right(config)

        def other(weights, document, counted):  # as nothing that is recorded shows
            return loss(weights, document, counted) * (2.0 if len(weights["head"]) == 5 else 1.0)

        return other

    monkeypatch.setattr(array_loss, "sum_of_positions", wrong)
    monkeypatch.setattr(array_loss, "FEW", 0)
    with pytest.raises(gpt.GPTError, match=r"JAX cannot train this model: .*differs from eager"):
        gpt.train(start())


def test_a_stream_in_single_and_half_precision():
    config = TINY.replace(stream=True, steps=4)
    wanted = gpt.train(start(config, "eager")).losses
    assert gpt.train(start(config, dtype="float32")).losses == pytest.approx(wanted, abs=1e-5)
    half = start(config, dtype="bfloat16")
    assert gpt.train(half).losses == pytest.approx(wanted, abs=0.05)
    assert half.optimizer.m.dtype == np.float32


def test_a_run_that_is_stopped_goes_on_to_the_same_bits(whole, tmp_path):
    some = start()
    gpt.train(some, tmp_path, stop=lambda: some.step >= 2)
    step = gpt.load(tmp_path).step
    assert 2 <= step < 6
    again = gpt.Run.resume(gpt.load(tmp_path), DOCUMENTS, "")
    gpt.train(again, tmp_path)
    assert metrics.read(tmp_path).losses == whole.losses
    assert again.engine.weights()["head"].tolist() == whole.weights["head"].tolist()
    assert again.optimizer.state_dict()["v"].tolist() == whole.moments.tolist()


def test_a_loss_that_is_not_finite_ends_it_after_the_last_good_step(tmp_path):
    run = start(TINY.replace(learning_rate=1e200, log_softmax=False))
    with pytest.raises(gpt.GPTError, match="broke down at step 2"):
        gpt.train(run, tmp_path)
    assert run.step == 1
    assert gpt.load(tmp_path).step == 0, "weights of no use do not take its place"


def test_two_and_then_four_processes_have_the_losses_of_one(whole, text, tmp_path):
    folder = tmp_path / "run"
    options = ["--engine", "jax", *OPTIONS, "--validate-every", 3]
    with Processes(2, text, *options, "--steps", 3, "--output", folder, slurm=True) as two:
        assert "2 cpu devices of 2 processes" in two.finish()
    more = ["--steps", 6, "--samples", 0, "--save-every", 2]
    with Processes(4, "--resume", folder, "--shard", "params", *more) as four:
        assert "continuing after step 3 of 6" in four.finish()
    assert metrics.read(folder).losses == pytest.approx(whole.losses, abs=1e-12)
    for name, array in gpt.load(folder).weights.items():
        assert array == pytest.approx(whole.weights[name], abs=1e-12)


def test_a_process_that_is_killed_ends_the_others_and_the_run_goes_on(text, tmp_path):
    folder = tmp_path / "run"
    with Processes(
        *(2, text, "--engine", "jax", *OPTIONS, "--steps", 10**6, "--output", folder),
        *("--save-seconds", 0.2),
    ) as two:
        deadline = time.monotonic() + 500
        while not (folder / checkpoints.FILE).exists() or not gpt.load(folder).step:
            assert time.monotonic() < deadline
            assert two.started[0].poll() is None, two.started[0].communicate()
            time.sleep(0.2)
        two.started[1].send_signal(signal.SIGKILL)
        _, said = two.started[0].communicate(timeout=120)
        assert two.started[0].returncode == 1
    (line,) = [x for x in said.splitlines() if x.startswith("chainrule: ")]
    assert re.search(r"another process of this run has ended .* --resume \S*run$", line)
    kept = gpt.load(folder)
    run = gpt.Run.resume(kept, DOCUMENTS, str(text), steps=10**6)
    assert run.take_steps(1)[0].step == kept.step + 1


def test_each_device_holds_its_part_of_the_parameters():
    code = """
from chainrule import gpt
config = gpt.Config(width=8, heads=2, block=2, steps=1, batch=4, seed=3)
for shards in (False, True):
    devices = gpt.Devices(shard_params=shards)
    run = gpt.Run.start(["ab", "ba"], config, engine="jax", devices=devices)
    run.take_steps(1)
    print(*run.engine.held().values(), 3 * 8 * config.parameter_count(3))
"""
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    (*copies, whole), (*parts, _) = [[*map(int, x.split())] for x in done.stdout.splitlines()]
    assert copies == [whole] * 4
    assert parts == [whole // 4] * 4  # every matrix has an axis that 4 divides


def test_several_devices_of_one_process_share_a_batch(whole, text, tmp_path):
    folder = tmp_path / "run"
    options = ["--engine", "jax", *OPTIONS, "--steps", 6, "--output", folder]
    with Processes(1, text, *options, "--shard", "params", "--devices", 4, devices=4) as one:
        assert "4 cpu devices" in one.finish()
    assert metrics.read(folder).losses == pytest.approx(whole.losses, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "jax", "--devices", "64"], "there is 1 device here, not 64"),
        (["--engine", "jax", "--devices", "0"], "the number of devices must be at least 1, not 0"),
        (["--engine", "jax", "--devices", "some"], "--devices takes all or a number, not 'some'"),
        (["--engine", "compiled", "--devices", "2"], "--devices is for --engine jax"),
        (["--shard", "params"], "--shard is for --engine jax"),
        (["--engine", "compiled", "--dtype", "bfloat16"], "--dtype bfloat16 needs --engine jax"),
        (
            ["--engine", "jax", "--dtype", "bfloat16", "--dropout", "0.1"],
            "dropout needs --dtype float32 or float64: bfloat16 rounds its counters",
        ),
        (
            ["--engine", "jax", "--coordinator", "auto", "--processes", "2"],
            "--coordinator auto counts the processes itself",
        ),
        (
            ["--engine", "jax", "--coordinator", "auto"],
            "found no cluster that JAX knows (Slurm, Open MPI, Kubernetes, TPUs): name",
        ),
        (["--engine", "jax", "--processes", "2"], "name the coordinator, the number of processes"),
        (
            *(["--engine", "jax", "--coordinator", "a:1", "--processes", "2", "--process", "2"],),
            "process 2 is none of 2: they are counted from 0",
        ),
    ],
)
def test_what_cannot_be_is_one_clear_line(options, words, text, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        app(["train", str(text), *options, "--output", str(tmp_path / "run")])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert line.startswith(f"chainrule: {words}")


def test_a_batch_that_devices_cannot_share_and_jax_that_is_not_there(monkeypatch):
    three = [*jax.devices()] * 3
    monkeypatch.setattr(jax, "local_devices", lambda: three)
    monkeypatch.setattr(jax, "devices", lambda: three)
    with pytest.raises(gpt.GPTError, match="a batch of 4 cannot be shared by 3 cpu devices"):
        start()
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(gpt.GPTError, match=r"jax needs JAX: pip install 'chainrule\[jax\]'"):
        start()
