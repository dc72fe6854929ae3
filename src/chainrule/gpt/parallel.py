"""Training by JAX: the model's loss as array source, over a batch that devices share.

In: a scalar model, and the devices. Out: an engine like the others of ``engines``: the loss is
translated once (``to_jax``, for documents of every length), ``jax.vmap`` makes a batch of it, and a
step is one program over all devices, of all processes. Weights and moments stay on the devices;
they come back for checkpoints and samples.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule import random
from chainrule.core.interrupts import safe_point
from chainrule.gpt import array_loss
from chainrule.gpt.data import Data
from chainrule.gpt.devices import Devices, Mesh
from chainrule.gpt.errors import GPTError
from chainrule.gpt.model import GPT, run_key
from chainrule.gpt.tokenizer import Tokenizer
from chainrule.optim import AdamW
from chainrule.windows import Windows

TURN = 0.1  # seconds of steps between two looks at what else is to be done
MOST_AT_ONCE = 1000  # steps of a turn
EVALUATED = 256  # documents whose loss is computed at once

Tokens = Sequence[int]
Arrays = dict[str, npt.NDArray[Any]]
Rows = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]  # padded tokens, and their lengths
Keys = list[npt.NDArray[np.float64]]  # of random numbers, a row for each document; or nothing


class DeviceAdamW(AdamW):
    """AdamW whose moments are on devices: ``fetch`` brings them, ``forget`` lets them be sent."""

    fetch: Callable[[], Any]
    forget: Callable[[], Any]

    def state_dict(self) -> dict[str, Any]:
        """As that of AdamW, after the last step."""
        self.fetch()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As that of AdamW, for the next step."""
        self.fetch()
        super().load_state_dict(state)
        self.forget()


