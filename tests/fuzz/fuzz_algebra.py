"""Subjects from linear algebra: elimination, triangular loops, Cholesky, Fourier transforms."""

from __future__ import annotations

from fuzz_drawing import Datum, Draw, Subject

PIVOT = """<<pivot = max(range(c, {N}), key=lambda r: abs(A[r][c]{DATA}))\
||pivot = c
    for r in range(c + 1, {N}):
        if abs(A[r][c]) > abs(A[pivot][c]):
            pivot = r\
||sizes = [abs(A[r][c]{DATA}) for r in range(c, {N})]
    pivot = c + sizes.index(max(sizes))>>
    <<if pivot != c:
        A[c], A[pivot] = A[pivot], A[c]
        b[c], b[pivot] = b[pivot], b[c]\
||A[c], A[pivot] = A[pivot], A[c]
    b[c], b[pivot] = b[pivot], b[c]\
||A[c], A[pivot], b[c], b[pivot] = A[pivot], A[c], b[pivot], b[c]>>"""
ELIMINATE = """for r in range(c + 1, {N}):
        <<if A[r][c] == 0:
            continue
        ||>>m = A[r][c] / A[c][c]
        <<for k in range(c, {N}):
            A[r][k] = A[r][k] - m * A[c][k]||A[r] = [a - m * u for a, u in zip(A[r], A[c])]>>
        b[r] <<= b[r] - m * b[c]||-= m * b[c]>>"""
JORDAN = """<<scale = A[c][c]||scale = 1.0 * A[c][c]>>
    A[c] = [a / scale for a in A[c]]
    b[c] = b[c] / scale
    for r in range({N}):
        if r <<!= c||== c:
            continue
        if A[r][c] != 0.0>>:
            m = A[r][c]
            <<A[r] = [a - m * u for a, u in zip(A[r], A[c])]||for k in range({N}):
                A[r][k] -= m * A[c][k]>>
            b[r] = b[r] - m * b[c]"""
BACK = """<<x = [0.0] * {N}
for i in <<reversed(range({N}))||range({N} - 1, -1, -1)>>:
    s = b[i] - sum(A[i][j] * x[j] for j in range(i + 1, {N}))
    x[i] = s / A[i][i]\
||x = []
for i in range({N})[::-1]:
    known = sum(a * u for a, u in zip(A[i][i + 1:], x))
    x.insert(0, (b[i] - known) / A[i][i])>>"""


def _system(draw: Draw, middle: str) -> Subject:
    """A system of equations whose matrix is a parameter, or made of parameters and data."""
    n = draw.size(2, 4)
    p = draw.parameters(m=(n, n), b=(n,))
    body = draw.spelled(
        """
<<A = [<<list(row)||[v for v in row]||[*row]>> for row in {M}]\
||A = [[{M}[i][j] + (<<2.0||3.0||xs[i]>> if i == j else 0.0) for j in range({N})] for i in range({N})]>>
b = [<<v + x||v * x + 0.5||v>> for v, x in zip({B}, xs)]
for c in range({N}):
    {PIVOT}
    <<if abs(A[c][c]) < 1e-6:
        A[c][c] = A[c][c] + 1.0||>>
    {MIDDLE}
loss = <<sum(v * v for v in x)||x[0] * x[-1]||sum(v * y for v, y in zip(x, xs))||tanh(x[0])>>
""".replace("\nloss =", "\n{BACK}\nloss ="),  # noqa: E501
        N=n,
        M=p.path("m"),
        B=p.path("b"),
        PIVOT=PIVOT,
        DATA="<<||||.data>>",
        MIDDLE=middle,
        BACK="x = <<b||list(b)>>" if middle is JORDAN else BACK,
    )
    return Subject("", body, p, [draw.reals("xs", n, n)])


def gauss(draw: Draw) -> Subject:
    """Elimination with pivots, then back substitution."""
    return _system(draw, ELIMINATE)


def gauss_jordan(draw: Draw) -> Subject:
    """Elimination above and below the pivot."""
    return _system(draw, JORDAN)


