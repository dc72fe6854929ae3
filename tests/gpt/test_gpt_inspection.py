"""Looking inside: the numbers, and pictures that are well-formed."""

import xml.etree.ElementTree as ElementTree

import pytest

from chainrule import gpt
from chainrule.gpt import charts
from chainrule.gpt.metrics import Row

TOKENIZER = gpt.Tokenizer.of(["abcd<&"])
MODEL = gpt.GPT(gpt.Config(layers=2, width=4, heads=2, block=6), TOKENIZER.size)


def parsed(svg):
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return root


def test_everything_is_seen():
    seen = gpt.inspect(MODEL, TOKENIZER, "ab<d")
    assert seen.tokens == ["·", "a", "b", "<", "d"]
    assert seen.loss == MODEL.loss(TOKENIZER.encode("ab<d")).data
    assert [m.name for m in seen.matrices] == list(MODEL.weights)
    assert len(seen.attention) == 4
    for rows in seen.attention.values():
        assert [len(row) for row in rows] == [1, 2, 3, 4, 5]
        assert all(sum(row) == pytest.approx(1.0) for row in rows)
    assert [p.token for p in seen.predictions] == ["a", "b", "<", "d", "·"]
    for p in seen.predictions:
        assert 0 < p.probability <= p.likeliest[0][1]
        assert len(p.likeliest) == 5
    assert len(seen.activations["layers.1.mlp.hidden"]) == 5 * 16
    assert len(seen.gradients["head"]) == 7 * 4


def test_the_gradients_are_those_of_the_loss_and_none_is_left_behind():
    MODEL.zero_grad()
    MODEL.loss(TOKENIZER.encode("ab")).backward()
    expected = [p.grad for row in MODEL.weights["head"] for p in row]
    MODEL.zero_grad()
    assert gpt.inspect(MODEL, TOKENIZER, "ab").gradients["head"] == expected
    assert not any(p.grad for p in MODEL.parameters())


def test_a_document_longer_than_the_block_is_cut():
    seen = gpt.inspect(MODEL, TOKENIZER, "abcdabcd")
    assert len(seen.tokens) == 6
    assert seen.document == "abcdab"
    assert gpt.inspect(MODEL, TOKENIZER, "").tokens == ["·"]


def test_pictures_are_well_formed_and_show_what_was_seen(tmp_path):
    paths = gpt.inspect(MODEL, TOKENIZER, "a<&b").save(tmp_path / "inspect")
    assert [path.name for path in paths] == [
        "attention.svg",
        "probabilities.svg",
        "activations.svg",
        "gradients.svg",
    ]
    texts = {path.name: "".join(parsed(path.read_text("utf-8")).itertext()) for path in paths}
    assert "layer 1, head 1" in texts["attention.svg"]
    assert "'a<&b'" in texts["probabilities.svg"]
    assert "layers.0.mlp.hidden" in texts["activations.svg"]
    assert "token_embedding" in texts["gradients.svg"]
    assert len(list(tmp_path.rglob("*"))) == 5, "no temporary file stays"


def test_pictures_are_well_formed_whatever_the_tokens_are():
    odd = "\x00\x1b\x07\uffff\"'<>&\U0001f600"
    tokenizer = gpt.Tokenizer.of([odd])
    model = gpt.GPT(gpt.Config(width=2, heads=1, block=12), tokenizer.size)
    for svg in gpt.inspect(model, tokenizer, odd).pictures().values():
        parsed(svg)


def test_loss_curves_are_drawn_for_one_run_for_two_and_for_none():
    rows = [Row(i, 3.0 / i, 0.01, 2.5 if i % 10 == 0 else None) for i in range(1, 41)]
    one = parsed(charts.losses({"": rows}))
    two = parsed(charts.losses({"runs/1": rows, "<other>": rows[:5]}))
    lines = "{http://www.w3.org/2000/svg}polyline"
    assert len(one.findall(lines)) == 2
    assert len(two.findall(lines)) == 4
    assert len(one.findall("{http://www.w3.org/2000/svg}circle")) == 4
    assert "<other>" in "".join(two.itertext())
    parsed(charts.losses({"": []}))
    parsed(charts.losses({"": [Row(1, 2.0, 0.1)]}))


@pytest.mark.parametrize(("low", "high"), [(0, 1000), (1.7, 3.4), (-0.01, 0.02), (0, 1e-9), (5, 6)])
def test_ticks_are_few_round_and_inside(low, high):
    found = charts.ticks(low, high)
    assert 2 <= len(found) <= 12
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)


def test_at_least_one_likely_token_must_be_asked_for():
    with pytest.raises(gpt.GPTError, match="at least one likely token"):
        gpt.inspect(MODEL, TOKENIZER, "a", likeliest=0)
