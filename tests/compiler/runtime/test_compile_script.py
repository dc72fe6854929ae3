"""The user's view of compile: a script that only adds a decorator, and the functional form."""

import collections
import copy
import functools
import gc
import inspect
import itertools
import math
import pickle
import re
import warnings
import weakref

import numpy as np
import pytest
from compile_twins import Eager, bits, graded, outcome, plain, reports, same
from programs import count

import chainrule
from chainrule import FallbackError, FallbackWarning, Value, no_grad, vsum
from chainrule.compiler import CompiledFunction

# --- a script in microgpt's manner ----------------------------------------------------------------
# Its loop body has moved into loss(tokens), which is decorated; nothing else is changed.

MICROGPT = """
import random
from chainrule import Value

random.seed(42)
docs = "emma olivia ava isabella mia abe eva lea ana a zoe amelie".split()
random.shuffle(docs)
uchars = sorted(set("".join(docs)))
BOS = len(uchars)
vocab_size = len(uchars) + 1

n_layer, n_embd, block_size, n_head = 1, 4, 8, 2
head_dim = n_embd // n_head
def matrix(nout, nin, std=0.2):
    return [[Value(random.gauss(0, std)) for _ in range(nin)] for _ in range(nout)]
state_dict = {"wte": matrix(vocab_size, n_embd), "wpe": matrix(block_size, n_embd),
              "lm_head": matrix(vocab_size, n_embd)}
for i in range(n_layer):
    state_dict[f"layer{i}.attn_wq"] = matrix(n_embd, n_embd)
    state_dict[f"layer{i}.attn_wk"] = matrix(n_embd, n_embd)
    state_dict[f"layer{i}.attn_wv"] = matrix(n_embd, n_embd)
    state_dict[f"layer{i}.attn_wo"] = matrix(n_embd, n_embd)
    state_dict[f"layer{i}.mlp_fc1"] = matrix(4 * n_embd, n_embd)
    state_dict[f"layer{i}.mlp_fc2"] = matrix(n_embd, 4 * n_embd)
params = [p for mat in state_dict.values() for row in mat for p in row]

def linear(x, w):
    return [sum(wi * xi for wi, xi in zip(wo, x)) for wo in w]

def softmax(logits):
    max_val = max(val.data for val in logits)
    exps = [(val - max_val).exp() for val in logits]
    total = sum(exps)
    return [e / total for e in exps]

def rmsnorm(x):
    ms = sum(xi * xi for xi in x) / len(x)
    scale = (ms + 1e-5) ** -0.5
    return [xi * scale for xi in x]

def gpt(token_id, pos_id, keys, values):
    tok_emb = state_dict["wte"][token_id]
    pos_emb = state_dict["wpe"][pos_id]
    x = [t + p for t, p in zip(tok_emb, pos_emb)]
    x = rmsnorm(x)
    for li in range(n_layer):
        x_residual = x
        x = rmsnorm(x)
        q = linear(x, state_dict[f"layer{li}.attn_wq"])
        k = linear(x, state_dict[f"layer{li}.attn_wk"])
        v = linear(x, state_dict[f"layer{li}.attn_wv"])
        keys[li].append(k)
        values[li].append(v)
        x_attn = []
        for h in range(n_head):
            hs = h * head_dim
            q_h = q[hs:hs + head_dim]
            k_h = [ki[hs:hs + head_dim] for ki in keys[li]]
            v_h = [vi[hs:hs + head_dim] for vi in values[li]]
            attn_logits = [sum(q_h[j] * k_h[t][j] for j in range(head_dim)) / head_dim**0.5
                           for t in range(len(k_h))]
            attn_weights = softmax(attn_logits)
            head_out = [sum(attn_weights[t] * v_h[t][j] for t in range(len(v_h)))
                        for j in range(head_dim)]
            x_attn.extend(head_out)
        x = linear(x_attn, state_dict[f"layer{li}.attn_wo"])
        x = [a + b for a, b in zip(x, x_residual)]
        x_residual = x
        x = rmsnorm(x)
        x = linear(x, state_dict[f"layer{li}.mlp_fc1"])
        x = [xi.relu() for xi in x]
        x = linear(x, state_dict[f"layer{li}.mlp_fc2"])
        x = [a + b for a, b in zip(x, x_residual)]
    return linear(x, state_dict["lm_head"])

@decorate
def loss(tokens):
    n = min(block_size, len(tokens) - 1)
    keys, values = [[] for _ in range(n_layer)], [[] for _ in range(n_layer)]
    losses = []
    for pos_id in range(n):
        token_id, target_id = tokens[pos_id], tokens[pos_id + 1]
        logits = gpt(token_id, pos_id, keys, values)
        probs = softmax(logits)
        loss_t = -probs[target_id].log()
        losses.append(loss_t)
    return (1 / n) * sum(losses)

learning_rate, beta1, beta2, eps_adam = 0.01, 0.85, 0.99, 1e-8
m = [0.0] * len(params)
v = [0.0] * len(params)
history = []

def train(num_steps):
    for step in range(num_steps):
        doc = docs[step % len(docs)]
        tokens = [BOS] + [uchars.index(ch) for ch in doc] + [BOS]
        total = loss(tokens)
        total.backward()
        lr_t = learning_rate * (1 - step / num_steps)
        for i, p in enumerate(params):
            m[i] = beta1 * m[i] + (1 - beta1) * p.grad
            v[i] = beta2 * v[i] + (1 - beta2) * p.grad ** 2
            m_hat = m[i] / (1 - beta1 ** (step + 1))
            v_hat = v[i] / (1 - beta2 ** (step + 1))
            p.data -= lr_t * m_hat / (v_hat ** 0.5 + eps_adam)
            p.grad = 0
        history.append(total.data)
"""


