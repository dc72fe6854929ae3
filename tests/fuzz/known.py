"""Named examples of what compiled functions must mean: each a program, like those made at random.

``CASES`` holds them by name.
"""

import math
import random
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    source: str
    calls: list[str]  # the arguments of each call, or "statement ;; arguments"
    mode: str = "value_and_grad"
    options: dict[str, Any] = field(default_factory=dict)
    strict: bool = False  # a list is not an array, in gradients too


def random_calls(form: str, count: int = 60, **ranges: Any) -> list[str]:
    """Calls whose arguments are drawn: a range gives one integer, (range, low, high) a list."""
    rng = random.Random(form)
    calls = []
    for _ in range(count):
        drawn = {}
        for name, what in ranges.items():
            if isinstance(what, range):
                drawn[name] = repr(rng.choice(what))
            else:
                numbers, low, high = what
                drawn[name] = repr([rng.choice(numbers) for _ in range(rng.randint(low, high))])
        calls.append(form.format(**drawn))
    return calls


def samples(calls: list[str], parameters: str) -> list[str]:
    """Calls as samples of batches, six at a time; each call is the tuple of further arguments."""
    batches = [calls[i : i + 6] for i in range(0, len(calls), 6)]
    return [f"({parameters}, [{', '.join(batch)}])" for batch in batches]


def _corner(seed: int, shift: int) -> str:
    """Numbers, and their sum as eager mode adds it, or one rounding step beside it."""
    rng = random.Random(seed)
    p = [rng.choice([0.1, 0.2, 0.3, 0.7, -0.3]) for _ in range(40)]
    total = sum(a * (k % 3 + 0.1) for k, a in enumerate(p))
    return f"({p}, [{math.nextafter(total, math.inf * shift) if shift else total!r}, {total!r}])"


P4 = "np.array([0.3, -0.7, 1.1, 0.4])"
M3 = "[[0.1, 0.2, 0.3], [1.1, -1.2, 1.3], [2.1, 2.2, -2.3]]"

FLAG = """
FLAG = [0, 1, 0, 1]

def f(p, ts):
    s, n = p[0], 0
    for t in ts:
        s = s + p[t]
        if FLAG[t]: n += 1
    return s * 2 if n >= 3 else s
"""
EOS = """
EOS = [False, True, False]

def f(p, ts):
    s, n = p[0], 0
    for t in ts:
        n += EOS[t]
        if n == 3: break
        s = tanh(s + p[t])
    return s
"""
SLICE = """
def f(p, i, j):
    w = p[slice(i, j)]
    return w[0] * 3 + w[-1] if w else p[0]
"""
CRF = """
def f(T, ys):
    return sum(T[ys[i - 1]][ys[i]] for i in range(1, len(ys)))
"""
RISK = """
RISK = [0.0, 1.0, 1.0, 2.0]

def f(p, a, b, c, d):
    risk = RISK[a] + RISK[b] + RISK[c] + RISK[d]
    s = p[a] + p[b] * p[c] - p[d]
    return s * 3 if risk > 3 else s
"""
PARITY = """
def f(p, ts):
    s = sum(p[t] for t in ts)
    return -s if sum(ts) % 2 else s
"""
MASKED = """
def f(p, mask):
    return sum(w for w, m in zip(p, mask) if m) / max(1, sum(mask))
"""
ADJACENCY = """
EDGES = [[1, 2], [0], [0, 1, 3], []]

def f(p, node):
    s = p[node]
    for other in EDGES[node]:
        s = s + p[other] * p[node]
    return s / (1 + len(EDGES[node]))
"""
L4 = "[0.3, -0.7, 1.1, 0.4]"

