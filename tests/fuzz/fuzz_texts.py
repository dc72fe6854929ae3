"""Lines that read a text, by its characters and as a whole; places are as in ``fuzz_idioms``."""

TEXTS = (
    """
for c in {S}:
    {A} = {A} + {W}[{"a": 0, "b": 1, "l": 2, "r": 1, "i": 3}[c] % {N}]
""",
    """
codes = {c: k for k, c in enumerate(".abilr")}
for a, b in zip("." + {S}, {S} + "."):
    {A} = {A} + {W}[codes[a] % {N}] * {W}[codes[b] % {N}]
""",
    """
ids = [0] + [ord(c) - ord("a") for c in {S}] + [0]
{A} = {A} + sum({W}[i % {N}] * (k + 1) for k, i in enumerate(ids))
""",
    """
vowels = 0
for c in {S}:
    if c in "aeiou":
        vowels += 1
        {A} = {A} * 0.5 + {W}[vowels % {N}]
""",
    """
{A} = {A} + sum({W}["abilr".index(c) % {N}] - {W}["br".find(c) % {N}] for c in {S})
""",
    """
{A} = {A} + sum({W}[["l", "a", "b", "r", "i"].index(c) % {N}] for c in reversed({S}))
""",
    """
table = {("a", "b"): 0.5, ("b", "a"): -1.5, ("a", "a"): 2.0}
for a, b in zip({S}, {S}[1:]):
    {A} = {A} + table.get((a, b), 0.25) * {W}[0] + ((a, b) in table)
""",
    """
last = "."
for c in {S}[::-1]:
    {A} = tanh({A}) if c == last else {A} + {W}[ord(c) * 31 % {N}]
    last = c
""",
    """
total = {"abba": 1, "rail": 2, "a": 3}.get({S}, 0)
{A} = {A} + {W}[total % {N}] * ({S} in ("ball", "lara")) + len({S})
""",
    """
counts_ = {}
for c in {S}:
    counts_[c] = counts_.get(c, 0) + 1
{A} = {A} + sum({W}[ord(c) % {N}] * k for c, k in counts_.items())
""",
    """
h = 7
for k in range(len({S})):
    h = (h * 31 + ord({S}[k])) % 1009
{A} = {A} + {W}[h % {N}] * {W}[ord({S}[({I}) % len({S})]) % {N}]
""",
    """
for c in {S}:
    if c == "l":
        break
    {A} = {A} + {W}[ord(c) % {N}] * (1.5 if c < "b" else 0.5)
""",
    """
try:
    {A} = {A} + {W}[{"a": 0, "b": 1}[{S}[0]] % {N}]
except KeyError:
    {A} = {A} - 1.0
""",
    """
{A} = {A} + {W}[len("".join(sorted({S}))) % {N}] + {W}[len(f"{{S}}!") % {N}] * {S}.startswith("a")
""",
    """
{A} = {A} + sum({W}[i % {N}] for i in map(ord, {S} * 2)) if {S} != "lara" else {A} * 2
""",
    """
first, *rest = {S}
later = [c for c in rest if isinstance(c, str) and c > first]
{A} = {A} + {W}[ord(first) % {N}] - sum({W}[ord(c) % {N}] for c in later)
""",
)
