"""One machine code for all lengths where a shorter call is no prefix of a longer one.

Every position attends to all others, or only the last one counts: rows are data then.
"""

import random
import threading

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, exp, linear, tanh
from chainrule.nn import softmax
from chainrule.optim import Adam

pytest.importorskip("llvmlite")

WIDTH, TOKENS, LONGEST = 4, 7, 40
RNG = np.random.default_rng(11)
PARAMETERS = {
    "E": RNG.normal(size=(TOKENS, WIDTH)),
    "at": RNG.normal(size=(LONGEST, WIDTH)) * 0.3,
    "Q": RNG.normal(size=(WIDTH, WIDTH)) * 0.5,
    "K": RNG.normal(size=(WIDTH, WIDTH)) * 0.5,
    "V": RNG.normal(size=(WIDTH, WIDTH)) * 0.5,
    "v": RNG.normal(size=WIDTH),
}


def dot(xs, ys):
    return sum(x * y for x, y in zip(xs, ys, strict=True))


def placed(p, tokens):
    rows = zip(tokens, p["at"], strict=False)
    return [[a + b for a, b in zip(p["E"][t], at, strict=True)] for t, at in rows]


def attended(p, xs, heads=1, causal=False):
    queries, keys, values = ([linear(x, p[name]) for x in xs] for name in "QKV")
    size, made = WIDTH // heads, []
    for i, query in enumerate(queries):
        row, seen = [], i + 1 if causal else len(xs)
        for head in range(heads):
            s = slice(head * size, head * size + size)
            shares = softmax([dot(query[s], key[s]) / size**0.5 for key in keys[:seen]])
            columns = zip(*[value[s] for value in values[:seen]], strict=True)
            row += [dot(shares, column) for column in columns]
        made.append([a + b for a, b in zip(xs[i], row, strict=True)])
    return made


def to_all(p, tokens):
    rows = attended(p, placed(p, tokens))
    return sum(tanh(dot(row, p["v"])) for row in rows) / len(rows)


def in_heads(p, tokens):
    rows = attended(p, attended(p, placed(p, tokens), heads=2), heads=2)
    return sum(tanh(dot(row, p["v"])) for row in rows)


def last_of_all(p, tokens):
    return tanh(dot(attended(p, placed(p, tokens))[-1], p["v"]))


def last_of_earlier(p, tokens):
    return tanh(dot(attended(p, placed(p, tokens), causal=True)[-1], p["v"]))


def one_query(p, tokens):
    xs = placed(p, tokens)
    query = linear(xs[-1], p["Q"])
    shares = softmax([dot(query, linear(x, p["K"])) for x in xs])
    return sum(share * dot(x, p["v"]) for share, x in zip(shares, xs, strict=True))


def largest(p, tokens):
    rows = attended(p, placed(p, tokens))
    return dot([max(row[k] for row in rows) for k in range(WIDTH)], p["v"])


def pairs(p, tokens):
    xs = [p["E"][t] for t in tokens]
    near = [exp(-dot(d, d)) for i, x in enumerate(xs) for d in away(x, xs[:i])]
    return sum(near) + xs[-1][0]


def away(x, others):
    return [[a - b for a, b in zip(x, y, strict=True)] for y in others]


def by_columns(p, tokens):
    xs = [p["E"][t] for t in tokens]
    rows = [[exp(dot(x, y) * 0.1) for y in xs] for x in xs]
    return sum(rows[j][j] / sum(row[j] for row in rows) for j in range(len(xs)))


def biased(p, tokens):
    xs, total = [p["E"][t] for t in tokens], 0.0
    for i, x in enumerate(xs):
        for j, y in enumerate(xs):
            total = total + tanh(dot(x, y) - 0.1 * abs(i - j)) / (1 + i + j)
    return total


def kernel(p, xs):
    total = 0.0
    for x in xs:
        total = total + (sum(exp(-p["v"][0] * (x - y) ** 2) * p["v"][1] for y in xs) - x) ** 2
    return total


