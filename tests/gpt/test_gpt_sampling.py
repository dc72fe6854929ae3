"""Sampling: chance, temperature, top-k, top-p, prefixes, seeds."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import Value, gpt, no_grad
from chainrule.gpt.side_by_side import Slots, step_of
from chainrule.nn import softmax

TOKENIZER = gpt.Tokenizer.of(["abcd"])
CONFIG = gpt.Config(width=4, heads=2, block=6, std=0.5, seed=0)
MODEL = gpt.GPT(CONFIG, TOKENIZER.size)


def literal_sample(model, rng, temperature):
    """microgpt's sampling loop."""
    cache, token, letters = model.new_cache(), TOKENIZER.bos, []
    for _ in range(model.config.block):
        logits = model.logits(token, cache)
        probs = softmax([logit / temperature for logit in logits])
        token = rng.choices(range(TOKENIZER.size), weights=[p.data for p in probs])[0]
        if token == TOKENIZER.bos:
            break
        letters.append(TOKENIZER.tokens[token])
    return "".join(letters)


def test_documents_are_microgpts_for_the_same_random_numbers():
    ours, theirs = random.Random(3), random.Random(3)
    for _ in range(10):
        text = gpt.generate(MODEL, TOKENIZER, ours)
        assert text == literal_sample(MODEL, theirs, 0.5)
    assert ours.getstate() == theirs.getstate()


def test_the_same_seed_gives_the_same_documents():
    def some(seed):
        rng = random.Random(seed)
        return [gpt.generate(MODEL, TOKENIZER, rng) for _ in range(5)]

    assert some(1) == some(1)
    assert some(1) != some(2)


@given(st.text("abcd", max_size=6), st.integers(0, 5))
def test_documents_begin_with_the_prefix_and_fit_into_the_block(prefix, seed):
    text = gpt.generate(MODEL, TOKENIZER, random.Random(seed), prefix=prefix)
    assert text.startswith(prefix)
    assert len(text) <= CONFIG.block


def test_a_prefix_continues_as_the_same_document_read_from_its_beginning_would():
    text = gpt.generate(MODEL, TOKENIZER, random.Random(0), gpt.Choice(temperature=0))
    assert text
    for cut in range(len(text)):
        greedy = gpt.Choice(temperature=0)
        assert gpt.generate(MODEL, TOKENIZER, random.Random(9), greedy, text[:cut]) == text


def test_prefixes_that_cannot_be_read_are_refused():
    with pytest.raises(gpt.GPTError, match="the prefix has 7 tokens; this model reads at most 6"):
        gpt.generate(MODEL, TOKENIZER, random.Random(0), prefix="aaaaaaa")
    with pytest.raises(gpt.GPTError, match="never seen the character 'z'"):
        gpt.generate(MODEL, TOKENIZER, random.Random(0), prefix="az")


LOGITS = [Value(x) for x in (2.0, 1.0, 0.0, -1.0)]  # probabilities .64, .24, .09, .03


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        (gpt.Choice(1.0), [0, 1, 2, 3]),
        (gpt.Choice(0.0), [0]),
        (gpt.Choice(1.0, top_k=2), [0, 1]),
        (gpt.Choice(1.0, top_k=9), [0, 1, 2, 3]),
        (gpt.Choice(1.0, top_p=0.5), [0]),
        (gpt.Choice(1.0, top_p=0.7), [0, 1]),
        (gpt.Choice(1.0, top_p=1.0), [0, 1, 2, 3]),
        (gpt.Choice(1.0, top_k=3, top_p=0.99), [0, 1, 2]),
    ],
)
def test_top_k_and_top_p_keep_the_likeliest(choice, kept):
    chances = choice.probabilities(LOGITS)
    assert [i for i, p in enumerate(chances) if p > 0] == kept


def test_the_temperature_flattens_or_sharpens():
    cold, warm, hot = (max(gpt.Choice(t).probabilities(LOGITS)) for t in (0.5, 1.0, 5.0))
    assert cold > warm > hot > 0.25


