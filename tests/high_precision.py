"""Derivatives of random programs by mpmath: differences at 60 digits, no rule of calculus involved.

`gradient` and `hessian` are exact to far more digits than a float holds. The condition number says
how much of a float64 computation's accuracy a derivative can keep: every number an instruction
reads and every result is multiplied by 1 + tiny noise, as rounding does, and the change of the
derivative is measured relative to the noise. Reading is disturbed edge by edge, so cancellation
between two paths (`x / x`, a gradient that is a small difference of large terms) shows as well.
"""

from random import Random
from typing import Any

import mpmath
from number_systems import MPMATH
from programs import Program, run

DIGITS = 60
STEP = mpmath.mpf(10) ** -18
NOISE = mpmath.mpf(10) ** -22
NOISES = 4


def output(program: Program, leaves: list[Any], noise: str | None) -> Any:
    touch = None
    if noise is not None:
        rng = Random(
            noise
        )  # the same noise at every evaluation: the program stays a smooth function

        def touch(x: Any) -> Any:
            return mpmath.mpf(x) * (1 + NOISE * rng.uniform(-1, 1))

    return run(program, leaves, MPMATH, touch)[-1]


def moved(program: Program, *moves: tuple[int, Any]) -> list[Any]:
    leaves = [mpmath.mpf(x) for x in program.inputs]
    for place, step in moves:
        leaves[place] += step
    return leaves


def gradient(program: Program, noise: str | None = None) -> list[Any]:
    with mpmath.workdps(DIGITS):
        return [
            (
                output(program, moved(program, (i, STEP)), noise)
                - output(program, moved(program, (i, -STEP)), noise)
            )
            / (2 * STEP)
            for i in range(len(program.inputs))
        ]


def hessian(program: Program, noise: str | None = None) -> list[list[Any]]:
    """Row by row; the four-point difference serves the diagonal too (with twice the step)."""

    def entry(i: int, j: int) -> Any:
        corners = [
            sign_i
            * sign_j
            * output(program, moved(program, (i, sign_i * h), (j, sign_j * h)), noise)
            for sign_i in (1, -1)
            for sign_j in (1, -1)
        ]
        return sum(corners) / (4 * h * h)

    with mpmath.workdps(DIGITS):
        h = mpmath.mpf(10) ** -13
        n = len(program.inputs)
        upper = {(i, j): entry(i, j) for i in range(n) for j in range(i, n)}
        return [[upper[min(i, j), max(i, j)] for j in range(n)] for i in range(n)]


def amplification(exact: Any, disturbed: Any) -> float:
    """How many times larger than the noise the relative change of one derivative is."""
    change = abs(disturbed - exact)
    floor = mpmath.mpf(10) ** -30  # what the differences themselves cannot resolve
    if change <= floor and abs(exact) <= floor:
        return 0.0  # exactly zero, and stays zero
    return float(change / (abs(exact) * NOISE)) if abs(exact) > floor else float("inf")


def gradient_condition(program: Program, exact: list[Any]) -> list[float]:
    disturbed = [gradient(program, noise=f"noise {k}") for k in range(NOISES)]
    with mpmath.workdps(DIGITS):
        return [max(amplification(exact[i], d[i]) for d in disturbed) for i in range(len(exact))]


def relative_error(ours: float, exact: Any) -> float:
    with mpmath.workdps(DIGITS):
        if abs(exact) <= mpmath.mpf(10) ** -30:
            return abs(ours)
        return float(abs(mpmath.mpf(ours) - exact) / abs(exact))
