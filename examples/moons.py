"""Two half-moons, told apart by a small network: micrograd's demo, and a picture of its answer.

Run: python moons.py [STEPS]. Writes moons.svg: the points, and in colour what the network would say
anywhere else.
"""

import math
import random
import sys
from pathlib import Path

from chainrule import Value, no_grad
from chainrule.nn import MLP, hinge
from chainrule.optim import SGD


def make_moons(count: int, noise: float, rng: random.Random) -> tuple[list[list[float]], list[int]]:
    """Points on two interleaved half circles, and -1 or 1 for the half circle each is on."""
    points, labels = [], []
    for i in range(count):
        angle = math.pi * rng.random()
        x, y = math.cos(angle), math.sin(angle)
        if i % 2:
            x, y = 1 - x, 0.5 - y
        points.append([x + rng.gauss(0, noise), y + rng.gauss(0, noise)])
        labels.append(1 if i % 2 else -1)
    return points, labels


def loss_of(model: MLP, points: list[list[float]], labels: list[int]) -> tuple[Value, float]:
    """The loss (points on the wrong side, and large weights, cost something) and the accuracy."""
    scores = [model(point) for point in points]
    small_weights = 1e-4 * sum(p * p for p in model.parameters())
    right = sum((score > 0) == (label > 0) for score, label in zip(scores, labels, strict=True))
    return hinge(scores, labels) + small_weights, right / len(labels)


def train(model: MLP, points: list[list[float]], labels: list[int], steps: int) -> float:
    """Train; returns the last accuracy."""
    optimizer = SGD(model.parameters(), lr=lambda step: 1.0 - 0.9 * step / steps)
    accuracy = 0.0
    for step in range(steps):
        optimizer.zero_grad()
        loss, accuracy = loss_of(model, points, labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.data:.4f}, accuracy {accuracy:.0%}")
    return accuracy


def picture(model: MLP, points: list[list[float]], labels: list[int], cells: int = 48) -> str:
    """An SVG: the plane in the colour of the network's answer, the points in their own."""
    (left, right), (low, high) = (-1.6, 2.6), (-1.2, 1.8)
    wide, tall = (right - left) / cells, (high - low) / cells
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="630" height="450" '
        f'viewBox="{left} {-high} {right - left:g} {high - low:g}">'
    ]
    with no_grad():
        for i in range(cells):
            for j in range(cells):
                x, y = left + (i + 0.5) * wide, low + (j + 0.5) * tall
                colour = "#ffd8b5" if model([x, y]) > 0 else "#c6dcff"
                parts.append(
                    f'<rect x="{x - wide / 2:.4f}" y="{-y - tall / 2:.4f}" '
                    f'width="{wide * 1.02:.4f}" height="{tall * 1.02:.4f}" fill="{colour}"/>'
                )
    for (x, y), label in zip(points, labels, strict=True):
        colour = "#d1570a" if label > 0 else "#1f6feb"
        parts.append(
            f'<circle cx="{x:.4f}" cy="{-y:.4f}" r="0.04" fill="{colour}" stroke="white" '
            'stroke-width="0.01"/>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main(steps: int = 100, count: int = 100, cells: int = 48, hidden: int = 16) -> None:
    rng = random.Random(1337)
    random.seed(1337)  # the network's weights come from Python's own generator
    points, labels = make_moons(count, 0.1, rng)
    model = MLP(2, [hidden, hidden, 1])
    print(f"{len(model.parameters())} parameters, {count} points")
    train(model, points, labels, steps)
    Path("moons.svg").write_text(picture(model, points, labels, cells), "utf-8")
    print("wrote moons.svg")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