CASES: dict[str, Case] = {
    # --- integers ---
    "a count of flags decides": Case(FLAG, random_calls(f"({L4}, {{ts}})", ts=(range(4), 5, 5))),
    "a count of flags decides, at many lengths": Case(
        FLAG, random_calls(f"({L4}, {{ts}})", ts=(range(4), 0, 6))
    ),
    "the third end of sentence breaks": Case(
        EOS, random_calls("([0.3, -0.7, 1.1], {ts})", 80, ts=(range(3), 5, 5))
    ),
    "a slice object": Case(
        SLICE, random_calls(f"({L4}, {{i}}, {{j}})", i=range(-4, 5), j=range(-4, 5))
    ),
    "the score of a CRF": Case(CRF, [f"({M3}, [0, 0])", f"({M3}, [1, 0])", f"({M3}, [0, 1])"]),
    "the score of a CRF, long": Case(CRF, random_calls(f"({M3}, {{ys}})", ys=(range(3), 4, 4))),
    "four features and a table of risks": Case(
        RISK,
        random_calls(
            f"({L4}, {{a}}, {{b}}, {{c}}, {{d}})",
            a=range(4),
            b=range(4),
            c=range(4),
            d=range(4),
        ),
    ),
    "parity": Case(PARITY, random_calls(f"({L4}, {{ts}})", ts=(range(4), 4, 4))),
    "a mean over a mask": Case(MASKED, random_calls(f"({L4}, {{m}})", m=((True, False), 4, 4))),
    "a mean over a mask of 0 and 1": Case(MASKED, random_calls(f"({L4}, {{m}})", m=((0, 1), 4, 4))),
    "adjacency lists": Case(ADJACENCY, random_calls(f"({L4}, {{i}})", i=range(4))),
    "adjacency lists that change": Case(
        ADJACENCY,
        [f"({L4}, 0)", f"EDGES[0].append(3) ;; ({L4}, 0)", f"EDGES[1][0] = 2 ;; ({L4}, 1)"],
    ),
    "adjacency lists as an argument": Case(
        """
def f(p, edges, node):
    return sum((p[o] * p[node] for o in edges[node]), p[0])
""",
        [f"({L4}, [[1, 2], [0], [{k}, 1], []], {i})" for k in (0, 3) for i in range(4)],
    ),
    "two integers meet in plain numbers": Case(
        """
KIND = [0, 1, 0, 1]

def f(p, a, b):
    return p[a] * 2 if KIND[a] == KIND[b] else p[b]
""",
        random_calls(f"({L4}, {{a}}, {{b}})", a=range(4), b=range(4)),
    ),
    "the same parameter twice": Case(
        "\ndef f(p, a, b):\n    return p[a] * 2 if p[a] is p[b] else p[b]\n",
        random_calls(f"({L4}, {{a}}, {{b}})", a=range(4), b=range(4)),
    ),
    "the same list twice": Case(
        "\ndef f(x, a, b):\n    return x * 2 if a is b else x\n",
        ["(1.5, [1.0], [1.0])", "(lambda s: (1.5, s, s))([1.0])", "(1.5, [1.0], [1.0])"],
    ),
    "the same integers twice": Case(
        "\ndef f(p, a, b):\n    b[0] = 2\n    return p[a[0]]\n",
        [f"({L4}, [1], [0])", f"(lambda s: ({L4}, s, s))([1])", f"({L4}, [0], [1])"],
    ),
    # --- the same in batches and in training ---
    "flags in batches": Case(
        FLAG, samples(random_calls("({ts},)", ts=(range(4), 5, 5)), L4), "batch"
    ),
    "flags in training": Case(
        FLAG, samples(random_calls("({ts},)", ts=(range(4), 5, 5)), P4), "train"
    ),
    "slices in training": Case(
        SLICE.replace("if w else", "if len(w) else"),
        samples(random_calls("({i}, {j})", i=range(-4, 5), j=range(-4, 5)), P4),
        "train",
    ),
    "the score of a CRF in batches": Case(
        CRF, samples(random_calls("({ys},)", ys=(range(3), 4, 4)), M3), "batch"
    ),
    "the score of a CRF in training": Case(
        CRF, samples(random_calls("({ys},)", ys=(range(3), 4, 4)), f"np.array({M3})"), "train"
    ),
    "a 0-d array in a sample of train": Case(
        "\ndef f(p, x):\n    return (p[0] * x - 1.0) ** 2\n",
        ["(np.array([0.5]), [(np.array(2.0),), (np.array(1.0),)])"],
        "train",
    ),
    # --- state that changes between calls ---
    "a global list changes": Case(
        FLAG, [f"({L4}, [0, 0, 1, 1])", f"FLAG[0] = 1 ;; ({L4}, [0, 0, 1, 1])"]
    ),
    "a class changes": Case(
        """
class Model:
    bias = 1.0
    def forward(self, x): return x * self.bias

class Other(Model):
    def forward(self, x): return x * self.bias * 10

model = Model()

def f(x): return model.forward(x) * x
""",
        [
            "(2.0,)",
            "model.bias = 3.0 ;; (2.0,)",
            "del model.bias ;; (2.0,)",
            "Model.bias = 0.5 ;; (2.0,)",
            "model.__class__ = Other ;; (2.0,)",
            "Model.forward = lambda self, x: x ;; (2.0,)",
            "model.__class__ = Model ;; (2.0,)",
        ],
    ),
    "sys.argv": Case(
        "import sys\n\ndef f(x): return x * len(sys.argv[-1])\n",
        ["sys.argv[-1:] = ['ab'] ;; (2.0,)", "sys.argv[-1:] = ['abc'] ;; (2.0,)"],
    ),
    "an environment variable": Case(
        "import os\n\ndef f(x): return x * float(os.environ.get('FUZZ_GAIN', '1'))\n",
        [
            "(2.0,)",
            "os.environ['FUZZ_GAIN'] = '3' ;; (2.0,)",
            "os.environ.pop('FUZZ_GAIN', None) ;; (2.0,)",
        ],
    ),
    "decimal precision": Case(
        """
import decimal

def f(x): return x * float(decimal.Decimal(1) / decimal.Decimal(3))
""",
        [
            "decimal.getcontext().prec = 28 ;; (2.0,)",
            "decimal.getcontext().prec = 3 ;; (2.0,)",
            "decimal.getcontext().prec = 28 ;; (2.0,)",
        ],
    ),
    "a masked array as a global": Case(
        """
DATA = np.ma.array([1.0, 2.0, 4.0], mask=[False, False, True])

def f(x): return x * float(DATA.sum())
""",
        ["(2.0,)", "DATA.mask = [True, False, False] ;; (2.0,)"],
    ),
    "an attribute of an array's subclass": Case(
        """
class Signal(np.ndarray):
    gain = 1.0

SIGNAL = np.ones(3).view(Signal)

def f(x): return x * SIGNAL.gain * float(SIGNAL[0])
""",
        ["(2.0,)", "SIGNAL.gain = 5.0 ;; (2.0,)", "SIGNAL[0] = 7.0 ;; (2.0,)"],
    ),
    "a counter of its own": Case(
        "\ndef f(x):\n    STATE['calls'] += 1\n    return x * STATE['calls']\n", ["(2.0,)"] * 5
    ),
    "an iterator": Case(
        "import itertools\nTICKS = itertools.count()\n\ndef f(x): return x * next(TICKS)\n",
        ["(2.0,)"] * 5,
    ),
    "a random generator": Case(
        "import random\nRNG = random.Random(1)\n\ndef f(x): return x * RNG.random()\n",
        ["(2.0,)"] * 5,
    ),
    # --- effects ---
    "printing": Case("\ndef f(x, t):\n    print(t)\n    return x * t\n", ["(2.0, 1.0)"] * 5),
    "logging": Case(
        """
import logging

class Keep(logging.Handler):
    def emit(self, record): LOG.append(record.getMessage())

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)
logger.addHandler(Keep())

def f(x, t):
    logger.info("t is %s", t)
    return x * t
""",
        [f"(2.0, {t / 4})" for t in range(10)],
    ),
    "a log of data": Case(
        "\ndef f(x, t):\n    LOG.append(t)\n    return x * t\n", ["(2.0, 1.0)", "(2.0, 3.0)"] * 3
    ),
    "an argument is changed": Case(
        "\ndef f(x, ts):\n    ts.append(ts[0] + 1)\n    return x * ts[-1]\n",
        ["(2.0, [1, 2])", "(2.0, [5, 2])", "(2.0, [0.5])"],
    ),
    "an array argument is changed": Case(
        "\ndef f(x, a):\n    a += 1\n    return x * a.sum()\n",
        ["(2.0, np.array([1.0, 2.0]))", "(2.0, np.array([3.0, 2.0]))"],
    ),
    # --- arguments of all kinds ---
    "a boolean mask array": Case(
        "\ndef f(p, keep):\n    return p[keep].sum()\n",
        [f"({P4}, np.array([True, False, True, {last}]))" for last in (True, False)],
    ),
    "a boolean mask array beside a list": Case(
        "\ndef f(p, keep):\n    return sum(w for w, k in zip(p, keep) if k)\n",
        [f"({L4}, np.array([True, False, True, {last}]))" for last in (True, False)],
    ),
    "a config whose __getattr__ raises KeyError": Case(
        """
class Config:
    def __init__(self, **settings): self.__dict__["settings"] = settings
    def __getattr__(self, name): return self.__dict__["settings"][name]

CONFIG = Config(rate=0.5)

def f(x, config): return x * config.rate * CONFIG.rate
""",
        ["(2.0, Config(rate=0.5))", "(2.0, Config(rate=0.25))"],
    ),
    "a dictionary with attributes": Case(
        """
class Config(dict):
    def __getattr__(self, name): return self[name]

CONFIG = Config(rate=0.5)

def f(x, config): return x * config.rate * CONFIG.rate
""",
        ["(2.0, Config(rate=0.5))", "CONFIG['rate'] = 2.0 ;; (2.0, Config(rate=0.25))"],
    ),
    "np.matrix as data": Case(
        "\ndef f(x, m):\n    return x * (m * m)[0, 1]\n",
        ["(2.0, np.asmatrix([[1.0, 2.0], [3.0, 4.0]]))"],
    ),
    "np.matrix as parameters": Case(
        "\ndef f(m):\n    return m[0, 0] * 2\n", ["(np.asmatrix([[1.0, 2.0], [3.0, 4.0]]),)"]
    ),
    **{
        f"parameters that are {kind}": Case("\ndef f(p):\n    return Value(1.0)\n", [f"({text},)"])
        for kind, text in {
            "a set": "{1.0, 2.0}",
            "a range": "range(3)",
            "a bool": "True",
            "an array.array": "__import__('array').array('d', [1.0, 2.0])",
            "a string": "'abc'",
            "None": "None",
            "a namespace": "SimpleNamespace(a=1.0)",
            "a list of bools": "[True, False]",
        }.items()
    },
    **{
        f"parameters in a {'frozen ' * frozen}dataclass": Case(
            f"""
@dataclasses.dataclass(frozen={frozen})
class P:
    a: float
    b: object

def f(p): return p.a * p.a * p.b[0]
""",
            ["(P(3.0, [2.0, 1.0]),)", "(P(1.0, [2.0, 1.0]),)"],
            strict=True,
        )
        for frozen in (False, True)
    },
    "parameters in a named tuple": Case(
        "\nN = namedtuple('N', 'w b')\n\ndef f(p): return p.w[0] * p.b\n",
        ["(N([1.0, 2.0], 3.0),)"],
        strict=True,
    ),
    "parameters in a list": Case(
        "\ndef f(p): return p[0] * p[1]\n", ["([1.0, 2.0],)"], strict=True
    ),
    "parameters in a tuple": Case(
        "\ndef f(p): return p[0] * p[1]\n", ["((1.0, 2.0),)"], strict=True
    ),
    "parameters in nested lists": Case(
        "\ndef f(p): return p[0][0] * p[1][0]\n", ["([[1.0, 2.0], [3.0]],)"], strict=True
    ),
    "integers as parameters": Case(
        "\ndef f(p): return p[0] * p[1]\n", ["([1, 2],)", "((3, 4.0),)"], strict=True
    ),
    "an integer of numpy's divided by zero, at first where it does not show": Case(
        """
import numpy as np
def f(p, by, scale):
    try:
        place = 6 // by
    except ZeroDivisionError:
        place = 1
    return p[place] * scale
""",
        [f"([1.0, 2.0, 3.0], np.int64({by}), {scale})" for by in (0, 6, 3) for scale in (0.0, 1.0)],
    ),
    "a function of math of a number with 32 bits": Case(
        """
import math
import numpy as np
def f(p, x, scale):
    try:
        y = math.log(x)
    except ValueError:
        y = 2.0
    return p * y * scale - abs(-x) * 0.1
""",
        [f"(0.5, np.float32({x}), {scale})" for x in (2.0, -1.5, 0.0, 0.3) for scale in (0.0, 1.0)],
    ),
    "what is not finite, divided by zero": Case(
        """
def f(p, x, y):
    return p[0] + (x / y) * 0.0 if y >= 0 else p[1]
""",
        [
            f"([0.5, 1.5], {x}, {y})"
            for x in ("1.0", "float('nan')", "float('inf')")
            for y in (2.0, 0.0)
        ],
    ),
    "a dataclass with more than its fields": Case(
        """
import dataclasses
@dataclasses.dataclass
class A:
    a: float
    k = 3.0
    @staticmethod
    def twice(x): return x * A.k
def own(k):
    made = A(1.0)
    made.k = k
    return made
def f(p, d): return p[0] * d.a * d.k + d.twice(p[1])
""",
        ["([0.5, 1.5], A(1.0))", "([0.5, 1.5], own(4.0))", "A.k = 9.0 ;; ([0.5, 1.5], A(1.0))"],
    ),
    "a namespace and a dataclass that are globals too": Case(
        """
import dataclasses
from types import SimpleNamespace
@dataclasses.dataclass
class A:
    a: float
SPACE, RECORD = SimpleNamespace(a=1.0), A(1.0)
def f(p, x): return p[0] * x.a * (2 if x is SPACE or x is RECORD else 3) + p[1]
""",
        [f"([0.5, {k}.5], {x})" for k in range(4) for x in ("A(2.0)", "RECORD", "SPACE")],
    ),
    "a key of a dict that has attributes": Case(
        """
class A:
    a = 1.0
    def __repr__(self): return "A"
KEY = A()
def f(p, d): return sum(p[0] * k.a * x for k, x in d.items()) + p[1]
""",
        [f"KEY.a = {k}.5 ;; ([0.5, 1.5], {{KEY: 2.0}})" for k in range(4)],
    ),
    "items of enums with more than a value": Case(
        """
import enum
K = 2.0
class E(enum.Enum):
    A = 1
    def __init__(self, v): self.w = 1.0
    def act(self, x): return x * K
class F(enum.IntFlag):
    A = 1
def f(p, e):
    return p[0] * e.value + (p[1] * e.w + e.act(p[0]) if isinstance(e, E) else p[1])
""",
        [
            *(
                "([0.5, 1.5], E.A)",
                "E.A.w = 9.0 ;; ([0.5, 1.5], E.A)",
                "K = 3.0 ;; ([0.5, 1.5], E.A)",
            ),
            *("([0.5, 1.5], F(4))", "([0.5, 1.5], F(8))"),
        ],
    ),
    "keys of both zeros": Case(
        """
import math
def f(p, d): return p[0] + math.copysign(2.0, list(d)[0]) * p[1]
""",
        [f"([0.5, 1.5], {{{zero}: 1.0}})" for zero in (0.0, -0.0)],
    ),
    "continue in an inner block": Case(
        """
def f(p, xs):
    total = p[0] * 0.0
    for x in xs:
        if x > 0:
            if x > 1:
                continue
            total = total + p[1]
        total = total - p[0] * x
    return total
""",
        [f"([0.5, 1.5], {xs})" for xs in ([2.0, 0.5], [0.5, -1.0], [-1.0, 2.0], [2.0, 2.0])],
    ),
    "an integer parameter": Case("\ndef f(p): return p * p\n", ["(3,)", "(4,)"], strict=True),
    "keyword defaults": Case(
        "\ndef f(p, scale=2.0, *, power=2): return (p * scale) ** power\n", ["(3.0,)", "(3.0, 1.0)"]
    ),
    # --- plain calls ---
    "a plain call of integers": Case(
        "\ndef f(a, b): return a * b\n", ["(2, 3)", "(2.0, 3)"], "call"
    ),
    "a plain call that gives a list": Case(
        "\ndef f(a, b): return [a + b, {'n': b}]\n", ["(2.0, 3)", "(2.0, 3.5)"], "call"
    ),
    "a plain call of an array": Case(
        "\ndef f(a): return (a * a).sum()\n", ["(np.array([1.0, 2.0]),)"], "call"
    ),
    # --- exceptions ---
    "an index out of range": Case(
        "\ndef f(p, i): return p[i] * 2\n", [f"({L4}, {i})" for i in (0, 3, 4, -4, -5, 1)]
    ),
    "the logarithm of a negative number": Case(
        "\ndef f(x, t): return log(x - t)\n", ["(2.0, 1.0)", "(2.0, 3.0)", "(2.0, 1.5)"]
    ),
    "a missing key": Case("\ndef f(x, t): return x * {0: 1.0}[t]\n", ["(2.0, 0)", "(2.0, 1)"]),
    "its own exception": Case(
        "\ndef f(x, t):\n    if t > 1: raise RuntimeError(f'{t} is too large')\n    return x * t\n",
        ["(2.0, 0.5)", "(2.0, 1.5)", "(2.0, 0.25)"],
    ),
    # --- known wrong ---
    "data that equals one": Case(
        "\ndef f(x, flags): return sum(x if q == 1.0 else 2 * x for q in flags)\n",
        ["(1.0, [1.0, 0.0, 1.0])", "(1.0, [0.0, 0.0, 1.0])"],
    ),
    "a Value that equals a number": Case(
        "\ndef f(x): return x * 2 if x == 0.5 else x * 3\n", ["(0.5,)", "(1.0,)", "(0.5,)"]
    ),
    "math.exp of data": Case(
        "\ndef f(x, ts): return sum(x * math.exp(-t) for t in ts)\n",
        ["(2.0, [0.1, 0.2])", "(2.0, [0.3, 0.2])"],
    ),
    "exp from math": Case(
        "from math import exp\n\ndef f(x, ts): return sum(x * exp(-t) for t in ts)\n",
        ["(2.0, [0.1, 0.2])", "(2.0, [0.3, 0.2])"],
    ),
    # --- transforms inside ---
    **{
        f"inside: {text}": Case(f"\ndef f(a): return {text} * a\n", ["(2.0,)", "(3.0,)"])
        for text in (
            "chainrule.grad(lambda q: a * q * q)(3.0)",
            "chainrule.grad(lambda q: q * q * q)(a)",
            "chainrule.value_and_grad(lambda q: a * q * q)(3.0)[1]",
            "chainrule.hvp(lambda q: a * q[0] ** 3)([2.0], [1.0])[0]",
            "chainrule.gradients(a * a * a, a, create_graph=True)",
        )
    },
}
for spelling in (
    "np.mean(x + y)",
    "np.sum(np.exp(2 * x))",
    "(2 * x)[1]",
    "(x * 2)[0]",
    "x @ y",
    "y @ x",
    "np.dot(x, y)",
    "(x + x)[0]",
    "(x - y).sum()",
    "(x ** 2).sum()",
    "x[::-1][0]",
    "x[y > 15][0]",
    "x[[0, 1]].sum()",
    "np.where(y > 15, x, 0.0).sum()",
    "np.concatenate([x, y]).sum()",
    "x.shape[0] * x[0]",
    "x.reshape(2, 1)[1, 0]",
    "np.outer(x, y)[0, 1]",
    "np.max(x)",
    "x.size * x.ndim * x[1]",
    "np.tanh(x)[1]",
    "sum(x)",
    "x[0] * np.linalg.norm(y)",
    "x[0] * y.mean()",
    "(x[:, None] * y)[0, 1]",
    "x[0] * (y % 7).sum()",
    "x[0] * len(y)",
    "x.copy()[0]",
    "x.tolist()[0] * 2",
):
    CASES[f"arrays: {spelling}"] = Case(
        f"\ndef f(x, y): return {spelling}\n",
        [
            "(np.array([1.0, 2.0]), np.array([10.0, 20.0]))",
            "(np.array([1.0, -2.0]), np.array([30.0, 20.0]))",
        ],
    )
