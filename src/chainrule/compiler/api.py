"""``chainrule.compile``: a function recorded once and replayed safely.

In: a function of Values. Out: a ``CompiledFunction``, whose methods are all that users call. What
they do is in ``runtime`` (one call) and ``training`` (batches and whole steps).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chainrule.compiler.capture.captured import Method
from chainrule.compiler.derived import CompiledDerivative, derivative_of
from chainrule.compiler.mapping.calls import map_calls
from chainrule.compiler.runtime import calls, report
from chainrule.compiler.runtime.bound import BoundCall
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.entrances import Entrance
from chainrule.compiler.runtime.keywords import in_places, named
from chainrule.compiler.runtime.notices import FallbackError, FallbackWarning
from chainrule.compiler.runtime.pipeline import Options
from chainrule.compiler.runtime.results import fill
from chainrule.compiler.saving.writing import save
from chainrule.compiler.sizes.serving import any_size
from chainrule.compiler.training.batches import batch_value_and_grad
from chainrule.compiler.training.driver import Callback, Trainer, train
from chainrule.compiler.training.evaluation import Evaluator
from chainrule.compiler.training.function import TrainableFunction
from chainrule.compiler.training.steps import Progress, unnoticed
from chainrule.compiler.translate.c.function import CSource, translate_to_c
from chainrule.compiler.translate.function import Translated, TranslationError
from chainrule.compiler.translate.ways import translated
from chainrule.derivatives.matrices import transformed
from chainrule.derivatives.transforms import Transform
from chainrule.optim import Optimizer
from chainrule.trees import Floats

__all__ = [
    "CompiledFunction",
    "FallbackError",
    "FallbackWarning",
    "TranslationError",
    "compile",
]

METHODS = 256  # instances whose compiled methods are kept


class CompiledFunction(Entrance):
    """A function that records itself and replays; made by ``chainrule.compile``."""

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        functools.update_wrapper(self, function, updated=())
        #: which path answers a call; for tests and tools, not part of the public interface
        self.dispatch = Dispatch(function, options)
        self._gate = self.dispatch.gate
        self._named = named(function)
        self.dispatch.may_keep = options.dtype == "float64"  # others do not hold all integers
        self._bound: dict[int, tuple[Callable[[], Any], CompiledFunction]] = {}
        self._derivatives: dict[Transform, CompiledDerivative] = {}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: compiled once per instance, whose attributes are part of its captured state."""
        if instance is None:
            return self
        dispatch = self.dispatch
        with dispatch.lock:
            kept = self._bound.get(id(instance))
            if kept is None or kept[0]() is not instance:
                key, kept_here = id(instance), self._bound
                method = Method(dispatch.function, instance, lambda _: kept_here.pop(key, None))
                bound = CompiledFunction(method, dispatch.options)
                kept = self._bound[id(instance)] = (method.instance, bound)
                while len(self._bound) > METHODS:
                    del self._bound[next(iter(self._bound))]
            return kept[1]

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = self.dispatch.name
        raise TypeError(
            f"a compiled function cannot be pickled: pickle {name!r} itself, compile it again"
        )

    def __copy__(self) -> CompiledFunction:
        """Itself, as of a plain function."""
        return self

    def __deepcopy__(self, memo: Any) -> CompiledFunction:
        """Itself too; but a method belongs to its object, of which this would be another."""
        if isinstance(self.dispatch.function, Method):
            raise TypeError(
                f"{self.dispatch.name!r} is a compiled method of one object: copy the object "
                "without it, and take the method of the copy"
            )
        return self

    def __repr__(self) -> str:
        return f"<compiled {self.dispatch.name}: {report.path(self.dispatch)}>"

    def _unanswered(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The function's value: a Value where Values are involved, else floats."""
        arguments, keywords = in_places(self.dispatch.function, arguments, keywords)
        return calls.unanswered_value(self.dispatch, arguments, keywords)

    def _differentiate(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], out: Any, answer: Any
    ) -> Any:
        """``value_and_grad``."""
        if answer is not None:
            number, gradient = answer
            return number, fill(out, gradient)
        arguments, keywords = in_places(self.dispatch.function, arguments, keywords)
        return calls.unanswered_value_and_grad(self.dispatch, arguments, keywords, out)

    def bound(self, /, *arguments: Any) -> BoundCall:
        """``value_and_grad`` of these arguments, for a loop that changes their arrays in place.

        A call of the result reads the arguments where they are and returns the value; the gradient
        goes into the arrays of its ``gradient``, the same ones each time. There is nothing else to
        take apart or to make, so it is the quickest call there is.

        >>> import numpy as np
        >>> import chainrule
        >>> x = np.array([1.0, 2.0])
        >>> bound = chainrule.compile(lambda x: x[0] * x[1] ** 2).bound(x)
        >>> bound(), bound.gradient
        (4.0, array([4., 4.]))
        >>> x[0] = 3.0
        >>> bound(), bound.gradient
        (12.0, array([ 4., 12.]))
        """
        return BoundCall(self.dispatch, arguments)

    def map(
        self,
        /,
        *arguments: Any,
        in_axes: int | Sequence[int | None] | None = None,
        reduce: str | None = None,
        threads: int | None = None,
    ) -> Any:
        """The function's values over stacked arguments, without a loop in Python.

        Of a stacked argument each sample k gets ``array[k]``, of every array in it; the others are
        passed to all samples. ``in_axes`` has for each argument the axis along which it is stacked,
        or None; without it the first argument is for all samples and the others are stacked along
        axis 0. The result is what ``[fast(params, x) for x in X]`` gives, as an array of samples
        for each number that the function returns; with ``reduce="sum"`` or ``"mean"`` the first
        of these over all samples. An error is that of the first sample that raises.

        Samples go through machine code several at a time, on ``threads`` cores: by default
        all of them, or as many as ``CHAINRULE_THREADS`` in the environment says. The results are
        the same to the last bit for any number of threads, and those of single calls to rounding.

        >>> import numpy as np
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x: p["w"] * x + p["b"])
        >>> fast.map({"w": 2.0, "b": 1.0}, np.array([1.0, 2.0, 3.0]))
        array([3., 5., 7.])
        """
        return map_calls(self.dispatch, arguments, in_axes, reduce, threads, False)

    def map_value_and_grad(
        self,
        /,
        *arguments: Any,
        in_axes: int | Sequence[int | None] | None = None,
        reduce: str | None = None,
        threads: int | None = None,
    ) -> Any:
        """The values over stacked arguments, and each one's gradient by the first argument.

        As ``map``: gradients have the structure of the first argument, with an axis of samples
        before the others. With ``reduce="sum"`` or ``"mean"``, that of values and of gradients.

        >>> import numpy as np
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x: (p["w"] * x) ** 2)
        >>> values, grads = fast.map_value_and_grad({"w": 3.0}, np.array([1.0, 2.0]))
        >>> values, grads["w"]
        (array([ 9., 36.]), array([ 6., 24.]))
        >>> fast.map_value_and_grad({"w": 3.0}, np.array([1.0, 2.0]), reduce="mean")
        (22.5, {'w': 15.0})
        """
        return map_calls(self.dispatch, arguments, in_axes, reduce, threads, True)

    def batch_value_and_grad(
        self, params: Any, samples: Sequence[Sequence[Any]], out: Any = None
    ) -> Any:
        """The mean value over samples (each a tuple of further arguments) and its gradient."""
        return batch_value_and_grad(self.dispatch, params, samples, out)

    def train(
        self,
        params: Any,
        samples: Iterable[tuple[Any, ...]],
        optimiser: Optimizer,
        steps: int,
        batch: int = 1,
        callback: Callback | None = None,
        every: int = 100,
        threads: int | None = None,
        clip: float | None = None,
        key: Any = None,
    ) -> Floats:
        """Take whole training steps, changing the arrays of ``params`` in place; the losses.

        Each step reads the next ``batch`` samples (tuples of the arguments after the first, in
        order, starting over at the end), and its loss is their mean. ``optimiser``, built
        from these same arrays, continues from where it is: with its moments, its schedule and its
        place among the samples, so that two calls of 50 steps are one of 100, to rounding: what a
        few steps would not pay for is neither recorded nor built, and they run eagerly.
        ``callback(losses, step)``, every ``every`` steps and at the end, gets the losses of this
        call and the number of steps the optimiser has taken; if it returns True the run ends there.
        Where there is one, samples are copied when the run begins, as by ``trainer``: what becomes
        of yours meanwhile makes no difference.
        A loss, gradient or update that is not finite raises, and Ctrl-C interrupts, between two
        steps: parameters and moments are those of the last whole step.
        ``clip`` is the largest norm that the gradient of a step may have: a larger one is scaled
        down, as by ``optim.clip_gradients``.
        With a ``key`` of ``chainrule.random`` the function gets one more argument, after those of
        the sample: the n-th sample of all steps gets ``random.fold_in(key, n)``, for ``dropout``.
        Large steps run on ``threads`` cores, as in ``map`` with the same bits for any number.
        It is a short use of ``trainer``, which prepares all this once, for many calls.

        >>> import numpy as np
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x, y: (p["w"] * x + p["b"] - y) ** 2)
        >>> params = {"w": np.array(0.0), "b": np.array(0.0)}
        >>> samples = [(x, 2 * x + 1) for x in (-1.0, 0.0, 1.0)]
        >>> optimiser = chainrule.optim.SGD(params, lr=0.1)
        >>> losses = fast.train(params, samples, optimiser, steps=300)
        >>> len(losses), params["w"].round(6).item(), params["b"].round(6).item()
        (300, 2.0, 1.0)
        """
        function = TrainableFunction(self.dispatch, threads)
        return train(function, params, samples, optimiser, steps, batch, callback, every, clip, key)

    def trainer(
        self,
        params: Any,
        samples: Iterable[tuple[Any, ...]],
        optimizer: Optimizer,
        batch: int = 1,
        *,
        clip: float | None = None,
        key: Any = None,
        threads: int | None = None,
        progress: Progress = unnoticed,
    ) -> Trainer:
        """What ``train`` takes steps with, prepared once and kept for as many calls as you like.

        ``trainer.advance(steps)`` takes steps and returns their losses; ``trainer.losses`` has all
        of them. ``trainer.params`` and ``trainer.optimizer`` are what was passed: read them or set
        them, in place, between two calls. ``trainer.state_dict()`` is a checkpoint, and after
        ``load_state_dict`` the steps that follow give the same bits. The arguments are those of
        ``train``. Samples are recorded now: before each kind of them ``progress(done, total)`` is
        called. They are copied, unless they are ``chainrule.Windows``: lists, dicts, arrays,
        dataclasses and the like, so that what the function does to its samples does not reach
        yours; but not instances of other classes and what the function has by itself, which it may
        tell from a copy: these are read as they are when a step is taken.

        >>> import numpy as np
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x, y: (p["w"] * x + p["b"] - y) ** 2)
        >>> params = {"w": np.array(0.0), "b": np.array(0.0)}
        >>> samples = [(x, 2 * x + 1) for x in (-1.0, 0.0, 1.0)]
        >>> trainer = fast.trainer(params, samples, chainrule.optim.Adam(params, lr=0.1), clip=1.0)
        >>> first = trainer.advance(50)
        >>> kept = trainer.state_dict()
        >>> more = trainer.advance(50)
        >>> trainer.load_state_dict(kept)
        >>> (trainer.advance(50) == more).all(), len(trainer.losses)
        (np.True_, 100)
        """
        function = TrainableFunction(self.dispatch, threads)
        return Trainer(function, params, samples, optimizer, batch, clip, progress, key=key)

    def evaluator(
        self,
        params: Any,
        samples: Iterable[tuple[Any, ...]],
        *,
        progress: Progress = unnoticed,
    ) -> Evaluator:
        """The mean value over some samples, prepared once: call it to compute it, forward only.

        Each call reads the numbers that the arrays of ``params`` hold then. It shares the
        recordings and the machine code of ``value_and_grad``, ``train`` and ``trainer``;
        ``progress`` is as there.

        >>> import numpy as np
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x: (p["w"] * x) ** 2)
        >>> params = {"w": np.array(1.0)}
        >>> mean = fast.evaluator(params, [(1.0,), (3.0,)])
        >>> mean()
        5.0
        >>> params["w"][...] = 2.0
        >>> mean()
        20.0
        """
        return Evaluator(self.dispatch, params, samples, progress)

    def to_numpy(
        self,
        /,
        *example: Any,
        specialise: Any = False,
        sizes: Any = None,
        lengths: bool | Iterable[int] = False,
        **keywords: Any,
    ) -> Translated:
        """The function as readable numpy source, for calls of the structure of the example.

        The result is a function over the same nested arguments; its ``source`` has one line for
        each formula, runs without chainrule, and is written to a file by ``save``. It was compared
        with eager mode; what has no such source raises a ``TranslationError`` that says why. So do
        branches that depend on numbers or integers, unless ``specialise=True``: the function then
        returns ``(result, valid)``, and ``valid`` says whether they went as in the example (or in
        one of several, ``specialise=[arguments, ...]``). ``sizes``, in the place of an example, is
        a function that makes examples, ``lambda n: (params, [1.0] * n)``, or a list of them: the
        source is then for arrays of any size, and what sizes do not explain is refused.

        ``lengths=True``, or the lengths, is for lists of any length: those after the first argument
        that are the longest of the example may be shorter. The function takes them padded to
        that length, with anything, and one more argument, how many of their items count.

        >>> import chainrule
        >>> def loss(p, xs):
        ...     return sum((p["w"] * x + p["b"]).tanh() for x in xs)
        >>> model = chainrule.compile(loss).to_numpy({"w": 0.5, "b": 0.0}, [1.0, 2.0, 3.0])
        >>> print(model.source.split("xs = ")[1].split(")", 1)[1])  # doctest: +NORMALIZE_WHITESPACE
            # result = Σ_i tanh(w·xs[i] + b)
            result = np.sum(np.tanh(w * xs + b))
            return result
        >>> float(model({"w": 0.5, "b": 0.0}, [1.0, 2.0, 3.0]).round(6))
        2.12886
        >>> mean = chainrule.compile(lambda p, xs: sum(p["w"] * x for x in xs) / len(xs))
        >>> padded = mean.to_numpy({"w": 0.5}, [1.0, 2.0, 3.0], lengths=True)
        >>> float(padded({"w": 0.5}, [1.0, 2.0, 0.0], 2)), padded.lengths
        (0.75, (1, 2, 3))
        """
        with self.dispatch.lock:
            function = self.dispatch.function
            return translated(function, "numpy", example, keywords, specialise, sizes, lengths)

    def to_jax(
        self,
        /,
        *example: Any,
        specialise: Any = False,
        sizes: Any = None,
        lengths: bool | Iterable[int] = False,
        **keywords: Any,
    ) -> Translated:
        """The function as readable JAX source: see ``to_numpy``.

        The result may be given to ``jax.jit``, ``jax.grad`` and ``jax.vmap``. Its gradient was
        compared with eager mode's too. Needs JAX: ``pip install 'chainrule[jax]'``.
        """
        with self.dispatch.lock:
            function = self.dispatch.function
            return translated(function, "jax", example, keywords, specialise, sizes, lengths)

    def to_torch(
        self,
        /,
        *example: Any,
        specialise: Any = False,
        sizes: Any = None,
        lengths: bool | Iterable[int] = False,
        **keywords: Any,
    ) -> Translated:
        """The function as readable PyTorch source: see ``to_numpy``.

        The result takes tensors, on any device, and torch differentiates it: ``backward()``,
        ``torch.func.grad`` and ``vmap``. Tensors and arrays keep their type; plain numbers get
        torch's default type. Its gradient was compared with eager mode's too. Needs torch:
        ``pip install 'chainrule[torch]'``.
        """
        with self.dispatch.lock:
            function = self.dispatch.function
            return translated(function, "torch", example, keywords, specialise, sizes, lengths)

    def to_c(self, /, *example: Any, **keywords: Any) -> CSource:
        """The function as readable C99, with its gradient: see ``to_numpy``.

        ``source`` and ``header`` are the texts, and ``save("model.c")`` writes both. They need
        only math.h, allocate nothing, and compute in memory that the caller passes; loops have
        their formula above them. A function that returns one Value gets ``NAME_value`` and
        ``NAME_value_and_grad``, one that returns several ``NAME_jacobian``. They return a status:
        0, or why this call is not like the example (a branch goes another way, an integer is no
        index). The same loops were run in Python and compared with eager mode.

        >>> import chainrule
        >>> def loss(p, xs):
        ...     return sum((p["w"] * x + p["b"]).tanh() for x in xs)
        >>> model = chainrule.compile(loss).to_c({"w": 0.5, "b": 0.0}, [1.0, 2.0, 3.0])
        >>> print(model.source.partition("every number")[2].partition("work->result =")[0])
        , in order */
        static void forward(const loss_p *p, const double *xs, loss_work *RESTRICT work) {
            /* result = Σ_i tanh(w·xs[i] + b) */
            double sum = 0.0;
            for (int i = 0; i < 3; i++) {
                work->result_tanh[i] = tanh(p->w * xs[i] + p->b);
                sum += work->result_tanh[i];
            }
        <BLANKLINE>
        """
        with self.dispatch.lock:
            return translate_to_c(self.dispatch.function, example, keywords)

    def save(self, path: str | os.PathLike[str], /, *example: Any, **keywords: Any) -> None:
        """Write all that was recorded of the function to a file, for ``chainrule.load``.

        The file holds the recordings, with their guards, of every call so far that was recorded;
        with an example of its arguments those of ``fast(*example)`` and
        ``fast.value_and_grad(*example)`` too, whatever they cost. What the function captured
        (globals, closures, ``self``) is frozen as it is now. A function that runs eagerly, or uses
        an opaque operation, raises a ``SaveError`` that says why. See docs/saved-functions.md.

        >>> import pathlib, tempfile
        >>> import chainrule
        >>> fast = chainrule.compile(lambda p, x: (p["w"] * x) ** 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "square.chainrule")
        ...     fast.save(path, {"w": 3.0}, 2.0)
        ...     chainrule.load(path).value_and_grad({"w": 3.0}, 1.0)
        (9.0, {'w': 6.0})
        """
        save(self.dispatch, path, example, keywords)

    def _derivative(self, transform: Transform) -> CompiledDerivative | None:
        """What ``chainrule.jacobian`` and its like make of it; kept, with its recordings."""
        with self.dispatch.lock:
            if transform not in self._derivatives:
                self._derivatives[transform] = derivative_of(self.dispatch, transform)
            return self._derivatives[transform]

    def report(self, stage: str = "summary") -> str:
        """What became of the function: its recordings, and why it was not lifted or ran eagerly.

        docs/how-it-works.md, "Where to look when", explains the messages.
        ``stage="recorded"`` shows the instructions of every variant instead, ``"integers"`` what is
        computed from integers, ``"lifted"`` the array programs, in index notation.
        """
        return report.report(self.dispatch, stage)


