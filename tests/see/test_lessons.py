"""The broken engines go wrong, on the smallest graph there is, and the right one does not."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from number_systems import chainrule_functions
from programs import SEED_OPS, programs, run
from rich.cells import cell_len

from chainrule import Value, lessons, topological_order
from chainrule.see.explanation import explain
from chainrule.see.lessons.asking import ask
from chainrule.see.lessons.comparing import _try
from chainrule.see.lessons.mistakes import Mistake, right
from chainrule.see.tables import as_text

NAMES = list(lessons.MISTAKES)

# The graphs are what the search finds, pinned here; the two numbers were followed by hand on each.
SMALLEST = {
    "overwrite": ("b = a + a", 2.0, 1.0),
    "no_visited": ("b = a + a; c = b + b", 4.0, 8.0),
    "recursion": ("b = a + a; c = b + b", 4.0, 8.0),
    "breadth_first": ("b = a + a; c = a + b; d = b + c", 5.0, 3.0),
    "while_sorting": ("b = a + a; c = a + b", 3.0, 1.0),
    "not_reset": ("b = a + a", 2.0, 4.0),
    "second_backward": ("b = a + a; c = a + b", 6.0, 8.0),
    "stale_buffers": ("b = a + a", 2.0, 4.0),
    "set_of_children": ("b = a + a", 2.0, 1.0),
}


def program(Value):
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    c = a * b
    return c + a


def shared_interior(Value):
    a = Value(1.0, label="a")
    b = a + a
    c = b + b
    return b + c


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_graph_shows_the_mistake(name):
    lesson = lessons.smallest(name)
    text, expected, got = SMALLEST[name]
    assert lesson.program == text
    assert [(c.name, c.expected, c.got) for c in lesson.cases] == [("a", expected, got)]
    assert lesson.wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_shows_both_numbers_the_reason_and_the_code(name):
    text = str(lessons.smallest(name))
    mistake = lessons.MISTAKES[name]
    assert "expected" in text
    assert "got" in text
    assert mistake.title in text
    assert mistake.why.split()[0] in text
    assert "# wrong:" in text
    assert f"def {name}(" in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())


def test_compare_shows_every_engine_on_one_program():
    comparison = lessons.compare(program)
    assert [lesson.mistake.name for lesson in comparison.lessons] == NAMES
    found = {lesson.mistake.name: lesson for lesson in comparison.lessons}
    assert [str(case) for case in found["overwrite"].cases] == [
        "a.grad: expected 4.0, got 3.0",
        "b.grad: expected 2.0, got 2.0",
    ]
    assert not found["no_visited"].wrong  # an input may be sorted twice without harm
    text = str(comparison)
    assert "v1 = a * b; v2 = v1 + a" in text
    assert "right here, wrong on b = a + a" in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())


def test_every_mistake_shows_on_a_rich_enough_program():
    wrong = {
        lesson.mistake.name for lesson in lessons.compare(shared_interior).lessons if lesson.wrong
    }
    assert wrong == set(NAMES)


def test_compare_takes_a_value_and_changes_nothing():
    a = Value(3.0, label="a")
    y = a * a
    before = [(v.data, v.grad) for v in topological_order(y)]
    lessons.compare(y)
    assert [(v.data, v.grad) for v in topological_order(y)] == before


def test_compare_wants_a_value():
    with pytest.raises(TypeError, match="must return a Value, not a int"):
        lessons.compare(lambda Value: 3)


def test_a_graph_with_too_many_paths_is_not_walked():
    y = x = Value(1.0, label="x")
    for _ in range(60):
        y = y + y
    found = {lesson.mistake.name: lesson for lesson in lessons.compare(y).lessons}
    assert "would not finish" in found["recursion"].note
    assert found["overwrite"].wrong
    assert x.grad == 0.0
    for _ in range(300):
        y = y + 1
    with pytest.raises(ValueError, match="small graphs"):
        lessons.compare(y)


def test_an_unknown_mistake_is_named_with_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'overwrite'"):
        lessons.smallest("overwritten")
    with pytest.raises(ValueError, match="there are overwrite, "):
        lessons.smallest("zzz")


@given(programs(SEED_OPS))
def test_the_right_tiny_engine_is_right_on_every_program(random_program):
    leaves = [Value(x) for x in random_program.inputs]
    output = run(random_program, leaves, chainrule_functions())[-1]
    lesson = _try(Mistake("right", "", "", "", right), explain(output), "")
    assert not lesson.wrong


@pytest.mark.parametrize("exercise", lessons.exercises, ids=lambda exercise: exercise.title)
def test_the_exercises_come_out_as_printed(exercise):
    got = exercise.run()
    for name, expected in exercise.expected.items():
        assert math.isclose(got[name], expected, rel_tol=1e-12, abs_tol=1e-12)


def test_the_first_exercise_prints_the_chapters_lines():
    assert lessons.exercises[0].lines() == [
        "a.grad: expected 4, got 4.0",
        "b.grad: expected 2, got 2.0",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_lessons_code_is_a_whole_program_with_the_right_line_beside_the_wrong_one(name):
    lesson = lessons.smallest(name)
    run = [sys.executable, "-c", lesson.script]
    result = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    (case,) = lesson.cases
    assert result.stdout == f"a.grad is {case.got}, right is {case.expected}\n", result.stderr
    lines = [line.strip() for line in lesson.mistake.code.splitlines()]
    wrong = next(i for i, line in enumerate(lines) if line.startswith("# wrong: "))
    assert lines[wrong + 1].startswith("# right: ")


# --- questions ------------------------------------------------------------------------------------


def asked(*answers):
    """What the exercises say to these answers, and the score."""
    given, said = iter(answers), []
    score = ask(lessons.exercises, lambda question: next(given, None), said.append)
    return as_text(*said), score


def test_an_exercise_tells_the_number_only_after_an_answer():
    text, score = asked("4")
    assert score == (1, 1)
    assert text.endswith("right")
    assert "4.0" not in text


def test_a_wrong_answer_is_told_what_it_would_be_right_for_and_why():
    text, score = asked("3", "-2")
    assert score == (0, 2)
    assert "that is what one path gives; there are 2, and they add up" in text
    assert "L → c → a  1.0 × 3.0 = 3.0" in text
    assert "the size is right, the sign is not" in text


def test_answers_can_be_fractions_skipped_repeated_and_ended():
    text, score = asked("4", "four", "", "q", "1", "1")
    assert score == (1, 1)
    assert "a number, please" in text
    assert "b.grad is 2.0" in text
    neuron = ["", *[""] * 13, "-3/2", "1", "1/2", "0", "0,5", "1/2", "1.0"]
    assert asked(*neuron)[1] == (7, 7)


# --- the teaching class ---------------------------------------------------------------------------


def test_the_teaching_class_gives_chainrules_numbers_by_methods_and_by_operators():
    def program(Value):
        a, b = Value(0.5), Value(-1.5)
        c = (a * b - 2 / a + b**3).tanh() + (1 - b).log() * (a + 1).exp() + (-b).relu()
        c.backward()
        return c.data, a.grad, b.grad

    assert program(lessons.HandMade) == pytest.approx(program(Value), rel=1e-12)
    a, b = lessons.HandMade(2.0), lessons.HandMade(4.0)
    assert (a.sub(b).data, a.div(b).data, a.neg().data, a.pow(3).data) == (-2.0, 0.5, -2.0, 8.0)


def test_the_teaching_class_lets_backward_be_assigned_as_micrograds_notes_do():
    HandMade = lessons.HandMade
    x1, w1 = HandMade(2.0, label="x1"), HandMade(-3.0, label="w1")
    out = HandMade(x1.data * w1.data, (x1, w1), "*")

    def _backward():
        x1.grad += w1.data * out.grad
        w1.grad += x1.data * out.grad

    out._backward = _backward
    (out + x1).backward()
    assert (x1.grad, w1.grad, out._op) == (-2.0, 2.0, "*")


def test_the_teaching_class_reuses_buffers_without_stale_graphs_and_goes_deep():
    topo, visited, stack = [], set(), []
    a = lessons.HandMade(3.0)
    for _ in range(3):
        a.grad = 0.0
        v = a
        for _ in range(5000):
            v = v.add(a)
        v.backward(topo, visited, stack)
        assert a.grad == 5001.0
    assert (len(topo), len(visited), stack) == (5001, 5001, [])
