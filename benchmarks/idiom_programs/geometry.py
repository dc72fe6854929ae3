"""Cameras, robots, shapes and graphs: points that are found by index."""

import math

import numpy as np

from chainrule import acos, atan2, clip, cos, exp, hypot, log, maximum, sigmoid, sin, sqrt

from .registry import Field, drifting

FIELD = Field("geometry")

# --- bundle adjustment ----------------------------------------------------------------------------


@FIELD.idiom
def bundle(rng):
    cams = rng.normal(size=(4, 6)) * 0.1 + [0, 0, 0, 0, 0, 4.0]
    for p in drifting(rng, {"cams": cams, "points": rng.normal(size=(20, 3)) * 0.5}, 0.01):
        yield (
            p,
            rng.integers(4, size=40).tolist(),
            rng.integers(20, size=40).tolist(),
            rng.normal(size=(40, 2)) * 0.2,
        )


def rotate(r, x):
    """Rodrigues' formula, to first order in the sine."""
    theta = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2] + 1e-12)
    k = [ri / theta for ri in r]
    c, s = cos(theta), sin(theta)
    kx = [k[1] * x[2] - k[2] * x[1], k[2] * x[0] - k[0] * x[2], k[0] * x[1] - k[1] * x[0]]
    kd = k[0] * x[0] + k[1] * x[1] + k[2] * x[2]
    return [x[i] * c + kx[i] * s + k[i] * kd * (1 - c) for i in range(3)]


def project(cam, point):
    x = rotate(cam[:3], point)
    x = [x[i] + cam[3 + i] for i in range(3)]
    return x[0] / x[2], x[1] / x[2]


@bundle.spelling
def bundle_index_lists(p, c, k, seen):
    total = 0.0
    for i in range(len(c)):
        u, v = project(p["cams"][c[i]], p["points"][k[i]])
        total = total + (u - seen[i][0]) ** 2 + (v - seen[i][1]) ** 2
    return total


@bundle.spelling(adapt=lambda p, c, k, seen: (p, np.array(c), np.array(k), seen))
def bundle_index_arrays(p, c, k, seen):
    total = 0.0
    for i in range(len(c)):
        u, v = project(p["cams"][c[i]], p["points"][k[i]])
        total = total + (u - seen[i, 0]) ** 2 + (v - seen[i, 1]) ** 2
    return total


@bundle.spelling(adapt=lambda p, c, k, seen: (p, list(zip(c, k, seen.tolist()))))
def bundle_observations(p, observations):
    residuals = []
    for camera, point, (x, y) in observations:
        u, v = project(p["cams"][camera], p["points"][point])
        residuals += [u - x, v - y]
    return sum(r * r for r in residuals)


@bundle.spelling(adapt=lambda p, c, k, seen: (p, np.array(c), np.array(k), seen))
def bundle_fancy_index(p, c, k, seen):
    cams, points = p["cams"][c], p["points"][k]
    x = points + cams[:, 3:]
    uv = x[:, :2] / x[:, 2:]
    return ((uv - seen) ** 2).sum()


@bundle.spelling(
    adapt=lambda p, c, k, seen: (
        p,
        [{"cam": a, "pt": b, "uv": s} for a, b, s in zip(c, k, seen.tolist())],
    )
)
def bundle_dict_records(p, records):
    total = 0.0
    for record in records:
        u, v = project(p["cams"][record["cam"]], p["points"][record["pt"]])
        error = hypot(u - record["uv"][0], v - record["uv"][1])
        total = total + (error**2 / 2 if error < 0.3 else 0.3 * (error - 0.15))
    return total


# --- robots ---------------------------------------------------------------------------------------


@FIELD.idiom
def arm(rng):
    for angles in drifting(rng, [0.3, 0.5, -0.2, 0.1]):
        yield angles, [1.0, 0.8, 0.5, 0.3], rng.uniform(0.5, 1.5, size=2).tolist()


@arm.spelling
def arm_forward(angles, lengths, target):
    x, y, heading = 0.0, 0.0, 0.0
    for a, length in zip(angles, lengths):
        heading = heading + a
        x, y = x + length * cos(heading), y + length * sin(heading)
    return (x - target[0]) ** 2 + (y - target[1]) ** 2


@arm.spelling
def arm_matrices(angles, lengths, target):
    T = np.eye(3)
    for a, length in zip(angles, lengths):
        c, s = cos(a), sin(a)
        T = T @ np.array([[c, -s, length * c], [s, c, length * s], [0, 0, 1]])
    return (T[0, 2] - target[0]) ** 2 + (T[1, 2] - target[1]) ** 2


