"""Every position with every other, and the last one, as lines of generated programs.

A call with fewer tokens is no beginning of a longer one here. The words in braces are those of
``fuzz_idioms``.
"""

ATTENTION = (
    """
xs_ = [{W}[{AT}] for t in {TS}]
for a_ in xs_:
    ws_ = [exp(a_ * b_) for b_ in xs_]
    total_ = sum(ws_)
    {A} = {A} + sum(w_ * b_ for w_, b_ in zip(ws_, xs_)) / total_
""",
    """
xs_ = [[{W}[{AT}], {W}[(t + 1) % {N}] * 0.5] for t in {TS}]
for a_ in xs_:
    for b_ in xs_:
        {A} = {A} + tanh(sum(u_ * v_ for u_, v_ in zip(a_, b_)))
""",
    """
xs_ = [{W}[{AT}] * 0.5 for t in {TS}]
for i_ in range(len(xs_)):
    for j_ in range(i_):
        {A} = {A} + exp(-((xs_[i_] - xs_[j_]) ** 2))
""",
    """
xs_ = [tanh({W}[{AT}]) for t in {TS}]
if xs_:
    ws_ = [exp(xs_[-1] * x_) for x_ in xs_]
    {A} = {A} + sum(w_ * x_ for w_, x_ in zip(ws_, xs_)) / sum(ws_)
""",
    """
xs_ = [{W}[{AT}] + 0.1 * i_ for i_, t in enumerate({TS})]
hs_ = []
for i_ in range(len(xs_)):
    ws_ = [exp(xs_[i_] * x_) for x_ in xs_[: i_ + 1]]
    hs_.append(xs_[i_] + sum(w_ * x_ for w_, x_ in zip(ws_, xs_)) / sum(ws_))
{A} = {A} + hs_[-1] ** 2 if hs_ else {A}
""",
    """
xs_ = [{W}[{AT}] for t in {TS}]
rows_ = [[exp(a_ - b_) for b_ in xs_] for a_ in xs_]
for j_ in range(len(xs_)):
    {A} = {A} + rows_[j_][j_] / sum(row_[j_] for row_ in rows_)
""",
    """
xs_ = [{W}[{AT}] for t in {TS}]
{A} = {A} + sum(max(abs(a_ - b_) for b_ in xs_) for a_ in xs_) / (1 + len(xs_))
""",
    """
xs_ = [{W}[{AT}] for t in {TS}]
for i_, a_ in enumerate(xs_):
    for j_, b_ in enumerate(xs_):
        if i_ != j_:
            {A} = {A} + a_ * b_ / (1.0 + abs(i_ - j_))
""",
)
