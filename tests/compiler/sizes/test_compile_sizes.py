"""``compile(f, sizes=...)``: machine code at sizes that were never recorded."""

import itertools
import warnings
from functools import cache

import numpy as np
import pytest

import chainrule
from chainrule import FallbackError, FallbackWarning, exp, gpt, log, optim, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.lift import interpreter
from chainrule.compiler.runtime.memory import memory
from chainrule.compiler.sizes import checking, serving
from chainrule.compiler.sizes.recording import family_of, form_of
from chainrule.gpt import model as gpt_model


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def tokens(count, vocabulary):
    return np.random.default_rng(count).integers(0, vocabulary, count).tolist()


# --- programs, and what makes their arguments -----------------------------------------------------


def dot(p, xs):
    return sum(a * x for a, x in zip(p, xs, strict=True)) / len(xs)


def dot_example(N):
    return normal(N), normal(N).tolist()


def regression(p, points, labels):
    total = 0
    for point, label in zip(points, labels, strict=True):
        scores = [sum(w * x for w, x in zip(row, point, strict=True)) for row in p["w"]]
        top = max(v.data for v in scores)
        total = total + log(sum(exp(v - top) for v in scores)) + top - scores[label]
    return total / len(points)


def regression_example(N=5, D=6, K=7):
    return {"w": normal(K, D)}, normal(N, D), tokens(N, K)


def mixture(p, points):
    total = p["weight"][0] - p["weight"][1]  # single numbers too
    for point in points:
        terms = []
        for weight, mean in zip(p["weight"], p["mean"], strict=True):
            terms.append(weight - sum((m - x) ** 2 for m, x in zip(mean, point, strict=True)))
        top = max(v.data for v in terms)
        total = total + log(sum(exp(v - top) for v in terms)) + top
    return total * (1 / len(points))


def mixture_example(N=5, K=6):
    return {"weight": normal(K), "mean": normal(K, 3)}, normal(N, 3)


def recurrent(p, xs):
    state = p["start"]
    for x in xs:
        state = [
            tanh(sum(w * h for w, h in zip(row, state, strict=True)) + v * x)
            for row, v in zip(p["w"], p["v"], strict=True)
        ]
    return sum(state)


def recurrent_example(W=5):
    return {"start": normal(W), "w": normal(W, W), "v": normal(W)}, [0.3, -0.2, 0.5]


def bigram(table, words):
    return sum(table[a][b] for a, b in itertools.pairwise(words))


def bigram_example(V=6, T=9):
    return normal(V, V), tokens(T, V)


def pairs(p, xs):
    return sum(
        a * b * (x - y) ** 2 for a, x in zip(p, xs, strict=True) for b, y in zip(p, xs, strict=True)
    )


def pairs_example(N=5):
    return normal(N), normal(N)


def counted(p, counts):
    return sum(a * n for a, n in zip(p, counts, strict=True)) / len(p)


def counted_example(N=6):
    return normal(N), tokens(N, 9)


CONFIG = gpt.Config(width=8, heads=2, layers=1)


def gpt_loss(weights, words):
    width, block = len(weights["head"][0]), len(weights["position_embedding"])
    return gpt.GPT.of(CONFIG.replace(width=width, block=block), weights).loss(words)


def gpt_example(size=3, T=5, block=9):
    config, chance = CONFIG.replace(width=2 * size, block=block), np.random.default_rng(size)
    weights = {name: chance.normal(0, 0.3, shape) for name, shape in config.shapes(11).items()}
    return weights, tokens(T, 11)


PROGRAMS = [
    (dot, dot_example, [(11,), (50,)]),
    (regression, regression_example, [(5, 6, 7), (13, 9, 17)]),
    (mixture, mixture_example, [(40, 7)]),
    (recurrent, recurrent_example, [(9,), (20,)]),
    (bigram, bigram_example, [(8, 30), (20, 12)]),
    (pairs, pairs_example, [(7,), (16,)]),
    (counted, counted_example, [(8,), (30,)]),
    (gpt_loss, gpt_example, [(4, 3, 12), (5, 15, 14)]),
]


def example_at(example, point):
    return example(*point)


def largest_difference(found, wanted):
    leaves, others = [], []
    chainrule.trees.map_leaves(lambda x: leaves.append(np.ravel(x)), found)
    chainrule.trees.map_leaves(lambda x: others.append(np.ravel(x)), wanted)
    return float(np.max(np.abs(np.concatenate(leaves) - np.concatenate(others))))


def agrees(fast, f, arguments):
    value, grads = fast.value_and_grad(*arguments)
    wanted, slopes = chainrule.value_and_grad(f)(*arguments)
    return abs(value - wanted) < 1e-9 and largest_difference(grads, slopes) < 1e-9


