"""The likelihood of a Kalman filter, and the parameters that make it largest.

Run: pip install 'chainrule[scipy]', then python kalman.py. A point moves with a velocity that
wanders, and its position is measured with noise. The filter is a plain loop over 2 by 2 matrices;
compiled, its gradient drives scipy's minimize.
"""

import math

import numpy as np
from scipy.optimize import minimize

import chainrule
from chainrule import Value, exp, log

TRUE = [0.1, 0.5]  # how much the velocity wanders, and the noise


def measured(count: int, seed: int = 0) -> np.ndarray:
    """Positions with noise."""
    rng = np.random.default_rng(seed)
    velocity = np.cumsum(rng.normal(scale=TRUE[0], size=count))
    return np.cumsum(velocity) + rng.normal(scale=TRUE[1], size=count)


def unlikelihood(p: list[Value], positions: np.ndarray) -> Value:
    """Minus the logarithm of the likelihood; p has the logarithms of both deviations."""
    wandering, noise = exp(2 * p[0]), exp(2 * p[1])
    position, velocity = positions[0], 0.0
    a, b, c = noise, 0.0, 1.0  # the covariance [[a, b], [b, c]]
    total = 0.0
    for y in positions[1:]:
        position = position + velocity
        a, b, c = a + 2 * b + c, b + c, c + wandering
        surprise, spread = y - position, a + noise
        total = total + 0.5 * (log(spread) + surprise * surprise / spread)
        gain_position, gain_velocity = a / spread, b / spread
        position = position + gain_position * surprise
        velocity = velocity + gain_velocity * surprise
        a, b, c = a - gain_position * a, b - gain_position * b, c - gain_velocity * b
    return total + 0.5 * (len(positions) - 1) * math.log(2 * math.pi)


def fit(positions: np.ndarray) -> np.ndarray:
    """The deviations that make the measurements most likely."""
    fast = chainrule.compile(unlikelihood)
    found = minimize(fast.value_and_grad, [-1.0, 0.0], args=(positions,), jac=True)
    return np.exp(found.x)


def main() -> None:
    """Print the deviations found beside the true ones."""
    positions = measured(400)
    print("true ", np.array(TRUE))
    print("found", fit(positions).round(4))


if __name__ == "__main__":
    main()
