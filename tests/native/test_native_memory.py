"""Allocation failure at every allocation of every entry point: MemoryError, and the state intact.

The cases are in native_failures.py. They run in processes of their own, a few per process, with
Python's allocators failing at the n-th allocation for every n.
"""

import sys
from types import BuiltinFunctionType, MethodDescriptorType

import native_failures
import pytest
from native_engines import run_python

from chainrule import _native

SCRIPT = "import sys, native_failures; native_failures.main(sys.argv[1:])"
NAMES = list(native_failures.CASES)
FORKING = [name for name in NAMES if native_failures.CASES[name][3].get("fork")]
LONG = [name for name in NAMES if native_failures.CASES[name][3].get("long")]
if sys.version_info >= (3, 12):
    # Since 3.12 Python itself crashes where a generator expression finds no memory, and copy has one.
    LONG.remove("deepcopy")
OTHERS = [
    name for name in NAMES if name not in FORKING and not native_failures.CASES[name][3].get("long")
]
GROUPS = [OTHERS[i::8] for i in range(8)]


def test_every_function_of_the_extension_has_a_case():
    called = set()

    def watch(frame, event, argument):
        if event == "c_call":
            called.add(argument.__qualname__)

    for act, prepare, _, more in native_failures.CASES.values():
        state = prepare()
        sys.setprofile(watch)
        try:
            act(state)
        except more.get("raises", ()):
            pass
        finally:
            sys.setprofile(None)
    functions = {n for n, f in vars(_native).items() if isinstance(f, BuiltinFunctionType)}
    methods = {
        f"{cls.__name__}.{name}"
        for cls in (_native.Value, _native.Tape)
        for name, method in vars(cls).items()
        if isinstance(method, MethodDescriptorType)
    }
    assert len(functions) > 10
    assert len(methods) > 15
    elsewhere = {"canonicalise"}  # has its own in test_compile_canonicalise.py
    elsewhere |= {"stand_in"}  # makes its names, when the package is imported
    assert functions | methods <= called | elsewhere


def run_cases(names):
    felt = {}
    for line in run_python(SCRIPT, *names).splitlines():
        name, _, numbers = line.rpartition(": ")
        felt[name] = int(numbers.split()[0])
    assert list(felt) == list(names)
    return felt


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_a_failing_allocation_is_a_memory_error_and_no_more(names):
    felt = run_cases(names)
    for name in (
        "leaf",
        "a + b",
        "2.0 * a",
        "a - 2",
        "exp",
        "maximum",
        "vsum",
        "-a",
        "children",
        "get data of a leaf",
        "get local_grads of a custom node",
        "recorded operations",
        "build a custom node",
        "Tape.run",
        "Tape.sweep",
        "sgd_array",
    ):
        assert name in NAMES
        assert felt.get(name, 2) >= 2, "the failures must be felt"
    for name in ("set label when the table is full", "set location when the table is full"):
        assert name in NAMES
        assert felt.get(name, 1) >= 1, "the table grows in one of the tries"


@pytest.mark.parametrize("name", LONG)
def test_copies_without_memory_leave_the_original_alone(name):
    assert run_cases([name])[name] > 30


def test_the_first_walks_of_a_process_fail_cleanly_too():
    felt = run_cases(FORKING)
    for name in (
        "first backward",
        "second, larger backward",
        "first zero_grad",
        "larger zero_grad",
    ):
        assert felt[name] >= 4, "the failures must be felt"
    for name in ("first topological_order", "first note"):
        assert felt[name] >= 2
