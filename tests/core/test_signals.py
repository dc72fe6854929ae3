"""What the handler of a signal raises, such as a timeout's, comes out of a block of ``Held``."""

import signal

import pytest

import chainrule
from chainrule import tanh
from chainrule.compiler.capture import running
from chainrule.core.interrupts import Held

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")


class TimeIsUp(Exception):
    pass


@pytest.fixture
def alarmed():
    """Whoever raises SIGUSR1 gets TimeIsUp."""

    def handler(*_):
        raise TimeIsUp("too long")

    before = signal.signal(signal.SIGUSR1, handler)
    yield handler
    assert signal.getsignal(signal.SIGUSR1) is handler
    signal.signal(signal.SIGUSR1, before)


def swallowing():
    """A block that takes every error for the function's own, as a recording does."""
    try:
        signal.raise_signal(signal.SIGUSR1)
    except Exception:
        return
    raise AssertionError("not raised")


def test_without_a_block_it_is_an_error_like_any_other(alarmed):
    swallowing()


def test_it_passes_what_takes_errors_for_the_functions_own(alarmed):
    with pytest.raises(TimeIsUp, match="too long"), Held():
        swallowing()


def test_of_blocks_inside_each_other_it_leaves_all(alarmed):
    def inside():
        try:
            with Held():
                swallowing()
        except Exception:
            raise AssertionError("taken for the function's own") from None

    with pytest.raises(TimeIsUp), Held():
        inside()


def test_a_handler_that_raises_nothing_is_called_at_once():
    called = []
    before = signal.signal(signal.SIGUSR1, lambda *given: called.append(given[0]))
    with Held():
        signal.raise_signal(signal.SIGUSR1)
        assert called == [signal.SIGUSR1]
        assert type(called[0]) is int
    signal.signal(signal.SIGUSR1, before)


def test_ctrl_c_still_waits_for_the_end(alarmed):
    done = []

    def going_on():
        signal.raise_signal(signal.SIGINT)
        done.append(1)

    with pytest.raises(KeyboardInterrupt), Held():
        going_on()
    assert done


def test_a_timeout_while_a_function_is_recorded_is_raised(alarmed, monkeypatch):
    def f(p, x):
        h = p[0]
        for _ in range(300):
            h = tanh(h * p[1] + x)
        return h

    def interrupted(*_):
        signal.raise_signal(signal.SIGUSR1)

    fast = chainrule.compile(f, on_fallback="eager")
    with monkeypatch.context() as patched:
        patched.setattr(running, "finish", interrupted)
        with pytest.raises(TimeIsUp):
            fast.value_and_grad([0.1, 0.2], 0.3)
    value, _ = fast.value_and_grad([0.1, 0.2], 0.3)
    assert value == pytest.approx(f([0.1, 0.2], 0.3), rel=1e-12)
