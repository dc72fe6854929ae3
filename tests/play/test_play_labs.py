"""The laboratories of ``play``, without server and process: what they learn, show and refuse."""

import base64
import json
import math

import numpy as np
import pytest

from chainrule import Value, gpt, topological_order
from chainrule.nn import softmax
from chainrule.play.curve import Curve
from chainrule.play.datasets import make, read_table
from chainrule.play.lab import TURN
from chainrule.play.language import MOST_SAMPLED, LanguageLab
from chainrule.play.network import NetworkLab, depending_on, make_loss
from chainrule.play.settings import PlayError

NETWORK = {
    "data": "moons",
    "points": 20,
    "noise": 0.1,
    "hidden": [3],
    "activation": "tanh",
    "optimiser": "adam",
    "rate": 0.03,
    "seed": 1,
}
LANGUAGE = {
    "source": "text",
    "text": "ada\nbob\neve\n" * 4,
    "width": 4,
    "heads": 2,
    "layers": 1,
    "block": 6,
    "steps": 60,
    "rate": 0.02,
    "seed": 1,
}


@pytest.fixture
def network():
    lab = NetworkLab()
    lab.handle("start", NETWORK)
    return lab


@pytest.fixture(scope="module")
def language():
    lab = LanguageLab()
    lab.handle("start", LANGUAGE)
    while lab.run.step < LANGUAGE["steps"]:
        lab.advance()
    return lab


def advance(lab, step):
    lab.handle("run", {})
    while lab.optimiser.steps < step:
        lab.advance()


# --- what is asked ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_lab", "action", "given"),
    [
        (NetworkLab, "state", {}),
        (NetworkLab, "_start", NETWORK),
        (NetworkLab, "__init__", {}),
        (NetworkLab, "losses", {}),
        (NetworkLab, "weight", {"layer": 0, "of": "w", "row": 0, "column": 0}),
        (NetworkLab, "rate", {"rate": 0.1}),
        (NetworkLab, "start", {}),
        (NetworkLab, "start", NETWORK | {"hidden": [10_000]}),
        (NetworkLab, "start", NETWORK | {"hidden": [2] * 50}),
        (NetworkLab, "start", NETWORK | {"hidden": []}),
        (NetworkLab, "start", NETWORK | {"hidden": "8"}),
        (NetworkLab, "start", NETWORK | {"hidden": [2.5]}),
        (NetworkLab, "start", NETWORK | {"points": 10**9}),
        (NetworkLab, "start", NETWORK | {"points": True}),
        (NetworkLab, "start", NETWORK | {"noise": math.nan}),
        (NetworkLab, "start", NETWORK | {"rate": math.inf}),
        (NetworkLab, "start", NETWORK | {"rate": "fast"}),
        (NetworkLab, "start", NETWORK | {"activation": "eval"}),
        (NetworkLab, "start", NETWORK | {"activation": ["tanh"]}),
        (NetworkLab, "start", NETWORK | {"data": "csv", "table": "1,2,a\n" * 10_000}),
        (NetworkLab, "start", NETWORK | {"data": "csv", "table": 3}),
        (NetworkLab, "start", NETWORK | {"data": "/etc/passwd"}),
        (NetworkLab, "speed", {"speed": 0}),
        (LanguageLab, "prefix", {"prefix": "a"}),
        (LanguageLab, "token", {"prefix": "a", "next": 0}),
        (LanguageLab, "start", {}),
        (LanguageLab, "start", LANGUAGE | {"source": "/etc/passwd"}),
        (LanguageLab, "start", LANGUAGE | {"text": "one line"}),
        (LanguageLab, "start", LANGUAGE | {"text": "a" * 300_000}),
        (LanguageLab, "start", LANGUAGE | {"text": "a\n" * 30_000}),
        (LanguageLab, "start", LANGUAGE | {"text": "\n".join(map(chr, range(200, 900)))}),
        (LanguageLab, "start", LANGUAGE | {"width": 1_000}),
        (LanguageLab, "start", LANGUAGE | {"width": 5}),
        (LanguageLab, "start", LANGUAGE | {"steps": 10**9}),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(make_lab, action, given):
    with pytest.raises(PlayError) as error:
        make_lab().handle(action, given)
    assert "\n" not in str(error.value)


def test_a_start_that_is_refused_leaves_the_network_as_it_was(network):
    before = network.state()
    with pytest.raises(PlayError):
        network.handle("start", NETWORK | {"rate": -1})
    assert network.state() == before


# --- data ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["moons", "circles", "spiral"])
def test_points_of_both_kinds_are_scaled(shape):
    data = make(NETWORK | {"data": shape, "points": 100})
    assert data.points.shape == (100, 2)
    assert np.allclose(data.points.mean(axis=0), 0)
    assert np.allclose(data.points.std(axis=0), 1)
    assert sorted(data.targets.tolist()) == [-1.0] * 50 + [1.0] * 50
    assert np.abs(data.points).max() < data.reach


def test_a_table_may_have_a_heading_other_delimiters_and_words():
    data = read_table("x;y;kind\n 1;2; dog\n\n3;4;cat\n")
    assert data.kinds == ("cat", "dog")
    assert data.targets.tolist() == [1.0, -1.0]
    assert read_table("1\t2\t0\n3\t2\t1").points.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "empty"),
        ("x,y,kind\n", "empty"),
        ("1,2,a\n3,4,a", "which of two kinds; here are 1"),
        ("1,2,a\n3,4,b\n5,6,c", "here are 3"),
        ("1,2,a\n3,4", "line 2 of the data has 2 cells"),
        ("1,2,a\n3,four,b", "line 2 of the data: 'four' is no number"),
        ("1,2,a\nnan,4,b", "'nan' is no number"),
        ("1,2,a\n1e300,4,b", "'1e300' is no number"),
    ],
)
def test_a_table_that_cannot_be_used_is_told_where(table, said):
    with pytest.raises(PlayError, match=said):
        read_table(table)


