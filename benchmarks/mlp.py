"""One small network that every scalar engine can express, as a function of the engine.

micrograd's demonstration: a multilayer perceptron with relu and a max-margin loss, built from +, *
and relu alone. Each contestant is a function that computes the loss and returns its gradient.
"""

import math
import random
from importlib.util import find_spec
from itertools import pairwise

import chainrule

SIZES = [2, 16, 16, 1]
POINTS = 4
NATIVE = "chainrule native"


def _random_network():
    rng = random.Random(7)
    weights = [
        [[rng.uniform(-1, 1) for _ in range(fan_in + 1)] for _ in range(fan_out)]
        for fan_in, fan_out in pairwise(SIZES)
    ]
    points = [
        ((rng.uniform(-1, 1), rng.uniform(-1, 1)), rng.choice([-1.0, 1.0])) for _ in range(POINTS)
    ]
    return weights, points


WEIGHTS, DATA = _random_network()
FLAT = [w for layer in WEIGHTS for row in layer for w in row]
DESCRIPTION = f"{'-'.join(map(str, SIZES))} with relu, {len(FLAT)} parameters, {POINTS} points"


def network(flat):
    """The numbers ``flat`` in the shape of ``WEIGHTS``."""
    numbers = iter(flat)
    return [[[next(numbers) for _ in row] for row in layer] for layer in WEIGHTS]


def loss(layers, relu):
    """The mean of relu(1 - y * score) over the points."""
    total = 0
    for x, y in DATA:
        for depth, layer in enumerate(layers):
            sums = [sum((w * v for w, v in zip(row, x, strict=False)), row[-1]) for row in layer]
            x = [relu(s) for s in sums] if depth < len(layers) - 1 else sums
        total = total + relu(x[0] * -y + 1.0)
    return total * (1.0 / POINTS)


def value_class(cls):
    """Engines whose numbers have ``relu()``, ``backward()`` and ``grad``, as micrograd's."""
    params = [cls(w) for w in FLAT]
    layers = network(params)

    def gradient():
        loss(layers, cls.relu).backward()
        grads = [p.grad for p in params]
        for p in params:
            p.grad = 0.0
        return grads

    return gradient


def chainrule_tape():
    """Recorded once: the compiled function on the tape."""
    fast = chainrule.compile(lambda flat: loss(network(flat), chainrule.relu), lift=False)
    return lambda: fast.value_and_grad(FLAT)[1]


def torch_scalars():
    import torch

    torch.set_num_threads(1)
    params = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in FLAT]
    layers = network(params)

    def gradient():
        loss(layers, torch.relu).backward()
        grads = [p.grad.item() for p in params]
        for p in params:
            p.grad = None
        return grads

    return gradient


def xad_tape():
    from xad import math as xad_math
    from xad.adj_1st import Real, Tape

    tape = Tape()
    params = [Real(w) for w in FLAT]
    layers = network(params)

    def relu(x):
        return xad_math.max(x, 0.0)

    tape.activate()
    tape.registerInputs(params)

    def gradient():
        tape.newRecording()
        end = loss(layers, relu)
        tape.registerOutput(end)
        end.setDerivative(1.0)
        tape.computeAdjoints()
        return [p.getDerivative() for p in params]

    return gradient


def _casadi_function():
    import casadi

    params = [casadi.SX.sym("p") for _ in FLAT]
    end = loss(network(params), lambda x: casadi.fmax(x, 0.0))
    stacked = casadi.vertcat(*params)
    return casadi.Function("f", [stacked], [end, casadi.gradient(end, stacked)])


def casadi_anew():
    def gradient():
        return _casadi_function()(FLAT)[1].full().ravel().tolist()

    return gradient


def casadi_once():
    function = _casadi_function()

    def gradient():
        return function(FLAT)[1].full().ravel().tolist()

    return gradient


def _micrograd():
    from micrograd.engine import Value

    return value_class(Value)


PEERS = [
    ("micrograd", "micrograd", _micrograd),
    ("torch scalars", "torch", torch_scalars),
    ("xad", "xad", xad_tape),
    ("casadi SX, built anew", "casadi", casadi_anew),
    ("casadi SX, built once", "casadi", casadi_once),
]


def contestants(native, reference):
    """The contestants by name, all agreeing on the gradient, and the names of what is missing."""
    running = {
        "chainrule reference": value_class(reference.Value),
        NATIVE: value_class(native.Value),
        "chainrule tape, built once": chainrule_tape(),
    }
    missing = [module for _, module, _ in PEERS if find_spec(module) is None]
    running |= {name: make() for name, module, make in PEERS if module not in missing}
    expected = running["chainrule reference"]()
    for name, gradient in running.items():
        for a, b in zip(gradient(), expected, strict=True):
            if not math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-15):
                raise SystemExit(f"{name}: a gradient is {a!r}, expected {b!r}")
    return running, sorted(set(missing))
