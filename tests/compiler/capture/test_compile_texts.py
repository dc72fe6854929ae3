"""Strings as samples: texts that vary are integers, one for each character, or static."""

import copy
import itertools
import random
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from compared_calls import compared

import chainrule
from chainrule import Value, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.runtime.texts import FEW
from chainrule.optim import SGD

STOI = {c: i for i, c in enumerate(".abcd")}
ROWS = {c: [0.5 * i, 1.0 - i] for c, i in STOI.items()}
PAIRS = {(a, b): 0.1 * STOI[a] - STOI[b] for a in "abcd" for b in "abcd"}
NAMES = {name: 0.25 * k for k, name in enumerate("ann bob cyn dan eve".split())}
VOWELS, LETTERS = "ae", list("dcba")
PARAMS = [0.5, -1.25, 2.0, 0.75, -0.5, 1.5, 0.25, 3.0, -2.0]


def words(count, least=1, most=4, letters="abcd", seed=0):
    chance = random.Random(seed)
    return ["".join(chance.choices(letters, k=chance.randint(least, most))) for _ in range(count)]


def tried(f, texts, most_recordings):
    """The function, after calls like eager's with these texts, and no more recordings than so."""
    fast = compared(f, [(PARAMS, text) for text in texts])
    assert fast.dispatch.counts.traces <= most_recordings
    assert not fast.dispatch.notices.reasons
    return fast


# --- traced ---------------------------------------------------------------------------------------


def by_key(p, text):
    return sum(p[STOI[c]] ** 2 for c in text)


def by_code(p, text):
    return sum(p[ord(c) - ord("a")] * p[0] for c in text)


def by_mapped_code(p, text):
    return sum(p[i - 97] for i in map(ord, text)) * p[1]


def by_row(p, text):
    return sum(a * b for c in text for a, b in zip(ROWS[c], p, strict=False))


def by_place(p, text):
    return sum(p[LETTERS.index(c)] * p["dcba".index(c)] for c in text)


def by_found_place(p, text):
    return sum(p["bc".find(c)] for c in text)


def by_default(p, text):
    return sum(p[{"a": 1, "bb": 7}.get(c, 2)] for c in text)


def between_dots(p, text):
    return sum(p[STOI[a]] * p[STOI[b]] for a, b in zip("." + text, text + ".", strict=False))


def by_pair(p, text):
    return p[0] + sum(PAIRS[a, b] for a, b in itertools.pairwise(text)) * p[2]


def from_the_end(p, text):
    return sum(p[STOI[c]] * k for k, c in enumerate(reversed(text))) + p[STOI[text[-1]]]


def by_parts(p, text):
    return sum(p[STOI[c]] for c in (text[::-1] * 2)[:3]) * p[len(text)]


def a_recurrence(p, text):
    state = p[0]
    for c in text:
        state = tanh(state * p[STOI[c]])
    return state


def a_hash(p, text):
    h = 0
    for c in text:
        h = (h * 31 + ord(c)) % 9
    return p[h]


@pytest.mark.parametrize(
    "f",
    [
        *(by_key, by_code, by_mapped_code, by_row, by_place, by_found_place, by_default),
        *(between_dots, by_pair, from_the_end, by_parts, a_recurrence, a_hash),
    ],
)
def test_a_recording_for_each_length_serves_all_texts(f):
    fast = tried(f, words(60), FEW + 4)
    assert fast.dispatch.texts == {1}
    assert fast.dispatch.counts.eager == 0


@pytest.mark.parametrize("f", [by_key, between_dots, a_recurrence])
@pytest.mark.parametrize("lift", [True, False])
def test_so_it_does_in_machine_code_and_on_the_tape_with_eagers_numbers(f, lift):
    fast, eager = chainrule.compile(f, lift=lift), chainrule.value_and_grad(f)
    for text in words(60):
        value, slope = fast.value_and_grad(PARAMS, text)
        wanted = eager(PARAMS, text)
        assert value == pytest.approx(wanted[0], rel=1e-12)
        assert slope == pytest.approx(wanted[1], rel=1e-12)
        assert fast([Value(x) for x in PARAMS], text).data == pytest.approx(value, rel=1e-12)


def test_comparisons_of_characters_are_branches():
    def f(p, text):
        return p[1] if text[0] == "a" or text[-1] < "c" else p[2] * p[3]

    tried(f, words(80, 2, 2), FEW + 4)