# --- the network --------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_network_learns_and_its_state_is_plain_data(activation):
    lab = NetworkLab()
    lab.handle("start", NETWORK | {"activation": activation, "hidden": [4, 4], "seed": 3})
    first = lab.state()["loss"]
    advance(lab, 300)
    state = json.loads(json.dumps(lab.state(), allow_nan=False))
    assert state["loss"] < first / 4
    assert state["right"] > 0.9
    assert [len(layer["w"]) for layer in state["layers"]] == [4, 4, 1]
    assert [len(row) for row in state["neurons"]] == [4, 4]
    side = state["answer"]["side"]
    assert len(base64.b64decode(state["answer"]["pixels"])) == side * side


def test_the_steps_are_those_of_the_optimiser_one_by_one(network):
    twin = NetworkLab()
    twin.handle("start", NETWORK)
    for _ in range(5):
        network.handle("step", {})
    losses = twin.loss.train(twin.layers, twin.samples, twin.optimiser, steps=5)
    for mine, others in zip(network.layers, twin.layers, strict=True):
        assert np.array_equal(mine["w"], others["w"])
    assert network.curve.means == losses.tolist()


def eager_part(lab, point, layer, of, row, column):
    """The gradient of one point's loss by one weight, without anything compiled."""
    layers = [
        {key: np.vectorize(Value, otypes=[object])(array).tolist() for key, array in one.items()}
        for one in lab.layers
    ]
    chosen = slice(point, point + 1)
    points, targets = lab.data.points[chosen].tolist(), lab.data.targets[chosen].tolist()
    make_loss(lab.activation)(layers, points, targets).backward()
    found = layers[layer][of][row]
    return (found[column] if of == "w" else found).grad


def test_a_weights_gradient_is_the_mean_of_its_parts_and_its_page_has_the_same_number(network):
    advance(network, 20)
    state = network.state()
    for layer, of, row, column in ((0, "w", 2, 1), (0, "b", 1, 0), (1, "w", 0, 2), (1, "b", 0, 0)):
        asked = {"layer": layer, "of": of, "row": row, "column": column, "point": 7}
        answer = network.handle("weight", asked)
        shown = state["layers"][layer][f"{of}_grad"][row]
        shown = shown[column] if of == "w" else shown
        assert answer["grad"] == pytest.approx(shown, rel=1e-4)
        assert answer["grad"] == pytest.approx(np.mean(answer["parts"]), rel=1e-6)
        assert answer["parts"][7] == pytest.approx(eager_part(network, 7, layer, of, row, column))
        place = f"[{row},{column}]" if of == "w" else f"[{row}]"
        assert answer["name"] == f"layer{layer + 1}.{of}{place}"
        assert answer["name"] in answer["page"]