def microgpt(decorate, steps=0):
    """The script's namespace after so many steps."""
    namespace = {"__name__": "microgpt", "decorate": decorate}
    exec(compile(MICROGPT, "microgpt.py", "exec"), namespace)
    namespace["train"](steps)
    return namespace


def compiled(f, **options):
    return chainrule.compile(f, **{"on_fallback": "raise", "lift": False, **options})


STEPS = count(ci=200 if chainrule.engine == "native" else 14, soak=200)


def test_a_microgpt_script_trains_to_eagers_losses_and_parameters_bit_for_bit():
    eager, fast = microgpt(lambda f: f, STEPS), microgpt(compiled, STEPS)
    assert [bits(x) for x in fast["history"]] == [bits(x) for x in eager["history"]]
    assert [bits(p.data) for p in fast["params"]] == [bits(p.data) for p in eager["params"]]
    assert eager["history"][-1] < eager["history"][0], "it learns"
    report = fast["loss"].report()
    assert f"{STEPS} calls: {STEPS} replayed, 0 eager" in report, report
    recordings = int(re.search(r"; (\d+) recordings in", report)[1])
    assert recordings < 140, report


def test_parameters_changed_by_hand_between_calls_are_seen():
    eager, fast = microgpt(lambda f: f), microgpt(compiled)
    tokens = [1, 2, 3, 1, 2]
    for step in range(4):
        for world in (eager, fast):
            for i, p in enumerate(world["params"]):
                p.data += 0.01 * math.sin(i + step)
            if step == 2:
                world["state_dict"]["wte"][2][0] = Value(0.5)
            if step == 3:
                world["state_dict"]["wpe"] = world["state_dict"]["wpe"][::-1]
        expected, found = eager["loss"](tokens), fast["loss"](tokens)
        assert bits(found.data) == bits(expected.data)
        expected.backward()
        found.backward()
        for a, b in zip(fast["params"], eager["params"], strict=True):
            assert bits(a.grad) == bits(b.grad)


def test_a_constant_of_the_script_changed_between_calls_is_seen():
    eager, fast = microgpt(lambda f: f), microgpt(compiled)
    for name, setting in [("n_layer", 0), ("block_size", 2), ("n_layer", 1), ("block_size", 8)]:
        for world in (eager, fast):
            world[name] = setting
        assert bits(fast["loss"]([0, 1, 2, 3]).data) == bits(eager["loss"]([0, 1, 2, 3]).data)


# --- a compiled function is one big operation -----------------------------------------------------


def world(decorate):
    p, q = Value(2.0, label="p"), Value(-3.0, label="q")

    @decorate
    def loss(x):
        return (p * x + q).tanh() * p

    return p, q, loss


def test_the_result_has_the_values_it_came_from_as_children():
    p, q, loss = world(compiled)
    x = Value(0.5)
    y = loss(x)
    assert {id(v) for v in y.children} == {id(v) for v in (p, q, x)}
    assert len(y.local_grads) == len(y.children)
    assert y.op == "loss"
    assert loss.__name__ in y.op
    assert chainrule.topological_order(y)[-1] is y
    by_hand = dict(zip(map(id, y.children), y.local_grads, strict=True))
    y.backward()
    assert [by_hand[id(v)] for v in (p, q, x)] == [p.grad, q.grad, x.grad]


@pytest.mark.parametrize("seed", [1.0, 2.0, 0.0, -0.5])
def test_gradients_add_up_as_in_eager(seed):
    found = []
    for decorate in (Eager, compiled):
        p, q, loss = world(decorate)
        x = Value(0.5)
        loss(x).backward(seed)
        loss(Value(0.25)).backward()  # a second loss adds to what is there
        found.append([bits(v.grad) for v in (p, q, x)])
        y = loss(x)
        y.backward()
        y.backward(seed)  # and so does a second pass over the same graph
        found[-1] += [bits(v.grad) for v in (p, q, x, y)]
        p.grad = 7.0
        loss(x).backward()
        found[-1].append(bits(p.grad))
        y.zero_grad()
        found[-1] += [bits(v.grad) for v in (p, q, x, y)]
    assert found[0] == found[1]


