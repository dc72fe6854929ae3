"""Lines as they stand in ordinary programs, with places for names.

``{TS}`` are integers, ``{W}`` parameters, ``{AT}`` the token ``t`` as an index of them, ``{N}`` how
many there are, ``{FLAGS}`` a table by token, ``{A}`` the accumulator, ``{K}`` a small number and
``{I}`` an integer. Where there is such data, ``{XS}`` are floats, ``{X}`` is one, ``{D}`` an array
of floats, ``{J}`` an array of integers, ``{M}`` a mask and ``{S}`` a text.
"""

from fuzz_attention import ATTENTION
from fuzz_automata import AUTOMATA, DATA_AUTOMATA
from fuzz_choices import CHECKED, CHOICES, DATA_CHOICES, DATA_MASKS, MASKS
from fuzz_exchanges import EXCHANGES
from fuzz_keyed import KEYED
from fuzz_lookups import LOOKUPS
from fuzz_models import DATA_MODELS, MODELS
from fuzz_recurrences import RECURRENCES
from fuzz_texts import TEXTS
from fuzz_turns import DATA_TURNS, TURNS

TOKENS = (
    """
n = 0
for t in {TS}:
    {A} = {A} + {W}[{AT}]
    if {FLAGS}[t]:
        n += 1
{A} = {A} * 2 if n >= {K} else {A}
""",
    """
n = 0
for t in {TS}:
    n += {FLAGS}[t]
    if n == {K}:
        break
    {A} = tanh({A} + {W}[{AT}])
""",
    """
seen = set()
for t in {TS}:
    if t in seen:
        continue
    seen.add(t)
    {A} = {A} + {W}[{AT}]
""",
    """
last = -1
for t in {TS}:
    {A} = {A} + (0.5 * {W}[{AT}] if t == last else {W}[{AT}])
    last = t
""",
    """
state = 0
for t in {TS}:
    state = (state * 2 + t) % {N}
    {A} = {A} + {W}[state]
""",
    """
state = {K} % {N}
for t in {TS}:
    state = [1, 2, 0, 0, 1][(state + {FLAGS}[t]) % 5] % {N}
{A} = {A} * {W}[state]
""",
    """
stack = []
for t in {TS}:
    if {FLAGS}[t] and stack:
        {A} = {A} + stack.pop()
    else:
        stack.append({W}[{AT}])
{A} = {A} + len(stack)
""",
    """
for i in range(1, len({TS})):
    if {TS}[i - 1] != {TS}[i]:
        {A} = {A} + {W}[{TS}[i] % {N}] * {W}[{TS}[i - 1] % {N}]
""",
    """
run = [t for t in {TS} if {FLAGS}[t]]
{A} = {A} + sum({W}[{AT}] for t in run) / (len(run) or 1)
""",
    """
last = {}
for i, t in enumerate({TS}):
    {A} = {A} + {W}[(i - last.get(t, i)) % {N}]
    last[t] = i
""",
    """
n = [0] * {N}
for t in {TS}:
    n[{AT}] += 1
{A} = {A} + sum(c * w for c, w in zip(n, {W}))
""",
    """
n = sum({FLAGS}[t] for t in {TS})
{A} = {A} + {W}[n % {N}]
""",
    """
for t in {TS}[:({I}) % 4]:
    {A} = {A} + {W}[{AT}]
""",
    """
if {TS}:
    t = max(set({TS}), key={TS}.count)
    {A} = {A} + {W}[{AT}]
""",
    """
for t in {TS}:
    if t == ({I}) % {N}:
        {A} = {A} + {W}[{AT}]
        break
else:
    {A} = {A} - 0.5
""",
    """
n = 0
while n < len({TS}) and not {FLAGS}[{TS}[n]]:
    {A} = {A} + {W}[{TS}[n] % {N}]
    n += 1
{A} = {A} * (n + 1)
""",
    """
run = sorted({TS})
if len(run) > 1 and run[0] == run[1]:
    {A} = {A} + {W}[run[0] % {N}]
""",
    """
n = 1
for t in {TS}:
    n = n * (t + 1) % 5
{A} = {A} + {W}[n % {N}] * n
""",
    """
run = {W}[slice(({I}) % {N}, {K} + 1)]
{A} = {A} + (run[0] * 3 + run[-1] if len(run) else 0.25)
""",
    """
run = [{K} % {N}, *{TS}, 0]
for n in range(len(run) - 1):
    {A} = {A} + {W}[run[n] % {N}] * {W}[run[n + 1] % {N}]
""",
    """
run = [{W}[{AT}] for t in {TS}]
for n, t in enumerate({TS}):
    {A} = {A} + run[t % len(run)] * (n + 1)
""",
    """
for t in {TS}:
    {A} = {A} + sum((n == t) * w for n, w in enumerate({W}))
""",
    """
n = 1
for t in {TS}:
    n = n * 1000003 + t
    {A} = {A} + {W}[n % {N}]
""",
    """
run = np.array(list({W}))
{A} = {A} + run[[{AT} for t in {TS}] or [0]].sum() * run[({I}) % {N}]
""",
    """
for t in {TS}:
    if t == {K}:
        break
    {A} = {A} + {W}[{AT}] * [0.5, -1.5, 2.0][t % 3] / (1.0 + abs(t))
""",
)

