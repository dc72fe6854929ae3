"""Lines in which numbers decide which item, and how many; places are as in ``fuzz_idioms``."""

#: counts under conditions, the largest item, searches, and what is read by them
CHOICES = (
    """
n_ = 0
for w in {W}:
    if w > {K} * 0.3 - 0.5:
        n_ += 1
{A} = {A} * (n_ + 1) + n_ / 3 - 0.25 * n_
""",
    """
n_, run = 0, 0.0
for w in {W}:
    if abs(w) > 0.8:
        continue
    run, n_ = run + w * w, n_ + 1
{A} = {A} + run / (n_ or 1) + {W}[n_ % {N}]
""",
    """
hits = [w > 0.1 * {K} for w in {W}]
{A} = {A} + sum(hits) * {W}[0] + {W}[sum(hits) - 1] * hits.count(True)
""",
    """
zs = [w * w - w for w in {W}]
at = zs.index(min(zs))
{A} = {A} + zs[at] * {W}[at - 1] + (2.0 if at == {K} else 0.5)
""",
    """
zs = [(w.data - 0.3) ** 2 for w in {W}]
at = zs.index(min(zs))
{A} = {A} + {W}[at] * [0.5, 1.5, -2.0, 1.0, 3.0][at % 5]
""",
    """
rows = [[w, w * 2, -w] for w in {W}]
a_, b_, c_ = rows[max(range({N}), key=lambda i: rows[i][2].data)]
{A} = {A} + a_ * b_ - c_
""",
    """
at = min(range({N}), key=lambda i: {W}[i])
bucket = [0] * ({N} + 1)
bucket[at] += 1
bucket[at + 1] = {A}
{A} = {A} + sum(b * (i + 1) for i, b in enumerate(bucket))
""",
    """
table_ = [-1.0, -0.25, 0.0, 0.4, 1.5]
for w in {W}:
    at = min(max(bisect.bisect_right(table_, w.data) - 1, 0), 3)
    {A} = {A} + (w - table_[at]) / (table_[at + 1] - table_[at])
""",
    """
at = bisect.bisect_left([-2.0, -0.5, 0.5, 0.5, 2.0], {W}[-1].data * 2)
{A} = {A} + {W}[at % {N}] + at * 0.5 + (at in (1, 2)) - at // 2
""",
    """
at = int(np.clip(np.searchsorted([-1.0, 0.0, 0.25, 2.0], {W}[0].data), 1, 3))
{A} = {A} + {W}[0] * [0.5, 1.0, 2.0, 4.0][at] + {"a": 1, "b": 2}["ab"[at % 2]]
""",
    """
order = np.argsort([-w.data for w in {W}])
{A} = {A} + sum({W}[i] * (rank + 1) for rank, i in enumerate(order))
""",
    """
best = np.argmax([w.data for w in {W}])
right = int(best == ({I}) % {N})
{A} = {A} + right * {W}[best] + (best + 1) / 2
""",
    """
grid = np.array([[w.data, 0.5 - w.data, 0.1 * {K}] for w in {W}])
for w, at in zip({W}, np.argmin(grid, axis=1)):
    {A} = {A} + w * [1.0, -1.0, 0.5][at] + at
""",
    """
{A} = {A} + np.maximum(np.array(list({W})), 0.1).sum() - np.minimum(np.array(list({W})), 0).sum()
""",
    """
last = {W}[0]
for w in {W}:
    last = w if w.data > last.data else last
n_ = len([w for w in {W} if w.data < last.data])
{A} = {A} + last * n_
""",
    """
order = sorted(range({N}), key=lambda i: {W}[i].data, reverse=True)
seen = [0.0] * {N}
for rank, i in enumerate(order[:3]):
    seen[i] = {W}[i] * (rank + 1)
{A} = {A} + sum(s * s for s in seen) + {W}[order[-1]]
""",
    """
up = sum(1 for a, b in zip({W}, {W}[1:]) if a < b)
{A} = {A} + {W}[-up] * up if up else {A} - 0.5
""",
    """
state = 0
for w in {W}:
    state = 1 - state if w.data > 0.25 else state
{A} = {A} * (state + 1) + {W}[state % {N}] * 2**state + round(state) + abs(-state)
""",
)

