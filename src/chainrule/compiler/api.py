"""``chainrule.compile``: a function recorded once and replayed safely.

Each structure of arguments has its variants: a recording with its executor, the integers it is
static in, and what its operands do with the others. A call takes the first variant whose static
integers, confirmed indices and guards all hold; else it is recorded; what cannot be recorded
soundly runs eagerly, and ``report()`` says why.
"""

from __future__ import annotations

import functools
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, as_float, flatten_call, like_first, rebuild
from chainrule.compiler.capture.captured import Method, Surroundings, survey
from chainrule.compiler.capture.infer import Indexing, misaligned
from chainrule.compiler.capture.recorder import Output
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import (
    Trace,
    confirm,
    nudged,
    plain_modes,
    random_states_kept,
    trace,
)
from chainrule.compiler.runtime.families import Family
from chainrule.compiler.runtime.fast_path import Recall
from chainrule.compiler.runtime.lifting import Lifter
from chainrule.compiler.runtime.listing import listing
from chainrule.compiler.runtime.results import (
    NUMERIC,
    as_floats,
    compiled_node,
    fill,
    first_of,
    forget,
    gradient_up_to,
    gradient_without_trace,
    not_scalar,
    numeric_leaves,
    root_of,
    value_places,
)
from chainrule.compiler.runtime.tape import FINE, OTHER_BRANCH, UNDEFINED
from chainrule.compiler.runtime.variants import Counts, Structure, Variant, other_integers
from chainrule.compiler.training.driver import Callback, train
from chainrule.compiler.training.inner import InnerLoop, mean_of
from chainrule.compiler.training.samples import Prepared
from chainrule.core import errors
from chainrule.core.backend import Value, engine, kernels, modes
from chainrule.core.interrupts import Held
from chainrule.derivatives.transforms import recording
from chainrule.optim import SGD, Adam, AdamW, Optimizer
from chainrule.trees import Floats, map_leaves

METHODS = 256  # instances whose compiled methods are kept
STRUCTURES = 256  # of arguments, likewise
VARIANTS = 16  # of one structure, the least recently used goes
RECORDINGS = 200  # of one structure that led to a new variant
REWALKS = 20  # changes of the surroundings in a row


class FallbackWarning(UserWarning):
    """A compiled function runs eagerly; the message says why.

    >>> from chainrule import FallbackWarning
    >>> issubclass(FallbackWarning, UserWarning)
    True
    """


class FallbackError(RuntimeError):
    """A function compiled with ``on_fallback="raise"`` cannot be recorded.

    >>> from chainrule import FallbackError
    >>> issubclass(FallbackError, RuntimeError)
    True
    """


