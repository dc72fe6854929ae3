"""Who takes part in ``chainrule bench``: one GPT like microgpt's, and the ways to its gradient.

Every contestant computes the loss of the next name and its gradient by all 4,192 weights. The
scalar ones run ``loss`` below; the peers that work on whole arrays get ``array_loss``, as somebody
who knows them would write it. Nothing of a peer is imported before its turn comes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import cycle, pairwise
from math import exp as exp_of_float
from math import log as log_of_float
from typing import Any

import numpy as np

from chainrule import optim
from chainrule.compiler import compile
from chainrule.core import value as reference
from chainrule.core.backend import Value, engine

WIDTH, HEADS, BLOCK, LETTERS = 16, 4, 16, 26
SIZE = WIDTH // HEADS
NAMES = ["michael", "barbara", "richard", "charles"]  # eight positions: each predicts the next
STEPS = 400 if find_spec("llvmlite") else 20  # of training in one call: the names come in turn

Call = Callable[[], float]


@dataclass(frozen=True)
class Contestant:
    """One row: ``make()`` gives a function that returns the loss of the next name (or names)."""

    name: str
    make: Callable[[], Call]
    section: str = "gradient"
    builds: bool = False  # the first call takes much longer than the others
    names: int = 1  # that a call goes through
    mean: bool = False  # the first loss it returns is the mean of all names
    tolerance: float = 1e-9
    turns: int | None = None  # that are enough
    own: bool = True  # chainrule's, not a peer


# --- the model ------------------------------------------------------------------------------------


def weights() -> dict[str, list[list[float]]]:
    """Random numbers to start from, matrices as lists of rows."""
    rng = random.Random(1)
    shapes = {"tokens": LETTERS + 1, "positions": BLOCK, "head": LETTERS + 1}
    shapes |= dict.fromkeys(("query", "key", "value", "output"), WIDTH)

    def matrix(rows: int, columns: int) -> list[list[float]]:
        return [[rng.gauss(0, 0.08) for _ in range(columns)] for _ in range(rows)]

    made = {name: matrix(rows, WIDTH) for name, rows in shapes.items()}
    return made | {"widen": matrix(4 * WIDTH, WIDTH), "narrow": matrix(WIDTH, 4 * WIDTH)}


def samples() -> list[list[int]]:
    """The names as numbers, each between two marks of its ends."""
    return [[LETTERS, *[ord(c) - ord("a") for c in name], LETTERS] for name in NAMES]


def exp_of(x: Any) -> Any:
    """The exponential of a Value."""
    return x.exp()


def log_of(x: Any) -> Any:
    """The logarithm of a Value."""
    return x.log()


def _linear(x: Any, matrix: Any) -> Any:
    return [sum(w * v for w, v in zip(row, x, strict=True)) for row in matrix]


def _softmax(xs: Any, exp: Any) -> Any:
    largest = max(x.data for x in xs)
    exps = [exp(x - largest) for x in xs]
    total = sum(exps)
    return [e / total for e in exps]


def _rmsnorm(x: Any) -> Any:
    scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in x]


def _add(x: Any, y: Any) -> Any:
    return [a + b for a, b in zip(x, y, strict=True)]


def loss(weights: Any, tokens: Any, exp: Any = exp_of, log: Any = log_of) -> Any:
    """The mean of ``-log p(next token)``, one scalar at a time."""
    keys: list[Any] = []
    values: list[Any] = []
    losses = []
    for position, (token, target) in enumerate(pairwise(tokens)):
        before = _rmsnorm(_add(weights["tokens"][token], weights["positions"][position]))
        x = _rmsnorm(before)
        query = _linear(x, weights["query"])
        keys.append(_linear(x, weights["key"]))
        values.append(_linear(x, weights["value"]))
        gathered = []
        for h in range(0, WIDTH, SIZE):
            scores = [sum(query[h + j] * k[h + j] for j in range(SIZE)) / SIZE**0.5 for k in keys]
            shares = _softmax(scores, exp)
            for j in range(h, h + SIZE):
                gathered.append(sum(s * v[j] for s, v in zip(shares, values, strict=True)))
        before = _add(_linear(gathered, weights["output"]), before)
        hidden = [h.relu() for h in _linear(_rmsnorm(before), weights["widen"])]
        x = _add(_linear(hidden, weights["narrow"]), before)
        losses.append(-log(_softmax(_linear(x, weights["head"]), exp)[target]))
    return sum(losses) / len(losses)


def array_loss(weights: Any, tokens: Any, causal: Any, library: Any, relu: Any) -> Any:
    """The same over whole arrays; ``causal`` is 1 where a position looks at another, else 0."""
    sources, targets = tokens[:-1], tokens[1:]
    count = len(sources)

    def rmsnorm(x: Any) -> Any:
        return x * ((x * x).mean(-1, keepdims=True) + 1e-5) ** -0.5

    def heads(x: Any) -> Any:
        return x.reshape(count, HEADS, SIZE).swapaxes(0, 1)

    before = rmsnorm(weights["tokens"][sources] + weights["positions"][:count])
    x = rmsnorm(before)
    query, key, value = (heads(x @ weights[name].T) for name in ("query", "key", "value"))
    exps = library.exp(query @ key.swapaxes(1, 2) / SIZE**0.5) * causal
    shares = exps / exps.sum(-1, keepdims=True)
    gathered = (shares @ value).swapaxes(0, 1).reshape(count, WIDTH)
    before = gathered @ weights["output"].T + before
    x = relu(rmsnorm(before) @ weights["widen"].T) @ weights["narrow"].T + before
    logits = x @ weights["head"].T
    totals = library.log(library.exp(logits).sum(-1))
    return (totals - logits[library.arange(count), targets]).mean()


def _arrays(dtype: str = "float64") -> dict[str, Any]:
    return {name: np.array(rows, dtype) for name, rows in weights().items()}


# --- chainrule's own ------------------------------------------------------------------------------


def eager(value_class: Any, exp: Any = exp_of, log: Any = log_of, step: Any = None) -> Call:
    """Build the graph and walk it backwards. ``step(parameters)`` makes what follows, if any."""
    values = {
        name: [[value_class(x) for x in row] for row in rows] for name, rows in weights().items()
    }
    following = step([p for rows in values.values() for row in rows for p in row]) if step else None
    turn = cycle(samples())

    def call() -> float:
        found = loss(values, next(turn), exp, log)
        found.backward()
        if following is not None:
            following()
        return float(found.data)

    return call


def _adam_step(parameters: Any) -> Callable[[], None]:
    optimiser = optim.Adam(parameters, lr=0.0)

    def step() -> None:
        optimiser.step()
        optimiser.zero_grad()

    return step


def compiled(lift: bool) -> Call:
    """The function compiled: on the tape, or to machine code."""
    function = compile(loss, on_fallback="raise", lift=lift)
    arrays, turn = _arrays(), cycle(samples())
    return lambda: float(function.value_and_grad(arrays, next(turn))[0])


def training(batch: int, dtype: str) -> Call:
    """Whole steps, Adam included; a learning rate of 0 keeps the losses what they were."""
    function = compile(loss, dtype=dtype, on_fallback="raise")
    arrays = _arrays(dtype)
    optimiser = optim.Adam(arrays, lr=0.0)
    each = [(tokens,) for tokens in samples()]
    return lambda: float(function.train(arrays, each, optimiser, STEPS, batch=batch)[0])


# --- peers ----------------------------------------------------------------------------------------


def micrograd() -> Call:
    """micrograd's class over scalars, with the exp and log of its author's lecture."""
    value_class = import_module("micrograd.engine").Value

    def exp(x: Any) -> Any:
        out = value_class(exp_of_float(x.data), (x,), "exp")

        def backward() -> None:
            x.grad += out.data * out.grad

        out._backward = backward
        return out

    def log(x: Any) -> Any:
        out = value_class(log_of_float(x.data), (x,), "log")

        def backward() -> None:
            x.grad += out.grad / x.data

        out._backward = backward
        return out

    return eager(value_class, exp, log)


def _causal() -> Any:
    count = len(samples()[0]) - 1
    return np.tril(np.ones((count, count)))


def autograd() -> Call:
    """HIPS autograd over whole numpy arrays."""
    peer, library = import_module("autograd"), import_module("autograd.numpy")
    causal, turn = _causal(), cycle(samples())
    arrays = _arrays()

    def relu(x: Any) -> Any:
        return library.maximum(x, 0.0)

    function = peer.value_and_grad(lambda w, tokens: array_loss(w, tokens, causal, library, relu))
    return lambda: float(function(arrays, next(turn))[0])


def jax() -> Call:
    """JAX: ``jit`` of ``value_and_grad`` over whole arrays, which are on the device already.

    One thread, and no hand-over to another: at this size that is the fastest way to run it.
    """
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    peer = import_module("jax")
    peer.config.update("jax_enable_x64", True)
    peer.config.update("jax_platforms", "cpu")
    peer.config.update("jax_cpu_enable_async_dispatch", False)
    library = peer.numpy
    causal, arrays = library.asarray(_causal()), peer.tree_util.tree_map(library.asarray, _arrays())
    turn = cycle([library.asarray(tokens) for tokens in samples()])

    def of_arrays(w: Any, tokens: Any) -> Any:
        return array_loss(w, tokens, causal, library, peer.nn.relu)

    function = peer.jit(peer.value_and_grad(of_arrays))
    return lambda: float(peer.block_until_ready(function(arrays, next(turn)))[0])


def torch() -> Call:
    """torch over whole arrays, on one thread like everybody."""
    peer = import_module("torch")
    peer.set_num_threads(1)
    causal = peer.tensor(_causal())
    arrays = {name: peer.tensor(a, requires_grad=True) for name, a in _arrays().items()}
    turn = cycle(samples())

    def call() -> float:
        for array in arrays.values():
            array.grad = None
        found = array_loss(arrays, next(turn), causal, peer, peer.relu)
        found.backward()
        return float(found.detach())

    return call


PEERS = {"micrograd": micrograd, "autograd": autograd, "jax": jax, "torch": torch}


def version_of(package: str) -> str:
    """A space and the version of a package, where it says."""
    with suppress(PackageNotFoundError):
        return f" {version(package)}"
    return ""


def contestants() -> Iterator[Contestant]:
    """Everybody who can take part here, in the order of the table."""
    native = engine == "native"
    yield Contestant("reference engine", lambda: eager(reference.Value), turns=3)
    if native:
        yield Contestant("native engine", lambda: eager(Value))
        yield Contestant("tape", lambda: compiled(lift=False), builds=True)
    if find_spec("llvmlite") is not None:
        yield Contestant("compiled", lambda: compiled(lift=True), builds=True)
    for package, make in PEERS.items():
        if find_spec(package) is not None:
            name = f"{package}{version_of(package)}"
            yield Contestant(name, make, builds=package == "jax", own=False)
    if native:
        yield Contestant("native engine", lambda: eager(Value, step=_adam_step), section="step")
    for batch, dtype in ((1, "float64"), (16, "float64"), (16, "float32")):
        yield Contestant(
            "train" + (f", {batch} a step" if batch > 1 else "") + f", {dtype}",
            partial(training, batch, dtype),
            section="step",
            builds=True,
            names=batch * STEPS,
            mean=batch > 1,
            tolerance=1e-4 if dtype == "float32" else 1e-9,
        )
