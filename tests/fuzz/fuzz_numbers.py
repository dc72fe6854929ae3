"""Plain numbers in generated programs: integers, conditions and data, as source text.

A scope and a depth come in. One method per type chooses among the ways that ordinary code gets such
a number: names, reads of tables, arithmetic, counts, conversions. Integers come with their bounds,
so that indices are in range; now and then they are not, and the program raises.
"""

from __future__ import annotations

import random

from fuzz_scope import Int, Name, Scope, Type, literal

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class Numbers:
    """Writes integers, conditions and data over the names of ``scope``."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.rng: random.Random = scope.rng

    def value(self, depth: int = 2) -> str:
        """A number that may depend on the parameters."""
        raise NotImplementedError

    def call(self, kind: str, depth: int) -> tuple[str, Type] | None:
        """A call of a helper that gives a result of this kind."""
        raise NotImplementedError

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.rng.random() < probability

    def some(self, *kinds: str) -> Name | None:
        """A name of one of these kinds, if there is one."""
        names = self.scope.of(*kinds)
        return self.scope.choose(names) if names else None

    # --- integers ---------------------------------------------------------------------------------

    def index(self, length: int, depth: int = 1) -> str:
        """An integer that indexes a sequence of this length."""
        rng = self.rng
        if length <= 0:
            return "0"
        if self.chance(0.1):
            return rng.choice(["-1", "0", str(length - 1), str(-length)])
        i = self._direct(length) if self.chance(0.6) else None
        i = i or self.int(depth)
        if -length <= i.low and i.high < length:
            return i.text
        if self.chance(0.01):
            return i.text  # out of range for some calls
        if self.chance(0.15) and i.low >= 0:
            return f"min({i.text}, {length - 1})"
        return f"({i.text}) % {length}"

    def _direct(self, length: int) -> Int | None:
        """An argument or a variable of a loop as an index, or what a table has for it."""
        names = [name for name in self.scope.of("int") if name.weight > 1]
        if not names:
            return None
        name = self.scope.choose(names)
        low, high = name.type.low, name.type.high
        tables = [
            table
            for table in self.scope.of("ints", "iarray")
            if low >= -table.type.length and high < table.type.length
        ]
        if tables and self.chance(0.25):
            table = self.rng.choice(tables)
            return Int(f"{table.text}[{name.text}]", table.type.low, table.type.high)
        return Int(name.text, low, high)

    def int(self, depth: int = 1) -> Int:
        """An integer with its bounds."""
        if depth <= 0:
            names = self.scope.of("int")
            if names and self.chance(0.85):
                name = self.scope.choose(names)
                return Int(name.text, name.type.low, name.type.high)
            n = self.rng.randint(0, 3)
            return Int(str(n), n, n)
        way = self.scope.pick(
            [
                (6, "name"),
                (2, "add"),
                (1, "subtract"),
                (1, "multiply"),
                (1, "modulo"),
                (0.7, "divide"),
                (0.5, "bits"),
                (3, "read"),
                (1.2, "length"),
                (1.2, "count"),
                (0.6, "extreme"),
                (0.6, "convert"),
                (0.6, "choose"),
                (0.4, "text"),
                (1, "helper"),
                (0.8, "row"),
            ]
        )
        found: Int | None = getattr(self, f"_int_{way}")(depth - 1)
        return found if found is not None else self.int(0)

    def _int_name(self, depth: int) -> Int:
        return self.int(0)

    def _int_add(self, depth: int) -> Int:
        a, b = self.int(depth), self.int(depth)
        return Int(f"({a.text} + {b.text})", a.low + b.low, a.high + b.high)

    def _int_subtract(self, depth: int) -> Int:
        a, b = self.int(depth), self.int(depth)
        return Int(f"({a.text} - {b.text})", a.low - b.high, a.high - b.low)

    def _int_multiply(self, depth: int) -> Int:
        a, b = self.int(depth), self.rng.randint(2, 3)
        return Int(f"({a.text} * {b})", a.low * b, a.high * b)

    def _int_modulo(self, depth: int) -> Int:
        a, n = self.int(depth), self.rng.randint(2, 4)
        return Int(f"({a.text}) % {n}", 0, n - 1)

    def _int_divide(self, depth: int) -> Int:
        a, n = self.int(depth), self.rng.randint(2, 3)
        return Int(f"({a.text}) // {n}", a.low // n, a.high // n)

    def _int_bits(self, depth: int) -> Int | None:
        a, b = self.int(depth), self.rng.choice([1, 3])
        if self.chance(0.6):
            return Int(f"({a.text} & {b})", 0, b)
        if a.low < 0:
            return None
        if self.chance(0.5):
            return Int(f"({a.text} ^ 1)", 0, a.high + 1)
        return Int(f"({a.text} << 1)", a.low * 2, a.high * 2)

    def _int_read(self, depth: int) -> Int | None:
        name = self.some("ints", "iarray", "table", "bools")
        if name is None or not name.type.length:
            return None
        t, i = name.type, self.index(name.type.length, depth)
        if t.kind == "table":
            return Int(f"{name.text}[{i}][{self.index(t.width, depth)}]", t.low, t.high)
        if t.kind == "bools":
            return Int(f"int({name.text}[{i}])", 0, 1)
        if t.kind == "iarray" and self.chance(0.5):
            return Int(f"int({name.text}[{i}])", t.low, t.high)
        return Int(f"{name.text}[{i}]", t.low, t.high)

    def _int_row(self, depth: int) -> Int | None:
        name = self.some("rows")
        if name is None:
            return None
        row = f"{name.text}[{self.index(name.type.length, depth)}]"
        if self.chance(0.5):
            return Int(f"len({row})", 0, 4)
        return Int(f"sum({row})", 0, 4 * max(name.type.high, 0))

    def _int_length(self, depth: int) -> Int | None:
        name = self.some("ints", "floats", "strs", "bools", "values", "farray", "varray")
        if name is None:
            return None
        t = name.type
        high = t.length if t.fixed else t.length + 8
        if t.kind in ("farray", "varray") and self.chance(0.6):
            return Int(f"{name.text}.shape[0]", t.length, high)
        return Int(f"len({name.text})", t.length, high)

    def _int_count(self, depth: int) -> Int | None:
        name = self.some("ints", "bools", "barray")
        if name is None:
            return None
        t = name.type
        if t.kind == "bools":
            return Int(self.rng.choice([f"sum({name.text})", f"{name.text}.count(True)"]), 0, 9)
        if t.kind == "barray":
            return Int(
                self.rng.choice([f"int({name.text}.sum())", f"int(np.count_nonzero({name.text}))"]),
                0,
                9,
            )
        flags = self.some("bools")
        k = self.rng.randint(0, 2)
        options = [
            f"{name.text}.count({k})",
            f"sum(1 for t in {name.text} if t == {k})",
            f"sum(t > {k} for t in {name.text})",
            f"len([t for t in {name.text} if t != {k}])",
            f"len(set({name.text}))",
        ]
        if flags is not None and t.low >= 0 and t.high < flags.type.length:
            options += [
                f"sum({flags.text}[t] for t in {name.text})",
                f"len([t for t in {name.text} if {flags.text}[t]])",
            ] * 2
        return Int(self.rng.choice(options), 0, 12)

    def _int_extreme(self, depth: int) -> Int | None:
        name = self.some("ints")
        if name is not None and self.chance(0.5):
            t = name.type
            if t.length:
                return Int(f"{self.rng.choice(['max', 'min'])}({name.text})", t.low, t.high)
            return Int(f"max({name.text}, default=0)", min(t.low, 0), max(t.high, 0))
        a, b = self.int(depth), self.int(depth)
        if self.chance(0.3):
            bound = max(abs(a.low), abs(a.high))
            return Int(f"abs({a.text})", 0, bound)
        f = self.rng.choice(["max", "min"])
        return Int(f"{f}({a.text}, {b.text})", min(a.low, b.low), max(a.high, b.high))

    def _int_convert(self, depth: int) -> Int:
        if self.chance(0.5):
            return Int(f"int({self.bool(depth)})", 0, 1)
        f = self.rng.choice(["int({})", "round({})", "math.floor({})"])
        return Int(f.format(self.float(0)), -100, 100)

    def _int_choose(self, depth: int) -> Int:
        a, b = self.int(depth), self.int(depth)
        text = f"({a.text} if {self.bool(depth)} else {b.text})"
        return Int(text, min(a.low, b.low), max(a.high, b.high))

    def _int_text(self, depth: int) -> Int | None:
        name = self.some("str")
        if name is None:
            return None
        return Int(self.rng.choice([f"len({name.text})", f"ord({name.text}[0]) % 3"]), 0, 9)

    def _int_helper(self, depth: int) -> Int | None:
        found = self.call("int", depth)
        return None if found is None else Int(found[0], found[1].low, found[1].high)

    # --- conditions -------------------------------------------------------------------------------

    def bool(self, depth: int = 1) -> str:
        """A condition: on integers, data, parameters, flags, identities or types."""
        options = [
            (4, "ints"),
            (2, "floats"),
            (1.5, "values"),
            (2.5, "flag"),
            (0.8, "membership"),
            (0.5, "identity"),
            (0.5, "text"),
            (0.4, "type"),
            (0.5, "truth"),
        ]
        if self.scope.focus:
            options = [(4, "ints"), (3, "flag"), (0.8, "membership"), (0.5, "identity")]
        if depth > 0:
            options += [(1, "both"), (0.6, "not")]
        text: str | None = getattr(self, f"_bool_{self.scope.pick(options)}")(depth - 1)
        return text if text is not None else self._bool_ints(depth - 1)

    def _bool_ints(self, depth: int) -> str:
        a = self.int(min(depth, 1))
        if self.chance(0.25):
            return f"({a.text}) % 2 == {self.rng.randint(0, 1)}"
        comparison = self.rng.choice(COMPARISONS)
        if self.chance(0.3):
            return f"{a.text} {comparison} {self.int(0).text}"
        low, high = max(a.low, -3), min(a.high, 5)
        return f"{a.text} {comparison} {self.rng.randint(min(low, high), high)}"

    def _bool_floats(self, depth: int) -> str:
        comparison = self.rng.choice(COMPARISONS)
        right = literal(self.rng, "float") if self.chance(0.7) else self.float(0)
        return f"{self.float(depth)} {comparison} {right}"

    def _bool_values(self, depth: int) -> str:
        comparison = self.rng.choice(COMPARISONS[:4] if self.chance(0.85) else COMPARISONS[4:])
        left = self.value(min(depth, 1))
        if self.chance(0.2):
            return f"({left}).data {comparison} {literal(self.rng, 'float')}"
        right = literal(self.rng, "float") if self.chance(0.6) else self.value(0)
        return f"{left} {comparison} {right}"

    def _bool_flag(self, depth: int) -> str | None:
        if (name := self.some("bool")) is not None and self.chance(0.3):
            return name.text
        name = self.some("bools", "barray", "ints")
        if name is None or not name.type.length:
            return None
        return f"{name.text}[{self.index(name.type.length, depth)}]"

    def _bool_membership(self, depth: int) -> str | None:
        negation = self.rng.choice(["in", "in", "not in"])
        if self.scope.focus or self.chance(0.5):
            name = self.some("ints")
            pool = name.text if name is not None and self.chance(0.6) else "(0, 2)"
            return f"{self.int(depth).text} {negation} {pool}"
        name = self.some("floats")
        pool = name.text if name is not None and self.chance(0.4) else "(0.0, 1.0)"
        return f"{self.float(0)} {negation} {pool}"

    def _bool_identity(self, depth: int) -> str | None:
        kinds = ["floats", "ints", "values", "value", "varray", "farray"]
        names = self.scope.of(self.rng.choice(kinds))
        if len(names) < 2:
            return None
        a, b = self.rng.sample(names, 2)
        return f"{a.text} {self.rng.choice(['is', 'is', 'is not'])} {b.text}"

    def _bool_text(self, depth: int) -> str | None:
        name = self.some("str")
        if name is None:
            return None
        return self.rng.choice(
            [
                f"{name.text} == 'tanh'",
                f"{name.text}.startswith('r')",
                f"{name.text} in ('relu', 'tanh')",
                f"'a' in {name.text}",
                f"len({name.text}) > 3",
            ]
        )

    def _bool_type(self, depth: int) -> str | None:
        name = self.some("float", "int", "floats", "farray", "value")
        if name is None:
            return None
        kind = self.rng.choice(["float", "int", "list", "np.ndarray", "(int, float)", "Value"])
        return f"isinstance({name.text}, {kind})"

    def _bool_truth(self, depth: int) -> str | None:
        name = self.some("ints", "floats", "int", "float")
        return None if name is None else self.rng.choice([name.text, f"not {name.text}"])

    def _bool_both(self, depth: int) -> str:
        word = self.rng.choice(["and", "or"])
        return f"({self.bool(depth)} {word} {self.bool(depth)})"

    def _bool_not(self, depth: int) -> str:
        return f"not ({self.bool(depth)})"

    # --- data -------------------------------------------------------------------------------------

    def float(self, depth: int = 1) -> str:
        """A plain float, or what behaves as one."""
        if depth <= 0:
            name = self.some("float")
            if name is not None and self.chance(0.8):
                return name.text
            return literal(self.rng, "float")
        way = self.scope.pick(
            [
                (4, "name"),
                (3, "read"),
                (2, "arithmetic"),
                (2, "math"),
                (1, "rounding"),
                (1, "reduce"),
                (1, "integer"),
                (0.5, "choose"),
                (0.5, "data"),
                (0.7, "numpy"),
                (0.3, "text"),
            ]
        )
        text: str | None = getattr(self, f"_float_{way}")(depth - 1)
        return text if text is not None else self.float(0)

    def _float_name(self, depth: int) -> str:
        return self.float(0)

    def _float_read(self, depth: int) -> str | None:
        name = self.some("floats", "farray")
        if name is None or not name.type.length:
            return None
        return f"{name.text}[{self.index(name.type.length, depth)}]"

    def _float_arithmetic(self, depth: int) -> str:
        return f"({self.float(depth)} {self.rng.choice('+-*')} {self.float(0)})"

    def _float_math(self, depth: int) -> str:
        x = self.float(depth)
        if self.chance(0.03):
            return f"math.{self.rng.choice(['log', 'sqrt'])}({x})"
        form = self.rng.choice(
            [
                "math.exp(-abs({}))",
                "math.sin({})",
                "math.cos({})",
                "math.tanh({})",
                "math.sqrt(abs({}))",
                "math.log(1.0 + abs({}))",
                "math.atan({})",
                "math.log1p(abs({}))",
                "math.hypot({}, 1.0)",
                "math.copysign(1.0, {})",
                "math.fabs({})",
            ]
        )
        return form.format(x)

    def _float_rounding(self, depth: int) -> str:
        form = self.rng.choice(
            ["({}) % 1", "({}) // 1", "round({}, 1)", "round({}, 2)", "float(int({}))", "abs({})"]
        )
        return form.format(self.float(0))

    def _float_reduce(self, depth: int) -> str | None:
        name = self.some("floats", "farray")
        if name is None:
            return None
        form = self.rng.choice(["sum({})", "max({})", "min({})", "sorted({})[0]", "sum({}) / 3"])
        return form.format(name.text) if name.type.length else f"sum({name.text})"

    def _float_integer(self, depth: int) -> str:
        i = self.int(depth).text
        return self.rng.choice([f"float({i})", f"({i}) / 4", f"0.5 * ({i})", f"1 / (1 + abs({i}))"])

    def _float_choose(self, depth: int) -> str:
        return f"({self.float(depth)} if {self.bool(0)} else {self.float(0)})"

    def _float_data(self, depth: int) -> str:
        name = self.some("value")
        return self.float(0) if name is None else f"{name.text}.data"

    def _float_numpy(self, depth: int) -> str | None:
        name = self.some("farray")
        if name is None:
            return None
        a = name.text
        mask = self.some("barray")
        options = [
            f"{a}.mean()",
            f"np.mean({a})",
            f"np.max({a})",
            f"float({a}.sum())",
            f"np.dot({a}, {a})",
            f"np.tanh({a}).sum()",
            f"np.linalg.norm({a})",
            f"{a}[{a} > 0].sum()",
            f"{a}[1:].sum()",
        ]
        if mask is not None and mask.type.length == name.type.length:
            options += [f"{a}[{mask.text}].sum()", f"np.where({mask.text}, {a}, 0.0).sum()"]
        return self.rng.choice(options)

    def _float_text(self, depth: int) -> str:
        return f'float(f"{{{self.float(0)}:.1f}}")'
