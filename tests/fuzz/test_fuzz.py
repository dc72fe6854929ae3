"""Random programs, compiled against eager, and the fuzzer itself: can it find what is wrong?

``CHAINRULE_FUZZ_PROGRAMS`` says how many programs (40), ``CHAINRULE_FUZZ_SEED`` which is the first.
The command with more to choose is ``python tests/fuzz/run.py``.
"""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_compare import World, differences, functions, is_unstable
from fuzz_eager import Eager
from fuzz_programs import HEADER, Call, Program, program
from fuzz_shrink import script, shrunk

import chainrule

PROGRAMS = os.environ.get("CHAINRULE_FUZZ_PROGRAMS", "40")
SEED = os.environ.get("CHAINRULE_FUZZ_SEED", "0")


def test_random_programs_mean_the_same_compiled():
    command = [
        sys.executable,
        str(Path(__file__).with_name("run.py")),
        "--first",
        "--jobs=1",
        "--shrink=3",
    ]
    command += ["--jobs=1", "--shrink=3", "--programs", PROGRAMS, "--seed", SEED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_gives_the_same_program_every_time():
    assert program(7) == program(7)
    assert program(7).source != program(8).source


def test_most_programs_run_without_an_error():
    failed = total = 0
    for seed in range(60):
        written = program(seed)
        world = World(written.eager_source)
        slow, _ = functions(written, world, world)
        for call in written.calls[:4]:
            if call.before:
                world.do(call.before)
            outcome = world.run(slow, eval(call.arguments, vars(world.module)))
            failed += outcome.error is not None
            total += 1
        world.close()
    assert failed < 0.2 * total


def test_programs_use_what_ordinary_programs_use():
    text = "\n".join(program(seed).source for seed in range(1500))
    words = "for while if elif else try except finally break continue return class def lambda is in"
    words += " enumerate zip reversed sorted range len sum max min isinstance round int float print"
    words += (
        " np.mean np.sum math.exp SimpleNamespace namedtuple dataclass @chainrule.compile := slice("
    )
    words += " tanh log LOG.append STATE divmod chainrule.lgamma chainrule.solve"
    words += " chainrule.implicit_root squash called blend OrderedDict lru_cache keys.append pivot"
    words += " softmax(linear( chainrule.random.dropout (end range(i) .weekday() range(200000)"
    missing = [word for word in words.split() if word not in text]
    assert not missing


# --- wrong compilers, which have to be found ------------------------------------------------------


class Quiet(Eager):
    """Prints in the first call only."""

    def __init__(self, f, **options):
        super().__init__(f)
        right, calls = self.value_and_grad, []

        def value_and_grad(*arguments):
            calls.append(1)
            with contextlib.redirect_stdout(sys.stdout if len(calls) == 1 else io.StringIO()):
                return right(*arguments)

        self.value_and_grad = value_and_grad


class Stale(Eager):
    """Gives the old result for the same arguments, whatever has changed around."""

    def __init__(self, f, **options):
        super().__init__(f)
        right, known = self.value_and_grad, {}

        def value_and_grad(*arguments):
            key = repr(arguments)
            known[key] = known.get(key) or right(*arguments)
            return known[key]

        self.value_and_grad = value_and_grad


class Rough(Eager):
    """Loses digits of the gradient."""

    def __init__(self, f, **options):
        super().__init__(f)
        right = self.value_and_grad

        def value_and_grad(*arguments):
            value, gradient = right(*arguments)
            return value, gradient * (1 + 1e-7)

        self.value_and_grad = value_and_grad


class Integral(Eager):
    """Gives the value as another type of number."""

    def __init__(self, f, **options):
        super().__init__(f)
        right = self.value_and_grad

        def value_and_grad(*arguments):
            value, gradient = right(*arguments)
            return (int(value) if value == int(value) else value), gradient

        self.value_and_grad = value_and_grad


class Silent(Eager):
    """Raises another error."""

    def __init__(self, f, **options):
        super().__init__(f)
        right = self.value_and_grad

        def value_and_grad(*arguments):
            try:
                return right(*arguments)
            except IndexError as error:
                raise LookupError(*error.args) from error

        self.value_and_grad = value_and_grad


class Careless(Eager):
    """Lets the function change a copy of its arguments."""

    def __init__(self, f, **options):
        super().__init__(f)
        right = self.value_and_grad
        self.value_and_grad = lambda x, ts, *rest: right(x, list(ts), *rest)


EXAMPLE = """
SCALE = 2.0


def f(x, ts, i):
    unused = 3
    print(i)
    LOG.append(i)
    ts.append(1.0)
    if i > 100:
        x = x * 7
    return x * SCALE * ts[i]
"""
CALLS = (
    Call("", "(3.0, [1.0, 2.0], 0)"),
    Call("", "(3.0, [1.0, 2.0], 1)"),
    Call("SCALE = 5.0", "(3.0, [1.0, 2.0], 0)"),
    Call("", "(3.0, [1.0, 2.0], 9)"),
)


def test_eager_does_not_differ_from_itself(monkeypatch):
    monkeypatch.setattr(chainrule, "compile", Eager)
    for seed in range(60):
        written = program(seed)
        found = differences(written, strict=True)
        assert not found, script(written, found)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (Quiet, "printed"),
        (Stale, "value"),
        (Rough, "gradient"),
        (Integral, "structure"),
        (Silent, "exception"),
        (Careless, "arguments"),
    ],
)
def test_a_wrong_compiler_is_found(wrong, kind, monkeypatch):
    example = Program(0, HEADER + EXAMPLE, CALLS)
    monkeypatch.setattr(chainrule, "compile", Eager)
    assert differences(example) == []
    monkeypatch.setattr(chainrule, "compile", wrong)
    assert kind in {difference.kind for difference in differences(example, stop=False)}


def test_a_program_that_doubles_its_roundings_is_told_from_others():
    source = "def f(x, n):\n    for _ in range(n):\n        x = x + x % 0.9\n    return x\n"
    doubling = Program(0, HEADER + source, (Call("", "(0.3, 1)"), Call("", "(0.3, 40)")))
    assert is_unstable(doubling, 1)
    assert not is_unstable(doubling, 0)


def test_a_program_that_differs_is_made_small(monkeypatch, tmp_path):
    monkeypatch.setattr(chainrule, "compile", Stale)
    small = shrunk(Program(0, HEADER + EXAMPLE.replace("print(i)", "pass"), CALLS))
    assert "unused" not in small.source
    assert "x * 7" not in small.source
    assert len(small.calls) == 2


def test_a_reproducer_runs_by_itself(tmp_path):
    path = tmp_path / "reproducer.py"
    path.write_text(script(Program(0, HEADER + EXAMPLE, CALLS), []))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("eager") == done.stdout.count("compiled") == len(CALLS)
