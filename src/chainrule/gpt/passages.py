"""A passage of text from a model that was trained on a stream: as long as one likes.

The model reads at most a block. When that is full, it goes on from the second half of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from chainrule.core.backend import no_grad
from chainrule.gpt.choice import Choice
from chainrule.gpt.errors import GPTError, computing
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import Tokenizer


def passage(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    length: int,
    choice: Choice | None = None,
    prefix: str = "",
) -> str:
    """So many tokens of new text after the prefix, lines as they come.

    >>> import random
    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["to be", "or not"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=1, block=5, stream=True), tokenizer.size)
    >>> text = gpt.passage(model, tokenizer, random.Random(1), length=40, prefix="to")
    >>> text.startswith("to"), len(text)
    (True, 42)
    """
    return "".join(pieces(model, tokenizer, rng, length, choice, prefix))


def pieces(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    length: int,
    choice: Choice | None = None,
    prefix: str = "",
) -> Iterator[str]:
    """The same passage piece by piece, each as soon as its token is chosen; first the prefix.

    >>> import random
    >>> from chainrule import gpt
    >>> tokenizer = gpt.WordTokenizer.of(["to be or", "not to be"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=1, block=5, stream=True), tokenizer.size)
    >>> first, *others = gpt.pieces(model, tokenizer, random.Random(1), length=9, prefix="to be")
    >>> first, len(others)
    ('to be', 9)
    """
    if length < 0:
        raise GPTError(f"a passage cannot have {length} tokens")
    beginning = tokenizer.numbers(prefix)
    return _pieces(model, tokenizer, rng, length, choice or Choice(), beginning)


def _pieces(
    model: GPT,
    tokenizer: Tokenizer,
    rng: random.Random,
    length: int,
    choice: Choice,
    beginning: list[int],
) -> Iterator[str]:
    read = [tokenizer.bos, *beginning]
    yield tokenizer.decode(beginning)
    before, tokens = read[-1], _tokens(model, rng, choice, read, length)
    for _ in range(length):
        with computing("the model cannot be sampled"), no_grad():  # and not while others have it
            token = next(tokens)
        if token == tokenizer.bos:
            yield "\n"
        elif before == tokenizer.bos:
            yield tokenizer.decode([token])
        else:  # what it adds to a line: between words there is a space
            yield tokenizer.decode([before, token]).removeprefix(tokenizer.decode([before]))
        before = token


def _tokens(
    model: GPT, rng: random.Random, choice: Choice, read: list[int], length: int
) -> Iterator[int]:
    block = model.config.block
    known, cache = read[-block:], model.new_cache()
    logits = [model.logits(token, cache) for token in known][-1]
    for _ in range(length):
        weights = choice.probabilities(logits)
        token = rng.choices(range(len(weights)), weights=weights)[0]
        yield token
        known.append(token)
        if len(cache) == block:
            known, cache = known[-max(1, block // 2) :], model.new_cache()
            logits = [model.logits(each, cache) for each in known][-1]
        else:
            logits = model.logits(token, cache)