def test_a_character_among_others_is_a_truth_that_is_computed():
    def f(p, text):
        return p[0] * sum(c in VOWELS for c in text) + p[1] * sum(c in {"b", "dd"} for c in text)

    tried(f, words(60), FEW + 4)


def test_whole_words_are_keys_by_their_characters():
    def f(p, name):
        return NAMES[name] * p[0] + (p[1] if name in ("bob", "eve", "robert") else p[2])

    tried(f, random.Random(1).choices([*NAMES], k=60), FEW + 2)


def test_a_word_is_a_key_of_the_parameters():
    def f(p, name):
        return p[name] ** 2 + p["ann"]

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for name in random.Random(3).choices([*NAMES], k=60):
        assert fast.value_and_grad(NAMES, name) == eager(NAMES, name)
    assert fast.dispatch.counts.traces <= FEW + 1


def test_a_digit_is_its_number():
    def f(p, text):
        return sum(p[int(c)] for c in text)

    tried(f, words(60, 1, 3, "01234567"), FEW + 3)


def test_other_digits_than_ascii_are_left_to_python():
    compared(
        lambda p, text: sum(p[int(c)] for c in text), [(PARAMS, t) for t in words(40, 1, 2, "01٣²")]
    )


def test_characters_of_all_planes_and_halves_of_surrogate_pairs():
    def f(p, text):
        return sum(p[ord(c) % 9] for c in text) + p[len(text)]

    tried(f, words(60, 1, 3, "é😀\ud800a\udfff\0"), FEW + 3)


def test_texts_in_lists_tuples_and_dicts_of_the_arguments():
    def f(p, sample):
        kind, (first, second), letters = sample["kind"], sample["pair"], sample["letters"]
        return p[STOI[first]] * p[STOI[second]] + sum(p[STOI[c]] for c in letters) + p[kind]

    chance = random.Random(0)
    calls = [
        (
            PARAMS,
            {
                "kind": k % 3,
                "pair": tuple(chance.choices("abcd", k=2)),
                "letters": chance.choices("abcd", k=3),
            },
        )
        for k in range(60)
    ]
    fast = compared(f, calls)
    assert fast.dispatch.counts.traces <= FEW + 2


def test_a_text_beside_integers_that_select_its_characters():
    def f(p, text, k):
        return p[STOI[text[k]]] * p[k]

    fast = compared(f, [(PARAMS, text, k % 3 - 1) for k, text in enumerate(words(60, 3, 3))])
    assert fast.dispatch.counts.traces <= FEW + 3


def test_empty_texts_are_structures():
    def f(p, text):
        return (p[0] if text else p[1]) + sum(p[STOI[c]] for c in text)

    tried(f, words(60, 0, 2), FEW + 4)


def test_a_text_passed_by_its_name():
    def f(p, *, text):
        return sum(p[STOI[c]] for c in text)

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for text in words(40):
        assert fast.value_and_grad(PARAMS, text=text) == eager(PARAMS, text=text)
    assert fast.dispatch.counts.traces <= FEW + 4


# --- what Python sees of them ---------------------------------------------------------------------


def test_a_text_is_a_string_to_whoever_asks():
    def f(p, text):
        answers = [
            *(isinstance(text, str), type(text) is str, type(text[0]) is str),
            *(len(text) == len([*text]), text == text[:], text != text + "x", text + "" == text),
            *(not text == 3, text != None, text is not None, [*text] == list(text)),  # noqa: E711, SIM201
            *(text[0] <= text[0], text[0] in text, text[:1] not in "?!", text in (text, "?")),
        ]
        return p[STOI[text[0]]] * sum(answers)

    tried(f, words(40, 2, 3), FEW + 2)


def test_errors_are_eagers():
    def f(p, text):
        return p[STOI[text[1]]]

    fast = compared(f, [(PARAMS, text) for text in words(80, 1, 3, "abcd?é")])
    assert fast.dispatch.texts == {1}


def test_caught_errors_of_missing_keys():
    def f(p, text):
        total = p[0]
        for c in text:
            try:
                total = total + p[STOI[c]]
            except KeyError:
                total = total * 2
        return total

    compared(f, [(PARAMS, text) for text in words(60, 1, 3, "abc?")])


