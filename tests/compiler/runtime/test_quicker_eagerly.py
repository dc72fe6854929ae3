"""Calls that eager mode answers, because replays would compare too much."""

import collections
import itertools

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning
from chainrule.compiler.capture import comparing, tracing, walking
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.runtime.ledger import allowance


@pytest.fixture(autouse=True)
def usual_allowance():
    before = allowance.left
    allowance.left = 0.3
    yield
    allowance.left = before


TABLE = np.linspace(0.0, 1.0, 5_000).reshape(1_000, 5)


def looked_up(p, rows):
    return sum((p[0] * TABLE[r, 2] + p[1]) ** 2 for r in rows)


def test_what_would_take_longer_to_compare_than_to_run_is_not_recorded(monkeypatch):
    monkeypatch.setattr(comparing, "EACH_BYTE", 1e-6)
    fast, eager = chainrule.compile(looked_up), chainrule.value_and_grad(looked_up)
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 1_000, 4).tolist() for _ in range(50)]
    with pytest.warns(FallbackWarning, match="40,000 bytes of arrays that it reads from outside"):
        found = [fast.value_and_grad([0.5, 2.0], rows) for rows in samples]
    assert found == [eager([0.5, 2.0], rows) for rows in samples]
    assert fast.dispatch.counts.traces == 0
    assert "pass it the rows that it needs" in fast.report()


EMBEDDINGS = [[0.01 * ((7 * row + column) % 11) for column in range(10)] for row in range(20_000)]
NAMES = {k: f"name {k}" for k in range(100_000)}


def embedded(p, token):
    row = EMBEDDINGS[token]
    return (p[0] * row[2] + p[1] * row[5]) ** 2


def named(p, token):
    return (p[0] * len(NAMES[token]) + p[1]) ** 2


@pytest.mark.parametrize(
    ("function", "held"),
    [(embedded, "20,000 items of lists, dicts and sets"), (named, "100,000 items of lists")],
)
def test_long_lists_and_dicts_are_not_compared_for_a_short_function(function, held):
    """They are looked at item by item: 0.7 ms for what takes eager mode 3 µs."""
    fast, eager = chainrule.compile(function), chainrule.value_and_grad(function)
    with pytest.warns(FallbackWarning, match=f"would compare the {held}"):
        found = [fast.value_and_grad([0.5, 2.0], k) for k in range(200)]
    assert found == [eager([0.5, 2.0], k) for k in range(200)]
    assert fast.dispatch.counts.traces == 0
    assert fast.dispatch.counts.checks <= 10


def read_objects(p, k):
    return p[0] * OBJECTS[k].x


def read_members(p, k):
    return p[0] * len(MEMBERS[k])


class Held:
    def __init__(self, x):
        self.x = x


OBJECTS = [Held(0.5 * k) for k in range(30_000)]
MEMBERS = tuple(frozenset((k, k + 1)) for k in range(60_000))


@pytest.mark.parametrize(
    ("function", "reason", "most"),
    [
        (embedded, "would compare the 20,000 items of lists", 100),
        (named, "would compare the 100,000 items of lists", 100),
        (read_objects, "would compare the 30,000 items of lists", 100),
        (read_members, "it reaches so many objects that to follow them takes longer", 60_000),
    ],
)
def test_what_replays_cannot_pay_for_is_not_even_gone_through(function, reason, most, monkeypatch):
    gone_through, whole = [], walking._is_atom
    monkeypatch.setattr(walking, "_is_atom", lambda x: gone_through.append(x) or whole(x))
    fast, eager = chainrule.compile(function), chainrule.value_and_grad(function)
    with pytest.warns(FallbackWarning) as caught:
        found = [fast.value_and_grad([0.5, 2.0], k) for k in range(100)]
    assert found == [eager([0.5, 2.0], k) for k in range(100)]
    (message,) = [str(warning.message) for warning in caught]
    assert reason in message
    assert fast.dispatch.counts.traces == 0
    assert 0 < len(gone_through) <= most


