"""Ctrl-C inside what may be given up: it comes at the next safe point, and only there."""

# ruff: noqa: PT012, PT017 - what is left, and where, is what is tested

import signal
import threading

import pytest

from chainrule.core.interrupts import Held, Stopped, open_to_signals, safe_point, stoppable


def press():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_comes_at_the_next_safe_point():
    done = []
    with pytest.raises(KeyboardInterrupt), Held(yields=True):
        press()
        done.append("not torn")
        safe_point()
        done.append("too late")
    assert done == ["not torn"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    safe_point()


def test_a_block_that_does_not_yield_is_left_at_its_end_also_inside_one_that_does():
    done = []
    with pytest.raises(KeyboardInterrupt), Held(yields=True):
        press()
        with Held():
            safe_point()
            done.append("whole")
        safe_point()
        done.append("too late")
    assert done == ["whole"]


def test_inside_a_block_that_does_not_yield_one_that_does_goes_on():
    done = []
    with pytest.raises(KeyboardInterrupt), Held():
        with Held(yields=True):
            press()
            safe_point()
            done.append("inside")
        safe_point()
        done.append("outside")
    assert done == ["inside", "outside"]


def test_of_blocks_that_yield_inside_each_other_it_leaves_all():
    done = []
    with pytest.raises(KeyboardInterrupt), Held(yields=True):
        with Held(yields=True):
            press()
            safe_point()
            done.append("too late")
        done.append("too late")
    assert done == []


def test_where_the_users_function_runs_for_itself_every_moment_is_a_safe_point():
    done = []
    with pytest.raises(KeyboardInterrupt), Held(yields=True), open_to_signals():
        press()
        done.append("too late")
    assert done == []


def test_it_is_not_open_where_a_block_does_not_yield():
    done = []
    with pytest.raises(KeyboardInterrupt), Held(yields=True), open_to_signals(), Held():
        press()
        done.append("whole")
    assert done == ["whole"]


def test_who_catches_it_meets_it_again_and_cannot_keep_it():
    met = []

    def catching():
        for _ in range(2):
            try:
                safe_point()
            except BaseException as error:
                met.append(type(error))

    with pytest.raises(KeyboardInterrupt), Held(yields=True):
        press()
        catching()
    assert met == [KeyboardInterrupt, KeyboardInterrupt]


@pytest.mark.parametrize("caught", [False, True])
def test_an_error_of_the_handlers_own_passes_what_takes_errors_for_the_functions(caught):
    def handler(*_):
        raise ValueError("of the handler")

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(ValueError, match="of the handler"), Held(yields=True):
            press()
            try:
                safe_point()
            except BaseException as error:
                assert not isinstance(error, Exception)
                if not caught:
                    raise
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_is_called_once_and_the_block_goes_on():
    called = []
    before = signal.signal(signal.SIGINT, lambda *given: called.append(given[0]))
    try:
        with Held(yields=True):
            press()
            assert called == []
            safe_point()
            safe_point()
            assert called == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
    assert called == [signal.SIGINT]


def test_another_thread_stops_at_the_first_safe_point_after_it_is_asked_to():
    done, asked = [], threading.Event()

    def work():
        try:
            with stoppable(asked.is_set):
                safe_point()
                asked.set()
                with Held():
                    safe_point()
                    done.append("whole")
                with Held(yields=True):
                    safe_point()
                done.append("too late")
        except Stopped:
            done.append("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["whole", "stopped"]


def test_who_is_asked_to_stop_goes_on_being_asked():
    answers = iter([False, True])
    with pytest.raises(Stopped), stoppable(lambda: next(answers)):
        safe_point()
        with pytest.raises(Stopped):
            safe_point()
        safe_point()
