"""The derivative of a compiled function, compiled too: ``chainrule.jacobian(fast)`` and its like.

In: a function, what records it, and a ``Transform``. Out: a ``CompiledDerivative``. Its recordings
are those of the function, differentiated; guards, captured state, the tape and machine code are
those of any compiled function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chainrule.compiler.capture.arguments import holds_values
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.capture.undisturbed import is_internal
from chainrule.compiler.differentiation.tracing import DerivativeTracer
from chainrule.compiler.mapping.calls import map_derivative
from chainrule.compiler.runtime import calls, report
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.entrances import DerivedEntrance, Wanted
from chainrule.core.backend import modes
from chainrule.derivatives.matrices import compute
from chainrule.derivatives.transforms import Transform, is_nested

FIRST_ORDER = ("grad", "value_and_grad")  # of one number: machine code has a backward pass for it
MATRICES = ("jacobian", "hessian")
ARRANGED = ("jvp", "vjp", "hvp")  # their arguments go on in another order, or in pairs
#: how many times as long as building the function's graph an eager derivative takes, about
FIRST_WORK, SECOND_WORK = 16, 60


class CompiledDerivative(DerivedEntrance):
    """A derivative that records itself and replays; made by ``chainrule.jacobian`` and its like."""

    def __init__(
        self, transform: Transform, of: Dispatch, tracer: Tracer, known: Dispatch | None = None
    ) -> None:
        """``of``: what is differentiated, ``tracer``: what records it with its arguments in order.

        ``known``: what computes the gradient where that is all that is wanted.
        """
        functools.update_wrapper(self, of.function, updated=())
        self.transform, self._tracer, self._known = transform, tracer, known
        self._ordered = transform.in_order(of.function)
        #: which path answers a call; for tests and tools, not part of the public interface
        options = replace(of.options, sizes=None)  # the derivative itself is recorded
        self.dispatch = Dispatch(self._named(of.name), options, self._derived_tracer())
        self._derivatives: dict[Transform, CompiledDerivative] = {}
        #: what answers calls with their arguments as they are passed, if they are in order
        self._in_order = transform.argnums == 0 and transform.name not in ARRANGED
        self._gate = (known or self.dispatch).gate if self._in_order else None
        gradient = Wanted.VALUE_AND_GRADIENT if transform.has_value else Wanted.GRADIENT
        gradient = Wanted.BESIDE if transform.has_aux else gradient
        self._wanted = Wanted.WHOLE if known is None else gradient

    def _named(self, name: str) -> Callable[..., Any]:
        """The eager derivative, as a function of what it differentiates by first."""

        work = SECOND_WORK if self.transform.name in ("hessian", "hvp") else FIRST_WORK

        @functools.wraps(self._ordered, updated=())
        def sized(*arguments: Any, **keywords: Any) -> Any:
            result = self._ordered(*arguments, **keywords)
            if modes.recorder is None:
                self.dispatch.learn_size(result, work)
            return result

        sized._in_order = getattr(self._ordered, "_in_order", self._ordered)  # type: ignore[attr-defined]

        def derivative(x: Any, *others: Any, **keywords: Any) -> Any:
            return compute(self.transform, sized, x, *others, **keywords)

        derivative.__name__ = derivative.__qualname__ = f"{self.transform.name}({name})"
        return derivative

    def _derived_tracer(self, again: bool = False) -> DerivativeTracer:
        return DerivativeTracer(
            self._named(""), select=False, transform=self.transform, of=self._tracer, again=again
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a compiled derivative cannot be pickled: pickle the function, and make "
            f"{self.transform.name} of it again"
        )

    def __copy__(self) -> CompiledDerivative:
        """Itself, as of a plain function."""
        return self

    def __deepcopy__(self, memo: Any) -> CompiledDerivative:
        """Itself too."""
        return self

    def __repr__(self) -> str:
        return f"<compiled {self.dispatch.name}: {report.path(self.dispatch)}>"

    def _unanswered(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The derivative, for the arguments of the function."""
        first, others = self._arranged(arguments)
        if not self._in_order and not keywords:
            answer = (self._known or self.dispatch).answer((first, *others), True)
            if answer is not None:
                known = self._known is not None
                return self._derived(answer, (first, *others)) if known else answer
        if modes.recorder is not None or is_internal() or is_nested():
            return self.dispatch.function(first, *others, **keywords)
        if self._known is not None:
            return self._gradient(self._known, first, others, keywords)
        return calls.derivative(self.dispatch, (first, *others), keywords)

    def _derived(self, answer: tuple[Any, Any], arguments: tuple[Any, ...]) -> Any:
        """What it gives, of what the gate answered."""
        return self._of_gradient(answer, arguments, {})

    def map(
        self,
        /,
        *arguments: Any,
        in_axes: int | Sequence[int | None] | None = None,
        threads: int | None = None,
    ) -> Any:
        """The derivative over stacked arguments, without a loop in Python.

        As ``map`` of the compiled function: of a stacked argument each sample k gets ``array[k]``,
        and the results have an axis of samples before the others. Without ``in_axes`` the first
        argument is for all samples, of ``hvp`` the first two, and the others are stacked along
        axis 0. They are those of single calls to rounding, and to the last bit the same for any
        number of ``threads``. Sparse matrices are not stacked.

        >>> import numpy as np
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x: [p[0] * x, p[1] * x * x])
        >>> chainrule.jacobian(fast).map(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
        array([[[ 3.,  0.],
                [ 0.,  9.]],
        <BLANKLINE>
               [[ 4.,  0.],
                [ 0., 16.]]])
        """
        name, has_aux = self.transform.name, self.transform.has_aux
        if self.transform.sparse:
            raise TypeError(f"map stacks arrays: make the {name} without sparse=True")
        least = 2 if name == "hvp" else 1
        if len(arguments) < least:
            raise TypeError(f"map of {name} takes {'x and v' if least == 2 else 'x'} first")

        def arrange(given: tuple[Any, ...]) -> tuple[Any, ...]:
            first, others = self._arranged(given)
            return (first, *others)

        dispatch, gradient = self._known or self.dispatch, self._known is not None
        found = map_derivative(dispatch, arguments, arrange, in_axes, least, threads, gradient)
        if not gradient:
            return found
        value, slopes = found
        if isinstance(value, tuple) is not has_aux:
            what = "a pair of its value and extras with has_aux=True, and only then"
            raise TypeError(f"{name} needs a function that returns {what}")
        if name == "value_and_grad":
            return value, slopes
        return (slopes, value[1]) if has_aux else slopes

    def _arranged(self, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """What it differentiates by, with the vector if there is one, and the other arguments."""
        name = self.transform.name
        if name in ("jvp", "vjp"):
            return arguments, ()
        if name != "hvp":
            return self.transform.pick(arguments)
        if len(arguments) < 2:
            raise TypeError("hvp takes x and v")
        x, v, *rest = arguments
        first, others = self.transform.pick((x, *rest))
        return (first, v), others

    def _gradient(
        self, known: Dispatch, first: Any, others: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """By the backward pass of the function's own machine code."""
        if holds_values(first):
            return self.dispatch.function(first, *others, **keywords)
        ordered = (first, *others)
        name = self.transform.name
        found = calls.unanswered_value_and_grad(known, ordered, keywords, name=name)
        return self._of_gradient(found, ordered, keywords)

    def _of_gradient(
        self, answer: tuple[Any, Any], ordered: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """What it gives, of the value, with extras, and the gradient."""
        if isinstance(answer[0], tuple) is self.transform.has_aux:
            return self.transform.wanted(*answer)
        return self.dispatch.function(*ordered, **keywords)  # which says what is wrong

    def report(self, stage: str = "summary") -> str:
        """What became of it, as ``report`` of a compiled function says."""
        return report.report(self._known or self.dispatch, stage)

    def _derivative(self, transform: Transform) -> CompiledDerivative | None:
        """Its own derivative; None where that is not compiled."""
        mine = self.transform
        if not (
            (mine.name in MATRICES or mine.name == "grad")
            and (transform.name in (*MATRICES, *FIRST_ORDER, "hvp"))
            and mine.argnums == transform.argnums == 0
            and not (mine.has_aux or mine.sparse)
        ):
            return None
        if transform not in self._derivatives:
            tracer = self._derived_tracer(again=True)
            self._derivatives[transform] = CompiledDerivative(transform, self.dispatch, tracer)
        return self._derivatives[transform]


def derivative_of(dispatch: Dispatch, transform: Transform) -> CompiledDerivative:
    """The derivative of a compiled function."""
    ordered, known = transform.in_order(dispatch.function), None
    if transform.name in FIRST_ORDER:
        same = ordered is dispatch.function
        known = dispatch if same else Dispatch(ordered, replace(dispatch.options, sizes=None))
    return CompiledDerivative(transform, dispatch, Tracer(ordered, select=False), known)
