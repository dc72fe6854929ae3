"""Arrays of truths and of integers of few bits that vary: traced, with numpy's own arithmetic."""

# ruff: noqa: B905 - written as people write

import operator
import zlib

import numpy as np
import pytest
from compile_twins import recordings

import chainrule
from chainrule import relu, where

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64]
P = np.array([0.3, -1.2, 0.7, 1.1, -0.4])
TABLE = [10, 20, 30, 40, 50, 60, 70]
FLOATS = np.linspace(-1.0, 1.0, 5)


def arrays(kind, count=14, small=False):
    """Arrays of which all differ; not ``small``: with the least and the largest of the type."""
    rng = np.random.default_rng(7)
    made = [rng.integers(0, 2 if kind is np.bool_ else 7, 5).astype(kind) for _ in range(count)]
    if kind is not np.bool_ and not small:
        ends = np.iinfo(kind)
        for k, x in enumerate(made[4::2]):
            x[k % 5] = ends.max if k % 2 else ends.min
            x[(k + 1) % 5] = ends.max // 2 + 1
    return made


def told(x):
    """The numbers and the types of what was computed."""
    if isinstance(x, np.ndarray):
        return [*x.ravel()], f"{x.dtype.name} {x.shape}"
    items = [*x] if isinstance(x, list | tuple) else [x]
    return items, " ".join([type(item).__name__ for item in items])


def program(use):
    def f(p, x):
        items, names = told(use(x))
        return sum(p[k % 5] * v for k, v in enumerate(items)) + p[0] * zlib.crc32(names.encode())

    return f


