"""Random programs with structure: loops, sums, matrix products, recurrences, gathers, windows.

In: a seeded ``random.Random``. Out: the text of a function ``f(params, ids, label)`` of vectors p
(7) and q (4), matrices A (4 x 5) and B (5 x 3), three integers, and one more.
"""

import random

HEADER = """\
from chainrule import (Value, dot, exp, gelu, linear, log, maximum, relu, sigmoid, sin, softplus,
                       sqrt, tanh, vsum, where)


def f(params, ids, label):
    p, q, A, B = params
"""

ONE = """\
tanh(x); x * x; exp(x * 0.3); relu(x); sigmoid(x); x + 0.5; x * -1.5; (x * x + 1.0) ** -0.5; -x
x / 3; sqrt(x * x + 0.1); log(x * x + 1.0); 2.0 - x; 1.0 / (x * x + 1.0); softplus(x)
gelu(x); sin(x); x * label; x ** 3 * 0.1
where(x > 0.1, x, x * 0.2); (x - x.data) * x.data; maximum(x, 0.3)""".replace("\n", ";")
TWO = """\
x * y; x + y; x - y; x * y + x; maximum(x, y); x / (y * y + 1.0); x * y + y * y + x
x * y - y * 0.5 + 2 * x; where(x > y, x * y, y)""".replace("\n", ";")


