"""Statements of generated programs: lines of a function's body, indented by the caller.

Loops over tokens, counters, branches, slices, try, early returns, and effects (prints, a log, a
global counter, arguments that are changed). Every function has an accumulator, ``total`` or the
like, that most statements add to, so that what is computed is seen in the result.
"""

from __future__ import annotations

import re
from dataclasses import replace

from fuzz_classes import USES
from fuzz_expressions import Expressions
from fuzz_idioms import IDIOMS
from fuzz_scope import Scope, Type, item

VALUE = Type("value")
FLOAT = Type("float")
COUNTER = Type("int", low=-1000, high=1000)
ALL = (*IDIOMS, *USES)
PLACE = re.compile(r"\{([A-Z]+)\}")


def indent(lines: list[str]) -> list[str]:
    """One level deeper."""
    return [f"    {line}" for line in lines]


class Statements(Expressions):
    """Writes statements that add to the accumulator."""

    def __init__(self, scope: Scope, accumulator: str, extras: bool = False) -> None:
        super().__init__(scope)
        self.accumulator = accumulator
        self.extras = extras  # the function returns (loss, extras)
        self.constants = False  # True where only data may be returned

    def body(self, count: int, depth: int = 2) -> list[str]:
        """Some statements in a row."""
        lines: list[str] = []
        for _ in range(count):
            lines += self.statement(depth)
        return lines

    def over_tokens(self) -> list[str]:
        """A loop, or lines that are known from many programs."""
        lines = self._idiom(1) if self.chance(0.6) else None
        return lines if lines is not None else self._loop(1)

    def statement(self, depth: int) -> list[str]:
        """One statement, of one or more lines."""
        options = [
            (6, "accumulate"),
            (2, "value"),
            (1.5, "integer"),
            (1, "number"),
            (2, "count"),
            (1.5, "sequence"),
            (1, "slice"),
            (0.6, "row"),
            (0.5, "walrus"),
            (0.4, "memo"),
            (0.3, "key"),
            (5 if self.scope.focus else 3, "idiom"),
        ]
        if self.scope.effects:
            options += [(0.4, "print"), (0.8, "log"), (0.4, "tally"), (1, "mutate")]
        if self.scope.loops:
            options += [(0.8, "leave")]
        elif not self.constants:
            options += [(0.4, "early")]
        if depth > 0:
            options += [
                (5, "loop"),
                (3, "branch"),
                (0.8, "while"),
                (0.6, "attempt"),
                (0.8, "graph"),
            ]
        lines: list[str] | None = getattr(self, f"_{self.scope.pick(options)}")(depth - 1)
        return lines if lines is not None else self._accumulate(depth - 1)

    # --- simple ones ------------------------------------------------------------------------------

    def _accumulate(self, depth: int) -> list[str]:
        a, term = self.accumulator, self.value(2)
        if self.chance(0.15):
            return [f"{a} = tanh({a} + {term})"]
        if self.chance(0.1):
            return [f"{a} = {a} * 0.5 - {term}"]
        return [self.rng.choice([f"{a} = {a} + {term}", f"{a} += {term}"])]

    def _value(self, depth: int) -> list[str]:
        name = self.scope.fresh("a", "b", "h", "z", "gate", "score", "hidden")
        line = f"{name} = {self.value(2)}"
        self.scope.add(name, VALUE)
        return [line]

    def _integer(self, depth: int) -> list[str]:
        i = self.int(2)
        name = self.scope.fresh("i", "j", "k", "n", "position", "index", "slot")
        self.scope.add(name, Type("int", low=i.low, high=i.high))
        return [f"{name} = {i.text}"]

    def _number(self, depth: int) -> list[str]:
        name = self.scope.fresh("x", "y", "rate", "weight", "decay")
        line = f"{name} = {self.float(2)}"
        self.scope.add(name, FLOAT)
        return [line]

    def _count(self, depth: int) -> list[str]:
        """A counter: made outside of loops, changed inside."""
        counters = [name for name in self.scope.of("int") if name.assignable]
        if counters and (self.scope.loops or self.chance(0.3)):
            n = self.rng.choice(counters).text
            step = self._int_read(0) if self.chance(0.5) else self.int(1)
            text = "1" if step is None or self.chance(0.3) else step.text
            lines = [f"{n} += {text}"] if self.chance(0.8) else [f"{n} = ({n} + {text}) % 5"]
            if self.chance(0.4):
                return [f"if {self.bool(0)}:", *indent(lines)]
            return lines
        if self.scope.loops:
            return self._accumulate(depth)
        name = self.scope.fresh("n", "seen", "count", "matches")
        self.scope.add(name, COUNTER, assignable=True)
        return [f"{name} = 0"]

    def _sequence(self, depth: int) -> list[str] | None:
        source = self.some("values", "ints", "floats", "varray")
        if source is None or source.type.length < 1:
            return None
        name = self.scope.fresh("items", "parts", "states", "terms", "outputs")
        kind = source.type.kind
        with self.scope.block(loop=True):
            variable = self.scope.fresh("v", "t", "e", "item")
            self.scope.add(variable, item(source.type))
            element = self.value(1)
            condition = f" if {self.bool(0)}" if self.chance(0.2) else ""
        length = 0 if condition else source.type.length
        fixed = source.type.fixed and not condition
        lines = [f"{name} = [{element} for {variable} in {source.text}{condition}]"]
        if kind == "ints" and self.chance(0.2):
            lines = [f"{name} = []", f"for {variable} in {source.text}:"]
            lines += indent([f"{name}.append({element})"])
            length, fixed = source.type.length, source.type.fixed
        self.scope.add(name, Type("values", length, fixed=fixed))
        return lines

    def _slice(self, depth: int) -> list[str] | None:
        source = self.some("values", "ints", "floats", "varray", "farray", "bools")
        if source is None:
            return None
        i, j = self.int(1).text, self.int(1).text
        cut = self.rng.choice(
            [f"{i}:{j}", f"{i}:", f":{j}", "::-1", "1:", ":-1", f"slice({i}, {j})", "::2", "-2:"]
        )
        name = self.scope.fresh("window", "part", "tail", "head", "chunk")
        self.scope.add(name, replace(source.type, length=0, fixed=False))
        lines = [f"{name} = {source.text}[{cut}]"]
        if source.type.kind in ("values", "varray"):
            a = self.accumulator
            test = f"len({name})" if source.type.kind == "varray" else name
            use = self.rng.choice([f"{name}[0] * 3 + {name}[-1]", f"sum({name})", f"{name}[0]"])
            if self.chance(0.5):
                lines.append(f"{a} = {a} + ({use} if {test} else 0.5)")
            else:
                lines += [f"if {test}:", f"    {a} = {a} + {use}"]
        return lines

    def _row(self, depth: int) -> list[str] | None:
        source = self.some("matrix", "vmatrix", "table", "rows")
        if source is None:
            return None
        name = self.scope.fresh("row", "line", "neighbours", "vector")
        i = self.index(source.type.length)
        self.scope.add(name, item(source.type))
        return [f"{name} = {source.text}[{i}]"]

    def _walrus(self, depth: int) -> list[str]:
        a = self.accumulator
        if self.chance(0.5):
            i = self.int(1)
            name = self.scope.fresh("m", "k", "found")
            test = f"({name} := {i.text}) > {self.rng.randint(0, 2)}"
            with self.scope.block():
                self.scope.add(name, Type("int", low=i.low, high=i.high))
                inner = self._accumulate(0)
            return [f"if {test}:", *indent(inner)]
        name = self.scope.fresh("u", "best", "peak")
        test = f"({name} := {self.value(1)}) > {self.rng.choice(['0', '0.25'])}"
        return [f"if {test}:", f"    {a} = {a} + {name} * {self.float(0)}"]

    def _memo(self, depth: int) -> list[str]:
        """A dictionary of this call, by integer or by text."""
        a = self.accumulator
        name = self.scope.fresh("memo", "cache", "table")
        i, j = self.int(1).text, self.int(1).text
        lines = [f"{name} = {{{i}: {self.value(1)}}}"]
        if self.chance(0.5):
            lines.append(f"{name}[{j}] = {self.value(1)}")
        use = self.rng.choice([f"{name}.get({j}, 0.25)", f"sum({name}.values())", f"len({name})"])
        return [*lines, f"{a} = {a} + {use}"]

    def _key(self, depth: int) -> list[str] | None:
        """Text made of integers, and compared."""
        name = self.scope.fresh("key", "label", "word")
        i = self.int(0).text
        line = self.rng.choice([f'{name} = f"w{{{i}}}"', f"{name} = str({i}) + '!'"])
        self.scope.add(name, Type("str"))
        a = self.accumulator
        return [line, f"if {name} in ('w1', '1!', 'w0'):", f"    {a} = {a} + {self.value(1)}"]

    def _idiom(self, depth: int) -> list[str] | None:
        """A few lines as they stand in many programs, filled with names that are there."""
        tokens, weights = self.some("ints"), self.some("values", "varray")
        if tokens is None or weights is None or weights.type.length < 1 or self.scope.loops:
            return None
        t, n = tokens.type, weights.type.length
        tables = [name for name in self.scope.of("ints", "bools") if name.type.length > t.high]
        tables = [name for name in tables if name.weight == 1.0] or tables  # of the module
        flags = self.scope.choose(tables).text if tables and t.low >= 0 else "[1, 0, 0, 1, 0, 1, 1]"
        self.scope.used |= {"seen", "last", "state", "stack", "run", "n"}
        at = "t" if t.low >= -n and t.high < n else f"t % {n}"
        words = {"A": self.accumulator, "TS": tokens.text, "W": weights.text, "AT": at}
        words |= {"N": str(n), "K": str(self.rng.randint(1, 3)), "I": self.int(1).text}
        words |= {"FLAGS": flags, "X": self.float(0)}
        kinds = {"XS": ("floats", "farray"), "D": ("farray",), "J": ("iarray",)}
        kinds |= {"M": ("bools", "barray"), "S": ("str",)}
        for word, of in kinds.items():
            names = [name for name in self.scope.of(*of) if name.type.length or word == "S"]
            if names:
                words[word] = self.scope.choose(names).text
        data = set(words) & set(kinds)
        fitting = [text for text in ALL if set(PLACE.findall(text)) <= set(words)]
        with_data = [text for text in fitting if set(PLACE.findall(text)) & data]
        lines = self.rng.choice(with_data if with_data and self.chance(0.4) else fitting)
        filled = PLACE.sub(lambda found: words[found[1]], lines)
        return filled.strip("\n").splitlines()

    # --- effects ----------------------------------------------------------------------------------

    def _print(self, depth: int) -> list[str]:
        what = self.rng.choice([self.int(0).text, self.float(0), '"step"'])
        return [f"print({what})"]

    def _log(self, depth: int) -> list[str]:
        what = self.rng.choice([self.int(0).text, self.float(0), self.bool(0), "'x'"])
        return [f"LOG.append({what})"]

    def _tally(self, depth: int) -> list[str]:
        if self.chance(0.5):
            return ["STATE['calls'] += 1"]
        a = self.accumulator
        return ["STATE['calls'] += 1", f"{a} = {a} * (1 + STATE['calls'] % 2)"]

    def _mutate(self, depth: int) -> list[str] | None:
        names = [name for name in self.scope.names if name.type.mutable]
        if not names or self.scope.loops:
            return None
        name = self.rng.choice(names)
        t, n = name.type, name.text
        if t.kind == "ints":
            i = self.int(0)
            new = i.text if t.low <= i.low and i.high <= t.high else f"({i.text}) % {t.high + 1}"
            if t.length and self.chance(0.6):
                return [f"{n}[{self.index(t.length)}] = {new}"]
            return [self.rng.choice([f"{n}.append({new})", f"{n}.reverse()", f"{n}.sort()"])]
        if t.kind in ("floats", "farray") and t.length:
            if t.kind == "farray" and self.chance(0.3):
                return [f"{n} += 1.0"]
            return [f"{n}[{self.index(t.length)}] = {self.float(0)}"]
        if t.kind == "values" and t.length:
            return [f"{n}[{self.index(t.length)}] = {self.value(1)}"]
        return None

    # --- those that hold others -------------------------------------------------------------------

    def _leave(self, depth: int) -> list[str]:
        word = self.rng.choice(["break", "continue"])
        return [f"if {self.bool(1)}:", f"    {word}"]

    def returned(self, text: str) -> str:
        """A return statement, with extras where the function has them."""
        if not self.extras:
            return f"return {text}"
        extra = self.rng.choice(
            [
                f"{{'n': {self.int(0).text}, 'last': {self.value(0)}}}",
                f"[{self.value(0)}, {self.float(0)}]",
                f"({self.value(0)}, {self.int(0).text})",
                f"{{'text': f\"{{{self.int(0).text}}}\"}}",
                self.int(1).text,
            ]
        )
        return f"return {text}, {extra}"

    def _early(self, depth: int) -> list[str]:
        return [f"if {self.bool(1)}:", f"    {self.returned(self.value(1))}"]

    def _branch(self, depth: int) -> list[str]:
        lines = [f"if {self.bool(1)}:"]
        with self.scope.block():
            lines += indent(self.body(self.rng.randint(1, 2), depth))
        if self.chance(0.25):
            lines.append(f"elif {self.bool(1)}:")
            with self.scope.block():
                lines += indent(self.body(1, depth))
        if self.chance(0.5):
            lines.append("else:")
            with self.scope.block():
                lines += indent(self.body(1, depth))
        return lines

    def _heading(self) -> str | None:
        """The first line of a for loop; its variables join the scope."""
        kinds = ["ints", "floats", "values", "bools", "iarray", "rows", "matrix"]
        source = self.some(*(["ints"] if self.scope.focus else kinds))
        scope = self.scope
        if source is None or self.chance(0.15):
            i = self.int(1)
            count = i.text if 0 <= i.high <= 6 else f"({i.text}) % 4"
            name = scope.fresh("i", "step", "k")
            scope.add(name, Type("int", low=0, high=6))
            return f"for {name} in range({count}):"
        t = source.type
        name = scope.fresh("t", "c", "token", "element", "r")
        if t.kind in ("rows", "matrix") and self.chance(0.4):
            scope.add(name, item(t))
            return f"for {name} in {source.text}:"
        way = scope.pick(
            [
                (4, "plain"),
                (2, "enumerate"),
                (1.5, "zip"),
                (1, "pairs"),
                (0.7, "reversed"),
                (0.7, "sorted"),
                (1, "positions"),
            ]
        )
        longest = t.length - 1 if t.fixed else t.length + 7
        if way == "enumerate":
            position = scope.fresh("i", "position", "j")
            scope.add(position, Type("int", low=0, high=max(longest, 0)))
            scope.add(name, item(t))
            return f"for {position}, {name} in enumerate({source.text}):"
        if way == "positions":
            scope.add(name, Type("int", low=0, high=max(longest, 0)))
            if item(t).kind in ("int", "float", "value", "bool"):
                scope.add(f"{source.text}[{name}]", item(t))
            return f"for {name} in range(len({source.text})):"
        if way == "pairs" and t.kind == "ints":
            other = scope.fresh("following", "target", "u")
            scope.add(name, item(t))
            scope.add(other, item(t))
            return f"for {name}, {other} in zip({source.text}, {source.text}[1:]):"
        if way == "zip":
            second = self.some("ints", "floats", "values", "bools")
            if second is not None:
                other = scope.fresh("y", "f", "w", "q")
                scope.add(name, item(t))
                scope.add(other, item(second.type))
                return f"for {name}, {other} in zip({source.text}, {second.text}):"
        scope.add(name, item(t))
        if way == "reversed":
            return f"for {name} in reversed({source.text}):"
        if way == "sorted" and t.kind in ("ints", "floats", "values"):
            return f"for {name} in sorted({source.text}):"
        return f"for {name} in {source.text}:"

    def _loop(self, depth: int) -> list[str]:
        lines: list[str] = []
        if self.chance(0.5) and not self.scope.loops:
            lines += self._count(depth)
        with self.scope.block(loop=True):
            heading = self._heading()
            inner = self.body(self.rng.randint(1, 3), depth)
        lines += [str(heading), *indent(inner)]
        counters = [name for name in self.scope.of("int") if name.assignable]
        if counters and self.chance(0.6):
            n, a = self.rng.choice(counters).text, self.accumulator
            k = self.rng.randint(1, 3)
            lines.append(
                self.rng.choice(
                    [
                        f"{a} = {a} * 2 if {n} >= {k} else {a}",
                        f"{a} = {a} / ({n} if {n} > 0 else 1)",
                        f"{a} = {a} + {self.value(1)} * ({n} % 2)",
                    ]
                )
            )
        return lines

    def _while(self, depth: int) -> list[str]:
        name = self.scope.fresh("m", "left", "tries", "round_")
        limit = self.int(1)
        count = limit.text if limit.low >= -99 and limit.high <= 5 else f"({limit.text}) % 4"
        test = f"{name} < {count}"
        if self.chance(0.3):
            test += f" and {self.accumulator} < {self.rng.choice(['1', '2.5'])}"
        with self.scope.block(loop=True):
            self.scope.add(name, Type("int", low=0, high=6))
            inner = self._accumulate(0)
            if self.chance(0.4):
                inner += [f"if {self.bool(1)}:", "    break"]
        return [f"{name} = 0", f"while {test}:", *indent([*inner, f"{name} += 1"])]

    def _attempt(self, depth: int) -> list[str]:
        """A try whose body may raise."""
        a = self.accumulator
        source = self.some("values", "floats", "ints")
        way = self.rng.choice(["index", "log", "key", "value"])
        handler, error = self._accumulate(0), "IndexError"
        if way == "index" and source is not None:
            n = source.type.length
            risky = (
                f"{a} = {a} + {source.text}[{self.int(1).text} + {self.rng.randint(0, max(n, 1))}]"
            )
        elif way == "log":
            risky, error = f"{a} = {a} + log({self.value(1)})", "ValueError"
        elif way == "key":
            risky, error = f"{a} = {a} + {{0: 0.5, 2: 1.5}}[{self.int(1).text}]", "KeyError"
        else:
            risky, error = f"{a} = {a} * math.log({self.float(1)})", "ValueError"
        if self.chance(0.2):
            error = f"({error}, ZeroDivisionError)"
        lines = ["try:", f"    {risky}", f"except {error}:", *indent(handler)]
        if self.chance(0.2):
            lines += ["finally:", f"    {a} = {a} * 0.75"]
        return lines

    def _graph(self, depth: int) -> list[str] | None:
        """Messages along an adjacency list."""
        rows, weights = self.some("rows"), self.some("values", "varray")
        if rows is None or weights is None or not weights.type.length:
            return None
        a, r, w, n = self.accumulator, rows.text, weights.text, weights.type.length
        u, v = self.scope.fresh("u", "node"), self.scope.fresh("v", "other")
        at = v if rows.type.high < n and rows.type.low >= -n else f"{v} % {n}"
        start = self.index(rows.type.length)
        forms = [
            [
                f"for {u} in range(len({r})):",
                f"    for {v} in {r}[{u}]:",
                f"        {a} = {a} + {w}[{u} % {n}] * {w}[{at}]",
            ],
            [f"for {v} in {r}[{start}]:", f"    {a} = {a} + {w}[{at}]"],
            [f"{a} = {a} + sum({w}[{at}] for {v} in {r}[{start}]) / max(1, len({r}[{start}]))"],
            [
                f"{u} = {start}",
                f"for {v} in {r}[{u}]:",
                f"    if {v} != {u}:",
                f"        {a} = {a} + tanh({w}[{at}])",
            ],
        ]
        return self.rng.choice(forms)
