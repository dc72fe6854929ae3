"""The loops of a C source as Python, to be run and compared with eager mode.

In: a recorded call, and the ``Bodies`` of its passes in Python. Out: a function from arguments to
the returned numbers and their derivatives. It takes about as long as eager mode does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.translate.c.bodies import Bodies
from chainrule.compiler.translate.c.rows import LIBRARY
from chainrule.core import ops, rounding
from chainrule.trees import Floats

#: numbers of the leaves in order, then integers: to a status, returned numbers and derivatives
Mirror = Callable[[Sequence[Floats], Sequence[int]], tuple[int, list[float], list[Floats]]]


def mirrored(bodies: Bodies, leaves: Sequence[Any], selection: Selection) -> Mirror:
    """What a source computes, by its Python twin."""
    space = _namespace()
    lines = list(bodies.functions.texts)
    values = [bodies.text(x) for x in bodies.outputs]
    seeds = [bodies.seeded(k) for k in range(len(bodies.outputs))]
    for (kind, numbers), name in bodies.storage.tables.items():
        lines.append(bodies.language.table(name, numbers, kind))
    for word, parts in (("forward", bodies.forward), ("backward", bodies.backward)):
        for k, body in enumerate(parts):
            lines += [f"def {word}{k}():", *body, "    return 0"]
    for k, seed in enumerate(seeds):
        lines += [f"def seed{k}():", "    pass" if seed is None else f"    {seed} = 1.0"]
    lines += ["def values():", f"    return [{', '.join(values)}]"]
    exec(compile("\n".join(lines), "<loops>", "exec"), space)

    def run(
        numbers: Sequence[Floats], integers: Sequence[int]
    ) -> tuple[int, list[float], list[Floats]]:
        decided = _decided(bodies, selection, integers, space)
        if decided is None:
            return 1, [], []
        at = 0
        for leaf, row in zip(leaves, [*numbers, *[None] * len(leaves)], strict=False):
            if row is None:
                size = math.prod(leaf.sizes)
                space[leaf.value] = [int(i) for i in integers[at : at + size]]
                at += size
            else:
                space[leaf.value] = [float(x) for x in np.ravel(row)]
        for adjoints in (False, True):
            for name, sizes in bodies.members(adjoints):
                if name not in decided:
                    space[bodies.language.work + name] = [0.0] * math.prod(sizes)
        space[f"{bodies.language.work}unsure"] = [0]
        for k in range(len(bodies.forward)):
            status = space[f"forward{k}"]()
            if status:
                return status, [], []
        slopes = []
        for k, seed in enumerate(seeds):
            for name, sizes in bodies.members(True):
                space[bodies.language.work + name] = [0.0] * math.prod(sizes)
            mine = [leaf for leaf in leaves if leaf.active]
            for leaf in mine:
                space[leaf.adjoint] = [0.0] * math.prod(leaf.sizes)
            space[f"seed{k}"]()
            for part in range(len(bodies.backward) if seed is not None else 0):
                space[f"backward{part}"]()
            rows = [np.array(space[leaf.adjoint], np.float64) for leaf in mine]
            slopes.append(np.concatenate([np.zeros(0), *rows]))
        status = 3 if space[f"{bodies.language.work}unsure"][0] else 0
        return status, space["values"](), slopes

    return run


def _decided(
    bodies: Bodies, selection: Selection, integers: Sequence[int], space: dict[str, Any]
) -> set[str] | None:
    """Put what integers decide into place; the names of these arrays, or None: another path."""
    values = selection.program.evaluate(list(integers))
    if values is None:
        return None
    chosen = []
    for node, count in selection.ranges:
        if not -count <= values[node] < count:
            return None
    for k in bodies.gathers:
        gather = selection.gathers[k]
        chosen.append(int(values[gather.index]) % len(gather.candidates))
    before = bodies.language.work
    space[f"{before}chosen"] = chosen
    at, names = 0, set[str]()
    for stretch in bodies.numbers:
        stored = bodies.storage.stored[stretch]
        nodes = selection.numbers[at : at + stored.size]
        at += len(nodes)
        space[stored.value] = [float(values[node]) for node in nodes]
        names.add(stored.value.removeprefix(before))
    return names


def _namespace() -> dict[str, Any]:
    """What the loops call."""
    functions = {op.forward.scalar.__name__: op for op in _rows() if hasattr(op.forward, "scalar")}
    space: dict[str, Any] = {f"libm_{name}": op for name, op in functions.items()}
    assert set(functions) <= LIBRARY
    return space | {
        "div": ops.div,
        "abs": abs,
        "NAN": math.nan,
        "INFINITY": math.inf,
        "item": lambda index, count: index + count if index < 0 else index,
    }


def _rows() -> list[ops.Op]:
    return [*ops.TABLE.values(), ops.raw_power, rounding.raw_floor, rounding.fmod]