def test_it_mixes_with_eager_nodes():
    results = []
    for decorate in (Eager, compiled):
        p, q, loss = world(decorate)
        hidden = (q * p).sin()
        total = loss(hidden * 2) * 2 + p
        total.backward()
        results.append([total.data, hidden.data, hidden.grad, p.grad, q.grad])
        vsum([loss(p), loss(q), loss(hidden)]).backward()
        results[-1] += [p.grad, q.grad]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-13)
    assert results[1][:2] == results[0][:2]


def test_a_result_keeps_the_gradients_of_its_own_moment():
    p, _, loss = world(compiled)
    x = Value(0.5)
    before = loss(x)
    p.data = 5.0
    loss(x)
    before.backward()
    found = p.grad
    p, _, loss = world(lambda f: f)
    x = Value(0.5)
    before = loss(x)
    p.data = 5.0
    before.backward()
    assert bits(found) == bits(p.grad)


def test_without_gradients_the_result_is_a_leaf():
    p, q, loss = world(compiled)
    x = Value(0.5)
    with_graph = loss(x)
    with no_grad():
        y = loss(x)
    assert (y.children, y.op) == ((), "")
    assert bits(y.data) == bits(with_graph.data)
    y.backward()
    assert p.grad == q.grad == x.grad == 0.0


def test_interior_values_are_children_too():
    results = []
    for decorate in (lambda f: f, compiled):
        a = Value(0.5)
        hidden = [a * 2, a.exp()]

        @decorate
        def loss(x, hidden=hidden):
            return vsum(h * x for h in hidden)

        y = loss(Value(3.0))
        results.append(graded(y, a))
        interior = loss(hidden[0])
        results[-1] += graded(interior, a)
        a.data = 9.0  # what was computed from it stays
        results[-1] += graded(loss(Value(3.0)), a)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-14)


def test_without_values_the_result_is_a_number_of_the_type_that_eager_mode_gives():
    fast = compiled(lambda x, n: x * n + 1)
    assert fast(2.0, 3) == 7.0
    for _ in range(3):
        assert type(fast(2.0, 3)) is float
        assert type(fast(np.float64(2.0), 3)) is np.float64
    assert type(fast(Value(2.0), 3)) is Value


def test_many_captured_values_make_one_node():
    w = [Value(0.01 * i) for i in range(3000)]
    fast = compiled(lambda x: vsum(wi * x for wi in w))
    y = fast(Value(2.0))
    assert len(y.children) == 3001
    y.backward()
    assert [v.grad for v in w] == [2.0] * 3000


# --- the functional form --------------------------------------------------------------------------


def model(p, tokens):
    """A recurrent cell over token embeddings; every length is another program."""
    state = [v * 0 for v in p["embedding"][0]]
    total = 0
    for here, following in itertools.pairwise(tokens):
        mixed = [
            vsum(w * s for w, s in zip(row, state, strict=True)) + e
            for row, e in zip(p["mix"], p["embedding"][here], strict=True)
        ]
        state = [m.tanh() for m in mixed]
        scores = [vsum(w * s for w, s in zip(row, state, strict=True)) for row in p["head"]]
        largest = max(s.data for s in scores)
        exps = [(s - largest).exp() for s in scores]
        total = total - (exps[following] / vsum(exps)).log()
    return total / max(1, len(tokens) - 1) + p["bias"] * p["bias"]


def random_params(rng, vocabulary=7, width=3):
    return {
        "embedding": rng.normal(size=(vocabulary, width)),
        "mix": rng.normal(size=(width, width)),
        "head": rng.normal(size=(vocabulary, width)),
        "bias": float(rng.normal()),
    }


def test_random_tokens_and_parameters_of_any_length_equal_eager_bit_for_bit():
    rng = np.random.default_rng(0)
    fast, eager = compiled(model), Eager(model)
    lengths = list(range(1, 17))
    for _ in range(count(ci=3 if chainrule.engine == "native" else 1, soak=25)):
        rng.shuffle(lengths)
        for length in lengths:
            params = random_params(rng)
            tokens = rng.integers(0, 7, size=length).tolist()
            assert plain(fast.value_and_grad(params, tokens)) == plain(
                eager.value_and_grad(params, tokens)
            )
    assert " 0 eager" in fast.report()


def test_tokens_never_seen_while_recording_are_right():
    rng = np.random.default_rng(1)
    fast, eager = compiled(model), Eager(model)
    params = random_params(rng)
    for tokens in (
        [0, 0, 0, 0],
        [6, 5, 4, 3],
        [1, 2, 1, 2],
        [0, 6, 0, 6],
        [3, 3, 6, 6],
        [2, 5, 5, 1],
    ):
        assert plain(fast.value_and_grad(params, tokens)) == plain(
            eager.value_and_grad(params, tokens)
        )


