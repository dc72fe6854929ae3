"""Whether a model fits into the memory of this machine, before anything of it is made.

In: a model's configuration and how long its documents are. Out: nothing, or an error that says what
to lower. The estimate is a lower bound: what is refused would be killed halfway, without a word.
"""

from __future__ import annotations

import os
from pathlib import Path

from chainrule.gpt.config import Config
from chainrule.gpt.data import Data
from chainrule.gpt.errors import GPTError
from chainrule.gpt.tokenizer import Tokenizer

# Bytes at the least: of a weight, which is a Value with two moments, and per multiplication of the
# longest document, of the graph of eager mode and of what is recorded and built for machine code.
WEIGHT = 100
EAGER, COMPILED = 100, 25
MUCH = 0.4  # of the memory that there is: as the estimate is a lower bound, it may be too little
Shapes = dict[str, tuple[int, int]]
SMALLER = "a smaller --block, --width or --layers"
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check(config: Config, shapes: Shapes, tokenizer: Tokenizer, data: Data, engine: str) -> None:
    """A GPTError if the model clearly needs more memory than there is."""
    needed, available = estimate(config, shapes, tokenizer, data, engine), memory()
    if available is not None and needed > available:
        raise GPTError(f"{_compared(needed, available)}: choose {SMALLER}")


def warning(config: Config, shapes: Shapes, tokenizer: Tokenizer, data: Data, engine: str) -> str:
    """A line to be told if it may need more."""
    needed, available = estimate(config, shapes, tokenizer, data, engine), memory()
    if available is None or needed < MUCH * available:
        return ""
    return f"{_compared(needed, available)}: if training is killed, choose {SMALLER}"


def _compared(needed: int, available: int) -> str:
    return f"this model needs more than {_size(needed)} of memory, and there are {_size(available)}"


def estimate(
    config: Config,
    shapes: Shapes,
    tokenizer: Tokenizer,
    data: Data,
    engine: str,
) -> int:
    """The bytes that training takes at the least."""
    weights = sum(rows * columns for rows, columns in shapes.values())
    if engine == "jax":  # its arrays are shared by devices with memory of their own
        return WEIGHT * weights
    longest = config.block
    if not data.stream:
        texts = (*data.training[: config.steps * config.batch], *data.validation)
        longest = tokenizer.positions(max(texts, key=len), longest)
    each = EAGER if engine == "eager" else COMPILED
    return WEIGHT * weights + each * int(config.work(shapes, longest))


def memory() -> int | None:
    """The bytes that this machine, or the container that we are in, has; None if nobody knows."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    for path in LIMITS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return found if found > 0 else None


def _size(count: int) -> str:
    """So many bytes, for people.

    >>> from chainrule.gpt.room import _size
    >>> _size(23_400_000_000), _size(4_100_000_000_000)
    ('23 GB', '4,100 GB')
    """
    return f"{count / 1e9:,.0f} GB" if count >= 1e10 else f"{count / 1e9:.1f} GB"
