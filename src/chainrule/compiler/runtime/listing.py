"""Every variant of a compiled function as text: what ``report(stage="lifted")`` prints."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from chainrule.compiler.capture.captured import Surroundings
from chainrule.compiler.formulas import input_names
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.reading import WIDTH, read, size_text
from chainrule.compiler.runtime.variants import Structure


def listing(
    function: Callable[..., Any],
    structures: Mapping[Any, Structure],
    surroundings: Surroundings | None,
) -> str:
    """The array programs of a compiled function; those of shorter calls are the longest's."""
    found: list[str] = []
    variants = [(key, v) for key, s in structures.items() for v in s.variants]
    served = Counter(id(v.lifted) for _, v in variants if v.lifted is not None)
    for key, variant in variants:
        lifted = variant.lifted
        if lifted is None:
            found.append(f"not lifted: {variant.not_lifted or 'lift=False'}")
        elif variant.fit is lifted.fit:
            (_, arguments, named, _), _ = key
            inputs = input_names.inputs(function, arguments, named, variant.captured, surroundings)
            words = ", ".join(f"{x.name} {size_text(x.shape)}".rstrip() for x in inputs)
            count, shorter = len(lifted.program.instructions), served[id(lifted)] - 1
            others = f", which serve {shorter} shorter calls too" if shorter else ""
            choice = Choice(variant.recording)
            lines = textwrap.wrap(f"of {words}", WIDTH, initial_indent="  ", subsequent_indent="  ")
            lines = [f"{count} array instructions{others}", *lines[: 1 + (len(lines) < 5) * 4]]
            found.append("\n".join([*lines, "", read(lifted.program, inputs, choice, lifted.root)]))
    return "\n\n".join(found)
