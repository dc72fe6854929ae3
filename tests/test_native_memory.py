"""Allocation failure at every allocation of every entry point: MemoryError, and the state intact.

The cases are in native_failures.py. They run in processes of their own, a few per process, with
Python's allocators failing at the n-th allocation for every n.
"""

import pytest

pytest.importorskip("_testcapi", reason="this Python has no way to let allocations fail")

import native_failures
from native_engines import run_python

SCRIPT = "import sys, native_failures; native_failures.main(sys.argv[1:])"
NAMES = list(native_failures.CASES)
FORKING = [name for name in NAMES if native_failures.CASES[name][3].get("fork")]
LONG = [name for name in NAMES if native_failures.CASES[name][3].get("long")]
OTHERS = [name for name in NAMES if name not in FORKING and name not in LONG]
GROUPS = [OTHERS[i::8] for i in range(8)]


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
        "children of a number operation",
    ):
        assert felt.get(name, 2) >= 2, "the failures must be felt"


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
    for name in ("first topological_order", "first linearize", "first note"):
        assert felt[name] >= 2
