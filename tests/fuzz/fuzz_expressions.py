"""Numbers that depend on the parameters, and calls of helpers, as source text.

What grows is kept small with ``tanh`` and the like, so that numbers stay finite in loops; now and
then an operation is undefined, and the program raises.
"""

from __future__ import annotations

from fuzz_numbers import Numbers
from fuzz_scope import Name, Type

#: less common operations of one Value, and of two
OPERATIONS = (
    *("({}) % 1", "({}) // 0.7", "math.floor({})", "math.ceil(3 * ({}))", "round(2 * ({}))"),
    *("chainrule.sign({})", "np.floor({})", "chainrule.trunc({})", "divmod({}, 0.9)[1]"),
    *("chainrule.lgamma(1.5 + ({}) ** 2)", "chainrule.digamma(0.5 + abs({}))"),
    *("chainrule.normal_cdf({})", "chainrule.normal_pdf({})"),
    *("chainrule.normal_quantile(sigmoid({}))", "chainrule.log1mexp(0.2 + abs({}))"),
    *("chainrule.safe_sqrt({})", "chainrule.ramp({})", "squash({})", "called({})"),
    *("chainrule.interp({}, [-1.0, 0.0, 2.0], [0.5, -0.5, 1.0])", "chainrule.smooth_step({}, 0.5)"),
    *("chainrule.stop_gradient({}) * 0.5", "chainrule.checkpoint(tanh)({})"),
    "chainrule.implicit_root(lambda r, q: r + 0.5 * tanh(r) - q, 0.0, {})",
)
PAIRS = (
    *("({}) % (1.5 + abs({}))", "({}) // (1.5 + abs({}))", "np.hypot({}, 1.0 + ({}))"),
    *("chainrule.logsumexp([{}, {}])", "chainrule.norm([{}, 1.0 + ({})])"),
    *("chainrule.smooth_max({}, {}, 0.3)", "chainrule.cumsum([{}, {}])[1]"),
    *("chainrule.solve([[3.0, tanh({})], [0.5, 2.0]], [{}, 1.0])[0]", "blend({}, {})"),
)


class Expressions(Numbers):
    """Writes expressions of every type."""

    # --- the numbers that are differentiated ------------------------------------------------------

    def value(self, depth: int = 2) -> str:
        """A number that depends on the parameters (or may)."""
        if depth <= 0:
            name = self.some("value")
            if name is not None and self.chance(0.7):
                return name.text
            return self._value_read(0) or self.float(0)
        options = [
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
        if self.scope.focus:
            options = [(1, "name"), (8, "read"), (2, "arithmetic"), (1.5, "function")]
            options += [(1, "integer"), (1, "choose"), (2, "sum"), (2, "helper"), (0.3, "matrix")]
        way = self.scope.pick(options)
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
        form = self.rng.choice(
            ["({} + {})", "({} - {})", "{} * tanh({})", "({}) / (2.0 + tanh({}))"]
        )
        if self.chance(0.15):
            form = self.rng.choice(PAIRS)
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
        if self.chance(0.25):
            form = self.rng.choice(OPERATIONS)
        return form.format(x)

    def _value_data(self, depth: int) -> str:
        a, x = self.value(depth), self.float(1)
        return self.rng.choice(["({}) * ({})", "({}) + ({})", "({}) - ({})"]).format(a, x)

    def _value_integer(self, depth: int) -> str:
        a, i = self.value(depth), self.int(1)
        small = i.text if i.low >= -9 and i.high <= 9 else f"({i.text}) % 3"
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
        forms += [
            f"max({w}, key=lambda v: -v)",
            f"[*reversed({w})][{self.index(weights.type.length)}]",
        ]
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
        options += [
            f"{a} @ {a}",
            f"np.dot({a}, {a})",
            f"(2 * {a})[{self.index(n)}]",
            f"{a}[::-1][0]",
        ]
        options += [
            f"np.tanh({a})[{self.index(n)}]",
            f"{a}[{self.index(n)}:].sum()",
            f"({a} + 1).sum()",
        ]
        data = self.some("farray")
        if data is not None and data.type.length == n and data.type.fixed:
            d = data.text
            options += [
                f"np.mean({a} + {d})",
                f"{a} @ {d}",
                f"np.sum({a} * {d})",
                f"{a}[{d} > 0].sum()",
            ]
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
        form = [
            "chainrule.grad(lambda q: ({}) * q * q)(3.0)",
            "chainrule.grad(lambda q: tanh(q))({})",
        ]
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
