"""Recordings of derivatives: the function is recorded, and its recording differentiated.

In: a call of a derivative. Out: a ``Trace`` of it. Where the derivative is multiplied with a
vector, the first argument of such a call is a pair: what it is differentiated by, and the vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.carried import Carried
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.differentiation.derivatives import check_alike, derive
from chainrule.derivatives.arguments import Argument, flatten_argument
from chainrule.derivatives.transforms import Transform

PRODUCTS = ("hvp", "jvp", "vjp")  # with a vector


@dataclass(frozen=True, kw_only=True)
class DerivativeTracer(Tracer):
    """Makes the recordings of a derivative; ``function`` is the eager one, which returns numbers.

    ``of`` records what is differentiated, with every read by an integer static: a derivative by
    all that might have been selected would be as large as if all of it were used. ``again``: the
    derivative is differentiated itself.
    """

    transform: Transform
    of: Tracer
    again: bool = False

    @property
    def source(self) -> Callable[..., Any]:  # noqa: D102
        return self.of.source

    def trace(self, state: CapturedState, call: Call) -> Trace:  # noqa: D102
        inner, argument, vector = self._split(call)
        made = self.of.trace(state, inner)
        recording = derive(self.transform, made.recording, argument, vector, self.again)
        return replace(made, recording=recording, derived_from=made)

    def confirm(  # noqa: D102
        self, state: CapturedState, call: Call, first: Trace, carries: bool = False
    ) -> Carried | None:
        assert first.derived_from is not None
        self.of.confirm(state, self._split(call)[0], first.derived_from)
        return None

    def _split(self, call: Call) -> tuple[Call, Argument, Argument | None]:
        """The call of the function itself, what it is differentiated by, and the vector."""
        first, *others = call.arguments
        x, v = first if self.transform.name in PRODUCTS else (first, None)
        argument, vector = self.transform.flatten(x), None
        if self.transform.name == "vjp":
            vector = flatten_argument(v)
        elif v is not None:
            vector = self.transform.flatten(v)
            check_alike(vector, argument)
        inner = flatten_call((x, *others), call.keywords, differentiate=True)
        added = 0 if vector is None else len(vector.numbers)
        fits = inner.size + added == call.size and inner.first == len(argument.numbers)
        if inner.refused is not None or not fits or inner.ints != call.ints:
            raise Unrecordable("its arguments are not those of the function it differentiates")
        return inner, argument, vector
