"""Expressions of generated programs: a scope and a depth come in, source text goes out.

One method per type. Each chooses among the ways that ordinary code gets such an object: names, reads
of containers, arithmetic, calls. What grows is kept small (``tanh``, ``% n``), so that numbers stay
finite and indices in range; now and then it is not, and the program raises.
"""

from __future__ import annotations

import random

from fuzz_scope import Int, Name, Scope, Type, literal

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class Expressions:
    """Writes expressions over the names of ``scope``."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.rng: random.Random = scope.rng

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
        i = self.int(depth)
        if -length <= i.low and i.high < length:
            return i.text
        if self.chance(0.01):
            return i.text  # out of range for some calls
        if self.chance(0.15) and i.low >= 0:
            return f"min({i.text}, {length - 1})"
        return f"({i.text}) % {length}"

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
        if self.chance(0.5):
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

    # --- the numbers that are differentiated ------------------------------------------------------

    def value(self, depth: int = 2) -> str:
        """A number that depends on the parameters (or may)."""
        if depth <= 0:
            name = self.some("value")
            if name is not None and self.chance(0.7):
                return name.text
            return self._value_read(0) or self.float(0)
        way = self.scope.pick(
            [
                (3, "name"),
                (6, "read"),
                (5, "arithmetic"),
                (4, "function"),
                (3, "data"),
                (1.5, "integer"),
                (1, "choose"),
                (2, "sum"),
                (1, "extreme"),
                (1.2, "numpy"),
                (2, "helper"),
                (0.5, "matrix"),
                (0.3, "power"),
                (0.12, "transform"),
            ]
        )
        text: str | None = getattr(self, f"_value_{way}")(depth - 1)
        return text if text is not None else self.value(0)

    def _value_name(self, depth: int) -> str:
        return self.value(0)

    def _value_read(self, depth: int) -> str | None:
        name = self.some("values", "varray", "matrix", "vmatrix")
        if name is None or not name.type.length:
            return None
        t, i = name.type, self.index(name.type.length, depth)
        if t.kind in ("values", "varray"):
            return f"{name.text}[{i}]"
        return self._cell(name, i, depth)

    def _cell(self, name: Name, i: str, depth: int) -> str:
        """One of the ways to write a read of a row and a column."""
        j = self.index(name.type.width, depth)
        if name.type.kind == "vmatrix" and self.chance(0.6):
            return f"{name.text}[{i}, {j}]"
        forms = [f"{name.text}[{i}][{j}]"] * 6
        forms += [f"({name.text}[{i}])[{j}]", f"[*{name.text}[{i}]][{j}]"]
        forms += [f"[r[{j}] for r in {name.text}][{i}]", f"list(zip(*{name.text}))[{j}][{i}]"]
        forms += [f"{name.text}.__getitem__({i})[{j}]", f"(lambda r: r[{j}])({name.text}[{i}])"]
        return self.rng.choice(forms)

    def _value_matrix(self, depth: int) -> str | None:
        name = self.some("matrix", "vmatrix")
        if name is None:
            return None
        if name.type.kind == "vmatrix" and self.chance(0.5):
            form = ["{}.sum()", "np.mean({})", "{}[:, 0].sum()", "{}.T[0].sum()"]
            return self.rng.choice(form).format(name.text)
        row = f"{name.text}[{self.index(name.type.length, depth)}]"
        return self.rng.choice([f"sum({row})", f"sum(v * v for v in {row})", f"vsum({row})"])

    def _value_arithmetic(self, depth: int) -> str:
        a, b = self.value(depth), self.value(depth)
        form = self.rng.choice(["({} + {})", "({} - {})", "{} * tanh({})", "({}) / (2.0 + tanh({}))"])
        return form.format(a, b)

    def _value_function(self, depth: int) -> str:
        x = self.value(depth)
        if self.chance(0.01):
            return f"{self.rng.choice(['log', 'sqrt'])}({x})"
        form = self.rng.choice(
            [
                "tanh({})",
                "sin({})",
                "sigmoid({})",
                "relu({})",
                "exp(-({}) ** 2)",
                "log(1.0 + ({}) ** 2)",
                "abs({})",
                "sqrt(0.5 + ({}) ** 2)",
                "-({})",
                "0.5 * ({})",
                "np.tanh({})",
            ]
        )
        return form.format(x)

    def _value_data(self, depth: int) -> str:
        a, x = self.value(depth), self.float(1)
        return self.rng.choice(["({}) * ({})", "({}) + ({})", "({}) - ({})"]).format(a, x)

    def _value_integer(self, depth: int) -> str:
        a, i = self.value(depth), self.int(1)
        small = i.text if -9 <= i.low and i.high <= 9 else f"({i.text}) % 3"
        return self.rng.choice(["({}) * ({})", "({}) + ({})"]).format(a, small)

    def _value_choose(self, depth: int) -> str:
        return f"({self.value(depth)} if {self.bool(1)} else {self.value(depth)})"

    def _value_sum(self, depth: int) -> str | None:
        weights = self.some("values", "varray")
        if weights is None or not weights.type.length:
            return None
        w, n = weights.text, weights.type.length
        options = [f"sum({w})", f"sum(v * v for v in {w})", f"sum({w}[{self.index(n)}:])"]
        ints = self.some("ints")
        if ints is not None:
            inside = "t" if ints.type.low >= -n and ints.type.high < n else f"t % {n}"
            t = ints.text
            options += [
                f"sum({w}[{inside}] for t in {t})",
                f"sum([{w}[{inside}] for t in {t} if t != {self.int(0).text}])",
                f"sum({w}[{inside}] * (i + 1) for i, t in enumerate({t}))",
                f"sum({w}[{inside}] for t in sorted({t}))",
                f"sum(tanh({w}[{inside}]) for t in {t}[1:])",
                f"sum({w}[{inside}] for t in {t}) / max(1, len({t}))",
            ]
        mask = self.some("bools", "barray")
        if mask is not None:
            m = mask.text
            options += [
                f"sum(v for v, m in zip({w}, {m}) if m)",
                f"sum(v * m for v, m in zip({w}, {m})) / max(1, sum({m}))",
            ]
        data = self.some("floats", "farray")
        if data is not None:
            options += [
                f"sum(v * x for v, x in zip({w}, {data.text}))",
                f"sum({w}[0] if x == 1.0 else {w}[-1] * x for x in {data.text})",
            ]
        return self.rng.choice(options)

    def _value_extreme(self, depth: int) -> str | None:
        weights = self.some("values")
        if weights is None or weights.type.length < 2:
            a, b = self.value(depth), self.value(depth)
            f = self.rng.choice(["max", "min", "maximum", "minimum"])
            return f"{f}({a}, {b})"
        w = weights.text
        forms = [f"max({w})", f"min({w})", f"sorted({w})[{self.index(weights.type.length)}]"]
        forms += [f"max({w}, key=lambda v: -v)", f"[*reversed({w})][{self.index(weights.type.length)}]"]
        return self.rng.choice(forms)

    def _value_numpy(self, depth: int) -> str | None:
        name = self.some("varray")
        if name is None:
            weights = self.some("values")
            if weights is None:
                return None
            return self.rng.choice(["np.sum({})", "np.array({}).sum()", "np.dot({0}, {0})"]).format(
                weights.text
            )
        a, n = name.text, name.type.length
        options = [f"np.sum({a})", f"{a}.sum()", f"np.mean({a})", f"np.sum(np.exp(0.1 * {a}))"]
        options += [f"{a} @ {a}", f"np.dot({a}, {a})", f"(2 * {a})[{self.index(n)}]", f"{a}[::-1][0]"]
        options += [f"np.tanh({a})[{self.index(n)}]", f"{a}[{self.index(n)}:].sum()", f"({a} + 1).sum()"]
        data = self.some("farray")
        if data is not None and data.type.length == n and data.type.fixed:
            d = data.text
            options += [f"np.mean({a} + {d})", f"{a} @ {d}", f"np.sum({a} * {d})", f"{a}[{d} > 0].sum()"]
        mask = self.some("barray")
        if mask is not None and mask.type.length == n:
            options += [f"{a}[{mask.text}].sum()", f"np.where({mask.text}, {a}, 0.0).sum()"]
        ints = self.some("ints", "iarray")
        if ints is not None and ints.type.high < n and ints.type.low >= -n and ints.type.length:
            options += [f"{a}[{ints.text}].sum()"]
        return self.rng.choice(options)

    def _value_power(self, depth: int) -> str:
        return f"({self.value(depth)}) ** {self.rng.choice(['2', '3', '2.0', '1'])}"

    def _value_transform(self, depth: int) -> str:
        a = self.value(0)
        form = ["chainrule.grad(lambda q: ({}) * q * q)(3.0)", "chainrule.grad(lambda q: tanh(q))({})"]
        return self.rng.choice(form).format(a)

    def _value_helper(self, depth: int) -> str | None:
        found = self.call("value", depth)
        return None if found is None else found[0]

    # --- calls ------------------------------------------------------------------------------------

    def argument(self, type_: Type, depth: int) -> str | None:
        """An expression of the type that a helper wants, or None if there is none."""
        if type_.kind == "value":
            return self.value(depth)
        if type_.kind == "float":
            return self.float(depth)
        if type_.kind == "bool":
            return self.bool(0)
        if type_.kind == "int":
            i = self.int(depth)
            if i.low >= type_.low and i.high <= type_.high:
                return i.text
            return f"({i.text}) % {type_.high + 1}"
        fitting = [
            name
            for name in self.scope.of(type_.kind)
            if name.type.length >= type_.length
            and name.type.low >= type_.low
            and name.type.high <= type_.high
        ]
        return self.scope.choose(fitting).text if fitting else None

    def call(self, kind: str, depth: int) -> tuple[str, Type] | None:
        """A call of a helper that gives a result of this kind."""
        helpers = [helper for helper in self.scope.helpers if helper.result.kind == kind]
        if not helpers:
            return None
        helper = self.rng.choice(helpers)
        arguments = []
        by_name = self.chance(0.15)
        for name, type_ in helper.arguments:
            text = self.argument(type_, min(depth, 1))
            if text is None:
                return None
            arguments.append(f"{name}={text}" if by_name else text)
        for name, type_ in helper.keywords:
            text = self.argument(type_, 0) if self.chance(0.4) else None
            if text is not None:
                arguments.append(f"{name}={text}")
        return f"{helper.text}({', '.join(arguments)})", helper.result