for spelling in (
    "T[a][b]",
    "T[a, b] if isinstance(T, np.ndarray) else T[a][b]",
    "(T[a])[b]",
    "[row[b] for row in T][a]",
    "list(zip(*T))[b][a]",
    "(lambda row: row[b])(T[a])",
    "T.__getitem__(a)[b]",
    "[*T[a]][b]",
    "tuple(T[a])[b]",
    "T[a][-1 - b]",
    "T[-1 - a][b]",
    "T[a - 1][b - 1]",
    "T[a % 2][b % 2]",
    "T[a][a] + T[b][b]",
    "T[a][b] * T[b][a]",
    "(row := T[a])[b] + row[0]",
    "next(r for i, r in enumerate(T) if i == a)[b]",
    "sum(T, [])[a * 3 + b]",
    "[v for row in T for v in row][3 * a + b]",
    "{i: row for i, row in enumerate(T)}[a][b]",
    "{(i, j): v for i, row in enumerate(T) for j, v in enumerate(row)}[a, b]",
    "np.array(T)[a, b]",
    "np.array(T)[a][b]",
    "T[max(a, b)][min(a, b)]",
    "T[[2, 0, 1][a]][[1, 2, 0][b]]",
    "T[a][b] if a != b else T[0][0] * 3",
    "T[a:][0][b]",
    "T[a][b:][0]",
    "T[a][:b + 1][-1]",
    "list(reversed(T))[a][b]",
    "__import__('operator').itemgetter(b)(T[a])",
    "T[a].copy().pop(b)",
    "max(enumerate(T), key=lambda pair: pair[0] == a)[1][b]",
):
    CASES[f"rows: {spelling}"] = Case(
        f"\ndef f(T, a, b): return {spelling} * 2\n",
        random_calls(f"({M3}, {{a}}, {{b}})", 30, a=range(3), b=range(3)),
    )
