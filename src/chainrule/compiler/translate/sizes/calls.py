"""Which calls are recorded, and which are held out to check what was found.

In: what a user says about sizes, a function that makes example arguments for given sizes, or a list
of examples. Out: a ``Plan``: the names of the sizes, the calls that are recorded and those that
are not. Each size changes alone and together with the others, so that a product of two sizes is
told from a number times one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.formulas.input_names import Named, arguments
from chainrule.compiler.translate.sizes.laws import Sizes, integer
from chainrule.compiler.translate.sizes.numbers import Different
from chainrule.compiler.translate.terms import Untranslatable

Arguments = tuple[Any, ...]
FIRST = (10, 12, 15, 17, 21, 23)  # sizes with nothing in common, beyond what is written out singly
NAMES = "NMKLPQRSUVW"
FEWEST = 4  # examples: two unknowns, one more that agrees, one held out
SMALLEST = 3  # below the recorded sizes, all from here down to 1 are tried


@dataclass(frozen=True, eq=False)
class Plan:
    """Calls to record and calls to check with; ``make`` makes more, if there is such a function."""

    sizes: Sizes
    recorded: tuple[Arguments, ...]
    held: tuple[tuple[tuple[int, ...], Arguments], ...]
    make: Callable[[Sequence[int]], Arguments] | None = None


def plans(function: Callable[..., Any], given: Any) -> Iterator[Plan]:
    """What to try, in order: small sizes first, because they cost least."""
    if callable(given):
        yield from _made(given)
    elif isinstance(given, list | tuple):
        yield _compared(function, list(given))
    else:
        raise Untranslatable(
            "sizes is a function that makes example arguments for given sizes, or a list of "
            f"examples, not {type(given).__name__}"
        )


# --- a function that makes examples ---------------------------------------------------------------


def _made(maker: Callable[..., Any]) -> Iterator[Plan]:
    parameters = inspect.signature(maker).parameters.values()
    names = tuple([p.name for p in parameters])
    if not names or len(names) > len(FIRST) or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise Untranslatable("the function that makes examples needs one parameter for each size")

    def make(point: Sequence[int]) -> Arguments:
        found = maker(**dict(zip(names, point, strict=True)))
        return found if isinstance(found, tuple) else (found,)

    first = [
        p.default if isinstance(p.default, int) else size
        for p, size in zip(parameters, FIRST, strict=False)
    ]
    for times in (1, 2):
        base = [times * size for size in first]
        points = [tuple(base)]
        for k in range(len(base)):
            for more in (1, 2, 3):
                points.append((*base[:k], base[k] + more, *base[k + 1 :]))
        if len(base) > 1:
            points += [
                tuple([size + 1 + (k + shift) % 3 for k, size in enumerate(base)])
                for shift in range(3)
            ]
        held = tuple([2 * size + 1 + k for k, size in enumerate(base)])
        sizes = Sizes(names, tuple(points))
        yield Plan(sizes, tuple(map(make, points)), ((held, make(held)),), make)


# --- examples that are compared -------------------------------------------------------------------


def _compared(function: Callable[..., Any], given: list[Any]) -> Plan:
    if len(given) < FEWEST:
        raise Untranslatable(
            f"any size needs at least {FEWEST} examples, of different sizes: the last is held out"
        )
    examples = [x if isinstance(x, tuple) else (x,) for x in given]
    inputs = [_inputs(function, example) for example in examples]
    if len({tuple([(x.path, len(x.shape)) for x in row]) for row in inputs}) > 1:
        raise Different("the structure of its arguments")
    found: dict[tuple[int, ...], str] = {}
    words = {word for x in inputs[0] for word in x.path.replace("[", " ").split()}
    free = iter([name for name in NAMES if name not in words])
    for same in zip(*inputs, strict=True):
        for counts in zip(*[x.shape for x in same], strict=True):
            if len(set(counts)) > 1 and not _explained(counts, found):
                name = next(free, None)
                if name is None:
                    raise Untranslatable(f"more than {len(NAMES)} sizes")
                found[counts] = name
    if not found:
        raise Untranslatable("the examples are all of one size")
    points = list(zip(*found, strict=True))
    if points[-1] in points[:-1]:
        raise Untranslatable("the last example, which is held out, has the sizes of another one")
    sizes = Sizes(tuple(found.values()), tuple(points[:-1]))
    return Plan(sizes, tuple(examples[:-1]), ((points[-1], examples[-1]),))


def _inputs(function: Callable[..., Any], example: Arguments) -> list[Named]:
    structures, _ = flatten_call(example, {}, True).structure
    return arguments(function, structures, [])


def _explained(counts: Sequence[int], found: dict[tuple[int, ...], str]) -> bool:
    """Whether a dimension is a number times one that is known, plus another."""
    for known in found:
        law = integer(counts, Sizes(("N",), tuple([(x,) for x in known])))
        if law is not None and law.solved is not None:
            return True
    return False
