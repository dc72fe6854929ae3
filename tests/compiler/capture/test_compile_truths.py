"""Bools that are passed and vary: integers of a recording, and bools to the function."""

# ruff: noqa: B905, E712 - written as people write

import random

import numpy as np
import pytest
from compile_twins import assert_eagers_outcome, recordings

import chainrule
from chainrule import tanh
from chainrule.compiler.runtime.ledger import allowance

pytestmark = pytest.mark.usefixtures("unchecked")


def compared(f, count=60, **options):
    """The function compiled, after calls with many masks that gave eager's results."""
    rng = random.Random(f.__name__)
    fast = chainrule.compile(f, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(f)
    for _ in range(count):
        p = [rng.uniform(0.1, 1) for _ in range(5)]
        keep = [rng.random() < 0.6 for _ in range(5)]
        assert_eagers_outcome(fast, eager, p, keep)
    return fast


def sums(p, keep):
    return p[0] * sum(keep) + p[1] * keep.count(True) + p[2] * (keep.count(False) - len(keep))


def times(p, keep):
    return sum(w * k for w, k in zip(p, keep)) + sum(1.0 - k for k in keep) * p[0]


def index(p, keep):
    return p[keep[0]] + p[keep[1] + 1] * 2 + [p[3], p[4]][keep[2]] ** 2


def keys(p, keep):
    d = {True: p[0], False: p[1]}
    return sum(d[k] * w for k, w in zip(keep, p))


def ret(p, keep):
    return p[0] * 1.0 + (keep[0] + keep[1])


@pytest.mark.parametrize("f", [sums, times, index, keys, ret])
def test_after_a_few_masks_one_recording_answers_all(f):
    assert recordings(compared(f)) <= 4


def if_kept(p, keep):
    out = 0.0
    for w, k in zip(p, keep):
        if k:
            out = out + tanh(w) / 0.8
    return out**2


def comp(p, keep):
    return sum(w * w for w, k in zip(p, keep) if k) / max(1, sum(keep))


def ternary(p, keep):
    return sum(w if k else -w * w for w, k in zip(p, keep))


def arith(p, keep):
    return (
        (p[0] ** keep[0])
        + 2.0 ** keep[1]
        + (3 - keep[2]) // 2 * p[1]
        + keep[3] % 2 * p[2]
        + (keep[0] << 2) * p[3]
        + keep[1] / 2 * p[4]
    )


def first(p, keep):
    return p[keep.index(True)] if True in keep else p[0] * 0.5


def pairs(p, keep):
    return sum(a * b for a, b, k, m in zip(p, p[1:], keep, keep[1:]) if k == m) + p[0]


def counts(p, keep):
    n = 0
    for k in keep:
        if not k:
            n += 1
    return p[n % 5] * n


def same_object(p, keep):
    return p[0] * (keep[0] is keep[1]) + p[1]


@pytest.mark.parametrize("f", [if_kept, comp, ternary, arith, first, pairs, counts, same_object])
def test_branches_by_masks_take_few_recordings(f):
    assert recordings(compared(f)) <= 9


def array(p, keep):
    m = np.array(keep)
    return (np.array(p) * m).sum() + p[0] * m.sum() + p[1] * (m.dtype == bool) + p[2] * m.mean()


def where_list(p, keep):
    return np.where(keep, p, 0.0).sum() * p[1]


def masked(p, keep):
    return (np.array(p)[np.array(keep)] ** 2).sum() + p[0]


def anyall(p, keep):
    return p[0] * any(keep) + p[1] * all(keep) + p[2] * (not keep[0]) + p[3] * (keep[1] and keep[2])


def text(p, keep):
    return p[0] * len(str(keep[0])) + p[1] * len(f"{keep[1]}") + p[2] * len(repr(keep))


def types(p, keep):
    return (
        p[0] * isinstance(keep[0], bool)
        + p[1] * (type(keep[0]) is bool)
        + p[2] * isinstance(keep[1], int)
        + p[3] * (keep[2] == True)
        + p[0] * (keep[3] == 1)
    )


def is_true(p, keep):
    return p[0] if keep[0] is True else p[1]


def matched(p, keep):
    match keep[0]:
        case True:
            return p[0]
        case _:
            return p[1]


@pytest.mark.parametrize("f", [array, where_list, masked, anyall, text, types, is_true, matched])
def test_whatever_else_is_asked_of_a_bool_gives_eagers_results(f):
    compared(f)


@pytest.mark.parametrize(
    "f",
    [
        sums,
        times,
        index,
        keys,
        ret,
        if_kept,
        comp,
        ternary,
        arith,
        first,
        pairs,
        counts,
        same_object,
    ],
)
def test_bits_are_eagers_on_the_tape(f):
    compared(f, 30, lift=False)


def retflags(p, keep):
    return (
        list(keep),
        keep[0],
        not keep[1],
        keep[1] & keep[2],
        keep[0] + 1,
        sum(keep),
        keep[0] | keep[3],
        keep[2] ^ True,
        ~keep[0],
        -keep[1],
        max(keep),
        sorted(keep),
    )


def test_bools_that_are_returned_are_bools():
    fast, rng = chainrule.compile(retflags, on_fallback="eager"), random.Random(0)
    for _ in range(40):
        p, keep = [1.0] * 5, [rng.random() < 0.6 for _ in range(5)]
        assert repr(fast(p, keep)) == repr(retflags(p, keep))


def test_a_flag_of_its_own_is_part_of_the_structure():
    def loss(p, training):
        return p[0] * 2 if training else p[0] ** 2

    fast = chainrule.compile(loss)
    for k in range(20):
        assert fast.value_and_grad([3.0], k % 2 == 0) == (
            (6.0, [2.0]) if k % 2 == 0 else (9.0, [6.0])
        )
    assert recordings(fast) == 2


def test_bools_beside_texts_and_integers_keep_their_places():
    def loss(p, sample):
        total = p[0]
        for flag, letter, n in sample:
            total = total + (p[ord(letter) % 5] * n if flag else p[n])
        return total

    fast, rng = chainrule.compile(loss), random.Random(3)
    for _ in range(60):
        p = [rng.uniform(-1, 1) for _ in range(5)]
        sample = [(rng.random() < 0.5, rng.choice("abc"), rng.randrange(5)) for _ in range(3)]
        got, wanted = fast.value_and_grad(p, sample), chainrule.value_and_grad(loss)(p, sample)
        assert got[0] == pytest.approx(wanted[0], rel=1e-12)
        assert got[1] == pytest.approx(wanted[1], rel=1e-12)


def test_a_loaded_function_takes_bools_that_vary(tmp_path):
    fast = compared(if_kept)
    fast.save(tmp_path / "kept.safetensors")
    again = chainrule.load(tmp_path / "kept.safetensors")
    for keep in ([True] * 5, [False, True, False, True, True]):
        p = [0.1, 0.2, 0.3, 0.4, 0.5]
        assert again.value_and_grad(p, keep) == chainrule.value_and_grad(if_kept)(p, keep)


# --- lists of bools of any length -----------------------------------------------------------------


def dropped(p, tokens, masks):
    loss = 0.0
    for a, b, mask in zip(tokens, tokens[1:], masks, strict=False):
        hidden = [
            chainrule.relu(v) / 0.9 if keep else 0.0 for v, keep in zip(p[a], mask, strict=True)
        ]
        loss = loss + (sum(hidden) - p[b][0]) ** 2
    return loss


def with_masks(count, shortest=3, longest=9):
    rng = np.random.default_rng(0)
    for _ in range(count):
        n = int(rng.integers(shortest, longest))
        p, tokens = rng.normal(size=(6, 4)).tolist(), rng.integers(6, size=n).tolist()
        yield p, tokens, (rng.random((n - 1, 4)) > 0.2).tolist()


def test_masks_of_other_lengths_show_that_they_vary():
    fast, eager = chainrule.compile(dropped), chainrule.value_and_grad(dropped)
    for k, arguments in enumerate(with_masks(30)):
        result = fast.value_and_grad(*arguments)
        assert result[0] == pytest.approx(eager(*arguments)[0], rel=1e-12)
        assert bool(fast.dispatch.texts) is (k >= 1), k


def test_machine_code_for_a_mask_waits_for_the_next_call_to_have_it_too(monkeypatch):
    """Another mask has another recording: the code would be used once."""
    monkeypatch.setattr(allowance, "left", 10.0)
    (first,) = with_masks(1, 30, 31)
    fast = chainrule.compile(dropped)
    fast.value_and_grad(*first)
    assert "lifted to" not in fast.report()
    for _ in range(12):
        fast.value_and_grad(*first)
        assert fast.dispatch.counts.traces == 1
    assert "lifted to" in fast.report()


def test_masks_of_all_lengths_share_machine_code():
    fast, eager = chainrule.compile(dropped, lift=True), chainrule.value_and_grad(dropped)
    for arguments in with_masks(60):
        value, gradient = fast.value_and_grad(*arguments)
        wanted = eager(*arguments)
        assert value == pytest.approx(wanted[0], rel=1e-11)
        assert np.ravel(gradient) == pytest.approx(np.ravel(wanted[1]), rel=1e-10, abs=1e-12)
    assert "of a longer call" in fast.report()
    assert fast.dispatch.counts.traces <= 3 + 2 * 6


def test_lists_of_one_bool_that_differ_in_length_alone_are_no_masks_that_vary():
    def f(p, flags):
        return sum(p if flag else -p for flag in flags)

    fast = chainrule.compile(f, on_fallback="eager")
    for n in (2, 3, 5, 7, 4, 6):
        fast.value_and_grad(1.5, [True] * n)
    assert not fast.dispatch.texts
