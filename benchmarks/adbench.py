"""ADBench's objectives in plain scalar Python: mixtures, bundle adjustment, an LSTM, hand tracking.

    python benchmarks/adbench.py                 # all of them, some minutes
    python benchmarks/adbench.py gmm lstm        # these: gmm ba lstm lstm-large hand hand-us
    python benchmarks/adbench.py --quick         # smaller problems, fewer repeats

The formulas are those of the published objectives (Srajer, Kukelova and Fitzgibbon, 2018); the data
are random, also the bones and the skin of the hand. Each contestant computes the value and the
derivative; results are compared before anything is timed. JAX, casadi, autograd and torch take part
if they are installed, each written the way its users write, over whole arrays where it has them.
"""

import argparse
import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hand
import numpy as np
from derivatives import reprojection
from harness import WHOLE, clock, figure, machine, ratio, repeated, table, take_turns, title

import chainrule
from chainrule import cos, exp, log, logsumexp, sigmoid, sin, sqrt, tanh

MS = 1e3
TURN = 0.02  # seconds: shorter calls are repeated until a turn takes about as long
WARM = 1.0  # seconds
GAMMA, EXTRA = 1.0, 0  # of the mixtures' Wishart prior


@dataclass
class Problem:
    """One row of the table: what it is, and how each contestant computes it."""

    what: str
    first: Any  # seconds until chainrule's first derivative
    functions: dict[str, Any] = field(default_factory=dict)  # the value alone
    derivatives: dict[str, Any] = field(default_factory=dict)  # with the value, or a Jacobian alone
    flat: Any = None  # a derivative as one row of numbers, to compare


# --- Gaussian mixtures ----------------------------------------------------------------------------


def log_gamma_distribution(a, dimensions):
    """The logarithm of the multivariate gamma function."""
    found = 0.25 * dimensions * (dimensions - 1) * math.log(math.pi)
    return found + sum(math.lgamma(a - 0.5 * j) for j in range(dimensions))


def mixture_term(params, x):
    """The log density of one point, without what is the same for all of them."""
    terms = []
    dimensions = len(x)
    for alpha, mean, factor in zip(
        params["alphas"], params["means"], params["factors"], strict=True
    ):
        # The inverse of the covariance's root, a lower triangle: first the logarithms of its
        # diagonal, then its columns.
        difference = [a - m for a, m in zip(x, mean, strict=True)]
        total, at = 0.0, dimensions
        moved = [exp(factor[i]) * difference[i] for i in range(dimensions)]
        for j in range(dimensions):
            for i in range(j + 1, dimensions):
                moved[i] = moved[i] + factor[at] * difference[j]
                at += 1
        for y in moved:
            total = total + y * y
        terms.append(alpha + sum(factor[i] for i in range(dimensions)) - 0.5 * total)
    return logsumexp(terms)


def mixture_prior(params, count, dimensions):
    """The other terms: constants, the weights' normalisation, and the Wishart prior."""
    degrees = dimensions + EXTRA + 1
    constant = degrees * dimensions * (math.log(GAMMA) - 0.5 * math.log(2))
    constant -= log_gamma_distribution(0.5 * degrees, dimensions)
    prior = 0.0
    for factor in params["factors"]:
        squares = 0.0
        for i in range(dimensions):
            squares = squares + exp(factor[i]) ** 2
        for i in range(dimensions, len(factor)):
            squares = squares + factor[i] * factor[i]
        prior = prior + 0.5 * GAMMA**2 * squares
        prior = prior - EXTRA * sum(factor[i] for i in range(dimensions))
    whole = -count * dimensions * 0.5 * math.log(2 * math.pi)
    whole = whole - count * logsumexp(params["alphas"])
    return whole + prior - len(params["factors"]) * constant


