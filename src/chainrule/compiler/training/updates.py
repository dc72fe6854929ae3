"""The updates of the optimisers as machine code: one pass over parameters, gradient and moments.

In: which optimiser, and how many parameters. Out: a function that moves a stretch of them, for the
loop of ``step_code``, by the numbers that a step has for it.
"""

from __future__ import annotations

import functools
from typing import Any

from chainrule.compiler.codegen import jit
from chainrule.compiler.codegen.ir import Code, Vector

RATES = 11  # numbers of each step that its update reads
CLIP, LEAST, LEAST_SQUARE = 8, 9, 10  # which are the limit of the norm, and those of moments
#: The squares of gradients of a smaller norm would underflow: such a limit is left to Python.
LEAST_CLIP = {"float64": 1e-100, "float32": 1e-12}
#: a smaller ``eps`` of Adam, times the root of what a new square counts, would be changed by roots
#: of numbers that do not have all their bits
LEAST_EPS = {"float64": 1e-100, "float32": 1e-11}


def _sgd(p: Vector, g: Vector, moments: list[Vector], rate: Any) -> tuple[Vector, list[Vector]]:
    """rates: lr, momentum, 1 - lr * decay."""
    velocity = moments[0] * rate(1) + g
    return p * rate(2) - velocity * rate(0), [velocity]


def _adam(p: Vector, g: Vector, moments: list[Vector], rate: Any) -> tuple[Vector, list[Vector]]:
    """rates: lr / bias1, beta1, 1 - lr * decay, 1 - beta1, beta2, 1 - beta2, 1 / bias2, eps."""
    m = moments[0].times_plus(rate(1), g * rate(3))
    v = moments[1].times_plus(rate(4), g * g * rate(5))
    root = (v * rate(6)).intrinsic("sqrt")
    return p * rate(2) - _quotient(m * rate(0), root + rate(7)), [m, v]


def _quotient(a: Vector, b: Vector) -> Vector:
    """a / b to about the last bit, for b far from the ends of its range.

    Square roots keep the divider busy: where a machine has estimates of one over a double, two
    steps of Newton's take a third less time.
    """
    code, kind = a.code, "<8 x double>"
    if (code.number, a.width) != ("double", 8) or jit.vector_width() < 8:
        return a / b
    name = "@llvm.x86.avx512.rcp14.pd.512"
    code.declarations.add(f"declare {kind} {name}({kind}, {kind}, i8)")
    text = f"call {kind} {name}({kind} {b.register}, {kind} zeroinitializer, i8 -1)"
    estimate, minus = Vector(code, code.let(text), 8), -b
    for _ in range(2):
        estimate = estimate.times_plus(minus.times_plus(estimate, 1.0), estimate)
    return a * estimate


UPDATES = {"sgd": (_sgd, 1), "adam": (_adam, 2)}


@functools.cache
def update(kind: str, count: int, dtype: str, clipped: bool = False) -> jit.Library:
    """The update of ``count`` parameters: a function "update" in machine code.

    It updates a stretch of them, from one vector to another, so that threads can share it.
    Moments below the limits among the rates, that of the first times the parameter, become 0: what
    is left of a gradient that has long been 0 would else end as a number so small that each
    operation on it takes a hundred times as long.
    ``clipped``: by a gradient whose norm is at most that of the rates.
    """
    rule: Any
    rule, moment_count = UPDATES[kind]
    code = Code(dtype)
    width = jit.vector_width() * 8 // code.bytes
    moments = ["%M1", "%M2"][:moment_count]

    def rate(k: int, width: int) -> Vector:
        return code.load("%R", [(None, k)]).splat(width)

    def load(array: str, terms: Any) -> Vector:
        return code.load(array, terms, width)

    def load_some(array: str, terms: Any) -> Vector:
        return code.masked_load(array, terms, width, str(left))

    def store_some(array: str, terms: Any, x: Vector) -> None:
        code.masked_store(array, terms, x, str(left))

    def everywhere(body: Any) -> None:
        """Do something with all parameters, a vector at a time."""
        if whole:
            with code.loop(whole) as i:
                body([(i, width)], load, code.store)
        if left:
            body([(None, whole * width)], load_some, store_some)

    def in_stretch(body: Any) -> None:
        """The same with those from one vector to another."""
        is_last = code.let(f"icmp sgt i64 %to, {whole}")
        end = code.let(f"select i1 {is_last}, i64 {whole}, i64 %to")
        with code.loop(code.let(f"sub i64 {end}, %from")) as i:
            body([("%from", width), (i, width)], load, code.store)
        if left:
            with code.when(is_last):
                body([(None, whole * width)], load_some, store_some)

    def one(terms: Any, load: Any, store: Any) -> None:
        p, g, *before = (load(name, terms) for name in ("%P", "%Q", *moments))
        g = g if scale is None else g * scale
        limits = abs(p) * rate(LEAST, width), rate(LEAST_SQUARE, width)
        p, moved = rule(p, g, before, lambda k: rate(k, width))
        store("%P", terms, p)
        for name, moment, limit in zip(moments, moved, limits[:moment_count], strict=True):
            store(name, terms, (abs(moment) < limit).choose(0.0, moment))

    def square(terms: Any, load: Any, store: Any) -> None:
        g = load("%Q", terms)
        squares.set(g.times_plus(g, squares.get()))

    whole, left = divmod(count, width)
    scale: Vector | None = None
    if clipped:
        squares = code.variable(code.constant(0.0, width))
        everywhere(square)
        norm, most = squares.get().total().intrinsic("sqrt"), rate(CLIP, 1)
        # Where the squares overflow it is a NaN, which shows: Python takes such a step.
        factor = (norm > most).choose(most / norm, 1.0) + (norm - norm)
        scale = factor.splat(width)
    in_stretch(one)
    head = ", ".join(f"ptr noalias %{name}" for name in ("P", "Q", "M1", "M2", "R"))
    head += ", i64 %from, i64 %to"
    body = "\n".join([*code.slots, "  br label %start", "start:", *code.lines, "  ret void"])
    declarations = "\n".join(sorted(code.declarations))
    return jit.Library(
        f'{declarations}\ndefine void @update({head}) nounwind "prefer-vector-width"="512" {{\n'
        f"entry:\n{body}\n}}"
    )