def test_once_every_token_was_seen_in_every_place_nothing_is_recorded_any_more():
    rng = np.random.default_rng(2)
    fast = compiled(model)
    for t in range(7):
        fast.value_and_grad(random_params(rng), [t] * 5)
        fast.value_and_grad(random_params(rng), [(t + k) % 7 for k in range(5)])
    before = re.search(r"; (\d+) recordings in", fast.report())[1]
    for _ in range(100):
        fast.value_and_grad(random_params(rng), rng.integers(0, 7, size=5).tolist())
    assert re.search(r"; (\d+) recordings in", fast.report())[1] == before


def test_a_batch_is_the_mean_of_its_samples():
    rng = np.random.default_rng(3)
    fast, eager = compiled(model), Eager(model)
    params = random_params(rng)
    for size in (1, 2, 5):
        samples = [(rng.integers(0, 7, size=6).tolist(),) for _ in range(size)]
        value, grads = fast.batch_value_and_grad(params, samples)
        each = [eager.value_and_grad(params, *sample) for sample in samples]
        assert value == pytest.approx(sum(v for v, _ in each) / size, rel=1e-14)
        for name in params:
            wanted = sum(g[name] for _, g in each) / size
            np.testing.assert_allclose(grads[name], wanted, rtol=1e-12, atol=1e-15)
        assert type(grads["bias"]) is float


def test_a_batch_of_one_is_the_sample():
    params = random_params(np.random.default_rng(3))
    fast = compiled(model)
    assert plain(fast.batch_value_and_grad(params, [([1, 2, 3],)])) == plain(
        fast.value_and_grad(params, [1, 2, 3])
    )


def test_batches_say_what_they_need():
    fast = compiled(model)
    params = random_params(np.random.default_rng(4))
    with pytest.raises(ValueError, match="at least one sample"):
        fast.batch_value_and_grad(params, [])
    with pytest.raises(TypeError, match="a sample is a tuple"):
        fast.batch_value_and_grad(params, [[1, 2, 3]])


def test_out_receives_the_gradient():
    params = {"w": np.array([1.0, 2.0]), "b": np.array([[3.0]])}
    fast = compiled(lambda p, x: vsum(w * x for w in p["w"]) * p["b"][0][0])
    out = {"w": np.zeros(2), "b": np.ones((1, 1))}
    value, grads = fast.value_and_grad(params, 2.0, out=out)
    assert grads is out
    assert value == 18.0
    assert (out["w"].tolist(), out["b"].tolist()) == ([6.0, 6.0], [[6.0]])
    value, grads = fast.batch_value_and_grad(params, [(2.0,), (4.0,)], out=out)
    assert grads is out
    assert out["w"].tolist() == [9.0, 9.0]


@pytest.mark.parametrize(
    ("out", "error"),
    [
        ({"w": np.zeros(3), "b": np.zeros((1, 1))}, ValueError),
        ({"w": np.zeros(2)}, ValueError),
        ([np.zeros(2), np.zeros((1, 1)), np.zeros(1)], ValueError),
        ({"w": np.zeros((2, 1)), "b": np.zeros((1, 1))}, ValueError),
    ],
)
def test_an_out_of_the_wrong_structure_is_refused(out, error):
    fast = compiled(lambda p: vsum(p["w"]) * p["b"][0][0])
    with pytest.raises(error, match="structure"):
        fast.value_and_grad({"w": np.ones(2), "b": np.ones((1, 1))}, out=out)


def test_an_out_that_cannot_be_filled_is_refused():
    fast = compiled(lambda p: p["w"] * 2)
    with pytest.raises(TypeError, match="out"):
        fast.value_and_grad({"w": 1.0}, out={"w": 0.0})


def test_gradients_are_fresh_arrays():
    fast = compiled(lambda p, n: vsum(w * w * n for w in p))
    first = fast.value_and_grad(np.array([1.0, 2.0]), 1)[1]
    kept = first.copy()
    second = fast.value_and_grad(np.array([5.0, 6.0]), 2)[1]
    assert first.tolist() == kept.tolist()
    assert not np.shares_memory(first, second)
    second[:] = 0.0
    assert fast.value_and_grad(np.array([1.0, 2.0]), 1)[1].tolist() == kept.tolist()


NESTS = {
    "float": 2.0,
    "int": 3,
    "numpy float": np.float64(1.5),
    "array": np.array([1.0, 2.0, 3.0]),
    "matrix": np.arange(6.0).reshape(2, 3),
    "three dimensions": np.arange(8.0).reshape(2, 2, 2),
    "number in an array": np.array(2.5),
    "float32": np.array([1.5, 2.5], dtype=np.float32),
    "integers": np.array([1, 2, 3]),
    "not contiguous": np.arange(10.0)[::3],
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "list": [1.0, 2.0],
    "tuple": (1.0, [2.0, (3.0,)]),
    "dict": {
        "a": 1.0,
        "b": {"c": np.ones(2), "d": [4.0, 5]},
    },
    "list of arrays": [np.ones(2), np.zeros((2, 2)), 7],
    "empty": [],
    "integer keys": {0: 1.0, 5: [2.0]},
}


