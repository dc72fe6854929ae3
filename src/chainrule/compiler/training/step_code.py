"""Machine code that takes whole training steps: samples, loss, gradient, update.

In: the addresses of a program's forward and backward. Out: a loop around them, one call for
thousands of steps, which stops before the first loss that is not finite, and the updates of the
optimisers, each one pass over parameters, gradient and moments. A gradient that is not finite shows
in the moments and parameters after the call.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen import jit
from chainrule.compiler.codegen.ir import Code, Vector

#: what the loop reads, each a word: addresses first, then sizes
FIELDS = (
    *("forward", "reverse", "update"),
    *("shared", "own", "shared_adjoints", "adjoints", "total", "first_moment", "second_moment"),
    *("constants", "counts", "gathers", "samples", "seeds"),  # a row for each group of samples
    *("fits", "starts", "rates", "losses"),
    *("steps", "inputs", "constant_bytes", "count_words", "gather_words", "sample_bytes"),
    *("lanes", "root", "gradient_bytes"),
)
RATES = 8  # numbers of each step that its update reads


def _loop_text(number: str, size: int, width: int) -> str:
    """The loop as LLVM IR, over ``number``s of so many bytes."""
    sizes = FIELDS.index("steps")
    load = [
        f"  %{name}_word = getelementptr inbounds i64, ptr %plan, i64 {k}\n"
        f"  %{name} = load {'ptr' if k < sizes else 'i64'}, ptr %{name}_word, align 8"
        for k, name in enumerate(FIELDS)
    ]
    copy = "call void @llvm.memcpy.p0.p0.i64"
    vector = f"<{width} x {number}>"
    widen = "fadd double %loss, 0.0" if number == "double" else "fpext float %loss to double"
    return f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i64 @train(ptr noalias %plan) nounwind {{
entry:
{chr(10).join(load)}
  %constants_to = getelementptr inbounds {number}, ptr %shared, i64 %inputs
  %lane_bytes = mul i64 %lanes, {size}
  %root_at = mul i64 %root, %lanes
  %results = getelementptr inbounds {number}, ptr %own, i64 %root_at
  br label %step
step:
  %s = phi i64 [0, %entry], [%s_next, %moved]
  %more = icmp ult i64 %s, %steps
  br i1 %more, label %begin, label %end
begin:
  %first_at = getelementptr inbounds i64, ptr %starts, i64 %s
  %first = load i64, ptr %first_at, align 8
  %s_next = add nuw nsw i64 %s, 1
  %last_at = getelementptr inbounds i64, ptr %starts, i64 %s_next
  %last = load i64, ptr %last_at, align 8
  br label %group
group:
  %g = phi i64 [%first, %begin], [%g_next, %added]
  %loss_before = phi {number} [0.0, %begin], [%loss, %added]
  %fit_at = getelementptr inbounds i64, ptr %fits, i64 %g
  %fit = load i64, ptr %fit_at, align 8
  %constant_row = mul i64 %fit, %constant_bytes
  %constants_from = getelementptr inbounds i8, ptr %constants, i64 %constant_row
  {copy}(ptr %constants_to, ptr %constants_from, i64 %constant_bytes, i1 false)
  %sample_row = mul i64 %g, %sample_bytes
  %samples_from = getelementptr inbounds i8, ptr %samples, i64 %sample_row
  {copy}(ptr %own, ptr %samples_from, i64 %sample_bytes, i1 false)
  %gather_row = mul i64 %g, %gather_words
  %gathers_here = getelementptr inbounds i64, ptr %gathers, i64 %gather_row
  %count_row = mul i64 %fit, %count_words
  %counts_here = getelementptr inbounds i64, ptr %counts, i64 %count_row
  %seed_row = mul i64 %g, %lane_bytes
  %seeds_here = getelementptr inbounds i8, ptr %seeds, i64 %seed_row
  %flag = call {number} %forward(ptr %shared, ptr %own, ptr %gathers_here, ptr %counts_here)
  %difference = fsub {number} %flag, %flag
  %finite = fcmp oeq {number} %difference, 0.0
  br i1 %finite, label %lane, label %end
lane:
  %l = phi i64 [0, %group], [%l_next, %lane]
  %loss_so_far = phi {number} [%loss_before, %group], [%loss, %lane]
  %result_at = getelementptr inbounds {number}, ptr %results, i64 %l
  %result = load {number}, ptr %result_at, align {size}
  %seed_at = getelementptr inbounds {number}, ptr %seeds_here, i64 %l
  %seed = load {number}, ptr %seed_at, align {size}
  %weighted = fmul {number} %result, %seed
  %loss = fadd {number} %loss_so_far, %weighted
  %l_next = add nuw nsw i64 %l, 1
  %lanes_left = icmp ult i64 %l_next, %lanes
  br i1 %lanes_left, label %lane, label %reverse_pass
reverse_pass:
  call void %reverse(ptr %shared, ptr %own, ptr %shared_adjoints, ptr %adjoints,
                     ptr %seeds_here, ptr %gathers_here, ptr %counts_here)
  %g_next = add nuw nsw i64 %g, 1
  %is_first = icmp eq i64 %g, %first
  %groups_left = icmp ult i64 %g_next, %last
  %alone_end = icmp eq i64 %g_next, %last
  %alone = and i1 %is_first, %alone_end
  br i1 %alone, label %added, label %sum
sum:
  br i1 %is_first, label %copy, label %add
copy:
  {copy}(ptr %total, ptr %shared_adjoints, i64 %gradient_bytes, i1 false)
  br label %added
add:
  %a = phi i64 [0, %sum], [%a_next, %add]
  %to = getelementptr inbounds i8, ptr %total, i64 %a
  %from = getelementptr inbounds i8, ptr %shared_adjoints, i64 %a
  %x = load {vector}, ptr %to, align {size}
  %y = load {vector}, ptr %from, align {size}
  %z = fadd {vector} %x, %y
  store {vector} %z, ptr %to, align {size}
  %a_next = add nuw nsw i64 %a, {width * size}
  %adds_left = icmp ult i64 %a_next, %gradient_bytes
  br i1 %adds_left, label %add, label %added
added:
  %used = phi ptr [%shared_adjoints, %reverse_pass], [%total, %copy], [%total, %add]
  br i1 %groups_left, label %group, label %move
move:
  %rate_at = mul i64 %s, {RATES * size}
  %rates_here = getelementptr inbounds i8, ptr %rates, i64 %rate_at
  call void %update(ptr %shared, ptr %used, ptr %first_moment, ptr %second_moment, ptr %rates_here)
  %loss_wide = {widen}
  %loss_at = getelementptr inbounds double, ptr %losses, i64 %s
  store double %loss_wide, ptr %loss_at, align 8
  br label %moved
moved:
  br label %step
end:
  ret i64 %s
}}
"""


