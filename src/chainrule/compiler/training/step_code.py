"""Machine code that takes whole training steps: samples, loss, gradient, update.

In: the addresses of a program's forward and backward. Out: a loop around them, one call for
thousands of steps, which stops before the first loss that is not finite, and the updates of the
optimisers, each one pass over parameters, gradient and moments. A gradient that is not finite shows
in the moments and parameters after the call.

Several threads can be in the loop at once, each with its own arenas. They share the groups of a
step, add up what these gave, each its own, wait for each other, add that up and update the
parameters, each a stretch of them, and wait again. Of a small model each thread has parameters and
moments of its own instead, and updates all of them: that is less than what cores take to exchange
them, and they wait once a step.
Parts of a step and the order of sums do not depend on how many threads there are. Where groups do
not come out even, the first parts have one more each: so have threads, of which each takes every
second part, or every third.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen import jit
from chainrule.compiler.codegen.ir import Code
from chainrule.compiler.runtime.machine import cache_aligned
from chainrule.compiler.training import crew, filling
from chainrule.compiler.training.updates import RATES

#: what the loop reads, each a word: addresses first, then sizes
FIELDS = (
    *("codes", "update", "rest"),
    *("parameters", "parts", "part_losses", "total", "first_moment", "second_moment", "state"),
    *("which", "rows", "fits"),  # of each group of samples: its code, and its row and fit there
    *("starts", "rates", "losses"),
    *("steps", "codes_count", "most_parts", "gradient_bytes", "zeroed_bytes", "part_bytes"),
    *("clipped", "thread", "threads", "replicated"),
)
#: what it reads of each code that samples run on, in the memory of this thread
CODE = (
    *("pack", "forward", "reverse", "shared", "own", "adjoints", "selected"),
    *("constants", "counts"),  # a row for each fit
    *("seeds", "members", "member_fits"),  # a row for each group, a lane each
    *("samples", "gathers"),  # a row for each of the members
    "extra",  # numbers, a row for each of their fits
    *("run_starts", "run_lengths"),  # of the addresses that a row of gathers begins
    "moves",  # where the code has each address; null: there
    *("runs", "inputs", "constant_bytes", "count_words", "gather_words", "gather_count"),
    *("sample_count", "extra_count", "lanes", "root"),
)
PARTS = 8  # at most, of the groups of a step: each is added up by itself
SMALL = 1 << 14  # parameters of a small model, whose samples take little more than a part does
SAMPLES = 16  # at least in a part of a step of such a model
LINE = 16  # words: what one thread writes and others wait for has two cache lines for itself
SPINS = 2_000  # that a thread waits for others before it lets something else run


def most_parts(parameters: int, batch: int) -> int:
    """Of a step, whoever takes it: this decides in which order gradients are added up.

    A power of two: so each of two or four threads has as many of them.
    """
    if parameters >= SMALL:
        return PARTS
    return 1 << (min(PARTS, max(1, batch // SAMPLES)).bit_length() - 1)


def _loads(start: str, names: Sequence[str], sizes: int) -> str:
    """Loads of words that follow each other, addresses up to the place ``sizes``."""
    return "\n".join(
        f"  %{name}_word = getelementptr inbounds i64, ptr %{start}, i64 {k}\n"
        f"  %{name} = load {'ptr' if k < sizes else 'i64'}, ptr %{name}_word, align 8"
        for k, name in enumerate(names)
    )


def _add_up_text(vector: str, size: int, wide: int) -> str:
    """What adds up to PARTS arrays, so many bytes after one another, in pairs as in a knockout.

    Those of the second half go to those of the first, and so on. So a thread can add up its own,
    every second or fourth, before it waits for the others: the sums have the same bits.
    """
    lines = [
        "define internal void @add_up(ptr %first, i64 %step, i64 %count, ptr %to, i64 %begin,",
        '                             i64 %end) nounwind noinline "prefer-vector-width"="512" {',
        "entry:",
        "  switch i64 %count, label %done [",
        *[f"    i64 {n}, label %of_{n}" for n in range(2, PARTS + 1)],
        "  ]",
    ]
    for n in range(2, PARTS + 1):
        lines += [
            f"of_{n}:",
            f"  %b_{n} = phi i64 [%begin, %entry], [%next_{n}, %of_{n}]",
            f"  %at_{n}_0 = getelementptr inbounds i8, ptr %first, i64 %b_{n}",
        ]
        for k in range(n):
            at = f"%at_{n}_{k}"
            if k:
                lines.append(f"  {at} = getelementptr inbounds i8, ptr %at_{n}_{k - 1}, i64 %step")
            lines.append(f"  %x_{n}_{k} = load {vector}, ptr {at}, align {size}")
        sums, left, made = [f"%x_{n}_{k}" for k in range(n)], n, 0
        while left > 1:
            half = 1 << (left - 1).bit_length() - 1  # the largest power of two below
            for k in range(left - half):
                lines.append(f"  %y_{n}_{made} = fadd {vector} {sums[k]}, {sums[k + half]}")
                sums[k], made = f"%y_{n}_{made}", made + 1
            left = half
        lines += [
            f"  %to_{n} = getelementptr inbounds i8, ptr %to, i64 %b_{n}",
            f"  store {vector} {sums[0]}, ptr %to_{n}, align {size}",
            f"  %next_{n} = add i64 %b_{n}, {wide}",
            f"  %more_{n} = icmp ult i64 %next_{n}, %end",
            f"  br i1 %more_{n}, label %of_{n}, label %done",
        ]
    return "\n".join([*lines, "done:", "  ret void", "}"])


def _loop_text(number: str, size: int, width: int) -> str:
    """The loop as LLVM IR, over ``number``s of so many bytes."""
    load = _loads("plan", FIELDS, FIELDS.index("steps"))
    load_code = _loads("code", CODE, CODE.index("runs"))
    copy = "call void @llvm.memcpy.p0.p0.i64"
    vector = f"<{width} x {number}>"
    wide = width * size
    widen = "fadd double %mean, 0.0" if number == "double" else "fpext float %mean to double"
    return f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define internal void @meet(ptr %state, i64 %thread, i64 %threads, i64 %times,
                           ptr %rest) nounwind noinline {{
entry:
  %own_offset = mul i64 %thread, {LINE}
  %own_at = getelementptr inbounds i64, ptr %state, i64 %own_offset
  store atomic i64 %times, ptr %own_at release, align 8
  br label %other
other:
  %o = phi i64 [0, %entry], [%o_next, %arrived]
  %spent = phi i64 [0, %entry], [%spins, %arrived]
  %offset = mul i64 %o, {LINE}
  %at = getelementptr inbounds i64, ptr %state, i64 %offset
  br label %look
look:
  %spins = phi i64 [%spent, %other], [%spins_next, %wait], [{SPINS}, %yield]
  %here = load atomic i64, ptr %at acquire, align 8
  %complete = icmp uge i64 %here, %times
  br i1 %complete, label %arrived, label %wait
wait:
  %spins_next = add i64 %spins, 1
  %long = icmp ugt i64 %spins_next, {SPINS}
  br i1 %long, label %yield, label %look
yield:
  %answer = call i32 %rest()
  br label %look
arrived:
  %o_next = add i64 %o, 1
  %others_left = icmp ult i64 %o_next, %threads
  br i1 %others_left, label %other, label %end
end:
  ret void
}}
{_add_up_text(vector, size, wide)}
{filling.text(number, size)}
define i64 @train(ptr noalias %plan) nounwind {{
entry:
{load}
  %stop_offset = mul i64 %threads, {LINE}
  %stop = getelementptr inbounds i64, ptr %state, i64 %stop_offset
  %is_main = icmp eq i64 %thread, 0
  %is_replicated = icmp ne i64 %replicated, 0
  %is_clipped = icmp ne i64 %clipped, 0
  %rounded = add i64 %gradient_bytes, {wide - 1}
  %stretches = udiv i64 %rounded, {wide}
  %threads_up_to = add i64 %thread, 1
  %stretch_before = mul i64 %stretches, %thread
  %stretch_after = mul i64 %stretches, %threads_up_to
  %shared_first = udiv i64 %stretch_before, %threads
  %shared_last = udiv i64 %stretch_after, %threads
  %stretch_first = select i1 %is_replicated, i64 0, i64 %shared_first
  %stretch_last = select i1 %is_replicated, i64 %stretches, i64 %shared_last
  %add_first = mul i64 %stretch_first, {wide}
  %add_last = mul i64 %stretch_last, {wide}
  %all_bytes = mul i64 %stretches, {wide}
  %own_step = mul i64 %part_bytes, %threads
  %threads_less = sub i64 %threads, 1
  %threads_bits = and i64 %threads, %threads_less
  %threads_are_power = icmp eq i64 %threads_bits, 0
  br label %step
step:
  %s = phi i64 [0, %entry], [%s_next, %next_step]
  %met = phi i64 [0, %entry], [%met_3, %next_step]
  %more = icmp ult i64 %s, %steps
  br i1 %more, label %begin, label %end
begin:
  %met_1 = add i64 %met, 1
  %sharing = select i1 %is_replicated, i64 0, i64 1
  %all_of_clipped = select i1 %is_clipped, i64 %sharing, i64 0
  %met_2 = add i64 %met_1, %all_of_clipped
  %met_3 = add i64 %met_2, %sharing
  %first_at = getelementptr inbounds i64, ptr %starts, i64 %s
  %first = load i64, ptr %first_at, align 8
  %s_next = add nuw nsw i64 %s, 1
  %last_at = getelementptr inbounds i64, ptr %starts, i64 %s_next
  %last = load i64, ptr %last_at, align 8
  %groups = sub i64 %last, %first
  %few = icmp ult i64 %groups, %most_parts
  %part_count = select i1 %few, i64 %groups, i64 %most_parts
  %even_share = udiv i64 %groups, %part_count
  %odd_groups = urem i64 %groups, %part_count
  %is_odd = and i64 %s, %replicated
  %parts_before = mul i64 %is_odd, %most_parts
  %parts_before_bytes = mul i64 %parts_before, %part_bytes
  %parts_here = getelementptr inbounds i8, ptr %parts, i64 %parts_before_bytes
  %losses_before = mul i64 %parts_before, {LINE * 8}
  %part_losses_here = getelementptr inbounds i8, ptr %part_losses, i64 %losses_before
  %own_count = udiv i64 %part_count, %threads
  %part_count_less = sub i64 %part_count, 1
  %part_count_bits = and i64 %part_count, %part_count_less
  %is_power = icmp eq i64 %part_count_bits, 0
  %has_several = icmp ugt i64 %own_count, 1
  %several_parts = and i1 %has_several, %is_power
  %adds_own = and i1 %several_parts, %threads_are_power
  %sums_left = select i1 %adds_own, i64 %threads, i64 %part_count
  %own_offset = mul i64 %part_bytes, %thread
  %own_first = getelementptr inbounds i8, ptr %parts_here, i64 %own_offset
  br label %ready
ready:
  %c = phi i64 [0, %begin], [%c_next, %done_one]
  %c_offset = mul i64 %c, {len(CODE)}
  %c_words = getelementptr inbounds i64, ptr %codes, i64 %c_offset
  %c_shared_word = getelementptr inbounds i64, ptr %c_words, i64 {CODE.index("shared")}
  %c_shared = load ptr, ptr %c_shared_word, align 8
  %c_is_there = icmp eq ptr %c_shared, %parameters
  br i1 %c_is_there, label %refreshed, label %refresh
refresh:
  {copy}(ptr %c_shared, ptr %parameters, i64 %gradient_bytes, i1 false)
  br label %refreshed
refreshed:
  %c_pack = load ptr, ptr %c_words, align 8
  %packs = icmp ne ptr %c_pack, null
  br i1 %packs, label %copies, label %done_one
copies:
  %c_own_word = getelementptr inbounds i64, ptr %c_words, i64 {CODE.index("own")}
  %c_own = load ptr, ptr %c_own_word, align 8
  call void %c_pack(ptr %c_shared, ptr %c_own)
  br label %done_one
done_one:
  %c_next = add i64 %c, 1
  %codes_left = icmp ult i64 %c_next, %codes_count
  br i1 %codes_left, label %ready, label %next_part
next_part:
  %p = phi i64 [%thread, %done_one], [%p_next, %part_done]
  %parts_left = icmp ult i64 %p, %part_count
  br i1 %parts_left, label %part, label %own_parts
own_parts:
  br i1 %adds_own, label %add_own, label %computed
add_own:
  call void @add_up(ptr %own_first, i64 %own_step, i64 %own_count, ptr %own_first,
                    i64 0, i64 %all_bytes)
  br label %computed
part:
  %p_following = add i64 %p, 1
  %even_before = mul i64 %even_share, %p
  %even_after = mul i64 %even_share, %p_following
  %odd_before = call i64 @llvm.umin.i64(i64 %p, i64 %odd_groups)
  %odd_after = call i64 @llvm.umin.i64(i64 %p_following, i64 %odd_groups)
  %share_before = add i64 %even_before, %odd_before
  %share_after = add i64 %even_after, %odd_after
  %g_first = add i64 %first, %share_before
  %g_last = add i64 %first, %share_after
  %part_offset = mul i64 %p, %part_bytes
  %part_at = getelementptr inbounds i8, ptr %parts_here, i64 %part_offset
  call void @llvm.memset.p0.i64(ptr %part_at, i8 0, i64 %zeroed_bytes, i1 false)
  br label %group
group:
  %g = phi i64 [%g_first, %part], [%g_next, %reverse_pass]
  %loss_before = phi {number} [0.0, %part], [%loss, %reverse_pass]
  %which_at = getelementptr inbounds i64, ptr %which, i64 %g
  %which_code = load i64, ptr %which_at, align 8
  %code_offset = mul i64 %which_code, {len(CODE)}
  %code = getelementptr inbounds i64, ptr %codes, i64 %code_offset
{load_code}
  %constants_to = getelementptr inbounds {number}, ptr %shared, i64 %inputs
  %lane_bytes = mul i64 %lanes, {size}
  %root_at = mul i64 %root, %lanes
  %results = getelementptr inbounds {number}, ptr %own, i64 %root_at
  %row_at = getelementptr inbounds i64, ptr %rows, i64 %g
  %row = load i64, ptr %row_at, align 8
  %fit_at = getelementptr inbounds i64, ptr %fits, i64 %g
  %fit = load i64, ptr %fit_at, align 8
  %constant_row = mul i64 %fit, %constant_bytes
  %constants_from = getelementptr inbounds i8, ptr %constants, i64 %constant_row
  {copy}(ptr %constants_to, ptr %constants_from, i64 %constant_bytes, i1 false)
  %count_row = mul i64 %fit, %count_words
  %counts_here = getelementptr inbounds i64, ptr %counts, i64 %count_row
  %seed_row = mul i64 %row, %lane_bytes
  %seeds_here = getelementptr inbounds i8, ptr %seeds, i64 %seed_row
  %g_following = add nuw nsw i64 %g, 1
  %is_last = icmp eq i64 %g_following, %last
  %g_soon = select i1 %is_last, i64 %g, i64 %g_following
  %row_soon_at = getelementptr inbounds i64, ptr %rows, i64 %g_soon
  %row_soon = load i64, ptr %row_soon_at, align 8
  %members_soon_row = mul i64 %row_soon, %lanes
  %member_soon_at = getelementptr inbounds i64, ptr %members, i64 %members_soon_row
  %member_soon = load i64, ptr %member_soon_at, align 8
  %gathers_soon_row = mul i64 %member_soon, %gather_words
  %gathers_soon = getelementptr inbounds i64, ptr %gathers, i64 %gathers_soon_row
  br label %fetch
fetch:
  %fetched = phi i64 [0, %group], [%fetched_next, %fetch]
  %fetched_at = getelementptr inbounds i64, ptr %gathers_soon, i64 %fetched
  call void @llvm.prefetch.p0(ptr %fetched_at, i32 0, i32 2, i32 1)
  %fetched_next = add nuw nsw i64 %fetched, 8
  %fetches_left = icmp ult i64 %fetched_next, %gather_words
  br i1 %fetches_left, label %fetch, label %fetches_done
fetches_done:
  %members_row = mul i64 %row, %lanes
  %extra_to = mul i64 %sample_count, %lanes
  %has_gathers = icmp ne i64 %gather_count, 0
  %is_one = icmp eq i64 %lanes, 1
  %is_single = icmp eq i64 %runs, 0
  %stays = icmp eq ptr %moves, null
  %as_single = and i1 %is_single, %stays
  %as_packed = and i1 %is_one, %as_single
  br label %fill
fill:
  %f = phi i64 [0, %fetches_done], [%f_next, %filled]
  %f_place = add i64 %members_row, %f
  %member_at = getelementptr inbounds i64, ptr %members, i64 %f_place
  %member = load i64, ptr %member_at, align 8
  %sample_row = mul i64 %member, %sample_count
  %sample_from = getelementptr inbounds {number}, ptr %samples, i64 %sample_row
  %sample_to = getelementptr inbounds {number}, ptr %own, i64 %f
  call void @spread(ptr %sample_to, i64 %lanes, ptr %sample_from, i64 %sample_count)
  %gather_row = mul i64 %member, %gather_words
  %gathers_from = getelementptr inbounds i64, ptr %gathers, i64 %gather_row
  %has_extra = icmp ne i64 %extra_count, 0
  br i1 %has_extra, label %extra_numbers, label %addresses
extra_numbers:
  %member_fit_at = getelementptr inbounds i64, ptr %member_fits, i64 %f_place
  %member_fit = load i64, ptr %member_fit_at, align 8
  %extra_row = mul i64 %member_fit, %extra_count
  %extra_from = getelementptr inbounds {number}, ptr %extra, i64 %extra_row
  %extra_lane = getelementptr inbounds {number}, ptr %sample_to, i64 %extra_to
  call void @spread(ptr %extra_lane, i64 %lanes, ptr %extra_from, i64 %extra_count)
  br label %addresses
addresses:
  %in_place = xor i1 %as_packed, true
  %to_select = and i1 %has_gathers, %in_place
  br i1 %to_select, label %select, label %filled
select:
  %selected_place = mul i64 %f, %gather_count
  %selected_to = getelementptr inbounds i64, ptr %selected, i64 %selected_place
  call void @select(ptr %selected_to, i64 %gather_count, ptr %gathers_from, i64 %gather_words,
                    ptr %run_starts, ptr %run_lengths, i64 %runs, ptr %moves)
  br label %filled
filled:
  %f_next = add nuw nsw i64 %f, 1
  %lanes_to_fill = icmp ult i64 %f_next, %lanes
  br i1 %lanes_to_fill, label %fill, label %compute
compute:
  %gathers_all = select i1 %as_packed, ptr %gathers_from, ptr %selected
  %flag = call {number} %forward(ptr %shared, ptr %own, ptr %gathers_all, ptr %counts_here)
  %difference = fsub {number} %flag, %flag
  %finite = fcmp oeq {number} %difference, 0.0
  br i1 %finite, label %lane, label %broken
lane:
  %l = phi i64 [0, %compute], [%l_next, %lane]
  %loss_so_far = phi {number} [%loss_before, %compute], [%loss, %lane]
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
  call void %reverse(ptr %shared, ptr %own, ptr %part_at, ptr %adjoints,
                     ptr %seeds_here, ptr %gathers_all, ptr %counts_here)
  %g_next = add nuw nsw i64 %g, 1
  %groups_left = icmp ult i64 %g_next, %g_last
  br i1 %groups_left, label %group, label %part_done
part_done:
  %part_loss_offset = mul i64 %p, {LINE * 8}
  %part_loss_at = getelementptr inbounds i8, ptr %part_losses_here, i64 %part_loss_offset
  store {number} %loss, ptr %part_loss_at, align {size}
  %p_next = add i64 %p, %threads
  br label %next_part
broken:
  store atomic i64 %s_next, ptr %stop release, align 8
  br label %computed
computed:
  call void @meet(ptr %state, i64 %thread, i64 %threads, i64 %met_1, ptr %rest)
  %stopped = load atomic i64, ptr %stop acquire, align 8
  %before_stop = sub i64 %stopped, 1
  %goes_on = icmp ugt i64 %before_stop, %s
  br i1 %goes_on, label %sum, label %end
sum:
  %alone = icmp eq i64 %sums_left, 1
  %nothing = icmp uge i64 %add_first, %add_last
  %skipped = or i1 %alone, %nothing
  br i1 %skipped, label %summed, label %add_all
add_all:
  call void @add_up(ptr %parts_here, i64 %part_bytes, i64 %sums_left, ptr %total,
                    i64 %add_first, i64 %add_last)
  br label %summed
summed:
  %used = select i1 %alone, ptr %parts_here, ptr %total
  %waits_for_sums = icmp ne i64 %met_1, %met_2
  br i1 %waits_for_sums, label %norm, label %move
norm:
  call void @meet(ptr %state, i64 %thread, i64 %threads, i64 %met_2, ptr %rest)
  br label %move
move:
  %rate_at = mul i64 %s, {RATES * size}
  %rates_here = getelementptr inbounds i8, ptr %rates, i64 %rate_at
  call void %update(ptr %parameters, ptr %used, ptr %first_moment, ptr %second_moment,
                    ptr %rates_here, i64 %stretch_first, i64 %stretch_last)
  br i1 %is_main, label %part_mean, label %moved
part_mean:
  %r = phi i64 [0, %move], [%r_next, %part_mean]
  %mean_so_far = phi {number} [0.0, %move], [%mean, %part_mean]
  %mean_offset = mul i64 %r, {LINE * 8}
  %mean_at = getelementptr inbounds i8, ptr %part_losses_here, i64 %mean_offset
  %mean_of_part = load {number}, ptr %mean_at, align {size}
  %mean = fadd {number} %mean_so_far, %mean_of_part
  %r_next = add i64 %r, 1
  %means_left = icmp ult i64 %r_next, %part_count
  br i1 %means_left, label %part_mean, label %note
note:
  %loss_wide = {widen}
  %loss_at = getelementptr inbounds double, ptr %losses, i64 %s
  store double %loss_wide, ptr %loss_at, align 8
  br label %moved
moved:
  br i1 %is_replicated, label %next_step, label %all_moved
all_moved:
  call void @meet(ptr %state, i64 %thread, i64 %threads, i64 %met_3, ptr %rest)
  br label %next_step
next_step:
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


@dataclass(frozen=True)
class Share:
    """What a thread has for itself: words of ``CODE`` for each code, and some of ``FIELDS``."""

    codes: Sequence[Mapping[str, int]]
    fields: Mapping[str, int]


def take(dtype: str, shares: Sequence[Share], **fields: int) -> int:
    """Take steps; how many were whole. ``fields``: the words of ``FIELDS`` that threads share."""
    loop = _loop(dtype)[1]
    # How often each thread has arrived where all meet; then the step to stop at, from 1.
    state = cache_aligned(LINE * (len(shares) + 1), np.int64)
    fields |= {"state": words(state), "rest": rest() if len(shares) > 1 else 0}
    plans, tables = [], []
    for thread, share in enumerate(shares):
        tables.append(np.array([[code[name] for name in CODE] for code in share.codes], np.int64))
        mine = {"codes": words(tables[-1]), "thread": thread, "threads": len(shares)}
        mine |= {"codes_count": len(share.codes)}
        every = {**fields, **share.fields, **mine}
        plans.append(np.array([every[name] for name in FIELDS], np.int64))
    if len(plans) == 1:
        return int(loop(words(plans[0])))

    def let_go() -> None:
        state[-LINE] = 1
        state[:-LINE] = 1 << 62

    done = crew.together(loop, [*map(words, plans)], let_go)
    return take(dtype, shares[:1], **fields) if done is None else int(done)


@functools.cache
def rest() -> int:
    """The address of the C function that lets another thread run; 0 where there is none."""
    try:
        found = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
    except (OSError, TypeError, AttributeError):
        return 0
    return found or 0


def words(array: npt.NDArray[Any]) -> int:
    """The address of an array, which lies there in one piece, row after row."""
    assert array.flags.c_contiguous
    return int(array.__array_interface__["data"][0])  # quicker than its ctypes