def flattened(nest):
    if isinstance(nest, dict):
        return [v for item in nest.values() for v in flattened(item)]
    if isinstance(nest, (list, tuple)):
        return [v for item in nest for v in flattened(item)]
    return [nest] if isinstance(nest, (Value, float)) else []


def polynomial(nest, x=1.0):
    total = Value(1.0)
    for i, v in enumerate(flattened(nest)):
        total = total + v * v * (i + 1) * x - v
    return total


@pytest.mark.parametrize("name", NESTS)
def test_the_first_argument_may_be_any_nest(name):
    fast, eager = compiled(polynomial), Eager(polynomial)
    for _ in range(2):
        found, wanted = (
            fast.value_and_grad(NESTS[name], 2.0),
            eager.value_and_grad(NESTS[name], 2.0),
        )
        assert plain(found) == plain(wanted)
        assert type(found[1]) is type(wanted[1])


@pytest.mark.parametrize("name", NESTS)
def test_other_arguments_may_be_any_nest(name):
    def f(p, nest):
        return p * polynomial(nest) if flattened(nest) else p * 2

    fast, eager = compiled(f), Eager(f)
    nest = [1.0, 2.0] if name in ("integers", "int", "numpy float") else NESTS[name]
    for p in (1.0, 2.0):
        assert plain(fast.value_and_grad(p, nest)) == plain(eager.value_and_grad(p, nest))


def test_values_in_the_first_argument_keep_their_own_grad():
    w, b = Value(2.0), Value(3.0)
    w.grad = 5.0
    fast = chainrule.compile(lambda p, x: p["w"] * x + p["b"][0], on_fallback="eager")
    value, grads = fast.value_and_grad({"w": w, "b": [b]}, 4.0)
    assert (value.data, grads["w"].data, grads["b"][0].data) == (11.0, 4.0, 1.0)
    assert (w.grad, b.grad) == (5.0, 0.0)
    w.data = 10.0
    assert fast.value_and_grad({"w": w, "b": [b]}, 4.0)[0].data == 43.0


def test_arrays_hold_real_numbers():
    fast = chainrule.compile(lambda p: vsum(p), on_fallback="eager")
    for wrong in (np.array(["a"]), np.array([1j]), np.array(["2020-01-01"], dtype="datetime64[D]")):
        with pytest.raises(TypeError, match="there is no derivative with respect to that"):
            fast.value_and_grad(wrong)


def test_value_and_grad_needs_an_argument():
    with pytest.raises(TypeError, match="first"):
        compiled(lambda: Value(1.0)).value_and_grad()


def test_extras_are_reported_and_not_differentiated():
    def f(p, n):
        loss = vsum(v * v for v in p) * n
        return loss, {
            "first": p[0].data,
            "half": p[1] / 2,
            "n": n,
            "name": "x",
            "flags": [True, None],
        }

    def script(compile):
        fast = compile(f)
        for numbers in ([1.0, 2.0], [3.0, -4.0]):
            for n in (1, 2):
                yield fast.value_and_grad(np.array(numbers), n)

    ran = same(script)
    assert ran.eager == 0
    (_, ((loss, extras), grads)) = 0, ran.functions[0].value_and_grad(np.array([1.0, 2.0]), 3)
    assert (loss, extras["half"], extras["n"]) == (15.0, 1.0, 3)
    assert grads.tolist() == [6.0, 12.0]


def test_extras_of_a_batch_are_left_out():
    fast = compiled(lambda p, n: (p * n, {"n": p.data}))
    assert fast.batch_value_and_grad(2.0, [(1,), (3,)]) == (4.0, 2.0)


@pytest.mark.parametrize("result", [3.0, 3])
def test_a_constant_has_gradient_zero(result):
    fast = chainrule.compile(lambda p: result, on_fallback="eager")
    for _ in range(2):
        value, grads = fast.value_and_grad(np.ones(2))
        assert (value, grads.tolist()) == (result, [0.0, 0.0])


def test_a_number_from_data_has_gradient_zero():
    fast = chainrule.compile(lambda p: p[0].data * 2, on_fallback="eager")
    for number in (1.0, 5.0):
        value, grads = fast.value_and_grad(np.array([number, 1.0]))
        assert (value, grads.tolist()) == (2 * number, [0.0, 0.0])


@pytest.mark.parametrize("result", [None, "text", [], {}])
def test_what_is_no_number_cannot_be_differentiated(result):
    fast = chainrule.compile(lambda p: result, on_fallback="eager")
    for _ in range(2):
        with pytest.raises(TypeError, match="returns one Value but"):
            fast.value_and_grad(1.0)


def test_several_values_cannot_be_differentiated():
    fast = chainrule.compile(lambda p: [p * 2, p * 3], on_fallback="eager")
    for _ in range(2):
        with pytest.raises(TypeError, match="returns one Value but"):
            fast.value_and_grad(1.0)
        assert fast(2.0) == [4.0, 6.0]


