"""Hypothesis profiles, and the engine under test in pytest's header.

`ci` is the default and takes a few minutes in all; `HYPOTHESIS_PROFILE=soak` runs the full numbers.
`CHAINRULE_ENGINE=reference|native` chooses the engine: the whole suite runs over either.
"""

import gc
import math
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Helpers, and tests that others build on, are importable under every import mode.
_HERE = Path(__file__).parent
sys.path[:0] = [str(p) for p in (_HERE, *sorted(_HERE.rglob("*/"))) if p.name != "__pycache__"]

# A suite started in the background (nohup, some CI runners) ignores Ctrl-C, and so do its children;
# tests that interrupt a child would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Generated programs are long and their numbers are filtered: slow generation is no defect.
_COMMON = {
    "deadline": None,
    "suppress_health_check": [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
}
# The same examples every time: a change is not blamed for what an unlucky draw finds. Soak draws.
settings.register_profile("ci", max_examples=100, derandomize=True, **_COMMON)
settings.register_profile("soak", max_examples=2_000, derandomize=False, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


FEW = 2  # sets of parameters of each test, on the second engine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--few-parameters",
        action="store_true",
        help=f"of the compiler's tests with parameters the first {FEW} sets of each",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--few-parameters"):
        return
    met, kept, others = Counter[str](), [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        met[name] += 1
        is_kept = met[name] <= FEW or "compiler" not in item.path.parts
        (kept if is_kept else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected stays: tests that look for garbage need not go through all of it."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    import chainrule

    profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")
    return f"chainrule: engine {chainrule.engine}, hypothesis profile {profile}"


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch):
    """Every function is recorded and built at its first call, whatever that costs, quietly.

    Tests of when that is worth it set the allowance themselves.
    """
    from chainrule.compiler.runtime import notices
    from chainrule.compiler.runtime.ledger import allowance

    allowance.left = math.inf
    monkeypatch.setattr(notices, "LONG", math.inf)


@pytest.fixture
def unchecked(monkeypatch):
    """No first result is compared with eager's, nor a recording with a second one, by `compile`."""
    from chainrule.compiler.capture import tracing
    from chainrule.compiler.runtime import pipeline

    monkeypatch.setattr(pipeline, "check_against_eager", lambda *_: None)
    monkeypatch.setattr(tracing, "confirm", lambda *_, **__: None)


@pytest.fixture
def many(monkeypatch):
    """So many operations that a recording is told of while it goes on: fewer where none is in C."""
    from chainrule.compiler.capture import recorder
    from chainrule.core.backend import kernels

    if kernels is None:  # recording them takes ten seconds
        monkeypatch.setattr(recorder, "PROGRESS", 0x3FF)
        return 1_100
    return 70_000


@pytest.fixture
def deep_recursion():
    """The literal seeds' algorithm recurses; give it room, and take it away again."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture
def machine_steps(monkeypatch):
    """How many steps of training were taken in machine code, as a list of one number."""
    pytest.importorskip("llvmlite")
    from chainrule.compiler.training.machine_loop import MachineLoop

    taken = [0]
    run = MachineLoop.run

    def counted(self, first_step, count):
        losses = run(self, first_step, count)
        taken[0] += len(losses)
        return losses

    monkeypatch.setattr(MachineLoop, "run", counted)
    return taken


@pytest.fixture(scope="module")
def browser():
    from live_page import CHROMIUM, FLAGS

    if CHROMIUM is None:
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip("chromium is not installed (the browser tests need Debian's package)")
        pytest.fail("chromium is not installed, and CI must run the browser tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
