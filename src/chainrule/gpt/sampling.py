"""New documents from a trained model: read, choose the next token by chance, read that one.

Nothing is differentiated here, so everything runs under ``no_grad``: no graph is kept, and the
cache of keys and values makes each token cost one pass.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from chainrule.core.backend import Value, no_grad
from chainrule.gpt.errors import GPTError, computing
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import Tokenizer
from chainrule.nn import softmax


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen from the model's scores.

    A low temperature prefers what is likely (0 always takes the likeliest), a high one surprises.
    ``top_k`` keeps only the k likeliest tokens, ``top_p`` only the likeliest ones that together
    reach the probability p; both count after the temperature.

    >>> from chainrule import Value, gpt
    >>> logits = [Value(2.0), Value(1.0), Value(0.0)]
    >>> [round(p, 2) for p in gpt.Choice(temperature=1.0, top_k=2).probabilities(logits)]
    [0.67, 0.24, 0.0]
    """

    temperature: float = 0.5
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise GPTError(f"the temperature must be a number from 0 on, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise GPTError(f"top-k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise GPTError(f"top-p must be more than 0 and at most 1, not {self.top_p}")

    def probabilities(self, logits: list[Value]) -> list[float]:
        """The chance of each token to be chosen."""
        with no_grad():
            if self.temperature == 0:
                likeliest = max(range(len(logits)), key=lambda token: logits[token].data)
                return [float(token == likeliest) for token in range(len(logits))]
            scaled = [logit / self.temperature for logit in logits]
            return self._kept([p.data for p in softmax(scaled)])

    def _kept(self, probabilities: list[float]) -> list[float]:
        if self.top_k is None and self.top_p is None:
            return probabilities
        order = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])
        keep = order[: self.top_k]
        if self.top_p is not None:
            total = 0.0
            for count, token in enumerate(keep, start=1):
                total += probabilities[token]
                if total >= self.top_p:
                    keep = keep[:count]
                    break
        kept = set(keep)
        return [p if token in kept else 0.0 for token, p in enumerate(probabilities)]


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
    choice = choice or Choice()
    numbers = tokenizer.numbers(prefix)
    if len(numbers) > model.config.block:
        raise GPTError(
            f"the prefix has {len(numbers)} tokens; this model reads at most {model.config.block}"
        )
    with computing("the model cannot be sampled"), no_grad():
        cache = model.new_cache()
        for token in [tokenizer.bos, *numbers][: model.config.block]:
            logits = model.logits(token, cache)
        while len(numbers) < model.config.block:
            weights = choice.probabilities(logits)
            token = rng.choices(range(len(weights)), weights=weights)[0]
            if token == tokenizer.bos:
                break
            numbers.append(token)
            if len(cache) == model.config.block:
                break
            logits = model.logits(token, cache)
    return tokenizer.decode(numbers)


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
    while count > 0 and tries < 200:
        text = generate(model, tokenizer, rng, choice)
        tries += 1
        if text not in seen:
            seen.add(text)
            yield text
            count, tries = count - 1, 0