def test_tokens_are_chosen_as_often_as_their_probability_says():
    with no_grad():
        first = MODEL.logits(TOKENIZER.bos, MODEL.new_cache())
    chances = gpt.Choice(1.0).probabilities(first)
    rng = random.Random(5)
    texts = [gpt.generate(MODEL, TOKENIZER, rng, gpt.Choice(1.0)) for _ in range(300)]
    counts = Counter(text[:1] for text in texts)
    for token, chance in zip([*TOKENIZER.tokens, ""], chances, strict=True):
        assert counts[token] / 300 == pytest.approx(chance, abs=0.12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a number from 0 on"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": float("inf")}, "temperature must be"),
        ({"top_k": 0}, "top-k must be at least 1"),
        ({"top_p": 0.0}, "top-p must be more than 0"),
        ({"top_p": 1.5}, "top-p must be more than 0 and at most 1"),
    ],
)
def test_choices_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(gpt.GPTError, match=message):
        gpt.Choice(**arguments)


def test_new_documents_are_new_different_and_not_empty():
    known = {"a", "b", "ab"}
    texts = list(gpt.new_documents(MODEL, TOKENIZER, random.Random(1), known, 10))
    assert len(texts) == len(set(texts)) == 10
    assert not known & set(texts)
    assert "" not in texts


def test_a_model_that_only_repeats_itself_gives_up():
    greedy = gpt.Choice(temperature=0)
    assert len(list(gpt.new_documents(MODEL, TOKENIZER, random.Random(1), set(), 5, greedy))) == 1


# --- many documents, side by side -----------------------------------------------------------------

LARGER = gpt.Config(width=8, heads=2, layers=2, block=7, std=0.4, activation="squared relu", seed=3)
CHOICES = [
    gpt.Choice(1.0),
    gpt.Choice(0.3),
    gpt.Choice(0.0),
    gpt.Choice(1.0, top_k=2),
    gpt.Choice(1.0, top_p=0.7),
    gpt.Choice(2.0, top_k=3, top_p=0.9),
    gpt.Choice(1.0, top_p=1.0),
]


def some(engine, count=40, model=MODEL, seed=2, **others):
    return list(
        gpt.documents(model, TOKENIZER, random.Random(seed), count, engine=engine, **others)
    )


def literal_documents(model, count, seed, choice):
    """Each document with as many random numbers as the block is long, by ``random.choices``."""
    rng, texts = random.Random(seed), []
    for _ in range(count):
        chances = iter([rng.random() for _ in range(model.config.block)])
        rng_of_its_own = random.Random()
        rng_of_its_own.random = lambda chances=chances: next(chances)
        texts.append(gpt.generate(model, TOKENIZER, rng_of_its_own, choice))
    return texts


@pytest.mark.parametrize("config", [CONFIG, LARGER], ids=["one layer", "two layers"])
def test_both_engines_give_the_same_documents(config):
    model = gpt.GPT(config, TOKENIZER.size)
    for choice in CHOICES:
        eager = some("eager", model=model, choice=choice)
        assert some("compiled", model=model, choice=choice) == eager
        assert eager[:5] == literal_documents(model, 5, 2, choice)
    for prefix in ("a", "abcd", "abcdabcd"[: config.block - 1], "abcdabcd"[: config.block]):
        eager = some("eager", 5, model=model, prefix=prefix)
        assert some("compiled", 5, model=model, prefix=prefix) == eager
    assert len(set(some("compiled", model=model, choice=gpt.Choice(1.0)))) > 20


def test_more_documents_than_are_read_at_a_time(monkeypatch):
    eager = some("eager", 50, choice=gpt.Choice(1.0))
    monkeypatch.setattr("chainrule.gpt.side_by_side.MOST", 8)
    assert some("compiled", 50, choice=gpt.Choice(1.0)) == eager
    assert some("compiled", 1) == some("eager", 1)
    monkeypatch.setattr("chainrule.gpt.sampling.AT_ONCE", 7 * CONFIG.block)
    assert some("compiled", 50, choice=gpt.Choice(1.0)) == eager


