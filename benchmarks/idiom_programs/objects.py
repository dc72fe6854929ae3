"""What Python keeps numbers in: namespaces, enums, caches, classes, dates; and errors caught."""

import datetime
import enum
import functools
import itertools
import operator
import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from chainrule import Value, dot, exp, log, sqrt, tanh

from .registry import Field, drifting

FIELD = Field("objects")

# --- settings at the top of the script ------------------------------------------------------------


class Kind(enum.IntEnum):
    LINEAR = 0
    SQUARE = 1
    TANH = 2


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


args = SimpleNamespace(scale=0.5, decay=0.01, hidden=3)
settings = OrderedDict(scale=0.5, decay=0.01)
rates = defaultdict(lambda: 0.1, {0: 0.2, 2: 0.3})
HYPER = {"scale": 0.5, "decay": 0.01}


@FIELD.idiom
def settings_at_top(rng):
    for w in drifting(rng, rng.normal(size=4).tolist()):
        yield w, rng.normal(size=4).tolist(), int(rng.integers(3)), str(rng.choice(["buy", "sell"]))


@settings_at_top.spelling
def settings_at_top_namespace(w, x, k, side):
    return args.scale * dot(w, x) ** 2 + args.decay * sum(wi * wi for wi in w)


@settings_at_top.spelling
def settings_at_top_ordered_dict(w, x, k, side):
    return settings["scale"] * dot(w, x) ** 2 + settings["decay"] * sum(wi * wi for wi in w)


@settings_at_top.spelling
def settings_at_top_defaultdict(w, x, k, side):
    return dot(w, x) ** 2 + rates[k] * sum(abs(wi) for wi in w)


@settings_at_top.spelling
def settings_at_top_dict(w, x, k, side):
    return HYPER["scale"] * dot(w, x) ** 2 + HYPER["decay"] * sum(wi**2 for wi in w)


@settings_at_top.spelling(adapt=lambda w, x, k, side: (w, x, Kind(k)))
def settings_at_top_int_enum_argument(w, x, kind):
    z = dot(w, x)
    if kind == Kind.LINEAR:
        return z * 2
    if kind == Kind.SQUARE:
        return z * z
    return tanh(z)


@settings_at_top.spelling
def settings_at_top_int_enum_compared(w, x, k, side):
    z = dot(w, x)
    return z * z if k == Kind.SQUARE else tanh(z) if k == Kind.TANH else z


@settings_at_top.spelling(adapt=lambda w, x, k, side: (w, x, Side(side)))
def settings_at_top_enum_argument(w, x, side):
    sign = 1.0 if side is Side.BUY else -1.0
    return (sign * dot(w, x) + 1) ** 2


@settings_at_top.spelling
def settings_at_top_string(w, x, k, side):
    sign = {"buy": 1, "sell": -1}[side]
    return (sign * dot(w, x) + 1) ** 2


@settings_at_top.spelling(adapt=lambda w, x, k, side: (w, x, side == "buy"))
def settings_at_top_flag(w, x, training):
    z = dot(w, x)
    if training:
        z = z + 0.5 * sum(wi * wi for wi in w)
    return z


# --- items of an enum beside integers -------------------------------------------------------------

SLOPES = {Kind.LINEAR: 1.0, Kind.SQUARE: 0.5, Kind.TANH: 0.25}
FOLLOWING = {
    Kind.LINEAR: {Kind.LINEAR: 1, Kind.SQUARE: 2, Kind.TANH: 0},
    Kind.SQUARE: {Kind.LINEAR: 0, Kind.SQUARE: 1, Kind.TANH: 2},
    Kind.TANH: {Kind.LINEAR: 2, Kind.SQUARE: 0, Kind.TANH: 1},
}


@FIELD.idiom
def kinds(rng):
    for w in drifting(rng, rng.normal(size=3).tolist()):
        yield w, rng.integers(3, size=12).tolist(), rng.normal(size=12).tolist()


@kinds.spelling
def kinds_branches(w, ks, xs):
    total = 0.0
    for k, x in zip(ks, xs):
        if k == Kind.LINEAR:
            total = total + w[0] * x
        elif k == Kind.SQUARE:
            total = total + (w[1] * x) ** 2
        else:
            total = total + tanh(w[2] * x)
    return total