@functools.cache
def _loop(dtype: str) -> tuple[jit.Library, Any]:
    code = Code(dtype)
    width = jit.vector_width() * 8 // code.bytes
    library = jit.Library(_loop_text(code.number, code.bytes, width))
    return library, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library.address("train"))


def take(dtype: str, **fields: int) -> int:
    """Take steps; how many were whole. ``fields``: the words of ``FIELDS``."""
    plan = np.array([fields[name] for name in FIELDS], np.int64)
    return int(_loop(dtype)[1](plan.ctypes.data))


# --- updates --------------------------------------------------------------------------------------


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
def update(kind: str, count: int, dtype: str) -> jit.Library:
    """The update of ``count`` parameters: a function "update" in machine code."""
    rule: Any
    rule, moment_count = UPDATES[kind]
    code = Code(dtype)
    width = jit.vector_width() * 8 // code.bytes
    moments = ["%M1", "%M2"][:moment_count]

    def one(terms: Any, width: int, load: Any, store: Any) -> None:
        def rate(k: int) -> Vector:
            return code.load("%R", [(None, k)]).splat(width)

        given = [load(name, terms) for name in ("%P", "%Q", *moments)]
        p, moved = rule(*given[:2], given[2:], rate)
        store("%P", terms, p)
        for name, moment in zip(moments, moved, strict=True):
            store(name, terms, moment)

    whole, left = divmod(count, width)
    if whole:
        with code.loop(whole) as i:
            one(
                [(i, width)],
                width,
                lambda array, terms: code.load(array, terms, width),
                code.store,
            )
    if left:
        one(
            [(None, whole * width)],
            width,
            lambda array, terms: code.masked_load(array, terms, width, str(left)),
            lambda array, terms, x: code.masked_store(array, terms, x, str(left)),
        )
    head = ", ".join(f"ptr noalias %{name}" for name in ("P", "Q", "M1", "M2", "R"))
    body = "\n".join([*code.slots, "  br label %start", "start:", *code.lines, "  ret void"])
    declarations = "\n".join(sorted(code.declarations))
    return jit.Library(
        f'{declarations}\ndefine void @update({head}) nounwind "prefer-vector-width"="512" {{\n'
        f"entry:\n{body}\n}}"
    )


def words(array: npt.NDArray[Any]) -> int:
    """The address of an array."""
    return int(array.ctypes.data)
