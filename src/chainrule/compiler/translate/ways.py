"""Which way a compiled function is translated: as in one example, in several, or for any size.

In: what ``to_numpy``, ``to_jax`` and ``to_torch`` are asked for. Out: a ``Translated``, or a
TranslationError that says which wishes do not go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chainrule.compiler.translate.cases import translate_cases
from chainrule.compiler.translate.function import Translated, TranslationError, translate
from chainrule.compiler.translate.padded import translate_lengths
from chainrule.compiler.translate.sizes.translating import translate_any_size


def translated(
    function: Callable[..., Any],
    to: str,
    example: tuple[Any, ...],
    keywords: dict[str, Any],
    specialise: bool | Sequence[Any] = False,
    sizes: Any = None,
    lengths: bool | Iterable[int] = False,
) -> Translated:
    """A function as source; see ``CompiledFunction.to_numpy``."""
    if sizes is not None and (example or keywords):
        raise TranslationError("sizes takes the place of example arguments: pass one of them")
    if sizes is not None and not isinstance(specialise, bool):
        raise TranslationError("sizes and examples of several branches do not go together")
    if lengths is not False and sizes is not None:
        raise TranslationError("lengths and sizes do not go together")
    if lengths is not False and specialise is not False:
        raise TranslationError("lengths and specialise do not go together")
    if lengths is not False:
        return translate_lengths(function, example, keywords, to, lengths)
    if sizes is not None:
        return translate_any_size(function, sizes, to, bool(specialise))
    if isinstance(specialise, bool):
        return translate(function, example, keywords, to, specialise)
    return translate_cases(function, example, keywords, to, specialise)