@kinds.spelling
def kinds_generator(w, ks, xs):
    return sum(tanh(w[0] * x) if Kind.TANH == k else w[1] * x for k, x in zip(ks, xs))


@kinds.spelling
def kinds_membership(w, ks, xs):
    return sum(w[k] * x * (k in (Kind.LINEAR, Kind.TANH)) for k, x in zip(ks, xs)) + w[Kind.TANH]


@kinds.spelling
def kinds_arithmetic(w, ks, xs):
    return sum(w[(k + Kind.SQUARE) % 3] * x * (k < Kind.TANH) for k, x in zip(ks, xs))


@kinds.spelling
def kinds_keys(w, ks, xs):
    return sum(SLOPES[k] * w[k] * x for k, x in zip(ks, xs))


@kinds.spelling(adapt=lambda w, ks, xs: (w, np.array(ks), np.array(xs)))
def kinds_mask(w, ks, xs):
    return w[0] * (xs * (ks == Kind.LINEAR)).sum() + w[1] * (xs * (ks != Kind.LINEAR)).sum()


@kinds.spelling
def kinds_automaton(w, ks, xs):
    state, total = Kind.LINEAR, 0.0
    for k, x in zip(ks, xs):
        state = FOLLOWING[state][k]
        total = total + w[state] * x
    return total


@kinds.spelling
def kinds_looked_up(w, ks, xs):
    return sum(w[0] * x if Kind(k) is Kind.LINEAR else w[1] - x for k, x in zip(ks, xs))


# --- state outside of the function ----------------------------------------------------------------

step_count = 0
history = []
losses = Counter()


@FIELD.idiom
def state_outside(rng):
    for w in drifting(rng, rng.normal(size=4).tolist()):
        yield w, rng.normal(size=4).tolist()


@state_outside.reset
def forget():
    global step_count
    step_count = 0
    history.clear()
    losses.clear()
    tracker.calls = 0
    tracker.mean = 0.0


@state_outside.spelling
def state_outside_step_counter(w, x):
    global step_count
    step_count += 1
    return dot(w, x) ** 2 + 0.01 * sum(wi * wi for wi in w)


@state_outside.spelling
def state_outside_learning_rate(w, x):
    global step_count
    step_count += 1
    rate = 0.1 * (1 - step_count / 1000)
    return rate * dot(w, x) ** 2


@state_outside.spelling
def state_outside_history(w, x):
    loss = (dot(w, x) - 1) ** 2
    history.append(loss.data)
    return loss


@state_outside.spelling
def state_outside_counter(w, x):
    losses["calls"] += 1
    return exp(-(dot(w, x) ** 2))


class Tracker:
    """Counts calls and keeps a running mean, as loggers do."""

    def __init__(self):
        self.calls = 0
        self.mean = 0.0

    def update(self, number):
        self.calls += 1
        self.mean += (number - self.mean) / self.calls


tracker = Tracker()


@state_outside.spelling
def state_outside_tracker(w, x):
    loss = dot(w, x) ** 2
    tracker.update(loss.data)
    return loss


# --- errors that are caught -----------------------------------------------------------------------


@FIELD.idiom
def caught_errors(rng):
    for w in drifting(rng, [0.5, 0.3], 0.3):
        yield w, float(rng.normal())


@caught_errors.spelling
def caught_errors_log(w, x):
    try:
        return log(w[0] + 0.5 * x)
    except ValueError:
        return w[0] * 0.0 - 10.0


@caught_errors.spelling
def caught_errors_sqrt_zero(w, x):
    try:
        root = sqrt(w[0] * x)
    except ValueError:
        root = 0.0
    return root + w[1] * x


@caught_errors.spelling
def caught_errors_division(w, x):
    try:
        return w[0] / (x if x > 0 else 0.0)
    except ZeroDivisionError:
        return w[1] * 2


@caught_errors.spelling
def caught_errors_key(w, x):
    table = {1: 2.0}
    try:
        factor = table[int(x > 0)]
    except KeyError:
        factor = 0.5
    return factor * w[0] * w[1]


@caught_errors.spelling
def caught_errors_assertion(w, x):
    assert len(w) == 2, "two weights"
    if not -10 < x < 10:
        raise ValueError(f"x = {x} is out of range")
    return w[0] * x + w[1]


