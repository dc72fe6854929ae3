"""Models, simulations and searches in small, as lines of generated programs.

Each is a kind of program of ``benchmarks/idiom_programs`` that no other list has. The words in
braces are those of ``fuzz_idioms``.
"""

#: over parameters and integers
MODELS = (
    # functions chosen by an integer or a name
    """
kinds_ = {0: tanh, 1: relu, 2: lambda v: v * v}
for t in {TS}:
    {A} = {A} + kinds_[t % 3]({W}[{AT}]) * 0.5
""",
    """
for name_ in ("tanh", "relu", "none")[: ({I}) % 4]:
    {A} = {A} + {"tanh": tanh, "relu": relu}.get(name_, abs)({W}[len(name_) % {N}])
""",
    """
scaled_ = functools.partial(lambda v, by, shift=0.0: v * by + shift, by=({I}) % 3)
{A} = {A} + scaled_({W}[0]) + scaled_({W}[-1], shift=0.5)
""",
    # networks
    """
mean_ = sum({W}) / len({W})
var_ = sum((w - mean_) ** 2 for w in {W}) / len({W})
{A} = {A} + sum((w - mean_) * (var_ + 1e-2) ** -0.5 * (i + 1) for i, w in enumerate({W}))
""",
    """
padded_ = [0.0, *{W}, 0.0]
conv_ = [0.5 * padded_[i] - padded_[i + 1] + 0.25 * padded_[i + 2] for i in range({N})]
{A} = {A} + sum(max(conv_[i : i + 2]) for i in range(0, {N} - 1))
""",
    """
order_ = sorted(range({N}), key=lambda i: {W}[i], reverse=True)[:2]
gates_ = [exp({W}[i]) for i in order_]
{A} = {A} + sum(g / sum(gates_) * {W}[i] * (i + 1) for g, i in zip(gates_, order_))
""",
    """
c_ = h_ = 0.0
for t in {TS}:
    z_ = sigmoid({W}[{AT}] + 0.5 * h_)
    c_ = z_ * c_ + (1 - z_) * tanh({W}[0] * h_ + t)
    h_ = z_ * tanh(c_)
{A} = {A} + h_
""",
    # learning
    """
back_, returns_ = 0.0, []
for t in reversed({TS}):
    back_ = t + 0.9 * back_
    returns_.insert(0, back_)
{A} = {A} + sum(r * {W}[{AT}] for r, t in zip(returns_, {TS})) / (1 + len(returns_))
""",
    """
at_ = ({I}) % {N}
for turn in range(4):
    reward_ = {W}[at_] * 0.5 ** turn
    at_ = (at_ + 1) % {N} if {W}[at_].data > {W}[at_ - 1].data else (at_ * 2 + 1) % {N}
    {A} = {A} + reward_
""",
    """
for i in range(len({TS})):
    for j in range(i + 1, len({TS})):
        gap_ = ({W}[{TS}[i] % {N}] - {W}[{TS}[j] % {N}]) ** 2 + j - i
        {A} = {A} + (gap_ if {TS}[i] == {TS}[j] else max(0.0, 1.5 - gap_))
""",
    # numerics
    """
value_ = 0.0
for w in reversed({W}):
    value_ = value_ * (({I}) % 3 - 0.5) + w
{A} = {A} + value_
""",
    """
points_ = list({W})
while len(points_) > 1:
    points_ = [0.25 * p + 0.75 * q for p, q in zip(points_, points_[1:])]
{A} = {A} + points_[0]
""",
    """
before_, now_ = 1.0, {W}[0]
for w in {W}[1:]:
    before_, now_ = now_, 2 * {W}[0] * now_ - before_
    {A} = {A} + w * now_
""",
    """
vector_ = [1.0, 0.5]
for _ in range(3):
    vector_ = [{W}[0] * vector_[0] + 0.3 * vector_[1], 0.3 * vector_[0] + {W}[-1] * vector_[1]]
    size_ = sqrt(vector_[0] * vector_[0] + vector_[1] * vector_[1] + 1e-3)
    vector_ = [v / size_ for v in vector_]
{A} = {A} + vector_[0] - vector_[1]
""",
    """
low_, up_ = [0.0] * {N}, [0.0] * {N}
for i, w in enumerate({W}):
    pivot_ = 4.0 + w - (0.5 * low_[i - 1] if i else 0.0)
    low_[i] = 0.5 / pivot_
    up_[i] = (w - (up_[i - 1] if i else 0.0)) / pivot_
for i in reversed(range({N} - 1)):
    up_[i] = up_[i] - low_[i] * up_[i + 1]
{A} = {A} + sum(up_)
""",
    """
level_ = list({W})
while len(level_) > 1:
    level_, odd_ = level_[: len(level_) // 2], level_[len(level_) // 2 :]
    {A} = {A} + sum((a - b) ** 2 for a, b in zip(level_, odd_))
{A} = {A} + level_[0]
""",
    """
n_ = 2 * (({I}) % 3 + 1)
for k in range(n_ + 1):
    weight_ = 1 if k in (0, n_) else 4 if k % 2 else 2
    {A} = {A} + weight_ * exp(-{W}[0] * {W}[0] * k / n_) / (3 * n_)
""",
    """
a_, b_ = -1.0, 2.0
for _ in range(5):
    m_, n_ = a_ + 0.382 * (b_ - a_), b_ - 0.382 * (b_ - a_)
    if (m_ - {W}[0].data) ** 2 < (n_ - {W}[0].data) ** 2:
        b_ = n_
    else:
        a_ = m_
{A} = {A} + (a_ + b_) / 2 * {W}[0]
""",
    """
cells_ = list({W})
i_, j_ = ({I}) % {N}, {K} % {N}
cells_[i_], cells_[j_] = cells_[j_], cells_[i_]
{A} = {A} + sum(c * (k + 1) for k, c in enumerate(cells_))
""",
    """
field_ = np.array([*{W}])
for _ in range(2):
    field_ = field_ + 0.1 * (np.roll(field_, 1) - 2 * field_ + np.roll(field_, -1))
{A} = {A} + (field_ ** 2).sum() + field_[({I}) % {N}]
""",
    """
field_ = np.array([*{W}])
inner_ = field_[1:-1] + 0.2 * (field_[2:] - 2 * field_[1:-1] + field_[:-2])
{A} = {A} + inner_.sum() * field_[0]
""",
    # simulation
    """
height_, speed_ = 1.0 + abs({W}[0]), {W}[-1]
for _ in range(8):
    speed_ = speed_ - 0.4
    height_ = height_ + 0.5 * speed_
    if height_ < 0:
        height_, speed_ = -height_, -0.8 * speed_
{A} = {A} + height_
""",
    """
sum_, out_ = 0.0, 0.0
for w in {W}:
    error_ = 1.0 - w
    out_ = min(max(0.8 * error_ + sum_, -0.5), 0.75)
    if abs(out_) < 0.75:
        sum_ = sum_ + 0.3 * error_
    {A} = {A} + out_ * w
""",
    """
stock_, cost_ = 3.0, 0.0
for t in {TS}:
    stock_ = stock_ - t * 0.7
    if stock_ < {W}[0] + 0.5:
        stock_, cost_ = stock_ + 2.0 + {W}[-1], cost_ + 1.0
    {A} = {A} + 0.1 * max(stock_, 0.0) - 0.3 * min(stock_, 0.0)
{A} = {A} + cost_
""",
    """
wait_ = 0.0
for w, t in zip({W}, {TS}):
    wait_ = max(0.0, wait_ + w * w - 0.2 * t)
    {A} = {A} + wait_
""",
    """
sick_, day_ = 0.1, 0
for day_ in range(6):
    rate_ = {W}[0] * {W}[0] * (0.3 if day_ >= ({I}) % 5 else 1.0)
    sick_ = sick_ + rate_ * sick_ * (1 - sick_)
    if sick_ > 0.5:
        sick_ = sick_ * 0.6
{A} = {A} + sick_ * day_
""",
    # money
    """
owed_, income_ = 0.0, 3.0 * abs({W}[0]) + {K}
for start_, end_, rate_ in ((0.0, 1.0, 0.1), (1.0, 2.5, 0.25), (2.5, math.inf, 0.4)):
    owed_ = owed_ + rate_ * max(min(income_, end_) - start_, 0.0)
{A} = {A} + owed_
""",
    """
def tree_(spot, depth):
    if depth == 0:
        return max(1.0 - spot, 0.0)
    held_ = 0.5 * (tree_(spot * 1.2, depth - 1) + tree_(spot * 0.8, depth - 1))
    return max(held_, 1.0 - spot)

{A} = {A} + tree_(1.0 + 0.3 * {W}[0], 3)
""",
    """
worth_, peak_, worst_ = 1.0, 1.0, 0.0
for w in {W}:
    worth_ = worth_ * (1.0 + 0.3 * w)
    peak_ = max(peak_, worth_)
    worst_ = max(worst_, (peak_ - worth_) / peak_)
{A} = {A} + worst_ + sum(sorted({W})[:2]) / 2
""",
    # statistics and geometry
    """
scores_ = [0.0, {W}[0]]
for t in {TS}:
    scores_ = [max(s + {W}[(t + a + b) % {N}] for a, s in enumerate(scores_)) for b in range(2)]
{A} = {A} + max(scores_)
""",
    """
memo_ = {}
for i in range(3):
    for j in range(3):
        near_ = [memo_[key] for key in ((i - 1, j), (i, j - 1)) if key in memo_]
        memo_[i, j] = ({W}[i % {N}] - 0.3 * j) ** 2 + (min(near_) if near_ else 0.0)
{A} = {A} + memo_[2, 2]
""",
    """
centres_ = [{W}[0], {W}[-1]]
for t in {TS}:
    near_ = min(centres_, key=lambda c: abs(c - t))
    {A} = {A} + (near_ - t) ** 2 * 0.1
""",
    """
xs_ = sorted({W}, key=lambda w: w.data)
{A} = {A} + xs_[len(xs_) // 2] + sum(xs_[1:-1]) / max(len(xs_) - 2, 1)
""",
    """
for i in range({N}):
    j = (i + 1) % {N}
    {A} = {A} + {W}[i] * (j + 1) - {W}[j] * (i + 1)
""",
    """
angle_, x_, y_ = 0.0, 0.0, 0.0
for w in {W}:
    angle_ = angle_ + w
    x_, y_ = x_ + angle_.cos(), y_ + sin(angle_)
{A} = {A} + (x_ - 1.0) ** 2 + chainrule.atan2(y_, x_ + 5.0)
""",
    """
through_ = 1.0
for w in {W}:
    solid_ = 1.0 - exp(-w * w)
    {A} = {A} + through_ * solid_ * {K}
    through_ = through_ * (1.0 - solid_)
    if through_ < 0.4:
        break
""",
    # values of its own, and what a thing is
    """
own_ = [Value(0.5), Value(-0.25)]
{A} = {A} + sum(o * w for o, w in zip(own_, {W})) + own_[({I}) % 2]
""",
    """
mixed_ = [{W}[0], 0.5, ({I}) % 3, None]
for thing_ in mixed_:
    if isinstance(thing_, Value):
        {A} = {A} + thing_ * thing_
    elif isinstance(thing_, int):
        {A} = {A} * (thing_ + 1)
    elif thing_ is not None:
        {A} = {A} + thing_
""",
    """
named_ = {f"w{i}": w for i, w in enumerate({W})}
{A} = {A} + named_[f"w{({I}) % {N}}"] * named_["w0"]
""",
    """
last_ = [row_ for row_ in [[w, w * w] for w in {W}] if row_[0] > 0]
{A} = {A} + (last_[-1][1] if last_ else 0.5)
""",
)

