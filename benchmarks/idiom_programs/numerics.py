"""Linear algebra, transforms and root finding, written out in loops."""

import cmath
import math
from functools import lru_cache, reduce

import numpy as np

from chainrule import cos, dot, exp, log, sin, sqrt, tanh

from .registry import Field, as_lists, drifting

FIELD = Field("numerics")


def symmetric(rng, n):
    a = rng.normal(size=(n, n)) * 0.3
    return a @ a.T + np.eye(n) * 2


# --- solving linear equations ---------------------------------------------------------------------


@FIELD.idiom
def gauss(rng):
    n = 6
    for A in drifting(rng, rng.normal(size=(n, n)) + 4 * np.eye(n)):
        yield A, rng.normal(size=n)


@gauss.spelling(adapt=as_lists)
def gauss_elimination(A, b):
    n = len(b)
    M = [row[:] + [rhs] for row, rhs in zip(A, b)]
    for i in range(n):
        for j in range(i + 1, n):
            factor = M[j][i] / M[i][i]
            for k in range(i, n + 1):
                M[j][k] = M[j][k] - factor * M[i][k]
    x = [0] * n
    for i in range(n - 1, -1, -1):
        s = M[i][n]
        for j in range(i + 1, n):
            s = s - M[i][j] * x[j]
        x[i] = s / M[i][i]
    return sum(v * v for v in x)


@gauss.spelling(adapt=lambda A, b: as_lists(A - 4 * np.eye(6), b))
def gauss_pivoting(A, b):
    n = len(b)
    M = [list(row) + [rhs] for row, rhs in zip(A, b)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(M[r][i]))
        M[i], M[pivot] = M[pivot], M[i]
        for j in range(i + 1, n):
            f = M[j][i] / M[i][i]
            M[j] = [a - f * c for a, c in zip(M[j], M[i])]
    x = [None] * n
    for i in reversed(range(n)):
        x[i] = (M[i][n] - sum(M[i][j] * x[j] for j in range(i + 1, n))) / M[i][i]
    return sum(x)


@gauss.spelling
def gauss_jordan_numpy(A, b):
    n = len(b)
    M = np.concatenate([A, b.reshape(-1, 1)], axis=1)
    for i in range(n):
        M[i] = M[i] / M[i, i]
        for j in range(n):
            if j != i:
                M[j] = M[j] - M[j, i] * M[i]
    return (M[:, n] ** 2).sum()


@gauss.spelling
def gauss_seidel(A, b):
    n = len(b)
    x = [0.0] * n
    for _ in range(8):
        for i in range(n):
            s = sum(A[i][j] * x[j] for j in range(n) if j != i)
            x[i] = (b[i] - s) / A[i][i]
    return dot(x, x)


@gauss.spelling(adapt=as_lists)
def gauss_determinant_by_minors(A, b):
    def det(m):
        if len(m) == 1:
            return m[0][0]
        total = 0
        for c in range(len(m)):
            minor = [row[:c] + row[c + 1 :] for row in m[1:]]
            total = total + (-1) ** c * m[0][c] * det(minor)
        return total

    return det([row[:5] for row in A[:5]])


# --- with pivots: rows are exchanged, in another order in each call -------------------------------


@FIELD.idiom
def pivots(rng):
    n = 6
    for A in drifting(rng, rng.normal(size=(n, n))):
        yield A, rng.normal(size=n), rng.normal(size=(n, n))


@pivots.spelling(adapt=as_lists)
def pivots_solve(A, b, noise):
    n = len(b)
    A = [[x + e for x, e in zip(*rows)] for rows in zip(A, noise)]
    b = b[:]
    for k in range(n - 1):
        p = k
        for i in range(k + 1, n):
            if abs(A[i][k]) > abs(A[p][k]):
                p = i
        if p != k:
            A[k], A[p] = A[p], A[k]
            b[k], b[p] = b[p], b[k]
        if A[k][k] == 0:
            raise ValueError("the matrix is singular")
        for i in range(k + 1, n):
            factor = A[i][k] / A[k][k]
            for j in range(k, n):
                A[i][j] -= factor * A[k][j]
            b[i] -= factor * b[k]
    x = [0.0] * n
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s -= A[i][j] * x[j]
        x[i] = s / A[i][i]
    return sum(v * v for v in x)