@cache
def compiled_gpt():
    return chainrule.compile(gpt_loss, sizes=gpt_example, on_fallback="raise")


# --- programs from formulas -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "example", "points"), PROGRAMS, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_program_made_from_formulas_gives_eagers_value_and_gradient(f, example, points):
    tracer = Tracer(f)
    form = form_of(flatten_call(example_at(example, points[0]), {}, True))
    family = family_of(tracer, tracer.survey(), example, True, form)
    for point in points:
        arguments = example_at(example, point)
        call = flatten_call(arguments, {}, True)
        assert family.point(f, call) == point
        made = family.program(point, call.first)
        made.program.verify()
        inputs = np.array([*np.zeros(call.size), *call.ints], np.float64)
        call.write(inputs[: call.size])
        places, _ = made.selection.decide(call.ints)
        gathered = places[made.program.places]
        arena = interpreter.run(made.program, inputs, gathered)
        slopes = interpreter.sweep(made.program, arena, gathered, made.outputs[0])
        value, grads = chainrule.value_and_grad(f)(*arguments)
        leaves = grads.values() if isinstance(grads, dict) else [grads]
        flat = np.concatenate([np.ravel(x) for x in leaves])
        assert arena[made.outputs[0]] == pytest.approx(value, abs=1e-12)
        assert np.abs(slopes[: call.first] - flat).max() < 1e-12


def test_the_formulas_of_a_size_can_be_printed():
    fast = chainrule.compile(dot, sizes=dot_example)
    fast.value_and_grad(*dot_example(40))
    text = fast.report(stage="sizes")
    assert text.splitlines()[0] == "at N=40:"
    assert "x0 = Σ_i xs[i]·p[i]" in text
    assert "built from formulas at N=40" in fast.report()
    assert fast.report(stage="recorded") == "not recorded: built from formulas at N=40"


# --- compiled functions ---------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4], ids=lambda k: PROGRAMS[k][0].__name__)
def test_a_compiled_function_is_recorded_at_small_sizes_only(k):
    f, example, points = PROGRAMS[k]
    fast = chainrule.compile(f, sizes=example, on_fallback="raise")
    assert agrees(fast, f, example_at(example, points[0]))
    recordings = fast.dispatch.counts.traces
    for point in points:
        larger = tuple(2 * size for size in point)
        assert agrees(fast, f, example_at(example, larger))
        assert agrees(fast, f, example_at(example, larger))  # the cached call
    assert fast.dispatch.counts.traces == recordings
    assert fast.dispatch.counts.eager == 0


def test_a_plain_call_gives_the_value():
    fast = chainrule.compile(recurrent, sizes=recurrent_example, on_fallback="raise")
    arguments = recurrent_example(24)
    assert fast(*arguments) == pytest.approx(recurrent(*arguments), abs=1e-12)
    assert "built from formulas at W=24" in fast.report()


def test_a_list_of_examples_will_do():
    examples = [dot_example(n) for n in (10, 11, 13, 17)]
    fast = chainrule.compile(dot, sizes=examples, on_fallback="raise")
    assert agrees(fast, dot, dot_example(60))
    assert "built from formulas" in fast.report()


def test_single_precision():
    fast = chainrule.compile(mixture, sizes=mixture_example, dtype="float32", on_fallback="raise")
    value, _ = fast.value_and_grad(*mixture_example(30, 8))
    wanted, _ = chainrule.value_and_grad(mixture)(*mixture_example(30, 8))
    assert value == pytest.approx(wanted, rel=1e-4)


def test_shorter_lists_run_on_the_code_of_the_longest():
    fast = compiled_gpt()
    weights, longest = gpt_example(6, 17, 16)
    assert agrees(fast, gpt_loss, (weights, longest))
    recordings = fast.dispatch.counts.traces
    for length in (9, 16, 2, 5):
        assert agrees(fast, gpt_loss, (weights, longest[:length]))
    variants = [v for s in fast.dispatch.structures.values() for v in s.variants]
    mine = [v for v in variants if v.sizes.startswith("size=6")]
    assert len(mine) == 5
    assert len({id(v.machine) for v in mine}) == 1
    assert fast.dispatch.counts.traces == recordings


def test_code_that_the_last_call_runs_on_is_kept_however_large_it_is(monkeypatch):
    fast = compiled_gpt()
    weights, longest = gpt_example(8, 12, 13)
    monkeypatch.setattr(memory, "limit", 1)
    for length in (12, 5, 9):
        fast.value_and_grad(weights, longest[:length])
    variants = [v for s in fast.dispatch.structures.values() for v in s.variants]
    assert sum(v.sizes.startswith("size=8") for v in variants) == 2  # the longest and the last
    assert len({id(v.machine) for v in variants}) == 1
    assert sum(v.is_own for v in variants) == 1


