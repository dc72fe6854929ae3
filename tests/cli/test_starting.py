"""Ctrl-C while the command line is being imported, at places and not at times."""

import subprocess
import sys

import pytest

# Sends the signal when some module is about to be imported.
PROGRAM = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = [{program!r}, "lessons"]
"""
RUN = "from chainrule.__main__ import main; main()"
STATE = "import chainrule; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")


def ran(module, program, code):
    source = PROGRAM.format(module=module, program=program) + code
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)


@pytest.mark.parametrize(
    "module",
    ["chainrule.core", "numpy", "chainrule.derivatives.solvers", "chainrule.cli", "cyclopts"],
)
@pytest.mark.parametrize("program", ["/usr/bin/chainrule", "chainrule.exe"])
def test_a_command_that_is_still_starting_ends_in_one_line(module, program):
    done = ran(module, program, RUN)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "chainrule: interrupted\n")


def test_another_program_gets_its_keyboard_interrupt():
    caught = "\ntry: import chainrule\nexcept KeyboardInterrupt: print('caught')"
    assert ran("numpy", "mine.py", caught).stdout == "caught\n"


@pytest.mark.parametrize("program", ["chainrule", "mine.py", "-m"])
def test_after_the_import_ctrl_c_is_what_it_was(program):
    assert ran("", program, STATE).stdout == "True\n"


def test_a_signal_that_is_ignored_stays_ignored():
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN); "
    found = ran("numpy", "chainrule", code + RUN)
    assert found.returncode == 0
    assert found.stderr == ""


def test_python_m_is_the_command_too():
    """The package is imported before its __main__; what comes first there is patched in."""
    code = """
import runpy
sys.argv[0], sys.orig_argv = "-m", ["python", "-m", "chainrule"]
runpy.run_module("chainrule", run_name="__main__")
"""
    done = ran("numpy", "-m", code)
    assert (done.returncode, done.stderr) == (130, "chainrule: interrupted\n")
