"""Jacobians, Hessians and their products: chainrule compiled, eager, and JAX.

    python benchmarks/derivatives.py                     # all of them, a minute
    python benchmarks/derivatives.py broyden rosenbrock  # these only
    python benchmarks/derivatives.py --quick             # fewer repeats

All contestants get numpy arrays and give numpy arrays, or in JAX's case arrays of its own; their
results are compared before anything is timed. What is not installed is skipped.
"""

import argparse
import time
from importlib.util import find_spec

import numpy as np
from harness import WHOLE, clock, figure, machine, ratio, repeated, table, take_turns, title

import chainrule
from chainrule import cos, sin, sqrt

US = 1e6
CALLS = 300  # of a turn of the smallest calls
TURN = 0.01  # seconds: shorter calls are repeated until a turn takes about as long
RANDOM = np.random.default_rng(0)
AHEAD = np.array([0.0, 0.0, 5.0])  # points lie in front of the cameras
NAMES = ("broyden", "rosenbrock", "hvp", "observation", "adjustment", "call")


# --- functions, one number at a time --------------------------------------------------------------


def broyden_tridiagonal(x):
    """The residuals of scipy's example for least_squares."""
    found = []
    for i in range(len(x)):
        y = (3 - 2 * x[i]) * x[i] + 1
        if i > 0:
            y = y - x[i - 1]
        if i < len(x) - 1:
            y = y - 2 * x[i + 1]
        found.append(y)
    return found


def rosenbrock(x):
    total = 0.0
    for i in range(len(x) - 1):
        total = total + 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    return total


def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a, b):
    return [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]


def rotated(axis, x):
    """Rodrigues' formula; near 0 its first terms."""
    squared = dot(axis, axis)
    if squared <= 1e-20:
        turned = cross(axis, x)
        return [a + b for a, b in zip(x, turned, strict=True)]
    angle = sqrt(squared)
    c, s = cos(angle), sin(angle)
    unit = [a / angle for a in axis]
    turned, along = cross(unit, x), dot(unit, x) * (1 - c)
    return [x[k] * c + turned[k] * s + unit[k] * along for k in range(3)]


def reprojection(camera, point, weight, feature):
    """Bundle adjustment: a camera sees a point at a feature of the image."""
    x, y, z = rotated(camera[:3], [point[k] - camera[3 + k] for k in range(3)])
    x, y = x / z, y / z
    squared = x * x + y * y
    radial = 1 + camera[9] * squared + camera[10] * squared * squared
    u = x * radial * camera[6] + camera[7]
    v = y * radial * camera[6] + camera[8]
    return [weight * (u - feature[0]), weight * (v - feature[1]), 1 - weight * weight]


def one_observation(p, feature):
    """Of all 15 parameters in a row."""
    return reprojection(p[:11], p[11:14], p[14], feature)


CAMERAS, POINTS, OBSERVATIONS = 8, 100, 500
SEEN_BY = RANDOM.integers(0, CAMERAS, OBSERVATIONS).tolist()
SEES = RANDOM.integers(0, POINTS, OBSERVATIONS).tolist()


def all_observations(params, features):
    cameras, points, weights = params
    found = []
    for k, feature in enumerate(features):
        found += reprojection(cameras[SEEN_BY[k]], points[SEES[k]], weights[k], feature)
    return found


# --- the same in JAX, over whole arrays -----------------------------------------------------------


def jax_contestant(name, arguments):
    """JAX's function, compiled, and with its arguments on the device."""
    from tensors import jax, jnp, observe

    def broyden(x):
        zero = jnp.zeros(1)
        before, after = jnp.concatenate([zero, x[:-1]]), jnp.concatenate([x[1:], zero])
        return (3 - 2 * x) * x + 1 - before - 2 * after

    def banana(x):
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def observe_all(params, features):
        cameras, points, weights = params
        rows = jnp.concatenate(
            [cameras[jnp.array(SEEN_BY)], points[jnp.array(SEES)], weights[:, None]], 1
        )
        return jax.vmap(jax.jacfwd(observe))(rows, features)

    def product(x, v):
        return jax.jvp(jax.grad(banana), (x,), (v,))[1]

    made = {
        "broyden": jax.jacrev(broyden),
        "rosenbrock": jax.hessian(banana),
        "hvp": product,
        "observation": jax.jacfwd(observe),
        "adjustment": observe_all,
    }[name]
    fast = jax.jit(made)
    placed = jax.device_put(arguments)
    return lambda: fast(*placed).block_until_ready()


# --- what is compared -----------------------------------------------------------------------------


def problems():
    x, v = RANDOM.uniform(-1, 1, 200), RANDOM.normal(size=200)
    camera, point = RANDOM.uniform(0.1, 1, 11), RANDOM.uniform(1, 2, 3) + AHEAD
    feature = RANDOM.uniform(0, 1, 2)
    cameras = RANDOM.uniform(0.1, 1, (CAMERAS, 11))
    points = RANDOM.uniform(1, 2, (POINTS, 3)) + AHEAD
    weights, features = RANDOM.uniform(0.5, 1, OBSERVATIONS), RANDOM.uniform(size=(OBSERVATIONS, 2))
    row = np.concatenate([camera, point, [0.9]])
    return {
        "broyden": ("Jacobian, 200 × 200", chainrule.jacobian, broyden_tridiagonal, (x,)),
        "rosenbrock": ("Hessian, 200 × 200", chainrule.hessian, rosenbrock, (x,)),
        "hvp": ("Hessian times a vector, 200", chainrule.hvp, rosenbrock, (x, v)),
        "observation": ("Jacobian, 3 × 15", chainrule.jacobian, one_observation, (row, feature)),
        "adjustment": (
            f"sparse Jacobian of {OBSERVATIONS} observations",
            lambda f: chainrule.jacobian(f, sparse=True),
            all_observations,
            ((cameras, points, weights), features),
        ),
    }


