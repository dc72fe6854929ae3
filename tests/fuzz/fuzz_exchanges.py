"""Lines in which numbers decide which rows are exchanged; places are as in ``fuzz_idioms``."""

#: eliminations with pivots, and who has a row while it is exchanged
EXCHANGES = (
    """
m_ = [[w + 0.1 * j * j - 0.3 * i for j in range(3)] + [w * {K}] for i, w in enumerate({W})]
for i in range(min({N}, 3)):
    p_ = max(range(i, {N}), key=lambda r: abs(m_[r][i]))
    m_[i], m_[p_] = m_[p_], m_[i]
    for r in range(i + 1, {N}):
        f_ = m_[r][i] / (m_[i][i] * m_[i][i] + 0.5)
        for j in range(i, 4):
            m_[r][j] -= f_ * m_[i][j]
{A} = {A} + sum(tanh(x) * (i + 1) for i, row in enumerate(m_) for x in row)
""",
    """
m_, sign_ = [[w * w - 0.4, w - 0.2 * {K}] for w in {W}], 1.0
p_ = 0
for r in range(1, {N}):
    if abs(m_[r][0]) > abs(m_[p_][0]):
        p_ = r
if p_ != 0:
    t_ = m_[0]
    m_[0] = m_[p_]
    m_[p_] = t_
    sign_ = -sign_
{A} = {A} + sign_ * m_[0][1] + m_[-1][0] * m_[p_][1]
""",
    """
m_ = [[w, i, 0.5 * w] for i, w in enumerate({W})]
kept_ = m_[({I}) % {N}]
for r in range(1, {N}):
    if m_[r][0] > m_[r - 1][0]:
        m_[r], m_[r - 1] = m_[r - 1], m_[r]
kept_[2] = {A}
{A} = sum(x * (i + 1) + z * 0.1 for i, (x, _, z) in enumerate(m_)) + kept_[1]
""",
    """
row_ = [w * 0.5 for w in {W}]
m_ = [[w * w for w in {W}], row_, [1.0 - w for w in {W}]]
p_ = min(range(3), key=lambda r: m_[r][0])
m_[-1], m_[p_] = m_[p_], m_[-1]
m_[p_][0] = {A}
m_[1][-1] -= 0.25
{A} = {A} + sum(x * (i + 1) for i, r in enumerate(m_) for x in r) * 0.1 + row_[0]
""",
    """
m_ = np.array([[w, 1.0 - w * w, 0.3 * w] for w in {W}])
top_ = m_[0]
p_ = int(np.argmax(np.abs(m_[:, ({I}) % 3])))
m_[[0, p_]] = m_[[p_, 0]]
m_[-1, 1:] = m_[-1, 1:] + {A} * 0.1
{A} = {A} + (m_[:, 0] * m_[:, 1]).sum() + top_[2]
""",
    """
m_, order_ = [[w, 0.5 - w, {K}] for w in {W}], list(range({N}))
for i in range(1, {N}):
    p_ = i - 1
    if m_[i][0] < m_[p_][0]:
        m_[p_], m_[i] = m_[i], m_[p_]
        order_[p_], order_[i] = order_[i], order_[p_]
    if order_[i] > i and m_[i][1] > 0.1:
        break
{A} = {A} + sum({W}[at] * m_[i][1] for i, at in enumerate(order_)) + order_[0]
""",
)
