"""Machine code that fills the arenas of a group with what its samples have of their own.

In: packed samples, and which of them are the lanes of a group. Out: LLVM functions for the loop of
``step_code``: ``spread``, which puts the numbers of a sample into its lane, and ``select``, which
writes the addresses that its gathers read. The threads that compute a group fill it themselves.
"""

from __future__ import annotations

from chainrule.compiler.training.stretches import AHEAD

_LANES = ", ".join(f"i64 {k}" for k in range(AHEAD))
_NEXT = ", ".join([f"i64 {AHEAD}"] * AHEAD)


def text(number: str, size: int) -> str:
    """The functions as LLVM IR, over ``number``s of so many bytes."""
    some = f"<{AHEAD} x i64>"
    return f"""
define internal void @spread(ptr noalias %to, i64 %lanes, ptr noalias %from, i64 %count) nounwind {{
entry:
  %is_alone = icmp eq i64 %lanes, 1
  br i1 %is_alone, label %copy, label %next
copy:
  %bytes = mul i64 %count, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
next:
  %k = phi i64 [0, %entry], [%k_next, %number]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %number, label %done
number:
  %from_at = getelementptr inbounds {number}, ptr %from, i64 %k
  %x = load {number}, ptr %from_at, align {size}
  %place = mul i64 %k, %lanes
  %to_at = getelementptr inbounds {number}, ptr %to, i64 %place
  store {number} %x, ptr %to_at, align {size}
  %k_next = add nuw nsw i64 %k, 1
  br label %next
done:
  ret void
}}
define internal void @select(ptr noalias %to, i64 %count, ptr noalias %from, i64 %words,
                             ptr %run_starts, ptr %run_lengths, i64 %runs, ptr %moves) nounwind {{
entry:
  %has_runs = icmp ne i64 %runs, 0
  br i1 %has_runs, label %run, label %copy
copy:
  %bytes = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %selected
run:
  %t = phi i64 [0, %entry], [%t_next, %run_done]
  %base_at = getelementptr inbounds i64, ptr %from, i64 %t
  %base = load i64, ptr %base_at, align 8
  %base_lane = insertelement {some} poison, i64 %base, i64 0
  %bases = shufflevector {some} %base_lane, {some} poison, <{AHEAD} x i32> zeroinitializer
  %first = add {some} %bases, <{_LANES}>
  %run_start_at = getelementptr inbounds i64, ptr %run_starts, i64 %t
  %run_start = load i64, ptr %run_start_at, align 8
  %run_length_at = getelementptr inbounds i64, ptr %run_lengths, i64 %t
  %run_length = load i64, ptr %run_length_at, align 8
  %run_to = getelementptr inbounds i64, ptr %to, i64 %run_start
  br label %some
some:
  %a = phi i64 [0, %run], [%a_next, %some]
  %addresses = phi {some} [%first, %run], [%addresses_next, %some]
  %addresses_to = getelementptr inbounds i64, ptr %run_to, i64 %a
  store {some} %addresses, ptr %addresses_to, align 8
  %addresses_next = add {some} %addresses, <{_NEXT}>
  %a_next = add nuw nsw i64 %a, {AHEAD}
  %addresses_left = icmp ult i64 %a_next, %run_length
  br i1 %addresses_left, label %some, label %run_done
run_done:
  %t_next = add nuw nsw i64 %t, 1
  %runs_left = icmp ult i64 %t_next, %runs
  br i1 %runs_left, label %run, label %selected
selected:
  %stays = icmp eq ptr %moves, null
  br i1 %stays, label %done, label %move
move:
  %m = phi i64 [0, %selected], [%m_next, %move]
  %moved_at = getelementptr inbounds i64, ptr %to, i64 %m
  %before = load i64, ptr %moved_at, align 8
  %after_at = getelementptr inbounds i64, ptr %moves, i64 %before
  %after = load i64, ptr %after_at, align 8
  store i64 %after, ptr %moved_at, align 8
  %m_next = add nuw nsw i64 %m, 1
  %moves_left = icmp ult i64 %m_next, %count
  br i1 %moves_left, label %move, label %done
done:
  ret void
}}
"""