def blocks_of(matrix):
    """The numbers of a sparse Jacobian of the bundle adjustment, as JAX has them."""
    found = np.zeros((OBSERVATIONS, 3, 15))
    dense = matrix.toarray().reshape(OBSERVATIONS, 3, -1)
    for k in range(OBSERVATIONS):
        camera, point = 11 * SEEN_BY[k], 11 * CAMERAS + 3 * SEES[k]
        weight = 11 * CAMERAS + 3 * POINTS + k
        places = [*range(camera, camera + 11), *range(point, point + 3), weight]
        found[k] = dense[k][:, places]
    return found


def compare(names, repeats):
    rows = []
    for name, (what, transform, function, arguments) in problems().items():
        if names and name not in names:
            continue
        eager, fast = transform(function), transform(chainrule.compile(function, lift=True))
        calls = {
            "eager": lambda eager=eager, arguments=arguments: eager(*arguments),
            "compiled": lambda fast=fast, arguments=arguments: fast(*arguments),
        }
        begin = time.process_time()
        calls["compiled"]()
        first = time.process_time() - begin
        if find_spec("jax"):
            calls["JAX"] = jax_contestant(name, arguments)
        check(name, {contestant: call() for contestant, call in calls.items()})
        best = take_turns({key: turn(call) for key, call in calls.items()}, repeats)
        seconds = {key: found[WHOLE] for key, found in best.items()}
        theirs = seconds.get("JAX")
        rows.append(
            [
                f"{name}: {what}",
                figure(seconds["eager"], US, 0),
                figure(seconds["compiled"], US, 1),
                figure(theirs, US, 1),
                ratio(seconds["eager"], seconds["compiled"]),
                ratio(theirs, seconds["compiled"]),
                figure(first, 1.0, 2),
            ]
        )
    table(["µs", "eager", "compiled", "JAX", "eager ÷", "JAX ÷", "first call, s"], rows)


def compare_calls(repeats):
    """One small gradient, by each way to call it."""
    x = RANDOM.normal(size=10)
    fast, out = chainrule.compile(rosenbrock, lift=True), np.zeros(10)
    bound, numbers = fast.bound(x), x.tolist()
    wanted, slopes = chainrule.value_and_grad(rosenbrock)(x)
    calls = {
        "fast.value_and_grad(x)": lambda: fast.value_and_grad(x),
        "fast.value_and_grad(x, out=out)": lambda: fast.value_and_grad(x, out=out),
        "fast.value_and_grad(list)": lambda: fast.value_and_grad(numbers),
        "fast(x), the value alone": lambda: fast(x),
        "bound = fast.bound(x); bound()": bound,
    }
    gradients = {"bound = fast.bound(x); bound()": bound.gradient}
    if find_spec("casadi"):
        import casadi

        symbols = casadi.SX.sym("x", 10)
        y = rosenbrock([symbols[i] for i in range(10)])
        function = casadi.Function("f", [symbols], [y, casadi.gradient(y, symbols)])
        buffer, trigger = function.buffer()
        value, gradient = np.zeros(1), np.zeros(10)
        buffer.set_arg(0, memoryview(x))
        buffer.set_res(0, memoryview(value))
        buffer.set_res(1, memoryview(gradient))
        calls["casadi's virtual machine, buffers"] = trigger
        gradients["casadi's virtual machine, buffers"] = gradient
    for name, call in calls.items():
        for _ in range(300):  # small functions become machine code when it pays
            found = call()
        if isinstance(found, tuple):
            gradients[name], found = found[1], found[0]
        if found is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        if name in gradients:
            np.testing.assert_allclose(gradients[name], slopes, rtol=1e-10, err_msg=name)
    best = take_turns({name: repeated(call, CALLS) for name, call in calls.items()}, 20 * repeats)
    rows = [[name, figure(found[WHOLE], US, 2)] for name, found in best.items()]
    table(["Rosenbrock's function of 10 variables", "µs"], rows)


def check(name, found):
    """Raise AssertionError unless all results agree."""
    if name == "adjustment":
        found = {k: x if k == "JAX" else blocks_of(x) for k, x in found.items()}
    wanted = np.asarray(found["eager"])
    for other in found.values():
        np.testing.assert_allclose(other, wanted, rtol=1e-10, atol=1e-10 * np.abs(wanted).max())


def turn(call):
    """A turn of so many calls that it takes ``TURN`` seconds."""
    begin = clock()
    call()
    return repeated(call, max(1, int(TURN / (clock() - begin + 1e-9))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    repeats = 20 if options.quick else 100
    title(f"Derivatives, minimum of {repeats} turns, processor time; {machine()}")
    if options.names != ["call"]:
        compare(options.names, repeats)
    if not options.names or "call" in options.names:
        compare_calls(repeats)


if __name__ == "__main__":
    main()