def test_the_first_documents_do_not_depend_on_how_many_follow():
    assert some("eager", 3) == some("eager", 9)[:3] == some("compiled", 30)[:3]


def test_a_block_of_one_token():
    model = gpt.GPT(CONFIG.replace(block=1), TOKENIZER.size)
    eager = some("eager", model=model, choice=gpt.Choice(1.0))
    assert some("compiled", model=model, choice=gpt.Choice(1.0)) == eager
    assert {"", "b", "c", "d"} <= set(eager) <= {"", "a", "b", "c", "d"}


@pytest.mark.parametrize("config", [CONFIG, LARGER], ids=["one layer", "two layers"])
def test_a_compiled_step_gives_the_logits_of_the_scalar_model(config):
    model, step, rng = gpt.GPT(config, TOKENIZER.size), step_of(config), np.random.default_rng(0)
    weights, remembered = model.arrays(), step.room(20)
    caches = [model.new_cache() for _ in range(20)]
    for position in range(config.block):
        tokens = rng.integers(0, TOKENIZER.size, 20)
        found, news = step.read(weights, tokens, np.full(20, position), remembered)
        with no_grad():
            wanted = [model.logits(t, c) for t, c in zip(tokens.tolist(), caches, strict=True)]
        numbers = np.array([[x.data for x in row] for row in wanted])
        assert np.abs(found - numbers).max() <= 1e-12 * np.abs(numbers).max()
        if position + 1 < config.block:
            remembered[:, :, :, position] = news


def test_slots_that_nobody_has_read_change_nothing():
    """A cache with a slot for every position: to the last bit what a growing one gives."""
    cache = MODEL.new_cache()
    with no_grad():
        for token in (4, 0, 2):
            logits = MODEL.logits(token, cache)
        read = MODEL.new_cache()
        for token in (4, 0):
            MODEL.logits(token, read)
        empty = [[0.0] * CONFIG.width] * (CONFIG.block - 3)
        slots = Slots(
            [[*rows, *empty] for rows in read.keys],
            [[*rows, *empty] for rows in read.values],
            [0.0, 0.0, *[-1e30] * (CONFIG.block - 3)],
        )
        what, where = MODEL.weights["token_embedding"][2], MODEL.weights["position_embedding"][2]
        found = MODEL.scores(what, where, slots)
    assert [x.data for x in found] == [x.data for x in logits]


@given(
    st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(CHOICES),
)
def test_tokens_for_many_rows_are_those_of_single_ones_where_they_are_certain(row, chance, choice):
    tokens, certain = choice.tokens(np.array([row, row[::-1]]), np.array([chance, chance]))
    for k, numbers in enumerate((row, row[::-1])):
        if certain[k]:
            assert tokens[k] == choice.token([Value(x) for x in numbers], chance)


def test_what_rounding_could_decide_is_not_certain():
    def is_certain(choice, row, chance=0.3):
        return bool(choice.tokens(np.array([row]), np.array([chance]))[1][0])

    assert is_certain(gpt.Choice(0.0), [1.0, 2.0])
    assert not is_certain(gpt.Choice(0.0), [1.0, 1.0 + 1e-12])
    assert is_certain(gpt.Choice(1.0), [1.0, 1.0], 0.5 + 1e-6)
    assert not is_certain(gpt.Choice(1.0), [1.0, 1.0], 0.5)
    assert not is_certain(gpt.Choice(1.0, top_k=1), [1.0, 1.0, 0.0])
    assert is_certain(gpt.Choice(1.0, top_k=2), [1.0, 1.0, 0.0])
    assert not is_certain(gpt.Choice(1.0, top_p=0.5), [1.0, 1.0])
    assert not is_certain(gpt.Choice(1e-300), [1e30, 1.0])


