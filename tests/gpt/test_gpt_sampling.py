"""Sampling: chance, temperature, top-k, top-p, prefixes, seeds."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import Value, gpt, no_grad
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