#: integers: one-hot vectors, padding, counts, sets, dictionaries, identity, errors that are caught
INTEGERS = (
    """
for t in {TS}:
    {A} = {A} + sum(w * (i == t) for i, w in enumerate({W}))
""",
    """
onehot = [1.0 if i == ({I}) % {N} else 0.0 for i in range({N})]
{A} = {A} + sum(w * x for w, x in zip({W}, onehot))
""",
    """
PAD = {K}
for t in {TS}:
    if t == PAD:
        break
    {A} = {A} + {W}[{AT}]
""",
    """
tally = Counter({TS})
for t, times in sorted(tally.items()):
    {A} = {A} + {W}[{AT}] * times
""",
    """
tally = Counter({TS})
for t, times in tally.most_common(1):
    {A} = {A} + {W}[{AT}] / times
""",
    """
bucket = defaultdict(float)
for t in {TS}:
    bucket[t] = bucket[t] + {W}[{AT}]
{A} = {A} + sum(v * v for v in bucket.values())
""",
    """
rows = dict(enumerate({W}))
for t in {TS}:
    {A} = {A} + rows.get(t + {K}, 0.25)
""",
    """
rows = {k: w for k, w in enumerate({W})}
for t in {TS}:
    if t in rows:
        {A} = {A} + rows[t] * 0.5
""",
    """
for t in sorted(set({TS}) | {0, 1}):
    {A} = {A} + {W}[{AT}]
""",
    """
{A} = {A} * (1 + len(set({TS}) & {0, {K}}))
""",
    """
for t in {TS}:
    try:
        {A} = {A} + {W}[t + {K}]
    except IndexError:
        {A} = {A} - 0.5
""",
    """
try:
    quotient = 6 // ({I})
except ZeroDivisionError:
    quotient = 1
{A} = {A} + {W}[quotient % {N}]
""",
    """
for t in {TS}:
    try:
        {A} = {A} + {W}[{AT}] * (5 % t)
    except ZeroDivisionError:
        pass
""",
    """
try:
    at = {TS}.index({K})
except ValueError:
    at = -1
{A} = {A} + {W}[at % {N}]
""",
    """
try:
    {A} = {A} + {W}[{"a": 0, "b": 1}["ab"[({I}) % 3]]]
except (IndexError, KeyError) as error:
    {A} = {A} - len(str(error)) * 0.01
""",
    """
try:
    {A} = {A} + {W}[{0: 1, 2: 0}[({I}) % 4]]
except KeyError as error:
    {A} = {A} + error.args[0] * 0.25
""",
    """
try:
    assert ({I}) % 3 != {K} % 3, "a remainder"
    {A} = {A} + {W}[0]
except AssertionError as error:
    {A} = {A} * 0.5
""",
    """
last = None
for t in {TS}:
    if last is None:
        {A} = {A} + {W}[{AT}]
    elif last is t:
        {A} = {A} * 0.5
    last = t
""",
    """
best = None
for t in {TS}:
    if best is None or {W}[{AT}] > best:
        best = {W}[{AT}]
{A} = {A} if best is None else {A} + best
""",
    """
first, *rest = [*{TS}, 0]
{A} = {A} + {W}[first % {N}] * (1 + len(rest))
""",
    """
for i, t in enumerate({TS}[::-1], {K}):
    {A} = {A} + {W}[{AT}] / (i + 1)
""",
    """
for a, b in zip({TS}, reversed({TS})):
    {A} = {A} + (a == b) * {W}[a % {N}] - (0.1 if a < b else 0.0)
""",
    """
for key, group in itertools.groupby({TS}):
    {A} = {A} + {W}[key % {N}] * len(list(group))
""",
    """
{A} = {A} + functools.reduce(lambda a, t: a * 0.5 + {W}[{AT}], {TS}, 0.0)
""",
    """
for total_ in itertools.accumulate({TS}):
    {A} = {A} + {W}[total_ % {N}]
""",
    """
{A} = {A} + sum({W}[{AT}] for t in filter(lambda t: t % 2, {TS}))
""",
    """
{A} = {A} * (2 if any(t == {K} for t in {TS}) else 1) + all({TS})
""",
    """
for t in {TS}:
    match t:
        case 0:
            {A} = {A} + {W}[0]
        case 1 | 2:
            {A} = {A} + {W}[-1] * t
        case _:
            {A} = {A} - 0.125
""",
    """
for t in {TS}:
    {A} = {A} + {W}[0] * t.bit_length() + pow(t, 2, 3) * 0.5
""",
    """
for t in {TS}:
    {A} = {A} + {W}[int(str(t)) % {N}] * (-1) ** t
""",
    """
for t in {TS}:
    {A} = {A} + [0.5, 1.5][t > {K}] * {W}[t == 1]
""",
    """
{A} = {A} + ({W}[0], {W}[-1])[({I}) > {K}]
""",
    """
for t in {TS}:
    {A} = {A} + {W}[range({N})[{AT}]] * ((t or {K}) + (t and 2))
""",
    """
for t in {TS}:
    if 0 < t <= {K}:
        {A} = {A} + {W}[~t % {N}]
""",
    """
position = {t: i for i, t in enumerate({TS})}
{A} = {A} + sum({W}[i % {N}] for t, i in position.items() if t != i)
""",
    """
if (times := {TS}.count({K})) > 1:
    {A} = {A} * times
""",
    """
step = 0
while (step := step + 1) < 5 and step not in {TS}:
    {A} = {A} + {W}[step % {N}]
""",
    """
pairs = [(t, w) for t, w in zip({TS}, {W})]
for t, w in sorted(pairs, key=lambda pair: pair[0]):
    {A} = {A} * 0.5 + w * t
""",
    """
head, tail = {TS}[:1], {TS}[1:]
while tail:
    head, tail = head + tail[:1], tail[1:]
    if head[-1] == head[0]:
        {A} = {A} + {W}[head[-1] % {N}]
""",
    """
window = deque(maxlen=2)
for t in {TS}:
    window.append({W}[{AT}])
    {A} = {A} + sum(window) / len(window)
""",
)

