"""Samples of training looked at and packed in C, beside the same in Python."""

import random
import sys
from collections import deque

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds

import chainrule
from chainrule import _native, optim
from chainrule.compiler.capture import integer_code
from chainrule.compiler.training import packing as module
from chainrule.compiler.training import samples as samples_module
from chainrule.compiler.training import structures
from chainrule.compiler.training.packing import UNKNOWN
from chainrule.compiler.training.samples import may_hold
from chainrule.compiler.training.structures import Structures


def words(*numbers):
    return np.array(numbers, np.int64)


def read_at_once(count, monkeypatch):
    for place in (module, structures):
        monkeypatch.setattr(place, "AT_ONCE", count)


# --- the longest, and the shapes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "longest"),
    [
        ([([1],), ([1, 2],), ([3, 4],)], 1),
        ([(1.0, [2]), ((1, 2), None), (True,)], 1),
        ([()], 0),
        ([], -1),
        ([([1],), ("ab",)], -1),
        ([([1],), [1]], -1),
        ([(np.zeros(3),)], -1),
        ([({},)], -1),
    ],
)
def test_the_longest_sample(samples, longest):
    assert _native.longest_sample(samples) == longest


def test_the_longest_sample_of_no_list():
    with pytest.raises(TypeError):
        _native.longest_sample(((1,),))


def test_the_longest_is_that_of_python(monkeypatch):
    chance = random.Random(5)
    for _ in range(50):
        made = [
            tuple([[0] * chance.randrange(4) for _ in range(chance.randrange(1, 4))])
            for _ in range(chance.randrange(1, 12))
        ]
        prepared = Structures(made, (), frozenset())
        found = prepared.longest()
        with monkeypatch.context() as patch:
            patch.setattr(structures, "kernels", None)
            assert prepared.longest() == found


def test_shapes_are_those_of_python(monkeypatch):
    chance = random.Random(6)
    for lists in (1, 2, 3):
        made = [tuple([[0] * chance.randrange(1, 40) for _ in range(lists)]) for _ in range(300)]
        made[20:20] = [([True],) * lists, ([2**63],) * lists, (), (3,) * lists]
        prepared = Structures(made, (), frozenset())
        which = np.array(sorted(chance.sample(range(len(made)), 200)))
        found = prepared.shapes(which)
        with monkeypatch.context() as patch:
            patch.setattr(structures, "kernels", None)
            assert prepared.shapes(which) == found
    assert _native.sample_shapes([(1,)], words(0), 0) == ([], [0])
    assert _native.sample_shapes([], words(), 1) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((([1],), words(0), 1), TypeError),
        (([([1],)], words(1), 1), IndexError),
        (([([1],)], words(0), -1), ValueError),
        (([([1],)], words(0), 2**62), ValueError),
        (([([1],)], np.zeros(1), 1), TypeError),
        (([([1],)], words(0)), TypeError),
        (([([1],)], words(0), 1, np.zeros(1), 8), TypeError),
        (([([1],)], words(0), 1, words(-1), -1), ValueError),
    ],
)
def test_shapes_refuse_what_does_not_fit(arguments, error):
    with pytest.raises(error):
        _native.sample_shapes(*arguments)


# --- memory -----------------------------------------------------------------------------------------

TABLE = np.arange(24.0).reshape(4, 6)
OTHER = np.arange(5.0)
READ_ONLY = np.arange(3.0)
READ_ONLY.flags.writeable = False
DEEP: list = [OTHER]
for _ in range(150):
    DEEP = [DEEP]
THINGS = [
    *[1, 1.5, None, True, "text", [], (), [1, (2.0, [None])], {"a": TABLE}, {"a": 1}, {1, 2}],
    *[TABLE, TABLE[1], TABLE[:, 2], TABLE[::-1], TABLE[::-1, ::2], TABLE.T, OTHER, READ_ONLY],
    *[[OTHER, (TABLE[0],)], [OTHER, (1, [OTHER[:2]])], np.array([TABLE], object), np.float64(2.0)],
    *[np.zeros(0), TABLE[:0], TABLE.view(np.int8)[0, 3:4], np.array(["a"]), np.array("2020", "M8[D]")],
    *[deque([TABLE]), object(), DEEP, np.ma.array(TABLE), np.array(3), TABLE[1, 1:2].reshape(())],
]  # fmt: skip


