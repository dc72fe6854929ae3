"""Classes of the user's own in generated programs, and lines that use them.

``CLASSES``: by the name that a line mentions, the lines of the module that define it and the
statements that may change it between two calls. ``USES``: idioms, as in ``fuzz_idioms``.
"""

import re

CLASSES = {
    "GAUGE": (
        """
class Gauge:
    bias = 0.25

    def __init__(self, scale, table):
        self.scale = scale
        self.table = table

    @property
    def level(self):
        return self.scale * 2 + self.bias

    def __call__(self, v, power=1):
        return v * self.scale**power

    def __getitem__(self, i):
        return self.table[i % len(self.table)]

    def __len__(self):
        return len(self.table)

    def __iter__(self):
        yield from self.table

    def __contains__(self, x):
        return x in self.table

    @staticmethod
    def double(v):
        return 2 * v

    @classmethod
    def shifted(cls, v):
        return v + cls.bias


GAUGE = Gauge(0.5, [0, 2, 1])
""",
        ("GAUGE.scale = 1.5", "GAUGE.table[0] = 1", "Gauge.bias = -0.5", "GAUGE.table.append(2)"),
    ),
    "AFFINE": (
        """
@dataclasses.dataclass
class Affine:
    slope: float
    shift: int = 1
    steps: list = dataclasses.field(default_factory=list)

    def apply(self, v):
        return v * self.slope + self.shift

    def __post_init__(self):
        self.steps = [self.shift] * 2

    @property
    def total(self):
        return sum(self.steps)


AFFINE = Affine(0.75)
""",
        ("AFFINE.slope = -0.5", "AFFINE.shift = 2", "AFFINE.steps.append(1)"),
    ),
    "Pair": (
        """
class Pair:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __add__(self, other):
        return Pair(self.a + other.a, self.b + other.b)

    def __mul__(self, k):
        return Pair(self.a * k, self.b * k)

    def __eq__(self, other):
        return self.b == other.b

    def __hash__(self):
        return hash(self.b)

    def __lt__(self, other):
        return self.b < other.b
""",
        (),
    ),
    "Colour": (
        """
class Colour(enum.IntEnum):
    RED = 0
    GREEN = 1
    BLUE = 2
""",
        (),
    ),
    "Shade": (
        """
class Shade(enum.IntFlag):
    LIGHT = 1
    DARK = 2
""",
        (),
    ),
    "Odd": (
        """
class Odd(enum.IntEnum):
    ONE = 1

    def __eq__(self, other):
        return int(other) % 2 == 1

    def __radd__(self, other):
        return int(other) + 10

    __hash__ = int.__hash__
""",
        (),
    ),
    "MOVES": (
        """
MOVES = {0: {0: 1, 1: 0}, 1: {0: 0, 1: 2}, 2: {0: 2, 1: 0}}
""",
        ("MOVES[0][1] = 2", "MOVES[2] = {1: 0, 0: 1}", "MOVES[1] = {0: 2, 1: 0, 2: 1}"),
    ),
    "LINKS": (
        """
LINKS = {(0, 0): 1, (0, 1): 0, (1, 0): 0, (1, 1): 2, (2, 0): 2, (2, 1): 0}
""",
        ("LINKS[0, 1] = 2", "LINKS[1, 2] = 1", "LINKS[True, 0.0] = 2"),
    ),
    "WALKS": (
        """
WALKS = {("a", 0): "b", ("a", 1): "a", ("b", 0): "a", ("b", 1): "c", ("c", 1): "a"}
""",
        ('WALKS["c", 0] = "c"', 'WALKS["a", 1] = "b"'),
    ),
    "TANH": (
        """
class Layer:
    scale = 0.5

    def __init__(self, k):
        self.k = k

    def forward(self, v):
        return v * self.scale

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class Tanh(Layer):
    def forward(self, v):
        return tanh(super().forward(v)) * self.k

    def __getattr__(self, name):
        if name == "depth":
            return 2
        raise AttributeError(name)


TANH = Tanh(2)
""",
        ("Layer.scale = 0.75", "TANH.k = 3", "Tanh.scale = 0.25", "TANH.depth = 1"),
    ),
    "weigh": (
        """
LIMITS = {"most": 2}


def weigh(v, i=1, table=[0.5, 1.0, 2.0], *, limit=None):
    limit = LIMITS["most"] if limit is None else limit
    return v * table[min(i, limit)]
""",
        (
            "LIMITS['most'] = 1",
            "weigh.__defaults__[1][0] = 0.25",
            "weigh.__kwdefaults__['limit'] = 0",
        ),
    ),
    "EMBEDDING": (
        """
EMBEDDING = {0: [0.1, 0.2], 1: [0.3, -0.4], 2: [0.5, 0.6]}
""",
        ("EMBEDDING[0][1] = 0.9", "EMBEDDING[1] = [0.0, 1.0]"),
    ),
    "METER": (
        """
class Meter:
    def __init__(self):
        self.calls, self.mean, self.best = 0, 0.0, None

    def update(self, x):
        self.calls += 1
        self.mean += (x - self.mean) / self.calls
        return self.mean

    def lowest(self, x):
        if self.best is None or x < self.best:
            self.best = x
        return self.best


METER = Meter()
""",
        ("METER.calls = 0", "METER = Meter()", "METER.mean = 1", "METER.other = 2.0"),
    ),
    "TALLY": (
        """
TALLY = Counter(calls=2)
SEED = 7


def draw():
    global SEED
    SEED = (SEED * 1103515245 + 12345) % 2**31
    TALLY["draws"] += 1
    return SEED / 2**31
""",
        ("TALLY.clear()", "TALLY['calls'] += 3", "SEED = 11", "TALLY['more'] = 0.5"),
    ),
    "NAMES": (
        """
NAMES = {"a": 0.5, "l": -0.5, "r": 1.5}
""",
        ("NAMES['a'] = 0.125", "NAMES['b'] = 2.0"),
    ),
}