#: integers beside floats, and numpy's numbers
ARITHMETIC = (
    """
for t in {TS}:
    {A} = {A} + {W}[{AT}] * (1.0 / (t + 1))
""",
    """
for t in {TS}:
    {A} = {A} + {W}[{AT}] * 2.0**-t
""",
    """
for t in {TS}:
    if t < 1.5:
        {A} = {A} + {W}[{AT}]
    elif t == 2.0:
        {A} = {A} - 1
""",
    """
n_ = ({I}) % 5
{A} = {A} * 0.5**n_ + (n_ + 1) ** 0.5 + n_ / 4 - n_ // 2.0
""",
    """
n_ = ({I}) % 5
{A} = {A} + {W}[0] ** n_ * 0.1 - n_**-1 if n_ else {A}
""",
    """
try:
    {A} = {A} + {W}[0] * (1 / (({I}) % 3))
except ZeroDivisionError:
    {A} = {A} - 1.0
""",
    """
try:
    {A} = {A} + math.sqrt(({I}) % 4 - 2) * {W}[0]
except ValueError:
    {A} = {A} * 0.5
""",
    """
n_ = np.int64({I})
{A} = {A} + {W}[n_ % {N}] * int(n_ * 2)
""",
    """
n_ = np.int64(({I}) % 4)
with np.errstate(all="ignore"):
    big = n_ * np.int64(2**62)
{A} = {A} + (1.0 if big < 0 else 0.5) * {W}[0]
""",
    """
{A} = {A} + np.float32(0.1) * (({I}) % 3) * {W}[0].data
""",
    """
{A} = {A} + {W}[0] * np.float64(({I}) % 3) / np.float64(3.0)
""",
    """
order = np.argsort([w.data for w in {W}])
{A} = {A} + {W}[int(order[-1])] * 2 + {W}[int(order[0])]
""",
    """
{A} = {A} + {W}[int(np.argmax([w.data for w in {W}]))]
""",
    """
for t in {TS}:
    {A} = {A} + {W}[{AT}] * math.comb(4, t) + math.gcd(t, 6) * 0.1
""",
    """
mean_ = sum({TS}) / max(len({TS}), 1)
if mean_ > 1.25:
    {A} = {A} + mean_ * {W}[0]
elif mean_ == 1:
    {A} = {A} * 2
""",
)

