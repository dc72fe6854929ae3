"""Machine code of an array program.

In: a ``lift.program.Program``, and which of its loops have a run-time trip count. Out: LLVM IR text
(``emit.machine``), then functions in memory (``jit.Library``). ``forward`` and ``backward`` emit
the two passes, one instruction after another, with what they share in ``instructions``; ``walks``
are the loops over an instruction's points, ``contraction``, ``tiles`` and ``pairs`` those over sums
of products; ``registers`` small loops in time; ``scheduled`` both passes of a program that is done
in steps; ``elementary`` exp, log, tanh and the like. Rules of the op table run on ``vectors``,
which write IR (``ir``).

Print it: ``print(emit.machine(...).text)``. Verified by LLVM when it is parsed; what it computes is
compared with ``lift.interpreter`` by the tests, and its first result with the tape's whenever a
function is compiled (``runtime.verification``).
"""