# --- classes --------------------------------------------------------------------------------------


class Series:
    """A labelled column: arithmetic goes by position, ``[]`` by label, as in a data frame."""

    def __init__(self, data, index=None):
        self.data = list(data)
        self.index = list(range(len(self.data))) if index is None else list(index)

    def __getitem__(self, label):
        return self.data[self.index.index(label)]

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        return iter(self.data)

    def __mul__(self, other):
        others = other if isinstance(other, Series) else itertools.repeat(other)
        return Series([a * b for a, b in zip(self.data, others)], self.index)

    def sum(self):
        return sum(self.data)

    def rolling(self, n):
        return [self.data[i : i + n] for i in range(len(self.data) - n + 1)]

    @property
    def values(self):
        return np.array(self.data)


Quote = namedtuple("Quote", "bid ask size")


@dataclass(frozen=True)
class Trade:
    price: float
    size: float
    venue: int = 0


class Policy:
    """A callable with settings, passed as an argument."""

    def __init__(self, gain, kind):
        self.gain, self.kind = gain, kind

    def __call__(self, z):
        return tanh(self.gain * z) if self.kind == "tanh" else self.gain * z


@FIELD.idiom
def records(rng):
    for w in drifting(rng, rng.normal(size=3).tolist()):
        yield w, (100 + rng.normal(size=12)).tolist(), float(rng.uniform(0.5, 2))


@records.spelling(adapt=lambda w, ys, g: (w, Series([y - 100 for y in ys])))
def records_series(w, column):
    weighted = column * 0.5
    return (w[0] * weighted.sum() + w[1] * column[3] - w[2]) ** 2


@records.spelling(adapt=lambda w, ys, g: (w, Series([y - 100 for y in ys])))
def records_rolling(w, column):
    means = [sum(window) / 3 for window in column.rolling(3)]
    return sum((w[0] * m + w[1]) ** 2 for m in means)


@records.spelling(adapt=lambda w, ys, g: (w, [Quote(y, y + 0.1, g) for y in ys]))
def records_namedtuples(w, quotes):
    total = 0.0
    for quote in quotes:
        middle = (quote.bid + quote.ask) / 2 - 100
        total = total + quote.size * (w[0] * middle + w[1]) ** 2
    return total


@records.spelling(adapt=lambda w, ys, g: (w, [Trade(y, g, i % 3) for i, y in enumerate(ys)]))
def records_dataclasses(w, trades):
    return sum(w[t.venue] * t.size * (t.price - 100) for t in trades) ** 2


@records.spelling(
    adapt=lambda w, ys, g: (w, [{"price": y, "venue": i % 3} for i, y in enumerate(ys)])
)
def records_dicts(w, rows):
    return sum(w[row["venue"]] * (row["price"] - 100) for row in rows) ** 2


@records.spelling(adapt=lambda w, ys, g: (w, ys, Policy(g, "tanh")))
def records_policy_object(w, ys, policy):
    return sum(policy(w[0] * (y - 100) + w[1]) for y in ys)


@records.spelling(adapt=lambda w, ys, g: (w, SimpleNamespace(prices=ys, gain=g)))
def records_namespace(w, market):
    return market.gain * sum((p - 100) * w[0] for p in market.prices) ** 2


@records.spelling(adapt=lambda w, ys, g: (w, deque(ys, maxlen=12)))
def records_deque(w, recent):
    mean = sum(recent) / len(recent)
    return (w[0] * (recent[-1] - mean) + w[1]) ** 2


@records.spelling(
    adapt=lambda w, ys, g: (w, [(datetime.date(2024, 1, 1 + i), y) for i, y in enumerate(ys)])
)
def records_dates(w, series):
    total = 0.0
    start = series[0][0]
    for day, price in series:
        if day.weekday() < 5:
            total = total + (w[0] + w[1] * (day - start).days - (price - 100)) ** 2
    return total


@records.spelling(adapt=lambda w, ys, g: (w, set(np.round(ys, 1).tolist())))
def records_set(w, levels):
    return sum((w[0] * (level - 100)) ** 2 for level in levels)