def compile(
    f: Callable[..., Any] | None = None,
    dtype: str = "float64",
    on_fallback: str = "warn",
    *,
    lift: bool | None = None,
    contract: bool = True,
    sizes: Any = None,
) -> Any:
    """Record a function of Values once and replay it, with its gradient, without Python.

    ``if`` and ``while`` on Values, integer indexing, helpers and globals are followed soundly: what
    a recording cannot repeat is noticed and runs eagerly (``on_fallback``: ``"eager"`` quietly,
    ``"warn"`` once per reason, or ``"raise"``). Usable as a decorator, with or without arguments.

    A recording is searched for the arrays in it, of which machine code is made; what has none, and
    what is small, runs on a native tape. The former agrees with eager to rounding, the latter to
    the last bit: ``lift=False`` leaves it at that, ``lift=True`` lifts small functions too.
    ``dtype="float32"`` computes machine code in single precision. ``contract=False`` rounds every
    product before it is added and keeps the order of sums: slower, for comparing bits.

    ``sizes``, a function that makes example arguments for given sizes, or a list of examples, is
    for large calls: the function is recorded at a few small sizes, and the machine code of any
    other size is built from what these have in common. Before it answers, its value and derivative
    are compared with the function itself. What small sizes do not explain is recorded as usual.

    >>> import chainrule
    >>> @chainrule.compile
    ... def loss(params, x):
    ...     return (params["w"] * x + params["b"]).tanh()
    >>> value, grads = loss.value_and_grad({"w": 0.5, "b": 0.0}, 2.0)
    >>> round(value, 6), round(grads["w"], 6)
    (0.761594, 0.839949)
    """
    if dtype not in ("float64", "float32"):
        raise ValueError(f'dtype must be "float64" or "float32", not {dtype!r}')
    if on_fallback not in ("eager", "warn", "raise"):
        raise ValueError(f'on_fallback is "eager", "warn" or "raise", not {on_fallback!r}')
    if f is None:
        return functools.partial(
            compile,
            dtype=dtype,
            on_fallback=on_fallback,
            lift=lift,
            contract=contract,
            sizes=sizes,
        )
    if isinstance(f, (CompiledFunction, CompiledDerivative)):
        return f
    known = transformed(f)
    if known is not None:
        transform, plain = known
        return compile(plain, dtype, on_fallback, lift=lift, contract=contract)._derivative(
            transform
        )
    if not callable(f):
        raise TypeError(f"compile takes a function, not a {type(f).__name__}")
    source = None if sizes is None else any_size(sizes, lift)
    return CompiledFunction(f, Options(dtype, on_fallback, lift, contract, source))