def test_who_asks_for_machine_code_has_all_of_it_gone_through():
    fast = chainrule.compile(read_members, lift=True, on_fallback="raise")
    fast.value_and_grad([0.5, 2.0], 3)
    assert fast.dispatch.counts.traces == 1


def test_long_lists_are_compared_for_a_long_function():
    fast = chainrule.compile(
        lambda p, token: sum(
            (p[0] * x + p[1]) ** 2 for row in EMBEDDINGS[token : token + 2_000] for x in row
        )
    )
    for _ in range(12):
        fast.value_and_grad([0.5, 2.0], 3)
    assert fast.dispatch.counts.replayed


def test_what_takes_little_to_compare_is_recorded():
    fast = chainrule.compile(looked_up)
    for r in range(20):
        fast.value_and_grad([0.5, 2.0], [r, 3, 999 - r])
    assert fast.dispatch.counts.traces == 1
    assert fast.dispatch.counts.replayed


def test_who_asks_for_machine_code_has_it_whatever_is_compared(monkeypatch):
    monkeypatch.setattr(comparing, "EACH_BYTE", 1e-6)
    fast = chainrule.compile(looked_up, lift=True)
    fast.value_and_grad([0.5, 2.0], [1, 2, 3])
    assert fast.dispatch.counts.traces == 1


def test_plain_calls_are_recorded_once_they_have_earned_it(monkeypatch):
    """They have no graph, by which it could be told how much there is to compute."""
    monkeypatch.setattr(comparing, "EACH_BYTE", 1e-8)
    fast = chainrule.compile(lambda x: sum(TABLE[k % 1_000, 2] * x for k in range(2_000)))
    assert [fast(0.5) for _ in range(100)] == pytest.approx([500.0] * 100)
    assert fast.dispatch.counts.traces == 1


# --- lists of which little is read ----------------------------------------------------------------


def automaton(p, table, tokens):
    state = 0
    for token in tokens:
        state = table[state][token]
    return p[state] ** 2


def hashed(p, tokens):
    h = 0
    for token in tokens:
        h = (h * 31 + token) % 97
    return p[h % len(p)] ** 2


def automaton_call(rng, states=8, letters=26, length=8):
    table = rng.integers(0, states, (states, letters)).tolist()
    tokens = rng.integers(0, letters, length).tolist()
    return [0.25 * k for k in range(states)], table, tokens


def replays(function, calls, **options):
    """How many of some calls were replayed, once there was time to find out what is quicker."""
    fast, eager = chainrule.compile(function, **options), chainrule.value_and_grad(function)
    assert [fast.value_and_grad(*call) for call in calls] == [eager(*call) for call in calls]
    return fast, fast.dispatch.counts.replayed


@pytest.mark.skipif(chainrule.engine != "native", reason="these are the costs of the native engine")
def test_a_table_of_which_little_is_read_is_not_read_for_each_call():
    rng = np.random.default_rng(1)
    fast, replayed = replays(automaton, [automaton_call(rng) for _ in range(300)])
    assert replayed < 10
    assert fast.dispatch.counts.traces == 1
    assert "all of the 216 numbers that it is passed in lists" in fast.report()


@pytest.mark.skipif(chainrule.engine != "native", reason="these are the costs of the native engine")
def test_lists_that_are_computed_with_are_replayed():
    rng = np.random.default_rng(1)
    calls = [([0.5, 2.0, 3.0], rng.integers(0, 50, 40).tolist()) for _ in range(300)]
    _, replayed = replays(hashed, calls)
    assert replayed > 290


@pytest.mark.skipif(chainrule.engine != "native", reason="these are the costs of the native engine")
def test_numbers_in_arrays_are_quick_to_read():
    rng = np.random.default_rng(1)
    calls = [([0.5, 2.0], rng.normal(size=300)) for _ in range(300)]
    _, replayed = replays(lambda p, xs: p[0] * xs[3] + p[1] * xs[7] + p[0] * p[1], calls)
    assert replayed > 290


def scored(p, start, tokens):
    """A few tokens of a long text that is passed."""
    rows = [p[tokens[start + k]] for k in range(8)]
    return sum((a[0] * b[1] - a[1]) ** 2 for a, b in itertools.pairwise(rows))


