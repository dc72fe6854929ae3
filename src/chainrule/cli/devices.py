"""The options of train that say which devices and machines share the work."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from chainrule import gpt
from chainrule.cli.reporting import complain
from chainrule.gpt.devices import LostProcessError

FOUND = "auto"  # the coordinator that JAX finds in a cluster


def chosen(
    engine: str | None,
    devices: str | None,
    shard: str | None,
    coordinator: str | None,
    processes: int | None,
    process: int | None,
) -> gpt.Devices | None:
    """What was asked for, after this process has joined the others; None: nothing was."""
    asked = {
        "--devices": devices,
        "--shard": shard,
        "--coordinator": coordinator,
        "--processes": processes,
        "--process": process,
    }
    given = [name for name, option in asked.items() if option is not None]
    if not given:
        return None
    if engine != "jax":
        raise gpt.GPTError(f"{given[0]} is for --engine jax")
    if devices is not None and devices != "all" and not devices.isdecimal():
        raise gpt.GPTError(f"--devices takes all or a number, not {devices!r}")
    if coordinator == FOUND and (processes is not None or process is not None):
        raise gpt.GPTError(
            "--coordinator auto counts the processes itself: leave out --processes and --process"
        )
    if coordinator == FOUND:
        gpt.join_cluster()
    elif coordinator is not None or processes is not None or process is not None:
        gpt.join_cluster(coordinator, processes, process)
    count = None if devices in (None, "all") else int(devices)
    return gpt.Devices(count, shard == "params")


def spare_folder(stack: ExitStack) -> gpt.RunFolder:
    """The folder of a process that keeps no files."""
    return stack.enter_context(gpt.RunFolder(Path(stack.enter_context(TemporaryDirectory()))))


def leave_lost(error: LostProcessError) -> None:
    """End at once: JAX would wait for the process that is lost."""
    complain(str(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
