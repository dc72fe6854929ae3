"""What only large sizes do is noticed, also where it makes no difference to the first call."""

import itertools

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning, relu
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.marks import Marker, Marks
from chainrule.compiler.capture.tracing import Trace, Tracer
from chainrule.compiler.sizes import checking, meaning, serving
from chainrule.compiler.sizes.meaning import Meaning

LARGE = 30


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def example(N=5):
    return {"w": np.abs(normal(N)), "shift": np.zeros(2)}, normal(N), [*range(N)]


def fit(p, xs):
    return sum(w * x for w, x in zip(p["w"], xs, strict=True)) + p["shift"][0]


# --- what only large sizes do: hidden in the first call, seen in the second -----------------------


def a_term(p, xs, picks):
    total = fit(p, xs)
    if len(xs) > LARGE:
        total = total + 100.0 * relu(p["shift"][0] - 1.0)
    return total


def a_term_times_a_parameter(p, xs, picks):
    total = fit(p, xs)
    if len(xs) > LARGE:
        total = total + p["shift"][0] * p["shift"][1]
    return total


def a_constant(p, xs, picks):  # no other operation
    return fit(p, xs) + max(0, len(xs) - LARGE) * relu(p["shift"][0] - 1.0)


def a_coefficient(p, xs, picks):
    return fit(p, xs) + min(len(xs), LARGE) * relu(p["shift"][0] - 1.0)


def an_operation(p, xs, picks):
    bent = relu(p["shift"][0] - 1.0)
    return fit(p, xs) + (bent * 2.0 if len(xs) > LARGE else bent**2)


def operands(p, xs, picks):
    a, b = p["shift"]
    if len(xs) > LARGE:
        a, b = b, a
    return fit(p, xs) + 2.0 * a - b


def a_branch_on_a_number(p, xs, picks):
    total = fit(p, xs)
    if len(xs) > LARGE and p["shift"][0] > 1.0:
        total = total + p["w"][0]
    return total


def a_branch_on_data(p, xs, picks):
    total = fit(p, xs)
    if len(xs) > LARGE and xs[0] > 100.0:
        total = total + p["w"][0]
    return total


def a_static_number(p, xs, picks):
    scale = round(float(xs[0]) / 1000) if len(xs) > LARGE else 0
    return fit(p, xs) + scale * p["w"][0]


def a_branch_on_an_integer(p, xs, picks):
    total = fit(p, xs) + p["w"][picks[0]]
    if len(xs) > LARGE and picks[0] == 3:
        total = total + p["w"][0]
    return total


def a_static_index(p, xs, picks):
    return fit(p, xs) + p["w"][0 if len(xs) > LARGE else picks[0]]


