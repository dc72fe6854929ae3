"""Few samples of a map: calls one after the other, as long as lanes would take longer to prepare.

In: what a map was asked for. Out: values and gradients, a row for each sample, where the function's
gate has cached calls like these and answers all of them in C. The first few such maps are calls
from Python, so that there are some; where the gate answers none even then, samples go in lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.mapping.costs import most_alone
from chainrule.compiler.mapping.prepared import MOST, Asked
from chainrule.compiler.mapping.results import Results
from chainrule.compiler.mapping.rounds import Rounds
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.trees import Node

FEW = 8  # samples, where it is not known yet what one takes
TRIES = 3  # maps that are calls from Python


@dataclass(eq=False)
class Few:
    """Maps of few samples that share the first argument alone."""

    first: Node  # its structure
    tries: int = 0  # maps that the gate did not answer

    @classmethod
    def of(cls, dispatch: Dispatch, asked: Asked) -> Few | None:
        """What is kept of maps like this one; None where it has too many samples."""
        most = most_alone(dispatch)
        if not asked.has_parameters or len(asked.stacked[0]) > (FEW if most is None else most):
            return None
        key = "few", asked.key
        found: Few | None = dispatch.prepared.get(key)
        if found is None:
            call = flatten_call(asked.shared, {}, differentiate=True)
            found = cls(call.structure[0][0])
            if len(dispatch.prepared) >= MOST:
                dispatch.prepared.clear()
            dispatch.prepared[key] = found
        return found if found.tries <= TRIES else None

    def answer(self, dispatch: Dispatch, asked: Asked, rows: bool) -> Results | None:
        """What the gate gives for the samples."""
        (params,), count = asked.shared, len(asked.stacked[0])
        found = dispatch.gate.rows(params, [*zip(*asked.stacked, strict=True)])
        if found is None:
            self.tries += 1
            return None
        self.tries = 0
        values, gradients = (np.frombuffer(x).reshape(count, -1) for x in found)
        results = Results(True, gradients.shape[1], count, rows, 0)
        if rows:
            results.values, results.gradients = values, gradients
        else:
            results.value, results.gradient = float(values.sum()), gradients.sum(axis=0)
        return results

    def calls(self, rounds: Rounds) -> Results | None:
        """The same by calls from Python; None where these were tried in vain."""
        return rounds.run_alone() if self.tries <= TRIES else None
