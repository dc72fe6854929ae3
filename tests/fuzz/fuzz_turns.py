"""Loops with a run-time end, and helpers with several returns, as lines of generated programs.

The words in braces are those of ``fuzz_idioms``.
"""

TURNS = (
    """
for turn in range(({I}) % 6):
    {A} = {A} * 0.9 + {W}[turn % {N}]
""",
    """
last_ = -1
for last_ in range(({I}) % 4, ({I}) % 9):
    {A} = {A} + {W}[0] / (last_ + 1.0)
{A} = {A} * (last_ + 2)
""",
    """
for left_ in range(({I}) % 7, 0, -1):
    {A} = tanh({A} + {W}[-1] / left_)
""",
    """
for turn, x in zip(range(({I}) % 5), [0.5, -1.0, 0.25]):
    {A} = {A} + x * {W}[turn % {N}] if turn else {A} - x
""",
    """
x_, turns = abs({W}[0]) + 0.5, 0
while x_ < 4.0 and turns < 12:
    x_ = x_ * 1.5 + abs({W}[-1])
    turns += 1
{A} = {A} + x_ * turns
""",
    """
rest = abs({W}[0]) + 1.0
while rest > 0.2:
    {A} = {A} + 0.1 * log(rest) + 0.01 / rest
    rest = rest - 0.3
""",
    """
x_ = {W}[0] * 1.0
while True:
    x_ = x_ + 0.4
    if x_ > {K}:
        break
    if x_ < 0:
        continue
    {A} = {A} + sqrt(x_ + 0.01)
{A} = {A} + x_
""",
    """
for low_, high_ in [(-9.0, -0.5), (-0.5, 0.5), (0.5, 1.5)]:
    if low_ <= {W}[0] < high_:
        found_ = {W}[0] - low_
        break
else:
    found_ = {W}[-1] * 2
{A} = {A} + found_
""",
    """
count_ = ({I}) % 5
while count_ > 0:
    inner_ = 0.1
    while inner_ < abs({W}[count_ % {N}]):
        inner_ = inner_ * 2
    {A} = {A} + inner_
    count_ -= 1
""",
    """
marks = [0.5, 1.0, {W}[0]]
for turn in range(({I}) % 6):
    marks[turn % 3] = marks[turn % 3] * 0.5 + marks[0]
    if marks[0] > 2.0:
        break
{A} = {A} + sum(marks)
""",
    """
def clipped_(x):
    if x > 1.0:
        return 1.0 + 0.1 * x
    if x < -1.0:
        return -1.0
    y = x * x
    return y * x

for w in {W}:
    {A} = {A} + (clipped_(w) if w < 2.0 else clipped_(w - 2.0) * 0.5)
""",
    """
def between_(a, b, depth):
    m = (a + b) / 2
    if depth == 0 or abs(a - b) < 0.4:
        return m
    return between_(a, m, depth - 1) * 0.5 + between_(m, b, depth - 1) * 0.5

{A} = {A} + between_({W}[0], {W}[-1], 3)
""",
    """
items_ = iter([0.5, 1.0, 1.5, 2.0])
for x in items_:
    {A} = {A} + x * {W}[0]
    if {A} > {K}:
        break
{A} = {A} + sum(items_)
""",
)

DATA_TURNS = (
    """
reached = 0.0
for x in {XS}:
    if reached + abs(x) > 1.5:
        break
    reached = reached + abs(x)
{A} = {A} + reached * {W}[0]
""",
    """
level_, days = {X}, 0
while level_ > -2.0 and days < 9:
    level_ = level_ - 0.7
    days += 1
{A} = {A} + level_ * {W}[0] + days
""",
)