@pytest.mark.parametrize("thing", THINGS, ids=map(str, range(len(THINGS))))
@pytest.mark.parametrize("arrays", [[TABLE], [TABLE[2]], [TABLE[:, 1]], [np.zeros(0)], []])
def test_memory_is_found_as_in_python(thing, arrays, monkeypatch):
    found = may_hold([thing], arrays)
    with monkeypatch.context() as patch:
        patch.setattr(samples_module, "kernels", None)
        assert may_hold([thing], arrays) == found


def test_memory_that_ends_where_another_begins_is_not_shared():
    block = np.zeros(8)
    ends = np.array([byte_bounds(block[2:4])], np.int64)
    assert _native.holds_memory([(block[:2], block[4:])], ends, np.ndarray) is False
    assert _native.holds_memory([(block[:3],)], ends, np.ndarray) is True
    assert _native.holds_memory([(block[3:],)], ends, np.ndarray) is True
    assert _native.holds_memory([{}], ends, np.ndarray) is None


@pytest.mark.parametrize(
    "arguments",
    [((1,), words(), np.ndarray), ([], np.zeros(2), np.ndarray), ([], words(), 3), ([],)],
)
def test_looking_for_memory_refuses_what_does_not_fit(arguments):
    with pytest.raises(TypeError):
        _native.holds_memory(*arguments)


# --- packing ----------------------------------------------------------------------------------------


def decider(arguments=2):
    """Two gathers by the first integer, one by the last; the sum of both as a number."""
    return _native.Decider(
        arguments,
        words(),
        words((0, arguments, 0, arguments - 1, 0)),
        words(),
        np.zeros(0),
        words((0, 0, 3), (0, 3, 3), (arguments - 1, 0, 3)),
        words(10, 11, 12, 20, -1, 22),
        words((arguments, 0)),
    )


