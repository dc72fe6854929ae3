"""Subjects and ways of the fuzzer: each comes often enough, and what is wrong in one is found."""

import collections
import copy
import runpy

import numpy as np
import pytest
from fuzz_compare import differences
from fuzz_eager import Bound, Eager
from fuzz_programs import HEADER, Call, Program, program
from fuzz_shrink import HOW, script
from fuzz_subjects import SUBJECTS, subject_of
from fuzz_ways import WAYS

import chainrule


class AddsUp(Eager):
    """Adds the gradient to what ``out`` holds."""

    def value_and_grad(self, *arguments, out=None):
        value, gradient = self.right(*arguments)
        return (value, gradient) if out is None else (value, np.add(out, gradient, out=out))


class Copies(Eager):
    """Binds a copy of the arguments."""

    def bound(self, *arguments):
        bound = Bound(self, arguments)
        copied = Bound(self, copy.deepcopy(arguments))
        bound.compiled = type("", (), {"value_and_grad": lambda *_, out: (copied(), out)})
        return bound


class Backwards(Eager):
    """Has the samples in another order."""

    def map_value_and_grad(self, params, *stacks, reduce=None):
        return super().map_value_and_grad(params, *(x[::-1] for x in stacks), reduce=reduce)


class Remembers(Eager):
    """A plain call gives what the last derivative did."""

    def value_and_grad(self, *arguments, out=None):
        self.last, gradient = super().value_and_grad(*arguments)
        return self.last, gradient

    def __call__(self, *arguments):
        right = super().__call__(*arguments)
        return type(right)(getattr(self, "last", right))


SOURCE = HEADER + "\n\ndef f(p, x):\n    return p[0] * x + p[1] ** 2\n"
CALLS = tuple(Call("", f"(np.array([0.5, {k}.25]), {k}.5)") for k in range(6))
SAMPLES = tuple(Call("", f"(np.array([0.5, {k}.25]), [(1.5,), ({k}.5,)])") for k in range(3))


@pytest.mark.parametrize(
    ("mode", "wrong", "kind"),
    [
        ("out", AddsUp, "gradient"),
        ("bound", Copies, "value"),
        ("map", Backwards, "value"),
        ("interleaved", Remembers, "value"),
    ],
)
def test_a_compiler_that_is_wrong_in_one_way_is_found(mode, wrong, kind, monkeypatch):
    steady = tuple(Call("", f"(np.array([0.5, {k}.25]), 1.5)") for k in range(3))
    calls = {"map": SAMPLES, "bound": steady}.get(mode, CALLS)
    example = Program(2, SOURCE, calls, mode)
    assert differences(example, strict=True) == []
    monkeypatch.setattr(chainrule, "compile", Eager)
    assert differences(example, strict=True) == []
    monkeypatch.setattr(chainrule, "compile", wrong)
    assert kind in {difference.kind for difference in differences(example, stop=False)}


@pytest.mark.parametrize("first", [0, 1234])
def test_each_subject_comes_often_enough(first):
    subjects = collections.Counter(map(subject_of, range(first, first + 2500)))
    assert min(subjects[subject] for subject in SUBJECTS) >= 15


def test_each_way_comes_often_enough_and_no_program_twice():
    programs = [program(seed) for seed in range(2000) if subject_of(seed)]
    modes = collections.Counter(written.mode for written in programs)
    assert min(modes[mode] for mode in WAYS) >= 10
    assert len({(written.source, written.calls) for written in programs}) == len(programs)
    assert len({written.source for written in programs}) > 0.98 * len(programs)


def test_each_mode_has_a_reproducer_that_runs(tmp_path, capsys):
    first = {}
    for seed in range(600):
        first.setdefault(program(seed).mode, seed)
    assert set(first) == set(HOW)
    for mode, seed in first.items():
        path = tmp_path / f"{mode}.py"
        path.write_text(script(program(seed), []))
        runpy.run_path(str(path), run_name="__main__")
        said = capsys.readouterr().out
        assert said.count("eager   ") == said.count("compiled") == len(program(seed).calls), mode
