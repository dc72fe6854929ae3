"""New documents from a trained model: read, choose the next token by chance, read that one.

Nothing is differentiated here, so everything runs under ``no_grad``: no graph is kept, and the
cache of keys and values makes each token cost one pass. Many documents are read by a compiled step,
side by side, once that takes less time; their texts are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from chainrule.core.backend import no_grad
from chainrule.gpt.choice import Choice
from chainrule.gpt.errors import GPTError, computing
from chainrule.gpt.model import GPT
from chainrule.gpt.side_by_side import step_of
from chainrule.gpt.tokenizer import Tokenizer

ENGINES = ("eager", "compiled", "auto")
AT_ONCE = 1 << 18  # random numbers that are drawn together
TRIES = 200  # in a row, to find a document that is not known


def generate(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    choice: Choice | None = None,
    prefix: str = "",
) -> str:
    """One new document that begins with the prefix, at most as long as the model's block.

    >>> import random
    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=1, block=5), tokenizer.size)
    >>> text = gpt.generate(model, tokenizer, random.Random(7), prefix="a")
    >>> text.startswith("a"), len(text) <= 5
    (True, True)
    """
    numbers = _beginning(model, tokenizer, prefix)
    with computing("the model cannot be sampled"):
        return tokenizer.decode(_continued(model, choice or Choice(), numbers, rng.random))


def documents(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    count: int,
    choice: Choice | None = None,
    prefix: str = "",
    engine: str = "auto",
) -> Iterator[str]:
    """Some new documents that begin with the prefix.

    Each has random numbers of its own, as many as the block is long, so that it does not matter how
    long the others are. The engine is ``"eager"``, ``"compiled"`` (many documents side by side, in
    machine code), or ``"auto"``: whichever takes less time. All give the same documents.

    >>> import random
    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=1, block=5), tokenizer.size)
    >>> texts = list(gpt.documents(model, tokenizer, random.Random(7), 3, prefix="a"))
    >>> len(texts), all(text.startswith("a") for text in texts)
    (3, True)
    """
    if engine not in ENGINES:
        raise GPTError(f"the engine must be one of {ENGINES}, not {engine!r}")
    choice, numbers = choice or Choice(), _beginning(model, tokenizer, prefix)
    return _documents(model, tokenizer, rng, count, choice, numbers, engine)


def _documents(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    count: int,
    choice: Choice,
    numbers: list[int],
    engine: str,
) -> Iterator[str]:
    block, step = model.config.block, step_of(model.config)
    reads = (len(numbers) - 1 + block) // 2 + 1  # about so many tokens each
    is_compiled = type(model) is GPT and len(numbers) <= block and engine != "eager"
    if engine == "auto":
        is_compiled = is_compiled and step.pays(model, count * reads)
    most = max(1, AT_ONCE // block)
    for begun in range(0, count, most):
        some = min(count - begun, most)
        chances = [[rng.random() for _ in range(block)] for _ in range(some)]
        found: list[list[int] | None] = [None] * some
        if is_compiled:
            with computing("the model cannot be sampled"):
                found = step.documents(model, choice, numbers, np.array(chances))
        for made, own in zip(found, chances, strict=True):
            if made is None:
                with computing("the model cannot be sampled"):
                    made = _continued(model, choice, numbers, iter(own).__next__)
            yield tokenizer.decode(made)


def _beginning(model: GPT, tokenizer: Tokenizer, prefix: str) -> list[int]:
    """What a document that begins so is to read first."""
    numbers = tokenizer.numbers(prefix)
    if len(numbers) > model.config.block:
        raise GPTError(
            f"the prefix has {len(numbers)} tokens; this model reads at most {model.config.block}"
        )
    return [tokenizer.bos, *numbers]


def _continued(
    model: GPT, choice: Choice, beginning: list[int], chance: Callable[[], float]
) -> list[int]:
    """The tokens of one document without the marks, by the scalar model."""
    block, (bos, *numbers) = model.config.block, beginning
    with no_grad():
        cache = model.new_cache()
        for token in beginning[:block]:
            logits = model.logits(token, cache)
        while len(numbers) < block:
            token = choice.token(logits, chance())
            if token == bos:
                break
            numbers.append(token)
            if len(cache) == block:
                break
            logits = model.logits(token, cache)
    return numbers


def new_documents(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    known: set[str],
    count: int = 20,
    choice: Choice | None = None,
) -> Iterator[str]:
    """Up to ``count`` different documents that are not known already; gives up after many tries.

    >>> import random
    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=1, block=5), tokenizer.size)
    >>> texts = list(gpt.new_documents(model, tokenizer, random.Random(1), {"ada", "bob"}, 3))
    >>> len(set(texts)), "ada" in texts
    (3, False)
    """
    seen = set(known) | {""}
    tries = 0
    while count > 0 and tries < TRIES:
        for text in documents(model, tokenizer, rng, min(count, TRIES - tries), choice):
            tries += 1
            if text not in seen:
                seen.add(text)
                yield text
                count, tries = count - 1, 0