def parts(samples, dtype=np.float64, rows=4, kinds=None):
    given = [[(decider(), words(0, 1, 3), words(0, 1, 3), words(), 7)]]
    count = len(samples)
    return {
        "samples": samples,
        "kinds": given if kinds is None else kinds,
        "used": 1,
        "which": np.arange(count),
        "shapes": words(2),
        "open": np.array([0.5, 1.5, 2.5, 3.5]),
        "choice": words(1, 2, 3, 4),
        "kept": np.zeros(0, np.int32),
        "starts": words(),
        "numbers": words(),
        "own": np.zeros((rows, 4), dtype),
        "gathered": np.zeros((rows, 4), np.int64),
        "fits": np.full(count, UNKNOWN, np.int64),
        "rows": np.full(count, -1, np.int64),
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_samples_of_a_known_kind_get_rows(dtype):
    some = [([0, 2],), ([1, 0],), ([5, 0],), ([1],), (["a", 1],), ([-1, 0],), ([2**70, 1],), 3]
    made = parts(some, dtype)
    assert _native.pack_samples(*made.values()) == 3
    # The second selects what is no candidate, the third nothing at all.
    assert made["fits"].tolist() == [7, -1, -1, -1, -1, 7, -1, -1]
    assert made["rows"].tolist() == [1, -1, -1, -1, -1, 2, -1, -1]
    assert made["own"].tolist() == [
        [0] * 4, [0, 2, 2.5, 2], [-1, 0, 2.5, -1], [0] * 4,
    ]  # fmt: skip
    assert made["gathered"].tolist() == [[0] * 4, [10, 20, 3, 12], [12, 22, 3, 10], [0] * 4]


def test_gathers_that_have_no_place_are_not_in_the_row():
    some = [([0, 2],), ([1, 0],), ([5, 0],), ([-1, 1],)]
    kinds = [[(decider(), words(0, 1, 3), words(1, -1, 3), words(), 7)]]
    made = parts(some, kinds=kinds)
    assert _native.pack_samples(*made.values()) == 4
    # What the second sample's gather without a place would select, nobody asks.
    assert made["fits"].tolist() == [7, 7, -1, 7]
    assert made["gathered"][1:].tolist() == [[1, 10, 3, 12], [1, 11, 3, 10], [1, 12, 3, 11]]
    odd = [
        [(decider(), words(0, 1, 3), words(*places), words(), 7)]
        for places in [(-1, 2, 1), (-1, 0, 4), (-1, 0, 2**62)]
    ]
    for kinds in odd:
        with pytest.raises(ValueError, match="does not fit"):
            _native.pack_samples(*parts(some, kinds=[kinds]).values())


def kept(samples, most=1000):
    """What is read of samples to see their shapes, as ``pack_samples`` takes it."""
    starts = np.full(len(samples), -1, np.int64)
    _, _, read = _native.sample_shapes(samples, np.arange(len(samples)), 1, starts, most)
    return {"kept": np.frombuffer(read, np.int32), "starts": starts}


def test_what_was_read_of_samples_is_kept():
    some = [([0, 2],), ([7],), ("a",), ([300, -1],), ([2**31, 0],), ([-(2**31)],)]
    made = kept(some)
    assert made["kept"].tolist() == [0, 0, 2, 1, 7, 0, 300, -1, 1, -(2**31)]
    assert made["starts"].tolist() == [0, 3, -1, 5, -1, 8]
    assert kept(some, most=20)["starts"].tolist() == [0, 3, -1, -1, -1, -1]
    assert kept(some, most=0)["kept"].tolist() == []


def test_small_integers_are_read_as_any_other():
    some = [(list(range(-10, 300)),), ([2**31 - 1, -(2**31)],)]
    made = kept(some, most=1 << 20)["kept"].tolist()
    assert made == [0, *some[0][0], 1, *some[1][0]]
    lengths = np.zeros((2, 1), np.int64)
    found = np.frombuffer(_native.sample_integers(some, np.arange(2), lengths), np.int64)
    assert found.tolist() == [*some[0][0], *some[1][0]]


@pytest.mark.parametrize("most", [0, 12, 40, 1000])
def test_samples_are_packed_from_what_was_kept(most):
    some = [([0, 2],), ([1],), ([1, 0],), ([2**40, 0],), ([-1, 0],), ("a",), ([2, 2],)]
    plain, recalled = parts(some), parts(some) | kept(some, most)
    recalled["numbers"] = words(0, -1)
    for made in (plain, recalled):
        assert _native.pack_samples(*made.values()) == 4
    for name in ("own", "gathered", "fits", "rows"):
        assert recalled[name].tolist() == plain[name].tolist()
    if most == 1000:  # the lists are not looked at again
        recalled = parts([None, *some[1:]]) | kept(some) | {"numbers": words(0, -1)}
        assert _native.pack_samples(*recalled.values()) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"starts": words(3, 0)},
        {"starts": words(2**62, 0)},
        {"starts": words(1, 0)},
        {"numbers": words()},
        {"numbers": words(1)},
        {"kept": np.array([0, 1], np.int32)},
        {"kept": np.array([-1, 1, 2], np.int32)},
    ],
)
def test_packing_refuses_what_was_not_kept(changes):
    made = {"kept": np.array([0, 1, 2], np.int32), "starts": words(0, -1), "numbers": words(0)}
    made = parts([([0, 2],), ([2, 2],)]) | made | changes
    with pytest.raises(ValueError, match="not there"):
        _native.pack_samples(*made.values())


def test_a_sample_with_a_fit_is_left_alone():
    made = parts([([0, 2],), ([2, 2],)])
    made["fits"][0] = -2
    assert _native.pack_samples(*made.values()) == 2
    assert made["fits"].tolist() == [-2, 7]


def test_kinds_are_tried_in_order():
    odd = _native.Decider(
        2,
        words(1),
        words((integer_code._CODES["guard truth"], 0, 1, 0, 0)),
        words(),
        np.zeros(0),
        words(),
        words(),
        words(),
    )  # its first integer must be true
    kinds = [
        [
            (odd, words(0, 1), words(), words(), 3),
            (decider(), words(0, 1, 3), words(0, 1, 3), words(1), 7),
        ]
    ]
    made = parts([([0, 2],), ([2, 2],), ([0, 2**53 + 1],)], kinds=kinds)
    assert _native.pack_samples(*made.values()) == 3
    assert made["fits"].tolist() == [7, 3, -1]


def test_integers_beyond_floats_are_left_to_python():
    kinds = [[(wide(), words(0, 1), words(), words(1), 7)]]
    made = parts([([0, 2**53],), ([0, 2**53 + 1],), ([2**60, -(2**53)],)], kinds=kinds)
    assert _native.pack_samples(*made.values()) == 3
    assert made["fits"].tolist() == [7, -1, 7]


