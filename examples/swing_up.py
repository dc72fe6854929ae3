"""A pendulum that swings itself up: the best torques by the gradient through a simulation.

Run: pip install 'chainrule[scipy]', then python swing_up.py. The motor is too weak to lift the
pendulum at once, so it has to swing to and fro first. The simulation is a plain loop; compiled, its
gradient by all torques is a loop of machine code.
"""

import math

import numpy as np
from scipy.optimize import minimize

import chainrule
from chainrule import Value, cos, sin, tanh

STEPS, STEP = 80, 0.05
STRONGEST = 4.0  # gravity's own torque is up to 9.81


def simulate(efforts: list[Value]) -> list[tuple[Value, Value, Value]]:
    """Angle (0 hangs down), speed and torque after each step."""
    angle, speed = 0.0, 0.0
    states = []
    for effort in efforts:
        torque = STRONGEST * tanh(effort)
        speed = speed + STEP * (torque - 9.81 * sin(angle) - 0.1 * speed)
        angle = angle + STEP * speed
        states.append((angle, speed, torque))
    return states


def cost(efforts: list[Value]) -> Value:
    """Upright and at rest during the last second, without more effort than it takes."""
    states = simulate(efforts)
    total = 0.0
    for _, _, torque in states:
        total = total + 1e-3 * torque * torque
    for angle, speed, _ in states[-20:]:
        total = total + (1 + cos(angle)) + 0.05 * speed * speed
    return total


def swing_up() -> np.ndarray:
    """The efforts that bring it up."""
    fast = chainrule.compile(cost)
    start = 0.5 * np.sin(np.arange(STEPS) * STEP * 3.0)  # about the pendulum's own rhythm
    found = minimize(fast.value_and_grad, start, jac=True, options={"maxiter": 1000})
    return found.x


def main() -> None:
    """Print the way up."""
    states = simulate(list(swing_up()))
    for k in range(7, STEPS, 8):
        angle, _, torque = states[k]
        place = round(20 + 18 * math.sin(angle))
        height = f"{1 - math.cos(angle):4.2f}"
        print(
            f"{(k + 1) * STEP:4.1f} s  height {height} of 2  torque {torque:5.2f} |"
            + " " * place
            + "o"
        )
    print(f"at the end: {math.degrees(states[-1][0]) % 360:.2f} degrees, speed {states[-1][1]:.4f}")


if __name__ == "__main__":
    main()