#: masks that follow Values, and the first of some in an order
MASKS = (
    """
ws_ = np.array(list({W}))
{A} = {A} + np.sum(chainrule.where((ws_ > 0.1 * {K}) & (ws_ < 1.5), ws_ * ws_, -ws_))
""",
    """
ws_ = np.array(list({W}))
{A} = {A} + np.sum(np.where(ws_[::-1] >= ws_, ws_, 0.5 * ws_)) * {W}[0]
""",
    """
ws_ = np.array(list({W}))
mask_ = ~(ws_ * {K} <= ws_[0]) | (0.2 > ws_)
{A} = {A} + np.sum(np.where(mask_, 1.0, 0)) + sum(w for w, m in zip({W}, mask_) if m)
""",
    """
front_ = heapq.nlargest({K}, [w * w - 0.5 * w for w in {W}])
{A} = {A} + sum((k + 1) * z for k, z in enumerate(front_))
""",
    """
front_ = heapq.nsmallest(2, range({N}), key=lambda i: abs({W}[i] - 0.3))
{A} = {A} + sum((k + 1) * {W}[i] * i for k, i in enumerate(front_))
""",
    """
pairs_ = sorted((w * {A}, i) for i, w in enumerate({W}))
{A} = {A} + sum(z * i for z, i in pairs_[:2])
""",
    """
zs_ = [tanh(w) for w in {W}]
zs_.sort(reverse=True)
{A} = {A} + zs_[0] * zs_[-1] + zs_[{N} // 2]
""",
)
DATA_MASKS = (
    """
ws_ = np.array(list({W}))
{A} = {A} + np.sum(np.where(ws_ > {X}, ws_, {X})) + np.where({D} > 0.1, {D}, 1).sum() * {W}[0]
""",
    """
front_ = heapq.nlargest({K}, {XS})
{A} = {A} + sum((k + 1) * x * {W}[0] for k, x in enumerate(front_))
""",
    """
pairs_ = heapq.nsmallest(2, [(x, k) for k, x in enumerate({XS})])
{A} = {A} + sum(x * {W}[k % {N}] for x, k in pairs_)
""",
    """
for x in {XS}:
    r_ = {W}[0] * x - 0.3
    if abs(r_) < 0.5:
        {A} = {A} + r_ * r_
        continue
    {A} = {A} + abs(r_) - 0.25
""",
)

#: reads that are only made where there is such an item
CHECKED = (
    """
for t in {TS}:
    {A} = {A} + ({W}[t + {K}] if t + {K} < {N} else 0.25)
""",
    """
cuts = [w * 2 for w in {W}]
for t in {TS}:
    upper = tanh(cuts[t]) if t < {N} else 1.0
    lower = tanh(cuts[t - 1]) if 0 < t <= {N} else 0.0
    {A} = {A} + upper - lower
""",
    """
for t in {TS}:
    if t * 2 < {N}:
        part = {W}[t * 2] if t > 0 else {W}[-1 - t] * 0.5
    else:
        part = {W}[t - {N}] if t < 2 * {N} else {A}
    {A} = {A} + part
""",
    """
for t in {TS}:
    {A} = {A} * 0.5 if t >= {N} or {W}[t] > 0.2 else {A} + {W}[t]
""",
    """
large = [w * 1e{K} for w in {W}]
left, right = sum(large), sum(large[{K} % {N}:] + large[: {K} % {N}])
{A} = {A} + ({W}[0] if left > right else 2.0 * {W}[-1] if left == right else {W}[1] * 3.0)
""",
    """
rest = sum(a * a for a in {W}) - sum(b * b for b in reversed({W}))
{A} = {A} * (1.5 if rest >= 0 else 0.5) + chainrule.atan2(rest, -1.0 - {W}[0] * {W}[0])
""",
)

#: the same of data
DATA_CHOICES = (
    """
n_ = sum(x > 0.2 for x in {XS})
{A} = {A} + {W}[n_ % {N}] * n_ + 1 / (n_ + 1)
""",
    """
if {XS}:
    at = {XS}.index(max({XS}))
    {A} = {A} + {W}[at % {N}] * {XS}[at]
""",
    """
order = sorted(range(len({XS})), key=lambda i: {XS}[i])
for rank, i in enumerate(order):
    {A} = {A} + {W}[i % {N}] * {XS}[i] * rank
""",
    """
order = np.argsort({XS})
for i, j in zip(order, order[1:]):
    {A} = {A} + maximum(0.0, 1 - {W}[i % {N}] * {XS}[j])
""",
    """
at = bisect.bisect([-1.0, 0.0, 0.5, 1.0], {X})
{A} = {A} + {W}[at % {N}] * [1.0, 2.0, 0.5, -1.0, 3.0][at] if at != {K} else {A} * 0.5
""",
)
