"""The GPT: its size, and its losses against microgpt's loop, bit for bit."""

import inspect
import math
import random
import subprocess
import sys

import literal
import pytest

from chainrule import Value, gpt, nn, no_grad, optim, topological_order

TINY = gpt.Config(width=4, heads=2, block=5, steps=12)


def microgpt(Value, docs, config, steps):
    """microgpt's script as its documentation describes it, over any Value class, from the seed on.

    Written without a look at chainrule.gpt: lists, sums and the update by hand. Returns the losses
    and the parameters, as floats.
    """
    random.seed(config.seed)
    docs = list(docs)
    random.shuffle(docs)
    uchars = sorted(set("".join(docs)))
    BOS = len(uchars)
    vocab_size = len(uchars) + 1
    n_layer, n_embd, n_head, block_size = config.layers, config.width, config.heads, config.block
    head_dim = n_embd // n_head
    squared = config.activation == "squared relu"

    def matrix(nout, nin, std=config.std):
        return [[Value(random.gauss(0, std)) for _ in range(nin)] for _ in range(nout)]

    projection = {"std": 0.0} if config.zero_projections else {}
    state_dict = {
        "wte": matrix(vocab_size, n_embd),
        "wpe": matrix(block_size, n_embd),
        "lm_head": matrix(vocab_size, n_embd),
    }
    for i in range(n_layer):
        state_dict[f"layer{i}.attn_wq"] = matrix(n_embd, n_embd)
        state_dict[f"layer{i}.attn_wk"] = matrix(n_embd, n_embd)
        state_dict[f"layer{i}.attn_wv"] = matrix(n_embd, n_embd)
        state_dict[f"layer{i}.attn_wo"] = matrix(n_embd, n_embd, **projection)
        state_dict[f"layer{i}.mlp_fc1"] = matrix(4 * n_embd, n_embd)
        state_dict[f"layer{i}.mlp_fc2"] = matrix(n_embd, 4 * n_embd, **projection)
    params = [p for mat in state_dict.values() for row in mat for p in row]

    def linear(x, w):
        return [sum(wi * xi for wi, xi in zip(wo, x, strict=True)) for wo in w]

    def softmax(logits):
        max_val = max(val.data for val in logits)
        exps = [(val - max_val).exp() for val in logits]
        total = sum(exps)
        return [e / total for e in exps]

    def rmsnorm(x):
        ms = sum(xi * xi for xi in x) / len(x)
        scale = (ms + 1e-5) ** -0.5
        return [xi * scale for xi in x]

    def model(token_id, pos_id, keys, values):
        tok_emb = state_dict["wte"][token_id]
        pos_emb = state_dict["wpe"][pos_id]
        x = [t + p for t, p in zip(tok_emb, pos_emb, strict=True)]
        x = rmsnorm(x)
        for li in range(n_layer):
            x_residual = x
            x = rmsnorm(x)
            q = linear(x, state_dict[f"layer{li}.attn_wq"])
            keys[li].append(linear(x, state_dict[f"layer{li}.attn_wk"]))
            values[li].append(linear(x, state_dict[f"layer{li}.attn_wv"]))
            x_attn = []
            for h in range(n_head):
                hs = h * head_dim
                q_h = q[hs : hs + head_dim]
                k_h = [ki[hs : hs + head_dim] for ki in keys[li]]
                v_h = [vi[hs : hs + head_dim] for vi in values[li]]
                attn_logits = [
                    sum(q_h[j] * k_h[t][j] for j in range(head_dim)) / head_dim**0.5
                    for t in range(len(k_h))
                ]
                weights = softmax(attn_logits)
                x_attn.extend(
                    sum(weights[t] * v_h[t][j] for t in range(len(v_h))) for j in range(head_dim)
                )
            x = linear(x_attn, state_dict[f"layer{li}.attn_wo"])
            x = [a + b for a, b in zip(x, x_residual, strict=True)]
            x_residual = x
            x = rmsnorm(x)
            x = linear(x, state_dict[f"layer{li}.mlp_fc1"])
            x = [xi.relu() ** 2 if squared else xi.relu() for xi in x]
            x = linear(x, state_dict[f"layer{li}.mlp_fc2"])
            x = [a + b for a, b in zip(x, x_residual, strict=True)]
        return linear(x, state_dict["lm_head"])

    learning_rate, beta1, beta2, eps_adam = 0.01, config.beta1, config.beta2, 1e-8
    m = [0.0] * len(params)
    v = [0.0] * len(params)
    num_steps, history = config.steps, []
    for step in range(steps):
        doc = docs[step % len(docs)]
        tokens = [BOS, *[uchars.index(ch) for ch in doc], BOS]
        n = min(block_size, len(tokens) - 1)
        keys, values = [[] for _ in range(n_layer)], [[] for _ in range(n_layer)]
        losses = []
        for pos_id in range(n):
            token_id, target_id = tokens[pos_id], tokens[pos_id + 1]
            logits = model(token_id, pos_id, keys, values)
            probs = softmax(logits)
            losses.append(-probs[target_id].log())
        loss = (1 / n) * sum(losses)
        loss.backward()
        if config.schedule == "cosine":
            lr_t = learning_rate * 0.5 * (1 + math.cos(math.pi * step / num_steps))
        else:
            lr_t = learning_rate * (1 - step / num_steps)
        for i, p in enumerate(params):
            m[i] = beta1 * m[i] + (1 - beta1) * p.grad
            v[i] = beta2 * v[i] + (1 - beta2) * p.grad**2
            m_hat = m[i] / (1 - beta1 ** (step + 1))
            v_hat = v[i] / (1 - beta2 ** (step + 1))
            p.data -= lr_t * m_hat / (v_hat**0.5 + eps_adam)
            p.grad = 0
        history.append(loss.data)
    return history, [p.data for p in params]