def another_integer(p, xs, picks):
    return fit(p, xs) + p["w"][picks[len(xs) // 40] if len(xs) > LARGE else picks[0]]


def an_index_with_an_end(p, xs, picks):
    return fit(p, xs) + p["w"][min(picks[0], 1) if len(xs) > LARGE else picks[0]]


def another_candidate(p, xs, picks):  # of which the first call selects none
    rows = list(p["w"])
    if len(xs) > LARGE:
        rows[3] = rows[4]
    return fit(p, xs) + rows[picks[0]]


def candidates_in_another_order(p, xs, picks):
    rows = list(p["w"])
    if len(xs) > LARGE:
        rows[3], rows[4] = rows[4], rows[3]
    return fit(p, xs) + rows[picks[0]]


def one_more_candidate(p, xs, picks):
    rows = list(p["w"])
    if len(xs) > LARGE:
        rows.append(p["shift"][0])
    return fit(p, xs) + rows[picks[0]]


def a_number_without_gradient(p, xs, picks):
    shift = p["shift"][0]
    return fit(p, xs) + relu((shift.data if len(xs) > LARGE else shift) - 1.0 + 0.0 * shift)


HIDDEN = [
    *(a_term, a_term_times_a_parameter, a_constant, a_coefficient, an_operation, operands),
    *(a_branch_on_a_number, a_branch_on_data, a_static_number, a_branch_on_an_integer),
    *(a_static_index, another_integer, an_index_with_an_end, a_number_without_gradient),
    *(another_candidate, candidates_in_another_order, one_more_candidate),
]


def agrees(fast, f, arguments):
    value, grads = fast.value_and_grad(*arguments)
    wanted, slopes = chainrule.value_and_grad(f)(*arguments)
    near = [np.abs(grads[name] - slopes[name]).max() < 1e-9 for name in grads]
    return abs(value - wanted) < 1e-9 and all(near)


def calls(f):
    """The first call, and others of its size for which what large sizes do makes a difference."""
    params, xs, picks = example(40)
    if f is another_integer:
        picks[1] = picks[0]
    yield params, xs, picks
    other = {"w": params["w"], "shift": np.array([2.0, 3.0])}
    first = -1 if f is one_more_candidate else 3
    yield other, np.array([1234.0, *xs[1:]]), [first, *picks[1:]]


@pytest.mark.parametrize("small", [0, checking.SMALL])
@pytest.mark.parametrize("f", HIDDEN, ids=lambda f: f.__name__)
def test_what_only_large_sizes_do_is_noticed_before_it_makes_a_difference(f, small, monkeypatch):
    monkeypatch.setattr(checking, "SMALL", small)
    fast = chainrule.compile(f, sizes=example)
    assert agrees(fast, f, example(12))
    assert "built from formulas at N=12" in fast.report()
    with pytest.warns(FallbackWarning, match="sizes do not serve: at N=40"):
        assert agrees(fast, f, next(calls(f)))
    for arguments in calls(f):
        assert agrees(fast, f, arguments)
    assert "built from formulas at N=40" not in fast.report()


def test_an_index_that_large_sizes_compute_by_the_same_kinds_of_steps_is_noticed():
    def by_two_integers(p, xs, picks, others):
        total = fit(p, xs)
        for i, j in zip(picks, others, strict=True):
            total = total + p["M"][i, i * j if len(xs) > LARGE else j]
        return total

    def two_dimensions(N=5, K=4):
        params, xs, _ = example(N)
        return {**params, "M": normal(K, K)}, xs, [k % K for k in range(N)], [1] * N

    fast = chainrule.compile(by_two_integers, sizes=two_dimensions)
    assert agrees(fast, by_two_integers, two_dimensions(12))
    assert "built from formulas at N=12" in fast.report()
    params, xs, picks, others = two_dimensions(40)
    with pytest.warns(FallbackWarning, match="sizes do not serve: at N=40"):
        assert agrees(fast, by_two_integers, (params, xs, [1] * 40, others))  # 1 * j is j
    assert agrees(fast, by_two_integers, (params, xs, picks, others))


def test_what_makes_no_difference_to_any_result_does_not_count():
    def unused(p, xs, picks):
        if len(xs) > LARGE:
            p["w"][0] * 3.0
        return fit(p, xs)

    fast = chainrule.compile(unused, sizes=example, on_fallback="raise")
    assert agrees(fast, unused, example(40))
    assert "built from formulas at N=40" in fast.report()


# --- what only raises -----------------------------------------------------------------------------


def an_unused_logarithm(p, xs, picks):
    if len(xs) > LARGE:
        chainrule.log(p["shift"][0] + 1.0)
    return fit(p, xs)


def a_quotient_times_zero(p, xs, picks):
    total = fit(p, xs)
    return total + 0.0 * (p["w"][0] / xs[0]) if len(xs) > LARGE else total


def an_unused_read(p, xs, picks):
    if len(xs) > LARGE:
        p["w"][picks[0]]
    return fit(p, xs)


def an_unused_read_at_any_size(p, xs, picks):
    p["w"][picks[0]]
    return fit(p, xs)


RAISING = [
    *(an_unused_logarithm, a_quotient_times_zero),
    *(an_unused_read, an_unused_read_at_any_size),
]


@pytest.mark.parametrize("f", RAISING, ids=lambda f: f.__name__)
def test_an_error_of_something_that_makes_no_difference_is_raised(f):
    fast = chainrule.compile(f, sizes=example)
    params, xs, picks = example(40)
    with pytest.warns(FallbackWarning, match="sizes do not serve: at N=40, it (comp|read)"):
        assert agrees(fast, f, (params, xs, picks))
    broken = {**params, "shift": np.array([-2.0, 0.0])}, np.array([0.0, *xs[1:]]), [99, *picks[1:]]
    with pytest.raises((ArithmeticError, ValueError, IndexError)) as wanted:
        chainrule.value_and_grad(f)(*broken)
    with pytest.raises(wanted.type):
        fast.value_and_grad(*broken)


# --- marks ----------------------------------------------------------------------------------------


def everything(p, xs, picks):
    w = p["w"]
    top = max(v.data for v in w)
    first = chainrule.maximum(w[0], 0.5) ** w[1] + max(w[2], w[3]) + min(w[0] * 2.0, xs[0] + 1.0)
    chosen = sum(w[a] * xs[b] for a, b in itertools.pairwise(picks))
    bent = chainrule.tanh(w[0] - top) / w[1] + chainrule.where(w[0] > w[1], w[2], 3.0)
    with chainrule.no_grad():
        still = w[1] * w[2]
    return still * first + chosen + bent - abs(w[3]) ** 3 + chainrule.atan2(w[0], w[1]) + 0 * w[
        1
    ], w[0]


@pytest.mark.skipif(chainrule.engine != "native", reason="the other keeps its recordings")
def test_marks_noted_while_a_function_runs_are_those_of_its_recording():
    call, tracer = flatten_call(example(7), {}, True), Tracer(everything)
    marks, state = Marks(12345, 678), tracer.survey()
    noted = tracer.marked(state, call, Marker(marks, np.ones(call.first))).noted
    recording = tracer.trace(state, call).recording
    found = marks.of_recording(recording)
    kept = Meaning._noted(marks, Trace(recording, (), frozenset(), ()))
    assert noted.marks == kept.marks == [found[x.position] for x in recording.outputs]
    assert {*noted.hashed.tolist()} == {*kept.hashed.tolist()}
    assert noted.partial == kept.partial
    assert len(noted.hashed) > 10
    assert len(noted.partial) == len(example(7)[2])
    assert len(set(found)) > 40
    (value, aux), slopes = chainrule.value_and_grad(everything, has_aux=True)(*example(7))
    assert noted.slope == pytest.approx(sum(g.sum() for g in slopes.values()), rel=1e-12)
    assert noted.values.tolist() == pytest.approx([value, aux], rel=1e-12)


def test_constants_that_differ_by_rounding_have_one_mark():
    numbers = np.array([0.1, 1 / 3, 1e-300, -7.0, 2.0**0.5, 100.0])
    marks = Marks.apart(numbers)
    for ulps in (-3, 3):
        near = (numbers.view(np.int64) + ulps).view(np.float64)
        assert (marks.constants(near) == marks.constants(numbers)).all()
    others = np.array([0.1000001, -1 / 3, 2e-300, 7.0, 2.0, 101.0])
    assert not np.intersect1d(marks.constants(others), marks.constants(numbers)).size


@pytest.mark.skipif(chainrule.engine != "native", reason="the other has no Instructions")
def test_instructions_with_marks_refuse_what_they_do_not_have():
    from chainrule.core.backend import kernels

    x = chainrule.Value(1.0)
    marked = kernels.Instructions([x], [], None, (1, 2))
    written = kernels.Instructions([chainrule.Value(1.0)], [], None)
    with pytest.raises(ValueError, match="written nowhere"):
        marked.finish([], [], [x])
    with pytest.raises(ValueError, match="have no marks"):
        written.mark(x)
    with pytest.raises(TypeError, match="a leaf stands for another Value"):
        marked.choose(x * 2.0, x, 1, 2)
    with pytest.raises(TypeError, match="a tuple of Values"):
        marked.candidates([x])
    with pytest.raises(TypeError, match="candidate 1 is not a Value"):
        marked.candidates((x, 1.0))
    with pytest.raises(TypeError, match="a seed and an offset"):
        kernels.Instructions([x], [], None, 3)
    assert marked.mark(chainrule.Value(2.0)) is None
    assert marked.mark(x) is not None


# --- large calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 3, 1 << 20])
def test_marks_are_looked_up_as_in_a_set(monkeypatch, pieces):
    monkeypatch.setattr(meaning, "MANY", pieces)
    chance, answers = np.random.default_rng(0), []
    for _ in range(200):
        marks, known = (
            chance.integers(0, 6, chance.integers(0, 8)).astype(np.uint32) for _ in range(2)
        )
        answers.append(meaning._are_among(marks, known.copy()))
        assert answers[-1] == (set(marks.tolist()) <= set(known.tolist()))
    assert {True, False} == set(answers)


def test_no_machine_code_is_built_of_a_program_that_computes_something_else(monkeypatch):
    built, real = [], serving.MachineCode
    monkeypatch.setattr(serving, "MachineCode", lambda *a: built.append(1) or real(*a))
    fast = chainrule.compile(a_term, sizes=example)
    assert agrees(fast, a_term, example(12))
    before = len(built)
    with pytest.warns(FallbackWarning, match="sizes do not serve: at N=40"):
        assert agrees(fast, a_term, example(40))
    assert len(built) == before > 0
