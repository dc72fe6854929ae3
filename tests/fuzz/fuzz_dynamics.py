"""Subjects over time: Runge-Kutta steps, Kalman filters, alignments of two series."""

from __future__ import annotations

from fuzz_drawing import Draw, Subject

SLOPE = """
<<def slope(s, w, t):
    x, y = s
    return <<[w[0] * x - w[1] * x * y, 0.3 * x * y - y]||[y, -w[0] * sin(x) - w[1] * y + 0.1 * t]\
||(w[0] * x + w[1] * y, tanh(x - y) * t)||[y, (1 - x * x) * y * w[0] - x]>>
||def slope(s, w, t):
    out = []
    for k, v in enumerate(s):
        <<if v > 1.0:
            out.append(-w[0] * v)
        else:
            out.append(w[k] * v + 0.1)||out.append(w[k % 2] * v + s[k - 1] * t)>>
    return out
||def slope(s, w, t):
    return [<<w[0] * a - 0.5 * b||tanh(w[1] * a) + b>> for a, b in zip(s, <<reversed(s)||s[::-1]>>)]>>
"""  # noqa: E501
STEP = """
<<def rk_step(s, w, t, h):
    k1 = slope(s, w, t)
    k2 = slope([a + h / 2 * k for a, k in zip(s, k1)], w, t + h / 2)
    k3 = slope([a + h / 2 * k for a, k in zip(s, k2)], w, t + h / 2)
    k4 = slope([a + h * k for a, k in zip(s, k3)], w, t + h)
    return [a + h / 6 * (p + 2 * q + 2 * r + u) for a, p, q, r, u in zip(s, k1, k2, k3, k4)]
||def rk_step(s, w, t, h):
    ks = [slope(s, w, t)]
    for part in (0.5, 0.5, 1.0):
        ks.append(slope([a + part * h * k for a, k in zip(s, ks[-1])], w, t + part * h))
    return [s[i] + h * sum(c * k[i] for c, k in zip((1, 2, 2, 1), ks)) / 6 for i in range(len(s))]
||def rk_step(s, w, t, h):
    half = [a + 0.5 * h * k for a, k in zip(s, slope(s, w, t))]
    return [a + h * k for a, k in zip(s, slope(half, w, t + 0.5 * h))]>>
"""


def runge_kutta(draw: Draw) -> Subject:
    """Steps of an ordinary differential equation."""
    p = draw.parameters(w=(2,), start=(2,))
    body = draw.spelled(
        """
s, t, h = <<list({START})||[{START}[0], 0.5]||[0.5, {START}[1] * 0.5]>>, 0.0, <<0.1||0.05||1.0 / (steps + 1)>>
<<loss = 0.0
||loss = 0.1 * {W}[0]
>>for k in range(<<steps||steps + 2||4||2 * steps>>):
    s = rk_step(s, {W}, t, h)
    t <<+= h||= t + h||= k * h>>
    <<loss = loss + (s[0] - xs[k % len(xs)]) ** 2||if k % 2 == 0:
        loss = loss + s[1] * xs[k % len(xs)]||if s[0] > 1.5:
        s[0] = s[0] * 0.5
        loss = loss + 1.0||if abs(s[0]) > 2.0:
        break||>>
loss = loss + <<s[0] * s[1]||(s[0] - xs[-1]) ** 2||sum(s)>>
""",  # noqa: E501
        W=p.path("w"),
        START=p.path("start"),
    )
    steps = draw.integer("steps", 2, 2) if draw.fixed else draw.integer("steps", 0, 6)
    return Subject(draw.spelled(SLOPE + STEP), body, p, [draw.reals("xs", 1, 4), steps])