def wide():
    return _native.Decider(2, *[words()] * 3, np.zeros(0), *[words()] * 3)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"samples": ()}, TypeError),
        ({"kinds": []}, ValueError),
        ({"kinds": [()]}, ValueError),
        ({"kinds": [[3]]}, ValueError),
        ({"kinds": [[(3, words(), words(), words(), 1)]]}, ValueError),
        ({"kinds": [[(wide(), words(0), words(), words(), 1)]]}, ValueError),
        ({"kinds": [[(wide(), words(0, 4), words(), words(), 1)]]}, ValueError),
        ({"kinds": [[(wide(), words(0, -1), words(), words(), 1)]]}, ValueError),
        ({"kinds": [[(wide(), words(0, 1), words(0), words(), 1)]]}, ValueError),
        ({"kinds": [[(wide(), words(0, 1), words(), words(2), 1)]]}, ValueError),
        ({"kinds": [[(wide(), words(0, 1), words(), np.zeros(0), 1)]]}, TypeError),
        ({"kinds": [[(wide(), words(0, 1), words(), words(), "a")]]}, TypeError),
        ({"kinds": [[(decider(), words(0, 1, 2), words(0, 1, 4), words(), 1)]]}, ValueError),
        ({"shapes": words(2, 2, 2)[:0]}, ValueError),
        ({"shapes": words(-2)}, ValueError),
        ({"kept": words()}, TypeError),
        ({"starts": np.zeros(0)}, TypeError),
        ({"numbers": np.zeros(0)}, TypeError),
        ({"kinds": [[(decider(3), words(0, 1, 2, 3), words(0, 1, 2), words(), 1)]]}, ValueError),
        ({"which": words(5)}, IndexError),
        ({"which": words(-1)}, ValueError),
        ({"used": 4}, ValueError),
        ({"used": -1}, ValueError),
        ({"open": np.zeros(3)}, ValueError),
        ({"open": words(0, 0, 0, 0)}, TypeError),
        ({"choice": words()}, ValueError),
        ({"own": np.zeros((4, 3))}, ValueError),
        ({"own": words(0)}, TypeError),
        ({"own": np.zeros((8, 4))[::2]}, (TypeError, ValueError, BufferError)),
        ({"gathered": np.zeros((3, 4), np.int64)}, ValueError),
        ({"fits": words(-1)}, ValueError),
        ({"fits": words(), "rows": words()}, ValueError),
    ],
)
def test_packing_refuses_what_does_not_fit(changes, error):
    made = parts([([0, 2],), ([2, 2],)]) | changes
    with pytest.raises(error):
        _native.pack_samples(*made.values())


def test_packing_keeps_no_references():
    made = parts([([10**6, 2],), ([2, 10**6],), ([0, 2],)])
    kind = made["kinds"][0][0]
    held = (kind, *kind[:4], made["own"], made["samples"][0], made["samples"][0][0])
    before = [sys.getrefcount(x) for x in held]
    for _ in range(100):
        made["fits"][:] = UNKNOWN
        _native.pack_samples(*made.values())
        with pytest.raises(ValueError, match="enough rows"):
            _native.pack_samples(*(parts(made["samples"]) | {"used": 4}).values())
    assert [sys.getrefcount(x) for x in held] == before


# --- training ---------------------------------------------------------------------------------------


def loss(p, tokens, more):
    total = 0.0
    for t in tokens:
        total = total + (p["w"][t] - p["b"]) ** 2
    for t in more:
        total = total + p["w"][t] * p["v"][2 * t % 5] * t
    if tokens[0] > 3:
        total = total * 2.0
    return total


def trained(samples, batch, steps=40):
    start = np.random.default_rng(1)
    params = {"w": start.normal(size=5), "v": start.normal(size=5), "b": np.array(0.5)}
    fast = chainrule.compile(loss, lift=True)
    losses = fast.train(params, samples, optim.Adam(params, lr=0.01), steps, batch=batch)
    return losses.tolist(), {name: a.tolist() for name, a in params.items()}


@pytest.mark.skipif(chainrule.engine != "native", reason="the other engine packs in Python")
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_training_is_the_same_with_samples_packed_in_python(batch, monkeypatch):
    pytest.importorskip("llvmlite")
    chance = random.Random(batch)

    def some(count):
        return [chance.randrange(-5, 5) for _ in range(count)]

    samples = [(some(chance.randrange(1, 5)), some(chance.randrange(1, 4))) for _ in range(60)]
    packed = []
    real = module.PackedSamples._pack_known

    def counted(self, chosen):
        left = real(self, chosen)
        packed.append(len(chosen) - len(left))
        return left

    monkeypatch.setattr(module.PackedSamples, "_pack_known", counted)
    found = trained(samples, batch)
    assert sum(packed) > 30
    monkeypatch.setattr(module.PackedSamples, "_pack_known", lambda self, chosen: chosen)
    assert trained(samples, batch) == found