def test_what_depends_on_a_weight_has_the_whole_graphs_numbers_to_the_last_bit():
    w = [Value(0.3 * i - 1) for i in range(6)]
    x = [Value(0.7), Value(-1.3)]
    h = [(w[0] * x[0] + w[1] * x[1]).tanh(), (w[2] * x[0] + w[3]).exp()]
    result = (w[4] * h[0] - h[1] / w[5]) ** 2 + h[0]
    for leaf in (*w, *x):
        result.zero_grad()
        result.backward()
        wanted = leaf.grad
        part = depending_on(leaf, result)
        leaf.grad = 0.0
        part.backward()
        assert (part.data, leaf.grad) == (result.data, wanted)
        assert len(topological_order(part)) <= len(topological_order(result))


def test_a_learning_rate_that_is_too_large_pauses_and_says_so():
    lab = NetworkLab()
    lab.handle("start", NETWORK | {"activation": "relu", "optimiser": "sgd", "rate": 1e-6})
    for layer in lab.layers:
        layer["w"][:] = 1e200
    advance_until = 100
    lab.handle("run", {})
    while lab.running and advance_until:
        lab.advance()
        advance_until -= 1
    state = json.loads(json.dumps(lab.state(), allow_nan=False))
    assert not state["running"]
    assert state["trouble"]


def test_a_slow_speed_takes_few_steps(network):
    network.handle("speed", {"speed": 1})
    network.handle("run", {})
    for _ in range(4):
        network.advance()
    assert network.optimiser.steps <= 1 + 8 * TURN


def test_the_curve_keeps_the_mean_and_never_grows():
    curve = Curve(most=8)
    curve.extend(float(i) for i in range(1024))
    assert len(curve.means) <= 8
    assert np.mean(curve.means) == np.mean(np.arange(curve.every * len(curve.means)))


# --- the GPT ------------------------------------------------------------------------------------


def test_a_gpt_trains_to_its_last_step_and_shows_samples(language):
    state = json.loads(json.dumps(language.state(), allow_nan=False))
    assert (state["step"], state["running"]) == (60, False)
    assert state["curve"]["means"][-1] < state["curve"]["means"][0]
    steps = [sample["step"] for sample in state["sampled"]]
    assert steps == sorted(set(steps))
    assert steps[-1] == 60
    assert len(steps) <= MOST_SAMPLED
    language.handle("step", {})
    assert language.run.step == 60


def test_what_a_prefix_leads_one_to_expect_is_the_models_own_answer(language):
    language.handle("prefix", {"prefix": "ad"})
    reading = language.state()["reading"]
    model, tokenizer = language.run.model, language.run.tokenizer
    seen = gpt.inspect(model, tokenizer, "ad")
    assert reading["tokens"] == seen.tokens == ["·", "a", "d"]
    order = np.argsort(reading["chances"])[::-1]
    likeliest = seen.predictions[-1].likeliest
    assert [tokenizer.name(int(k)) for k in order[:5]] == [name for name, _ in likeliest]
    assert sum(reading["chances"]) == pytest.approx(1, abs=1e-3)
    for head, rows in zip(reading["heads"], seen.attention.values(), strict=True):
        assert np.allclose(np.concatenate(head["rows"]), np.concatenate(rows), atol=1e-4)


def test_characters_that_the_model_does_not_know_are_refused(language):
    with pytest.raises(PlayError, match="never seen the character 'x'"):
        language.handle("prefix", {"prefix": "ax"})
    with pytest.raises(PlayError, match="characters; at most"):
        language.handle("prefix", {"prefix": "a" * 7})


def test_the_graph_of_a_token_has_the_models_own_loss(language):
    target = language.run.tokenizer.encode("a")[1]
    answer = language.handle("token", {"prefix": "ad", "next": target})
    model, cache = language.run.model, language.run.model.new_cache()
    for token in language.run.tokenizer.encode("ad")[:-1]:
        chances = softmax(model.logits(token, cache))
    assert answer["probability"] == chances[target].data
    assert answer["loss"] == -math.log(chances[target].data)
    assert (answer["read"], answer["next"]) == ("d", "a")
    assert "token_embedding" in answer["page"]
    assert "keys.0[0,0]" in answer["page"]
