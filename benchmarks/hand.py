"""ADBench's hand tracking, in plain scalar Python and over whole arrays.

A pose moves the bones of a hand, these its skin; residuals are the distances of points from it.

In: how many points. Out: a ``Hand``, with a model of the published sizes whose numbers are random,
not a real hand's. ``simple`` says which vertex each point belongs to; ``complicated`` has two more
parameters for each point, its place within a triangle.
"""

from dataclasses import dataclass

import numpy as np

FINGERS, PER_FINGER = 5, 4
BONES = 2 + FINGERS * PER_FINGER  # wrist, palm, and the fingers' bones, the last of which are fixed
POSE = 26  # rotation and translation of the hand, and four angles for each finger
VERTICES = 544
INFLUENCES = 4  # bones that move a vertex
PARENTS = [-1, 0, *[1 if b % PER_FINGER == 0 else 1 + b for b in range(BONES - 2)]]


@dataclass(frozen=True)
class Hand:
    """The bones at rest, the skin and its weights, the points and what each of them belongs to."""

    relatives: np.ndarray  # of each bone: 4 × 4, from its parent's frame
    inverses: np.ndarray  # of each bone: 4 × 4, into its frame
    skin: np.ndarray  # vertices at rest
    bones: np.ndarray  # of each vertex: which bones move it
    weights: np.ndarray  # likewise: how much each of them does
    points: np.ndarray
    vertices: list[int]  # the vertex that each point belongs to
    triangles: list[tuple[int, int, int]]  # and the triangle


