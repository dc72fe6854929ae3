"""Checkpoints with random damage load to the same contents, or are refused in one clear line."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from trials import BAD, Outcome

from chainrule import gpt
from chainrule.core.text import visible

COUNT = 20_000
THINGS = "mutated checkpoints"
DOCUMENTS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab"]


def flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 100))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def replace_bytes(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    length = min(rng.choice((1, 2, 8, 64)), len(data) - at)
    filler = rng.choice((bytes(length), b"\xff" * length, b'"' * length, rng.randbytes(length)))
    data[at : at + length] = filler


def change_header(rng: random.Random, data: bytearray) -> None:
    """Where the text is: a flipped bit there is another name, number or bracket."""
    end = 8 + int.from_bytes(data[:8], "little")
    for _ in range(rng.choice((1, 1, 3))):
        data[rng.randrange(min(end, len(data)))] = rng.choice(
            b'0123456789"{}[]:,\\ \x00\x1b\x80\xffaz-.'
        )


def change_length(rng: random.Random, data: bytearray) -> None:
    """Of the header, which a reader may believe."""
    known = int.from_bytes(data[:8], "little")
    near = max(0, known + rng.choice((-8, -1, 1, 8, len(data))))
    length = rng.choice((0, 1, near, 2**31, 2**63, 2**64 - 1))
    data[:8] = length.to_bytes(8, "little")


def truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def extend(rng: random.Random, data: bytearray) -> None:
    data += rng.choice((b"\x00", rng.randbytes(8), bytes(data[:100]), bytes(data)))


def cut_out(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 8, 100))]


def move(rng: random.Random, data: bytearray) -> None:
    length = rng.choice((8, 64))
    a, b = (rng.randrange(max(1, len(data) - length)) for _ in range(2))
    data[a : a + length], data[b : b + length] = data[b : b + length], data[a : a + length]


MUTATIONS = (
    flip_bits,
    replace_bytes,
    change_header,
    change_length,
    truncate,
    extend,
    cut_out,
    move,
)


def contents(checkpoint: gpt.Checkpoint) -> list[Any]:
    """Everything that is in a checkpoint, to be compared."""
    arrays = [*checkpoint.weights.items(), *checkpoint.optimizer.items()]
    written = [(name, np.asarray(array).tobytes()) for name, array in arrays]
    words = [checkpoint.source, checkpoint.fingerprint, checkpoint.engine, checkpoint.dtype]
    numbers = [checkpoint.step, checkpoint.rng, checkpoint.validation]
    return [checkpoint.config, str(checkpoint.tokenizer.__dict__), written, words, numbers]


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"mutations {seed}")
    run = gpt.Run.start(DOCUMENTS, gpt.Config(width=2, heads=1, block=3, steps=9, seed=3))
    for _ in range(3):
        run.advance()
    with tempfile.TemporaryDirectory() as folder:
        file = gpt.save(run.checkpoint(), folder)
        sound, wanted = file.read_bytes(), contents(gpt.load(folder))
        for number in range(count):
            mutate = rng.choice(MUTATIONS)
            data = bytearray(sound)
            mutate(rng, data)
            file.write_bytes(data)
            kind, found = attempt(file, wanted)
            where = f"{mutate.__name__}, mutation {number} of seed {seed}: "
            yield Outcome(kind, found and where + found)


def attempt(file: Path, wanted: list[Any]) -> tuple[str, str]:
    """What a load says, and what is wrong with that."""
    try:
        found = contents(gpt.load(file.parent))
    except gpt.GPTError as error:
        message = visible(str(error))  # as commands print it
        sound = (
            message.startswith("cannot load") and not BAD.search(message) and len(message) < 1000
        )
        return "refused", "" if sound and "\n" not in str(error) else f"refused with {error!r}"
    except Exception as error:
        return "another error", repr(error)
    return "the same contents", "" if found == wanted else f"other contents in {file.name}"