def same(f, calls, **options):
    """The function compiled, after calls that gave eager's results and types, or its errors."""
    fast = chainrule.compile(f, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(f)
    for arguments in [*calls, *calls]:
        found = []
        for function in (fast.value_and_grad, eager):
            try:
                found.append(repr(function(*arguments)))
            except Exception as error:
                found.append((type(error), str(error)))
        assert found[0] == found[1], arguments
    return fast


ANY = {
    "items": lambda x: [*x],
    "an item": lambda x: x[2],
    "part": lambda x: x[1:4],
    "turned": lambda x: x[::-1],
    "reshaped": lambda x: x.reshape(5, 1).T,
    "copied": lambda x: x.copy(),
    "list": lambda x: x.tolist(),
    "item as Python's": lambda x: x.item(3),
    "int": lambda x: [int(v) for v in x],
    "float": lambda x: [float(v) for v in x],
    "bool": lambda x: [bool(v) for v in x],
    "as floats": lambda x: x.astype(float),
    "as integers": lambda x: x.astype(np.int64),
    "as int8": lambda x: x.astype(np.int8),
    "as float32": lambda x: x.astype(np.float32),
    "times a float": lambda x: x * 1.5,
    "a float less": lambda x: 1.5 - x,
    "over a float": lambda x: x / 255.0,
    "over an integer": lambda x: x / 255,
    "under a float": lambda x: 1.0 / (x + 1.5),
    "times an array": lambda x: x * FLOATS,
    "less than an array": lambda x: x < FLOATS,
    "plus an integer": lambda x: x + 3,
    "times an integer": lambda x: x * 3,
    "minus a large integer": lambda x: x - 300,
    "plus itself": lambda x: x + x,
    "times itself": lambda x: x * x,
    "minus itself": lambda x: x - x[::-1],
    "negative": lambda x: -x,
    "inverted": lambda x: ~x,
    "absolute": lambda x: abs(x),
    "power": lambda x: x**2,
    "floor": lambda x: x // 2,
    "remainder": lambda x: x % 3,
    "shifted": lambda x: x >> 1,
    "and": lambda x: x & x[::-1],
    "or": lambda x: x | x[::-1],
    "xor": lambda x: x ^ x[::-1],
    "plus int64": lambda x: x + np.arange(5),
    "plus uint8": lambda x: x + np.arange(250, 255, dtype=np.uint8),
    "plus int8": lambda x: x + np.arange(-5, 0, dtype=np.int8),
    "plus float32": lambda x: x + np.ones(5, np.float32),
    "equal": lambda x: x == 3,
    "unequal": lambda x: x != 1,
    "less": lambda x: x < 3,
    "less than much": lambda x: x < 300,
    "more than a negative": lambda x: x > -1,
    "equal to itself": lambda x: x == x[::-1],
    "less than int64": lambda x: x < np.arange(-1, 4),
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.reshape(1, 5).sum(axis=0),
    "np.sum": lambda x: np.sum(x),
    "np.sum of rows": lambda x: np.sum(x.reshape(1, 5), axis=1),
    "sum as floats": lambda x: x.sum(dtype=float),
    "Python's sum": lambda x: sum(x),
    "product": lambda x: x.prod(),
    "mean": lambda x: x.mean(),
    "np.mean": lambda x: np.mean(x.reshape(1, 5), axis=0),
    "variance": lambda x: x.var(),
    "largest": lambda x: [max(x), x.max(), np.max(x)],
    "least": lambda x: [min(x), x.min()],
    "place of the largest": lambda x: x.argmax(),
    "sorted": lambda x: sorted(x),
    "np.sort": lambda x: np.sort(x),
    "cumsum": lambda x: np.cumsum(x),
    "dot": lambda x: np.dot(x, x),
    "dot with floats": lambda x: np.dot(x, FLOATS),
    "joined": lambda x: np.concatenate([x, x]),
    "joined with floats": lambda x: np.concatenate([x, FLOATS]),
    "np.where": lambda x: np.where(x, 2.0, 3.0),
    "any": lambda x: [x.any(), x.all(), np.any(x)],
    "counted": lambda x: np.count_nonzero(x),
    "root": lambda x: np.sqrt(x),
    "new array": lambda x: np.array([*x]),
    "stored into": lambda x: stored(x),
    "added in place": lambda x: added(x),
    "item plus an integer": lambda x: [v + 3 for v in x],
    "integer less an item": lambda x: [3 - v for v in x],
    "item times an integer": lambda x: [v * 3 for v in x],
    "item plus a large integer": lambda x: [v + 300 for v in x],
    "item plus a bool": lambda x: [v + True for v in x],
    "items added": lambda x: [a + b for a, b in zip(x, x[::-1])],
    "items multiplied": lambda x: [a * b for a, b in zip(x, x[::-1])],
    "items divided": lambda x: [a / (b + 1.0) for a, b in zip(x, x[::-1])],
    "item over an integer": lambda x: [v / 7 for v in x],
    "item floored": lambda x: [v // 2 for v in x],
    "integer under an item": lambda x: [7 // v if v else 0 for v in x],
    "remainder of an item": lambda x: [v % 3 for v in x],
    "item over zero": lambda x: [v // 0 for v in x],
    "item negative": lambda x: [-v for v in x],
    "item inverted": lambda x: [~v for v in x],
    "item absolute": lambda x: [abs(v) for v in x],
    "item positive": lambda x: [+v for v in x],
    "item to a power": lambda x: [v**2 for v in x],
    "power of an item": lambda x: [2.0 ** int(v % 5) for v in x],
    "item shifted": lambda x: [v >> 1 for v in x],
    "item and an integer": lambda x: [v & 5 for v in x],
    "items xor": lambda x: [a ^ b for a, b in zip(x, x[::-1])],
    "item times a float": lambda x: [v * 0.5 for v in x],
    "item beside int64": lambda x: [v + np.int64(3) for v in x],
    "item beside float32": lambda x: [v + np.float32(3) for v in x],
    "item compared": lambda x: [v > 2 for v in x],
    "item compared with much": lambda x: [v < 300 for v in x],
    "item compared with int64": lambda x: [v >= np.int64(-3) for v in x],
    "item compared with a float": lambda x: [v < 2.5 for v in x],
    "items compared": lambda x: [a == b for a, b in zip(x, x[::-1])],
    "items in branches": lambda x: [2.0 if v else 3.0 for v in x],
    "comparisons in branches": lambda x: [2.0 if v > 2 else 3.0 for v in x],
    "not": lambda x: [not v for v in x],
    "hashed": lambda x: [len({*x}), len({*x.tolist()})],
    "in a list": lambda x: [v in TABLE for v in x],
    "in itself": lambda x: [3 in x],
    "words": lambda x: [len(repr(v)) for v in x],
    "rounded": lambda x: [round(v) for v in x],
    "divmod": lambda x: [*divmod(x[0], 3)],
    "rooted": lambda x: [np.sqrt(v) for v in x],
    "dtype": lambda x: [float(x.dtype.itemsize), float(x.nbytes)],
    "mask": lambda x: x[x > 2],
    "comparisons joined": lambda x: (x > 1) & (x < 5),
    "comparison inverted": lambda x: ~(x > 1),
    "comparison times": lambda x: (x > 1) * 1.5,
}


def stored(x):
    x = x.copy()
    x[0] = 1
    return x * 0.5


def added(x):
    y = np.ones(5)
    y += x
    return y


@pytest.mark.parametrize("kind", [np.bool_, *INTEGERS])
@pytest.mark.parametrize("name", ANY)
def test_numbers_and_types_are_numpys(kind, name):
    same(program(ANY[name]), [(P, x) for x in arrays(kind)], lift=False)


def beside_values(p, x):
    return ((p * x + x) * 2).sum() + np.dot(p, x) + sum(w * v for w, v in zip(p, x))


def beside_objects(p, x):
    row = np.array([p[0], 200, 3, 2.5, p[1]], dtype=object)
    return (row * x).sum()


def indices(p, x):
    return sum(TABLE[i] * p[int(i) % 5] for i in x % 7) + sum(p[x % 5] * FLOATS)


@pytest.mark.parametrize("kind", [np.bool_, *INTEGERS])
@pytest.mark.parametrize("f", [beside_values, beside_objects, indices])
def test_beside_parameters(kind, f):
    same(f, [(P, x) for x in arrays(kind)])


def gathered(p, x):
    return sum(p[k] * v for k, v in zip(x, FLOATS)) + (p[x] ** 2).sum()


def scaled(p, x):
    return (p * (x / 255.0)).sum() ** 2 + (p * (x / 7)).sum()


def compared(p, x):
    return sum(p[1] if k == 3 else p[2] * k for k in x) + (p * (x > 2)).sum()


def converted(p, x):
    return (p * x.astype(float)).sum() + sum(w * int(k) for w, k in zip(p, x)) * x.mean()


def neighbours(p, x):
    return sum(p[k - 1] * p[(k + 1) % 5] for k in x)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("f", [gathered, scaled, compared, converted, neighbours])
def test_after_a_few_arrays_one_recording_answers_all(kind, f):
    calls = [(P, np.clip(x, 1, 4)) for x in arrays(kind, 60, small=True)]
    wide = same(f, [(p, x.astype(np.int64)) for p, x in calls])
    assert recordings(same(f, calls)) <= recordings(wide) + 4


def times(p, m):
    return (p * m).sum() ** 2 + (0.5 * m).sum() * p[0]


def kept(p, m):
    return sum(w * w for w, k in zip(p, m) if k) / (1 + m.sum())


def chosen(p, m):
    return sum(where(k, w, 0.0) for w, k in zip(p, m)) ** 2


def joined(p, m):
    return (p * (~m & m[::-1])).sum() + sum(w for w, k in zip(p, m) if not k)


@pytest.mark.parametrize("f", [times, kept, chosen, joined])
def test_after_a_few_masks_one_recording_answers_all(f):
    rng = np.random.default_rng(3)
    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for _ in range(60):
        call = rng.normal(size=40), rng.random(40) < 0.5
        for got, wanted in zip(fast.value_and_grad(*call), eager(*call)):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert recordings(fast) <= 6


@pytest.mark.parametrize("step", [operator.add, operator.sub, operator.mul])
def test_what_wraps_around_is_another_path(step):
    def f(p, x):
        return p[0] * step(x[0], 100)

    rows = [[k, 0, 0, 0, 0] for k in (1, 2, 3, 0, 4, 200, 156, 155, 250, 5, 2)]
    same(f, [(P, np.array(row, np.uint8)) for row in rows])


def test_integers_of_python_that_the_type_does_not_hold_raise():
    def f(p, x, n):
        return p[0] * (x[0] + n)

    rows = [(k, k + 1) for k in range(8)] + [(200, -100), (3, 300), (200, 55), (200, 56)]
    same(f, [(P, np.array([k], np.uint8), n) for k, n in rows])


def test_integers_beyond_64_bits_with_a_sign_are_not_traced():
    def f(p, x):
        return p[0] * x[0] + (p[1] if x[1] > 3 else p[2])

    rows = [[1, 2], [3, 4], [2, 9], [8, 1], [4, 4], [2**63, 2**64 - 1], [5, 2**63 + 5], [6, 1]]
    same(f, [(P, np.array(row, np.uint64)) for row in rows])


def test_arrays_of_two_types_share_nothing():
    def f(p, x):
        return p[0] * (x[0] + 100)

    calls = [(P, np.array([k], kind)) for k in range(120) for kind in (np.int8, np.uint8, np.int64)]
    same(f, calls)


@pytest.mark.parametrize(
    "chosen",
    [
        lambda x, s, n: np.where(x > 0, s, x),
        lambda x, s, n: np.where(x > 0, x, n),
        lambda x, s, n: np.clip(x, -s, s),
        lambda x, s, n: np.where(x > 0, x[0], s),
    ],
)
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8, np.int32, float, int, bool])
def test_numbers_of_python_beside_few_bits_are_of_as_few(chosen, kind):
    """It makes no difference in the first calls, where it is multiplied by 0."""

    def f(p, x, s, n):
        return relu(p[1]) * chosen(x, s, n)[0] + p[0]

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    compiled = chainrule.compile(chosen, on_fallback="eager")
    for k, scale in enumerate((-5.0, -1.0, 2.0, 3.0)):
        for x in (np.array([1, 0], kind), np.array([0, 1], kind)):
            given = [1.0, scale], x, 0.1, 3 + k % 2
            assert fast.value_and_grad(*given) == eager(*given)
            assert chosen(x, 0.1, 3).dtype == compiled(x, 0.1, 3).dtype
