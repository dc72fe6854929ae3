"""Tables of states, items of enums and dynamic programs, as lines of generated programs.

The words in braces are those of ``fuzz_idioms``; ``Colour``, ``MOVES`` and their like are defined
in ``fuzz_classes``, with what may become of them between calls.
"""

AUTOMATA = (
    """
state_ = 0
for t in {TS}:
    state_ = MOVES[state_][t % 2]
    {A} = {A} + {W}[state_ % {N}]
""",
    """
state_ = ({I}) % 3
for t in {TS}:
    row_ = MOVES[state_]
    {A} = {A} * 0.5 + {W}[row_.get(t, 0) % {N}] + len(row_) * 0.1 + (t in row_)
    state_ = row_[state_ % 2]
""",
    """
state_ = 0
for t in {TS}:
    state_ = LINKS[state_, t % 2]
    {A} = {A} + {W}[state_ % {N}] * (state_ + 1)
""",
    """
state_ = 1
for t in {TS}:
    if (state_, t) in LINKS:
        state_ = LINKS[(state_, t)]
    else:
        {A} = {A} * 0.5 - LINKS.get((t, state_), {K})
    {A} = {A} + {W}[state_ % {N}]
""",
    """
for t in {TS}:
    try:
        {A} = {A} + {W}[LINKS[t, {K} - t] % {N}]
    except KeyError as error:
        {A} = {A} + error.args[0][0] * 0.25
""",
    """
state_ = "a"
for t in {TS}:
    state_ = WALKS.get((state_, t % 2), "a")
    {A} = {A} + {W}["abc".index(state_) % {N}]
""",
    """
own_ = {s: {t: {W}[(s + t) % {N}] for t in range(2)} for s in range(3)}
pairs_ = {(s, t): w * s for s in range(3) for t, w in enumerate({W})}
for t in {TS}:
    {A} = {A} + own_[t % 3][t % 2] * pairs_[t % 3, {AT}]
""",
    """
own_ = {s: dict(row) for s, row in MOVES.items()}
for t in {TS}:
    row_ = own_[t % 3]
    row_[t % 2] = (row_[t % 2] + 1) % {N}
    {A} = {A} + {W}[own_[t % 3][t % 2] % {N}] * 0.5
""",
    """
for t in {TS}:
    if Colour.GREEN == t or t > Colour.GREEN:
        {A} = {A} + {W}[(t + Colour.BLUE) % {N}]
    elif t in (Colour.RED, Colour.BLUE):
        {A} = {A} * 0.5 + Colour.BLUE**t * 0.1 + t / Colour.BLUE
""",
    """
tints_ = {Colour.RED: 0.5, Colour.GREEN: {W}[0], Colour.BLUE: {W}[-1]}
{A} = {A} + sum(tints_[t % 3] + tints_.get(t, 0.25) for t in {TS}) + {TS}.count(Colour.RED)
""",
    """
for t in {TS}:
    match t:
        case Colour.RED:
            {A} = {A} + {W}[0]
        case Colour.GREEN:
            {A} = {A} * 0.5
        case _:
            {A} = {A} - Colour.GREEN * {W}[-1]
""",
    """
for t in {TS}:
    {A} = {A} + {W}[int(t | Shade.DARK) % {N}] * (t == Shade.LIGHT)
    {A} = {A} + isinstance(Shade.DARK | t, Shade)
""",
    """
for t in {TS}:
    {A} = {A} + {W}[{AT}] * (t == Odd.ONE) - (t + Odd.ONE) * 0.1 + max(t, Colour.GREEN) * 0.5
""",
    """
bins_ = [0.0] * {N}
for t in {TS}:
    bins_[{AT}] += {W}[{AT}] * 0.5
    bins_[Colour.RED] += 0.1
{A} = {A} + sum(b * b for b in bins_)
""",
    """
scores_ = list({W})
for t in {TS}:
    scores_ = [
        max(scores_[a_] + {W}[(a_ - b_) % {N}] for a_ in range({N})) + {W}[{AT}] * (b_ == t)
        for b_ in range({N})
    ]
{A} = {A} + max(scores_)
""",
    """
rows_ = [[0.0] + [4.0] * {N}]
for i_, t in enumerate({TS}):
    rows_.append([4.0])
    for j_, w_ in enumerate({W}):
        near_ = rows_[i_][j_], rows_[i_][j_ + 1], rows_[i_ + 1][j_]
        soft_ = -log(sum(exp(-v_) for v_ in near_))
        rows_[-1].append(({W}[{AT}] - w_) ** 2 + soft_)
{A} = {A} + rows_[-1][-1]
""",
    """
at_, speed_ = [w_ * 2.0 for w_ in {W}], [1.0 - w_ for w_ in {W}]
for _ in range(3):
    for i_ in range({N} - 1):
        if abs(at_[i_] - at_[i_ + 1]) < 0.4:
            speed_[i_], speed_[i_ + 1] = speed_[i_ + 1], speed_[i_]
    at_ = [x_ + 0.1 * v_ for x_, v_ in zip(at_, speed_)]
    speed_ = [-v_ if abs(x_) > 1.5 else v_ for x_, v_ in zip(at_, speed_)]
{A} = {A} + sum(x_ * x_ + v_ for x_, v_ in zip(at_, speed_))
""",
    """
hash_ = {K}
for t in {TS}:
    hash_ = (hash_ * 31 + t) % 1009
    {A} = {A} + {W}[hash_ % {N}]
""",
)
DATA_AUTOMATA = (
    """
bins_ = [0.0] * {N}
for j_ in {J}:
    bins_[j_ % {N}] += {W}[j_ % {N}]
{A} = {A} + sum(b * b for b in bins_)
""",
    """
bins_ = np.zeros({N}, dtype=object)
for j_ in {J}:
    bins_[abs(j_) % {N}] += {W}[0] * 0.5
    if j_ > {K}:
        bins_[j_ % {N}] = {A}
{A} = {A} + (bins_ * bins_).sum()
""",
    """
counts_ = [{K}] * {N}
for j_ in {J}:
    counts_[j_ - {N}] += 1
{A} = {A} + sum(c * w for c, w in zip(counts_, {W}))
""",
    """
{A} = {A} + {W}[0] * ({J} == Colour.GREEN).sum() + sum(j_ + Colour.BLUE for j_ in {J})
""",
    """
state_ = 0
for j_ in {J}:
    state_ = LINKS.get((state_, j_ % 2), 1)
    {A} = {A} + {W}[MOVES[state_ % 3][abs(j_) % 2] % {N}]
""",
    """
zs_ = np.array([w * x for w, x in zip({W}, {XS})] or [{W}[0]])
top_ = np.argsort([z.data for z in zs_])[-2:]
{A} = {A} + np.tanh(zs_[top_]).sum() + zs_[top_[::-1]][0]
""",
    """
zs_ = np.array([[w, w * {X}] for w in {W}])
top_ = np.argsort([z.data for z in zs_[:, 1]])[:2]
{A} = {A} + (zs_[top_] * np.array([1.0, 0.5])).sum()
zs_[top_[0]] = {A}
{A} = {A} + zs_[0, 1]
""",
)