def test_blocks_of_samples_make_no_difference(monkeypatch):
    pytest.importorskip("llvmlite")
    chance = random.Random(4)
    samples = [([chance.randrange(5) for _ in range(3)], [k % 5]) for k in range(90)]
    wanted = trained(samples, 2, steps=45)
    read_at_once(8, monkeypatch)
    assert trained(samples, 2, steps=45) == wanted
    read_at_once(1, monkeypatch)
    assert trained(samples, 2, steps=45) == wanted


@pytest.mark.parametrize("most", [0, 200, 1 << 20])
def test_how_much_is_kept_of_samples_makes_no_difference(most, monkeypatch):
    pytest.importorskip("llvmlite")
    chance = random.Random(5)
    samples = [([chance.randrange(5) for _ in range(1 + k % 3)], [k % 5]) for k in range(90)]
    wanted = trained(samples, 2, steps=45)
    monkeypatch.setattr(structures, "KEPT", most)
    assert trained(samples, 2, steps=45) == wanted


def refuses_four(p, tokens):
    if len(tokens) == 4:
        raise ValueError("four")
    return sum((p["w"][t] - 1.0) ** 2 for t in tokens)


@pytest.mark.parametrize("at_once", [4096, 8])
@pytest.mark.parametrize("kept", [False, True])
def test_an_error_comes_after_all_steps_before_it(at_once, kept, monkeypatch):
    read_at_once(at_once, monkeypatch)
    samples = [([k % 5] * (1 + k % 3),) for k in range(120)]
    samples[77] = ([1, 2, 3, 4],)
    params, wanted = {"w": np.arange(5.0)}, {"w": np.arange(5.0)}
    optimiser, by_hand = (optim.SGD(p, lr=0.01) for p in (params, wanted))
    fast = chainrule.compile(refuses_four, lift=True)

    def train():
        if kept:
            fast.trainer(params, samples, optimiser).advance(200)
        else:
            fast.train(params, samples, optimiser, 200)

    with pytest.raises(ValueError, match="four"):
        train()
    assert optimiser.steps == 77
    for sample in samples[:77]:
        by_hand.step(chainrule.value_and_grad(refuses_four)(wanted, *sample)[1])
    np.testing.assert_allclose(params["w"], wanted["w"], rtol=0, atol=1e-12)


def test_samples_changed_between_two_calls_are_read_again():
    params = {"w": np.arange(5.0)}
    samples = [([1, 2],), ([3],)]
    fast = chainrule.compile(refuses_four, lift=True)
    optimiser = optim.SGD(params, lr=0.0)
    assert fast.train(params, samples, optimiser, 2).tolist() == [1.0, 4.0]
    samples[0][0][:] = [4]
    samples[1][0].append(4)
    assert fast.train(params, samples, optimiser, 2).tolist() == [9.0, 13.0]
    trainer = fast.trainer(params, samples, optimiser)
    samples[0][0][:] = [0]  # it has copies
    assert trainer.advance(2).tolist() == [9.0, 13.0]


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
@pytest.mark.parametrize("odd", [True, 1.0, "1", None, 2**70, -6, 5, np.int64(1), [1]], ids=repr)
def test_odd_items_among_plain_samples_are_what_they_are_in_python(odd):
    samples = [([1, 2],)] * 6 + [([odd, 2],)]
    outcomes = []
    for lift in (True, False):
        params = {"w": np.arange(5.0)}
        fast = chainrule.compile(refuses_four, lift=lift)
        try:
            outcome = fast.train(params, samples, optim.SGD(params, lr=0.01), 7).tolist()
        except Exception as error:
            outcome = type(error)
        outcomes.append((outcome, params["w"].tolist()))
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], abs=1e-12)
    if isinstance(outcomes[1][0], list):
        assert outcomes[0][0] == pytest.approx(outcomes[1][0], abs=1e-12)
    else:
        assert outcomes[0][0] is outcomes[1][0]