PROGRAMS = [to_all, in_heads, last_of_all, last_of_earlier, one_query, largest, pairs, by_columns]
PROGRAMS += [biased, kernel]
LENGTHS = (6, 3, 8, 5, 7, 4, 2, 9, 1)


def sample(f, n, chance):
    if f is kernel:
        return [chance.uniform(-1.0, 1.0) for _ in range(n)]
    return [chance.randrange(TOKENS) for _ in range(n)]


def agree(fast, f, xs, tolerance=1e-10):
    value, gradient = fast.value_and_grad(PARAMETERS, xs)
    wanted, slopes = chainrule.value_and_grad(f)(PARAMETERS, xs)
    assert value == pytest.approx(wanted, rel=tolerance, abs=tolerance)
    for name, slope in slopes.items():
        np.testing.assert_allclose(
            gradient[name], slope, rtol=10 * tolerance, atol=tolerance, err_msg=name
        )


def number(x):
    return x.data if isinstance(x, Value) else x


def machines(fast):
    return {id(x.machine): x.machine for x in View(fast).variants if x.machine is not None}


def served(f, lengths=LENGTHS, rounds=3, **options):
    """The function compiled, after calls of these lengths that agreed with eager."""
    fast, chance = chainrule.compile(f, lift=True, **options), random.Random(f.__name__)
    for _ in range(rounds):
        for n in lengths:
            agree(fast, f, sample(f, n, chance), 1e-3 if options.get("dtype") else 1e-10)
    return fast


@pytest.mark.parametrize("f", PROGRAMS)
def test_all_lengths_share_one_machine_code(f):
    lengths = [n for n in LENGTHS if n > 2]
    (machine,) = machines(served(f, lengths)).values()
    assert machine.in_rows


@pytest.mark.parametrize("f", PROGRAMS)
@pytest.mark.parametrize("lengths", [range(1, 9), range(8, 0, -1), LENGTHS], ids=str)
def test_lengths_in_every_order_agree_with_eager(f, lengths):
    served(f, lengths, rounds=2)


@pytest.mark.parametrize("f", [to_all, last_of_earlier, by_columns, pairs])
@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"contract": False}], ids=str)
def test_other_numbers_and_other_roundings_agree(f, options):
    fast = served(f, (6, 10, 3, 8), **options)
    assert any(machine.in_rows for machine in machines(fast).values())


def test_a_function_of_one_length_has_quicker_code_of_its_own():
    fast = served(to_all, (8, 8, 8))
    assert not any(machine.in_rows for machine in machines(fast).values())


def test_what_depends_on_the_length_in_another_way_has_code_of_its_own():
    def f(p, tokens):
        xs = [p["E"][t] for t in tokens]
        n = len(xs)
        total = sum(tanh(dot(x, xs[-1])) for x in xs)
        return total * sum(p["v"][k % WIDTH] ** (2 + k * n % 5) for k in range(n))

    chance = random.Random(3)
    fast = chainrule.compile(f, lift=True)
    for n in LENGTHS * 2:
        agree(fast, f, sample(f, n, chance))


def test_no_tokens_raise_as_in_eager_mode_and_nothing_is_left_behind():
    fast = served(to_all)
    with pytest.raises(ZeroDivisionError):
        fast.value_and_grad(PARAMETERS, [])
    agree(fast, to_all, [1, 2, 3])


def test_undefined_values_raise_and_do_not_reach_later_calls():
    def f(p, xs):
        scores = [[chainrule.log(x * y + 0.5) * p["v"][0] for y in xs] for x in xs]
        return sum(map(sum, scores)) + xs[-1] * p["v"][1]

    fast, chance = chainrule.compile(f, lift=True), random.Random(1)
    for n in (9, 5, 9, 5, 12, 7) * 2:
        agree(fast, f, [chance.uniform(0.1, 1.0) for _ in range(n)])
    for n in (11, 5):
        with pytest.raises(ValueError, match="log"):
            fast.value_and_grad(PARAMETERS, [1.0, -2.0] + [0.5] * n)
        with chainrule.nonfinite("allow"):
            fast.value_and_grad(PARAMETERS, [float("inf")] * n)
        for shorter in (3, 6, 11):
            agree(fast, f, [chance.uniform(0.1, 1.0) for _ in range(shorter)])


