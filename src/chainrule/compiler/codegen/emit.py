"""The LLVM module of an array program.

In: a ``Program``, and which of its loops have a run-time trip count. Out: LLVM IR of some
functions, built by ``forward`` and ``backward``, over these arrays:

- P and V: the numbers that all samples share, and each sample's own; Q and D: their adjoints;
- S: the adjoint of the result, one for each sample;
- G: the addresses that gathers read; N: the run-time trip counts, or the commands of a program
  with steps.

``forward`` returns a number that is finite only if all of V is finite and every guard holds.
``reverse`` computes the gradient; ``backward`` calls it and returns a number that is finite only if
the gradient is. ``check`` tells for each sample of a batch whether it is one that made ``forward``
give up.

``pack`` is there in code for many samples that meet the same parameters. It comes before the first
``forward`` with new parameters, and copies some of them; ``reverse`` adds to the gradient then.
"""

from __future__ import annotations

import math

import numpy as np

from chainrule.compiler.codegen import scheduled
from chainrule.compiler.codegen.backward import Backward
from chainrule.compiler.codegen.contraction import Emitter
from chainrule.compiler.codegen.corners import Corners
from chainrule.compiler.codegen.forward import emit_forward, watched
from chainrule.compiler.codegen.instructions import Machine, differentiated
from chainrule.compiler.codegen.ir import Code, Integers, Offset, Vector, table_text
from chainrule.compiler.codegen.packed import Packing
from chainrule.compiler.codegen.walks import Others, Walks
from chainrule.compiler.lift.commands import commands
from chainrule.compiler.lift.program import Addresses, Program

__all__ = ["Machine", "machine", "watched"]


def machine(
    program: Program,
    root: int | None,
    width: int,
    varying: set[tuple[int, str]] | None = None,
    batch: int = 1,
    dtype: str = "float64",
    contract: bool = True,
    optional: set[int] | None = None,
    many: bool = False,
    returned: Addresses | None = None,
    others: Others | None = None,
) -> Machine:
    """The IR of forward and backward, ready to be parsed.

    ``root``: the address of the result, None where only numbers are wanted. ``width``: lanes of a
    vector. ``optional``: instructions that are skipped at run time where the count of their first
    walk is 0. Without ``contract`` products are rounded before they are added, and sums keep their
    order. ``many``: for many samples with the same parameters: there is ``pack``, and ``reverse``
    adds its gradient to Q. ``returned``: the addresses that are read after ``forward``, where that
    is not all of them, the root first: the others need not be written, and these are where
    ``Machine.place`` says. ``others``: the columns of a shorter call, where the rows of all walks
    are data.
    """
    if root is not None or batch > 1 or many or varying or optional:
        returned = None
    walks = Walks(program, varying or set(), contract, batch, others)
    made = Machine(walks=walks.all, optional=optional or set())
    forward, backward = (Emitter(walks, width, batch, dtype) for _ in range(2))
    packing = Packing(walks, width, dtype)
    if root is not None and dtype == "float64":
        forward.corners = Corners(walks, root)
    if program.steps is None:
        if many and batch == 1 and walks.contract:
            forward.packing = packing
        finite = emit_forward(forward, made, returned)
        if root is not None:
            Backward(backward, made, adds=many).emit(root)
    else:
        found = commands(program, root or 0)
        made.table = found.table
        finite = scheduled.emit_forward(forward, found)
        if root is not None:
            scheduled.emit_backward(backward, found, root, adds=many)
    made.scratch, made.numbers = walks.scratch, walks.numbers
    checked = Emitter(walks, width, batch, dtype)
    checked.code.emit("call void @reverse({})".format(", ".join(f"ptr %{x}" for x in "PVQDSGN")))
    if root is None:
        gradient_finite = checked.code.constant(0.0, 1)
    elif program.steps is None:
        gradient_finite = _check_gradient(checked)
    else:
        gradient_finite = scheduled.check_gradient(checked)
    arguments = "ptr noalias %P, ptr noalias %V"
    more = "ptr noalias %Q, ptr noalias %D, ptr noalias %S"
    tail = "ptr noalias readonly %G, ptr noalias readonly %N"
    number = forward.code.kind(1)
    parts = [
        _function(forward.code, f"{number} @forward({arguments}, {tail})", finite),
        _function(backward.code, f"void @reverse({arguments}, {more}, {tail})"),
        _function(
            checked.code, f"{number} @backward({arguments}, {more}, {tail})", gradient_finite
        ),
    ]
    declarations = forward.code.declarations | backward.code.declarations
    if many:
        parts.append(_function(packing.code, f"void @pack({arguments})"))
    if batch > 1:
        each = _check_samples(Emitter(walks, width, batch, dtype))
        parts.append(_function(each, f"void @check({arguments}, ptr noalias %F)"))
        declarations |= each.declarations
    made.text = "\n".join([*sorted(declarations), *parts])
    return made


def _check_gradient(emitter: Emitter) -> Vector:
    """A number that is finite only if the gradient is."""
    program, code = emitter.program, emitter.code
    emitter.flags = emitter.new_flags()
    whole, own = program.inputs // emitter.width, differentiated(program)
    if whole:
        with code.loop(whole) as i:
            emitter.watch(code.load("%Q", [(i, emitter.width)], emitter.width))
    for at in range(whole * emitter.width, program.inputs):
        emitter.watch(code.load("%Q", [(None, at)]))
    if own:
        with code.loop(own) as i:
            for at, width in emitter.chunks(emitter.batch):
                emitter.watch(code.load("%D", [(i, emitter.batch), (None, at)], width))
    return emitter.flag_total()


def _check_samples(emitter: Emitter) -> Code:
    """F: a double for each sample, finite only if all its numbers are and its guards hold.

    A hint, so that the others can be computed without these: it is stricter than ``forward`` about
    numbers, and silent about guards that all samples share.
    """
    program, code, batch = emitter.program, emitter.code, emitter.batch
    wide = code.over("float64")
    own = program.guards >= program.shared
    guards = program.guards[own] - program.shared
    expected = np.ascontiguousarray(program.expected[own]).view(np.int64)
    for at, width in emitter.chunks(batch):
        flag = wide.variable(wide.constant(1.0, width))
        with code.loop(program.size - program.shared) as i:
            x = code.load("%V", [(i, batch), (None, at)], width).over("float64")
            flag.set(x.times_plus(x, flag.get()))
        if len(guards):
            with code.loop(len(guards)) as i:
                place: Offset = [(code.table(guards, i), batch), (None, at)]
                x = code.load("%V", place, width).over("float64")
                right = Integers(wide, code.table(expected, i), 1).numbers().splat(width)
                flag.set(flag.get() + x._compare("une", right).choose(math.inf, 0.0))
        wide.store("%F", [(None, at)], flag.get())
    return code


def _function(code: Code, head: str, result: Vector | None = None) -> str:
    """The text of a whole function: its variables, its body and the tables it reads."""
    name = head.split("@")[1].split("(")[0]
    body = "\n".join(code.lines).replace("@table", f"@{name}_table")
    end = "void" if result is None else f"{code.kind(1)} {result.register}"
    text = (
        f'define {head} nounwind "prefer-vector-width"="512" {{\nentry:\n'
        + "\n".join(code.slots)
        + f"\n  br label %start\nstart:\n{body}\n  ret {end}\n}}"
    )
    for label, numbers in code.tables.values():
        text += (
            f"\n{label.replace('@table', f'@{name}_table')} = private constant "
            f"{table_text(numbers)}, align 64"
        )
    return text