STATIC = {
    "upper": lambda p, t: p[len(t.upper())] * p[ord(t.upper()[0]) - 65],
    "format": lambda p, t: p[len(f"<{t}>")] * p[STOI[f"{t[0]}"]],
    "join": lambda p, t: p[len("".join(reversed(t)))] * p[STOI["".join(sorted(t))[0]]],
    "percent": lambda p, t: p[len("%s" % t)] + p[len("%c" % t[0])],  # noqa: UP031
    "hash": lambda p, t: p[hash(t) % 9],
    "re": lambda p, t: p[len(re.findall("a", t))],
    "count": lambda p, t: p[t.count("a")],
    "substring": lambda p, t: p[0] if "ab" in t else p[1],
    "prefix": lambda p, t: p[0] if "abcab".startswith(t) else p[1],
    "set": lambda p, t: sum(p[STOI[c]] for c in sorted({*t})),
    "Counter": lambda p, t: sum(p[STOI[c]] * k for c, k in Counter(t).items()),
    "numpy": lambda p, t: p[np.array(t).size] + p[len(np.unique(list(t)))],
    "copy": lambda p, t: p[STOI[copy.deepcopy(t)[0]]],
    "keywords": lambda p, t: p[len(dict(**{t: 1}))],
    "order": lambda p, t: p[0] if t < "bb" else p[1],
    "itertools": lambda p, t: sum(p[STOI[k]] * len([*g]) for k, g in itertools.groupby(t)),
    "str": lambda p, t: p[STOI[str(t)[0]]],
    "returned": lambda p, t: (p[0] * len(t), t),
    "returned in a dict": lambda p, t: (p[0] * len(t), dict.fromkeys(t, 1.0)),
}


@pytest.mark.parametrize("f", STATIC.values(), ids=STATIC)
def test_whatever_else_is_asked_of_a_text_holds_for_this_text_only(f):
    fast = chainrule.compile(f, on_fallback="raise")
    for text in words(40, 1, 3) * 2:
        leaves = [Value(x) for x in PARAMS]
        wanted = f(leaves, text)
        extras = wanted[1:] if isinstance(wanted, tuple) else ()
        (wanted[0] if extras else wanted).backward()
        value, slope = fast.value_and_grad(PARAMS, text)
        assert slope == [x.grad for x in leaves]
        assert (value[1:] if extras else ()) == extras
        if extras and isinstance(extras[0], dict):
            assert {*map(type, value[1])} == {str}


def test_a_text_that_is_static_as_a_whole_is_part_of_the_structure_again():
    def f(p, text):
        return p[len(text.upper())]

    fast = compared(f, [(PARAMS, text) for text in words(40)])
    distinct = len({*words(40)})
    assert fast.dispatch.texts == frozenset()
    assert fast.dispatch.counts.traces <= distinct + 1


def test_few_texts_stay_part_of_the_structure():
    def f(p, kind, x):
        if kind == "call":
            return p[0] * x
        return p[1] * x if kind == "put" else p[2] - x

    calls = [(PARAMS, kind, x) for x in (0.5, 1.5) for kind in ("call", "put", "swap")]
    fast = compared(f, calls * 20)
    assert fast.dispatch.texts == frozenset()
    assert fast.dispatch.counts.traces == 3


def test_recordings_of_one_text_go_once_texts_are_traced():
    fast = compared(by_key, [(PARAMS, text) for text in words(60)])
    variants = [v for x in fast.dispatch.structures.values() for v in x.variants]
    assert fast.dispatch.texts == {1}
    assert all(v.recording.selection.program.arguments > 0 for v in variants)
    assert "is another text" not in fast.report()


def test_few_texts_beside_one_that_varies_stay_part_of_the_structure():
    def f(p, kind, text):
        return sum(p[STOI[c]] for c in text) * (2 if kind.upper() == "TWICE" else 1)

    fast = compared(f, [(PARAMS, ("once", "twice")[k % 2], t) for k, t in enumerate(words(60))])
    assert fast.dispatch.texts == {2}
    assert fast.dispatch.counts.traces <= 2 * (FEW + 4)


def test_a_class_derived_from_str_is_not_looked_into():
    class Name(str):
        __slots__ = ()

    def f(p, text):
        return sum(p[STOI[c]] for c in text)

    compared(f, [(PARAMS, Name(text) if k % 2 else text) for k, text in enumerate(words(40))])