DOCUMENTS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d"]


@pytest.mark.usefixtures("deep_recursion")
@pytest.mark.parametrize(
    ("config", "documents", "steps"),
    [
        pytest.param(gpt.PRESETS["microgpt"], gpt.names(), 4, id="microgpt"),
        pytest.param(gpt.PRESETS["course"], gpt.names(), 4, id="course"),
        pytest.param(TINY, DOCUMENTS, 12, id="all steps of a short run"),
        pytest.param(TINY.replace(layers=2, heads=4), DOCUMENTS, 12, id="two layers"),
        pytest.param(
            gpt.PRESETS["course"].replace(width=4, heads=1, steps=12), DOCUMENTS, 12, id="cosine"
        ),
    ],
)
def test_losses_and_parameters_are_microgpts_bit_for_bit(config, documents, steps):
    """From the seed on: the same shuffle, the same weights, the same losses, the same updates."""
    losses, parameters = microgpt(literal.Value, documents, config, steps)
    run = gpt.Run.start(documents, config.replace(log_softmax=False), validation=0.0)
    found = [run.advance().loss for _ in range(steps)]
    assert [x.hex() for x in found] == [x.hex() for x in losses]
    assert [p.data.hex() for p in run.model.parameters()] == [x.hex() for x in parameters]
    assert len(set(found)) == steps
    by_log_softmax = gpt.Run.start(documents, config, validation=0.0)
    assert [by_log_softmax.advance().loss for _ in range(steps)] == pytest.approx(losses, rel=1e-9)


def test_no_score_is_too_large_for_the_loss():
    """microgpt's formula takes the logarithm of a probability that rounds to 0."""
    model = gpt.GPT(TINY, vocabulary=3)
    for row in model.weights["head"]:
        for p in row:
            p.data *= 1e5
    assert 100 < model.loss([2, 0, 1, 2]).data < math.inf
    with pytest.raises(ValueError, match="log"):
        gpt.GPT.of(TINY.replace(log_softmax=False), model.weights).loss([2, 0, 1, 2])


def test_the_loop_over_chainrules_own_values_is_the_same():
    expected, _ = microgpt(Value, DOCUMENTS, TINY, 6)
    run = gpt.Run.start(DOCUMENTS, TINY.replace(log_softmax=False), validation=0.0)
    assert [run.advance().loss for _ in range(6)] == expected


def test_presets_have_the_documented_numbers_of_parameters():
    assert gpt.PRESETS["microgpt"].parameter_count(27) == 4192
    assert gpt.PRESETS["course"].parameter_count(27) == 4064
    assert gpt.PRESETS["book"].parameter_count(597) == 63296
    for config in gpt.PRESETS.values():
        model = gpt.GPT(config.replace(width=config.heads), vocabulary=5)
        assert len(model.parameters()) == model.config.parameter_count(5)


