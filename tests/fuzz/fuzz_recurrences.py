"""Recurrences over tokens, long enough for a loop in time, as lines of generated programs.

The tokens go around several times, so that calls with one token more or less have loops of which
one is longer. The words in braces are those of ``fuzz_idioms``.
"""

_STEP = "[tanh({W}[{AT}] + 0.5 * h_[0] - h_[1]), tanh(h_[0] * {W}[0] + h_[1] * {W}[-1])]"

RECURRENCES = (
    f"""
h_ = [0.1, 0.2]
for t in [*{{TS}}, *{{TS}}, *{{TS}}, *{{TS}}, *{{TS}}]:
    h_ = {_STEP}
    {{A}} = {{A}} + h_[1] * 0.1
""",
    f"""
h_ = [{{W}}[0] * 0.5, 0.2]
for t in list({{TS}}) * 6:
    h_ = {_STEP}
{{A}} = {{A}} + h_[0] * h_[1]
""",
    f"""
h_, count_ = [0.0, 0.0], 0
for t in list({{TS}}) * 5:
    {{A}} = {{A}} + exp(h_[0]) / (1.0 + count_)
    h_, count_ = {_STEP}, count_ + 1
{{A}} = {{A}} / (1 + len({{TS}}))
""",
    f"""
h_, states = [0.3, -0.1], []
for t in list({{TS}}) * 5:
    h_ = {_STEP}
    states.append(h_)
{{A}} = {{A}} + sum(a * b for a, b in states) + states[-1][0] * states[-2][1] if states else {{A}}
""",
    f"""
h_ = [0.3, -0.1]
for t in list({{TS}}) * 4:
    h_ = {_STEP}
seen_ = h_
for t in list({{TS}}) * 4:
    h_ = [tanh(x + 0.5 * y) for x, y in zip({_STEP}, seen_)]
    {{A}} = {{A}} + h_[0]
""",
    f"""
h_, mean_ = [0.3, -0.1], 0.0
for t in list({{TS}}) * 5:
    h_ = {_STEP}
    mean_ = mean_ * 0.9 + h_[0] * 0.1
    {{A}} = {{A}} + (h_[1] - mean_) ** 2
{{A}} = {{A}} + mean_ * len({{TS}})
""",
)