def test_keys_that_may_equal_a_text_in_their_own_way_are_hashed():
    class Key(str):
        __slots__ = ()

        def __eq__(self, other):
            return str.__eq__(self, other)

        def __hash__(self):
            return str.__hash__(self)

    table = {"a": 1, Key("b"): 2, "c": 3, "d": 4}
    compared(lambda p, text: sum(p[table[c]] for c in text), [(PARAMS, t) for t in words(40)])


def test_which_object_a_text_is_cannot_be_asked():
    default = "ab"

    def f(p, text):
        return p[0] if text is default else p[1]

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for text in [default, "".join(["a", "b"]), *words(20)]:
        assert fast.value_and_grad(PARAMS, text) == eager(PARAMS, text)
    assert fast.dispatch.counts.replayed == 0


def test_which_object_a_captured_text_is_may_be_asked():
    first, second = "ab", "".join(["a", "b"])

    def f(p, k):
        return p[0] * k if (first, second)[k % 2] is first else p[1]

    fast = compared(f, [(PARAMS, k % 4) for k in range(20)])
    assert not fast.dispatch.notices.reasons


def test_a_missing_key_of_a_defaultdict_is_added_by_eager():
    def f(p, text):
        table = defaultdict(lambda: 3, STOI)
        return sum(p[table[c]] for c in text)

    compared(f, [(PARAMS, text) for text in words(60, 1, 3, "abc?")])


def test_a_changed_table_is_seen():
    table = dict(STOI)

    def f(p, text):
        return sum(p[table[c]] for c in text)

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for k, text in enumerate(words(60)):
        if k == 30:
            table["a"], table["b"] = table["b"], table["a"]
        assert fast.value_and_grad(PARAMS, text) == eager(PARAMS, text)


def test_lists_of_texts_that_are_changed_run_eagerly():
    def f(p, texts):
        total = sum(p[STOI[c]] for c in texts[0])
        texts.append("x")
        return total

    fast = chainrule.compile(f, on_fallback="eager")
    for text in words(20):
        given = [text]
        fast.value_and_grad(PARAMS, given)
        assert given == [text, "x"]


# --- strings that integers select -----------------------------------------------------------------

ITOS = dict(enumerate(".abcd"))
ANIMALS, WEIGHTS = ["cat", "dog", "fox", "owl"], {"dog": 2.0, "cat": 0.5, "owl": 1.5, "fox": -1.0}


def by_letter(p, tokens):
    return sum(ROWS[ITOS[t]][0] * p[STOI["abcd."[t]]] for t in tokens)


def by_name(p, tokens):
    return sum(WEIGHTS[ANIMALS[t % 4]] * p[ANIMALS[t % 4] == "fox"] for t in tokens)


def by_spelling(p, tokens):
    word = "."
    for t in tokens:
        word += ITOS[t]
    return sum(p[STOI[c]] * k for k, c in enumerate(word)) + (p[0] if word[-1] in "ab" else p[1])


@pytest.mark.parametrize("f", [by_letter, by_name, by_spelling])
def test_strings_of_a_table_that_integers_select_are_texts(f):
    chance = random.Random(0)
    tokens = [[chance.randrange(5) for _ in range(chance.randint(1, 3))] for _ in range(60)]
    tried(f, tokens, 6)


JOINED = {
    "join": lambda p, ts: p[len("".join([ITOS[t] for t in ts]))] * p[ts[0]],
    "keywords": lambda p, ts: p[len(dict(**{ITOS[t]: 1 for t in ts}))],
    "returned": lambda p, ts: (p[ts[0]] * 2.0, [ITOS[t] for t in ts]),
    "lengths": lambda p, ts: p[len(["a", "bb", "ccc", "d", "e"][ts[0]])],
    "attribute": lambda p, ts: p[0] * getattr(np, ["pi", "e"][ts[0] % 2]) if ts[0] < 2 else p[1],
    "numpy": lambda p, ts: p[np.array([ITOS[t] for t in ts]).size] + p[np.array(ITOS[ts[0]]).ndim],
}