def test_presets_are_those_of_the_seeds():
    assert gpt.Config.preset("microgpt") == gpt.Config(
        layers=1, width=16, heads=4, block=16, std=0.08, schedule="linear", beta1=0.85, beta2=0.99
    )
    course, book = gpt.Config.preset("course"), gpt.Config.preset("book")
    assert (course.block, course.steps, course.std) == (8, 500, 0.02)
    assert (course.schedule, course.beta1, course.beta2) == ("cosine", 0.9, 0.95)
    assert course.zero_projections
    assert (book.layers, book.width, book.heads, book.block) == (2, 32, 4, 16)
    assert book.tokens == "word"
    assert book.learning_rate == course.learning_rate == 0.01


def test_zero_projections_start_as_zero_and_the_others_do_not():
    model = gpt.GPT(gpt.PRESETS["course"].replace(width=4), vocabulary=5)
    for name, matrix in model.weights.items():
        zero = name.endswith(("attention.output", "mlp.narrow"))
        assert all((p.data == 0.0) == zero for row in matrix for p in row), name


def test_a_token_read_with_the_cache_costs_the_same_wherever_it_stands():
    model = gpt.GPT(TINY, vocabulary=4)
    sizes = []
    with no_grad():
        cache = model.new_cache()
        for position, token in enumerate([3, 0, 1, 2, 0]):
            logits = model.logits(token, cache)
            assert len(cache) == position + 1
            sizes.append(len(topological_order(logits[0])))
    assert sizes == [1] * 5
    with pytest.raises(gpt.GPTError, match="at most 5 tokens"):
        model.logits(0, cache)


def test_what_comes_later_changes_nothing_before():
    model = gpt.GPT(TINY, vocabulary=4)

    def scores(tokens):
        cache = model.new_cache()
        return [[x.data for x in model.logits(token, cache)] for token in tokens]

    assert scores([3, 0, 1])[:2] == scores([3, 0, 2])[:2]
    assert scores([3, 0, 1])[2] != scores([3, 1, 1])[2]


def test_documents_longer_than_the_block_are_cut():
    model = gpt.GPT(TINY, vocabulary=4)
    assert model.loss([3, 0, 1, 2, 0, 1]).data == model.loss([3, 0, 1, 2, 0, 1, 2, 2, 3]).data
    with pytest.raises(gpt.GPTError, match="at least two tokens"):
        model.loss([3])


def test_arrays_go_out_and_come_back():
    model, other = gpt.GPT(TINY, 4), gpt.GPT(TINY.replace(seed=1), 4)
    assert model.loss([3, 0, 3]).data != other.loss([3, 0, 3]).data
    other.load_arrays(model.arrays())
    assert model.loss([3, 0, 3]).data == other.loss([3, 0, 3]).data
    before = [p.data for p in other.parameters()]
    broken = gpt.GPT(TINY.replace(seed=2), 4).arrays()
    del broken["layers.0.mlp.narrow"]
    with pytest.raises(gpt.GPTError, match=r"'layers.0.mlp.narrow' must have shape \(4, 16\)"):
        other.load_arrays(broken)
    assert [p.data for p in other.parameters()] == before, "all of them or none"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "a width of 16 cannot be shared by 3 heads"),
        ({"layers": 0}, "layers must be a whole number from 1"),
        ({"width": 2.5}, "width must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"tokens": "bytes"}, "tokens must be one of"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"learning_rate": math.nan}, "learning_rate must be a number"),
        ({"learning_rate": -1.0}, "learning_rate must be a number"),
        ({"beta1": 1.0}, "both betas must be less than 1"),
        ({"seed": "x"}, "seed must be a whole number"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(gpt.GPTError, match=message):
        gpt.Config(**changes)


def test_unknown_presets_are_refused():
    with pytest.raises(gpt.GPTError, match="there are microgpt, course, book"):
        gpt.Config.preset("nano")


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module in (nn, optim, gpt) for name in module.__all__],
)
def test_every_public_name_has_an_example(module, name):
    member = getattr(module, name)
    if inspect.isclass(member) or inspect.isfunction(member):
        assert ">>>" in (member.__doc__ or ""), f"{name} has no example"


def test_the_models_load_neither_the_command_lines_libraries_nor_safetensors():
    heavy = "{'rich', 'cyclopts', 'safetensors', 'matplotlib'}"
    code = f"import sys, chainrule.gpt; print(sorted({heavy} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("[]\n", "")