def test_where_every_choice_is_a_matter_of_rounding_documents_are_the_same():
    model = gpt.GPT(CONFIG.replace(std=0.0), TOKENIZER.size)
    greedy = gpt.Choice(0.0)
    eager = some("eager", 5, model=model, choice=greedy)
    assert some("compiled", 5, model=model, choice=greedy) == eager == ["a" * CONFIG.block] * 5


def test_numbers_that_overflow_are_reported_as_the_scalar_model_does():
    for engine in ("eager", "compiled"):
        model = gpt.GPT(CONFIG, TOKENIZER.size)
        model.weights["head"][0][0].data = 1e308
        model.weights["token_embedding"][TOKENIZER.bos][0].data = 1e3
        with pytest.raises(gpt.GPTError, match="the model cannot be sampled"):
            some(engine, 3, model=model, choice=gpt.Choice(1e-9))


class Sharper(gpt.GPT):
    """A model of the user's own."""

    def scores(self, *arguments):
        return [3 * x for x in super().scores(*arguments)]


def test_a_model_of_another_class_is_sampled_as_it_is():
    model = Sharper(CONFIG, TOKENIZER.size)
    eager = some("eager", 20, model=model, choice=gpt.Choice(1.0))
    assert some("compiled", 20, model=model, choice=gpt.Choice(1.0)) == eager
    assert eager != some("eager", 20, choice=gpt.Choice(1.0))


def test_a_step_is_compiled_once_it_takes_less_time():
    step = step_of(CONFIG.replace(seed=77))
    assert not step.pays(MODEL, 10)
    assert step.pays(MODEL, 10**9)
    assert step.pays(MODEL, 1)


def test_engines_that_do_not_exist_are_refused():
    with pytest.raises(gpt.GPTError, match="the engine must be one of"):
        some("quick")


# --- passages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [gpt.Tokenizer, gpt.WordTokenizer])
@pytest.mark.parametrize("prefix", ["", "to be"])
def test_the_pieces_of_a_passage_are_its_text(kind, prefix):
    tokenizer = kind.of(["to be or", "not to be"])
    model = gpt.GPT(gpt.Config(width=4, heads=1, block=5, stream=True), tokenizer.size)
    rng, counted = random.Random(3), random.Random(3)
    pieces = list(gpt.pieces(model, tokenizer, rng, 60, prefix=prefix))
    assert len(pieces) == 61
    text = "".join(pieces)
    assert text == gpt.passage(model, tokenizer, counted, 60, prefix=prefix)
    lines = text.removeprefix(prefix).split("\n")
    tokens = sum(tokenizer.count(line) for line in lines) + len(lines) - 1
    assert tokens == 60
    assert text.startswith(prefix)
    assert not any(line != line.strip() for line in lines[1:]) or kind is gpt.Tokenizer


def test_a_piece_comes_before_the_next_token_is_computed():
    class Counting(gpt.GPT):
        read = 0

        def logits(self, token, cache):
            self.read += 1
            return super().logits(token, cache)

    tokenizer = gpt.Tokenizer.of(["ada", "bob"])
    model = Counting(gpt.Config(width=4, heads=1, block=5, stream=True), tokenizer.size)
    reads = []
    for _ in gpt.pieces(model, tokenizer, random.Random(1), 4, prefix="a"):
        reads.append(model.read)
        assert (Value(1.0) * 2.0).children  # whoever takes the pieces builds graphs as before
    assert reads == [0, 2, 3, 4, 5]


def test_a_passage_of_fewer_than_no_tokens_is_refused_at_once():
    tokenizer = gpt.Tokenizer.of(["ada"])
    model = gpt.GPT(gpt.Config(width=4, heads=1, block=5), tokenizer.size)
    with pytest.raises(gpt.GPTError, match="cannot have -1 tokens"):
        gpt.pieces(model, tokenizer, random.Random(1), -1)
