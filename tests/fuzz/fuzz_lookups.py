"""Integers as keys, in memberships, counts and exponents, as lines of generated programs.

The words in braces are those of ``fuzz_idioms``.
"""

LOOKUPS = (
    """
rates_ = {3: 0.5, 1: -1.5, 0: 2.0, 2: {W}[0]}
for t in {TS}:
    {A} = {A} + 0.1 * rates_.get(t, {W}[-1])
""",
    """
places_ = {1: 2, 0: 1, 4: 0}
{A} = {A} + sum({W}[places_.get(t, {K}) % {N}] for t in {TS})
""",
    """
for t in {TS}:
    if t in {1: 0, 2: 0}:
        {A} = {A} + {W}[{AT}]
    elif t not in (0, 4):
        {A} = {A} * 0.5
    else:
        {A} = {A} - {FLAGS}[t]
""",
    """
rows_ = {0: [1.0, {W}[0]], 2: [{W}[-1], 0.5]}
for t in {TS}:
    if t in rows_:
        {A} = {A} + rows_[t][0] * rows_[t][t % 2]
    {A} = {A} + rows_.get(t, [0.25, -0.25])[t % 2]
""",
    """
for i, t in enumerate({TS}):
    {A} = {A} * 0.75 if t in {TS}[:i] else {A} + {W}[{AT}]
""",
    """
{A} = {A} * ({K} in {TS}) + {W}[0] * ({I} not in {TS})
""",
    """
allowed = frozenset((0, 2, {K}))
{A} = {A} + sum({W}[{AT}] for t in {TS} if t in allowed and t not in [1, {K}])
""",
    """
for t in {TS}:
    rate_ = {1: 0.5, 3: 2.0}.get(t)
    {A} = {A} if rate_ is None else {A} + rate_ * {W}[0]
""",
    """
own = {k: {W}[k % {N}] for k in range(3)}
for t in {TS}:
    own[1] = own.get(t, own[1]) * 0.5
{A} = {A} + own[1] + len(own)
""",
    """
try:
    {A} = {A} + {0: 0.5, 2: 1.5}[{I}] * {W}[0]
except KeyError:
    {A} = {A} - 1.0
""",
    """
{A} = {A} + {W}[{TS}.count({I}) % {N}] + 0.1 * list({TS}).count({K})
""",
    """
truths = {True: 2.0, False: 0.5}
{A} = {A} * truths[{I} > {K}] + {W}[0] * truths.get({I} == {K}, 3.0)
""",
    """
{A} = {A} + 0.01 * {W}[0] ** ({I} % 5) + {W}[-1] / 2.0 ** ({I} % 7)
""",
    """
{A} = {A} * (1 - 0.9 ** (abs({I}) + 1)) + (-1) ** ({I} % 4) * {W}[0]
""",
    """
{A} = {A} + {W}[2 ** ({I} % 6) % {N}] * (({I}) % 9 + 1) ** -0.5
""",
    """
for t in {TS}:
    {A} = {A} + 0.01 * (1.0 + abs({W}[{AT}])) ** (t % 4 - 1)
""",
    """
powers_ = [{W}[0] ** k for k in range({I} % 4)]
{A} = {A} + sum(powers_) + 0.1 * {W}[0] ** len(powers_)
""",
    """
if {I} > {K}:
    {A} = {A} + abs({W}[0]) ** ({I} % 3)
else:
    {A} = {A} - 1.5 ** ({I} % 5 - 2)
""",
)