@pivots.spelling(adapt=as_lists)
def pivots_determinant(A, b, noise):
    n, sign = len(A), 1
    M = [[x + e for x, e in zip(*rows)] for rows in zip(A, noise)]
    det = 1.0
    for col in range(n):
        best, row = abs(M[col][col]), col
        for r in range(col + 1, n):
            if abs(M[r][col]) > best:
                best, row = abs(M[r][col]), r
        if best < 1e-12:
            return 0.0 * A[0][0]
        if row != col:
            temp = M[col]
            M[col] = M[row]
            M[row] = temp
            sign = -sign
        det = det * M[col][col]
        for r in range(col + 1, n):
            f = M[r][col] / M[col][col]
            for c in range(col, n):
                M[r][c] = M[r][c] - f * M[col][c]
    return sign * det


@pivots.spelling(adapt=as_lists)
def pivots_lu(A, b, noise):
    n = len(A)
    LU = [[x + e for x, e in zip(*rows)] for rows in zip(A, noise)]
    perm = list(range(n))
    for k in range(n):
        p = max(range(k, n), key=lambda i: abs(LU[i][k]))
        LU[k], LU[p] = LU[p], LU[k]
        perm[k], perm[p] = perm[p], perm[k]
        for i in range(k + 1, n):
            LU[i][k] = LU[i][k] / LU[k][k]
            for j in range(k + 1, n):
                LU[i][j] = LU[i][j] - LU[i][k] * LU[k][j]
    y = []
    for i in range(n):
        y.append(b[perm[i]] - sum(LU[i][j] * y[j] for j in range(i)))
    for i in reversed(range(n)):
        y[i] = (y[i] - sum(LU[i][j] * y[j] for j in range(i + 1, n))) / LU[i][i]
    return sum(v * v for v in y)


@pivots.spelling(adapt=as_lists)
def pivots_inverse(A, b, noise):
    n = len(A)
    M = [[x + e for x, e in zip(*rows)] for rows in zip(A, noise)]
    M = [row + [1.0 if i == j else 0.0 for j in range(n)] for i, row in enumerate(M)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(M[r][i]))
        M[i], M[pivot] = M[pivot], M[i]
        d = M[i][i]
        M[i] = [v / d for v in M[i]]
        for r in range(n):
            if r != i:
                f = M[r][i]
                M[r] = [v - f * w for v, w in zip(M[r], M[i])]
    return sum(sum(v * y for v, y in zip(row[n:], b)) ** 2 for row in M)


@pivots.spelling
def pivots_numpy(A, b, noise):
    n = len(b)
    M = np.concatenate([A + noise, b.reshape(-1, 1)], axis=1)
    for k in range(n):
        p = k + np.argmax(np.abs(M[k:, k]))
        M[[k, p]] = M[[p, k]]
        for i in range(k + 1, n):
            M[i, k:] = M[i, k:] - M[i, k] / M[k, k] * M[k, k:]
    x = np.zeros(n, dtype=object)
    for i in range(n - 1, -1, -1):
        x[i] = (M[i, n] - np.dot(M[i, i + 1 : n], x[i + 1 :])) / M[i, i]
    return (x**2).sum()


@FIELD.idiom
def cholesky(rng):
    n = 8
    x = np.sort(rng.uniform(0, 3, size=n))
    for params in drifting(rng, [0.1, 0.2, -1.5]):
        yield params, x, np.sin(x) + 0.1 * rng.normal(size=n)


@cholesky.spelling
def cholesky_gaussian_process(log_params, x, y):
    amplitude, length, noise = (exp(p) for p in log_params)
    n = len(x)
    K = [
        [amplitude * exp(-((x[i] - x[j]) ** 2) / (2 * length**2)) for j in range(n)]
        for i in range(n)
    ]
    for i in range(n):
        K[i][i] = K[i][i] + noise
    L = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            s = sum(L[i][k] * L[j][k] for k in range(j))
            L[i][j] = sqrt(K[i][i] - s) if i == j else (K[i][j] - s) / L[j][j]
    z = []
    for i in range(n):
        z.append((y[i] - sum(L[i][k] * z[k] for k in range(i))) / L[i][i])
    return 0.5 * sum(v * v for v in z) + sum(log(L[i][i]) for i in range(n))