def triangular(draw: Draw) -> Subject:
    """Loops whose inner end is the outer index: pairs, packed covariances, shrinking trees."""
    n = draw.size(3, 5)
    p = draw.parameters(w=(n,), packed=(n * (n + 1) // 2,))
    words = {"W": p.path("w"), "P": p.path("packed"), "N": n}
    pairs = """
loss = 0.0
for i in range(len(xs)):
    for j in <<range(i)||range(i + 1)||range(i, len(xs))||range(i + 1, len(xs))>>:
        gap = <<{W}[i % {N}] * xs[i] - {W}[j % {N}] * xs[j]||{W}[(i - j) % {N}] * (xs[i] - xs[j])>>
        <<if gap > 0.2:
            <<continue||break||loss = loss + 0.5>>
        ||>>loss = loss + <<gap * gap||exp(-gap ** 2)||tanh(gap) * (j + 1)>>
"""
    packing = """
L = [[0.0] * {N} for _ in range({N})]
k = 0
for i in range({N}):
    for j in <<range(i + 1)||range(i)>>:
        L[i][j] = <<{P}[k]||exp({P}[k]) if i == j else {P}[k]>>
        k <<+= 1||= k + 1>>
<<S = [[sum(L[i][k] * L[j][k] for k in range({N})) for j in range({N})] for i in range({N})]\
||S = L||S = [[sum(L[i][k] * L[j][k] for k in range(min(i, j) + 1)) for j in range({N})] for i in range({N})]>>
loss = sum(S[i][j] * {W}[i] * {W}[j] for i in range({N}) for j in range({N})) + xs[0]
"""  # noqa: E501
    indexed = """
loss = {W}[0]
for i in range({N}):
    for j in range(i):
        loss = loss + {P}[i * (i - 1) // 2 + j] * {W}[i] * <<{W}[j]||xs[j % len(xs)]||(i - j)>>
"""
    tree = """
cells = [<<{W}[k] * xs[k % len(xs)]||max({W}[k] + xs[0], 0.0)||abs({W}[k])>> for k in range({N})]
for level in <<range({N} - 1, 0, -1)||reversed(range(1, {N}))>>:
    <<cells = [0.5 * cells[i] + 0.45 * cells[i + 1] for i in range(level)]\
||for i in range(level):
        cells[i] = <<max(0.5 * (cells[i] + cells[i + 1]), {P}[i])||cells[i] * 0.6 + cells[i + 1] * {P}[level]>>\
||cells = [<<max(a, b * 0.5)||a * 0.5 + b||tanh(a - b)>> for a, b in zip(cells, cells[1:level + 1])]>>
loss = cells[0]
"""  # noqa: E501
    body = draw.spelled(draw.rng.choice([pairs, packing, indexed, tree]), **words)
    return Subject("", body, p, [draw.reals("xs", 2, 6)])


def cholesky(draw: Draw) -> Subject:
    """The likelihood of a Gaussian process, or of a covariance, by a decomposition."""
    n = draw.size(2, 5)
    p = draw.parameters(k=(3,), mean=(5,))
    longest = n if draw.fixed or draw.chance(0.5) else 5
    body = draw.spelled(
        """
n = len(xs)
K = [[<<{K}[0] ** 2 * exp(-(a - b) ** 2)||exp(-(a - b) ** 2 * {K}[1] ** 2)||{K}[0] * {K}[0] * (a * b)>>\
 + (0.5 + {K}[2] ** 2 if <<i == j||i is j||not i - j>> else 0.0) for j, b in enumerate(xs)] for i, a in enumerate(xs)]
L = [[0.0] * n for _ in range(n)]
{DECOMPOSE}
y = []
for i in range(n):
    s = {MEAN}[i] - xs[i]
    <<for j in range(i):
        s = s - L[i][j] * y[j]||s = s - sum(L[i][j] * y[j] for j in range(i))>>
    y.append(s / L[i][i])
loss = <<0.5 * ||>>sum(v * v for v in y) + sum(log(L[i][i]) for i in range(n))
""",  # noqa: E501
        K=p.path("k"),
        MEAN=p.path("mean"),
        DECOMPOSE="""<<for i in range(n):
    for j in range(i + 1):
        s = K[i][j] - sum(L[i][k] * L[j][k] for k in range(j))
        L[i][j] = sqrt(s) if i == j else s / L[j][j]\
||for i in range(n):
    for j in range(i + 1):
        s = K[i][j]
        for k in range(j):
            s = s - L[i][k] * L[j][k]
        if i == j:
            L[i][i] = <<s ** 0.5||sqrt(s)>>
        else:
            L[i][j] = s / L[j][j]\
||for j in range(n):
    L[j][j] = sqrt(K[j][j] - sum(v * v for v in L[j][:j]))
    for i in range(j + 1, n):
        L[i][j] = (K[i][j] - sum(a * b for a, b in zip(L[i][:j], L[j][:j]))) / L[j][j]\
||L = chainrule.cholesky(K)>>""",
    )
    return Subject("", body, p, [draw.reals("xs", n, longest)])


FFT = """
<<def fft(re, im):
    n = len(re)
    if n == 1:
        return <<re, im||list(re), list(im)>>
    er, ei = fft(re[::2], im[::2])
    tr, ti = fft(re[1::2], im[1::2])
    outr, outi = [0.0] * n, [0.0] * n
    for k in range(n // 2):
        <<c, s = math.cos(2 * math.pi * k / n), -math.sin(2 * math.pi * k / n)\
||angle = -2 * math.pi * k / n
        c, s = math.cos(angle), math.sin(angle)>>
        a, b = c * tr[k] - s * ti[k], c * ti[k] + s * tr[k]
        outr[k], outi[k] = er[k] + a, ei[k] + b
        outr[k + n // 2], outi[k + n // 2] = er[k] - a, ei[k] - b
    return outr, outi
||def fft(re, im):
    n = len(re)
    re, im, j = list(re), list(im), 0
    for i in range(1, n):
        bit = n // 2
        while j & bit:
            j, bit = j ^ bit, bit // 2
        j = j ^ bit
        if i < j:
            re[i], re[j], im[i], im[j] = re[j], re[i], im[j], im[i]
    size = 2
    while size <= n:
        for start in range(0, n, size):
            for k in range(size // 2):
                angle = -2 * math.pi * k / size
                c, s = math.cos(angle), math.sin(angle)
                u, v = start + k, start + k + size // 2
                a, b = c * re[v] - s * im[v], c * im[v] + s * re[v]
                re[v], im[v] = re[u] - a, im[u] - b
                re[u], im[u] = re[u] + a, im[u] + b
        size <<= size * 2||*= 2>>
    return re, im
||def fft(re, im):
    n = len(re)
    if n == 1:
        return re, im
    even, odd = fft(re[0::2], im[0::2]), fft(re[1::2], im[1::2])
    turned = []
    for k, (r, i) in enumerate(zip(*odd)):
        c, s = math.cos(2 * math.pi * k / n), math.sin(2 * math.pi * k / n)
        turned.append((c * r + s * i, c * i - s * r))
    first = [(a + r, b + i) for a, b, (r, i) in zip(*even, turned)]
    second = [(a - r, b - i) for a, b, (r, i) in zip(*even, turned)]
    return [r for r, _ in first + second], [i for _, i in first + second]>>
"""


def fourier(draw: Draw) -> Subject:
    """A fast Fourier transform: by recursion, or in place after a permutation of bits."""
    n = draw.rng.choice([2, 4, 4, 8])
    p = draw.parameters(w=(n,), v=(n,))
    body = draw.spelled(
        """
re = [<<w * x||w + x||w>> for w, x in zip({W}, xs)]
im = <<[0.0] * {N}||[v for v in {V}]||[0.5 * v for v in {V}]>>
re, im = fft(re, im)
<<power = [a * a + b * b for a, b in zip(re, im)]||power = [a ** 2 + b ** 2 + 0.1 for a, b in zip(re, im)]>>
loss = <<sum(power) / {N}||sum(log(1.0 + q) for q in power)||power[k] - power[0]||re[k] * im[-k]||max(power)>>
<<back, _ = fft(im, re)
loss = loss + back[k] * {V}[0]||if re[k] > im[k]:
    loss = loss * 0.5||>>
""",  # noqa: E501
        N=n,
        W=p.path("w"),
        V=p.path("v"),
    )
    data: list[Datum] = [draw.reals("xs", n, n), draw.integer("k", 0, n - 1)]
    return Subject(draw.spelled(FFT), body, p, data)
