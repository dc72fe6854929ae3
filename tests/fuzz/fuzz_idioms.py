"""Lines as they stand in ordinary programs over tokens, with places for names.

``TS`` are integers, ``W`` parameters, ``AT`` the token ``t`` as an index of them, ``N`` how many
there are, ``FLAGS`` a table by token, ``A`` the accumulator, ``K`` a small number, ``I`` an index.
"""

IDIOMS = (
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
last = {{}}
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
)
