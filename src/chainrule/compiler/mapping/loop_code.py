"""Machine code that takes stacked samples through a kernel, a group of lanes at a time.

In: the addresses of a kernel's functions and arenas, the arrays that hold the samples, and which of
their rows to compute. Out: values and gradients, a row for each sample or added up, and a number
for each sample: 0 where it is done. One call does any number of samples, without Python, and so
several threads can be in it at once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from chainrule.compiler.codegen import jit
from chainrule.compiler.codegen.ir import Code, Vector
from chainrule.compiler.codegen.tiles import joined
from chainrule.compiler.codegen.vectors import shuffled
from chainrule.core.backend import kernels

#: what the loop reads, each a word: addresses first, then sizes
FIELDS = (
    *("forward", "backward", "check"),
    *("shared", "own", "shared_adjoints", "adjoints", "seeds", "gathers", "counts"),
    *("sources", "places", "gathered", "rows", "outputs", "values", "gradients"),
    *("value_total", "own_total", "shared_total", "flags"),
    *("groups", "source_count", "gather_bytes", "output_count", "gradient_count"),
    *("own_total_count", "shared_total_count", "differentiates"),
)
SIZES = FIELDS.index("groups")
PLACES = {name: k for k, name in enumerate(FIELDS)}
#: of a source: its first number, which row of it each sample has, and in bytes how far rows are
#: apart; how many numbers a row has, and where among a sample's own numbers they go
SOURCE = ("base", "index", "stride", "count", "target")


def _loop(dtype: str, lanes: int) -> str:
    """The loop as LLVM IR, over groups of so many samples."""
    code = Code(dtype)
    wide = code.over("float64")
    at = {}
    for k, name in enumerate(FIELDS):
        word = code.let(f"getelementptr inbounds i64, ptr %plan, i64 {k}")
        kind = "ptr" if k < SIZES else "i64"
        at[name] = code.let(f"load {kind}, ptr {word}, align 8")
    last = code.let(f"sub nsw i64 {at['groups']}, 1")
    with code.loop(at["groups"]) as g:
        first = code.let(f"mul nuw nsw i64 {g}, {lanes}")
        with code.loop(at["source_count"]) as s:
            _read_source(code, lanes, at, first, s)
        copied = code.let(f"icmp ne i64 {at['gather_bytes']}, 0")
        with code.when(copied):
            _read_gathers(code, lanes, at, first)
        is_last = code.let(f"icmp eq i64 {g}, {last}")
        tail = code.let(f"select i1 {is_last}, i64 {lanes}, i64 0")
        seeds = code.pointer(at["seeds"], [(tail, 1)])
        fine = code.name("fine")
        code.slots.append(f"  {fine} = alloca i1, align 1")
        before = ("shared", "own", "gathers", "counts")
        given = ", ".join(f"ptr {at[name]}" for name in before)
        flag = code.let(f"call {code.number} {at['forward']}({given})")
        code.emit(f"store i1 {_is_finite(code, flag)}, ptr {fine}")
        wanted = code.let(f"icmp ne i64 {at['differentiates']}, 0")
        right = code.let(f"load i1, ptr {fine}")
        with code.when(code.let(f"and i1 {wanted}, {right}")):
            names = ("shared", "own", "shared_adjoints", "adjoints")
            given = ", ".join(f"ptr {at[name]}" for name in names)
            rest = f"ptr {seeds}, ptr {at['gathers']}, ptr {at['counts']}"
            flag = code.let(f"call {code.number} {at['backward']}({given}, {rest})")
            code.emit(f"store i1 {_is_finite(code, flag)}, ptr {fine}")
        right = code.let(f"load i1, ptr {fine}")
        flags = wide.pointer(at["flags"], [(first, 1)])
        with code.when(right):
            _write(code, lanes, at, first, seeds)
            wide.store(flags, [], wide.constant(0.0, lanes))
        with code.when(code.let(f"xor i1 {right}, true")):
            code.emit(f"call void {at['check']}(ptr {at['shared']}, ptr {at['own']}, ptr {flags})")
    body = "\n".join([*code.slots, "  br label %start", "start:", *code.lines, "  ret void"])
    declarations = "\n".join(sorted(code.declarations))
    head = 'define void @map(ptr noalias %plan) nounwind "prefer-vector-width"="512"'
    return f"{declarations}\n{head} {{\nentry:\n{body}\n}}"


def _is_finite(code: Code, flag: str) -> str:
    difference = code.let(f"fsub {code.number} {flag}, {flag}")
    return code.let(f"fcmp oeq {code.number} {difference}, 0.0")


def _word(code: Code, array: str, place: str, kind: str = "i64") -> str:
    at = code.let(f"getelementptr inbounds i64, ptr {array}, i64 {place}")
    return code.let(f"load {kind}, ptr {at}, align 8")


def _read_source(code: Code, lanes: int, at: dict[str, str], first: str, s: str) -> None:
    """A row of one source for each lane: side by side, number by number."""
    wide = code.over("float64")
    begin = code.let(f"mul nuw nsw i64 {s}, {len(SOURCE)}")
    here = code.let(f"getelementptr inbounds i64, ptr {at['sources']}, i64 {begin}")
    base, index = (_word(code, here, str(k), "ptr") for k in range(2))
    stride, count, target = (_word(code, here, str(k)) for k in range(2, 5))
    rows = []
    for lane in range(lanes):
        place = code.let(f"add nuw nsw i64 {first}, {lane}")
        offset = code.let(f"mul nsw i64 {_word(code, index, place)}, {stride}")
        rows.append(code.let(f"getelementptr inbounds i8, ptr {base}, i64 {offset}"))
    own = code.pointer(at["own"], [(target, lanes)])
    _prefetch(code, rows, stride, count)
    width = min(lanes, jit.vector_width())
    done = "0"
    while width > 2:  # so many numbers of each row at once
        left = code.let(f"sub nuw nsw i64 {count}, {done}")
        times = code.let(f"lshr i64 {left}, {width.bit_length() - 1}")
        with code.loop(times) as k:
            j = code.let(f"shl nuw nsw i64 {k}, {width.bit_length() - 1}")
            j = code.let(f"add nuw nsw i64 {j}, {done}")
            _transpose(code, rows, own, j, width)
        done = code.let(f"and i64 {count}, {-width}")
        width //= 2
    with code.loop(code.let(f"sub nuw nsw i64 {count}, {done}")) as k:
        j = code.let(f"add nuw nsw i64 {k}, {done}")
        numbers = joined([wide.load(row, [(j, 1)]) for row in rows])
        code.store(own, [(j, lanes)], numbers.over(code.dtype))


def _transpose(code: Code, rows: list[str], own: str, j: str, width: int) -> None:
    """Numbers ``j`` up to ``j + width`` of every row: each to the lanes of all samples."""
    wide, most = code.over("float64"), min(len(rows), jit.vector_width())
    for first in range(0, len(rows), most):
        found = [wide.load(row, [(j, 1)], width) for row in rows[first : first + most]]
        while len(found) > width:  # rows that are half a vector apart in one vector
            half = len(found) // 2
            picks = range(2 * found[0].width)
            pairs = zip(found[:half], found[half:], strict=True)
            found = [shuffled(a, b, picks) for a, b in pairs]
        step = 1
        while step < width:  # exchange what is on the wrong side of the diagonal
            lanes = range(most)
            low = [k if not k & step else most + k - step for k in lanes]
            high = [most + k if k & step else k + step for k in lanes]
            for k in range(width):
                if not k & step:
                    a, b = found[k], found[k + step]
                    found[k], found[k + step] = shuffled(a, b, low), shuffled(a, b, high)
            step *= 2
        for k, numbers in enumerate(found):
            code.store(
                own, [(j, len(rows)), (None, k * len(rows) + first)], numbers.over(code.dtype)
            )


def _prefetch(code: Code, rows: list[str], stride: str, count: str) -> None:
    """Ask for the rows of the next group, which mostly come after these in memory."""
    code.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    ahead = code.let(f"mul nsw i64 {stride}, {len(rows)}")
    more = code.let(f"add nuw nsw i64 {count}, 7")
    with code.loop(code.let(f"lshr i64 {more}, 3")) as line:
        at = code.let(f"shl nuw nsw i64 {line}, 6")
        at = code.let(f"add nsw i64 {at}, {ahead}")
        for row in rows:
            place = code.let(f"getelementptr i8, ptr {row}, i64 {at}")
            code.emit(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")


def _read_gathers(code: Code, lanes: int, at: dict[str, str], first: str) -> None:
    """What the integers of each lane select."""
    code.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    size = at["gather_bytes"]
    for lane in range(lanes):
        place = code.let(f"add nuw nsw i64 {first}, {lane}")
        offset = code.let(f"mul nuw nsw i64 {_word(code, at['places'], place)}, {size}")
        source = code.let(f"getelementptr inbounds i8, ptr {at['gathered']}, i64 {offset}")
        by = code.let(f"mul nuw nsw i64 {size}, {lane}")
        target = code.let(f"getelementptr inbounds i8, ptr {at['gathers']}, i64 {by}")
        call = "call void @llvm.memcpy.p0.p0.i64"
        code.emit(f"{call}(ptr {target}, ptr {source}, i64 {size}, i1 false)")


def _write(code: Code, lanes: int, at: dict[str, str], first: str, seeds: str) -> None:
    """What a group gives: its rows, or what it adds to the totals."""
    wide = code.over("float64")
    rows = []
    for lane in range(lanes):
        place = code.let(f"add nuw nsw i64 {first}, {lane}")
        rows.append(_word(code, at["rows"], place))

    def scatter(array: str, width: str, column: str, numbers: Vector) -> None:
        for lane, x in enumerate(numbers.over("float64").lanes()):
            offset = code.let(f"mul nuw nsw i64 {rows[lane]}, {width}")
            wide.store(array, [(offset, 1), (column, 1)], x)

    with code.loop(at["output_count"]) as k:
        address = _word(code, at["outputs"], k)
        scatter(
            at["values"], at["output_count"], k, code.load(at["own"], [(address, lanes)], lanes)
        )
    address = _word(code, at["outputs"], "0")
    seed = code.load(seeds, [], lanes).over("float64")
    value = code.load(at["own"], [(address, lanes)], lanes).over("float64")
    total = wide.load(at["value_total"], [], lanes)
    wide.store(at["value_total"], [], value.times_plus(seed, total))
    with code.loop(at["gradient_count"]) as k:
        adjoint = code.load(at["adjoints"], [(k, lanes)], lanes)
        scatter(at["gradients"], at["gradient_count"], k, adjoint)
    for array, adjoints, width in (
        ("own_total", "adjoints", lanes),
        ("shared_total", "shared_adjoints", 1),
    ):
        with code.loop(at[f"{array}_count"]) as k:
            total = wide.load(at[array], [(k, width)], width)
            more = code.load(at[adjoints], [(k, width)], width).over("float64")
            wide.store(at[array], [(k, width)], total + more)


@functools.cache
def _compiled(dtype: str, lanes: int) -> tuple[jit.Library, Any]:
    library = jit.Library(_loop(dtype, lanes))
    return library, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("map"))


def run(dtype: str, lanes: int, words: int) -> None:
    """Compute groups of samples. ``words``: the address of those of ``FIELDS``."""
    _compiled(dtype, lanes)[1](words)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


#: the address of an array
address: Callable[[Any], int] = _address if kernels is None else kernels.array_address