def gmm(quick):
    dimensions, components, count = (3, 5, 200) if quick else (10, 25, 1000)
    rng = np.random.default_rng(0)
    params = {
        "alphas": rng.normal(size=components),
        "means": rng.uniform(size=(components, dimensions)),
        "factors": rng.normal(0, 0.3, size=(components, dimensions * (dimensions + 1) // 2)),
    }
    points = rng.normal(size=(count, dimensions))
    term = chainrule.compile(mixture_term, lift=True)
    prior = chainrule.compile(mixture_prior, lift=True)

    def function():
        return term.map(params, points, reduce="sum") + prior(params, count, dimensions)

    def derivative():
        value, slopes = term.map_value_and_grad(params, points, reduce="sum")
        rest, others = prior.value_and_grad(params, count, dimensions)
        return value + rest, {name: slopes[name] + others[name] for name in slopes}

    begin = time.process_time()
    derivative()
    problem = Problem(
        f"gmm: {dimensions} dimensions, {components} components, {count:,} points",
        time.process_time() - begin,
        {"chainrule": function},
        {"chainrule": derivative},
        lambda found: np.concatenate(
            [[float(found[0])], *[np.ravel(found[1][name]) for name in params]]
        ),
    )
    rows, columns = np.tril_indices(dimensions, -1)
    order = np.lexsort((rows, columns))
    lower = rows[order], columns[order]

    def whole(np_, lse, params, points, where):
        """Over whole arrays, for JAX, autograd and torch."""
        alphas, means, factors = params["alphas"], params["means"], params["factors"]
        diagonal = np_.exp(factors[:, :dimensions])
        triangle = where(factors[:, dimensions:])
        difference = points[:, None, :] - means[None]
        moved = diagonal * difference + np_.einsum("kij,nkj->nki", triangle, difference)
        sums = factors[:, :dimensions].sum(1)
        terms = alphas + sums - 0.5 * (moved * moved).sum(2)
        squares = (diagonal**2).sum() + (factors[:, dimensions:] ** 2).sum()
        degrees = dimensions + EXTRA + 1
        constant = degrees * dimensions * (math.log(GAMMA) - 0.5 * math.log(2))
        constant -= log_gamma_distribution(0.5 * degrees, dimensions)
        found = -count * dimensions * 0.5 * math.log(2 * math.pi) - components * constant
        found = found + lse(terms, 1).sum() - count * lse(alphas, 0)
        return found + 0.5 * GAMMA**2 * squares - EXTRA * sums.sum()

    if find_spec("jax"):
        from tensors import jax, jnp

        def by_jax(params):
            def where(rest):
                empty = jnp.zeros((components, dimensions, dimensions))
                return empty.at[:, *lower].set(rest)

            return whole(jnp, lambda x, axis: jax.nn.logsumexp(x, axis), params, points, where)

        add_jax(problem, by_jax, params)
    spread = np.zeros((len(lower[0]), dimensions, dimensions))
    spread[np.arange(len(lower[0])), *lower] = 1.0
    if find_spec("autograd"):
        import autograd.numpy as anp
        from autograd.scipy.special import logsumexp as autograd_logsumexp

        def by_autograd(params):
            return whole(
                anp,
                lambda x, axis: autograd_logsumexp(x, axis),
                params,
                points,
                lambda rest: anp.einsum("kr,rij->kij", rest, spread),
            )

        add_autograd(problem, by_autograd, params)
    if find_spec("torch"):
        torch = with_torch()
        tensors = {k: torch.tensor(x, requires_grad=True) for k, x in params.items()}
        data, spread_there = torch.tensor(points), torch.tensor(spread)

        def by_torch():
            return whole(
                torch,
                torch.logsumexp,
                tensors,
                data,
                lambda rest: torch.einsum("kr,rij->kij", rest, spread_there),
            )

        add_torch(problem, by_torch, tensors)
    return problem


# --- bundle adjustment ----------------------------------------------------------------------------


def adjustment(quick):
    cameras, points, observations = (4, 40, 200) if quick else (21, 500, 2000)
    rng = np.random.default_rng(0)
    seen_by, sees = rng.integers(0, cameras, observations), rng.integers(0, points, observations)
    params = (
        rng.uniform(0.1, 1, (cameras, 11)),
        rng.uniform(1, 2, (points, 3)) + np.array([0.0, 0.0, 5.0]),
        rng.uniform(0.5, 1, observations),
    )
    features = rng.uniform(size=(observations, 2))
    camera_of, point_of = seen_by.tolist(), sees.tolist()

    def residuals(params, features):
        cameras, points, weights = params
        found = []
        for k, feature in enumerate(features):
            found += reprojection(cameras[camera_of[k]], points[point_of[k]], weights[k], feature)
        return found

    fast = chainrule.compile(residuals, lift=True)
    jacobian = chainrule.jacobian(fast, sparse=True)
    begin = time.process_time()
    jacobian(params, features)
    first = time.process_time() - begin

    def entries(matrix):
        """The numbers of each observation's 3 × 15, whatever the format."""
        if not hasattr(matrix, "tocsr"):
            return np.asarray(matrix).ravel()
        table, found = matrix.tocsr(), np.zeros((observations, 3, 15))
        weights = 11 * cameras + 3 * points
        for k in range(observations):
            camera, point = 11 * camera_of[k], 11 * cameras + 3 * point_of[k]
            places = [*range(camera, camera + 11), *range(point, point + 3), weights + k]
            found[k] = table[3 * k : 3 * k + 3][:, places].toarray()
        return found.ravel()

    problem = Problem(
        f"ba: {cameras} cameras, {points:,} points, {observations:,} observations",
        first,
        {"chainrule": lambda: fast(params, features)},
        {"chainrule": lambda: jacobian(params, features)},
        entries,
    )
    rows = np.concatenate([params[0][seen_by], params[1][sees], params[2][:, None]], 1)
    if find_spec("jax"):
        from tensors import jax, observe

        values = jax.jit(jax.vmap(observe))
        slopes = jax.jit(jax.vmap(jax.jacfwd(observe)))
        placed = jax.device_put((rows, features))
        problem.functions["JAX"] = lambda: values(*placed).block_until_ready()
        problem.derivatives["JAX"] = lambda: slopes(*placed).block_until_ready()
    if find_spec("casadi"):
        import casadi

        p, feature = casadi.SX.sym("p", 15), casadi.SX.sym("f", 2)
        axis, x = p[:3], p[11:14] - p[3:6]
        angle = casadi.norm_2(axis)
        unit, c, s = axis / angle, casadi.cos(angle), casadi.sin(angle)
        x = x * c + casadi.cross(unit, x) * s + unit * casadi.dot(unit, x) * (1 - c)
        flat = x[:2] / x[2]
        squared = casadi.dot(flat, flat)
        seen = flat * (1 + p[9] * squared + p[10] * squared**2) * p[6] + p[7:9]
        out = casadi.vertcat(p[14] * (seen - feature), 1 - p[14] ** 2)
        one = casadi.Function("residual", [p, feature], [out]).map(observations)
        by_p = casadi.Function("slopes", [p, feature], [casadi.densify(casadi.jacobian(out, p))])
        many = by_p.map(observations)
        given = casadi.DM(rows.T), casadi.DM(features.T)
        problem.functions["casadi"] = lambda: one(*given)

        def by_casadi():
            found = np.asarray(many(*given))  # 3 × (observations · 15), columns together
            return found.reshape(3, observations, 15).transpose(1, 0, 2)

        problem.derivatives["casadi"] = by_casadi
        if shutil.which("gcc"):
            add_generated(problem, many, rows, features)
    return problem


def add_generated(problem, many, rows, features):
    """The C code that casadi generates, compiled, with its arguments in buffers already."""
    import casadi

    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "many.c"), Path(folder, "many.so")
        with contextlib.chdir(folder):
            many.generate("many.c")
        flags = ("-O3", "-march=native", "-fPIC", "-shared")
        subprocess.run(["gcc", *flags, source, "-o", made], check=True)
        generated = casadi.external(many.name(), str(made))
    count, found = len(rows), np.zeros(generated.nnz_out(0))
    given = np.ascontiguousarray(rows), np.ascontiguousarray(features)
    buffer, trigger = generated.buffer()
    for k, array in enumerate(given):
        buffer.set_arg(k, memoryview(array.reshape(-1)))
    buffer.set_res(0, memoryview(found))

    def computed(kept=(given, buffer)):  # what casadi has no references to
        trigger()
        return found.reshape(count, 15, 3).transpose(0, 2, 1)

    problem.derivatives["casadi, C"] = computed


# --- LSTM -----------------------------------------------------------------------------------------


def lstm_loss(params, sequence):
    """A recurrent network with diagonal weights that predicts the next of a sequence of vectors."""
    main, extra, start = params["main"], params["extra"], params["state"]
    width = len(sequence[0])
    state = [[list(hidden), list(cell)] for hidden, cell in start]
    total = 0.0
    for t in range(len(sequence) - 1):
        x = [sequence[t][i] * extra[0][i] for i in range(width)]
        for layer, (weights, biases) in enumerate(main):
            hidden, cell = state[layer]
            for i in range(width):
                forget = sigmoid(x[i] * weights[0][i] + biases[0][i])
                ingate = sigmoid(hidden[i] * weights[1][i] + biases[1][i])
                outgate = sigmoid(x[i] * weights[2][i] + biases[2][i])
                change = tanh(hidden[i] * weights[3][i] + biases[3][i])
                cell[i] = cell[i] * forget + ingate * change
                hidden[i] = outgate * tanh(cell[i])
            x = list(hidden)
        predicted = [x[i] * extra[1][i] + extra[2][i] for i in range(width)]
        whole = log(sum(exp(y) for y in predicted) + 2.0)
        for i in range(width):
            total = total + sequence[t + 1][i] * (predicted[i] - whole)
    return -total / (width * (len(sequence) - 1))


def lstm(quick, layers=2, steps=256):
    steps, width = (20, 6) if quick else (steps, 14)
    rng = np.random.default_rng(0)
    params = {
        "main": rng.normal(0, 0.5, size=(layers, 2, 4, width)),
        "extra": rng.normal(0, 0.5, size=(3, width)),
        "state": rng.normal(0, 0.5, size=(layers, 2, width)),
    }
    sequence = rng.integers(0, 2, size=(steps, width)).astype(float)
    fast = chainrule.compile(lstm_loss, lift=True)
    begin = time.process_time()
    fast.value_and_grad(params, sequence)
    problem = Problem(
        f"lstm: {layers} layers, {steps} steps, width {width}",
        time.process_time() - begin,
        {"chainrule": lambda: fast(params, sequence)},
        {"chainrule": lambda: fast.value_and_grad(params, sequence)},
        lambda found: np.concatenate(
            [[float(found[0])], *[np.ravel(found[1][name]) for name in params]]
        ),
    )

    def cell(np_, sigmoid, weights, biases, hidden, cell, x):
        forget = sigmoid(x * weights[0] + biases[0])
        ingate = sigmoid(hidden * weights[1] + biases[1])
        outgate = sigmoid(x * weights[2] + biases[2])
        cell = cell * forget + ingate * np_.tanh(hidden * weights[3] + biases[3])
        return outgate * np_.tanh(cell), cell

    def unrolled(np_, sigmoid, params, sequence):
        main, extra = params["main"], params["extra"]
        state = [(params["state"][k][0], params["state"][k][1]) for k in range(layers)]
        total = 0.0
        for t in range(steps - 1):
            x = sequence[t] * extra[0]
            for k in range(layers):
                state[k] = cell(np_, sigmoid, main[k][0], main[k][1], *state[k], x)
                x = state[k][0]
            y = x * extra[1] + extra[2]
            total = total + (sequence[t + 1] * (y - np_.log(np_.exp(y).sum() + 2.0))).sum()
        return -total / (width * (steps - 1))

    if find_spec("jax"):
        from tensors import jax, jnp

        given = jnp.asarray(sequence)

        def by_jax(params):
            main, extra = params["main"], params["extra"]

            def step(state, pair):
                now, after = pair
                x, states = now * extra[0], []
                for k in range(layers):
                    states.append(cell(jnp, jax.nn.sigmoid, main[k][0], main[k][1], *state[k], x))
                    x = states[-1][0]
                y = x * extra[1] + extra[2]
                return states, (after * (y - jnp.log(jnp.exp(y).sum() + 2.0))).sum()

            start = [(params["state"][k][0], params["state"][k][1]) for k in range(layers)]
            totals = jax.lax.scan(step, start, (given[:-1], given[1:]))[1]
            return -totals.sum() / (width * (steps - 1))

        add_jax(problem, by_jax, params)
    if find_spec("autograd"):
        import autograd.numpy as anp

        def by_autograd(params):
            return unrolled(anp, lambda x: 1 / (1 + anp.exp(-x)), params, sequence)

        add_autograd(problem, by_autograd, params)
    if find_spec("torch"):
        torch = with_torch()
        tensors = {k: torch.tensor(x, requires_grad=True) for k, x in params.items()}
        data = torch.tensor(sequence)
        add_torch(problem, lambda: unrolled(torch, torch.sigmoid, tensors, data), tensors)
    return problem


# --- hand tracking --------------------------------------------------------------------------------


def hand_tracking(quick, with_us=False):
    """The dense Jacobian by the pose; ``with_us``: a sparse one, by places within triangles too."""
    model = hand.random_hand(100 if quick else 200 if with_us else 500)
    count = len(model.points)
    rng = np.random.default_rng(1)
    pose, us = rng.normal(0, 0.3, hand.POSE), rng.uniform(0.1, 0.4, (count, 2))

    def simple(theta):
        return hand.simple(model, theta, sin, cos, sqrt)

    def complicated(params):
        theta, us = params
        return hand.complicated(model, theta, us, sin, cos, sqrt)

    given = (pose, us) if with_us else pose
    fast = chainrule.compile(complicated if with_us else simple, lift=True)
    jacobian = chainrule.jacobian(fast, sparse=with_us)
    begin = time.process_time()
    jacobian(given)

    def entries(matrix):
        """3 numbers by 26, or 28, for each point, whatever the format."""
        if not hasattr(matrix, "tocsr"):
            return np.asarray(matrix).reshape(3 * count, -1).ravel()
        table = matrix.toarray()
        rows = np.arange(3 * count)
        by_us = [table[rows, hand.POSE + rows // 3 * 2 + k] for k in range(2)]
        return np.column_stack([table[:, : hand.POSE], *by_us]).ravel()

    problem = Problem(
        f"hand: {hand.BONES} bones, {count} points" + (" in triangles" if with_us else ""),
        time.process_time() - begin,
        {"chainrule": lambda: fast(given)},
        {"chainrule": lambda: jacobian(given)},
        entries,
    )
    if find_spec("jax"):
        from tensors import jax, jnp

        def by_jax(theta, us=None):
            return hand.whole(jnp, model, theta, us).ravel()

        def slopes(theta, us):
            along = [jnp.zeros((count, 2)).at[:, k].set(1.0) for k in range(2)]
            by_us = [jax.jvp(lambda x: by_jax(theta, x), (us,), (step,))[1] for step in along]
            return jnp.column_stack([jax.jacfwd(by_jax)(theta, us), *by_us])

        placed = jax.device_put((pose, us) if with_us else (pose,))
        alone, matrix = jax.jit(by_jax), jax.jit(slopes if with_us else jax.jacfwd(by_jax))
        problem.functions["JAX"] = lambda: alone(*placed).block_until_ready()
        problem.derivatives["JAX"] = lambda: matrix(*placed).block_until_ready()
    if find_spec("casadi"):
        import casadi

        theta, places = casadi.SX.sym("theta", hand.POSE), casadi.SX.sym("us", 2, count)
        pairs = [(places[0, k], places[1, k]) for k in range(count)]
        functions = casadi.sin, casadi.cos, casadi.sqrt
        by_casadi = (
            hand.complicated(model, casadi.vertsplit(theta), pairs, *functions)
            if with_us
            else hand.simple(model, casadi.vertsplit(theta), *functions)
        )
        out = casadi.vertcat(*by_casadi)
        by_pose = casadi.densify(casadi.jacobian(out, theta))
        if with_us:
            ones = [casadi.DM(np.arange(2)[:, None] == np.full((2, count), k)) for k in range(2)]
            by_us = [casadi.jtimes(out, casadi.vec(places), casadi.vec(one)) for one in ones]
            by_pose = casadi.horzcat(by_pose, *by_us)
        values = casadi.Function("residuals", [theta, places], [out])
        table = casadi.Function("slopes", [theta, places], [by_pose])
        there = casadi.DM(pose), casadi.DM(us.T)
        problem.functions["casadi"] = lambda: values(*there)
        problem.derivatives["casadi"] = lambda: np.asarray(table(*there))
    return problem


# --- peers ----------------------------------------------------------------------------------------


def add_jax(problem, function, params):
    from tensors import jax

    alone, both = jax.jit(function), jax.jit(jax.value_and_grad(function))
    placed = jax.device_put(params)
    problem.functions["JAX"] = lambda: alone(placed).block_until_ready()
    problem.derivatives["JAX"] = lambda: jax.block_until_ready(both(placed))


def add_autograd(problem, function, params):
    import autograd

    both = autograd.value_and_grad(function)
    problem.functions["autograd"] = lambda: function(params)
    problem.derivatives["autograd"] = lambda: both(params)


def with_torch():
    import torch

    torch.set_num_threads(1)
    return torch


def add_torch(problem, function, tensors):
    torch = with_torch()

    def alone():
        with torch.no_grad():
            return function()

    def both():
        for x in tensors.values():
            x.grad = None
        loss = function()
        loss.backward()
        return loss.item(), {name: x.grad.numpy() for name, x in tensors.items()}

    problem.functions["torch"] = alone
    problem.derivatives["torch"] = both


# --- what is compared -----------------------------------------------------------------------------

PROBLEMS = {
    "gmm": gmm,
    "ba": adjustment,
    "lstm": lstm,
    "lstm-large": lambda quick: lstm(quick, layers=4, steps=1024),
    "hand": hand_tracking,
    "hand-us": lambda quick: hand_tracking(quick, with_us=True),
}


def compare(problem, repeats):
    """A table of one problem: each contestant's time, and what chainrule's is beside it."""
    found = {name: problem.flat(call()) for name, call in problem.derivatives.items()}
    wanted = found["chainrule"]
    for name, row in found.items():
        np.testing.assert_allclose(
            row, wanted, rtol=1e-8, atol=1e-10 * np.abs(wanted).max(), err_msg=name
        )
    calls = {("f", name): call for name, call in problem.functions.items()}
    calls |= {("d", name): call for name, call in problem.derivatives.items()}
    for call in calls.values():  # compiled functions become machine code when it pays
        begin = clock()
        while clock() - begin < WARM:
            call()
    best = take_turns({key: turn(call) for key, call in calls.items()}, repeats)
    seconds = {key: phases[WHOLE] for key, phases in best.items()}
    ours = seconds["d", "chainrule"]
    title(f"{problem.what}; chainrule's first derivative after {problem.first:.2f} s")
    table(
        ["ms", "function", "derivative", "÷ function", "÷ chainrule's"],
        [
            [
                name,
                figure(seconds.get(("f", name)), MS, 3),
                figure(seconds["d", name], MS, 3),
                ratio(seconds["d", name], seconds.get(("f", name))),
                ratio(seconds["d", name], ours),
            ]
            for name in problem.derivatives
        ],
    )


def turn(call):
    """A turn of so many calls that it takes ``TURN`` seconds."""
    begin = clock()
    call()
    return repeated(call, max(1, int(TURN / (clock() - begin + 1e-9))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*PROBLEMS, []], help=", ".join(PROBLEMS))
    parser.add_argument("--quick", action="store_true", help="smaller problems, fewer repeats")
    options = parser.parse_args()
    repeats = 10 if options.quick else 40
    os.environ["CHAINRULE_THREADS"] = "1"
    print(f"One thread each, minimum of {repeats} turns, processor time; {machine()}")
    for name in options.names or PROBLEMS:
        compare(PROBLEMS[name](options.quick), repeats)


if __name__ == "__main__":
    main()
