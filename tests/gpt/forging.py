"""Forged checkpoints: everything that a reader could trust, replaced, with a checksum that fits.

``forgeries`` takes the parts of a sound checkpoint and yields (name, metadata, tensors). Run as a
script it tries them all on the commands and prints what each of them said:

    python tests/gpt/forging.py
"""

import copy
import io
import json
import math
import os
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as serialize

from chainrule import gpt, tensor_files
from chainrule.cli import app
from chainrule.gpt import checkpoints

#: what stands where a number, a word, a list or a dictionary was expected
HOSTILE = {
    "null": None,
    "true": True,
    "a negative": -1,
    "zero": 0,
    "a fraction": 0.5,
    "a huge integer": 10**400,
    "a large integer": 2**63,
    "a negative huge integer": -(10**400),
    "a huge float": 1e308,
    "infinity": math.inf,
    "NaN": math.nan,
    "a word": "word",
    "no word": "",
    "control characters": "\x1b[2J\x00\u202e",
    "a surrogate": "\udc80",
    "a list": [],
    "a list of lists": [[1, [2]]],
    "a dictionary": {},
    "a dictionary in a list": [{"a": {}}],
}
SOURCES = {
    "/dev/zero": "/dev/zero",
    "/dev/null": "/dev/null",
    "/dev/urandom": "/dev/urandom",
    "a folder": ".",
    "the root": "/",
    "a null byte": "text\x00.txt",
    "too long a name": "x" * 5000,
    "a surrogate": "\udc80.txt",
    "nobody's home": "~nobody-here/x",
    "a pipe": "pipe",
    "a line break": "a\nb\nc",
}
NUMBERS = (1e154, 1e308, -1e308, 5e-324, 1e-300, -0.0)


def parts(file):
    """The metadata and the tensors of a checkpoint."""
    with safe_open(file, framework="np") as opened:
        tensors = {name: np.array(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
        return dict(opened.metadata()), tensors


def write(file, metadata, tensors):
    """A checkpoint of these parts, its checksum right."""
    metadata = metadata | {"checksum": tensor_files.checksum(metadata, tensors)}
    Path(file).write_bytes(serialize(tensors, metadata))


def forgeries(metadata, tensors):
    """Everything that can be wrong with one thing at a time; some of it is not even wrong."""
    for key in ("config", "tokenizer", "data"):
        whole = json.loads(metadata[key])
        for kind, value in HOSTILE.items():
            yield f"{key} is {kind}", metadata | {key: json.dumps(value)}, tensors
            for field in whole:
                text = json.dumps(whole | {field: value})
                yield f"{key}.{field} is {kind}", metadata | {key: text}, tensors
        for field in whole:
            text = json.dumps({k: v for k, v in whole.items() if k != field})
            yield f"{key} without {field}", metadata | {key: text}, tensors
    for kind, value in HOSTILE.items():
        for place in range(3):
            state = json.loads(metadata["rng"])
            state[place] = value
            yield f"rng[{place}] is {kind}", metadata | {"rng": json.dumps(state)}, tensors
        for place in (0, -1):
            state = json.loads(metadata["rng"])
            state[1][place] = value
            yield f"rng[1][{place}] is {kind}", metadata | {"rng": json.dumps(state)}, tensors
        tokens = json.loads(metadata["tokenizer"])
        tokens["tokens"][0] = value
        yield f"a token is {kind}", metadata | {"tokenizer": json.dumps(tokens)}, tensors
    for name, source in SOURCES.items():
        text = json.dumps(json.loads(metadata["data"]) | {"source": source})
        yield f"the source is {name}", metadata | {"data": text}, tensors
    for key in metadata.keys() - {"checksum"}:
        for text in ("", "0", "-1", "9" * 400, "1e3", "\x00", "[" * 5000, '{"a":' * 5000):
            yield f"{key} is the text {text[:6]!r}", metadata | {key: text}, tensors
        yield f"no {key}", {k: v for k, v in metadata.items() if k != key}, tensors
    for name, array in tensors.items():
        for number in NUMBERS:
            changed = copy.copy(tensors)
            changed[name] = np.full_like(array, number)
            yield f"{name} is {number} everywhere", metadata, changed
        changed = copy.copy(tensors)
        changed[name] = array.reshape(-1)[:0]
        yield f"{name} is empty", metadata, changed
        changed = copy.copy(tensors)
        del changed[name]
        yield f"no {name}", metadata, changed


def attempt(arguments):
    """Run a command in this process: its exit code and what it wrote on standard error."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            app([str(a) for a in arguments])
        except SystemExit as exit_:
            return exit_.code, errors.getvalue()
    raise AssertionError("a command ends in an exit code")


def prepare(folder):
    """A sound run in the folder ``run``, stopped at step 3 of 9; the parts of its checkpoint."""
    text = Path(folder, "text.txt")
    text.write_text("\n".join(["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab"]))
    os.mkfifo(Path(folder, "pipe"))
    documents = gpt.read_documents(text)
    config = gpt.Config(width=2, heads=1, block=3, steps=9, seed=3)
    run = gpt.Run.start(documents, config, source=str(text))
    gpt.train(run, Path(folder, "run"), stop=lambda: run.step >= 3)
    return parts(Path(folder, "run", checkpoints.FILE))


def outcomes(folder):
    """Try every forgery on every command that reads checkpoints: (name, command, code, errors)."""
    metadata, tensors = prepare(folder)
    original = Path(folder, "run")
    for number, (name, words, numbers) in enumerate(forgeries(metadata, tensors)):
        run = Path(folder, f"forged {number}")
        shutil.copytree(original, run)
        write(run / checkpoints.FILE, words, numbers)
        for command in (
            ["sample", run, "--count", "2", "--seed", "1"],
            ["inspect", run],
            ["train", "--resume", run, "--samples", "1"],
        ):
            yield name, command[0], *attempt(command)
        shutil.rmtree(run)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        tried = refused = crashed = 0
        for name, command, code, errors in outcomes(scratch):
            tried, refused = tried + 1, refused + (code == 1)
            if code not in (0, 1) or errors.count("\n") != code:
                crashed += 1
                print(f"{name}, {command}: exit code {code}, {errors!r}")
        print(f"{tried} commands on forged checkpoints: {refused} refused, {crashed} otherwise")
