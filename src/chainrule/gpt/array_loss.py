"""The loss of each document of a batch, as a function of arrays in JAX.

In: a scalar model, and how many tokens its documents have. Out: a function of the weights, of a
batch of padded documents and of their lengths. A model is recorded with documents of every length
(``to_jax(lengths=...)``). A large one is not: its source is made from recordings at small sizes
(``to_jax(sizes=...)``) and then compared with the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from chainrule.gpt.config import Config
from chainrule.gpt.errors import GPTError
from chainrule.gpt.model import GPT, is_large, run_key

# Weights times positions that the source of a large model is compared with eager mode for: some
# seconds of work.
COMPARED = 1_000_000
FEW = 128  # a vocabulary of so many tokens is the same in all recordings at small sizes

#: (weights, tokens, lengths, keys where there is dropout) -> a loss of each document
Losses = Callable[..., Any]


def is_for_any_size(model: GPT) -> bool:
    """Whether the source is made at small sizes; the logarithm of 0 is nan, times 0 as well."""
    return is_large(model) and model.config.log_softmax


def of_each_document(jax: Any, model: GPT, counts: Collection[int]) -> Losses:
    """The losses of documents that have so many tokens."""
    from chainrule.compiler.translate.function import TranslationError

    try:
        if is_for_any_size(model):
            return _for_any_size(jax, model)
        return _recorded(jax, model, counts)
    except TranslationError as error:
        raise GPTError(f"JAX cannot train this model: {error}") from None


def _recorded(jax: Any, model: GPT, counts: Collection[int]) -> Losses:
    from chainrule.compiler import compile

    config, kind = model.config, type(model)

    def loss(weights: Any, tokens: Any) -> Any:
        return kind.of(config, weights).loss(tokens)

    def loss_by_chance(weights: Any, tokens: Any, chance: Any) -> Any:
        return kind.of(config, weights).loss(tokens, chance=chance)

    example: list[Any] = [[k % model.vocabulary for k in range(max(counts))]]
    if config.dropout:
        example.append(run_key(config))
    made = compile(loss_by_chance if config.dropout else loss).to_jax(
        model.arrays(), *example, lengths={*counts}
    )

    def losses(weights: Any, tokens: Any, lengths: Any, *keys: Any) -> Any:
        rows = (tokens, *keys, lengths)
        return jax.vmap(made.function, (None, *[0] * len(rows)))(weights, *rows)

    return losses


# --- large models -------------------------------------------------------------------------------


def _for_any_size(jax: Any, model: GPT) -> Losses:
    function, name = _positions_in_jax(model), "position_embedding"

    def losses(weights: Any, tokens: Any, lengths: Any) -> Any:
        positions = tokens.shape[1] - 1
        weights = {**weights, name: weights[name][:positions]}
        kept = jax.numpy.arange(positions) < lengths[:, None] - 1
        sums = jax.vmap(function, (None, 0, 0))(weights, tokens, kept.astype(weights[name].dtype))
        return sums.astype(jax.numpy.promote_types(sums.dtype, "float32")) / (lengths - 1)

    return losses


def _positions_in_jax(model: GPT) -> Callable[..., Any]:
    """``sum_of_positions`` in JAX, compared with the model for as much as takes seconds."""
    from chainrule.compiler import compile

    config, arrays = model.config, model.arrays()
    function = compile(sum_of_positions(config))
    made = function.to_jax(sizes=_examples(config, model.vocabulary))
    count = COMPARED // config.parameter_count(model.vocabulary)
    count = min(max(2, count), config.block)
    arrays["position_embedding"] = arrays["position_embedding"][:count]
    made.check(arrays, [k % model.vocabulary for k in range(count + 1)], np.ones(count))
    found: Callable[..., Any] = made.function
    return found


def sum_of_positions(config: Config) -> Callable[..., Any]:
    """The losses of a document's positions, each times a number of ``counted``, added up.

    A position reads nothing of those behind it. So a document may be padded: with 0 in ``counted``
    what is not its own does not count. The width, the block and the vocabulary are the weights'.
    """

    def loss(weights: Any, document: Any, counted: Any) -> Any:
        width, block = len(weights["head"][0]), len(weights["position_embedding"])
        model = GPT.of(config.replace(width=width, block=block), weights)
        return sum(k * x for k, x in zip(counted, model.losses(document), strict=True))

    return loss


def _examples(config: Config, vocabulary: int) -> Callable[..., Any]:
    """Small arguments of that loss: heads of ``D`` numbers, ``T`` positions, ``V`` tokens."""

    def example(D: int = 3, T: int = 4, V: int = 7) -> Any:
        chance = np.random.default_rng(0)
        shapes = config.replace(width=config.heads * D, block=T).shapes(V)
        weights = {name: chance.normal(0.0, 0.3, shape) for name, shape in shapes.items()}
        return weights, chance.integers(0, V, T + 1).tolist(), chance.uniform(0.5, 1.0, T)

    if vocabulary > FEW:
        return example
    return lambda D=3, T=4: example(D, T, vocabulary)
