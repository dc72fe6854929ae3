"""Files of saved functions that are damaged, forged or of another version: one clear error."""

import contextlib
import copy
import json
import random

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save as serialize

import chainrule
from chainrule import FallbackError, SaveError, tensor_files
from chainrule.compiler.saving.reading import FORMAT

TABLE = {3: 2, 5: 0, 9: 1}


@chainrule.operation(partials=lambda y, x, k: k * y * (1 - y))
def logistic(x, *, k=1.0):
    return 1 / (1 + chainrule.exp(-k * x))


def function(weights, keys, data):
    """Gathers, tables, guards of both kinds, a formula of one's own, an array in the result."""
    total = 0.0
    for k in keys:
        total = total + weights[TABLE[k]] * weights[k % 3] + (k if k > 4 else 0.5)
    for x in data:
        total = total + (logistic(total, k=2.0) * x if x > 0 else x)
    return total, {"data": data * 2.0, "count": len(keys)}


WEIGHTS, DATA = [0.1, 0.2, 0.3], np.array([0.5, -0.5, 1.5, 2.5])
CALLS = [(WEIGHTS, [3, 9, 5], DATA), (WEIGHTS, [9, 5], DATA), (WEIGHTS, [9, 5], -DATA)]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The program and the arrays of a file, and its bytes."""
    import math

    from chainrule.compiler.runtime.ledger import allowance

    allowance.left = math.inf
    path = tmp_path_factory.mktemp("saved") / "saved"
    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    for call in CALLS:
        fast.value_and_grad(*call)
    fast.save(path)
    with safe_open(path, framework="np") as file:
        tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["program"]), tensors, path.read_bytes()


def refusal(path):
    with pytest.raises(SaveError) as error:
        chainrule.load(path).report()  # which reads all of it
    message = str(error.value)
    assert message.startswith("cannot load ")
    assert "\n" not in message
    assert len(message) < 1000
    return message


def forge(path, program, tensors, words=()):
    """A file of these parts whose checksum is right."""
    text = program if isinstance(program, str) else json.dumps(program)
    metadata = {"format": FORMAT, "version": "1", "program": text} | dict(words)
    metadata["checksum"] = tensor_files.checksum(metadata, tensors)
    path.write_bytes(serialize(tensors, metadata))
    return path


def use(loaded):
    """Calls of every kind: they give numbers or raise, and the process lives on."""
    for call in CALLS:
        for method in (loaded, loaded.value_and_grad):
            with contextlib.suppress(FallbackError, SaveError, ArithmeticError, ValueError):
                method(*call)


def test_what_was_not_changed_is_read(parts, tmp_path):
    program, tensors, _ = parts
    use(chainrule.load(forge(tmp_path / "saved", program, tensors), build=True))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"format": "other"},
            "it is a safetensors file, but not one of chainrule's saved functions",
        ),
        ({"version": "2"}, "it has version 2; this is 1: a newer chainrule wrote it"),
        ({"version": "x"}, "it has version x; this is 1"),
        ({"program": "{"}, "it is damaged: its program is no JSON"),
        ({"program": "[" * 100_000}, "it is damaged: its program is no JSON"),
        ({"program": "[]"}, "a part has other fields than it should"),
    ],
)
def test_files_of_other_kinds_and_versions_are_refused(parts, tmp_path, words, message):
    program, tensors, _ = parts
    assert message in refusal(forge(tmp_path / "saved", program, tensors, words))


def test_missing_files_and_folders_are_refused(tmp_path):
    assert "there is no such file" in refusal(tmp_path / "none")
    assert "there is no such file" in refusal(tmp_path)


def test_truncated_files_are_refused(parts, tmp_path):
    data = parts[2]
    for length in [0, 1, 7, 8, 9, 100, *range(200, len(data), len(data) // 40), len(data) - 1]:
        (tmp_path / "saved").write_bytes(data[:length])
        assert "damaged" in refusal(tmp_path / "saved")
    (tmp_path / "saved").write_bytes(data + b"\0")
    assert "damaged" in refusal(tmp_path / "saved")


def test_flipped_bytes_are_refused(parts, tmp_path):
    data, chance = parts[2], random.Random(0)
    for _ in range(120):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (tmp_path / "saved").write_bytes(changed)
        refusal(tmp_path / "saved")


HOSTILE = [
    *(None, True, -1, 0, 1, 2**31, 2**40, 2**64, -(2**70), 10**1000, 0.5, "", "x", "\0" * 300),
    *([], [[]], {}, {"float": "nan"}, {"float": "x"}, {"tuple": 3}, {"numpy": ["<f8", "00"]}),
    *(
        {"numpy": ["|O", "00"]},
        {"bytes": "zz"},
        {"table": [[1]]},
        {"operation": "exp"},
        [0, [1], 2],
    ),
]


def places(x, path=()):
    """Every place in JSON."""
    yield path
    if isinstance(x, dict | list):
        for key in x if isinstance(x, dict) else range(len(x)):
            yield from places(x[key], (*path, key))


def test_forged_programs_are_refused_or_harmless(parts, tmp_path):
    program, tensors, _ = parts
    chance = random.Random(1)
    found = [p for p in places(program) if p]
    refused = 0
    for path in chance.sample(found, min(len(found), 200)):
        changed = copy.deepcopy(program)
        inside = changed
        for key in path[:-1]:
            inside = inside[key]
        if chance.random() < 0.15 and isinstance(inside, list):
            del inside[path[-1]]
        else:
            inside[path[-1]] = chance.choice(HOSTILE)
        refused += is_refused(forge(tmp_path / "saved", changed, tensors))
    assert refused > 50


def test_forged_arrays_are_refused_or_harmless(parts, tmp_path):
    program, tensors, _ = parts
    chance = random.Random(2)
    refused = 0
    for name in tensors:
        for _ in range(3):
            changed = {key: array.copy() for key, array in tensors.items()}
            changed[name] = forged(changed[name], chance)
            refused += is_refused(forge(tmp_path / "saved", program, changed))
    for name in tensors:
        left = {key: array for key, array in tensors.items() if key != name}
        assert is_refused(forge(tmp_path / "saved", program, left))
    assert is_refused(forge(tmp_path / "saved", program, tensors | {"more": np.zeros(3)}))
    assert refused > 50


def forged(array, chance):
    kind = chance.randrange(4)
    if kind == 0 or not array.size:
        return np.zeros((*array.shape, 2), array.dtype)
    if kind == 1:
        return array[:-1].copy()
    if kind == 2:
        return array.astype(np.float64 if array.dtype.kind == "i" else np.int32)
    limits = [-1, 2, 7, len(array), 2**15 - 1] if array.dtype == np.int16 else [-1, 3, 2**31 - 1]
    flat = array.reshape(-1).copy()
    flat[chance.randrange(flat.size)] = chance.choice(limits)
    return flat.reshape(array.shape)


def is_refused(path):
    """Whether a file is; if it is not, it is used, on the tape and as machine code."""
    loaded = None
    try:
        loaded = chainrule.load(path)
        loaded.report()
    except SaveError:
        refusal(path)
    if loaded is not None:
        use(chainrule.load(path))
    return loaded is None or is_damaged(loaded)


def is_damaged(loaded):
    try:
        loaded.report()
    except SaveError:
        return True
    return False


def test_the_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "saved"
    fast = chainrule.compile(lambda x: x * 2)
    fast.save(path, 1.0)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        fast.save(path, [1.0, 2.0])
    assert path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == ["saved"]