#: over data
DATA_MODELS = (
    """
node_ = {"at": 0.2, "low": {"at": -0.5, "low": {W}[0], "high": 0.5}, "high": {W}[-1]}
while isinstance(node_, dict):
    node_ = node_["low"] if {X} < node_["at"] else node_["high"]
{A} = {A} + node_ * 2
""",
    """
level_ = 0.0
for x in {XS}:
    rate_ = 0.8 if abs(x) > level_ else 0.1 + 0.1 * {W}[0]
    level_ = level_ + rate_ * (abs(x) - level_)
{A} = {A} + level_
""",
    """
before_, older_ = 0.0, 0.0
for x in {XS}:
    y_ = x + 0.5 * {W}[0] * before_ - 0.25 * older_
    before_, older_ = y_, before_
    {A} = {A} + y_ * y_
""",
    """
for i in range(1, len({XS}) - 1):
    {A} = {A} + {W}[0] * sorted({XS}[i - 1 : i + 2])[1]
""",
    """
taps_ = [{W}[0], {W}[-1]]
for i in range(len({XS})):
    window_ = {XS}[max(0, i - 1) : i + 1]
    {A} = {A} + sum(a * x for a, x in zip(taps_, window_)) ** 2
""",
    """
level_, spread_ = 0.0, 0.3
for x in [*{XS}, None, {X}]:
    if x is None:
        spread_ = spread_ + 0.1
        continue
    gain_ = spread_ / (spread_ + abs({W}[0]) + 0.1)
    level_, spread_ = level_ + gain_ * (x - level_), (1 - gain_) * spread_
{A} = {A} + level_
""",
    """
for x in {XS}:
    miss_ = abs(x - {W}[0])
    {A} = {A} + (0.5 * miss_ * miss_ if miss_ < 0.5 else 0.5 * (miss_ - 0.25))
""",
    """
spread_ = 0.2
for x in {XS}:
    if x < 0:
        spread_ = 0.1 + 0.3 * spread_ + {W}[0] ** 2 * x * x
    else:
        spread_ = 0.1 + 0.3 * spread_
    {A} = {A} + log(spread_) + x * x / spread_
""",
    """
alive_, price_ = 1.0, 1.0
for x in {XS}:
    price_ = price_ * exp(0.2 * {W}[0] * x)
    if price_ > 1.4:
        alive_ = 0.0
        break
{A} = {A} + alive_ * max(price_ - 0.9, 0.0)
""",
    """
times_ = [0.0, 0.4, 1.1, 2.0]
for x in {XS}:
    at_ = min(max(x, 0.0), 1.9)
    k_ = max(i for i in range(4) if times_[i] <= at_)
    share_ = (at_ - times_[k_]) / (times_[k_ + 1] - times_[k_])
    {A} = {A} + (1 - share_) * {W}[k_ % {N}] + share_ * {W}[(k_ + 1) % {N}]
""",
    """
risk_ = 0.0
for x, w in sorted(zip({XS}, {W}), key=lambda pair: -pair[0]):
    risk_ = risk_ + exp(w)
    {A} = {A} + log(risk_) - w * (x > 0)
""",
    """
best_, where_ = math.inf, 0
for i, x in enumerate({XS}):
    gap_ = ({W}[0] - x) ** 2
    if gap_ < best_:
        best_, where_ = gap_, i
{A} = {A} + best_ + {W}[where_ % {N}]
""",
    """
small_ = {J}.astype(np.uint8)
for j in small_:
    {A} = {A} + {W}[j % {N}] * (j / 255.0)
{A} = {A} + (small_ * np.uint8(100)).sum() * {W}[0] * 1e-3
""",
    """
for j in {J}.astype(np.int32):
    {A} = {A} + {W}[j] if j < {N} else {A} * 0.5
""",
    """
xs_ = ({D} - {D}.mean()) / ({D}.std() + 0.5)
{A} = {A} + sum(w * x for w, x in zip({W}, xs_))
""",
    """
for i in range(len({D}) - 1):
    {A} = {A} + {W}[0] * ({D}[i + 1] - {D}[i]) * ({D}[i + 1] + {D}[i]) / 2
""",
)
