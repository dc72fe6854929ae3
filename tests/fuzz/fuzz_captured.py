"""Subjects around objects of the standard library: ordered dicts, caches, dates."""

from __future__ import annotations

from fuzz_drawing import Datum, Draw, Subject


def _given(draw: Draw, keys: list[object]) -> str:
    """An OrderedDict, or a dict, with some keys in any order."""
    order = draw.rng.sample(keys, len(keys)) if draw.chance(0.5) else keys
    pairs = ", ".join(f"({key!r}, {draw.number()})" for key in order)
    return f"{'dict' if draw.chance(0.15) else 'OrderedDict'}([{pairs}])"


def ordered(draw: Draw) -> Subject:
    """An OrderedDict of the module, and one that is built inside: their order is seen."""
    n = draw.size(3, 5)
    p = draw.parameters(w=(n,))
    keys = draw.rng.sample(["a", "b", "c", "d"] if draw.chance(0.5) else [0, 1, 2, 3], 3)
    pairs = ", ".join(f"({key!r}, {draw.number()})" for key in keys)
    module = f"ORDER = OrderedDict([{pairs}])"
    if draw.chance(0.3):
        module = f"ORDER = OrderedDict()\nfor k in {keys!r}:\n    ORDER[k] = len(ORDER) * 0.5"
    words = {"W": p.path("w"), "N": n, "FIRST": repr(keys[0]), "LAST": repr(keys[-1])}
    outside = """
<<for k, (name, rate) in enumerate(ORDER.items()):
    loss = loss * <<0.5||0.9>> + rate * {W}[k % {N}]
||for k, name in enumerate(<<ORDER||reversed(ORDER)||list(ORDER)||ORDER.keys()>>):
    loss = loss * 0.5 + ORDER[name] * {W}[(k + tokens[0]) % {N}]
||loss = loss + ORDER[{FIRST}] * {W}[0] + ORDER.get({LAST}, 0.5) * {W}[-1] + len(ORDER)
||loss = loss + {W}[0] * next(iter(ORDER.values())) + sum(ORDER.values())
||if <<{LAST} in ORDER||next(iter(ORDER)) == {FIRST}||list(ORDER)[-1] == {LAST}>>:
    loss = loss + {W}[0] * ORDER[<<{LAST}||next(reversed(ORDER))>>]
||loss = loss + (2.0 if ORDER == OrderedDict([({FIRST}, 0.5)]) else 1.0) * {W}[-1]>>
"""
    inside = """
seen = OrderedDict()
for k, t in enumerate(tokens):
    <<seen[t] = {W}[k % {N}]||seen[t] = seen.get(t, 0.0) + {W}[t % {N}]||seen.setdefault(t, []).append({W}[k % {N}])\
||if t in seen:
        seen.move_to_end(t<<||, last=False>>)
    seen[t] = {W}[t % {N}] * k\
||seen[t] = k * {W}[0]
    if len(seen) > 2:
        seen.popitem(<<last=False||>>)>>
for k, (t, v) in enumerate(seen.items()):
    loss = loss * 0.5 + (sum(v) if isinstance(v, list) else v) * (k + 1) + 0.1 * t
"""  # noqa: E501
    passed = """
<<for k, (name, rate) in enumerate(given.items()):
    loss = loss * <<0.5||0.9>> + rate * {W}[k % {N}]
||for k, name in enumerate(<<given||reversed(given)||list(given)||given.keys()>>):
    loss = loss * 0.5 + given[name] * {W}[(k + tokens[0]) % {N}]
||loss = loss + (2.0 if given == ORDER else 1.0) * {W}[-1] * given[{FIRST}]
||loss = loss + {W}[0] * given[{LAST}] * (2.0 if type(given) is OrderedDict else 1.0)>>
"""
    changed = """
<<given.move_to_end(<<{FIRST}||{LAST}>><<||, last=False>>)
loss = loss + {W}[0] * next(iter(given.values()))
||loss = loss + {W}[0] * given.popitem(<<||last=False>>)[1] + len(given)
||given[<<{FIRST}||9>>] = given[{LAST}] * 0.5
loss = loss + {W}[-1] * next(<<iter||reversed>>(given.values()))>>
"""
    is_passed = draw.mode != "map" and draw.chance(0.5)
    if is_passed:
        shown = draw.mode in ("value_and_grad", "call", "values")  # what becomes of arguments
        parts = [passed, passed + outside, *[changed, changed + passed] * shown]
    else:
        parts = [outside, inside, outside + inside]
    body = "loss = {W}[0]\n" + draw.rng.choice(parts)
    events = ["ORDER.move_to_end(next(iter(ORDER)))", "ORDER.move_to_end([*ORDER][-1], last=False)"]
    events += [f"ORDER[{keys[1]!r}] = {draw.number()}", f"ORDER[9] = {draw.number()}"]
    events += ["ORDER[0.5] = ORDER.popitem(last=False)[1]", "ORDER = OrderedDict(ORDER)"]
    events += [f"ORDER[{keys[0]!r}] = ORDER.pop({keys[0]!r}, 0.25)"]
    data = [draw.tokens("tokens", n - 1, 1, 5)]
    if is_passed:
        data.append(Datum("given", lambda: _given(draw, keys)))
    return Subject(module, draw.spelled(body, **words), p, data, events)


