"""Checkpoints: one safetensors file that holds everything a run needs to go on.

The weights and the optimiser's moments are its tensors; the step, the configuration, the
vocabulary, the state of the random numbers and what the data were are text in its metadata. Saving
is atomic: whatever happens, the folder holds the old checkpoint or the new one, complete. Loading
takes nothing on trust: a checksum covers every number and every word, and shapes, names and values
are checked before a model is built from them.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule import tensor_files
from chainrule.gpt import tokenizer as tokenizers
from chainrule.gpt.config import DTYPES, ENGINES, Config
from chainrule.gpt.errors import GPTError
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import Tokenizer

FILE = "checkpoint.safetensors"
BEST = "best.safetensors"  # that of the lowest validation loss
FORMAT = "chainrule.gpt"
VERSION = 1
PLURAL = "chainrule's checkpoints"

Arrays = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Intervals:
    """How often a run is saved and validated, where it was asked for.

    >>> from chainrule.gpt.checkpoints import Intervals
    >>> Intervals(validate_every=100).changed(save_seconds=2.0)
    Intervals(save_every=None, save_seconds=2.0, validate_every=100)
    """

    save_every: int | None = None
    save_seconds: float | None = None
    validate_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("save_every", "validate_every"):
            steps = getattr(self, name)
            if steps is not None and not (type(steps) is int and steps >= 1):
                raise GPTError(
                    f"{name}, the steps between two of them, must be a whole number from 1 on, "
                    f"not {steps!r}"
                )
        seconds = self.save_seconds
        if seconds is not None and not (type(seconds) in (int, float) and seconds >= 0):
            raise GPTError(f"save_seconds must be a number from 0 on, not {seconds!r}")

    def changed(self, **given: int | float | None) -> Intervals:
        """The same, but for those that are given."""
        return replace(self, **{n: x for n, x in given.items() if x is not None})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Checkpoint:
    """A run between two steps, as plain data.

    >>> from chainrule import gpt
    >>> gpt.Run.start(["ada", "bob"], gpt.Config(width=4, heads=1)).checkpoint()
    Checkpoint(step 0 of 1000, 296 parameters)
    """

    config: Config
    tokenizer: Tokenizer
    step: int
    weights: Arrays
    optimizer: dict[str, Any]  #: the optimiser's ``state_dict``
    rng: tuple[Any, ...]  #: the random numbers' ``getstate``
    source: str  #: what the documents were read from
    validation: float  #: the share of them that is held out
    fingerprint: str  #: a hash of the documents in their order
    engine: str = "eager"  #: what the run computes with
    dtype: str = "float64"
    model_name: str = ""  #: of the class of its model, if that is one of the user's own
    intervals: Intervals = Intervals()  #: when it is saved and validated

    def model(self, kind: type[GPT] = GPT) -> GPT:
        """The model with the weights of this checkpoint; ``kind`` is its class."""
        class_of = (name.rpartition(":")[2] for name in (self.model_name, name_of(kind)))
        if len(set(class_of)) > 1:  # wherever the class is defined now
            wanted = f"a model of the class {self.model_name}" if self.model_name else "a gpt.GPT"
            given = "name it with --model FILE:CLASS" if kind is GPT else f"not {name_of(kind)}"
            raise GPTError(f"this is the checkpoint of {wanted}: {given}")
        model = kind(self.config, self.tokenizer.size)
        model.load_arrays(self.weights)
        return model

    def __repr__(self) -> str:
        count = sum(weights.size for weights in self.weights.values())
        return f"Checkpoint(step {self.step} of {self.config.steps}, {count} parameters)"


def name_of(kind: type[GPT]) -> str:
    """What a checkpoint calls the class of a model: nothing, if it is ours."""
    return "" if kind is GPT else f"{kind.__module__}:{kind.__qualname__}"


# --- saving -------------------------------------------------------------------------------------


def save(checkpoint: Checkpoint, directory: str | Path, file: str = FILE) -> Path:
    """Write the checkpoint into the folder, in place of the one that may be there.

    >>> import tempfile
    >>> from chainrule import gpt
    >>> run = gpt.Run.start(["ada", "bob"], gpt.Config(width=4, heads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = gpt.save(run.checkpoint(), folder)
    ...     path.name, gpt.load(folder)
    ('checkpoint.safetensors', Checkpoint(step 0 of 1000, 296 parameters))
    """
    tensors = {f"weights.{name}": array for name, array in checkpoint.weights.items()}
    for moment in ("m", "v"):  # float32 moments fit into float64 as well
        tensors[f"optimizer.{moment}"] = checkpoint.optimizer[moment].astype(np.float64)
    metadata = {
        "step": str(checkpoint.step),
        "config": json.dumps(checkpoint.config.to_dict()),
        "tokenizer": json.dumps(tokenizers.to_dict(checkpoint.tokenizer)),
        "optimizer_steps": str(checkpoint.optimizer["steps"]),
        "rng": json.dumps(checkpoint.rng),
        "data": json.dumps(
            {
                "source": checkpoint.source,
                "validation": checkpoint.validation,
                "fingerprint": checkpoint.fingerprint,
            }
        ),
        "engine": checkpoint.engine,
        "dtype": checkpoint.dtype,
        "model": checkpoint.model_name,
        "intervals": json.dumps(asdict(checkpoint.intervals)),
    }
    path = Path(directory) / file
    tensor_files.write(path, FORMAT, VERSION, metadata, tensors)
    return path


# --- loading ------------------------------------------------------------------------------------


def load(directory: str | Path) -> Checkpoint:
    """Read the checkpoint of a folder (or the file itself); a clear error if it is not sound.

    >>> from chainrule import gpt
    >>> gpt.load("no such folder")
    Traceback (most recent call last):
        ...
    chainrule.gpt.errors.GPTError: there is no checkpoint at 'no such folder'
    """
    path = Path(directory)
    if path.is_dir():
        path = path / FILE
    if not path.is_file():
        here = f"in {str(directory)!r}" if Path(directory).is_dir() else f"at {str(directory)!r}"
        raise GPTError(f"there is no checkpoint {here}")
    try:
        return _checkpoint(*tensor_files.read(path, FORMAT, VERSION, PLURAL, {"F64": "float64"}))
    except (GPTError, tensor_files.TensorFileError) as error:
        raise GPTError(f"cannot load {str(path)!r}: {error}") from None


def _checkpoint(metadata: dict[str, str], tensors: Arrays) -> Checkpoint:
    config = Config.from_dict(_json(metadata, "config"))
    tokenizer = tokenizers.from_dict(_json(metadata, "tokenizer"))
    step, optimizer_steps = _count(metadata, "step"), _count(metadata, "optimizer_steps")
    if not step <= config.steps:
        raise GPTError(f"it claims step {step} of {config.steps}")
    if optimizer_steps != step:
        raise GPTError(f"it claims step {step}, its optimiser {optimizer_steps}")
    engine, dtype = metadata.get("engine", "eager"), metadata.get("dtype", "float64")
    if engine not in ENGINES or dtype not in DTYPES:
        raise GPTError(f"it was computed by {engine!r} in {dtype!r}, which are unknown here")
    model_name = metadata.get("model", "")
    _check_tensors(config, tokenizer, tensors, model_name)
    intervals = _json(metadata, "intervals") if "intervals" in metadata else {}
    if not isinstance(intervals, dict) or not intervals.keys() <= {*asdict(Intervals())}:
        raise GPTError("its intervals are not those of a run")
    data = _json(metadata, "data")
    kinds = {"source": str, "validation": (int, float), "fingerprint": str}
    if not isinstance(data, dict) or data.keys() != kinds.keys():
        raise GPTError("it does not say what its data were")
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):  # type: ignore[arg-type]
            raise GPTError("it does not say what its data were")
    prefix = "weights."
    return Checkpoint(
        config,
        tokenizer,
        step,
        {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)},
        {"steps": optimizer_steps, "m": tensors["optimizer.m"], "v": tensors["optimizer.v"]},
        _rng_state(_json(metadata, "rng")),
        **data,
        engine=engine,
        dtype=dtype,
        model_name=model_name,
        intervals=Intervals(**intervals),
    )


def _check_tensors(config: Config, tokenizer: Tokenizer, tensors: Arrays, model_name: str) -> None:
    """Whether they are those of the configuration; of a user's own class, which only it knows,
    whether they are matrices with moments for each number.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    if model_name:
        named = [(n, a.shape) for n, a in tensors.items() if n.startswith("weights.")]
        shapes = {name: shape for name, shape in named if len(shape) == 2}
        count = sum(tensors[name].size for name in shapes)
        shapes |= {"optimizer.m": (count,), "optimizer.v": (count,)}
    elif len(tensors) == 5 + 6 * config.layers:  # before a claim of a million layers is written out
        count = config.parameter_count(tokenizer.size)
        ours = config.shapes(tokenizer.size).items()
        shapes = {f"weights.{name}": shape for name, shape in ours}
        shapes |= {"optimizer.m": (count,), "optimizer.v": (count,)}
    if {name: array.shape for name, array in tensors.items()} != shapes:
        raise GPTError("its tensors are not those of its configuration")
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise GPTError(f"{name!r} holds a number that is not finite")


def _json(metadata: dict[str, str], key: str) -> Any:
    try:
        return json.loads(metadata[key])
    except (KeyError, ValueError, RecursionError):
        raise GPTError(f"its {key} cannot be read") from None


def _count(metadata: dict[str, str], key: str) -> int:
    text = metadata.get(key, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise GPTError(f"its {key} is not a number")
    return int(text)


def _rng_state(saved: Any) -> tuple[Any, ...]:
    try:
        version, numbers, gauss = saved
        state = (version, tuple(numbers), gauss)
        random.Random().setstate(state)
    except (TypeError, ValueError, OverflowError):
        raise GPTError("its random state cannot be read") from None
    return state