for seen in (
    "len(range(n))",
    "len([0, 1, 2, 3][n:])",
    "len('ab' * n)",
    "[1, 2, 3, 4, 5][n]",
    "(1, 2, 3, 4, 5)[n]",
    "{0: 5, 1: 7, 2: 9}.get(n, 1)",
    "len({0, 1, n})",
    "hash(n)",
    "len(str(n * 7))",
    "len(f'{n:03d}{n * 100}')",
    "int(f'{n}')",
    "ord(chr(97 + n))",
    "len(bytes(n))",
    "(n in (1, 2))",
    "divmod(n, 2)[1]",
    "pow(2, n)",
    "n ** 2",
    "n.bit_length()",
    "(1 < n < 4)",
    "(not n)",
    "(n or 7)",
    "(n and 7)",
    "(n is k)",
    "(3 if n else 5)",
    "min(n, 2)",
    "max([n, 1])",
    "sorted([n, 2, 1])[1]",
    "next(iter(range(n, 9)))",
    "list(enumerate('ab', start=n))[1][0]",
    "len(list(itertools.islice(range(9), n)))",
    "np.arange(n).sum()",
    "np.zeros(n).size",
    "np.array([1, 2, 3, 4, 5])[n]",
    "np.eye(5)[n].argmax()",
    "operator.itemgetter(n)('01234') * 1 and 3",
    "math.factorial(n)",
    "math.comb(4, n)",
    "getattr(SimpleNamespace(w0=1, w1=2, w2=3, w3=4, w4=5), f'w{n}')",
    "[[1], [1, 2], [], [3], [4]][n].__len__()",
    "sum([[1], [1, 2], [], [3], [4]][n])",
    "float(n)",
    "int(n / 2)",
    "round(n, -1)",
    "(n << 1 | 1) ^ 3",
    "~n",
    "-n // 2",
    "isinstance(n, bool)",
    "type(n)(3)",
    "(n == k) + 1",
    "(n, k).index(k)",
    "len(repr([n] * k))",
    "functools.reduce(lambda a, b: a * 2 + b, [n, k, 1])",
    "struct.unpack('i', struct.pack('i', n))[0]",
    "(m := n + k) * m",
    "abs(n - k)",
    "sum(i == n for i in range(5))",
    "[i for i in range(5) if i != n][0]",
    "any(i == n for i in (1, 3))",
    "'abcde'.index('abcde'[n])",
    "len('abcde'[:n])",
    "int('12345'[n])",
    "bisect.bisect([0, 2, 4], n)",
    "json.loads(json.dumps(n))",
    "n.__index__()",
    "{k: 1}.get(n, 5)",
    "len([*range(n)] or [1, 2, 3])",
):
    CASES[f"an integer seen by {seen}"] = Case(
        "import bisect, functools, itertools, json, operator, struct\n"
        f"\ndef f(x, n, k): return x * x * ({seen})\n",
        random_calls("(1.5, {n}, {k})", 30, n=range(5), k=range(1, 5)),
    )
