"""C source compiled with the system's compiler and called by ctypes, for tests and benchmarks."""

import ctypes
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiler():
    """A C compiler, or None."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


class Compiled:
    """The functions of a ``CSource``, over the arguments of the function it was made from."""

    def __init__(self, model, *flags, folder=None):
        self.folder = Path(folder or tempfile.mkdtemp())
        model.save(self.folder / "model.c")
        self.library = self.folder / f"model{len(list(self.folder.iterdir()))}.so"
        command = [compiler(), *STRICT, *(flags or ("-O2",)), "-fPIC", "-shared"]
        command += [str(self.folder / "model.c"), "-o", str(self.library), "-lm"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        self.functions = ctypes.CDLL(str(self.library))
        self.name, self.header = model.__name__, model.header
        body = self.header.partition(f"int {self.name}_value(")[2].partition(")")[0]
        self.parameters = [p.strip() for p in body.split(",")[:-2]]
        work = self.header.partition("computes in")[2].partition("typedef struct {")[2]
        work = work.partition("} ")[0]
        self.work = np.full(sum(_extents(work)), np.nan)

    def packed(self, arguments):
        """The arguments as C takes them."""
        found = []
        assert len(arguments) == len(self.parameters), (arguments, self.parameters)
        for declared, x in zip(self.parameters, arguments, strict=True):
            if "*" not in declared:
                kind = ctypes.c_int64 if declared.startswith("int64_t") else ctypes.c_double
                found.append(kind(np.asarray(x).item()))
                continue
            data = packed(x, integers=bool(found))
            found.append(ctypes.create_string_buffer(data, len(data) + 1))
        return found

    def value(self, *arguments, count=1):
        """A status, and the value."""
        value = np.full(count, -1.0)
        function = self.functions[f"{self.name}_value"]
        status = function(*self.packed(arguments), _pointer(self.work), _pointer(value))
        return status, (value.item() if count == 1 else value)

    def value_and_grad(self, *arguments, count=1):
        """A status, the value and the gradient, in a row."""
        value = np.full(count, -1.0)
        size = sum(np.size(x) for x in leaves(arguments[0]))
        grad = np.full(size, 1e300)
        function = self.functions[f"{self.name}_value_and_grad"]
        pointers = [_pointer(x) for x in (self.work, value, grad)]
        status = function(*self.packed(arguments), *pointers)
        return status, (value.item() if count == 1 else value), grad

    def prepared(self, *arguments):
        """A call of value and gradient whose arguments are as C wants them already."""
        value, grad = np.zeros(1), np.zeros(sum(np.size(x) for x in leaves(arguments[0])))
        given = [*self.packed(arguments), *[_pointer(x) for x in (self.work, value, grad)]]
        function, kept = self.functions[f"{self.name}_value_and_grad"], (value, grad)
        return lambda: (function(*given), kept)

    def jacobian(self, count, *arguments):
        """A status, the values and their derivatives."""
        size = sum(np.size(x) for x in leaves(arguments[0]))
        value, rows = np.full(count, -1.0), np.full((count, size), 1e300)
        function = self.functions[f"{self.name}_jacobian"]
        pointers = [_pointer(x) for x in (self.work, value, rows)]
        return function(*self.packed(arguments), *pointers), value, rows


def packed(x, integers):
    """The bytes of an array or a structure; ``integers``: whole numbers stay such, after others."""
    rows = [np.ravel(np.asarray(row)) for row in leaves(x)]
    whole = [integers and row.dtype.kind in "iu" for row in rows]
    first = [row.astype(np.float64) for row, k in zip(rows, whole, strict=True) if not k]
    last = [row.astype(np.int64) for row, k in zip(rows, whole, strict=True) if k]
    return b"".join(row.tobytes() for row in (*first, *last))


def _pointer(x):
    return x.ctypes.data_as(ctypes.c_void_p)


def _extents(work):
    """The size of each member of a structure."""
    members = re.findall(r"\w+(\[[^]]*\])?[,;]", work)
    return [math.prod(map(int, re.findall(r"\d+", extent))) for extent in members]


def leaves(x):
    """The arrays and numbers of nested arguments, in order."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, list | tuple):
        return [leaf for item in x for leaf in leaves(item)]
    return [x]


def skip_reason():
    """Why C cannot be tested here, or None."""
    return None if compiler() and sys.platform != "win32" else "there is no C compiler (cc)"