def test_scipy_minimises_a_compiled_function():
    optimize = pytest.importorskip("scipy.optimize")

    def rosenbrock(x):
        return vsum((1 - a) ** 2 + 100 * (b - a * a) ** 2 for a, b in itertools.pairwise(x))

    fast = compiled(rosenbrock)
    start = np.array([-1.2, 1.0, 0.5, -0.3])
    found = optimize.minimize(fast.value_and_grad, start, jac=True, method="L-BFGS-B", tol=1e-12)
    eager = optimize.minimize(
        Eager(rosenbrock).value_and_grad, start, jac=True, method="L-BFGS-B", tol=1e-12
    )
    np.testing.assert_allclose(found.x, np.ones(4), atol=1e-5)
    assert found.x.tolist() == eager.x.tolist()
    assert found.nfev == eager.nfev
    assert "1 recordings in" in fast.report()


def test_optim_adam_trains_a_compiled_function():
    params = [Value(1.0), Value(-2.0)]
    eager = [Value(1.0), Value(-2.0)]
    fast = compiled(lambda t: vsum((p - t) ** 2 for p in params))
    for values, f in ((params, fast), (eager, lambda t: vsum((p - t) ** 2 for p in eager))):
        adam = chainrule.optim.Adam(values, lr=0.1)
        for t in (1, 2, 1, 2):
            adam.zero_grad()
            f(t).backward()
            adam.step()
    assert [bits(p.data) for p in params] == [bits(p.data) for p in eager]


# --- decorators, methods, metadata ----------------------------------------------------------------


def test_the_decorator_works_bare_and_with_arguments():
    @chainrule.compile
    def bare(x):
        """Documented."""
        return x * 2

    @chainrule.compile(on_fallback="eager")
    def optioned(x, *, factor=3):
        return x * factor

    assert (bare(2.0), optioned(2.0), optioned(2.0, factor=5)) == (4.0, 6.0, 10.0)
    assert (bare.__name__, bare.__doc__, bare.__module__) == ("bare", "Documented.", __name__)
    assert bare.__wrapped__(Value(2.0)).data == 4.0
    assert bare.__qualname__.endswith("bare")
    assert str(inspect.signature(optioned)) == "(x, *, factor=3)"
    assert "bare" in repr(bare)
    assert isinstance(bare, CompiledFunction)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"dtype": "float16"}, ValueError),
        ({"on_fallback": "ignore"}, ValueError),
        ({"on_fallback": None}, ValueError),
    ],
)
def test_wrong_options_are_refused(arguments, error):
    with pytest.raises(error):
        chainrule.compile(lambda x: x, **arguments)


@pytest.mark.parametrize("wrong", [3, "f", [lambda x: x]])
def test_only_functions_are_compiled(wrong):
    with pytest.raises(TypeError, match="function"):
        chainrule.compile(wrong)


class Regression:
    def __init__(self, slope, beta=0.5):
        self.w = [Value(slope), Value(0.0)]
        self.beta = beta

    @chainrule.compile(on_fallback="raise")
    def loss(self, xs, ys):
        """Squared error and decay."""
        error = vsum((self.w[0] * x + self.w[1] - y) ** 2 for x, y in zip(xs, ys, strict=True))
        return error + self.beta * vsum(w * w for w in self.w)


def test_methods_follow_their_instance():
    xs, ys = [1, 2, 3], [2, 4, 7]
    models = [Regression(1.0), Regression(2.0)]
    for beta in (0.5, 2.0, 0.0):
        for model in models:
            model.beta = beta
            found = model.loss(xs, ys)
            wanted = Regression.loss.__wrapped__(model, xs, ys)
            assert bits(found.data) == bits(wanted.data)
            a, b = graded(found, *model.w), graded(wanted, *model.w)
            assert a == b
            model.w[0].data += 0.5
    assert Regression.loss.__doc__ == "Squared error and decay."
    assert models[0].loss.__doc__ == "Squared error and decay."


def test_a_method_lets_its_instance_go():
    model = Regression(1.0)
    model.loss([1], [2])
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_methods_of_instances_that_cannot_be_hashed_or_weakly_referenced():
    import dataclasses

    @dataclasses.dataclass
    class Unhashable:
        factor: float

        @chainrule.compile(on_fallback="eager")
        def loss(self, x):
            return x * self.factor

    class Slotted:
        __slots__ = ("factor",)

        def __init__(self, factor):
            self.factor = factor

        @chainrule.compile(on_fallback="eager")
        def loss(self, x):
            return x * self.factor

    for kind in (Unhashable, Slotted):
        one, other = kind(2.0), kind(2.0)
        assert (one.loss(3.0), other.loss(3.0)) == (6.0, 6.0)
        other.factor = 5.0
        assert (one.loss(3.0), other.loss(3.0)) == (6.0, 15.0)
        one.factor = 7.0
        assert (one.loss(3.0), other.loss(3.0)) == (21.0, 15.0)


