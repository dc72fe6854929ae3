"""``lessons check``: right engines in every dialect pass, wrong ones are told the missing idea."""

import learners
import pytest

from chainrule import lessons
from chainrule.see.lessons.examining import LAST_STEP
from chainrule.see.lessons.graphs import graph, random_graphs, small_graphs
from chainrule.see.lessons.suspects import SUSPECTS, explains
from chainrule.see.lessons.traps import TRAPS


@pytest.fixture
def write(tmp_path):
    def write(source, name="my_value.py"):
        file = tmp_path / name
        file.write_text(source, encoding="utf-8")
        return file

    return write


@pytest.mark.parametrize("name", learners.RIGHT)
def test_a_right_engine_passes_in_every_dialect(name, write):
    check = lessons.check_file(write(learners.RIGHT[name]), step=6)
    assert check.ok, str(check)
    assert {f.status for f in check.findings} <= {"right", "advice"}
    assert "Everything that was tried is right." in str(check)


# Each trap of a later step takes their time and memory again.
TO_STEP_5 = {"hangs", "eats memory"}


@pytest.mark.parametrize("name", learners.WRONG)
def test_a_wrong_engine_is_told_which_idea_is_missing(name, write):
    source, trap, idea = learners.WRONG[name]
    step = 5 if name in TO_STEP_5 else 7
    check = lessons.check_file(write(source), step=step, seconds=2.0)
    assert not check.ok
    first = check.wrong[0]
    assert (first.trap, idea in first.idea) == (trap, True), str(check)
    if first.rows:
        assert any(row.wrong for row in first.rows)
        assert "← look here" in str(check)


@pytest.mark.parametrize("name", learners.BROKEN_FILES)
def test_a_file_that_cannot_be_used_is_told_why(name, write):
    source, words = learners.BROKEN_FILES[name]
    check = lessons.check_file(write(source))
    assert not check.ok
    assert [f.trap for f in check.findings] == ["loading"]
    assert words in str(check).replace("\n", " ")


def test_there_are_as_many_engines_as_promised():
    assert len(learners.RIGHT) >= 10
    assert len(learners.WRONG) >= 20


def test_the_graph_shown_is_the_smallest(write):
    check = lessons.check_file(write(learners.WRONG["microgpt with ="][0]), step=6)
    finding = check.wrong[0]
    assert (finding.program, dict(finding.inputs)) == ("b = a + a", {"a": 2.0})
    assert [(r.name, r.right, r.yours) for r in finding.rows] == [("a", 2.0, 1.0), ("b", 1.0, 1.0)]
    assert finding.lesson == "overwrite"


def test_a_hanging_trap_costs_its_time_once_and_the_next_ones_are_tried(write):
    source = learners.changed(
        learners.MICROGPT,
        (
            "    def exp(self): return",
            "    def exp(self):\n        while True: pass\n        return",
        ),
    )
    check = lessons.check_file(write(source), step=8, seconds=2.0)
    assert check.wrong[0].trap == "elementary_functions"
    assert check.findings[-1].trap == "a_neuron"


def test_a_file_may_have_the_name_of_a_module_of_pythons(write):
    assert lessons.check_file(write(learners.MICROGRAD, "random.py"), step=5).ok


def test_what_a_later_step_asks_for_is_not_wrong_before_it(write):
    check = lessons.check_file(write(learners.TYPESCRIPT))
    assert check.ok
    assert {f.trap for f in check.later} >= {"a_neuron", "a_gpt", "plain_numbers"}
    assert not lessons.check_file(write(learners.TYPESCRIPT), step=7).ok


@pytest.mark.parametrize("step", [0, LAST_STEP + 1])
def test_a_step_that_the_course_does_not_have_is_refused(step, write):
    with pytest.raises(ValueError, match="1 to 11"):
        lessons.check_file(write(learners.MICROGPT), step=step)


def test_a_file_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        lessons.check_file("nowhere.py")


# --- what it is built from ------------------------------------------------------------------------


def test_every_suspect_is_wrong_somewhere_and_none_is_another():
    graphs = [
        *list(small_graphs(2.0, 3.0))[:300],
        *random_graphs(6, 8),
        *list(small_graphs(2.0, 2.0))[:40],
    ]
    given = {s.name: [s.gradients(g) for g in graphs] for s in SUSPECTS}
    right = [dict(g.truth.grads) for g in graphs]
    assert [name for name, grads in given.items() if grads == right] == []
    assert explains(SUSPECTS[0], [(g, SUSPECTS[0].gradients(g)) for g in graphs])
    assert not explains(SUSPECTS[0], [(g, g.truth.grads) for g in graphs])


def test_a_graph_reads_as_it_was_written_and_knows_its_gradients():
    text = "c = a * b; d = -c; e = tanh(d); L = e - 2"
    g = graph(text, a=0.5, b=-1.5)
    assert str(g) == text
    assert g.truth.grads["L"] == 1.0
    assert g.truth.grads["c"] == pytest.approx(-(1 - g.truth.data["e"] ** 2))


def test_every_trap_has_a_title_and_a_step_of_the_course():
    assert all(trap.title for trap in TRAPS)
    assert {trap.step for trap in TRAPS} == set(range(1, LAST_STEP + 1))