#: parameters: the largest, top k, a tolerance, closures and generators
PARAMETERS = (
    """
zs = [w * w for w in {W}]
{A} = {A} + {W}[zs.index(max(zs))]
""",
    """
zs = [w.data for w in {W}]
{A} = {A} + {W}[zs.index(max(zs))] * 2
""",
    """
top = sorted({W}, key=lambda v: v.data)[-2:]
{A} = {A} + sum(top) / len(top)
""",
    """
order = sorted(range({N}), key=lambda i: -{W}[i].data)
{A} = {A} + sum({W}[i] * (rank + 1) for rank, i in enumerate(order[:{K}]))
""",
    """
{A} = {A} + {W}[max(range({N}), key=lambda i: {W}[i].data)]
""",
    """
x_, turns = 1.0 + {W}[0] ** 2, 0
target_ = x_
while abs((x_ * x_ - target_).data) > 1e-6 and turns < 30:
    x_ = 0.5 * (x_ + target_ / x_)
    turns += 1
{A} = {A} + x_
""",
    """
x_, error = 0.5 * {W}[-1], 1.0
while error > 0.01:
    new_ = tanh(0.5 * x_ + 0.1)
    error = abs(new_ - x_).data
    x_ = new_
{A} = {A} + x_
""",
    """
peak = max(w.data for w in {W})
weights_ = [exp(w - peak) for w in {W}]
{A} = {A} - log(weights_[({I}) % {N}] / sum(weights_))
""",
    """
def pick(values, at=({I}) % {N}):
    for i, v in enumerate(values):
        if i != at:
            yield v
{A} = {A} + sum(pick({W}))
""",
    """
count_ = 0
def add(v):
    nonlocal count_
    count_ += 1
    return v * count_
{A} = {A} + sum(add(w) for w in {W})
""",
    """
steps_ = [lambda v, k=k: v * k for k in range({K} + 1)]
for step_ in steps_:
    {A} = {A} + step_({W}[0])
""",
    """
def outer(scale):
    def inner(v, *more, shift=0.5, **named):
        return v * scale + shift + sum(more) + named.get("extra", 0)
    return inner
{A} = {A} + outer({K})({W}[0], {W}[-1], extra=({I}) % 3)
""",
    """
{A} = {A} + sum(a * b for a, b in itertools.combinations({W}, 2))
""",
    """
{A} = {A} + sum(a - b for a, b in zip({W}[::-1], {W}[1:]))
""",
    """
if [y for w in {W} if (y := tanh(w)) > 0.2]:
    {A} = {A} + y
""",
    """
cells = [[w * j for j in range(2)] for w in {W}]
cells[({I}) % {N}][1] = {A}
{A} = sum(sum(row) for row in cells)
""",
    """
copy_ = list({W})
copy_[({I}) % {N}] = 0.5
{A} = {A} + sum(copy_) + len(copy_[{K}:])
""",
    """
copy_ = [*{W}]
del copy_[({I}) % {N}]
copy_.insert({K}, {A})
{A} = sum(v * i for i, v in enumerate(copy_))
""",
    """
record = SimpleNamespace(best={W}[0], n=0)
for w in {W}:
    if w > record.best:
        record.best, record.n = w, record.n + 1
{A} = {A} + record.best * record.n
""",
    """
{A} = {A} + ({W}[0] is {W}[({I}) % {N}]) + ({W}[0] == {W}[-1])
""",
    """
clipped = [min(max(w, -0.5), 0.5) for w in {W}]
{A} = {A} + sum(clipped)
""",
)