def test_a_longer_list_takes_over_from_shorter_ones():
    fast = compiled_gpt()
    weights, longest = gpt_example(7, 19, 30)
    for length in (8, 13, 19, 8):
        assert agrees(fast, gpt_loss, (weights, longest[:length]))
    variants = [v for s in fast.dispatch.structures.values() for v in s.variants]
    assert len({id(v.machine) for v in variants if v.sizes.startswith("size=7")}) == 1


def test_sizes_beyond_the_formulas_are_recorded():
    fast = chainrule.compile(gpt_loss, sizes=gpt_example)
    weights, words = gpt_example(4, 20, 12)  # more tokens than positions: the model cuts them
    assert agrees(fast, gpt_loss, (weights, words))
    assert "built from formulas" not in fast.report()
    assert agrees(fast, gpt_loss, (weights, words[:13]))
    assert "built from formulas" in fast.report()


# --- what is refused ------------------------------------------------------------------------------


def capped(p, xs):
    count = min(len(xs), 30)
    return sum(a * x for a, x in zip(p[:count], xs[:count], strict=True))


def test_a_law_that_only_small_sizes_follow_is_noticed():
    fast = chainrule.compile(capped, sizes=dot_example)
    assert agrees(fast, capped, dot_example(25))
    with pytest.warns(FallbackWarning, match="at N=40, it computes something else"):
        assert agrees(fast, capped, dot_example(40))
    assert agrees(fast, capped, dot_example(28))


def branching(p, xs):
    return sum(a * x if a > 0 else a for a, x in zip(p, xs, strict=True))


def outside(p, xs):
    return sum(a * x for a, x in zip(p, xs, strict=True)) * SCALE


SCALE = 2.0


@pytest.mark.parametrize(
    ("f", "example", "words"),
    [
        (branching, dot_example, "it holds for one case only"),
        (dot, lambda N: 1 / 0, "recording its examples raised ZeroDivisionError"),
        (dot, lambda: (), "needs one parameter for each size"),
    ],
)
def test_what_sizes_do_not_explain_is_recorded_and_said_in_one_line(f, example, words):
    fast = chainrule.compile(f, sizes=example)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert agrees(fast, f, dot_example(12))
    (warning,) = caught
    assert words in str(warning.message)
    assert "\n" not in str(warning.message)
    strict = chainrule.compile(f, sizes=example, on_fallback="raise")
    with pytest.raises(FallbackError, match="recorded at every size"):
        strict.value_and_grad(*dot_example(12))


def test_calls_of_another_structure_are_recorded():
    fast = chainrule.compile(dot, sizes=dot_example, on_fallback="raise")
    p, xs = dot_example(300)
    assert agrees(fast, dot, (p, np.array(xs)))  # the examples have lists
    assert "built from formulas" not in fast.report()


def test_wrong_use_is_refused_at_once():
    with pytest.raises(TypeError, match="sizes is a function that makes example arguments"):
        chainrule.compile(dot, sizes=3)
    with pytest.raises(ValueError, match="lift=False"):
        chainrule.compile(dot, sizes=dot_example, lift=False)


def test_captured_state_that_changes_is_seen(monkeypatch):
    fast = chainrule.compile(outside, sizes=dot_example, on_fallback="raise")
    for scale in (2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert agrees(fast, outside, dot_example(30))
        assert agrees(fast, outside, dot_example(31))


def test_errors_are_eagers():
    fast = compiled_gpt()
    weights, words = gpt_example(5, 12, 14)
    assert agrees(fast, gpt_loss, (weights, words))
    assert agrees(fast, gpt_loss, (weights, [-1, *words[1:]]))  # counted from the end
    with pytest.raises(IndexError):
        fast.value_and_grad(weights, [11, *words[1:]])

    def entropy(p):
        return -sum(log(x) * x for x in p)

    fast = chainrule.compile(entropy, sizes=lambda N: ([0.5] * N,), on_fallback="raise")
    assert agrees(fast, entropy, ([0.25] * 40,))
    with pytest.raises(ValueError, match="log"):
        fast.value_and_grad([0.25] * 39 + [-1.0])


def test_other_uses_of_such_a_function():
    fast = chainrule.compile(dot, sizes=dot_example)
    p, xs = dot_example(30)
    fast.value_and_grad(p, xs)
    with pytest.raises(chainrule.SaveError, match="sizes"):
        fast.save("never.chainrule")
    assert (
        largest_difference(chainrule.jacobian(fast)(p, xs), chainrule.jacobian(dot)(p, xs)) < 1e-12
    )
    rows = normal(5, 30)
    assert largest_difference(fast.map(p, rows), [dot(p, row) for row in rows]) < 1e-12


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 4])
def test_training_takes_the_same_steps(batch):
    words = tokens(13, 11)
    samples = [(words[:length],) for length in (13, 5, 9, 13, 3, 7, 2, 11)]
    losses = []
    for sizes in (None, gpt_example):
        weights, _ = gpt_example(4, 5, 12)
        fast = chainrule.compile(gpt_loss, sizes=sizes, lift=True, on_fallback="raise")
        losses.append(fast.train(weights, samples, optim.Adam(weights, lr=0.01), 12, batch))
    assert "built from formulas" in fast.report()
    assert np.abs(losses[0] - losses[1]).max() < 1e-9