for seen in (
    "isinstance(t, float)",
    "(t == 1.0)",
    "(t in (0.0, 1.0))",
    "t % 1",
    "t // 1",
    "round(t)",
    "round(t, 1)",
    "int(t)",
    "len(f'{t:.2f}{t}')",
    "len(repr(t))",
    "{1.0: 3, 0.5: 4}.get(t, 5)",
    "len({t, 1.0})",
    "hash(t) % 7",
    "math.floor(t)",
    "math.isclose(t, 1.0)",
    "t.is_integer()",
    "t.as_integer_ratio()[1] % 5",
    "(3 if t else 4)",
    "(type(t) is float)",
    "float(t)",
    "str(t).count('.')",
    "divmod(t, 0.3)[0]",
    "max(t, 0.75)",
    "abs(t)",
    "np.floor(t)",
    "np.float64(t)",
    "np.array([t, 1.0]).sum()",
    "np.array([1.0, 2.0]) @ np.array([t, t])",
    "[0.5, 1.0, 2.0, 0.25].index(t)",
    "sorted([t, 0.7])[0]",
    "complex(t).real",
    "t ** 0.5",
    "2 ** t",
    "math.hypot(t, 1)",
    "(t > x.data)",
    "(t != 1.0) + 1",
    "-t",
    "t.hex().count('0')",
    "sum([t, t, 1])",
    "np.sign(t)",
    "int(t * 4) % 3",
    "math.copysign(2, t - 0.75)",
):
    CASES[f"data seen by {seen}"] = Case(
        f"\ndef f(x, t): return x * x * ({seen})\n",
        [f"(1.5, {t})" for t in (0.5, 1.0, 2.0, 0.25, 0.5, 1.0)],
    )

for step, arguments in (
    ("7 // n", (1, 0, 2, 3)),
    ("7 % n", (1, 0, 2, 3)),
    ("divmod(7, n)[1]", (1, 0, 2, 3)),
    ("3 << (n - 1)", (1, 0, 2, 3)),
):
    CASES[f"a step that raises and is caught: {step}"] = Case(
        f"""
def f(p, n):
    try:
        return p[0] * ({step})
    except (ZeroDivisionError, ValueError):
        return p[1] * 20
""",
        [f"([2.0, 3.0], {n})" for n in arguments],
    )