def test_equal_instances_are_not_the_same_instance():
    class Equal:
        def __init__(self, factor):
            self.factor = factor

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        @chainrule.compile(on_fallback="raise")
        def loss(self, x):
            return x * self.factor

    one, other = Equal(2.0), Equal(5.0)
    assert (one.loss(3.0), other.loss(3.0), one.loss(3.0)) == (6.0, 15.0, 6.0)


def test_inherited_and_overridden_methods():
    class Child(Regression):
        @chainrule.compile(on_fallback="raise")
        def loss(self, xs, ys):
            return super().loss(xs, ys) * 2

    child, parent = Child(1.0), Regression(1.0)
    for beta in (0.5, 3.0):
        child.beta = parent.beta = beta
        assert child.loss([1, 2], [3, 4]).data == 2 * parent.loss([1, 2], [3, 4]).data


def test_static_and_class_methods():
    class Grouped:
        factor = 2.0

        @staticmethod
        @chainrule.compile(on_fallback="eager")
        def doubled(x):
            return x * 2

        @classmethod
        @chainrule.compile(on_fallback="eager")
        def scaled(cls, x):
            return x * cls.factor

    assert (Grouped.doubled(3.0), Grouped().doubled(3.0)) == (6.0, 6.0)
    assert (Grouped.scaled(3.0), Grouped().scaled(3.0)) == (6.0, 6.0)
    Grouped.factor = 5.0
    assert (Grouped.scaled(3.0), Grouped().scaled(3.0)) == (15.0, 15.0)


def test_callable_objects_and_partials():
    class Scaled:
        def __init__(self):
            self.factor, self.report = 2.0, "mine"

        def __call__(self, x):
            return x * self.factor

    scaled = Scaled()
    fast = chainrule.compile(scaled, on_fallback="eager")
    assert fast(3.0) == 6.0
    scaled.factor = 5.0
    assert fast(3.0) == 15.0
    assert "calls" in fast.report()
    partial = chainrule.compile(functools.partial(lambda a, x: x * a, 3), on_fallback="eager")
    assert partial(2.0) == 6.0


def test_a_network_of_nn_is_followed():
    network = chainrule.nn.MLP(2, [3, 1])
    fast = compiled(
        lambda x, label: (
            (1 - network(x) * label).relu() + 1e-4 * vsum(p * p for p in network.parameters())
        )
    )
    plain_one = fast.__wrapped__
    for x, label in [([1, 2], 1), ([2, -1], -1), ([1, 2], -1)]:
        found, wanted = fast(x, label), plain_one(x, label)
        assert graded(found, *network.parameters()) == pytest.approx(
            graded(wanted, *network.parameters()), rel=1e-12, abs=1e-15
        )
        for p in network.parameters():
            p.data -= 0.1


def test_pickling_is_refused_with_a_clear_error():
    with pytest.raises(TypeError, match=r"compiled function cannot be pickled.*model"):
        pickle.dumps(compiled(model))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_function_itself_as_of_a_plain_one(copied):
    fast = compiled(model)
    assert copied(fast) is fast
    assert copied({"loss": fast})["loss"] is fast
    slope = chainrule.grad(fast)
    assert copied(slope) is slope


def test_a_compiled_method_is_not_copied_apart_from_its_object():
    class Model:
        weight = 2.0

        @chainrule.compile
        def loss(self, x):
            return self.weight * x

    model = Model()
    model.chosen = model.loss
    with pytest.raises(TypeError, match="'loss' is a compiled method of one object"):
        copy.deepcopy(model)


# --- falling back ---------------------------------------------------------------------------------


def leaking(x):
    return x * round(x.data)


def leaking_elsewhere(x):
    return x * int(x.data)


def leaking_twice(x):
    if x > 100:
        return x * int(x.data)
    return x * round(x.data)


def test_a_warning_comes_once_per_function_and_reason():
    fast = chainrule.compile(leaking)
    with pytest.warns(
        FallbackWarning, match=r"leaking runs eagerly.*test_compile_script\.py:\d+"
    ) as seen:
        found = [*[fast(Value(x)).data for x in (1.0, 2.0, 3.0)], fast.value_and_grad(2.0)[0]]
    assert found == [1.0, 4.0, 9.0, 4.0]
    assert len(seen) == 1
    with pytest.warns(FallbackWarning, match="leaking_elsewhere"):
        chainrule.compile(leaking_elsewhere)(Value(2.0))


def test_a_warning_points_at_the_call():
    fast = chainrule.compile(leaking)
    with pytest.warns(FallbackWarning) as seen:
        fast(Value(1.0))
    assert seen[0].filename == __file__
    fast = chainrule.compile(leaking)
    with pytest.warns(FallbackWarning) as seen:
        fast.value_and_grad(1.0)
    assert seen[0].filename == __file__


