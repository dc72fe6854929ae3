"""Rows of matrices that integers select: packed as one address each, to the same bits."""

import random
from typing import Any

import numpy as np
import pytest
from test_compile_batches import copied
from test_compile_lifted import flat, normal

import chainrule
from chainrule import optim
from chainrule.compiler.runtime.decisions import Decided
from chainrule.compiler.training import packing
from chainrule.compiler.training.stretches import Stretches

pytest.importorskip("llvmlite")

PARAMS = {"w": normal(1, 5, 9), "v": normal(2, 9)}


def rows(p, tokens):
    """Each token selects the neighbours of a row."""
    total = 0.0
    for token in tokens:
        total = total + sum(a * b for a, b in zip(p["w"][token], p["v"], strict=True)) ** 2
    return total


def columns(p, tokens):
    """Each token selects one number of every row."""
    total = 0.0
    for token in tokens:
        total = total + sum(row[token] * row[token + 1] for row in p["w"]) ** 2
    return total


def of_lengths(count: int, most: int = 4) -> list[tuple[list[int]]]:
    chance = random.Random(count)
    return [([chance.randrange(5) for _ in range(1 + k % most)],) for k in range(count)]


@pytest.fixture
def packed(monkeypatch):
    """All packed samples, as they are made."""
    made: list[packing.PackedSamples] = []
    original = packing.PackedSamples.__init__

    def watching(self: Any, *arguments: Any, **more: Any) -> None:
        made.append(self)
        original(self, *arguments, **more)

    monkeypatch.setattr(packing.PackedSamples, "__init__", watching)
    return made


def trained(
    function: Any, batch: int = 1, dtype: str = "float64", samples: Any = None, **more: Any
) -> tuple[bytes, bytes]:
    params = copied(PARAMS)
    fast = chainrule.compile(function, dtype=dtype, lift=True)
    trainer = fast.trainer(
        params, samples or of_lengths(64), optim.Adam(params, lr=0.01), batch=batch, **more
    )
    return trainer.advance(40).tobytes(), flat(params).tobytes()


# --- stretches ------------------------------------------------------------------------------------

FOLLOWS = np.array([False, True, True, True, False, True, True, True])


def test_only_the_first_address_of_a_stretch_is_kept():
    stretches = Stretches.of(8, np.arange(8), FOLLOWS)
    assert stretches.starts.tolist() == [0, 4]
    assert stretches.lengths.tolist() == [4, 4]
    assert stretches.places(np.arange(8), FOLLOWS).tolist() == [0, -1, -1, -1, 1, -1, -1, -1]
    expanded = stretches.expanded(np.array([[10, 50], [20, 7]]))
    assert expanded.tolist() == [[10, 11, 12, 13, 50, 51, 52, 53], [20, 21, 22, 23, 7, 8, 9, 10]]


def test_what_is_seldom_beside_another_has_no_stretches():
    follows = np.array([False, True, False, False, False, True, False, False])
    assert Stretches.of(8, np.arange(8), follows).are_single


def test_gathers_with_others_between_them_are_no_stretch():
    gathers = np.array([*range(8), *range(9, 17)])
    follows = np.array([False, *[True] * 15])
    assert Stretches.of(17, gathers, follows).starts.tolist() == [0, 8, 9]


@pytest.mark.parametrize(
    ("gathers", "follows"),
    [
        (np.arange(8), FOLLOWS & (np.arange(8) != 6)),  # one goes its own way
        (np.arange(6), FOLLOWS[:6]),  # it ends within a stretch
        (np.array([1, 2, 3]), np.array([False, True, True])),  # and this begins there
        (np.array([0, 1, 3]), np.array([False, True, True])),  # one is missing
    ],
)
def test_samples_without_the_stretches_do_not_fit(gathers, follows):
    assert Stretches.of(8, np.arange(8), FOLLOWS).places(gathers, follows) is None


def test_samples_that_lack_whole_stretches_fit():
    stretches = Stretches.of(8, np.arange(8), FOLLOWS)
    assert stretches.places(np.arange(4), FOLLOWS[:4]).tolist() == [0, -1, -1, -1]
    assert stretches.places(np.arange(4, 8), FOLLOWS[:4]).tolist() == [1, -1, -1, -1]


# --- training -------------------------------------------------------------------------------------


def test_a_row_is_one_address_and_a_column_is_not(packed):
    trained(rows)
    assert packed[0].gathered.shape[1] * 9 == packed[0].stretches.count
    trained(columns)
    assert packed[-1].stretches.are_single


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_stretches_train_to_the_same_bits(batch, dtype, monkeypatch):
    wanted = trained(rows, batch, dtype)
    monkeypatch.setattr(
        packing.Stretches, "of", lambda count, gathers, follows: Stretches.single(count)
    )
    assert trained(rows, batch, dtype) == wanted


def test_stretches_train_to_the_same_bits_in_threads(monkeypatch):
    monkeypatch.setattr("chainrule.compiler.training.machine_loop.WORK", 0)
    assert trained(rows, 32, threads=3) == trained(rows, 32, threads=1)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("native", [True, False])
def test_samples_without_the_stretches_of_the_first_are_packed_anew(
    batch, native, monkeypatch, packed
):
    if not native:
        monkeypatch.setattr(packing.PackedSamples, "_pack_known", lambda self, chosen: chosen)
    wanted = trained(rows, batch)
    original = Decided.__init__

    def apart(self: Any, selection: Any, fit: Any) -> None:
        """Of short samples nothing is known to be side by side."""
        original(self, selection, fit)
        if len(self.follows) < 18:
            self.follows[:] = False

    monkeypatch.setattr(Decided, "__init__", apart)
    assert trained(rows, batch) == wanted
    assert packed[-1].stretches.are_single
    # The short ones come when many others have been packed.
    late = [x for x in of_lengths(64) if len(x[0]) > 1] + [([1],), ([3],)]
    found = trained(rows, batch, samples=late)
    monkeypatch.setattr(Decided, "__init__", original)
    assert trained(rows, batch, samples=late) == found


def test_what_was_prepared_is_used_again_unless_the_function_reads_something_else(monkeypatch):
    factor = [1.0]
    runs: list[int] = []
    original = packing.PackedSamples._run

    def watching(self: Any, k: int) -> Any:
        runs.append(k)
        return original(self, k)

    monkeypatch.setattr(packing.PackedSamples, "_run", watching)
    fast = chainrule.compile(lambda p, tokens: rows(p, tokens) * factor[0], lift=True)

    def losses() -> Any:
        params = copied(PARAMS)
        return fast.train(params, of_lengths(64), optim.SGD(params, lr=0.0), 64)

    first = losses()
    assert len(runs) == 4  # lengths
    assert losses().tolist() == first.tolist()
    assert len(runs) == 5  # of the longest
    factor[0] = 2.0
    assert np.allclose(losses(), 2.0 * first, rtol=1e-12)
    assert len(runs) == 9
