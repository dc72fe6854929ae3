"""Lists, tuples, sets and dicts of plain numbers and texts: the walk takes them all at once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import chainrule
from chainrule.compiler.capture import walking
from chainrule.compiler.capture.walking import survey

NUMBERS = [0.5 * k for k in range(2_000)]
ROWS = [[0.5 * k, 1.0, k] for k in range(500)]
SHARED = [ROWS[3], ROWS[3], ROWS[4], [ROWS[5]]]
PAIRS = tuple((k, [k], {"a": k, (k, k): None}) for k in range(50))
NAMED = {f"name {k}": {"rows": ROWS[:k], "text": "x" * k} for k in range(20)}
NUMPYS = [np.float64(k) for k in range(30)] + [np.int64(3)]
MEMBERS, FROZEN = {(k, "a") for k in range(40)}, frozenset(range(40))
FORMATS = ["{0.real}", "{w.imag:3}", "plain"]
ITSELF: list = [1.0]
ITSELF.append(ITSELF)
MIXED = [NUMBERS, [1.0, np.array([1.0])], (2.0, {"b": dataclasses.Field})]

KINDS = {
    "numbers": lambda p: p * NUMBERS[0],
    "rows": lambda p: p * ROWS[0][1],
    "shared": lambda p: p * SHARED[0][1] * ROWS[0][1],
    "pairs": lambda p: p * PAIRS[0][0],
    "named": lambda p: p * len(NAMED["name 3"]),
    "numpys": lambda p: p * NUMPYS[0],
    "sets": lambda p: p * len(MEMBERS) * len(FROZEN),
    "formats": lambda p: p * len(FORMATS[0].format(2.0)),
    "itself": lambda p: p * ITSELF[0],
    "mixed": lambda p: p * MIXED[0][1],
}


def noted(found):
    """All that the walk found out, containers by which they are."""
    groups = found.lists, found.dicts, found.sets, found.names, found.arrays
    held = {(id(x), repr(before)) for group in groups for x, before, *_ in group}
    flags = [f.name for f in dataclasses.fields(found) if f.type in ("bool", "Reach")]
    flags.remove("changes_in_calls")
    told = {flag: getattr(found, flag) for flag in flags}
    return held, told, found.unasked, found.objects_by_id, [len(group) for group in groups]


@pytest.mark.parametrize("kind", KINDS)
def test_the_walk_finds_the_same_all_at_once_as_item_by_item(kind, monkeypatch):
    function, taken = KINDS[kind], []

    def outcome():
        try:
            return noted(survey(function))
        except chainrule.compiler.capture.standins.Unrecordable as reason:
            return str(reason)

    def taking(*arguments):
        data = walking_all_at_once(*arguments)
        taken.extend([] if data is None else data.containers)
        return data

    walking_all_at_once = walking.plain_data
    monkeypatch.setattr(walking, "plain_data", taking)
    at_once = outcome()
    monkeypatch.setattr(walking, "plain_data", lambda *_: None)
    assert at_once == outcome()
    assert taken


def test_data_are_not_gone_through_item_by_item(monkeypatch):
    looked_at = []
    monkeypatch.setattr(
        walking, "_is_atom", lambda x, whole=walking._is_atom: looked_at.append(x) or whole(x)
    )
    survey(lambda p: p * NUMBERS[0] * ROWS[0][0] * PAIRS[0][0])
    assert 0 < len(looked_at) < 50


def change_a_row():
    ROWS[7][1] = 2.0


def change_an_inner_dict():
    NAMED["name 4"]["text"] = "another"


def change_a_set():
    MEMBERS.add("more")


@pytest.mark.parametrize("change", [change_a_row, change_an_inner_dict, change_a_set])
def test_what_changes_in_data_is_noticed(change):
    found = survey(lambda p: p * ROWS[0][1] * len(NAMED) * len(MEMBERS))
    assert found.changed() is None
    change()
    assert found.changed() is not None


def test_a_changed_row_of_a_global_table_is_read():
    table = [[1.0, 2.0], [3.0, 4.0]]
    fast = chainrule.compile(lambda p, k: p * table[k][1])
    assert [fast.value_and_grad(2.0, k) for k in (0, 1)] == [(4.0, 2.0), (8.0, 4.0)]
    table[1][1] = 5.0
    assert [fast.value_and_grad(2.0, k) for k in (0, 1)] == [(4.0, 2.0), (10.0, 5.0)]
