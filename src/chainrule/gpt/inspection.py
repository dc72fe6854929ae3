"""Looking inside a trained model: what attends to what, what it expects, how its numbers spread.

``inspect`` reads one document with everything noted on the way and gives an ``Inspection``: plain
numbers, and pictures of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chainrule.core.backend import Value
from chainrule.files import write_atomically
from chainrule.gpt import charts
from chainrule.gpt.errors import GPTError, computing
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import Tokenizer
from chainrule.nn import softmax


@dataclass(frozen=True)
class Matrix:
    """One weight matrix in numbers."""

    name: str
    shape: tuple[int, int]
    mean: float
    std: float
    smallest: float
    largest: float
    gradient_norm: float


@dataclass(frozen=True)
class Prediction:
    """What the model expected at one place of the document, and what stood there."""

    token: str
    probability: float
    likeliest: list[tuple[str, float]]


@dataclass(frozen=True)
class Inspection:
    """Everything that was seen while the model read one document.

    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=2, block=5), tokenizer.size)
    >>> seen = gpt.inspect(model, tokenizer, "ada")
    >>> sorted(seen.pictures())
    ['activations.svg', 'attention.svg', 'gradients.svg', 'probabilities.svg']
    """

    document: str
    loss: float
    tokens: list[str]  #: as read: the mark of the beginning, then the document
    matrices: list[Matrix]
    predictions: list[Prediction]
    attention: dict[str, list[list[float]]]  #: per head, a row of shares for each token read
    activations: dict[str, list[float]]
    gradients: dict[str, list[float]]

    @computing("the model's numbers cannot be drawn")
    def pictures(self) -> dict[str, str]:
        """File names and SVG texts."""
        about = f"while reading {self.document!r}"
        slopes = f"gradients of the loss of {self.document!r}"
        rows = [(p.token, p.probability, p.likeliest) for p in self.predictions]
        return {
            "attention.svg": charts.attention(self.attention, self.tokens, f"attention {about}"),
            "probabilities.svg": charts.probabilities(rows, f"probabilities {about}"),
            "activations.svg": charts.histograms(self.activations, f"activations {about}"),
            "gradients.svg": charts.histograms(self.gradients, slopes),
        }

    def save(self, directory: str | Path) -> list[Path]:
        """Write the pictures into a folder."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, svg in self.pictures().items():
            write_atomically(folder / name, svg)
            paths.append(folder / name)
        return paths


@computing("the model cannot be inspected")
def inspect(model: GPT, tokenizer: Tokenizer, document: str, likeliest: int = 5) -> Inspection:
    """Read a document and note everything; the gradients are those of its loss.

    >>> from chainrule import gpt
    >>> tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    >>> model = gpt.GPT(gpt.Config(width=4, heads=2, block=5), tokenizer.size)
    >>> seen = gpt.inspect(model, tokenizer, "bad")
    >>> seen.tokens
    ['·', 'b', 'a', 'd']
    >>> [len(row) for row in seen.attention["layer 0, head 1"]]
    [1, 2, 3, 4]
    """
    if likeliest < 1:
        raise GPTError(f"at least one likely token must be shown, not {likeliest}")
    tokens = tokenizer.encode(document)
    read = min(model.config.block, len(tokens) - 1)
    notes: dict[str, list[list[float]]] = {}

    def note(name: str, numbers: Sequence[Value]) -> None:
        notes.setdefault(name, []).append([x.data for x in numbers])

    model.zero_grad()
    loss = model.loss(tokens, note)
    loss.backward()
    gradients = {
        name: [p.grad for row in matrix for p in row] for name, matrix in model.weights.items()
    }
    model.zero_grad()

    heads = {
        f"layer {layer}, head {head}": notes.pop(f"layers.{layer}.attention.head.{head}")
        for layer in range(model.config.layers)
        for head in range(model.config.heads)
    }
    return Inspection(
        tokenizer.decode(tokens[1 : read + 1] if read < len(tokens) - 1 else tokens[1:-1]),
        loss.data,
        [tokenizer.name(token) for token in tokens[:read]],
        [_matrix(model, name, gradients[name]) for name in model.weights],
        [
            _prediction(tokenizer, logits, tokens[i + 1], likeliest)
            for i, logits in enumerate(notes["logits"])
        ],
        heads,
        {name: [x for row in rows for x in row] for name, rows in notes.items()},
        gradients,
    )


def _matrix(model: GPT, name: str, gradients: list[float]) -> Matrix:
    numbers = [p.data for row in model.weights[name] for p in row]
    rows = model.weights[name]
    return Matrix(
        name,
        (len(rows), len(rows[0])),
        statistics.fmean(numbers),
        statistics.pstdev(numbers),
        min(numbers),
        max(numbers),
        math.hypot(*gradients),
    )


def _prediction(
    tokenizer: Tokenizer, logits: list[float], token: int, likeliest: int
) -> Prediction:
    chances = softmax(logits)
    order = sorted(range(len(chances)), key=lambda number: -chances[number])[:likeliest]
    return Prediction(
        tokenizer.name(token),
        chances[token],
        [(tokenizer.name(number), chances[number]) for number in order],
    )
