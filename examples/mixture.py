"""Three clouds of points, found by a mixture of Gaussians: its likelihood, one point at a time.

Run: pip install 'chainrule[scipy]', then python mixture.py. The density of one point is a scalar
function; ``map_value_and_grad`` takes its mean over all of them, and its gradient, in machine code.
"""

import math

import numpy as np
from scipy.optimize import minimize

import chainrule
from chainrule import Value, exp, logsumexp

CLOUDS = (
    (0.5, (-2.0, 0.0), (0.7, 0.4)),
    (0.3, (1.5, 1.5), (0.5, 0.9)),
    (0.2, (2.0, -2.0), (0.6, 0.6)),
)
COUNT = len(CLOUDS)


def log_density(p: list[Value], point: list[float]) -> Value:
    """Of each component ``p`` has a weight, two means and two logarithms of spreads."""
    terms, weights = [], []
    for k in range(COUNT):
        weight, m0, m1, s0, s1 = p[5 * k : 5 * k + 5]
        x, y = (point[0] - m0) * exp(-s0), (point[1] - m1) * exp(-s1)
        terms.append(weight - s0 - s1 - 0.5 * (x * x + y * y))
        weights.append(weight)
    return logsumexp(terms) - logsumexp(weights) - math.log(2 * math.pi)


def sample(count: int) -> np.ndarray:
    """Points of the clouds."""
    rng = np.random.default_rng(0)
    chosen = rng.choice(COUNT, count, p=[weight for weight, _, _ in CLOUDS])
    means, spreads = np.array([m for _, m, _ in CLOUDS]), np.array([s for _, _, s in CLOUDS])
    return means[chosen] + spreads[chosen] * rng.normal(size=(count, 2))


def fit(points: np.ndarray) -> np.ndarray:
    """The parameters: a row of weight, means and spreads for each component, by its first mean."""
    fast = chainrule.compile(log_density)

    def unlikelihood(p: np.ndarray) -> tuple[float, np.ndarray]:
        value, slopes = fast.map_value_and_grad(p, points, reduce="mean")
        return -value, -slopes

    start = np.zeros((COUNT, 5))
    start[:, 1:3] = [(-1.0, 0.0), (1.0, 1.0), (1.0, -1.0)]
    p = minimize(unlikelihood, start.ravel(), jac=True, options={"gtol": 1e-8}).x.reshape(COUNT, 5)
    weights = np.exp(p[:, 0] - p[:, 0].max())
    found = np.column_stack([weights / weights.sum(), p[:, 1:3], np.exp(p[:, 3:])])
    return found[np.argsort(found[:, 1])]


def main() -> None:
    """Print what was found beside the truth."""
    print("            weight     means           spreads")
    for (weight, mean, spread), row in zip(CLOUDS, fit(sample(20_000)), strict=True):
        print("true      " + " ".join(f"{x:7.3f}" for x in (weight, *mean, *spread)))
        print("found     " + " ".join(f"{x:7.3f}" for x in row))


if __name__ == "__main__":
    main()