def scored_calls(tokens, count):
    rng = np.random.default_rng(1)
    params = rng.normal(size=(5, 2)).tolist()
    starts = rng.integers(0, len(tokens) - 8, count).tolist()
    return [(params, start, tokens) for start in starts]


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_long_text_of_which_little_is_read_is_not_even_recorded(kind, monkeypatch):
    """A recording has an input for each token, and what chooses has one for each, each time."""
    rng = np.random.default_rng(1)
    calls = scored_calls(kind(rng.integers(0, 5, 100_000).tolist()), 30)
    monkeypatch.setattr(tracing.Tracer, "trace", None)
    fast, replayed = replays(scored, calls)
    assert (fast.dispatch.counts.traces, replayed) == (0, 0)


def test_who_asks_for_replays_of_a_long_text_gets_them():
    allowance.left = np.inf
    tokens = np.random.default_rng(1).integers(0, 5, 6_000).tolist()
    assert replays(scored, scored_calls(tokens, 5), lift=False)[1] == 5


def test_choices_among_the_tokens_of_a_long_text_ask_nothing_of_each_of_them(monkeypatch):
    """``max`` is a stand-in while a function is recorded: the recorder is not to use it."""
    asked, original = [], Recorder.detached_operand
    monkeypatch.setattr(
        Recorder, "detached_operand", lambda own, x: asked.append(x) or original(own, x)
    )
    tokens = np.random.default_rng(1).integers(0, 5, 3_000).tolist()
    assert replays(scored, scored_calls(tokens, 1), lift=False)[1] == 1
    assert len(asked) < 1_000


def test_who_asks_for_replays_of_a_table_gets_them():
    rng = np.random.default_rng(1)
    calls = [automaton_call(rng) for _ in range(100)]
    allowance.left = np.inf
    assert replays(automaton, calls)[1] == 100
    allowance.left = 0.3
    assert replays(automaton, calls, lift=True)[1] > 90


@pytest.mark.skipif(chainrule.engine != "native", reason="these are the costs of the native engine")
def test_calls_that_are_quick_let_others_be_as_they_are():
    """Where long calls are replayed, short ones with the same table do not keep them from it."""
    allowance.left = 10.0  # recordings are not what this is about
    rng = np.random.default_rng(1)

    def visited(p, table, tokens):
        state, total = 0, 0.0
        for token in tokens:
            state = table[state][token]
            total = total + p[state]
        return total

    lengths = [300 if k % 2 == 0 else 2 for k in range(100)]
    calls = [automaton_call(rng, 4, 3, length) for length in lengths]
    assert replays(visited, calls)[1] > 90


def test_what_grows_outside_is_not_gone_through_again_and_again():
    seen: dict[int, int] = {}

    def visits(p, k):
        seen[k] = seen.get(k, 0) + 1
        return p[0] * seen[k]

    fast = chainrule.compile(visits, on_fallback="eager")
    gone_through = []
    walk = walking.survey

    def noted(*arguments, **options):
        try:
            found = walk(*arguments, **options)
        except Unrecordable:
            gone_through.append(options["most"])
            raise
        gone_through.append(found.searched)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "survey", noted)
        for k in range(60_000):
            assert fast.value_and_grad([2.0], k)[0] == 2.0
    assert sum(gone_through) < 60_000  # which is once, of a dict that had 60,000 items at its end


@pytest.mark.skipif(chainrule.engine != "native", reason="in Python the gate looks at each call")
def test_plain_calls_that_are_refused_are_left_to_the_gate():
    """Their results are floats, which do not tell how much was computed."""
    waiting = collections.deque([1.0, 2.0])
    fast = chainrule.compile(lambda p, x: [waiting[0], p[0] * x], on_fallback="eager")
    looks = 0
    with pytest.MonkeyPatch.context() as patch:
        rests = fast.dispatch.rests

        def counted(*arguments):
            nonlocal looks
            looks += 1
            return rests(*arguments)

        patch.setattr(fast.dispatch, "rests", counted)
        for k in range(5_000):
            assert fast([2.0], k) == [1.0, 2.0 * k]
    assert looks < 500