CACHED = """
{SCALE} = 0.5


@functools.<<lru_cache||lru_cache(maxsize=None)||lru_cache(maxsize=2)||cache>>
def factor(n):
    <<return {SCALE} * (n + 1)||return 1.0 if n < 2 else factor(n - 1) * 0.7 + {SCALE} * n\
||return {SCALE} * n + 0.25||return math.sqrt(n + 1.0) * {SCALE}\
||LOG.append(n)
    return n * {SCALE}||return [0.5, {SCALE}, -1.0, 2.0][n % 4]>>


@functools.<<lru_cache(maxsize=4)||cache>>
def combined(n, k<<||=1>>):
    <<return math.comb(n + 2, k % 3)||return (n * 3 + k) % 4||return factor(n) * k>>


@functools.lru_cache
def scaled(x):
    return <<x * x||math.tanh(x)||x if x > 0 else 0.1 * x||round(x, 1)>>
"""
CALLED_BY_TOKENS = """for <<k, t in enumerate(tokens):||k in range(len(tokens)):
    t = tokens[k]>>
    <<if factor(t) > 0.6:
        <<continue||loss = loss * 0.5>>
    ||if combined(t, 1) % 2:
        loss = loss + {W}[-1]
    ||>>loss = loss + <<factor(t) * {W}[t % {N}]||{W}[int(combined(t, k)) % {N}]||combined(t, 2) * {W}[0]\
||scaled(x) * {W}[k % {N}]||factor(int(t)) * scaled(x * 0.5) * {W}[-1]>>"""  # noqa: E501
CALLED_IN_BRANCHES = """if <<x > 0||{W}[0] > x||loss > 0.5>>:
    loss = loss + <<factor(len(tokens))||factor(1)||factor(3)||scaled(x)>> * {W}[0]
else:
    loss = loss * <<factor(2)||factor(0)||factor(tokens[-1])||combined(1, 2)>>"""


def cached(draw: Draw) -> Subject:
    """Helpers with caches, of integers and of data; a global that they read may change."""
    n = draw.size(2, 4)
    p = draw.parameters(w=(n,))
    body = draw.spelled(
        """
loss = {W}[0]
<<{LOOP}||{BRANCH}||{LOOP}
{BRANCH}>>
<<loss = loss * scaled(x)||loss = loss + factor(len(tokens)) * {W}[0]\
||loss = loss + factor.cache_info().currsize * {W}[-1]||||>>
""",
        W=p.path("w"),
        N=n,
        LOOP=CALLED_BY_TOKENS,
        BRANCH=CALLED_IN_BRANCHES,
    )
    events = ["factor.cache_clear()"] * 3 + ["combined.cache_clear()"]
    events += [f"RATE_ = {draw.number()}" for _ in range(3)]
    high, longest = draw.rng.choice([(4, 5), (2, 2), (1, 1)])  # few tokens: the same come again
    data = [draw.tokens("tokens", high, 1, longest), draw.real("x")]
    return Subject(draw.spelled(CACHED, SCALE="RATE_"), body, p, data, events, often=0.4, again=0.5)


def dates(draw: Draw) -> Subject:
    """Dates as arguments: days between them, months and days of the week."""
    p = draw.parameters(rates=(3,), month=(12,), weekday=(7,))
    several = draw.chance(0.4)
    words = {name.upper(): p.path(name) for name in p.shapes}
    words["ONE"] = """<<days = (end - start).days||days = end.toordinal() - start.toordinal()\
||days = (end - start) / datetime.timedelta(days=1)||days = (end - start).total_seconds() / 86400>>
<<years = days / 365||years = days / 365.25||years = (end.year - start.year) + (end.month - start.month) / 12>>
loss = loss + <<exp(-{RATES}[0] * years * 0.1)||{RATES}[0] * years + {RATES}[1] * years ** 2 * 0.01||{RATES}[int(days) % 3] * 0.5>>
<<loss = loss + {MONTH}[end.month - 1] * {WEEKDAY}[start.weekday()]||if end.weekday() >= 5:
    loss = loss + {WEEKDAY}[end.weekday()]||if end.month in (6, 7, 8):
    loss = loss * 1.1 + {MONTH}[start.month - 1]||if <<start < datetime.date(2024, 6, 1)||start > end||start.year == end.year>>:
    loss = loss * 0.5||loss = loss + {RATES}[2] * (1 if start.month == end.month else start.day / 31)\
||end = end + datetime.timedelta(days=<<5||int(days) % 7>>)
loss = loss + {MONTH}[end.month - 1]||loss = loss + {WEEKDAY}[end.isoweekday() - 1]||>>"""  # noqa: E501
    body = draw.spelled("loss = {RATES}[1]\n{ONE}", **words)
    if several:
        lines = draw.spelled(words["ONE"], **words).replace("\n", "\n    ")
        head = "<<for end in days_:||for k, end in enumerate(days_):||for end in sorted(days_):>>"
        body = draw.spelled("loss = {RATES}[1]\n" + head, **words) + "\n    " + lines

    months = draw.rng.choice([[2], [6, 12], list(range(1, 13))])  # few: some dates come again

    def date() -> str:
        year = draw.rng.choice([2024, 2024, 2024, 2020, 2025] if len(months) > 2 else [2024])
        return f"datetime.date({year}, {draw.rng.choice(months)}, {draw.size(1, 28)})"

    def some() -> str:
        return f"[{', '.join(date() for _ in range(draw.size(1, 4)))}]"

    second = Datum("days_", some) if several else Datum("end", date)
    return Subject("", body, p, [Datum("start", date), second])
