"""Where were the cameras? Bundle adjustment by least_squares with a sparse Jacobian.

Run: pip install 'chainrule[scipy]', then python bundle_adjustment.py. Cameras look at points, and
each sees some of them somewhere in its image. From these places alone the poses of the cameras and
the points are found again. Each residual depends on one camera and one point, so the Jacobian is
almost empty: its pattern is read from the compiled function.
"""

import numpy as np
from scipy.optimize import least_squares

import chainrule
from chainrule import Value, cos, sin, sqrt

CAMERAS, POINTS = 6, 40
POSE, POINT = 6, 3  # numbers: a rotation's axis times its angle, and a shift
#: which camera sees which point
PAIRS = [(c, p) for c in range(CAMERAS) for p in range(POINTS) if (c + p) % 3]
FIXED = 2 * POSE  # two cameras stay where they are, or the scene could turn and grow as a whole


def project(pose: list[Value], point: list[Value]) -> tuple[Value, Value]:
    """Where a camera sees a point: turned by Rodrigues' formula, shifted, and divided by depth."""
    a, b, c = pose[:3]
    x, y, z = point
    angle = sqrt(a * a + b * b + c * c)
    a, b, c = a / angle, b / angle, c / angle
    along = (a * x + b * y + c * z) * (1 - cos(angle))
    c0, s0 = cos(angle), sin(angle)
    u = x * c0 + (b * z - c * y) * s0 + a * along + pose[3]
    v = y * c0 + (c * x - a * z) * s0 + b * along + pose[4]
    w = z * c0 + (a * y - b * x) * s0 + c * along + pose[5]
    return u / w, v / w


def residuals(x: list[Value], first: np.ndarray, seen: np.ndarray) -> list[Value]:
    """Seen here less seen there; ``x`` has the other cameras' poses, then the points."""
    numbers = [*first, *x]
    found = []
    for (camera, point), (u, v) in zip(PAIRS, seen, strict=True):
        pose = numbers[camera * POSE : (camera + 1) * POSE]
        at = CAMERAS * POSE + point * POINT
        across, down = project(pose, numbers[at : at + POINT])
        found += [across - u, down - v]
    return found


def scene() -> np.ndarray:
    """Poses and points, in one row."""
    rng = np.random.default_rng(1)
    turns = rng.normal(0, 0.3, (CAMERAS, 3))
    shifts = np.column_stack([rng.normal(0, 0.5, (CAMERAS, 2)), rng.uniform(4, 6, CAMERAS)])
    return np.concatenate([np.hstack([turns, shifts]).ravel(), rng.uniform(-1, 1, POINTS * POINT)])


def photographs(row: np.ndarray) -> np.ndarray:
    """What the cameras see of a scene."""
    poses = row[: CAMERAS * POSE].reshape(CAMERAS, POSE).tolist()
    points = row[CAMERAS * POSE :].reshape(POINTS, POINT).tolist()
    return np.array([project(poses[c], points[p]) for c, p in PAIRS])


def adjust(start: np.ndarray, first: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, int, int]:
    """The numbers found, how many entries of the Jacobian are not zero, and how many it has."""
    fast = chainrule.compile(residuals)
    jacobian = chainrule.jacobian(fast, sparse=True)
    found = least_squares(
        fast, start, jac=jacobian, args=(first, seen), method="trf", x_scale="jac", xtol=1e-15
    )
    pattern = jacobian(start, first, seen)
    return found.x, pattern.nnz, pattern.shape[0] * pattern.shape[1]


def main() -> None:
    """Print how far off the guess was, and the answer is."""
    true = scene()
    first, rest = true[:FIXED], true[FIXED:]
    guess = rest + np.random.default_rng(2).normal(0, 0.1, rest.shape)
    found, entries, whole = adjust(guess, first, photographs(true))
    print(f"{len(PAIRS)} observations, {len(rest)} unknowns")
    print(f"{entries:,} of the Jacobian's {whole:,} entries are not zero")
    print(f"guess: off by up to {np.abs(guess - rest).max():.2f}")
    print(f"found: off by up to {np.abs(found - rest).max():.0e}")


if __name__ == "__main__":
    main()