def random_hand(points, seed=0):
    """A hand of random numbers, and points near its skin."""
    rng = np.random.default_rng(seed)
    relatives = np.tile(np.eye(4), (BONES, 1, 1))
    relatives[:, :3, 3] = rng.uniform(-1, 1, (BONES, 3))
    for bone in relatives:
        bone[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    absolutes = []
    for bone, parent in enumerate(PARENTS):
        whole = relatives[bone] if parent < 0 else absolutes[parent] @ relatives[bone]
        absolutes.append(whole)
    bones = np.stack([rng.permutation(BONES)[:INFLUENCES] for _ in range(VERTICES)])
    weights = rng.uniform(0.1, 1.0, (VERTICES, INFLUENCES))
    skin = rng.normal(size=(VERTICES, 3))
    vertices = rng.integers(0, VERTICES, points)
    triangles = [tuple(rng.permutation(VERTICES)[:3].tolist()) for _ in range(points)]
    return Hand(
        relatives,
        np.linalg.inv(np.stack(absolutes)),
        skin,
        bones,
        weights / weights.sum(axis=1, keepdims=True),
        skin[vertices] + rng.normal(0, 0.1, (points, 3)),
        vertices.tolist(),
        triangles,
    )


# --- number by number -----------------------------------------------------------------------------


def product(a, b):
    """Of two transforms, three rows of four numbers each."""
    return [
        [
            a[i][0] * b[0][j] + a[i][1] * b[1][j] + a[i][2] * b[2][j] + (a[i][3] if j == 3 else 0.0)
            for j in range(4)
        ]
        for i in range(3)
    ]


def euler(x, z, y, sin, cos):
    """The rotation about x, then y, then z."""
    cx, sx, cy, sy, cz, sz = cos(x), sin(x), cos(y), sin(y), cos(z), sin(z)
    return [
        [cy * cz, sx * sy * cz - cx * sz, cx * sy * cz + sx * sz, 0.0],
        [cy * sz, sx * sy * sz + cx * cz, cx * sy * sz - sx * cz, 0.0],
        [-sy, sx * cy, cx * cy, 0.0],
    ]


def rodrigues(axis, sin, cos, sqrt):
    """The rotation about an axis by its length."""
    angle = sqrt(axis[0] * axis[0] + axis[1] * axis[1] + axis[2] * axis[2])
    x, y, z = axis[0] / angle, axis[1] / angle, axis[2] / angle
    s, c = sin(angle), cos(angle)
    d = 1.0 - c
    return [
        [x * x + (1.0 - x * x) * c, x * y * d - z * s, x * z * d + y * s],
        [x * y * d + z * s, y * y + (1.0 - y * y) * c, y * z * d - x * s],
        [x * z * d - y * s, z * y * d + x * s, z * z + (1.0 - z * z) * c],
    ]


def angles(theta):
    """Of each bone: its rotations about x, z and y; None where it does not move."""
    found = [None] * BONES
    for finger in range(FINGERS):
        first, at = 2 + PER_FINGER * finger, 6 + 4 * finger
        found[first] = (theta[at], theta[at + 1], 0.0)
        found[first + 1] = (theta[at + 2], 0.0, 0.0)
        found[first + 2] = (theta[at + 3], 0.0, 0.0)
    return found


def transforms(hand, theta, sin, cos):
    """Of each bone: from the skin at rest to where it is in this pose."""
    absolutes, found = [], []
    for bone, turned in enumerate(angles(theta)):
        relative = hand.relatives[bone].tolist()[:3]
        if turned is not None:
            relative = product(relative, euler(*turned, sin, cos))
        parent = PARENTS[bone]
        absolutes.append(relative if parent < 0 else product(absolutes[parent], relative))
        found.append(product(absolutes[bone], hand.inverses[bone].tolist()))
    return found


def moved(hand, bones, vertex):
    """A vertex of the skin, moved by its bones; the hand is a left one, so x is mirrored."""
    x, y, z = hand.skin[vertex].tolist()
    place = [0.0, 0.0, 0.0]
    weights = hand.weights[vertex].tolist()
    for bone, weight in zip(hand.bones[vertex].tolist(), weights, strict=True):
        t = bones[bone]
        for i in range(3):
            place[i] = place[i] + weight * (t[i][0] * x + t[i][1] * y + t[i][2] * z + t[i][3])
    return [-place[0], place[1], place[2]]


def residuals(hand, theta, places, sin, cos, sqrt):
    """The points less where the skin is, once the whole hand is turned and moved."""
    rotation = rodrigues(theta[:3], sin, cos, sqrt)
    found = []
    for point, place in zip(hand.points.tolist(), places, strict=True):
        for i in range(3):
            r = rotation[i]
            there = r[0] * place[0] + r[1] * place[1] + r[2] * place[2] + theta[3 + i]
            found.append(point[i] - there)
    return found


def simple(hand, theta, sin, cos, sqrt):
    """Three residuals for each point, by the pose."""
    bones = transforms(hand, theta, sin, cos)
    places = [moved(hand, bones, vertex) for vertex in hand.vertices]
    return residuals(hand, theta, places, sin, cos, sqrt)


def complicated(hand, theta, us, sin, cos, sqrt):
    """The same where each point is somewhere in a triangle: by the pose, and two numbers each."""
    bones = transforms(hand, theta, sin, cos)
    places = []
    for corners, (u, v) in zip(hand.triangles, us, strict=True):
        a, b, c = [moved(hand, bones, vertex) for vertex in corners]
        places.append([u * a[i] + v * b[i] + (1.0 - u - v) * c[i] for i in range(3)])
    return residuals(hand, theta, places, sin, cos, sqrt)


# --- over whole arrays ----------------------------------------------------------------------------


def whole(np_, hand, theta, us=None):
    """The same residuals [point, 3], for JAX; with ``us`` those of the complicated objective."""
    turned = np_.stack([np_.stack([t[0], t[1], t[2]]) for t in _rows(np_, theta)])
    (cx, cz, cy), (sx, sz, sy) = np_.cos(turned).T, np_.sin(turned).T
    rotations = np_.stack(
        [
            np_.stack([cy * cz, sx * sy * cz - cx * sz, cx * sy * cz + sx * sz], -1),
            np_.stack([cy * sz, sx * sy * sz + cx * cz, cx * sy * sz - sx * cz], -1),
            np_.stack([-sy, sx * cy, cx * cy], -1),
        ],
        -2,
    )
    turning = np_.einsum("bij,bjk->bik", hand.relatives[:, :3, :3], rotations)
    absolutes = []
    for bone, parent in enumerate(PARENTS):
        r, t = turning[bone], hand.relatives[bone, :3, 3]
        if parent >= 0:
            before, shift = absolutes[parent]
            r, t = before @ r, before @ t + shift
        absolutes.append((r, t))
    r = np_.stack([x for x, _ in absolutes])
    t = np_.stack([x for _, x in absolutes])
    into = hand.inverses
    linear = np_.einsum("bij,bjk->bik", r, into[:, :3, :3])
    shift = np_.einsum("bij,bj->bi", r, into[:, :3, 3]) + t

    def place(vertices):
        bones, weights = hand.bones[vertices], hand.weights[vertices]
        each = np_.einsum("pbij,pj->pbi", linear[bones], hand.skin[vertices]) + shift[bones]
        found = np_.einsum("pb,pbi->pi", weights, each)
        return found * np.array([-1.0, 1.0, 1.0])

    if us is None:
        places = place(np.array(hand.vertices))
    else:
        a, b, c = [place(corner) for corner in np.array(hand.triangles).T]
        u, v = us[:, :1], us[:, 1:]
        places = u * a + v * b + (1.0 - u - v) * c
    turn = rodrigues([theta[0], theta[1], theta[2]], np_.sin, np_.cos, np_.sqrt)
    return hand.points - (places @ np_.stack([np_.stack(row) for row in turn]).T + theta[3:6])


def _rows(np_, theta):
    zero = theta[0] * 0.0
    for turned in angles(theta):
        yield [zero] * 3 if turned is None else [x + zero for x in turned]