@cholesky.spelling
def cholesky_numpy(log_params, x, y):
    a, length, noise = np.exp(np.array(log_params))
    n = len(x)
    K = a * np.exp(-((x[:, None] - x[None, :]) ** 2) / length) + noise * np.eye(n)
    L = np.zeros((n, n), dtype=object)
    for j in range(n):
        L[j, j] = sqrt(K[j, j] - (L[j, :j] ** 2).sum())
        for i in range(j + 1, n):
            L[i, j] = (K[i, j] - (L[i, :j] * L[j, :j]).sum()) / L[j, j]
    z = np.zeros(n, dtype=object)
    for i in range(n):
        z[i] = (y[i] - L[i, :i] @ z[:i]) / L[i, i]
    return (z**2).sum() / 2 + sum(log(L[i, i]) for i in range(n))


@cholesky.spelling
def cholesky_packed_triangle(p, x, y):
    """A covariance of three variables from six numbers, row by row, with positive diagonal."""
    numbers = [p[0], p[1], p[2], p[0] * p[1], p[1] * p[2], p[2] * p[0]]
    L, k = [], 0
    for i in range(3):
        row = []
        for j in range(i + 1):
            row.append(exp(numbers[k]) if i == j else numbers[k])
            k += 1
        L.append(row)
    total = 0.0
    for a, b, c in zip(x, y, x[1:]):
        v = []
        for i, target in enumerate((a, b, c)):
            v.append((target - sum(L[i][j] * v[j] for j in range(i))) / L[i][i])
        total = total + 0.5 * sum(e**2 for e in v) + sum(log(L[i][i]) for i in range(3))
    return total


@FIELD.idiom
def tridiagonal(rng):
    n = 20
    for d in drifting(rng, 4 + rng.random(n)):
        yield d, rng.random(n), rng.random(n), rng.normal(size=n)


@tridiagonal.spelling
def tridiagonal_thomas(d, lower, upper, rhs):
    n = len(d)
    c, r = [upper[0] / d[0]], [rhs[0] / d[0]]
    for i in range(1, n):
        m = d[i] - lower[i] * c[i - 1]
        c.append(upper[i] / m)
        r.append((rhs[i] - lower[i] * r[i - 1]) / m)
    x = r[-1]
    total = x * x
    for i in range(n - 2, -1, -1):
        x = r[i] - c[i] * x
        total = total + x * x
    return total


@tridiagonal.spelling
def tridiagonal_in_place(d, lower, upper, rhs):
    d, rhs = list(d), list(rhs)
    n = len(d)
    for i in range(1, n):
        w = lower[i] / d[i - 1]
        d[i] -= w * upper[i - 1]
        rhs[i] -= w * rhs[i - 1]
    x = [0.0] * n
    x[-1] = rhs[-1] / d[-1]
    for i in reversed(range(n - 1)):
        x[i] = (rhs[i] - upper[i] * x[i + 1]) / d[i]
    return sum(xi**2 for xi in x)


# --- eigenvalues, exponentials, orthogonal bases --------------------------------------------------


@FIELD.idiom
def eigenvalue(rng):
    for A in drifting(rng, symmetric(rng, 5)):
        yield (A,)


@eigenvalue.spelling
def eigenvalue_power_iteration(A):
    v = [1.0] * 5
    for _ in range(20):
        w = [dot(row, v) for row in A]
        norm = sqrt(sum(x * x for x in w))
        v = [x / norm for x in w]
    return sum(v[i] * dot(A[i], v) for i in range(5))


@eigenvalue.spelling
def eigenvalue_to_a_tolerance(A):
    v, old = np.ones(5), 0.0
    for _ in range(100):
        w = A @ v
        new = sqrt((w * w).sum())
        v = w / new
        if abs(new - old) < 1e-6:
            break
        old = new
    return new


@eigenvalue.spelling
def eigenvalue_gram_schmidt(A):
    basis = []
    for v in A:
        w = list(v)
        for b in basis:
            proj = sum(x * y for x, y in zip(w, b))
            w = [x - proj * y for x, y in zip(w, b)]
        norm = sqrt(sum(x * x for x in w))
        basis.append([x / norm for x in w])
    return sum(basis[i][i] for i in range(5)) + norm