class CompiledFunction:
    """A function that records itself and replays; made by ``chainrule.compile``."""

    def __init__(
        self,
        function: Callable[..., Any],
        dtype: str,
        on_fallback: str,
        lift: bool | None = None,
        contract: bool = True,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._dtype = dtype
        self._on_fallback = on_fallback
        self._lift = lift
        self._contract = contract
        self._lifts: Lifter | None = None
        self._recall: Recall | None = None
        self._stretching = False  # a call longer than the one that was made is being recorded
        self._lock = threading.RLock()
        self._inside = False  # a call is being computed
        self._structures: dict[Any, Structure] = {}
        self._surroundings: Surroundings | None = None
        self._rewalks = 0
        self._reasons: dict[str, int] = {}
        self._counts = Counts()
        self._bound: dict[int, tuple[Callable[[], Any], CompiledFunction]] = {}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: compiled once per instance, whose attributes are part of its surroundings."""
        if instance is None:
            return self
        with self._lock:
            kept = self._bound.get(id(instance))
            if kept is None or kept[0]() is not instance:
                key, kept_here = id(instance), self._bound
                method = Method(self._function, instance, lambda _: forget(kept_here, key))
                bound = CompiledFunction(
                    method, self._dtype, self._on_fallback, self._lift, self._contract
                )
                kept = self._bound[id(instance)] = (method.instance, bound)
                while len(self._bound) > METHODS:
                    del self._bound[next(iter(self._bound))]
            return kept[1]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a compiled function cannot be pickled: pickle {self._name!r} itself, compile it again"
        )

    def __repr__(self) -> str:
        return f"<compiled {self._name}: {self._path()}>"

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__name__", "function"))

    # --- the three ways to call it ----------------------------------------------------------------

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The function's value: a Value where Values are involved, else floats."""
        if modes.recorder is not None:  # inside another recording: part of it
            return self._function(*arguments, **keywords)
        call = flatten_call(arguments, keywords, differentiate=False)
        with self._lock, self._alone() as alone:
            variant = self._variant_for(call) if alone else None
            if variant is not None:
                return self._result(variant, call)
        return self._eagerly(call)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no call is being computed.

        The lock keeps other threads out, but not what Python runs in between on this one: signal
        handlers and finalizers.
        """
        if self._inside:
            yield False
            return
        self._inside = True
        try:
            yield True
        finally:
            self._inside = False

    def value_and_grad(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """The value and its gradient by the first argument, in that argument's structure.

        ``out``, an array for each array of the first argument in the same nest, receives the
        gradient in place. If the function returns ``(value, extras)``, so does this.
        """
        if not arguments:
            raise TypeError("value_and_grad takes the argument to differentiate by first")
        if modes.recorder is not None:
            modes.recorder.forbid("value_and_grad of a compiled function")
        if self._recall is not None and not keywords:
            answer = self._recalled(self._recall, arguments)
            if answer is not None:
                return answer if out is None else (answer[0], fill(out, answer[1]))
        call = flatten_call(arguments, keywords, differentiate=True)
        with self._lock, self._alone() as alone:
            variant = self._variant_for(call) if alone else None
            if variant is not None and variant.ran_lifted:
                self._remember(call, variant)
            if variant is not None:
                value, root = self._floats(variant), root_of(variant.recording.result)
                if root is not None:
                    swept = variant.sweep(root.position)
                    if swept is None:
                        variant = None
                    else:
                        grads = swept[: call.size].copy()
                elif isinstance(first_of(value), float):
                    grads = np.zeros(call.size)  # a number that does not follow the argument
                else:
                    raise not_scalar(self._name)
        if variant is None:  # outside the lock: eager code may call other compiled functions
            return self._eager_value_and_grad(call, out)
        return value, fill(out, like_first(call, arguments[0], grads))

    def _remember(self, call: Call, variant: Variant) -> None:
        """Know such a call again."""
        if self._recall is None:
            self._recall = Recall()
        self._recall.learn(call, variant)

    def _recalled(self, recall: Recall, arguments: tuple[Any, ...]) -> tuple[float, Any] | None:
        """The answer to a call that is known again; None for the long way."""
        with self._lock:
            surroundings = self._surroundings
            if self._inside:
                return None
            if surroundings is None or surroundings.changed() is not None:
                self._recall = None
                return None
            self._inside = True
            try:
                answer = recall.answer(arguments)
            finally:
                self._inside = False
            if answer is not None:
                self._counts.calls += 1
                self._counts.replayed += 1
                self._rewalks = 0
            return answer

    def batch_value_and_grad(
        self, params: Any, samples: Sequence[Sequence[Any]], out: Any = None
    ) -> Any:
        """The mean value over samples (each a tuple of further arguments) and its gradient."""
        samples = list(samples)
        if not samples:
            raise ValueError("batch_value_and_grad needs at least one sample")
        for sample in samples:
            if not isinstance(sample, tuple):
                raise TypeError(
                    "a sample is a tuple of the arguments after the first: "
                    f"got a {type(sample).__name__}"
                )
        mean, grads, left = self._batched(params, samples) or (0.0, None, samples)
        sums = None if grads is None else numeric_leaves(grads)
        for sample in left:
            value, grads = self.value_and_grad(params, *sample)
            mean += (value[0] if isinstance(value, tuple) else value) / len(samples)
            leaves = [a / len(samples) for a in numeric_leaves(grads)]
            sums = leaves if sums is None else [a + b for a, b in zip(sums, leaves, strict=True)]
        rest = iter(sums or [])
        filled = map_leaves(lambda x: next(rest) if isinstance(x, NUMERIC) else x, grads)
        return mean, fill(out, filled)

    def _batched(self, params: Any, samples: list[Any]) -> tuple[float, Any, list[Any]] | None:
        """What most samples add to the mean, many at a time in machine code, and the others."""
        if len(samples) < 2 or self._lift is False or modes.recorder is not None:
            return None
        call = flatten_call((params, *samples[0]), {}, differentiate=True)
        if call.refused is not None or any(isinstance(x, Value) for x in call.floats):
            return None
        with self._lock, self._alone() as alone:
            if not alone:
                return None
            prepared = Prepared(_Samples(self), params, samples)
            if prepared.first_of(prepared.longest()) is None:
                return None
            row = np.empty(call.size)
            call.write(row)
            answer = mean_of(prepared, row[: call.first])
            if answer is None:
                return None
            value, slopes, left = answer
            self._counts.calls += len(samples) - len(left)
            self._counts.replayed += len(samples) - len(left)
        gradient = np.concatenate([slopes, np.zeros(call.size - call.first)])
        return value, like_first(call, params, gradient), [samples[k] for k in left]

    def train(
        self,
        params: Any,
        samples: Iterable[tuple[Any, ...]],
        optimiser: Optimizer,
        steps: int,
        batch: int = 1,
        callback: Callback | None = None,
        every: int = 100,
    ) -> Floats:
        """Take whole training steps, changing the arrays of ``params`` in place; the losses.

        Each step reads the next ``batch`` samples (tuples of the arguments after the first, in
        order, starting over at the end), and its loss is their mean. ``optimiser``, made of these
        very arrays, goes on from where it is: with its moments, its schedule and its place among
        the samples, so that two calls of 50 steps are one of 100. ``callback(losses, step)``, every
        ``every`` steps and at the end, gets the losses of this call and the number of steps the
        optimiser has taken; if it returns True the run ends there. A loss, gradient or update that
        is not finite raises, and Ctrl-C interrupts, between two steps: parameters and moments are
        those of the last whole step.

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
        return train(self, params, samples, optimiser, steps, batch, callback, every)

    def _native_training(
        self, params: Any, samples: Sequence[tuple[Any, ...]], optimiser: Optimizer, batch: int
    ) -> InnerLoop | None:
        """Steps in machine code, where the longest sample runs lifted."""
        if self._lift is False or type(optimiser) not in (SGD, Adam, AdamW):
            return None
        loop = InnerLoop(_Samples(self), params, list(samples), optimiser, batch)
        return loop if loop.start() else None

    def report(self, stage: str = "summary") -> str:
        """What became of the function: recordings, the path taken, and why where it is eager.

        ``stage="recorded"`` shows the instructions of every variant instead, ``"lifted"`` the
        arrays they became, in index notation.
        """
        if stage not in ("summary", "recorded", "lifted"):
            raise ValueError(f'stage is "summary", "recorded" or "lifted", not {stage!r}')
        if stage != "summary":
            return self._listing(stage)
        counts = self._counts
        lines = [f"{self._name}: {self._path()}"]
        lines.append(
            f"  {counts.calls} calls: {counts.replayed} replayed, {counts.eager} eager; "
            f"{counts.traces} recordings in {counts.recording_seconds:.3f} s"
        )
        if self._path() == "lifted":
            lines.append(f"  machine code built in {counts.lifting_seconds:.3f} s")
        for structure in self._structures.values():
            for variant in structure.variants:
                recording = variant.recording
                static = f", static integers {variant.static}" if variant.static else ""
                lines.append(
                    f"  variant: {len(recording):,} instructions, {recording.inputs:,} inputs, "
                    f"{len(recording.guards)} guards, {variant.indexing}{static}"
                )
                if variant.lifted is not None:
                    count = len(variant.lifted.program.instructions)
                    where = "" if variant.fit is variant.lifted.fit else " of a longer call"
                    lines.append(f"    lifted to {count} array instructions{where}")
                elif variant.not_lifted is not None:
                    lines.append(f"    not lifted: {variant.not_lifted}")
        if counts.replayed:
            each = 1e6 * counts.checking_seconds / counts.replayed
            lines.append(f"  freshness: {each:.1f} µs per call")
        lines += [f"  eager because {reason} ({n} times)" for reason, n in self._reasons.items()]
        return "\n".join(lines)

    def _listing(self, stage: str) -> str:
        """The instructions of every variant, or the formulas of its array program."""
        if stage == "recorded":
            variants = [v for s in self._structures.values() for v in s.variants]
            return "\n\n".join(str(v.recording) for v in variants)
        return listing(self._function, self._structures, self._surroundings)

    def _path(self) -> str:
        if any(v.lifted is not None for s in self._structures.values() for v in s.variants):
            return "lifted"
        if any(s.variants for s in self._structures.values()):
            return "native tape" if engine == "native" else "interpreter"
        return "eager" if self._reasons else "not called yet"

    # --- finding or making a variant --------------------------------------------------------------

    def _variant_for(self, call: Call) -> Variant | None:
        """A variant that has just computed this call, or None for eager."""
        self._counts.calls += 1
        if call.refused is not None:
            self._fall_back(call.refused)
            return None
        try:
            if not self._still_fresh():
                return None
        except Unrecordable as reason:
            self._fall_back(str(reason))
            return None
        structure = self._structure(call)
        if structure.blocked is not None:
            self._fall_back(structure.blocked)
            return None
        for place, variant in enumerate(structure.variants):
            answer = self._try(variant, call)
            if answer == FINE:
                if place:
                    structure.variants.insert(0, structure.variants.pop(place))
                self._counts.replayed += 1
                return variant
            if answer not in (OTHER_BRANCH, None):
                self._counts.eager += 1
                return None  # undefined: eager raises what eager raises
        with Held():  # Ctrl-C waits: half a recording would leave max replaced and Values moved
            lifter = self._lifter
            if lifter is not None:
                for variant in structure.variants:  # perhaps only an integer in its place is new
                    if lifter.taught(variant, call) and self._try(variant, call) == FINE:
                        self._counts.replayed += 1
                        return variant
            return self._record(structure, call)

    def _structure(self, call: Call) -> Structure:
        """What is known of such calls; the structures least recently seen are forgotten."""
        assert self._surroundings is not None
        key = (call.key, self._surroundings.marks(call.values))
        structure = self._structures.pop(key, None) or Structure()
        self._structures[key] = structure
        while len(self._structures) > STRUCTURES:
            del self._structures[next(iter(self._structures))]
        return structure

    def _still_fresh(self) -> bool:
        """Whether the surroundings are as they were; if not, everything is recorded anew."""
        started = time.perf_counter()
        if self._surroundings is None:
            self._surroundings = survey(self._function)
        else:
            change = self._surroundings.changed()
            if change is not None:
                self._rewalks += 1
                if self._rewalks > REWALKS:
                    self._fall_back(f"{change} changes all the time")
                    return False
                self._structures.clear()
                self._recall = None
                self._surroundings = survey(self._function)
            else:
                self._rewalks = 0
        self._counts.checking_seconds += time.perf_counter() - started
        return True

    def _try(self, variant: Variant, call: Call) -> int | None:
        """Run a variant for a call; None where it does not apply."""
        ids = call.ints
        if not variant.serves(ids):
            return None
        if any(as_float(ids[slot]) != as_float(ids[slot]) for slot in variant.numeric):
            return UNDEFINED  # beyond floats
        self._write(variant, call)
        return variant.run(ids)

    def _write(self, variant: Variant, call: Call) -> None:
        size, captured = call.size, len(variant.captured)
        call.write(variant.inputs[:size])
        if captured and kernels is not None:
            kernels.gather(variant.captured, variant.inputs[size : size + captured])
        elif captured:
            variant.inputs[size : size + captured] = [v._number for v in variant.captured]
        variant.inputs[size + captured :] = [as_float(i) for i in call.ints]

    def _record(self, structure: Structure, call: Call) -> Variant | None:
        """Record this call: as one more case of a variant, or as a new one."""
        started = time.perf_counter()
        surroundings = self._surroundings
        assert surroundings is not None
        self._recall = None  # what a recording shows may end what was taken for granted
        try:
            with random_states_kept():
                self._counts.traces += 1
                made = trace(self._function, surroundings, call)
                variant = self._learn(structure, call, made)
                if variant is None:
                    variant = self._new_variant(structure, call, made)
        except Unrecordable as reason:
            structure.blocked = str(reason)
            self._fall_back(str(reason))
            return None
        except Exception as error:
            # The function's own error: let eager raise it, and try again another time.
            call.failed = f"recording it raised {type(error).__name__}: {error}"
            surroundings.restore()
            self._counts.eager += 1
            return None
        finally:
            self._counts.recording_seconds += time.perf_counter() - started
        if variant is None or self._try(variant, call) != FINE:
            self._counts.eager += 1
            return None
        self._counts.replayed += 1
        return variant

    def _learn(self, structure: Structure, call: Call, made: Trace) -> Variant | None:
        """An existing variant that this recording is one more case of."""
        for variant in structure.variants:
            if not variant.serves(call.ints) or set(made.static) != set(variant.static):
                continue
            if set(variant.indexed) != made.indexed - set(made.static):
                continue
            difference = misaligned(variant.recording, made.recording)
            if difference is None:
                variant.indexing.learn(made.recording, variant.index_ids(call.ints))
                return self._relifted(structure, variant, call, made)
            if difference.startswith("a number") and not structure.numbers_follow:
                # A plain number follows the integers, perhaps several at once: what was learnt
                # for single ones does not hold.
                structure.numbers_follow = True
                structure.variants.clear()
                return None
        return None

    def _relifted(
        self, structure: Structure, variant: Variant, call: Call, made: Trace
    ) -> Variant | None:
        """A variant that has learnt; lifted anew if more operands follow integers than it knew."""
        fit, lifted = variant.fit, variant.lifted
        if fit is None or lifted is None or fit.known == len(variant.indexing.places):
            return variant
        if fit is not lifted.fit:  # the code of a longer call: look again whether that serves
            structure.variants.remove(variant)
            return None
        variant.lifted = variant.fit = variant.family = None
        self._lift_variant(variant, call, made)
        return variant

    @staticmethod
    def _make_static(variant: Variant, ids: Sequence[int]) -> None:
        """Let a variant serve these integers only."""
        variant.static.update({slot: ids[slot] for slot in variant.indexed})
        base = variant.indexing.base
        variant.indexed, variant.indexing = (), Indexing(base, ())

    def _new_variant(self, structure: Structure, call: Call, made: Trace) -> Variant | None:
        structure.recordings += 1
        if structure.recordings > RECORDINGS:
            raise Unrecordable("its branches or integers lead somewhere new all the time")
        surroundings = self._surroundings
        assert surroundings is not None
        variant = self._join(call, made)
        if variant is not None:
            structure.variants.insert(0, variant)
            del structure.variants[VARIANTS:]
            return variant
        confirm(self._function, surroundings, call, made)
        static = {slot: call.ints[slot] for slot in made.static}
        indexed = tuple(sorted(made.indexed - set(static)))
        base = tuple([call.ints[slot] for slot in indexed])
        variant = Variant(
            made.recording,
            made.captured,
            static,
            Indexing(made.recording, base),
            indexed,
            made.numeric,
            np.zeros(made.recording.inputs),
            np.zeros(made.recording.inputs),
        )
        if not structure.numbers_follow:
            self._vary_indices(structure, variant, call, made)
        if structure.numbers_follow:
            self._make_static(variant, call.ints)
        self._check_first_result(variant, call)
        self._lift_variant(variant, call, made)
        structure.variants.insert(0, variant)
        del structure.variants[VARIANTS:]
        return variant

    @property
    def _lifter(self) -> Lifter | None:
        """What lifts recordings, as long as the surroundings are these."""
        surroundings = self._surroundings
        if self._lift is False or surroundings is None:
            return None
        if self._lifts is None or self._lifts.surroundings is not surroundings:
            self._lifts = Lifter(
                self._function, surroundings, self._dtype, self._lift is True, self._contract
            )
        return self._lifts

    def _join(self, call: Call, made: Trace) -> Variant | None:
        """A variant that runs on the code of a longer call."""
        lifter = self._lifter
        if lifter is None:
            return None
        longer = None if self._stretching else lifter.longer(call)
        if longer is not None:  # build for that, so that not every length builds again
            self._stretching = True
            try:
                if self._record(self._structure(longer), longer) is not None:
                    self._counts.replayed -= 1  # it was nobody's call
            finally:
                self._stretching = False
        variant = lifter.join(call, made)
        if variant is not None:
            self._check_joined(variant, call)
        return variant if variant is not None and variant.lifted is not None else None

    def _check_joined(self, variant: Variant, call: Call) -> None:
        """Compare its first result with the tape's."""
        lifter, root = self._lifter, root_of(variant.recording.result)
        lifted, fit = variant.lifted, variant.fit
        assert lifter is not None
        assert root is not None
        variant.lifted, variant.fit = None, None
        if self._try(variant, call) != FINE:
            return
        swept, value = variant.sweep(root.position), variant.number(root.position)
        if swept is not None:
            wanted = swept.copy()
            variant.lifted, variant.fit = lifted, fit
            lifter.agrees(variant, call, self._try, value, wanted)

    def _lift_variant(self, variant: Variant, call: Call, made: Trace) -> None:
        """Make machine code of a variant, if it has the structure."""
        lifter = self._lifter
        if lifter is not None:
            started = time.perf_counter()
            lifter.outgrown = None
            lifter.lift(variant, call, made, self._try)
            if lifter.outgrown is not None:  # its calls join the longer one when they come again
                for structure in self._structures.values():
                    structure.variants = [
                        v for v in structure.variants if v.lifted is not lifter.outgrown.lifted
                    ]
            self._counts.lifting_seconds += time.perf_counter() - started

    def _vary_indices(
        self, structure: Structure, variant: Variant, call: Call, first: Trace
    ) -> None:
        """Record with other integers, to tell which operand follows which."""
        if not variant.indexed or self._surroundings is None:
            return
        settled = False
        tries = other_integers(variant.indexed, call.ints)
        for k, ids in enumerate(tries):
            if settled and k < len(tries) - 1:
                continue
            try:
                self._counts.traces += 1
                made = trace(self._function, self._surroundings, call, ids=tuple(ids))
            except (Exception, Unrecordable):
                self._surroundings.restore()
                continue
            if set(made.static) != set(variant.static):
                continue
            difference = misaligned(variant.recording, made.recording)
            if difference is None:
                variant.indexing.learn(made.recording, variant.index_ids(ids))
                settled = settled or (k == 0 and variant.indexing.settle(first, made))
            elif difference.startswith("a number"):
                structure.numbers_follow = True
                structure.variants.clear()
                return

    def _check_first_result(self, variant: Variant, call: Call) -> None:
        """Compare the first result with an eager run, there and a little way off."""
        self._check_result(variant, call)
        chance = random.Random(len(variant.recording))

        def nudge(x: float) -> float:
            return x * (1.0 + 1e-3 * chance.uniform(-1.0, 1.0))

        assert self._surroundings is not None
        beside = call.nudged(nudge, self._surroundings.place)
        with nudged(self._surroundings.values, nudge):
            try:
                self._check_result(variant, beside)
            except Exception:
                return  # out of a domain

    def _check_result(self, variant: Variant, call: Call) -> None:
        if self._try(variant, call) != FINE:
            return
        root = root_of(variant.recording.result)
        if root is None:
            return
        inputs: list[Value] = []
        with plain_modes():
            result = self._run_eagerly(call, inputs)
        y = result[0] if isinstance(result, tuple) else result
        if not isinstance(y, Value):
            raise Unrecordable("eager gives no Value")
        inputs += variant.captured
        wanted = gradient_up_to(y, inputs)
        variant.executor.sweep(root.position, 1.0, variant.grads)
        found = variant.grads[: len(inputs)]
        scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
        value = variant.executor.number(root.position)
        if not np.isfinite(scale):
            scale = 1.0
        agree = np.allclose(found, wanted, rtol=0.0, atol=1e-9 * scale, equal_nan=True)
        if not agree or not np.isclose(value, y.data, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise Unrecordable("the replay does not give eager's result")

    # --- results ----------------------------------------------------------------------------------

    def _floats(self, variant: Variant) -> Any:
        """What the function returned, as floats."""
        return map_leaves(
            lambda x: variant.number(x.position) if isinstance(x, Output) else x,
            variant.recording.result,
        )

    def _result(self, variant: Variant, call: Call) -> Any:
        """What a plain call returns: one node over the Values involved, or floats."""
        children = (*call.values, *variant.captured) if call.values else variant.captured
        if not children:
            return self._floats(variant)
        root = root_of(variant.recording.result)
        if root is None:
            self._fall_back("it returns several Values, and Values are involved")
            return self._eagerly(call)
        y = variant.number(root.position)
        if modes.grad:
            slopes, captured = variant.sweep(root.position), len(variant.captured)
            if slopes is None:
                return self._eagerly(call)
            if call.values:
                slopes = slopes[value_places(call, captured)]
            else:
                slopes = slopes[call.size : call.size + captured]
            node = compiled_node(y, self._name, children, slopes)
        else:
            node = Value(y)
        floats = self._floats(variant)
        return (node, *floats[1:]) if isinstance(variant.recording.result, tuple) else node

    # --- eager ------------------------------------------------------------------------------------

    def _fall_back(self, reason: str) -> None:
        """Note that a call runs eagerly, and tell the user once per reason."""
        self._counts.eager += 1
        first = reason not in self._reasons
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        message = f"{self._name} runs eagerly: {reason}"
        if self._on_fallback == "raise":
            raise FallbackError(message)
        if self._on_fallback == "warn" and first:
            warnings.warn(message, FallbackWarning, stacklevel=errors.caller_depth() + 1)

    def _run_eagerly(self, call: Call, inputs: list[Value]) -> Any:
        """The function on fresh Values, which go into ``inputs``."""

        def leaf(x: Any) -> Value:
            inputs.append(x if isinstance(x, Value) else Value(x))
            return inputs[-1]

        rebuilt = rebuild(call, leaf, lambda i: i, keep=True)
        return self._function(*rebuilt.arguments, **rebuilt.keywords)

    def _block(self, call: Call) -> None:
        """Eager did what recording could not: do not try again."""
        if call.failed is not None and self._surroundings is not None:
            with self._lock:
                self._structure(call).blocked = call.failed
                self._counts.eager -= 1  # counted already
                self._fall_back(call.failed)

    def _eagerly(self, call: Call) -> Any:
        inputs: list[Value] = []
        result = self._run_eagerly(call, inputs)
        self._block(call)
        captured = self._surroundings is None or self._surroundings.values
        if call.values or captured or call.refused is not None:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], Value):
                return (result[0], as_floats(result[1]))  # extras are reported only
            return result
        return as_floats(result)

    def _eager_value_and_grad(self, call: Call, out: Any) -> Any:
        inputs: list[Value] = []
        with recording():
            result = self._run_eagerly(call, inputs)
        self._block(call)
        y = result[0] if type(result) is tuple and len(result) == 2 else result
        if isinstance(y, Value):
            grads = gradient_without_trace(y, inputs)
        elif errors.is_real(y):
            grads = np.zeros(len(inputs))
        else:
            raise not_scalar(self._name)
        return as_floats(result), fill(out, like_first(call, call.arguments[0], grads))