def test_branches_on_data_agree():
    def f(p, xs):
        ys = [x * p["v"][0] if x > 0 else x * p["v"][1] for x in xs]
        return sum(tanh(a * b) for a in ys for b in ys) + ys[-1] ** 2

    fast, chance = chainrule.compile(f, lift=True), random.Random(2)
    for n in (8, 5, 10, 6) * 4:
        xs = [abs(chance.gauss(0, 1)) for _ in range(n)]
        if chance.random() < 0.3:
            xs[chance.randrange(n)] *= -1
        agree(fast, f, xs)


def test_captured_state_of_another_value_is_read_again():
    scale = [1.0]

    def f(p, tokens):
        xs = [p["E"][t] for t in tokens]
        return scale[0] * sum(tanh(dot(x, y)) for x in xs for y in xs) + xs[-1][0]

    fast, chance = chainrule.compile(f, lift=True), random.Random(4)
    for k, n in enumerate((8, 5, 10, 6, 5, 8, 3, 10) * 2):
        scale[0] = 1.0 + k // 5
        agree(fast, f, sample(f, n, chance))


def test_many_samples_and_many_threads_agree():
    fast, chance = served(in_heads), random.Random(6)
    samples = [(sample(in_heads, n, chance),) for n in LENGTHS * 3]
    values, gradient = fast.batch_value_and_grad(PARAMETERS, samples)
    one_by_one = [chainrule.value_and_grad(in_heads)(PARAMETERS, *x) for x in samples]
    np.testing.assert_allclose(values, np.mean([x for x, _ in one_by_one]), rtol=1e-10)
    for name, slope in gradient.items():
        wanted = np.mean([g[name] for _, g in one_by_one], axis=0)
        np.testing.assert_allclose(slope, wanted, rtol=1e-8, atol=1e-11)
    wrong = []

    def run(seed):
        chance = random.Random(seed)
        for _ in range(8):
            try:
                agree(fast, in_heads, sample(in_heads, chance.choice(LENGTHS), chance))
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("batch", [1, 8, 16])
@pytest.mark.parametrize("f", [last_of_all, in_heads])
def test_training_takes_the_steps_of_eager_training(f, batch):
    chance = random.Random(7)
    samples = [(sample(f, chance.randrange(2, 8), chance),) for _ in range(20)]
    found = []
    for lift in (True, False):
        fast = chainrule.compile(f, lift=lift)
        params = {name: x.copy() for name, x in PARAMETERS.items()}
        losses = fast.train(params, samples, Adam(params, lr=0.01), 20, batch=batch)
        found.append(np.concatenate([losses, *map(np.ravel, params.values())]))
        if lift:
            assert any(machine.in_rows for machine in machines(fast).values())
    np.testing.assert_allclose(*found, rtol=1e-7, atol=1e-9)


def test_saved_functions_have_the_same_bits(tmp_path):
    fast, chance = served(last_of_earlier), random.Random(8)
    tokens = {n: sample(last_of_earlier, n, chance) for n in (4, 6, 9)}
    wanted = {n: fast.value_and_grad(PARAMETERS, x) for n, x in tokens.items()}
    fast.save(tmp_path / "f.chainrule")
    loaded = chainrule.load(tmp_path / "f.chainrule", build=True)
    for n, x in tokens.items():
        value, gradient = loaded.value_and_grad(PARAMETERS, x)
        assert value == wanted[n][0]
        for name, slope in wanted[n][1].items():
            np.testing.assert_array_equal(gradient[name], slope)


def test_values_alone_are_those_of_the_function():
    fast, chance = served(largest), random.Random(9)
    for n in (5, 9, 3, 8):
        tokens = sample(largest, n, chance)
        found, wanted = fast(PARAMETERS, tokens), largest(PARAMETERS, tokens)
        assert type(found) is type(wanted)
        assert number(found) == pytest.approx(number(wanted), rel=1e-10)