@arm.spelling
def arm_limits(angles, lengths, target):
    x = y = heading = 0.0
    penalty = 0.0
    for a, length in zip(angles, lengths):
        if a > 0.5:
            penalty = penalty + (a - 0.5) ** 2
        elif a < -0.5:
            penalty = penalty + (a + 0.5) ** 2
        heading = heading + a
        x, y = x + length * cos(heading), y + length * sin(heading)
    return hypot(x - target[0], y - target[1]) + 10 * penalty


@arm.spelling
def arm_quaternions(angles, lengths, target):
    q = [1.0, 0.0, 0.0, 0.0]
    for i, a in enumerate(angles):
        axis = [0.0, 0.0, 0.0]
        axis[i % 3] = 1.0
        half = a / 2
        w, v = cos(half), [sin(half) * c for c in axis]
        q = [
            q[0] * w - q[1] * v[0] - q[2] * v[1] - q[3] * v[2],
            q[0] * v[0] + q[1] * w + q[2] * v[2] - q[3] * v[1],
            q[0] * v[1] - q[1] * v[2] + q[2] * w + q[3] * v[0],
            q[0] * v[2] + q[1] * v[1] - q[2] * v[0] + q[3] * w,
        ]
    return 2 * acos(clip(q[0], -0.999, 0.999)) + target[0] * q[1]


# --- shapes and points ----------------------------------------------------------------------------


@FIELD.idiom
def cloud(rng):
    for p in drifting(rng, [0.1, 0.3, -0.2]):
        yield p, rng.normal(size=(8, 2)).tolist(), rng.normal(size=(8, 2)).tolist()


def moved(p, x, y):
    c, s = cos(p[0]), sin(p[0])
    return c * x - s * y + p[1], s * x + c * y + p[2]


@cloud.spelling
def cloud_nearest_min(p, source, target):
    total = 0.0
    for x, y in source:
        u, v = moved(p, x, y)
        total = total + min((u - a) ** 2 + (v - b) ** 2 for a, b in target)
    return total


@cloud.spelling
def cloud_nearest_index(p, source, target):
    total = 0.0
    for x, y in source:
        u, v = moved(p, x, y)
        d = [(u.data - a) ** 2 + (v.data - b) ** 2 for a, b in target]
        a, b = target[d.index(min(d))]
        total = total + (u - a) ** 2 + (v - b) ** 2
    return total


@cloud.spelling
def cloud_nearest_numpy(p, source, target):
    targets = np.array(target)
    total = 0.0
    for x, y in source:
        u, v = moved(p, x, y)
        k = np.argmin((targets[:, 0] - u.data) ** 2 + (targets[:, 1] - v.data) ** 2)
        total = total + (u - targets[k, 0]) ** 2 + (v - targets[k, 1]) ** 2
    return total


@cloud.spelling
def cloud_best_so_far(p, source, target):
    total = 0.0
    for x, y in source:
        u, v = moved(p, x, y)
        best = None
        for a, b in target:
            d = (u - a) ** 2 + (v - b) ** 2
            if best is None or d < best:
                best = d
        total = total + best
    return total


@cloud.spelling
def cloud_paired(p, source, target):
    return sum(
        (u - a) ** 2 + (v - b) ** 2
        for (u, v), (a, b) in zip([moved(p, x, y) for x, y in source], target)
    )


@cloud.spelling
def cloud_circle_fit(p, source, target):
    r = exp(p[0])
    return sum((hypot(x - p[1], y - p[2]) - r) ** 2 for x, y in source + target)


@FIELD.idiom
def polygon(rng):
    n = int(rng.integers(4, 9))
    angle = np.sort(rng.uniform(0, 2 * math.pi, size=8))
    for p in drifting(rng, np.column_stack([np.cos(angle), np.sin(angle)])):
        n = int(rng.integers(4, 9))
        yield p[:n].tolist(), float(rng.uniform(0.5, 2))


@polygon.spelling
def polygon_shoelace(points, area):
    total = 0.0
    for i in range(len(points)):
        x0, y0 = points[i]
        x1, y1 = points[(i + 1) % len(points)]
        total = total + x0 * y1 - x1 * y0
    return (abs(total) / 2 - area) ** 2


@polygon.spelling
def polygon_zip(points, area):
    following = points[1:] + points[:1]
    twice = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, following))
    perimeter = sum(hypot(b[0] - a[0], b[1] - a[1]) for a, b in zip(points, following))
    return (twice / 2 - area) ** 2 + 0.1 * perimeter