#: data: floats, arrays, masks and texts
DATA = (
    """
{A} = {A} + {W}[0] * (1.0 if {X} > 0.3 else {X} * 10)
""",
    """
try:
    {A} = {A} + math.exp({X} * 1000) * {W}[0]
except OverflowError:
    {A} = {A} + 1.0
""",
    """
{A} = {A} + (0.0 if {X} * 1e308 * 10 == math.inf else {W}[0])
""",
    """
{A} = {A} + np.float32({X}) * {W}[0]
""",
    """
{A} = {A} + np.float64({X}) * {W}[0] + np.exp({X})
""",
    """
{A} = {A} + {W}[max(range(len({XS})), key=lambda i: {XS}[i]) % {N}]
""",
    """
for x_ in {XS}:
    if math.isclose(x_, 1.0) or x_ in (0.5, 2.0):
        {A} = {A} + {W}[0] * x_
        continue
    {A} = {A} - {W}[-1] * round(x_)
""",
    """
table_ = {x_: i for i, x_ in enumerate({XS})}
{A} = {A} + {W}[table_.get(1.0, 0) % {N}] * len(table_)
""",
    """
low_, high_ = min({XS}), max({XS})
{A} = {A} + {W}[0] * ((high_ - low_) or 1.0)
""",
    """
{A} = {A} + {W}[int(np.argmax({D})) % {N}] + {W}[0] * np.sort({D})[0]
""",
    """
{A} = {A} + {W}[0] * {D}[{D} > 0].sum() + len({D}[np.abs({D}) < 1])
""",
    """
{A} = {A} + sum(w * x for w, x in zip({W}, {D}[np.argsort({D})]))
""",
    """
{A} = {A} + {W}[0] * np.where({D} > 0, {D}, 0.1 * {D}).sum()
""",
    """
{A} = {A} + {W}[0] * np.where(({D} > 0) & ~({D} > 1), {D}, 0.1 * {D}).sum()
""",
    """
for w, x in zip({W}, {XS}):
    {A} = {A} + chainrule.where((w > 0.1) & (x != 0.5) | (w > x), w * x, w * 0.5)
""",
    """
kept_ = [max(w, 0.0) for w in {W}]
{A} = {A} + kept_[({I}) % {N}] * {W}[0] + (kept_[({K}) % {N}] + 1.0)
""",
    """
cells_ = [(0.5 + abs({W}[k % {N}])) ** (k - 5) for k in range(12)]
while len(cells_) > 1:
    cells_ = [max(0.5 * (a_ + b_), 0.2) for a_, b_ in zip(cells_, cells_[1:])]
{A} = {A} + cells_[0]
""",
    """
spread_ = np.std({D}) + {D}.var() + np.median({D}) + {D}.max() - np.ptp({D})
{A} = {A} + {W}[0] * spread_ + {W}[-1] * np.cumsum({D})[-1]
""",
    """
{A} = {A} + {W}[0] * ({D} @ {D}) + {D}.T.shape[0] + {D}.ndim * {D}.size
""",
    """
for i, x_ in enumerate({D}):
    {A} = {A} + {W}[i % {N}] * x_ * (2 if x_ >= {D}.mean() else 1)
""",
    """
grid_ = np.outer({D}, {D}).reshape(-1)
{A} = {A} + {W}[0] * grid_[({I}) % 4] + {W}[-1] * np.linalg.norm({D})
""",
    """
for j in {J}:
    {A} = {A} + {W}[j % {N}] * j
""",
    """
{A} = {A} + np.array({W})[{J} % {N}].sum()
""",
    """
{A} = {A} + np.array({W})[np.array([{I}, {K}]) % {N}].sum() * {J}.max()
""",
    """
{A} = {A} + {W}[0] * {J}.sum() + ({J} == {K}).sum() + np.bincount({J})[-1]
""",
    """
{A} = {A} + np.eye({N})[{J} % {N}].sum(axis=0) @ np.array({W})
""",
    """
{A} = {A} + sum(w for w, m in zip({W}, {M}) if m) - sum({M})
""",
    """
if any({M}) and not all({M}):
    {A} = {A} + {W}[[bool(m) for m in {M}].index(True) % {N}]
""",
    """
{A} = {A} + sum(np.where({M}, 1.0, 0.5)) * {W}[0]
""",
    """
for c in {S}:
    {A} = {A} + {W}[ord(c) % {N}]
""",
    """
letters = {c: i for i, c in enumerate(sorted(set({S})))}
for a, b in zip({S}, {S}[1:]):
    {A} = {A} + {W}[letters[a] % {N}] * (0.5 if a == b else letters[b])
""",
    """
{A} = {A} + {W}[0] * {S}.count("a") + ({S} == {S}[::-1]) + {S}.find("l") * {W}[-1]
""",
)