class _Samples:
    """What training needs of a compiled function."""

    def __init__(self, function: CompiledFunction) -> None:
        self._function = function
        self.lock = function._lock

    def arrays(self) -> list[Any]:
        """The arrays that the function reaches by itself."""
        surroundings = self._function._surroundings
        return [] if surroundings is None else [array for array, _, _ in surroundings.arrays]

    def ready(self, call: Call) -> Variant | None:
        """The variant that has just computed a call."""
        with self._function._lock:
            return self._function._variant_for(call)

    def fresh(self) -> bool:
        """Whether what the function reaches is as it was."""
        surroundings = self._function._surroundings
        return surroundings is not None and surroundings.changed() is None

    def teach(self, family: Family, call: Call, ids: Sequence[int]) -> bool:
        """Record the longest call of a family with these integers."""
        with self._function._lock, random_states_kept():
            lifter = self._function._lifter
            return lifter is not None and lifter.teach(family, call, ids)


def compile(
    f: Callable[..., Any] | None = None,
    dtype: str = "float64",
    on_fallback: str = "warn",
    *,
    lift: bool | None = None,
    contract: bool = True,
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
            compile, dtype=dtype, on_fallback=on_fallback, lift=lift, contract=contract
        )
    if isinstance(f, CompiledFunction):
        return f
    if not callable(f):
        raise TypeError(f"compile takes a function, not a {type(f).__name__}")
    return CompiledFunction(f, dtype, on_fallback, lift, contract)
