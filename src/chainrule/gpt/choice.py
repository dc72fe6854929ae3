"""How the next token is chosen from the model's scores.

In: logits, and a random number from 0 to 1. Out: a token. ``Choice.token`` chooses for one
document, in scalars; ``Choice.tokens`` for many at once, in arrays, and says where rounding could
make a difference, so that whoever asks can let the scalars decide.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.core.backend import Value, no_grad
from chainrule.gpt.errors import GPTError
from chainrule.nn import softmax

DOUBT = 1e-9  # two numbers may be in either order if they are as near, measured by their size

Floats = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]


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

    # --- for one document -------------------------------------------------------------------------

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

    def token(self, logits: list[Value], chance: float) -> int:
        """The token that a random number chooses: the same as ``random.choices`` with it."""
        sums = list(accumulate(self.probabilities(logits)))
        return bisect(sums, chance * sums[-1], 0, len(sums) - 1)

    # --- for many documents -----------------------------------------------------------------------

    def tokens(self, logits: Floats, chances: Floats) -> tuple[npt.NDArray[np.int64], Truths]:
        """A token for each row of logits, and whether it is certain to be that of ``token``.

        It is not where a number is so near to the one that decides that their order may be a
        matter of rounding, or where a number is not finite.
        """
        with np.errstate(all="ignore"):
            if self.temperature == 0:
                first, second = np.sort(logits, axis=1)[:, :-3:-1].T
                size = 1.0 + np.abs(logits).max(axis=1)
                return logits.argmax(axis=1), first - second > DOUBT * size
            scaled = logits / self.temperature
            likeliest = scaled.max(axis=1, keepdims=True)
            weights = np.exp(scaled - likeliest)
            weights /= weights.sum(axis=1, keepdims=True)
            doubt = DOUBT * (1.0 + np.abs(scaled).max(axis=1))
            certain = self._keep(weights, doubt)
            sums = weights.cumsum(axis=1)
            place = (chances * sums[:, -1])[:, None]
            certain &= np.abs(sums - place).min(axis=1) > doubt * sums[:, -1]
            return (sums[:, :-1] <= place).sum(axis=1), certain

    def _keep(self, weights: Floats, doubt: Floats) -> Truths:
        """Set to 0 what ``_kept`` does; whether it is certain, of each row, what that is."""
        rows, size = weights.shape
        certain = np.ones(rows, np.bool_)
        # All of them together reach 1 to rounding: what comes after is too little to be chosen.
        top_p = None if self.top_p == 1.0 else self.top_p
        most = min(self.top_k or size, size)
        if most == size and top_p is None:
            return certain
        order = (-weights).argsort(axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, axis=1)
        count = np.full(rows, most)
        if top_p is not None:
            sums = ordered.cumsum(axis=1)
            count = np.minimum(most, (sums < top_p).sum(axis=1) + 1)
            certain &= np.abs(sums - top_p).min(axis=1) > doubt
        beyond = np.arange(size) >= count[:, None]
        np.put_along_axis(weights, order, np.where(beyond, 0.0, ordered), axis=1)
        each: Any = np.arange(rows)
        last, next_one = ordered[each, count - 1], ordered[each, np.minimum(count, size - 1)]
        certain &= (count == size) | (last - next_one > doubt)
        return certain