#: branches that only assign numbers, and some that do more
BRANCHES = (
    """
for w in {W}:
    if w > {X}:
        {A} = {A} + w * 2
    elif w < 0:
        {A} = {A} - w
""",
    """
state = 0.0
for w in {W}:
    if w > 0 and w < {K}:
        state = state + w
    else:
        state -= {X}
{A} = {A} + state
""",
    """
run = {X}
for x in {XS}:
    if x < run:
        run = x
    if not x > {X}:
        continue
    {A} = {A} + run * {W}[0]
""",
    """
for x in {XS}:
    {A} = {A} + (exp(-x) if x > {X} else x * {W}[0] if x < 0 else {W}[-1])
""",
    """
state, last = -2.0, 2.0
for x in {XS}:
    n = (state + last) / 2
    if n * {W}[0].data < x:
        state = n
    else:
        last = n
{A} = {A} + state * {W}[0] + last * {W}[-1]
""",
    """
run = [1.0 if i == {I} else 0.0 for i in range({N})]
{A} = {A} + sum(a * w for a, w in zip(run, {W}))
""",
    """
n = 0
for t in {TS}:
    n = n + 2 if t == {I} else n - 1
    last = (1 if t > {K} else 3) * {W}[{AT}]
    {A} = {A} + last
{A} = {A} + n
""",
    """
stack = [1.0, 2.0, 3.0]
for w in {W}:
    last = stack.pop() if w > 0 and stack else 0.5
    {A} = {A} + last * w
{A} = {A} + len(stack)
""",
    """
run = []
for w in {W}:
    n = w if w > {X} else -w
    run.append(n)
{A} = {A} + sum(run) * run[0]
""",
    """
last = log({W}[0]) if {W}[0] > 0 else {W}[0] * 0.5
{A} = {A} + last
""",
    """
last = {W}[0] / {X} if {X} != 0 else {W}[0]
{A} = {A} + last
""",
    """
run = sorted(w * w - w for w in {W})
{A} = {A} + run[0] * {K} - run[-1]
""",
    """
run = sorted({XS}, reverse=True)
{A} = {A} + run[0] * {W}[0] + run[len(run) // 2]
""",
    """
run = sorted({TS})
{A} = {A} + {W}[run[0] % {N}] - {W}[run[-1] % {N}] * {K}
""",
    """
n = sin({X}) + sqrt({X} * {X} + 1) + tanh({X})
{A} = {A} + {W}[0] * n + maximum({X}, 0.5)
""",
    """
n = {W}[0].data
last = True if n > 0 else False
{A} = {A} * last + n
""",
    """
if {W}[0] > {X}:
    last = [{W}[0], {W}[-1]]
else:
    last = [{W}[-1], {X}]
{A} = {A} + last[0] * last[1]
""",
    """
state = None
for w in {W}:
    if state is None or w > state:
        state = w
{A} = {A} + state
""",
    """
{A} = {A} + {W}[0] * np.std({D}) + np.var({D})
""",
    """
last = {W}[0]
if {X} > 0:
    if {W}[0] > {X}:
        last = {W}[-1]
    else:
        last += {K}
{A} = {A} + last * last
""",
    """
state = [{W}[0], {W}[-1], 1.0]
for k, x in enumerate({XS}):
    if x > state[k % 2] and not x < {K}:
        state[k % 2] = state[k % 2] * x
        state[2] = 0.5
    elif -1 < x <= state[2]:
        state[2] = x
{A} = {A} + state[0] * state[2] - state[1]
""",
    """
on = False
for x in {XS}:
    if x > 0.5:
        on = True
    elif x < {X}:
        on = False
    {A} = {A} + ({W}[0] if on else {W}[-1] * 0.5)
""",
    """
for w in {W}:
    if w * {X} > 0.3:
        continue
    part = w * {X}
    {A} = {A} + part * part
""",
    """
{A} = {A} + sum(w * {X} for w in {W} if w > {X}) + sum([x * x for x in {XS} if x < 0])
""",
    """
hits = []
for x in {XS}:
    y = hits.append(x) if x > 0 else None
    {A} = {A} + (hits.pop() if len(hits) > 1 and x > {X} else {W}[0])
""",
)

