"""The laboratory for language: a GPT that learns names, or text that was pasted.

It is ``chainrule.gpt`` as it is, trained a moment at a time: losses, samples as they improve, what
it expects after a prefix and where it looks, and the graph of a single token.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

from chainrule import gpt
from chainrule.core.backend import Value, no_grad
from chainrule.nn import softmax
from chainrule.play.lab import Lab
from chainrule.play.settings import Given, PlayError, choice, real, text, whole
from chainrule.see.explanation import explain_with
from chainrule.see.page import page_of

LONGEST_TEXT = 200_000  # characters
MOST_DOCUMENTS = 20_000
MOST_STEPS = 100_000
SAMPLES = 6
MOST_SAMPLED = 12  # times at which samples are kept
MOST_TOKENS = 400  # in a vocabulary


class LanguageLab(Lab):
    """A GPT in training."""

    actions: ClassVar = ("start", "prefix", "token")

    def __init__(self) -> None:
        super().__init__()
        self.run: gpt.Run | None = None
        self.version = 0
        self.prefix = ""

    # --- what is asked ----------------------------------------------------------------------------

    def _start(self, given: Given) -> dict[str, Any]:
        """A new model, on names or on a text."""
        source = choice(given, "source", ("names", "text"))
        documents = (
            gpt.names() if source == "names" else _documents(text(given, "text", LONGEST_TEXT))
        )
        heads = whole(given, "heads", 1, 8)
        try:
            config = gpt.Config(
                width=whole(given, "width", 4, 32),
                heads=heads,
                layers=whole(given, "layers", 1, 2),
                block=whole(given, "block", 4, 32),
                steps=whole(given, "steps", 10, MOST_STEPS),
                learning_rate=real(given, "rate", 1e-6, 1.0),
                seed=whole(given, "seed", 0, 10**9),
            )
            run = gpt.Run.start(documents, config, source=source, engine="compiled")
        except gpt.GPTError as error:
            raise PlayError(str(error)) from None
        kinds = run.tokenizer.size - 1
        if kinds > MOST_TOKENS:
            raise PlayError(
                f"the text has {kinds} different characters; {MOST_TOKENS} can be learnt"
            )
        self._begin()
        self.run, self.known = run, set(documents)
        self.version += 1
        self.sampled: list[dict[str, Any]] = []
        self.validation: list[list[float]] = []
        self.prefix = ""
        self._sample()
        return {
            "version": self.version,
            "documents": len(documents),
            "examples": run.data.training[:6],
            "vocabulary": [run.tokenizer.name(i) for i in range(run.tokenizer.size)],
            "parameters": len(run.model.parameters()),
            "steps": config.steps,
        }

    def _prefix(self, given: Given) -> dict[str, Any]:
        """Watch what the model makes of this beginning, now and in every state to come."""
        run = self._started()
        prefix = text(given, "prefix", run.config.block)
        try:
            run.tokenizer.numbers(prefix)
        except gpt.GPTError as error:
            raise PlayError(str(error)) from None
        self.prefix = prefix
        return {}

    def _token(self, given: Given) -> dict[str, Any]:
        """The graph of one token: read the prefix, and lose as much as the next one surprises.

        What was read before enters as plain numbers, so the graph is that of one token alone.
        """
        run = self._started()
        numbers = self._numbers(text(given, "prefix", run.config.block - 1))
        target = whole(given, "next", 0, run.tokenizer.size - 1)
        model, cache = run.model, run.model.new_cache()
        with no_grad():
            for token in numbers[:-1]:
                model.logits(token, cache)
        for layer in range(run.config.layers):
            for kind, rows in (("key", cache.keys[layer]), ("value", cache.values[layer])):
                for i, row in enumerate(rows):
                    rows[i] = [
                        Value(x.data, label=f"{kind}s.{layer}[{i},{j}]") for j, x in enumerate(row)
                    ]
        chances = softmax(model.logits(numbers[-1], cache))
        loss = -chances[target].log()
        loss.label = "loss"
        chances[target].label = f"p({run.tokenizer.name(target)})"
        page = page_of(explain_with(loss, model))
        return {
            "page": page.html,
            "read": run.tokenizer.name(numbers[-1]),
            "next": run.tokenizer.name(target),
            "loss": loss.data,
            "probability": chances[target].data,
            "nodes": len(page.explanation.nodes),
            "step": run.step,
        }

    def _started(self) -> gpt.Run:
        if self.run is None:
            raise PlayError("there is no model yet")
        return self.run

    def _numbers(self, prefix: str) -> list[int]:
        run = self._started()
        try:
            return [run.tokenizer.bos, *run.tokenizer.numbers(prefix)]
        except gpt.GPTError as error:
            raise PlayError(str(error)) from None

    # --- training ---------------------------------------------------------------------------------

    def _losses(self, most: int) -> list[float]:
        run = self._started()
        left = run.config.steps - run.step
        if left <= 0:
            self.running = False
            return []
        losses = [row.loss for row in run.take_steps(min(most, left))]
        if run.step >= self._sample_next:
            self._sample()
        if run.step >= run.config.steps:
            self.running = False
        return losses

    def _sample(self) -> None:
        """Keep some samples, and the loss of documents held out; then at ever longer intervals."""
        run = self._started()
        rng = random.Random(run.step)
        found = gpt.documents(run.model, run.tokenizer, rng, SAMPLES)
        new = [[sample, sample not in self.known] for sample in found]
        self.sampled = [*self.sampled[1 - MOST_SAMPLED :], {"step": run.step, "texts": new}]
        held_out = run.validation_loss(20) if run.step else None  # which compiles
        if held_out is not None:
            self.validation = [*self.validation[-99:], [run.step, held_out]]
        times, last = len(self.sampled), MOST_SAMPLED - 1
        while times < last and run.config.steps * times**2 // last**2 <= run.step:
            times += 1
        self._sample_next = run.config.steps * times**2 // last**2

    # --- how it stands ----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that the page shows, as of now."""
        if self.run is None:
            return {"version": 0}
        run = self.run
        return {
            "version": self.version,
            "running": self.running,
            "trouble": self.trouble,
            "step": run.step,
            "steps": run.config.steps,
            "rate": self.rate,
            "curve": self.curve.data(),
            "validation": self.validation,
            "sampled": self.sampled,
            "reading": self._reading(),
        }

    def _reading(self) -> dict[str, Any]:
        """What the model expects after the prefix, and where each head looks."""
        run = self._started()
        numbers = self._numbers(self.prefix)[: run.config.block]
        notes: dict[str, list[list[float]]] = {}

        def note(name: str, found: Sequence[Value]) -> None:
            if ".head." in name:
                notes.setdefault(name, []).append([round(x.data, 4) for x in found])

        with no_grad():
            cache = run.model.new_cache()
            for token in numbers:
                logits = run.model.logits(token, cache, note)
            chances = [p.data for p in softmax(logits)]
        return {
            "prefix": self.prefix,
            "tokens": [run.tokenizer.name(token) for token in numbers],
            "chances": [round(chance, 5) for chance in chances],
            "heads": [
                {
                    "name": name.replace("layers.", "layer ").replace(
                        ".attention.head.", ", head "
                    ),
                    "rows": rows,
                }
                for name, rows in notes.items()
            ],
        }


def _documents(pasted: str) -> list[str]:
    documents = [line.strip() for line in pasted.splitlines() if line.strip()]
    if len(documents) < 2:
        raise PlayError("paste at least two lines: each is one document to learn from")
    if len(documents) > MOST_DOCUMENTS:
        raise PlayError(
            f"the text has {len(documents):,} lines; at most {MOST_DOCUMENTS:,} are read"
        )
    return documents