CASES |= {
    "integers of numpy's overflow": Case(
        "\ndef f(p, x): return p[(x[0] * 2654435761 * x[1]) % 3]\n",
        [
            "([0.5, 1.0, 2.0], np.array([1, 2]))",
            "([0.5, 1.0, 2.0], np.array([10**9, 10**9 + 7]))",
        ],
    ),
    "an integer of numpy's after a Python one": Case(
        "\ndef f(p, n): return p * (2.0 if isinstance(n, int) else 3.0)\n",
        ["(1.5, 2)", "(1.5, np.int64(2))", "(1.5, 3)"],
    ),
    "float32 compares as float32": Case(
        "\ndef f(p, x): return p * (1.0 if x[0] == 0.1 else 2.0)\n",
        ["(1.5, np.array([0.1]))", "(1.5, np.array([0.1], np.float32))"],
    ),
    "float32 selected by an integer": Case(
        """
def f(p, x, i):
    return p * float(x[i] * x[i]) * (1 if isinstance(x[i], float) else 2)
""",
        [f"(1.5, np.array([0.1, 0.3], np.float32), {i})" for i in (0, 1, 0)],
    ),
    "the larger of two integers of numpy's": Case(
        "\ndef f(p, x): return p * (1.0 if max(x[0], x[1]) * 4 > 0 else 2.0)\n",
        ["(1.5, np.array([1, 2]))", "(1.5, np.array([2**61, 3]))"],
    ),
    "which row it is, asked where everything is caught": Case(
        """
def f(p, i):
    rows, factor = [p[:2], p[1:]], 1.0
    try:
        factor = 2.0 if rows[i] is rows[0] else 3.0
    except BaseException:
        factor = 5.0
    return rows[i][0] * factor
""",
        [f"([1.5, 2.5, 3.5], {i})" for i in (0, 1, 0, 1, -1)],
    ),
    "a matrix after an array": Case(
        "\ndef f(p, a): return p * float((a * a)[0, 1])\n",
        [
            "(1.5, np.array([[1.0, 2.0], [3.0, 4.0]]))",
            "(1.5, np.matrix([[1.0, 2.0], [3.0, 4.0]]))",
        ],
    ),
    "an error that shows a number": Case(
        "\ndef f(p, t): raise ValueError(p[0].data)\n", ["([1.5], 1.0)", "([2.5], 2.0)"]
    ),
    "an integer is returned": Case(
        "\ndef f(p, ts): return sum(p[t] for t in ts)\n",
        ["([1.5, 2.5], [0, 1])", "([1.5, 2.5], [])"],
    ),
    # --- numpy's numbers beside recorded ones ---
    "a narrow float of the module rounds": Case(
        "NARROW = np.float32(0.1)\n\ndef f(p, x, n):\n"
        "    return p * (NARROW * x) + x * NARROW + n * NARROW - NARROW / (n + x)",
        ["(2.0, 0.3, 1)", "(2.0, 0.7, 5)", "(1.5, 1.9, 100)"],
    ),
    "small integers wrap around or overflow": Case(
        "def f(p, n, small):\n    return p[(n * 2654435761 ^ small) % 3]",
        [f"([1.0, 2.0, 3.0], 12, {b})" for b in ("18", "np.int32(18)", "np.int32(7)")],
        mode="call",
    ),
    "a comparison of numpy's is numpy's truth": Case(
        "def f(p, ns):\n    same = ns[0] == ns[1]\n"
        "    return p * float(same + same), type(same).__name__, repr(~same)",
        ["(2.0, np.array([1, 1]))", "(2.0, np.array([1, 2]))", "(2.0, [1, 1])", "(2.0, [1, 2])"],
        mode="call",
    ),
    "a comparison of floats is a truth": Case(
        "def f(p, x):\n    above = x > 1\n"
        "    return p * isinstance(above, bool) + (2 if type(above) is bool else 3)",
        ["(2.0, 0.5)", "(2.0, 1.5)", "(2.0, np.float64(1.5))"],
    ),
    "numpy rounds in its own way": Case(
        "WIDTHS = np.array([0.15, 2.5, -3.5])\n\ndef f(p, i, x):\n"
        "    return p * round(WIDTHS[i], 1) + round(x, 1)",
        ["(2.0, 0, 0.15)", "(2.0, 0, np.float64(0.15))", "(2.0, 2, np.float64(0.25))"],
    ),
    "numpy divides by zero": Case(
        "def f(p, x):\n    try:\n        return p * (1.0 if 1.0 / x > 1e300 else 2.0)\n"
        "    except ZeroDivisionError:\n        return p * 5.0",
        ["(2.0, 0.5)", "(2.0, 0.0)", "(2.0, np.float64(0.5))", "(2.0, np.float64(0.0))"],
    ),
    "an array of integers made inside has its type": Case(
        "def f(p, ns):\n    a = np.array(ns)\n    b = np.asarray(a) * 2\n"
        "    return p * b.sum(), str(a.dtype), str(b.dtype), str((b / 2).dtype)",
        ["(2.0, [1, 2])", "(2.0, [1.5, 2])", "(3.0, [4, 5])"],
        mode="call",
    ),
    "results of numpy's functions have their types": Case(
        "def f(p, a, x):\n"
        "    made = [np.where(a > 0, a, 0), np.concatenate([a, a]), np.outer(a, a), a * x, a + 1]\n"
        "    return [p * float(b.sum()) for b in made] + [str(b.dtype) for b in made]",
        [
            f"(2.0, np.array({numbers}{kind}), {x})"
            for x in ("0.1", "np.float32(0.1)")
            for numbers in ("[1, 2]", "[0.5, -1.5]")
            for kind in ("", ", np.float32")
        ],
        mode="call",
    ),
    "the largest of an array with what is not a number": Case(
        "def f(p, a):\n    return p * (3 if np.maximum(a, 0.5).sum() > 2 else 1) * a.argmax()",
        ["(2.0, np.array([1.0, 3.0]))", "(2.0, np.array([1.0, np.nan]))"],
    ),
    "the larger of an integer and a float keeps its type": Case(
        "def f(p, x):\n    return p * isinstance(max(x, 0), int) + len(repr(min(x, 1) * 2))",
        ["(2.0, 0.5)", "(2.0, -0.5)", "(2.0, 1.5)"],
    ),
    "an item of a mixed table keeps its type": Case(
        "TABLE = [True, 2, 0]\n\ndef f(p, i):\n"
        "    return p * isinstance(TABLE[i], bool) + TABLE[i]",
        ["(2.0, 0)", "(2.0, 1)", "(2.0, 2)"],
    ),
    "an item of an array is a new object each time": Case(
        "def f(p, a):\n    x = a[0]\n    return p * (2 if a[0] is a[0] else 3) * (x is x)",
        ["(2.0, np.array([1.5, 2.5]))", "(2.0, np.array([1, 2]))", "(2.0, [1.5, 2.5])"],
    ),
    "rows of a plain array by a list": Case(
        "E = np.arange(12.0).reshape(4, 3)\n\ndef f(p, ts):\n"
        "    return p * E[ts].sum(), str(E[ts].dtype), E[ts].shape",
        ["(2.0, [1, 2])", "(2.0, [0, 3])", "(2.0, np.array([3, 3]))", "(2.0, np.array([4, 3]))"],
        mode="call",
    ),
    "an array of data is an array": Case(
        "def f(p, a):\n    return p * len(type(a).__name__) * isinstance(a, np.ndarray)",
        ["(2.0, np.array([1.5, 2.5]))", "(2.0, np.array([1, 2]))"],
    ),
    "a Value of constants is a Value": Case(
        "def f(p, x):\n    return vsum(p) * x", ["([0.1, 0.2], 0.3)"] * 2, mode="call"
    ),
    "a global Value that is returned": Case(
        "BIAS = Value(0.25)\n\ndef f(p, n):\n    return BIAS + (n > 2)",
        ["(1.0, 1)", "(1.0, 3)", "BIAS.data = 0.5 ;; (1.0, 1)"],
    ),
    # --- infinite data, memory, masks ---
    "a function of math at infinity raises": Case(
        "def f(p, x):\n    try:\n        return p * math.sin(x) + math.log(2.0 + x * x)\n"
        "    except ValueError:\n        return p * 7",
        ["(2.0, 0.5)", "(2.0, 0.7)", "(2.0, math.inf)", "(2.0, 0.5)", "(2.0, math.nan)"],
    ),
    "one nan in a list is equal to itself": Case(
        "def f(p, x):\n    return p * (x in [1.0, 2.0, math.nan]) + p * 3",
        ["(2.0, 3.0)", "(2.0, 4.0)", "(2.0, math.nan)", "(2.0, float('nan'))", "(2.0, 1.0)"],
    ),
    "one nan in two lists makes them equal": Case(
        "def f(p, xs, ys):\n    return p * (5 if xs == ys else 7) + p * (xs[0] in ys)",
        [
            "(2.0, [1.5, 2.5], [1.5, 2.5])",
            "(2.0, [1.5, 2.5], [1.5, 3.5])",
            "(2.0, [math.nan, 2.5], [math.nan, 2.5])",
            "(2.0, [math.nan, 2.5], [float('nan'), 2.5])",
        ],
    ),
    "another nan is another global": Case(
        "G = math.nan\n\ndef f(p):\n    return p * (G in [math.nan]) + p",
        ["(2.0,)", "(3.0,)", "G = float('nan') ;; (2.0,)", "G = float('nan') ;; (3.0,)"],
    ),
    "names that an integer does not have": Case(
        "def f(p, ts):\n    x = ts[0]\n"
        "    return p * (x.value if hasattr(x, 'value') else x * 2) * getattr(x, 'node', 3)",
        ["(2.0, [1, 2])", "(2.0, [3, 2])", "(2.0, [5, 1])"],
    ),
    "an attribute that an integer does not have, in one side": Case(
        "def f(p, ts):\n    return p * ts[0].value if ts[1] > 3 else p * 3",
        ["(2.0, [1, 2])", "(2.0, [3, 4])", "(2.0, [5, 1])", "(2.0, [5, 6])", "(2.0, [2, 5])"],
    ),
    "identity asked by a function": Case(
        "import operator\n\ndef f(p, ts):\n    return p * (2 if operator.is_(ts[0], 1) else 3)",
        ["(2.0, [0, 2])", "(2.0, [1, 2])", "(2.0, [1, 3])", "(2.0, [4, 3])"],
    ),
    "integers that grow without end in a side": Case(
        "def f(p, ts):\n    def g(n, k):\n        if k == 0: return n\n"
        "        if n % 2: return g(n * n + 1, k - 1)\n        return g(n * n * n, k - 1)\n"
        "    return p * (g(ts[0] + 2, ts[1]) % 97)",
        [f"(2.0, [{a}, {b}])" for a, b in ((1, 0), (0, 2), (3, 1), (4, 3), (2, 2), (1, 4), (0, 0))],
    ),
    "data that overflow on the way": Case(
        "def f(p, x):\n    return p * math.cos(x * 1e300)",
        ["(2.0, 0.5)", "(2.0, 0.7)", "(2.0, 1e10)", "(2.0, 0.5)"],
    ),
    "a function of math at infinity in a batch": Case(
        "def f(p, x):\n    try:\n        return p[0] * math.sin(x)\n"
        "    except ValueError:\n        return p[0] * 7",
        ["([2.0], [(0.5,), (0.7,), (math.inf,), (0.1,)])"] * 2,
        mode="batch",
        options={"lift": True},
    ),
    "a mask is changed": Case(
        "def f(p, a):\n    a[1] = a[1] + 1\n    return p * float(a[1])",
        [f"(1.5, np.array([1, {n}], np.{kind}))" for n in (5, 7) for kind in ("uint8", "int16")],
    ),
    "what an array says of its memory": Case(
        "def f(p, a):\n    return p * (2 if a.flags.owndata else 3) * (a.base is None)",
        ["(2.0, np.array([1.0, 2.0]))", "(2.0, np.array([[1.0, 2.0]])[0])"],
    ),
    "elements by two arrays of integers": Case(
        "def f(p, ys):\n"
        "    q = p * 1.0\n"
        "    return -sum(q[np.arange(2), ys]) + q[:, ys].sum() * q[ys, 1].sum() + q[1:, ys].sum()",
        [
            f"(np.array([[0.1, 0.2, 0.3], [0.5, -0.6, 0.7]]), np.array({ys}))"
            for ys in ("[0, 1]", "[1, 1]", "[-1, 0]", "[2, 0]")
        ],
    ),
    "a dataclass that is passed is changed": Case(
        """
@dataclasses.dataclass
class State:
    n: int = 0
    x: float = 1.0

STATES = [State(), State(3, 0.5)]

def f(p, s):
    s.n = s.n + 1
    s.x *= 2
    return p * s.n * s.x
""",
        ["(1.5, STATES[0])", "(1.5, STATES[0])", "(1.5, STATES[1])", "(1.5, State(7, 2.0))"],
    ),
    "a captured array of objects is changed": Case(
        "ITEMS = np.array([1, 2.0], object)\n\ndef f(p):\n"
        "    ITEMS[0] = ITEMS[0] + 1\n    return p * ITEMS[0]",
        ["(1.5,)"] * 3,
    ),
    # --- arrays of data: writes and views ---
    "an array made inside is sorted": Case(
        "def f(p, xs):\n    x = np.array(xs)\n    x.sort()\n    return p * (x[0] * 2 + x[-1])",
        [f"(1.5, {xs})" for xs in ("[1.0, 2.0]", "[1.0, 2.0]", "[7.0, 3.0]", "[3, 1]", "[1, 3]")],
        mode="call",
    ),
    "an array that is passed is sorted, though it is sorted at first": Case(
        "def f(p, x):\n    x.sort()\n    return p * x[0]",
        [f"(1.5, np.array({x}))" for x in ("[5.0, 6.0]", "[5.0, 6.0]", "[12.0, 3.0]", "[2, 1]")],
        mode="call",
    ),
    "a write through a view of an array": Case(
        "def f(p, m, x):\n    np.ravel(x)[0] = 9\n    np.flip(x)[0] = 3\n"
        "    return (abs(m) + m) * p * x.sum() + p",
        [f"(1.5, {m}, np.array([1.0, 2.0, 4.0]))" for m in (-1.0, 1.0, 0.5)],
    ),
    "narrow floats beside a wide copy of them": Case(
        "def f(p, m, x):\n    y = x.astype(float)\n    y[0] = 9\n"
        "    return (abs(m) + m) * (p * (x.sum() + y.sum())) + p",
        [
            f"(1.5, {m}, np.array([1, 2, 3, 4], np.float32) * np.float32(0.7))"
            for m in (-1.0, 1.0, 0.7)
        ],
    ),
    "the largest of data that are not numbers": Case(
        "def f(p, x):\n    return p * float(np.argmax(x) + 10 * x.argmin())",
        [
            f"(1.5, np.array([{x}]))"
            for x in ("3.0, 1.0, 2.0", "4.0, 1.0, 2.0", "3.0, 1.0, math.nan", "math.nan, 1.0, 2.0")
        ],
    ),
    # --- derivatives inside, names of arguments ---
    "a derivative inside depends on a parameter in a dict": Case(
        "def f(p, x):\n    return chainrule.grad(lambda q: p['w'] * q * q)(x)",
        ["({'w': 0.5}, 3.0)", "({'w': 0.7}, 2.0)", "({'w': 0.7}, 1.0)"],
    ),
    "second derivatives of a compiled helper": Case(
        "@chainrule.compile\ndef cube(w):\n    return w ** 3 * 2\n\n"
        "def f(p, x):\n    return p * (chainrule.hessian(lambda v: cube(v))(x)\n"
        "        + chainrule.grad(chainrule.grad(lambda v: cube(v)))(x))",
        ["(1.5, 1.5)", "(1.5, 2.5)", "(0.5, 2.5)"],
    ),
    # --- elements that do not depend on each other ---
    "the Jacobian of elements, some of which branch": Case(
        "def f(p, x):\n    found = []\n    for k in range(70):\n"
        "        a, b = p[k % 4], p[(k * k + 1) % 4]\n"
        "        y = tanh(a * x[k % 3]) * b + a\n"
        "        if y > 1.0:\n            y = y * 0.5\n"
        "        found += [y * y, max(a, y)]\n    return found",
        [
            f"([0.3, {a}, 1.1, 0.4], [{x}, 0.2, -1.0])"
            for a in (-0.7, -0.7, -0.5, 0.9, -0.7)
            for x in (0.5, 0.7, 3.0, 1e308)
        ],
        mode="jacobian",
        options={"lift": True},
    ),
    # --- numbers outside ---
    "a number that follows from integers, beside a value that no code computes from it": Case(
        "def f(p, t):\n    n = max(3, t[0])\n    return p[n % 4] * 2, float(n)",
        [f"([0.5, 1.5, 2.5, 3.5], [{n}])" for n in (32, 22, 6, 38, 1)],
        mode="call",
        options={"lift": True},
    ),
    "the largest integer so far": Case(
        "BEST = -1\n\ndef f(p, t):\n    global BEST\n    BEST = max(BEST, t[0])\n"
        "    return p[BEST % 4] * 2",
        [f"([0.5, 1.5, 2.5, 3.5], [{n}])" for n in (32, 22, 6, 38, 1, 39)],
        options={"lift": True},
    ),
    "a dict that is another object's attributes": Case(
        "class Box:\n    pass\n\nBOX = Box()\nBOX.n = 0\nFIELDS = vars(BOX)\n\n"
        "def f(p):\n    FIELDS['n'] += 1\n    return p * BOX.n",
        ["(0.5,)"] * 5,
    ),
    "an object that answers for every name": Case(
        "class Every:\n    def __init__(self):\n        self.n = 0\n"
        "    def __getattr__(self, name):\n        return 7\n\nX = Every()\n\n"
        "def f(p):\n    X.n += 1\n    return p * X.n + X.other",
        ["(0.5,)"] * 5,
    ),
    # --- corners ---
    "sums at a corner, but for rounding": Case(
        "def f(p, t):\n    total = sum(a * (k % 3 + 0.1) for k, a in enumerate(p))\n"
        "    return abs(total - t[0]) * 3.0 + relu(total - t[1]) + max(p[0], total - t[0])",
        [_corner(seed, shift) for seed in range(12) for shift in (-1, 0, 1)],
        options={"lift": True},
    ),
}