@pytest.mark.parametrize("f", JOINED.values(), ids=JOINED)
def test_where_c_code_wants_a_true_string_they_are_static(f):
    fast, chance = chainrule.compile(f, on_fallback="raise"), random.Random(0)
    for _ in range(40):
        tokens = [chance.randrange(5) for _ in range(chance.randint(1, 2))]
        leaves = [Value(x) for x in PARAMS]
        wanted = f(leaves, tokens)
        extras = wanted[1:] if isinstance(wanted, tuple) else ()
        (wanted[0] if extras else wanted).backward()
        value, slope = fast.value_and_grad(PARAMS, tokens)
        assert slope == [x.grad for x in leaves]
        assert (value[1:] if extras else ()) == extras


def test_other_attributes_than_those_of_strings_are_not_there():
    def f(p, text):
        names = ("value", "nodes", "static", "upper")
        return p[sum(hasattr(text[0], name) for name in names)] + p[STOI[text[0]]]

    tried(f, words(40), FEW + 4)


# --- the other ways to call -----------------------------------------------------------------------


@pytest.mark.skipif(chainrule.engine != "native", reason="the gate is in C")
def test_the_gate_answers_calls_with_other_texts():
    fast, eager = chainrule.compile(by_key), chainrule.value_and_grad(by_key)
    texts = words(40, 3, 3)
    for text in texts:
        fast.value_and_grad(PARAMS, text)
    assert fast.dispatch.counts.calls == len(texts)  # counts the calls so far
    for k, text in enumerate(words(20, 3, 3, seed=1), 1):
        assert fast.value_and_grad(PARAMS, text) == eager(PARAMS, text)
        assert fast.dispatch.gate.quick == k


def test_lengths_share_machine_code():
    fast = chainrule.compile(by_key, lift=True)
    for text in words(200, 1, 12):
        fast.value_and_grad(PARAMS, text)
    machines = {v.machine for s in fast.dispatch.structures.values() for v in s.variants}
    traced = [k for k, s in fast.dispatch.structures.items() if s.variants and "str[" in repr(k)]
    assert len(traced) >= 8
    assert len(machines - {None}) <= FEW + 4


def test_batches_and_training_of_texts():
    texts = [(text,) for text in words(60, 1, 6)]
    fast, eager = chainrule.compile(by_key), chainrule.value_and_grad(by_key)
    value, slope = fast.batch_value_and_grad(np.array(PARAMS), texts)
    found = [eager(PARAMS, *sample) for sample in texts]
    assert value == pytest.approx(np.mean([v for v, _ in found]))
    assert slope == pytest.approx(np.mean([g for _, g in found], axis=0))

    def trained(function):
        params = np.array(PARAMS)
        losses = function.train(params, texts, SGD(params, lr=0.01), 40)
        return losses, params

    losses, params = trained(chainrule.compile(by_key))
    wanted, point = [], list(PARAMS)
    for k in range(40):
        loss, slope = eager(point, *texts[k % len(texts)])
        wanted.append(loss)
        point = [x - 0.01 * g for x, g in zip(point, slope, strict=True)]
    assert losses == pytest.approx(wanted)
    assert params == pytest.approx(np.array(point))


def test_a_call_flattened_without_texts_is_as_it_was():
    call = flatten_call((PARAMS, "abc"), {}, True)
    assert repr(call.structure[0][1]) == "'abc'"
    assert call.ints == []
    traced = flatten_call((PARAMS, "abc"), {}, True, frozenset([1]))
    assert repr(traced.structure[0][1]) == "str[3]"
    assert traced.ints == [97, 98, 99]
    assert call.key != traced.key


def test_a_saved_function_serves_texts_of_the_lengths_it_was_recorded_for(tmp_path):
    fast, eager = chainrule.compile(between_dots), chainrule.value_and_grad(between_dots)
    seen = words(60, 2, 5)
    for text in seen:
        fast.value_and_grad(PARAMS, text)
        fast(PARAMS, text)
    fast.save(tmp_path / "texts.chainrule")
    loaded = chainrule.load(tmp_path / "texts.chainrule")
    for text in (*seen, *words(60, 2, 5, seed=1)):
        value, slope = loaded.value_and_grad(PARAMS, text)
        wanted = eager(PARAMS, text)
        assert value == pytest.approx(wanted[0], rel=1e-12)
        assert slope == pytest.approx(wanted[1], rel=1e-12)
        assert loaded(PARAMS, text) == pytest.approx(wanted[0], rel=1e-12)
    with pytest.raises(chainrule.FallbackError, match="not saved for this call"):
        loaded.value_and_grad(PARAMS, "abcdabcdabcd")
