"""CHAINRULE_ENGINE chooses the engine; what cannot be had is refused in one clear line."""

import os
import subprocess
import sys

import pytest

import chainrule

# An import that fails like this one is what Python reports where the extension was not built.
NOT_BUILT = "import sys; sys.modules['chainrule._native'] = None; "
TELL = "import sys, chainrule; print(chainrule.engine, 'chainrule._native' in sys.modules)"


def fresh_python(code, wanted):
    environment = {k: v for k, v in os.environ.items() if k != "CHAINRULE_ENGINE"}
    if wanted is not None:
        environment["CHAINRULE_ENGINE"] = wanted
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )


def told(code, wanted):
    result = fresh_python(code, wanted)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def refused(code, wanted):
    result = fresh_python(code, wanted)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "During handling" not in result.stderr, "one error, not a chain of them"
    return result.stderr.splitlines()[-1]


def test_the_reference_engine_can_be_asked_for():
    assert told(TELL, "reference") == ["reference", "False"]


@pytest.mark.skipif(chainrule.engine != "native", reason="the native engine is not in use")
@pytest.mark.parametrize("wanted", [None, "", "native"])
def test_the_native_engine_is_used_where_it_was_built(wanted):
    assert told(TELL, wanted) == ["native", "True"]


@pytest.mark.parametrize("wanted", [None, "", "reference"])
def test_without_the_native_engine_the_reference_engine_is_used(wanted):
    assert told(NOT_BUILT + TELL, wanted)[0] == "reference"


@pytest.mark.parametrize("wanted", ["fast", "Native", "native ", "0"])
def test_an_unknown_engine_is_refused_in_one_line(wanted):
    assert refused(TELL, wanted) == (
        f"ImportError: CHAINRULE_ENGINE must be 'native' or 'reference', not {wanted!r}"
    )


def test_the_native_engine_where_it_was_not_built_is_refused_in_one_line():
    assert refused(NOT_BUILT + TELL, "native") == (
        "ImportError: CHAINRULE_ENGINE=native, but the native engine was not built here: "
        "install chainrule with a C compiler, or use the reference engine"
    )


FREE_THREADED = "import sys; sys.version += ' free-threading build'; "


@pytest.mark.parametrize("wanted", [None, "", "reference"])
def test_a_free_threaded_python_has_the_reference_engine(wanted):
    assert told(FREE_THREADED + TELL, wanted) == ["reference", "False"]


def test_the_native_engine_is_refused_by_a_free_threaded_python_in_one_line():
    assert refused(FREE_THREADED + TELL, "native") == (
        "ImportError: CHAINRULE_ENGINE=native, but this is a free-threaded Python, which the "
        "native engine does not support: use the reference engine"
    )