class Jax:
    """The steps of a run, on the devices of a mesh."""

    name, doing = "jax", ""
    most_held_out: int | None = None

    def __init__(
        self, model: GPT, tokenizer: Tokenizer, data: Data, dtype: str, devices: Devices
    ) -> None:
        self.dtype, self.kind = dtype, type(model)
        self.mesh = Mesh(devices, dtype)
        self._model, self._tokenizer, self._data = model, tokenizer, data
        config = model.config
        if config.batch % self.mesh.size:
            raise GPTError(
                f"a batch of {config.batch} cannot be shared by {self.mesh}: "
                "it must be a multiple of them"
            )
        number = "float64" if dtype == "float64" else "float32"  # of weights and moments
        self._weights: Arrays = {n: a.astype(number) for n, a in model.arrays().items()}
        betas, rates = (config.beta1, config.beta2), config.learning_rates()
        self.optimizer = DeviceAdamW(
            self._weights, lr=rates, betas=betas, weight_decay=config.weight_decay
        )
        self.optimizer.fetch, self.optimizer.forget = self._fetch, self._forget
        self._state: Any = None  # weights, moments, and whether all went well, on the devices
        self._fetched = 0  # the step whose weights are here
        self._behind = True  # whether the model's Values are not those of the arrays
        self._samples: Rows | Windows | None = None
        self._counts: set[int] = set()  # of tokens, for which the loss is translated
        self._each: Callable[..., Any] | None = None  # the translated loss of each document
        self._at_once = 1  # steps of the next turn

    # --- weights ----------------------------------------------------------------------------------

    @property
    def model(self) -> GPT:
        """The model, with the weights of the last step."""
        self._fetch()
        if self._behind:
            self._model.load_arrays(self._weights)
            self._behind = False
        return self._model

    def weights(self) -> dict[str, npt.NDArray[np.float64]]:
        """The weights as they are now, copied."""
        self._fetch()
        return {name: array.astype(np.float64) for name, array in self._weights.items()}

    def _fetch(self) -> None:
        """Bring weights and moments here, if they have changed."""
        if self._state is None or self._fetched == self.optimizer.steps:
            return
        with self.mesh.computing(self.optimizer.steps):
            weights, first, second, _ = self.mesh.fetch(self._state)
        for name, array in self._weights.items():
            array[...] = weights[name]
        names = list(self._weights)
        self.optimizer.m[:] = np.concatenate([first[name].ravel() for name in names])
        self.optimizer.v[:] = np.concatenate([second[name].ravel() for name in names])
        self._fetched, self._behind = self.optimizer.steps, True

    def _forget(self) -> None:
        self._state, self._fetched = None, self.optimizer.steps

    def _put(self) -> Any:
        """Weights and moments on the devices."""
        mesh, ends = self.mesh, np.cumsum([a.size for a in self._weights.values()])[:-1]

        def laid_out(arrays: Arrays) -> Any:
            return {n: mesh.put(a, mesh.of_weights(a.shape)) for n, a in arrays.items()}

        def moments(flat: npt.NDArray[Any]) -> Arrays:
            parts = np.split(flat.copy(), ends)
            pairs = zip(self._weights.items(), parts, strict=True)
            return {name: part.reshape(array.shape) for (name, array), part in pairs}

        return (
            laid_out({n: a.copy() for n, a in self._weights.items()}),
            laid_out(moments(self.optimizer.m)),
            laid_out(moments(self.optimizer.v)),
            mesh.put(np.array(True), mesh.sharding()),
        )

    def held(self) -> dict[str, int]:
        """How many bytes of weights and moments each device of this process holds."""
        if self._state is None:
            with self.mesh.computing(self.optimizer.steps):
                self._state = self._put()
        found: dict[str, int] = {}
        for array in self.mesh.jax.tree.leaves(self._state[:-1]):
            for part in array.addressable_shards:
                found[str(part.device)] = found.get(str(part.device), 0) + part.data.nbytes
        return found

    # --- preparing --------------------------------------------------------------------------------

    def prepare(self, held_out: Sequence[Tokens], progress: Callable[[int, int], Any]) -> None:
        """Translate the loss for every length of documents that there is."""
        config = self._model.config
        if self._samples is None:
            found = self._data.samples(
                self._tokenizer, config.block, config.seed, config.steps * config.batch
            )
            self._samples = found if isinstance(found, Windows) else self._padded(found)
            self._check_processes()
        samples = self._samples
        counts = {samples.length} if isinstance(samples, Windows) else {*samples[1].tolist()}
        counts |= {*map(len, held_out)}
        if not counts <= self._counts:
            self._counts |= counts
            progress(0, len(self._counts))
            self._translate()
            progress(len(self._counts), len(self._counts))

    def _check_processes(self) -> None:
        """All of them must take the same steps."""
        config = self._model.config
        digest = zlib.crc32(repr((config, self.dtype, self.optimizer.steps)).encode())
        digest = zlib.crc32(self._data.fingerprint.encode(), digest)
        for array in (*self._weights.values(), self.optimizer.m, self.optimizer.v):
            digest = zlib.crc32(np.ascontiguousarray(array).tobytes(), digest)
        if len({*self.mesh.gathered(digest % 2**24)}) > 1:  # which float32 has exactly
            raise GPTError(
                "the processes of this run differ in their data, their checkpoint or their options"
            )

    def _padded(self, documents: Sequence[Tokens]) -> Rows:
        """Documents as rows of one length, zeros behind them, and how long each of them is."""
        width = self._model.config.block + 1
        rows = np.zeros((len(documents), width), np.int32)
        for row, tokens in zip(rows, documents, strict=True):
            row[: len(tokens)] = tokens
        return rows, np.array([len(tokens) for tokens in documents], np.int32)

    def _translate(self) -> None:
        mesh, jax, config = self.mesh, self.mesh.jax, self._model.config
        numbers, most = jax.numpy.dtype(self.dtype), max(self._counts)
        wide = jax.numpy.promote_types(numbers, "float32")
        any_size = array_loss.is_for_any_size(self._model)
        if self._each is None or not any_size:
            self.doing = "writing array source at small sizes, and comparing it" if any_size else ""
            self._each = array_loss.of_each_document(jax, self._model, self._counts)
            self.doing = ""
        each = self._each

        def losses(weights: Any, tokens: Any, lengths: Any, *keys: Any) -> Any:
            cast = jax.tree.map(lambda x: x.astype(numbers), weights)
            return each(cast, tokens[:, :most], lengths, *keys).astype(wide)

        def mean(*arguments: Any) -> Any:
            return losses(*arguments).mean()

        shapes = {name: mesh.of_weights(array.shape) for name, array in self._weights.items()}
        state = (shapes, shapes, shapes, mesh.sharding())
        rows = [mesh.sharding(0)] * (3 if config.dropout else 2)
        self._step = jax.jit(
            self._stepper(jax, mean),
            in_shardings=(state, mesh.sharding(), *rows),
            out_shardings=(state, (mesh.sharding(), mesh.sharding())),
            donate_argnums=0,
        )
        self._losses = jax.jit(losses, in_shardings=(shapes, *rows), out_shardings=mesh.sharding())

    def _stepper(self, jax: Any, mean: Callable[..., Any]) -> Callable[..., Any]:
        """One step of AdamW, as ``optim`` has it; one that is not finite changes nothing."""
        (beta1, beta2), eps = self.optimizer.betas, self.optimizer.eps
        decay, clip = self.optimizer.weight_decay, self._model.config.clip
        numpy, each = jax.numpy, jax.tree.map

        def step(state: Any, numbers: Any, *rows: Any) -> Any:
            weights, first, second, well = state
            rate, bias1, bias2 = numbers
            loss, slopes = jax.value_and_grad(mean)(weights, *rows)
            if clip:
                norm = numpy.sqrt(sum(numpy.sum(g * g) for g in jax.tree.leaves(slopes)))
                factor = numpy.where(norm > clip, clip / norm, 1.0)
                slopes = each(lambda g: g * factor, slopes)
            m = each(lambda m, g: beta1 * m + (1 - beta1) * g, first, slopes)
            v = each(lambda v, g: beta2 * v + (1 - beta2) * (g * g), second, slopes)

            def moved(p: Any, m: Any, v: Any) -> Any:
                kept = p - rate * decay * p if decay else p
                return kept - rate * (m / bias1) / (numpy.sqrt(v / bias2) + eps)

            new = (each(moved, weights, m, v), m, v)
            finite = [numpy.isfinite(x).all() for x in (loss, *jax.tree.leaves(new))]
            well = well & numpy.stack(finite).all()
            old = (weights, first, second)
            return (*each(lambda a, b: numpy.where(well, a, b), new, old), well), (loss, well)

        return step

    # --- steps ------------------------------------------------------------------------------------

    def advance(self, most: int) -> list[float]:
        """Take some steps, for about a tenth of a second."""
        if self._samples is None:
            self.prepare((), lambda done, total: None)
        before, began = self.optimizer.steps, time.perf_counter()
        count = min(most, self._at_once)
        with self.mesh.computing(before):
            if self._state is None:
                self._state = self._put()
            found = []
            for step in range(before, before + count):
                self._state, made = self._step(self._state, self._rates(step), *self._batch(step))
                found.append(made)
            losses, well = np.array(self.mesh.jax.device_get(found), np.float64).T
            good = int(well.sum())
        self.optimizer.steps = before + good
        if good < count:
            self._state = (*self._state[:-1], self._put_truth())
            if good == 0:
                raise ArithmeticError(
                    f"the loss is {losses[0]}" if not np.isfinite(losses[0]) else "an overflow"
                )
        each = (time.perf_counter() - began) / count
        each = self.mesh.gathered(each)[0]  # the first process decides for all
        self._at_once = int(np.clip(TURN / each, 1, MOST_AT_ONCE))
        self._behind = True
        return losses[:good].tolist()  # type: ignore[no-any-return]

    def _put_truth(self) -> Any:
        return self.mesh.put(np.array(True), self.mesh.sharding())

    def _rates(self, step: int) -> npt.NDArray[Any]:
        """The learning rate of a step, and what its moments still lack of full weight."""
        betas = self.optimizer.betas
        found = [self.optimizer.schedule(step), *[1 - beta ** (step + 1) for beta in betas]]
        return np.array(found, next(iter(self._weights.values())).dtype)

    def _batch(self, step: int) -> list[Any]:
        """The samples of a step, shared out."""
        size, samples = self._model.config.batch, self._samples
        assert samples is not None
        if isinstance(samples, Windows):
            tokens = samples.rows(samples.places(step * size, size)).astype(np.int32)
            lengths = np.full(size, samples.length, np.int32)
        else:
            at = (step * size + np.arange(size)) % len(samples[1])
            tokens, lengths = samples[0][at], samples[1][at]
        key = run_key(self._model.config)
        keys = [] if key is None else [random.numbered(key, step * size, size)]
        return self._shared_out((tokens, lengths), keys)

    def _shared_out(self, rows: Rows, keys: Keys) -> list[Any]:
        shared, kind = self.mesh.sharding(0), next(iter(self._weights.values())).dtype
        return [self.mesh.put(x, shared) for x in (*rows, *[key.astype(kind) for key in keys])]

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents."""
        self.prepare(documents, lambda done, total: None)
        tokens, lengths = self._padded(documents)
        size = -(-min(EVALUATED, len(lengths)) // self.mesh.size) * self.mesh.size
        off = [np.tile(random.off(), (size, 1))] if self._model.config.dropout else []
        total = 0.0
        with self.mesh.computing(self.optimizer.steps):
            if self._state is None:
                self._state = self._put()
            for first in range(0, len(lengths), size):
                safe_point()
                at = np.arange(first, first + size) % len(lengths)  # some twice, in the last lot
                rows = self._shared_out((tokens[at], lengths[at]), off)
                found = np.asarray(self._losses(self._state[0], *rows), np.float64)
                total += float(found[: len(lengths) - first].sum())
        mean = total / len(lengths)
        if not np.isfinite(mean):
            raise ArithmeticError(f"the loss is {mean}")
        return mean