CHANCES = (
    """
rng = random.Random({TS}[0])
for w in {W}:
    {A} = {A} + (w * rng.gauss(0, 1) if rng.random() < 0.7 else w)
""",
    """
rng = random.Random({I})
{A} = {A} + {W}[rng.randrange({N})] * rng.uniform({K}, 2.0) + rng.choice({W}) * rng.randint(1, 3)
""",
    """
rng = random.Random(sum({TS}) + {K})
order = list({W})
rng.shuffle(order)
{A} = {A} + order[0] * rng.gauss({W}[0], 0.1) - rng.sample(order, 1)[0]
""",
    """
rng = np.random.default_rng(abs({I}))
for w, e in zip({W}, rng.normal(size={N})):
    {A} = {A} + w * e
{A} = {A} * rng.random() + {W}[rng.integers({N})]
""",
    """
rng = np.random.default_rng(abs({TS}[-1]))
for w, m in zip({W}, (rng.random({N}) < 0.7) / 0.7):
    {A} = {A} + w * m
""",
    """
try:
    {A} = {A} + sqrt({W}[0])
except ValueError:
    {A} = {A} - {W}[0] * {K}
""",
)
DATA_CHANCES = (
    """
for w, m in zip({W}, ({D} > {X}) * 2.0 - 1):
    {A} = {A} + w * m
""",
    """
hits = {D} > 0
{A} = {A} + {W}[0] * (hits * 0.5).sum() + (1.0 - hits).sum() + hits.sum()
""",
    """
rng = random.Random({I})
{A} = {A} + {W}[0] * rng.gauss({X}, 0.5) + rng.uniform(0, {X})
""",
    """
try:
    {A} = {A} + log({W}[0] * {X})
except ValueError:
    {A} = {A} + {X}
""",
)

IDIOMS = (
    *(*TOKENS, *INTEGERS, *ARITHMETIC, *PARAMETERS, *DATA, *BRANCHES, *CHANCES, *DATA_CHANCES),
    *(*CHOICES, *DATA_CHOICES, *CHECKED, *TURNS, *DATA_TURNS, *TEXTS, *LOOKUPS, *KEYED),
    *(*RECURRENCES, *ATTENTION, *MASKS, *DATA_MASKS, *MODELS, *DATA_MODELS, *EXCHANGES),
    *(*AUTOMATA, *DATA_AUTOMATA),
)
