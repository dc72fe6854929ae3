"""The devices that share the work of training by JAX, in one process or in several.

In: how many devices there are to be, and how processes find each other. Out: a ``Mesh``: it lays
arrays out over these devices, brings them back, and lets all processes decide alike. Every process
runs the same program over the same data; each computes its part of every batch.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.core.interrupts import Held
from chainrule.gpt.errors import GPTError

_STATUS = re.compile("[A-Z_]+: ")  # how the messages of XLA begin, whatever their type
AXIS = "batch"  # of the mesh: the samples of a batch are shared out along it


class LostProcessError(GPTError):
    """Another process of a run has ended, or cannot be reached."""


@dataclass(frozen=True)
class Devices:
    """Which devices train a model: so many of each process, or all that it has.

    ``shard_params``: each device keeps a part of the weights and of the optimiser's moments, so
    that a model may be larger than the memory of one.

    >>> from chainrule import gpt
    >>> gpt.Devices(count=4, shard_params=True)
    Devices(count=4, shard_params=True)
    """

    count: int | None = None
    shard_params: bool = False

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise GPTError(f"the number of devices must be at least 1, not {self.count}")


def imported_jax() -> Any:
    """JAX, which is an extra.

    Ctrl-C waits for the import, a second or two: one in the middle of it crashes some processes.
    """
    try:
        with Held():
            importlib.import_module("jax.experimental.multihost_utils")
            return importlib.import_module("jax")
    except ImportError:
        raise GPTError("the engine jax needs JAX: pip install 'chainrule[jax]'") from None


def join_cluster(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Let this process and others train one model; each calls this before anything of JAX.

    Without arguments JAX finds the others as it does in clusters (Slurm, Open MPI, Kubernetes,
    TPUs). Else: the address ``host:port`` of process 0, how many processes there are, and which of
    them this is, counted from 0.

    >>> from chainrule import gpt
    >>> gpt.join_cluster("localhost:9999", processes=2, process=2)
    Traceback (most recent call last):
        ...
    chainrule.gpt.errors.GPTError: process 2 is none of 2: they are counted from 0
    """
    given = [x is not None for x in (coordinator, processes, process)]
    if any(given) and not all(given):
        raise GPTError("name the coordinator, the number of processes and that of this one: all")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise GPTError(f"process {process} is none of {processes}: they are counted from 0")
    jax = imported_jax()
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (RuntimeError, ValueError) as error:
        text = str(error).splitlines()[0]
        if coordinator is None:
            raise GPTError(
                "found no cluster that JAX knows (Slurm, Open MPI, Kubernetes, TPUs): name the "
                f"coordinator, the number of processes and that of this one ({text})"
            ) from None
        raise GPTError(f"cannot find the processes at {coordinator}: {text}") from None


def is_first_process() -> bool:
    """Whether this is the first of the processes that have joined, or alone."""
    return bool(imported_jax().process_index() == 0)


class Mesh:
    """The devices of all processes, and what every process does with them alike."""

    def __init__(self, devices: Devices, dtype: str) -> None:
        self.jax = jax = imported_jax()
        self.dtype, self._shards = dtype, devices.shard_params
        local = jax.local_devices()
        count = len(local) if devices.count is None else devices.count
        if count > len(local):
            here = f"{len(local)} device{'' if len(local) == 1 else 's'}"
            raise GPTError(f"there {'is' if len(local) == 1 else 'are'} {here} here, not {count}")
        every: list[Any] = []
        for process in range(jax.process_count()):
            every += [x for x in jax.devices() if x.process_index == process][:count]
        self.kind, self.size, self.processes = local[0].platform, len(every), jax.process_count()
        self.is_first = is_first_process()
        self._mesh = jax.sharding.Mesh(np.array(every), (AXIS,))

    def __str__(self) -> str:
        of = f" of {self.processes} processes" if self.processes > 1 else ""
        return f"{self.size} {self.kind} device{'' if self.size == 1 else 's'}{of}"

    # --- arrays -----------------------------------------------------------------------------------

    def sharding(self, axis: int | None = None) -> Any:
        """An array shared out along an axis; without one, a copy for each device."""
        spec = () if axis is None else (*[None] * axis, AXIS)
        return self.jax.sharding.NamedSharding(self._mesh, self.jax.sharding.PartitionSpec(*spec))

    def of_weights(self, shape: tuple[int, ...]) -> Any:
        """How an array of weights lies: in parts, if that was asked for and an axis allows it."""
        axes = [k for k in np.argsort(shape)[::-1].tolist() if shape[k] % self.size == 0]
        return self.sharding(axes[0] if self._shards and axes else None)

    def put(self, array: Any, sharding: Any) -> Any:
        """An array that every process holds all of, on the devices."""
        return self.jax.make_array_from_callback(array.shape, sharding, lambda at: array[at])

    def fetch(self, tree: Any) -> Any:
        """Arrays on the devices as numpy's; all processes do it together."""
        jax = self.jax
        if self.processes > 1 and self._shards:
            tree = jax.jit(lambda x: x, out_shardings=self.sharding())(tree)
        return jax.tree.map(np.asarray, tree)

    # --- processes --------------------------------------------------------------------------------

    def gathered(self, number: float) -> list[float]:
        """A number of every process, in their order."""
        if self.processes == 1:
            return [number]
        with self.computing():
            found = self.jax.experimental.multihost_utils.process_allgather(np.float64(number))
        return [float(x) for x in np.asarray(found).ravel()]

    @contextmanager
    def computing(self, step: int | None = None) -> Iterator[None]:
        """With the numbers of the run; what goes wrong between processes ends as one line."""
        try:
            with self._precision():
                yield
        except (self.jax.errors.JaxRuntimeError, ValueError) as error:
            text = (str(error).splitlines() or [""])[0]
            if not _STATUS.match(text):
                raise
            if text.startswith("RESOURCE_EXHAUSTED"):
                raise GPTError(
                    f"the memory of a device is full; a smaller batch, more devices or parameters "
                    f"in parts (--shard params) may help ({text})"
                ) from None
            if self.processes == 1:
                raise
            when = "" if step is None else f" after step {step}"
            raise LostProcessError(
                f"another process of this run has ended or cannot be reached{when} ({text})"
            ) from None

    def _precision(self) -> AbstractContextManager[Any]:
        made: AbstractContextManager[Any] = self.jax.enable_x64(self.dtype == "float64")
        return made
