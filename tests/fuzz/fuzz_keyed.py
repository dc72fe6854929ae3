"""Containers that a program builds under integers, as lines of generated programs.

The words in braces are those of ``fuzz_idioms``.
"""

KEYED = (
    """
counts_ = {}
for t in {TS}:
    counts_[t] = counts_.get(t, 0) + 1
{A} = {A} + sum(0.1 * m * {W}[t % {N}] for t, m in counts_.items())
""",
    """
for i, (t, m) in enumerate(Counter({TS}).items()):
    {A} = {A} * 0.5 + m * {W}[(t + i) % {N}]
""",
    """
groups_ = {}
for i, t in enumerate({TS}):
    groups_.setdefault(t, []).append({W}[i % {N}])
{A} = {A} + sum(sum(g) / len(g) * (i + 1) for i, g in enumerate(groups_.values()))
""",
    """
groups_ = defaultdict(list)
for i, t in enumerate({TS}):
    groups_[t % {K} if {K} else t].append({W}[i % {N}] * i)
for k, g in groups_.items():
    {A} = {A} + g[0] * g[-1] + 0.1 * k
""",
    """
groups_ = {}
for i, t in enumerate({TS}):
    if t not in groups_:
        groups_[t] = []
    groups_[t].append({W}[{AT}] + i)
{A} = {A} + sum(max(g) - 0.5 * len(g) for g in groups_.values())
""",
    """
last_ = {}
for i, t in enumerate({TS}):
    if t in last_:
        {A} = {A} + {W}[{AT}] / (i - last_[t])
    elif t > {K}:
        last_[t + 1] = i - 1
    last_[t] = i
""",
    """
sums_ = defaultdict(float)
for i, t in enumerate({TS}):
    sums_[t] += {W}[i % {N}] * 0.5
    if t > {K}:
        sums_[{I}] -= 0.25
{A} = {A} + sum(v * v for v in sums_.values()) + 0.1 * len(sums_)
""",
    """
seen_ = set()
for t in {TS}:
    if t not in seen_:
        {A} = {A} + {W}[{AT}]
        seen_.add(t)
    else:
        {A} = {A} * 0.75
{A} = {A} + 0.1 * len(seen_)
""",
    """
for t in set({TS}):
    {A} = {A} * 0.5 + {W}[{AT}]
{A} = {A} + 0.1 * sum(sorted({t * t - {K} for t in {TS}}))
""",
    """
pairs_ = Counter(zip({TS}, {TS}[1:]))
for (a_, b_), m in pairs_.items():
    {A} = {A} + 0.1 * m * {W}[(a_ - b_) % {N}]
""",
    """
order_ = {t: i for i, t in enumerate({TS})}
{A} = {A} + sum({W}[(order_[t] + k) % {N}] for k, t in enumerate({TS}))
order_[{I}] = 7
{A} = {A} * 0.5 + 0.1 * sum(order_.values()) + 0.1 * order_.get({K}, 3)
""",
    """
unique_ = list(dict.fromkeys({TS}))
{A} = {A} + sum({W}[{AT}] * (i + 1) for i, t in enumerate(unique_)) - 0.1 * len(frozenset({TS}))
""",
    """
table_ = {}
for t in {TS}:
    table_[t] = [{W}[{AT}], t]
    table_[t][0] = table_[t][0] * 0.5
{A} = {A} + sum(a * b for a, b in table_.values())
""",
    """
set_ = set({TS})
for i, k in enumerate(set(set_)):
    {A} = {A} * 0.5 + {W}[(k + i) % {N}]
for i, k in enumerate({1, *set_}):
    {A} = {A} * 0.5 + {W}[(k + i) % {N}]
""",
    """
dict_ = {}
for i, t in enumerate({TS}):
    dict_[t] = i
keys_ = (k for k in dict_)
if hasattr(dict_, "append"):
    {A} = {A} * 3
for i, k in enumerate(keys_):
    dict_[k] = dict_[k] + 1
    {A} = {A} * 0.5 + {W}[(k + i) % {N}] * dict_[k]
""",
    """
groups_ = defaultdict(list)
for i, t in enumerate({TS}):
    groups_[t].append({W}[i % {N}])
for k, *rest in zip(groups_, *[groups_.values()]):
    {A} = {A} * 0.5 + sum([*rest[0]]) + 0.1 * k
""",
)