USES = (
    """
{A} = GAUGE({A}, ({I}) % 3) + GAUGE.level
""",
    """
for t in {TS}:
    {A} = {A} + {W}[GAUGE[t] % {N}] * GAUGE(0.5)
""",
    """
for t in GAUGE:
    {A} = {A} + {W}[{AT}] * (1 if ({I}) in GAUGE else 0.5)
""",
    """
{A} = Gauge.double({A}) / len(GAUGE) + GAUGE.shifted({W}[0])
""",
    """
{A} = {A} + GAUGE(GAUGE({W}[0]), power={K}) * Gauge({K}, {TS} or [1])[0]
""",
    """
{A} = AFFINE.apply({A}) + AFFINE.total * {W}[0]
""",
    """
for t in {TS}:
    {A} = {A} + Affine(0.5, t).apply({W}[{AT}])
""",
    """
{A} = {A} + dataclasses.replace(AFFINE, shift=({I}) % 3).apply({W}[0])
""",
    """
pair_ = Pair({A}, 0)
for t in {TS}:
    pair_ = pair_ + Pair({W}[{AT}], t) * {K}
{A} = pair_.a + pair_.b
""",
    """
pairs_ = [Pair(w, t) for w, t in zip({W}, {TS})]
for pair_ in sorted(pairs_):
    {A} = {A} * 0.5 + pair_.a
{A} = {A} + len(set(pairs_))
""",
    """
for t in {TS}:
    if t == Colour.GREEN:
        {A} = {A} + {W}[Colour.BLUE % {N}]
    elif t == Colour.RED:
        {A} = {A} + Colour(t % 3) * 0.5
""",
    """
{A} = TANH.forward({A}) + TANH.depth * getattr(TANH, "width", 0.5)
""",
    """
with TANH as layer_:
    {A} = {A} + layer_.forward({W}[({I}) % {N}]) * layer_.scale
""",
    """
{A} = {A} + weigh({W}[0]) + weigh({W}[-1], ({I}) % 3, limit={K})
""",
    """
for t in {TS}:
    {A} = {A} + weigh({W}[{AT}], t)
""",
    """
for t in {TS}:
    a_, b_ = EMBEDDING[t % 3]
    {A} = {A} + {W}[{AT}] * a_ + b_
""",
    """
for t in {TS}:
    if t in EMBEDDING:
        {A} = {A} + sum(x * w for x, w in zip(EMBEDDING[t], {W}))
""",
    """
{A} = {A} + sum(NAMES.get(c, 0.0) * {W}[0] for c in {S})
""",
    """
{A} = {A} + METER.update(({A}).data) * {W}[0]
""",
    """
METER.update({K})
for t in {TS}:
    METER.lowest(t)
    {A} = {A} * 0.5 + {W}[{AT}] * METER.calls
""",
    """
{A} = {A} - METER.lowest({A}.data)
LOG.append((METER.calls, {A}.data))
""",
    """
for t in {TS}:
    TALLY["calls"] += 1 + t % 2
    {A} = {A} + {W}[TALLY["calls"] % {N}] * draw()
""",
    """
if draw() < 0.5 and TALLY["calls"] % {K} == 0:
    LOG.append(TALLY["calls"])
    {A} = {A} * draw()
""",
)