class Writer:
    """Writes one random program over vectors and matrices, a line or two at a time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.vectors = {"p": 7, "q": 4}
        self.matrices = {"A": (4, 5), "B": (5, 3)}
        self.scalars: list[str] = []
        self.made = 0

    def fresh(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def one(self) -> str:
        return self.rng.choice(ONE.split(";")).strip()

    def two(self) -> str:
        return self.rng.choice(TWO.split(";") * 2 + ONE.split(";")).strip()

    def at(self, i: str, count: int, size: int) -> str:
        """An index below ``size`` for i below ``count``."""
        shift = self.rng.randrange(size)
        choices = [f"{i} % {size}", f"({i} + {shift}) % {size}", f"({i} * 3) % {size}", str(shift)]
        choices.append(f"{size} - 1 - {i} % {size}")
        if count <= size:
            choices += [i] * 4 + [f"{size - 1} - {i}", f"{i} + {size - count}"]
        return self.rng.choice(choices)

    def vector(self, text: str, size: int) -> str:
        name = self.fresh("v")
        self.lines.append(f"{name} = {text}")
        self.vectors[name] = size
        return name

    def matrix(self, text: str, rows: int, columns: int) -> None:
        name = self.fresh("m")
        self.lines.append(f"{name} = {text}")
        self.matrices[name] = rows, columns

    def scalar(self, *lines: str) -> None:
        name = self.fresh("s")
        self.lines += [line.replace("TOTAL", name) for line in lines]
        self.scalars.append(name)

    def step(self) -> None:
        rng = self.rng
        (a, n), (b, m) = (rng.choice(list(self.vectors.items())) for _ in range(2))
        M, (rows, columns) = rng.choice(list(self.matrices.items()))
        i, j = self.at("i", n, m), self.at("j", columns, n)
        pairs = f"zip({a}, [{b}[{i}] for i in range({n})])"
        kind = rng.choice(KINDS)
        if kind == "map":
            self.vector(f"[{self.one()} for x in {a}]", n)
        elif kind == "map2":
            self.vector(f"[{self.two()} for x, y in {pairs}]", n)
        elif kind == "reduce":
            self.scalar(f"TOTAL = {rng.choice(('sum', 'vsum'))}({self.one()} for x in {a})")
        elif kind == "matvec":
            self.vector(f"[sum(r[j] * {a}[{j}] for j in range({columns})) for r in {M}]", rows)
        elif kind == "helper" and n >= columns:
            text = f"linear({a}[:{columns}], {M})", f"[dot(r, {a}[:{columns}]) for r in {M}]"
            self.vector(rng.choice(text), rows)
        elif kind == "matmul":
            N, (inner, width) = rng.choice(list(self.matrices.items()))
            inner = min(inner, columns)
            if rows * inner * width < 400:
                each = f"sum({M}[i][k] * {N}[k][j] for k in range({inner}))"
                self.matrix(
                    f"[[{each} for j in range({width})] for i in range({rows})]", rows, width
                )
        elif kind == "outer" and n * m <= 60:
            self.matrix(f"[[{self.two()} for y in {b}] for x in {a}]", n, m)
        elif kind == "gather" and n >= 4:
            self.vector(f"[{a}[t] for t in ids]", 3)
        elif kind == "rows" and rows >= 4:
            self.matrix(f"[{M}[t] for t in ids]", 3, columns)
        elif kind == "sums":
            self.vector(f"[sum(r) for r in {M}]", rows)
            self.vector(f"[sum(r[j] for r in {M}) for j in range({columns})]", columns)
        elif kind == "softmax":
            es = self.vector(f"[exp(x - max(y.data for y in {a})) for x in {a}]", n)
            self.vector(f"[x / sum({es}) for x in {es}]", n)
        elif kind == "turned":
            self.matrix(f"[[r[j] for r in {M}] for j in range({columns})]", columns, rows)
            self.matrix(f"[r[::-1] for r in {M}[::-1]]", rows, columns)
        elif kind == "loop":
            name = self.vector(a, n)
            self.lines.append(f"for _ in range({rng.randint(2, 4)}):")
            self.lines.append(f"    {name} = [tanh({self.two()}) for x, y in zip({name}, {a})]")
        elif kind == "prefix":
            self.vector(f"[sum({a}[:k + 1]) for k in range({n})]", n)
        elif kind == "causal":
            each = f"{a}[i] * {b}[{i}]"
            self.vector(f"[sum({each} for i in range(k + 1)) for k in range({n})]", n)
        elif kind == "convolve":
            size = rng.randint(1, min(3, n, m))
            each = f"sum({a}[k + d] * {b}[d] for d in range({size}))"
            self.vector(f"[{each} for k in range({n - size + 1})]", n - size + 1)
        elif kind == "slice":
            step = rng.choice((2, 3, -1, -2))
            self.vector(f"{a}[::{step}]", -(-n // abs(step)))
        elif kind == "concat" and n + m < 40:
            self.vector(f"[*{a}, *{b}]", n + m)
        elif kind == "manual":
            start = rng.choice(("0", "0.0", "Value(0.0)", "1.0"))
            add = f"    TOTAL = TOTAL + {self.two()}"
            self.scalar(f"TOTAL = {start}", f"for x, y in {pairs}:", add)
        elif kind == "mixed":
            more = rng.choice(("    TOTAL -= x * 0.5", f"    TOTAL += {a}[0] * y"))
            loop = f"for x, y in {pairs}:"
            self.scalar(
                f"TOTAL = {a}[0] * {b}[0]", loop, "    TOTAL += x * y", "    TOTAL += y", more
            )
        elif kind == "shared":
            self.scalar(f"TOTAL = {a}[0] * {b}[0]")
            t = self.scalars[-1]
            self.vector(f"[x * {t} + {t} for x in {a}]", n)
        elif kind == "recur":
            self.scalar(f"TOTAL = {a}[0]", f"for x in {b}:", "    TOTAL = tanh(TOTAL * 0.5 + x)")

    def source(self) -> str:
        for _ in range(self.rng.randint(3, 9)):
            self.step()
        parts = [f"sum({self.rng.choice(list(self.vectors))})" for _ in range(2)]
        parts += [
            f"sum({list(self.vectors)[-1]})",
            f"sum(sum(r) for r in {list(self.matrices)[-1]})",
        ]
        parts += self.scalars[-2:]
        weighted = [f"({part}) * {round(self.rng.uniform(0.1, 1), 2)}" for part in parts]
        return HEADER + "".join(
            f"    {x}\n" for x in [*self.lines, "return " + " + ".join(weighted)]
        )


KINDS = """map map2 reduce matvec helper matmul outer gather rows sums softmax turned loop prefix
causal convolve slice concat manual mixed shared recur""".split()