def matmul(a, b):
    return [[sum(x * y for x, y in zip(r, c)) for c in zip(*b)] for r in a]


@eigenvalue.spelling(adapt=lambda A: ((A * 0.2).tolist(),))
def eigenvalue_matrix_exponential(A):
    n = len(A)
    total = [[float(i == j) for j in range(n)] for i in range(n)]
    term = total
    for k in range(1, 8):
        term = [[x / k for x in row] for row in matmul(term, A)]
        total = [[x + y for x, y in zip(r, s)] for r, s in zip(total, term)]
    return sum(total[i][i] for i in range(n))


@eigenvalue.spelling(adapt=as_lists)
def eigenvalue_product_by_reduce(A):
    return sum(map(sum, reduce(matmul, [A, A, A])))


# --- transforms -----------------------------------------------------------------------------------


@FIELD.idiom
def fft(rng):
    for x in drifting(rng, rng.normal(size=16)):
        yield x.tolist(), rng.random(16).tolist()


def fft_pairs(re, im):
    n = len(re)
    if n == 1:
        return re, im
    er, ei = fft_pairs(re[0::2], im[0::2])
    odr, odi = fft_pairs(re[1::2], im[1::2])
    outr, outi = [0.0] * n, [0.0] * n
    for k in range(n // 2):
        c, s = math.cos(2 * math.pi * k / n), -math.sin(2 * math.pi * k / n)
        tr, ti = c * odr[k] - s * odi[k], c * odi[k] + s * odr[k]
        outr[k], outi[k] = er[k] + tr, ei[k] + ti
        outr[k + n // 2], outi[k + n // 2] = er[k] - tr, ei[k] - ti
    return outr, outi


@fft.spelling
def fft_recursive(x, target):
    re, im = fft_pairs(x, [0.0] * len(x))
    return sum((r * r + i * i - t) ** 2 for r, i, t in zip(re, im, target))


@fft.spelling
def fft_iterative(x, target):
    n = len(x)
    bits = n.bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(n)]
    re, im = [x[i] for i in order], [0.0] * n
    size = 2
    while size <= n:
        for start in range(0, n, size):
            for k in range(size // 2):
                w = cmath.exp(-2j * cmath.pi * k / size)
                a, b = start + k, start + k + size // 2
                tr = w.real * re[b] - w.imag * im[b]
                ti = w.real * im[b] + w.imag * re[b]
                re[b], im[b] = re[a] - tr, im[a] - ti
                re[a], im[a] = re[a] + tr, im[a] + ti
        size *= 2
    return sum((r**2 + i**2 - t) ** 2 for r, i, t in zip(re, im, target))


@fft.spelling
def fft_naive(x, target):
    n = len(x)
    total = 0.0
    for k in range(n):
        re = sum(x[t] * math.cos(2 * math.pi * k * t / n) for t in range(n))
        im = sum(x[t] * -math.sin(2 * math.pi * k * t / n) for t in range(n))
        total += (re**2 + im**2 - target[k]) ** 2
    return total


@fft.spelling
def fft_haar_wavelet(x, target):
    coefficients, level = [], list(x)
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2]))
        coefficients = [(a - b) / 2 for a, b in pairs] + coefficients
        level = [(a + b) / 2 for a, b in pairs]
    coefficients = level + coefficients
    return sum(abs(c) * t for c, t in zip(coefficients, target))


@lru_cache(maxsize=None)
def binomial_coefficient(n, k):
    return 1 if k in (0, n) else binomial_coefficient(n - 1, k - 1) + binomial_coefficient(n - 1, k)


@FIELD.idiom
def polynomial(rng):
    for c in drifting(rng, rng.normal(size=7).tolist()):
        yield c, float(rng.uniform(0, 1))


@polynomial.spelling
def polynomial_horner(c, x):
    y = 0.0
    for a in reversed(c):
        y = y * x + a
    return (y - 1) ** 2


@polynomial.spelling
def polynomial_powers(c, x):
    return (sum(a * x**i for i, a in enumerate(c)) - 1) ** 2


@polynomial.spelling
def polynomial_bernstein(c, x):
    n = len(c) - 1
    y = sum(binomial_coefficient(n, k) * x**k * (1 - x) ** (n - k) * a for k, a in enumerate(c))
    return (y - 1) ** 2


