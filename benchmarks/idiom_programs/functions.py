"""Functions that belong to no field: small ones, long lists, and integers that choose."""

import math

import numpy as np

from chainrule import cos, dot, exp, log, maximum, sin, sqrt, tanh, where

from .registry import Field, drifting

FIELD = Field("functions")

# --- test functions of optimisation ---------------------------------------------------------------


@FIELD.idiom
def rosenbrock(rng):
    for x in drifting(rng, rng.normal(size=10)):
        yield (x,)


@rosenbrock.spelling
def rosenbrock_index(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))


@rosenbrock.spelling(adapt=lambda x: (x.tolist(),))
def rosenbrock_zip(x):
    total = 0.0
    for a, b in zip(x, x[1:]):
        total += 100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2
    return total


@rosenbrock.spelling
def rosenbrock_slices(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@rosenbrock.spelling(adapt=lambda x: (x[:2].tolist(),))
def rosenbrock_of_two(p):
    x, y = p
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


@rosenbrock.spelling(adapt=lambda x: (float(x[0]),))
def rosenbrock_of_one(x):
    return (1 - x) ** 2 + 100 * (0.5 - x**2) ** 2


@FIELD.idiom
def landscape(rng):
    for x in drifting(rng, rng.normal(size=6).tolist()):
        yield (x,)


@landscape.spelling
def landscape_rastrigin(x):
    return 10 * len(x) + sum(xi**2 - 10 * cos(2 * math.pi * xi) for xi in x)


@landscape.spelling
def landscape_ackley(x):
    n = len(x)
    a = -0.2 * sqrt(sum(xi * xi for xi in x) / n)
    b = sum(cos(2 * math.pi * xi) for xi in x) / n
    return -20 * exp(a) - exp(b) + 20 + math.e


@landscape.spelling
def landscape_himmelblau(p):
    x, y, *_ = p
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


@landscape.spelling
def landscape_griewank(x):
    product = 1.0
    for i, xi in enumerate(x, start=1):
        product = product * cos(xi / math.sqrt(i))
    return 1 + sum(xi**2 for xi in x) / 4000 - product


@landscape.spelling
def landscape_penalty(x):
    f = sum((xi - 1) ** 2 for xi in x)
    g = sum(x) - 1
    if g > 0:
        f = f + 10 * g**2
    return f


@landscape.spelling
def landscape_where_and(x):
    total = 0.0
    for a, b in zip(x, x[1:]):
        total = total + where((a > 0) & (b > 0), a * b, a - b)
    return total


@landscape.spelling
def landscape_where_not_or(x):
    return sum(where(~(a > 0) | (b > 1), a * a, b) for a, b in zip(x, x[1:]))


@landscape.spelling(adapt=lambda x: (np.array(x),))
def landscape_where_of_arrays(x):
    a, b = x[:-1], x[1:]
    return np.sum(where((a > 0) & (b > 0), a * b, a - b))


@landscape.spelling(adapt=lambda x: (np.array(x),))
def landscape_where_by_numpy(x):
    return np.sum(np.where(x > 0, x, 0.1 * x) * x)


@landscape.spelling
def landscape_boolean_and(x):
    total = 0.0
    for a, b in zip(x, x[1:]):
        total = total + (a * b if a > 0 and b > 0 else a - b)
    return total


@landscape.spelling
def landscape_count_positive(x):
    n = sum(1 for xi in x if xi > 0)
    return sum(xi * xi for xi in x) / (n + 1)


@landscape.spelling
def landscape_sorted(x):
    return sum(i * xi for i, xi in enumerate(sorted(x)))


@landscape.spelling
def landscape_largest_two(x):
    first, second = sorted(x, reverse=True)[:2]
    return first * second


@landscape.spelling
def landscape_filter(x):
    return sum(tanh(xi) for xi in x if abs(xi) < 1.0) + 0 * x[0]


@landscape.spelling
def landscape_normalised_by_data(x):
    data = np.array([xi.data for xi in x])
    scale = np.max(np.abs(data))
    return sum((xi / scale) ** 2 for xi in x)


@landscape.spelling
def landscape_swap(x):
    a, b = x[0], x[1]
    if a < b:
        a, b = b, a
    return a * a - b


# --- long lists -----------------------------------------------------------------------------------


@FIELD.idiom
def long_list(rng):
    for w in drifting(rng, rng.normal(size=300).tolist()):
        yield w, rng.normal(size=300).tolist()


@long_list.spelling
def long_list_dot(w, x):
    return sum(a * b for a, b in zip(w, x)) ** 2


@long_list.spelling
def long_list_index(w, x):
    total = 0.0
    for i in range(len(w)):
        total += (w[i] - x[i]) ** 2
    return total / len(w)


@long_list.spelling
def long_list_neighbours(w, x):
    return sum(abs(w[i + 1] - w[i]) for i in range(len(w) - 1)) + sum(
        (a - b) ** 2 for a, b in zip(w, x)
    )


@long_list.spelling
def long_list_running(w, x):
    state, total = 0.0, 0.0
    for a, b in zip(w, x):
        state = tanh(0.9 * state + a * b)
        total = total + state
    return total


@long_list.spelling(adapt=lambda w, x: (w, x[: 50 + int(abs(x[0]) * 50)]))
def long_list_of_changing_length(w, x):
    return sum(a * b for a, b in zip(w, x)) / len(x)


@long_list.spelling(adapt=lambda w, x: (w[:4], x[: 50 + int(abs(x[0]) * 50)]))
def long_list_polynomial_fit(w, xs):
    return sum((w[0] + w[1] * x + w[2] * x * x - w[3]) ** 2 for x in xs) / len(xs)


@long_list.spelling(adapt=lambda w, x: (w[0], x))
def long_list_mean_shift(mu, xs):
    return sum(exp(-((x - mu) ** 2)) for x in xs)


# --- lists of numbers, each time of another length ------------------------------------------------


@FIELD.idiom
def lengths(rng):
    for k, w in enumerate(drifting(rng, rng.normal(size=(6, 4)).tolist())):
        yield w, rng.normal(size=(4 + k % 9, 4)).tolist()


@lengths.spelling
def lengths_rows(w, rows):
    total = 0.0
    for row in rows:
        hidden = [tanh(sum(a * x for a, x in zip(unit, row))) for unit in w]
        total = total + sum(hidden) ** 2
    return total / len(rows)


@lengths.spelling(adapt=lambda w, rows: (np.array(w), np.array(rows)))
def lengths_matrix(w, rows):
    return sum(tanh(w @ row).sum() ** 2 for row in rows) / len(rows)


@lengths.spelling(adapt=lambda w, rows: (w, [int(abs(r[0]) * 9) % 6 for r in rows], rows))
def lengths_tokens_and_masks(w, tokens, masks):
    total = 0.0
    for token, mask in zip(tokens, masks):
        x = [a * (m > 0) / 0.5 for a, m in zip(w[token], mask)]
        total = total + tanh(sum(x))
    return total


def tokens_and_kept(w, rows):
    tokens = [int(abs(r[0]) * 9) % 6 for r in rows]
    return w, tokens, [[x > -1.0 for x in row] for row in rows]


@lengths.spelling(adapt=tokens_and_kept)
def lengths_tokens_and_dropout(w, tokens, masks):
    total = 0.0
    for token, mask in zip(tokens, masks):
        x = [tanh(a) / 0.9 if kept else 0.0 for a, kept in zip(w[token], mask)]
        total = total + tanh(sum(x))
    return total


@lengths.spelling
def lengths_keys_and_values(w, keys):
    query = [sum(row) for row in w[:4]]
    matches = [sum(q * x for q, x in zip(query, key)) for key in keys]
    most = max(m.data for m in matches)
    powers = [exp(m - most) for m in matches]
    total = sum(powers)
    mixed = [sum(p * key[j] for p, key in zip(powers, keys)) / total for j in range(4)]
    return sum(x * x for x in mixed)


@lengths.spelling(adapt=lambda w, rows: (w[0], [x for row in rows for x in row]))
def lengths_time_series(w, returns):
    variance, total = w[0] ** 2 + 0.1, 0.0
    for r in returns:
        variance = 0.05 + w[1] ** 2 * r * r + variance / (1.0 + exp(w[2]))
        total = total + log(variance) + r * r / variance
    return total / len(returns)


@lengths.spelling(adapt=lambda w, rows: (w[0], [{"x": r[0], "y": r[1]} for r in rows]))
def lengths_records(w, points):
    return sum((w[0] + w[1] * p["x"] - p["y"]) ** 2 for p in points) / len(points)


# --- integers -------------------------------------------------------------------------------------


@FIELD.idiom
def integer(rng):
    for p in drifting(rng, rng.normal(size=6).tolist()):
        yield p, int(rng.integers(1, 6))


@integer.spelling
def integer_reciprocal(p, n):
    return sum(p) * (1.0 / n)


@integer.spelling
def integer_half(p, n):
    return dot(p, p) * (n * 0.5)


@integer.spelling
def integer_compared_with_float(p, n):
    return p[0] * p[1] if n < 2.5 else p[2] - p[3]


@integer.spelling
def integer_power_of_two(p, n):
    return sum(p) / 2.0**n


@integer.spelling
def integer_exponent(p, n):
    return p[0] ** n + p[1] ** 2


@integer.spelling
def integer_index(p, n):
    return p[n] ** 2 + p[-n] * p[n // 2]


@integer.spelling
def integer_slice(p, n):
    return sum(x * x for x in p[:n])


@integer.spelling
def integer_range(p, n):
    total = 0.0
    for i in range(n):
        total = total + p[i] * (i + 1)
    return total


@integer.spelling
def integer_parity(p, n):
    return p[0] * p[1] if n % 2 == 0 else p[0] + p[1]


@integer.spelling
def integer_annealing(p, n):
    temperature = max(0.1, 1.0 - 0.1 * n)
    e = [exp(x / temperature) for x in p]
    return log(sum(e)) * temperature


@integer.spelling
def integer_bias_correction(p, n):
    m = sum(p) * 0.1 / (1 - 0.9**n)
    v = sum(x * x for x in p) * 0.01 / (1 - 0.99**n)
    return m / (sqrt(v) + 1e-8)


@integer.spelling
def integer_math_functions(p, n):
    return sum(p) / math.sqrt(n) + p[0] * math.log(n + 1) + p[1] * math.factorial(n)


@integer.spelling
def integer_bits(p, n):
    return sum(x for i, x in enumerate(p) if n >> i & 1) + p[5] * p[5]


@FIELD.idiom
def tokens(rng):
    for p in drifting(rng, rng.normal(size=8)):
        yield p, rng.integers(8, size=6).tolist(), int(rng.integers(6))


TRANSITIONS = [[(3 * s + t) % 5 for t in range(8)] for s in range(5)]
EMBEDDING = np.arange(24.0).reshape(8, 3) / 10
BIG_TABLE = np.sin(np.arange(200_000.0))


@tokens.spelling
def tokens_automaton(p, ts, k):
    state, total = 0, 0.0
    for t in ts:
        state = TRANSITIONS[state][t]
        total = total + p[state] * p[t]
    return total


NESTED = {s: dict(enumerate(row)) for s, row in enumerate(TRANSITIONS)}
PAIRED = {(s, t): new for s, row in NESTED.items() for t, new in row.items()}
NAMED = {("abcde"[s], t): "abcde"[new] for (s, t), new in PAIRED.items()}


@tokens.spelling
def tokens_automaton_nested_dict(p, ts, k):
    state, total = 0, 0.0
    for t in ts:
        state = NESTED[state][t]
        total = total + p[state] * p[t]
    return total


@tokens.spelling
def tokens_automaton_tuple_keys(p, ts, k):
    state, total = 0, 0.0
    for t in ts:
        state = PAIRED[state, t]
        total = total + p[state] * p[t]
    return total


@tokens.spelling
def tokens_automaton_named_states(p, ts, k):
    state, total = "a", 0.0
    for t in ts:
        state = NAMED.get((state, t), "a")
        total = total + p["abcde".index(state)] * p[t]
    return total


@tokens.spelling(adapt=lambda p, ts, k: (p, np.array(ts), k))
def tokens_scatter_add_index_array(p, ts, k):
    bins = [0.0] * 8
    for t in ts:
        bins[t] += p[t]
    return sum(b * b for b in bins)


@tokens.spelling(adapt=lambda p, ts, k: (p, np.array(ts), k))
def tokens_scatter_add_object_array(p, ts, k):
    bins = np.zeros(8, dtype=object)
    for t in ts:
        bins[t] += p[t]
    return (bins**2).sum()


@tokens.spelling
def tokens_scatter_add(p, ts, k):
    bins = [0.0] * 8
    for t in ts:
        bins[t] = bins[t] + p[t]
    return sum(b * b for b in bins)


@tokens.spelling
def tokens_rolling_hash(p, ts, k):
    h, total = 0, 0.0
    for t in ts:
        h = (h * 31 + t) % 8
        total = total + p[h]
    return total**2


@tokens.spelling
def tokens_sum_and_pick(p, ts, k):
    return sum(p[t] for t in ts) * p[k] + p[ts[k]]


@tokens.spelling
def tokens_fancy_index(p, ts, k):
    return (p[ts] ** 2).sum() * p[k]


@tokens.spelling
def tokens_frozen_embedding(p, ts, k):
    total = 0.0
    for t in ts:
        total = total + p[t] * EMBEDDING[t].sum() + p[0] * EMBEDDING[t][1]
    return total**2


@tokens.spelling
def tokens_big_global(p, ts, k):
    return sum(p[t] * BIG_TABLE[t * 1000 + k] for t in ts)


@tokens.spelling
def tokens_repeated(p, ts, k):
    total = 0.0
    for i, a in enumerate(ts):
        for b in ts[i + 1 :]:
            if a == b:
                total = total + p[a]
    return total + p[k]


@tokens.spelling
def tokens_set_membership(p, ts, k):
    seen = set()
    total = 0.0
    for t in ts:
        if t not in seen:
            total = total + p[t] ** 2
            seen.add(t)
    return total


@tokens.spelling
def tokens_sorted(p, ts, k):
    return sum(p[t] * (i + 1) for i, t in enumerate(sorted(ts)))


@tokens.spelling
def tokens_largest(p, ts, k):
    return p[max(ts)] * p[min(ts)] + p[k] ** 2


@tokens.spelling
def tokens_stack_machine(p, ts, k):
    stack = []
    for t in ts:
        if t < 6 or len(stack) < 2:
            stack.append(p[t])
        elif t == 6:
            stack.append(stack.pop() + stack.pop())
        else:
            stack.append(stack.pop() * stack.pop())
    return sum(stack)


@tokens.spelling
def tokens_two_rows(p, ts, k):
    W = p.reshape(2, 4)
    row = W[k % 2]
    return row[ts[0] % 4] * row[ts[1] % 4] + maximum(row[0], row[1])


@tokens.spelling(adapt=lambda p, ts, k: (p, "".join("abcdefgh"[t] for t in ts), k))
def tokens_unique_string(p, text, k):
    return sum(p[ord(c) - 97] ** 2 for c in text) * p[k]


@tokens.spelling(adapt=lambda p, ts, k: (dict(zip("abcdefgh", p.tolist())), "abcdefgh"[ts[0]], k))
def tokens_letter_key(p, letter, k):
    return p[letter] ** 2 + p["a"] * sin(p["b"])


@tokens.spelling(adapt=lambda p, ts, k: (p, np.array(ts), k))
def tokens_numpy_bincount(p, ts, k):
    counts = np.bincount(ts, minlength=8)
    return (counts * p * p).sum()


@tokens.spelling(adapt=lambda p, ts, k: (p, np.array(ts, np.int32), k))
def tokens_int32(p, ts, k):
    return sum(p[t] ** 2 for t in ts) * p[k]


@tokens.spelling(adapt=lambda p, ts, k: (p, np.array(ts, np.uint8), k))
def tokens_pixels(p, ts, k):
    return sum(p[k] * x for x in ts / 7.0) ** 2


@tokens.spelling(adapt=lambda p, ts, k: (p, np.isin(np.arange(8), ts), k))
def tokens_mask_times(p, mask, k):
    return (p * mask * p).sum() * p[k]


@tokens.spelling(adapt=lambda p, ts, k: (p, np.isin(np.arange(8), ts), k))
def tokens_mask_in_branches(p, mask, k):
    return sum(w * w for w, kept in zip(p, mask) if kept) * p[k]


@tokens.spelling(adapt=lambda p, ts, k: (p, np.array(ts), k))
def tokens_boolean_mask(p, ts, k):
    mask = np.isin(np.arange(8), ts)
    return (p[mask] ** 2).sum()
