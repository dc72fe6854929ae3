"""Several cases of a function with branches, in one source.

In: examples that take different branches. Out: a source with a function for each case, and one that
chooses: in JAX by ``lax.cond``, so that only the right case is computed and differentiated. It
returns, beside the result, whether any of the cases is that of the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.translate.checking import check
from chainrule.compiler.translate.dialects import DIALECTS
from chainrule.compiler.translate.function import (
    Translated,
    clear_lines,
    comparing,
    evaluator,
    example_of,
    in_double,
    recorded_call,
    signature_of,
    source_of,
)
from chainrule.compiler.translate.module import Source
from chainrule.compiler.translate.terms import Untranslatable, indented

FIRST = {
    "numpy": '''
def first_valid(cases, *arguments):
    """The result of the first case whose branches are those of this call, and if there is one."""
    for case in cases:
        with np.errstate(all="ignore"):  # another case need not be defined here
            result, valid = case(*arguments)
        if valid:
            break
    return result, valid
''',
    "torch": '''
def first_valid(cases, *arguments):
    """The result of the first case whose branches are those of this call, and if there is one."""
    for case in cases:
        result, valid = case(*arguments)
        if valid:
            break
    return result, valid
''',
    "jax": '''
def first_valid(cases, *arguments):
    """The result of the first case whose branches are those of this call, and if there is one."""
    case, *others = cases
    if not others:
        return case(*arguments)
    return lax.cond(
        case(*arguments)[1],
        lambda: (case(*arguments)[0], jnp.array(True)),
        lambda: first_valid(others, *arguments),
    )
''',
}


def translate_cases(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    to: str,
    others: Sequence[Any],
) -> Translated:
    """The function as source for the branches that the example takes, and for those of others."""
    evaluate = evaluator(to, True)
    with clear_lines(function, arguments, f"{to} source"):
        calls = [_call(x if isinstance(x, tuple) else (x,), keywords) for x in (arguments, *others)]
        if any(call.structure != calls[0].structure for call in calls):
            raise Untranslatable("an example of other branches has another structure")
        sources: dict[str, Source] = {}
        for call in calls:
            recorded = recorded_call(function, call)
            signature = signature_of(function, recorded, True)
            source = source_of(recorded, signature, DIALECTS[to])
            sources.setdefault(source.text, source)  # one that takes the same branches is the same
        name, text = signature.name, _joined(list(sources.values()), signature.name, to)
        compare = comparing(function, evaluate, True)
        made = Translated(text, name, to, example_of(recorded), compare)
        evaluating = evaluate(made.function)
        with random_states_kept():
            for call in calls:
                check(function, evaluating, call, True)
        return made


def _call(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Call:
    named = {name: in_double(x) for name, x in keywords.items()}
    return flatten_call(tuple(map(in_double, arguments)), named, True)


def _joined(sources: Sequence[Source], name: str, to: str) -> str:
    """One module: a function for each case, with its constants, and one that chooses."""
    first, parameters = sources[0], sources[0].head.partition("(")[2].removesuffix("):")
    if len(sources) == 1:
        return first.text
    cases = []
    for k, source in enumerate(sources):
        lines = [*source.constants, *source.unpacking, *source.body]
        head = f"def {name}_{k + 1}({parameters}):"
        cases.append("\n".join([head, *map(indented, lines)]))
    helpers = {text: None for source in sources for text in source.helpers}
    imports = {line: None for source in sources for line in source.imports}
    needed = [x for x in DIALECTS[to].imports if x in imports or _uses(x, FIRST[to])]
    names = ", ".join(f"{name}_{k + 1}" for k in range(len(sources)))
    chosen = replace(
        first,
        imports=tuple(needed),
        constants=(),
        helpers=(*sorted(helpers), FIRST[to], *[f"\n{case}\n" for case in cases]),
        unpacking=(),
        body=(f"return first_valid([{names}], {parameters})",),
    )
    return chosen.text


def _uses(line: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){line.split()[-1]}\.", text) is not None