def test_eager_says_nothing_but_reports():
    fast = chainrule.compile(leaking, on_fallback="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fast(Value(2.0)).data == 4.0
        assert fast(Value(3.0)).data == 9.0
    assert re.search(
        r"eager because .*__round__ at test_compile_script\.py:\d+ \(2 times\)", fast.report()
    )


def test_raise_refuses_every_time():
    fast = chainrule.compile(leaking, on_fallback="raise")
    for _ in range(2):
        with pytest.raises(FallbackError, match=r"leaking runs eagerly: .*__round__"):
            fast(Value(2.0))
        with pytest.raises(FallbackError):
            fast.value_and_grad(2.0)


def test_raise_does_not_hide_the_functions_own_errors():
    def f(x):
        if x > 2:
            raise KeyError("mine")
        return chainrule.log(x)

    fast = chainrule.compile(f, on_fallback="raise")
    assert fast(1.0) == 0.0
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            fast(3.0)
        with pytest.raises(ValueError, match=r"log\(-1"):
            fast(-1.0)
        assert fast(2.0) == math.log(2.0)


def test_a_warning_made_an_error_leaves_the_function_usable():
    fast = chainrule.compile(leaking)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FallbackWarning):
            fast(Value(2.0))
    assert fast(Value(3.0)).data == 9.0


def test_the_report_tells_what_happened():
    fast = chainrule.compile(lambda p, t: p[t] * 2 if p[0] > 0 else p[t] * 3, on_fallback="eager")
    assert "not called yet" in fast.report()
    for sign in (1.0, -1.0, 1.0):
        for t in (0, 1, 2):
            fast.value_and_grad(sign * np.ones(3), t)
    report = fast.report()
    assert ("native tape" if chainrule.engine == "native" else "tape in Python") in report
    assert "9 calls: 9 replayed, 0 eager" in report
    assert report.count("variant:") == 2
    assert "1 guards" in report
    assert re.search(r"\d+ instructions, 4 inputs", report)
    assert re.search(
        r"captured state: found in [\d.]+ ms in all, compared in [\d.]+ µs each", report
    )
    assert re.search(r"operands selected by integers", report)
    static = chainrule.compile(lambda x, n: x * len(range(n)), on_fallback="eager")
    static(1.0, 4)
    assert "static" in static.report()


def test_the_report_names_the_line_of_a_static_use():
    def f(x, n):
        return x * len(range(n))  # here

    fast = chainrule.compile(f, on_fallback="eager")
    fast(1.0, 4)
    line = f.__code__.co_firstlineno + 1
    assert f"an integer is static at test_compile_script.py:{line}" in fast.report()


def test_the_report_names_the_line_of_what_is_refused():
    times = collections.deque([2.0])

    def helper(x):
        print(x)  # here
        return x

    def prints(x):
        return helper(x) * 2

    def looks(x):
        y = x * 3
        return y * times[0]  # here

    def evaluates(x):
        return x * eval("2")  # here

    for f, inside, line in ((prints, helper, 1), (looks, looks, 2), (evaluates, evaluates, 1)):
        fast = chainrule.compile(f, on_fallback="eager")
        fast(1.0)
        place = f"test_compile_script.py:{inside.__code__.co_firstlineno + line}"
        assert re.search(rf", at {place}(;.*)? \(1 times\)", fast.report())


def test_arguments_are_left_as_they_were():
    params = {"w": np.array([1.0, 2.0]), "v": [3.0], "n": [1, 2]}
    before = copy.deepcopy(plain({"w": params["w"], "v": params["v"], "n": params["n"]}))
    fast = compiled(lambda p, t: p["w"][t] * p["v"][0] * p["n"][0])
    for t in (0, 1, 0):
        fast.value_and_grad(params, t)
    assert plain(params) == before


def test_eager_and_replay_agree_on_the_kind_of_every_result():
    """Whether a call is replayed may not show in the types it returns."""

    def f(p, n):
        loss = p[0] * p[1]
        return loss, {"twice": loss * 2, "first": p[0].data, "n": n}

    def leaky(p, n):
        round(p[0].data)
        return f(p, n)

    values = [Value(2.0), Value(3.0)]
    for arguments in (([2.0, 3.0], 1), ((2.0, 3.0), 1)):
        replayed = chainrule.compile(f, on_fallback="eager")
        eager = chainrule.compile(leaky, on_fallback="eager")
        assert plain(replayed.value_and_grad(*arguments)) == plain(eager.value_and_grad(*arguments))
        assert plain(replayed(values, 1)) == plain(eager(values, 1))
        assert "1 replayed" in replayed.report() or "2 replayed" in replayed.report()


def test_helpers_of_this_file_notice_differences():
    """The comparisons themselves can fail."""
    assert plain({"a": [Value(1.0)]}) != plain({"a": [Value(2.0)]})
    assert outcome(lambda: 1 / 0)[0] == "ZeroDivisionError"

    def script(compile):
        yield float(compile is Eager)

    with pytest.raises(AssertionError, match="is not eager's"):
        same(script)
    assert reports.__name__ == "reports"