@pytest.mark.parametrize("stream", [False, True])
def test_a_large_gpt_is_trained_on_code_built_from_small_ones(monkeypatch, stream):
    monkeypatch.setattr(gpt_model, "LARGE", 0)
    documents = ["a first document", "another", "and a third one", "the last of them"] * 2
    config = gpt.Config(width=12, heads=2, layers=1, block=10, steps=6, stream=stream)
    losses = []
    for engine in ("eager", "compiled"):
        run = gpt.Run.start(documents, config, engine=engine)
        losses.append([row.loss for row in gpt.train(run)])
    assert "built from formulas" in run.engine._function.report()
    assert np.abs(np.subtract(*losses)).max() < 1e-9


# --- large calls, of which the function only runs forward -----------------------------------------


def test_large_calls_are_checked_by_forward_runs(monkeypatch):
    monkeypatch.setattr(checking, "SMALL", 0)
    if chainrule.engine == "native":  # the other has no derivatives without a graph
        monkeypatch.setattr(checking._Check, "in_full", None)
    fast = chainrule.compile(gpt_loss, sizes=gpt_example, on_fallback="raise")
    weights, longest = gpt_example(4, 13, 12)
    for length in (13, 6):
        assert agrees(fast, gpt_loss, (weights, longest[:length]))
    wrong = chainrule.compile(capped, sizes=dot_example)
    with pytest.warns(FallbackWarning, match="it computes something else"):
        assert agrees(wrong, capped, dot_example(40))


@pytest.mark.parametrize("factor", [2.0, 1 + 1e-6])
def test_a_wrong_derivative_of_a_large_call_is_noticed(monkeypatch, factor):
    monkeypatch.setattr(checking, "SMALL", 0)
    answer = checking._answer

    def wrong(variant, call, differentiate):
        values, gradient = answer(variant, call, differentiate)
        return values, factor * gradient

    monkeypatch.setattr(checking, "_answer", wrong)
    fast = chainrule.compile(dot, sizes=dot_example)
    with pytest.warns(FallbackWarning, match="its (derivative|gradient) differs"):
        assert agrees(fast, dot, dot_example(40))
    assert "built from formulas" not in fast.report()


def rough(p, xs):
    """Its slope changes a lot within the step of a finite difference."""
    return sum(tanh(1e8 * a * x) for a, x in zip(p, xs, strict=True)) / len(xs)


def test_no_rightful_derivative_of_a_large_call_is_refused(monkeypatch):
    monkeypatch.setattr(checking, "SMALL", 0)

    def example(N):
        return 1e-8 * normal(N), normal(N).tolist()

    fast = chainrule.compile(rough, sizes=example, on_fallback="raise")
    assert agrees(fast, rough, example(40))


def test_a_function_that_asks_for_its_graph_is_compared_in_full(monkeypatch):
    monkeypatch.setattr(checking, "SMALL", 0)
    monkeypatch.setattr(Tracer, "marked", lambda self, state, call, marker: self.trace(state, call))
    fast = chainrule.compile(dot, sizes=dot_example, on_fallback="raise")
    assert agrees(fast, dot, dot_example(40))


def test_what_takes_long_is_said_in_words(monkeypatch):
    seen = []
    fast = chainrule.compile(dot, sizes=dot_example)
    for name in ("family_of", "check", "MachineCode"):
        real = getattr(serving, name)

        def noted(*arguments, real=real):
            seen.append(fast.dispatch.doing)
            return real(*arguments)

        monkeypatch.setattr(serving, name, noted)
    fast.value_and_grad(*dot_example(40))
    assert [*dict.fromkeys(seen)] == [
        "recording small sizes",
        "building machine code",
        "comparing with the function itself",
    ]
    assert fast.dispatch.doing == ""