LISTS = """x, P = <<[{X0}[0], {X0}[1]]||[0.0, {X0}[1]]>>, [[1.0, 0.0], [0.0, 1.0]]
loss = 0.0
for <<k, z in enumerate(zs):||k in range(len(zs)):
    z = zs[k]>>
    <<||if <<z > 1.3||k % 3 == 2||z == 0.0>>:
        <<continue||loss = loss + 0.5
        continue>>>>
    x = [x[0] + 0.1 * x[1], x[1]]
    a, b, c, d = P[0][0], P[0][1], P[1][0], P[1][1]
    <<P = [[a + 0.1 * (b + c) + 0.01 * d + q, b + 0.1 * d], [c + 0.1 * d, d + q]]\
||F = [[1.0, 0.1], [0.0, 1.0]]
    FP = [[sum(F[i][k] * P[k][j] for k in range(2)) for j in range(2)] for i in range(2)]
    P = [[sum(FP[i][k] * F[j][k] for k in range(2)) + (q if i == j else 0.0) for j in range(2)] for i in range(2)]>>
    S = P[0][0] + r
    gain = [P[0][0] / S, P[1][0] / S]
    e = z - x[0]
    <<if abs(e) > 1.0:
        e = 1.0 if e > 0 else -1.0
    ||>>x = [x[0] + gain[0] * e, x[1] + gain[1] * e]
    P = [[(1 - gain[0]) * P[0][0], (1 - gain[0]) * P[0][1]],
         [P[1][0] - gain[1] * P[0][0], P[1][1] - gain[1] * P[0][1]]]
    loss = loss + <<0.5 * (log(S) + e * e / S)||e ** 2 / S + log(S)>>"""  # noqa: E501
ARRAYS = """x, P = np.array([{X0}[0], {X0}[1]]), np.eye(2) * 1.0
F, H, Q = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([1.0, 0.0]), np.eye(2)
loss = 0.0
for z in zs:
    x, P = F @ x, F @ P @ F.T + q * Q
    S = H @ P @ H + r
    gain = P @ H / S
    e = z - H @ x
    x = x + gain * e
    P = P - np.outer(gain, H @ P)
    loss = loss + <<0.5 * (log(S) + e * e / S)||e ** 2 / S>>"""


def kalman(draw: Draw) -> Subject:
    """The likelihood of measurements under a filter with two states."""
    p = draw.parameters(x0=(2,), noise=(2,))
    body = draw.spelled(
        """
<<q, r = exp({NOISE}[0]), exp({NOISE}[1])||q, r = {NOISE}[0] ** 2 + 0.1, {NOISE}[1] ** 2 + 0.1>>
<<{LISTS}||{LISTS}||{ARRAYS}>>
<<loss = loss / len(zs)||loss = loss + x[0] * 0.1||>>
""",
        X0=p.path("x0"),
        NOISE=p.path("noise"),
        LISTS=LISTS,
        ARRAYS=ARRAYS,
    )
    return Subject("", body, p, [draw.reals("zs", 1, 5)])


def alignment(draw: Draw) -> Subject:
    """Soft dynamic time warping, and the hard one, of a series of parameters and one of data."""
    n = draw.size(2, 4)
    p = draw.parameters(a=(n,), gamma=(1,))
    body = draw.spelled(
        """
<<gamma = {GAMMA}[0] ** 2 + 0.1||gamma = 0.5||gamma = exp({GAMMA}[0])>>
rows, columns = len({A}), len(bs)
R = [[<<1e3||50.0>>] * (columns + 1) for _ in range(rows + 1)]
R[0][0] = 0.0
for i in range(1, rows + 1):
    for j in range(1, columns + 1):
        <<||if abs(i - j) > <<1||2>>:
            continue>>
        cost = <<({A}[i - 1] - bs[j - 1]) ** 2||abs({A}[i - 1] - bs[j - 1])>>
        <<||if cost > 2.0:
            cost = 2.0>>
        before = <<[R[i - 1][j], R[i][j - 1], R[i - 1][j - 1]]||(R[i - 1][j - 1], R[i - 1][j], R[i][j - 1])>>
        R[i][j] = cost + {SOFTMIN}
loss = <<R[rows][columns]||R[-1][-1] * 0.5||R[-1][-1] + R[1][1]>>
""",  # noqa: E501
        A=p.path("a"),
        GAMMA=p.path("gamma"),
        SOFTMIN="""<<softmin(before, gamma)||softmin(before, gamma)||min(before)\
||minimum(minimum(before[0], before[1]), before[2])>>""",
    )
    module = draw.spelled(
        """
def softmin(vs, gamma):
    <<low = min(vs)
    return low - gamma * log(sum(exp((low - v) / gamma) for v in vs))\
||low = min(<<v.data if isinstance(v, Value) else v||v>> for v in vs)
    return low - gamma * log(sum(exp(-(v - low) / gamma) for v in vs))\
||return -gamma * chainrule.logsumexp([-v / gamma for v in vs])>>
"""
    )
    return Subject(module, body, p, [draw.reals("bs", 1, 4)])
