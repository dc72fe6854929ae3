"""The lines that read the arguments, and their sizes from their shapes.

In: the shape of every argument in every recording. Out: lines such as
``normals = array(normals, None, None)`` and ``N, T = normals.shape``. A size is read where it is a
dimension, or a number times it plus another; all other dimensions are compared with what the sizes
make of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.translate.sizes.laws import Polynomial, Sizes, integer
from chainrule.compiler.translate.sizes.numbers import Different
from chainrule.compiler.translate.terms import Untranslatable

HELPERS = {
    "shaped": '''
def shaped(x, shape):
    """An array of this shape; None stands for any size."""
    if len(x.shape) != len(shape) or any(b not in (None, a) for a, b in zip(x.shape, shape)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"this source is for shape ({wanted}), not {x.shape}")
    return x
''',
    "allow": '''
def allow(holds, what):
    """The sizes are among those that the source is for."""
    if not holds:
        raise ValueError(f"this source is for sizes where {what}")
''',
}

ARRAY = {
    "numpy": '''
def array(x, *shape):
    """An argument as an array of this shape; None stands for any size."""
    return shaped(np.asarray(x, float), shape)
''',
    "jax": '''
def array(x, *shape):
    """An argument as an array of this shape; None stands for any size."""
    x = jnp.asarray(x)
    return shaped(x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float), shape)
''',
    "torch": '''
def array(x, *shape):
    """An argument as a tensor of this shape; None stands for any size."""
    if isinstance(x, (list, tuple)) and not all(isinstance(item, (int, float)) for item in x):
        x = torch.stack([array(item, *shape[1:]) for item in x])  # which keeps gradients
    x = torch.as_tensor(x)
    return shaped(x if x.is_floating_point() else x.to(torch.get_default_dtype()), shape)
''',
}

_INTEGERS = '''
def integers(x, *shape):
    """An argument as an array of integers of this shape; None stands for any size."""
    x = {}.asarray(x)
    if x.size and x.dtype.kind not in "iu":
        raise ValueError(f"this source is for integers, not {{x.dtype}}")
    return shaped(x, shape)
'''

INTEGERS = {
    "numpy": _INTEGERS.format("np"),
    "jax": _INTEGERS.format("jnp"),
    "torch": '''
def integers(x, *shape):
    """An argument as a tensor of integers of this shape; None stands for any size."""
    x = torch.as_tensor(x)
    if x.numel() and (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool):
        raise ValueError(f"this source is for integers, not {x.dtype}")
    return shaped(x.long(), shape)
''',
}


@dataclass(frozen=True)
class Dimension:
    """One dimension of an argument: its law, or None where it is the same everywhere."""

    size: int
    law: Polynomial | None


def dimensions(inputs: Sequence[Sequence[Named]], sizes: Sizes) -> list[list[Dimension]]:
    """The dimensions of each argument; ``inputs`` of each recording."""
    if len({tuple([(x.path, len(x.shape)) for x in row]) for row in inputs}) > 1:
        raise Different("the structure of its arguments")
    found = []
    for same in zip(*inputs, strict=True):
        mine = []
        for k, counts in enumerate(zip(*[x.shape for x in same], strict=True)):
            law = None if len(set(counts)) == 1 else integer(counts, sizes)
            if law is None and len(set(counts)) > 1:
                shown = ", ".join(map(str, counts))
                raise Untranslatable(f"no size explains dimension {k} of {same[0].path}: {shown}")
            mine.append(Dimension(counts[0], law))
        found.append(mine)
    return found


def unpacking(
    names: Sequence[str],
    inputs: Sequence[Named],
    found: Sequence[Sequence[Dimension]],
    sizes: Sizes,
) -> list[str]:
    """The lines; ``names`` are what the arguments are called in the source."""
    lines: list[str] = []
    known: set[int] = set()
    exact = {i for dims in found for d in dims for i in _needs(d) if _is_plain(d)}
    left = list(range(len(inputs)))
    while left:
        for strict in (True, False):
            ready = [k for k in left if all(_readable(d, known, exact, strict) for d in found[k])]
            if ready:
                break
        else:
            missing = {i for k in left for d in found[k] for i in _needs(d)} - known
            words = ", ".join(sizes.names[i] for i in sorted(missing))
            raise Untranslatable(f"{words} cannot be read from the shape of any argument")
        lines += _read(names[ready[0]], inputs[ready[0]], found[ready[0]], known, sizes)
        left.remove(ready[0])
    unknown = [name for i, name in enumerate(sizes.names) if i not in known]
    if unknown:
        raise Untranslatable(f"no argument's shape depends on {', '.join(unknown)}")
    return lines


def _needs(dimension: Dimension) -> set[int]:
    """The sizes that a dimension depends on."""
    terms = () if dimension.law is None else dimension.law.terms
    return {i for _, monomial in terms for i, e in enumerate(monomial) if e}


def _is_plain(dimension: Dimension) -> bool:
    solved = None if dimension.law is None else dimension.law.solved
    return solved is not None and solved[1] == 1 and solved[2] == 0


def _readable(dimension: Dimension, known: set[int], exact: set[int], strict: bool) -> bool:
    """Whether all of its sizes are known, or one can be read from it."""
    law, needs = dimension.law, _needs(dimension) - known
    if law is None or not needs:
        return True
    return law.solved is not None and not (strict and needs <= exact and not _is_plain(dimension))


def _read(
    name: str, named: Named, dims: Sequence[Dimension], known: set[int], sizes: Sizes
) -> list[str]:
    """The lines that read one argument, and the sizes that its shape gives."""
    words, defined, compared = [], list[tuple[str, str]](), False
    for k, dimension in enumerate(dims):
        law, needs = dimension.law, _needs(dimension) - known
        if law is None:
            words.append(str(dimension.size))
        elif not needs:
            inside = {i for i, _ in enumerate(sizes.names) if sizes.names[i] in dict(defined)}
            words.append("None" if _needs(dimension) & inside else law.code)
            compared |= bool(_needs(dimension) & inside)
        else:
            assert law.solved is not None
            i, times, constant = law.solved
            words.append("None")
            known.add(i)
            at = f"{name}.shape[{k}]"
            back = ((1 / times, (1,)), (-constant / times, (0,)))
            defined.append(
                (sizes.names[i], Polynomial((at,), tuple([x for x in back if x[0]])).code)
            )
            compared |= times != 1
    kind = "integers" if named.integers else "array"
    lines = [f"{name} = {kind}({', '.join([named.path, *words])})"]
    if len(defined) == len(dims) > 1 and all(_is_plain(d) for d in dims):
        lines.append(f"{', '.join(size for size, _ in defined)} = {name}.shape")
    else:
        lines += [f"{size} = {code}" for size, code in defined]
    if compared:
        shape = ", ".join(str(d.size) if d.law is None else d.law.code for d in dims)
        shape = f"({shape}{',' * (len(dims) == 1)})"
        lines.append(f'allow({name}.shape == {shape}, "{name} has shape {shape}")')
    return lines


def limits(
    names: Sequence[str],
    least: Sequence[int],
    conditions: Sequence[Polynomial],
    multiples: Sequence[tuple[str, int]],
) -> list[str]:
    """The lines that refuse sizes for which the source does not hold, or was not checked.

    ``least``: the smallest that were checked; ``conditions``: what must not be negative.
    """
    words = [f"{name} >= {bound}" for name, bound in zip(names, least, strict=True)]
    for law in conditions:
        grows = all(c > 0 for c, monomial in law.terms if any(monomial))
        alone = law.solved is not None
        if grows and (alone or law.at(dict(enumerate(least))) >= 0):
            continue  # the smallest sizes were checked
        above = [(c, m) for c, m in law.terms if c > 0]
        below = [(-c, m) for c, m in law.terms if c < 0]
        sides = [Polynomial(law.names, tuple(x)).code if x else "0" for x in (above, below)]
        words.append(" >= ".join(sides))
    words += [f"{code if code.isidentifier() else f'({code})'} % {n} == 0" for code, n in multiples]
    return [f'allow({word}, "{word}")' for word in words]