#: arguments that are objects: a name, ways to make one, and lines that use it; ``{F}`` is a float
PASSED = (
    (
        "thing",
        ("Gauge({F}, [0, {K}, 1])", "Gauge({F}, [0, {K}, 1])", "Gauge({F}, [1, 1])", "GAUGE"),
        (
            "{A} = thing({A}, 2) + thing.level",
            "{A} = {A} * (0.5 if thing is GAUGE else 1.0) * thing.scale",
            "{A} = {A} + (1.0 if thing == GAUGE else 2.0) + (0.5 if {K} in thing else 0.0)",
            "for x_ in thing:\n    {A} = {A} + x_ * thing.double(0.5)",
            "{A} = {A} + thing[{K}] * len(thing) + thing.shifted(0.5)",
            "if thing.scale > 0.3:\n    {A} = {A} * thing(0.5)",
            "thing.scale = thing.scale + 1.0\n{A} = {A} * thing.scale",
            "thing.table.append(1)\n{A} = {A} + len(thing)",
            "{A} = {A} + {{GAUGE: 0.5}}.get(thing, 2.0) * thing.scale",
        ),
    ),
    (
        "rule",
        ("Affine({F}, {K})", "Affine({F})", "Affine({F})", "AFFINE"),
        (
            "{A} = rule.apply({A}) + rule.total",
            "{A} = {A} + dataclasses.replace(rule, shift=2).apply(0.5)",
            "{A} = {A} * (2.0 if rule == AFFINE else 1.0) + rule.slope",
            "{A} = {A} * (2.0 if rule is AFFINE else 1.0) + rule.slope",
            "rule.steps[0] = 5\n{A} = {A} + rule.total",
        ),
    ),
    (
        "layer",
        ("Layer({F})", "Layer({F})", "Tanh({F})"),
        (
            "{A} = layer.forward({A})",
            "with layer as here_:\n    {A} = {A} + here_.k * here_.scale",
            "{A} = {A} + (1.0 if isinstance(layer, Tanh) else 0.0) + layer.k",
        ),
    ),
    (
        "act",
        ("tanh", "squash", "(lambda v: v * {F})"),
        ("{A} = act({A})", "{A} = {A} + act(0.5) * (2.0 if act is tanh else 1.0)"),
    ),
)


def classes_of(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """Of each class or table that a source names: its definition, and how it may change."""
    found = []
    for name, (definition, events) in CLASSES.items():
        if re.search(rf"\b{name}\b", source, re.IGNORECASE):
            found.append((definition.strip("\n"), events))
    return found