class Vector:
    """A small vector class with operators, as in every ray tracer."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    def __add__(self, o):
        return Vector(self.x + o.x, self.y + o.y, self.z + o.z)

    def __mul__(self, k):
        return Vector(self.x * k, self.y * k, self.z * k)

    def dot(self, o):
        return self.x * o.x + self.y * o.y + self.z * o.z

    @property
    def length(self):
        return sqrt(self.dot(self))


@records.spelling
def records_vector_class(w, ys, g):
    position, velocity = Vector(*w), Vector(g, 1.0, 0.5)
    for y in ys:
        velocity = velocity + position * (-0.01 * (y - 99))
        position = position + velocity * 0.1
    return position.length


# --- helpers --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.cache
def kernel(n):
    return [1.0 / (k + 1) for k in range(n)]


@FIELD.idiom
def helpers(rng):
    for w in drifting(rng, rng.normal(size=6).tolist()):
        yield w, rng.normal(size=6).tolist(), int(rng.integers(1, 7)), int(rng.integers(10**6))


@helpers.spelling
def helpers_lru_cache(w, x, n, seed):
    return sum(fibonacci(i) * wi * xi for i, (wi, xi) in enumerate(zip(w, x)))


@helpers.spelling
def helpers_cached_table(w, x, n, seed):
    return sum(k * wi * xi for k, wi, xi in zip(kernel(n), w, x)) ** 2


@helpers.spelling
def helpers_reduce(w, x, n, seed):
    return functools.reduce(operator.add, map(operator.mul, w, x)) ** 2


@helpers.spelling
def helpers_accumulate(w, x, n, seed):
    return sum(s * s for s in itertools.accumulate(a * b for a, b in zip(w, x)))


@helpers.spelling
def helpers_generator(w, x, n, seed):
    def products():
        for a, b in zip(w, x):
            yield tanh(a * b)

    return sum(products())


@helpers.spelling
def helpers_combinations(w, x, n, seed):
    return sum(a * b for a, b in itertools.combinations(w, 2)) + dot(w, x)


@helpers.spelling
def helpers_closure(w, x, n, seed):
    def layer(scale):
        def apply(z):
            return tanh(scale * z)

        return apply

    f = layer(0.5)
    return sum(f(a * b) for a, b in zip(w, x))


@helpers.spelling
def helpers_partial(w, x, n, seed):
    f = functools.partial(pow, exp=2)
    return sum(f(a - b) for a, b in zip(w, x))


@helpers.spelling
def helpers_recursion(w, x, n, seed):
    def total(values):
        if len(values) == 1:
            return values[0]
        half = len(values) // 2
        return total(values[:half]) + total(values[half:])

    return total([a * b for a, b in zip(w, x)]) ** 2


@helpers.spelling
def helpers_random_seed(w, x, n, seed):
    generator = random.Random(seed)
    noise = [generator.gauss(0, 0.1) for _ in w]
    return sum(a * (b + e) for a, b, e in zip(w, x, noise)) ** 2


@helpers.spelling
def helpers_numpy_seed(w, x, n, seed):
    noise = np.random.default_rng(seed).normal(size=6)
    return sum((a * b + e) ** 2 for a, b, e in zip(w, x, noise))


@helpers.spelling
def helpers_shuffle(w, x, n, seed):
    order = list(range(6))
    random.Random(seed).shuffle(order)
    return sum(w[i] * x[j] for i, j in enumerate(order[:3])) ** 2


@helpers.spelling
def helpers_keywords(w, x, n, seed):
    def model(*, weights, inputs, bias=0.1, **extra):
        return dot(weights, inputs) + bias

    return model(weights=w, inputs=x, unused=n) ** 2


@helpers.spelling
def helpers_walrus_and_unpacking(w, x, n, seed):
    first, *middle, last = w
    if (s := sum(middle)) > 0:
        return s * first
    return s * last


@helpers.spelling
def helpers_formatted_names(w, x, n, seed):
    params = {f"w{i}": wi for i, wi in enumerate(w)}
    return sum(params[f"w{i}"] * x[i] for i in range(n)) ** 2


@helpers.spelling
def helpers_own_leaf(w, x, n, seed):
    bias = Value(0.5)
    return (dot(w, x) + bias) ** 2


@helpers.spelling
def helpers_isinstance(w, x, n, seed):
    total = 0.0
    for item in [*w, 2.0, *x]:
        total = total + (item * item if isinstance(item, Value) else item)
    return total