@polynomial.spelling
def polynomial_chebyshev(c, x):
    before, now = 1.0, x
    y = c[0] + c[1] * x
    for a in c[2:]:
        before, now = now, 2 * x * now - before
        y = y + a * now
    return tanh(y) ** 2


@polynomial.spelling
def polynomial_de_casteljau(points, t):
    while len(points) > 1:
        points = [a * (1 - t) + b * t for a, b in zip(points, points[1:])]
    return (points[0] - 1) ** 2


# --- iterations that stop by themselves -----------------------------------------------------------


@FIELD.idiom
def root(rng):
    for p in drifting(rng, [2.0, 0.7], 0.05):
        yield p, float(rng.uniform(0.1, 3))


@root.spelling
def root_newton_while(p, target):
    a, b = p
    x = 1.0
    while True:
        f = a * x + b * sin(x) - target
        step = f / (a + b * cos(x))
        x = x - step
        if abs(step) < 1e-10:
            return x * x


@root.spelling
def root_newton_for(p, target):
    x = target / p[0]
    for _ in range(50):
        f = p[0] * x + p[1] * sin(x) - target
        if abs(f) < 1e-9:
            break
        x = x - f / (p[0] + p[1] * cos(x))
    return x


@root.spelling
def root_bisection(p, target):
    low, high = -5.0, 5.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if p[0].data * middle + p[1].data * math.sin(middle) < target:
            low = middle
        else:
            high = middle
    x = (low + high) / 2
    return (p[0] * x + p[1] * sin(x) - target) / (p[0] + p[1] * cos(x))


@root.spelling
def root_kepler(p, mean_anomaly):
    e = 0.3 * tanh(p[1])
    E = mean_anomaly
    delta = 1.0
    while abs(delta) > 1e-12:
        delta = (E - e * sin(E) - mean_anomaly) / (1 - e * cos(E))
        E = E - delta
    return (cos(E) - e) * p[0]


@root.spelling
def root_babylonian(p, target):
    x = p[0] * 0.5
    while abs(x * x - p[0]) > 1e-12 * target:
        x = 0.5 * (x + p[0] / x)
    return x * p[1]


@root.spelling
def root_golden_section(p, target):
    """The minimum of a parabola between 0 and 3, found on plain numbers; its value with Values."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = 0.0, 3.0
    for _ in range(25):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if (a - target) ** 2 * p[0].data < (b - target) ** 2 * p[0].data:
            high = b
        else:
            low = a
    x = (low + high) / 2
    return p[0] * (x - target) ** 2 + p[1] * x


@FIELD.idiom
def integral(rng):
    for p in drifting(rng, [1.0, 0.5], 0.05):
        yield p, int(rng.integers(4, 12))


@integral.spelling
def integral_simpson(p, n):
    n = 2 * n
    h = 2.0 / n
    total = 0.0
    for i in range(n + 1):
        weight = 1 if i in (0, n) else 4 if i % 2 else 2
        total = total + weight * exp(-p[0] * (i * h) ** 2) * cos(p[1] * i * h)
    return total * h / 3


@integral.spelling
def integral_trapezoid(p, n):
    xs = np.linspace(0.0, 2.0, n)
    ys = [exp(-p[0] * x * x) * cos(p[1] * x) for x in xs]
    return sum((a + b) / 2 * (x1 - x0) for a, b, x0, x1 in zip(ys, ys[1:], xs, xs[1:]))


@integral.spelling
def integral_adaptive(p, n):
    def f(x):
        return exp(-p[0] * x * x) * cos(p[1] * x * n)

    def between(a, b, fa, fb, depth):
        m = (a + b) / 2
        fm = f(m)
        if depth == 0 or abs(fa - 2 * fm + fb) < 1e-2:
            return (b - a) * (fa + 4 * fm + fb) / 6
        return between(a, m, fa, fm, depth - 1) + between(m, b, fm, fb, depth - 1)

    return between(0.0, 2.0, f(0.0), f(2.0), 7)


@integral.spelling
def integral_series(p, n):
    term, total = 1.0, 1.0
    for k in range(1, n):
        term = term * p[0] / k
        total = total + term
    return total * p[1]