@polygon.spelling
def polygon_angles(points, area):
    total = 0.0
    for a, b, c in zip(points, points[1:], points[2:]):
        turn = atan2(c[1] - b[1], c[0] - b[0]) - atan2(b[1] - a[1], b[0] - a[0])
        total = total + turn**2
    return total * area


# --- graphs ---------------------------------------------------------------------------------------


@FIELD.idiom
def graph(rng):
    for p in drifting(rng, {"x": rng.normal(size=(8, 2)), "w": rng.normal(size=2)}):
        edges = rng.integers(8, size=(12, 2)).tolist()
        yield p, edges, rng.random(12).tolist()


@graph.spelling
def graph_springs(p, edges, lengths):
    energy = 0.0
    for (a, b), rest in zip(edges, lengths):
        dx, dy = p["x"][a][0] - p["x"][b][0], p["x"][a][1] - p["x"][b][1]
        energy = energy + (sqrt(dx * dx + dy * dy + 1e-6) - rest) ** 2
    return energy


@graph.spelling
def graph_skip_loops(p, edges, lengths):
    energy = 0.0
    for (a, b), rest in zip(edges, lengths):
        if a == b:
            continue
        d = hypot(p["x"][a][0] - p["x"][b][0], p["x"][a][1] - p["x"][b][1])
        energy += (d - rest) ** 2
    return energy


@graph.spelling
def graph_message_passing(p, edges, lengths):
    h = [sum(xi * wi for xi, wi in zip(row, p["w"])) for row in p["x"]]
    incoming = [0.0] * 8
    for (a, b), weight in zip(edges, lengths):
        incoming[b] = incoming[b] + weight * h[a]
    out = [sigmoid(own + m) for own, m in zip(h, incoming)]
    return sum(o * o for o in out)


@graph.spelling
def graph_adjacency_dict(p, edges, lengths):
    neighbours = {}
    for a, b in edges:
        neighbours.setdefault(a, []).append(b)
    total = 0.0
    for node, others in neighbours.items():
        mean = sum(p["x"][o][0] for o in others) / len(others)
        total = total + (p["x"][node][0] - mean) ** 2
    return total


@graph.spelling
def graph_adjacency_matrix(p, edges, lengths):
    A = np.zeros((8, 8))
    for (a, b), w in zip(edges, lengths):
        A[a, b] += w
    h = np.tanh(A @ (p["x"] @ p["w"]))
    return (h**2).sum()


@graph.spelling
def graph_scatter_add_numpy(p, edges, lengths):
    out = np.zeros(8, dtype=object)
    for (a, b), w in zip(edges, lengths):
        out[a] += w * p["x"][b, 0]
    return (out * out).sum()


@FIELD.idiom
def rendering(rng):
    for p in drifting(rng, [0.2, -0.1, 0.4, 1.0]):
        yield p, rng.random((5, 5))


@rendering.spelling
def rendering_soft_disc(p, image):
    error = 0.0
    for i, row in enumerate(image):
        for j, pixel in enumerate(row):
            d = sqrt((i / 5 - p[0]) ** 2 + (j / 5 - p[1]) ** 2 + 1e-9)
            error = error + (p[3] * sigmoid((p[2] - d) * 20) - pixel) ** 2
    return error


@rendering.spelling
def rendering_ray_sphere(p, image):
    error = 0.0
    for i in range(5):
        for j in range(5):
            dx, dy = (i - 2) / 5, (j - 2) / 5
            b = dx * p[0] + dy * p[1] + 2.0
            disc = b * b - (1 + dx * dx + dy * dy) * (p[0] ** 2 + p[1] ** 2 + 4 - p[2] ** 2 - 1)
            shade = p[3] * sqrt(disc) if disc > 0 else 0.0
            error = error + (shade - image[i][j]) ** 2
    return error


@rendering.spelling
def rendering_gaussian_splats(p, image):
    ys, xs = np.mgrid[0:5, 0:5] / 5
    d = (xs - p[0]) ** 2 + (ys - p[1]) ** 2
    model = p[3] * np.exp(-d / (0.1 + p[2] ** 2))
    return ((model - image) ** 2).sum()


@rendering.spelling
def rendering_volume(p, image):
    total = 0.0
    for row in image:
        transmittance, colour = 1.0, 0.0
        for k, density in enumerate(row):
            alpha = 1 - exp(-maximum(density * p[3] + p[0] * k, 0.0))
            colour = colour + transmittance * alpha * (p[1] + p[2] * k)
            transmittance = transmittance * (1 - alpha)
        total = total + (colour - 0.5) ** 2 - 0.01 * log(transmittance + 0.01)
    return total
