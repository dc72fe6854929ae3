"""Read this first: everything chainrule does, in the order of the docs, one short test for each.

Evaluate, differentiate, see, check, compile, train, a GPT, the command line. The other tests, in
folders like those of the source, go into the details.
"""

import sys

import numpy as np
import pytest

import chainrule
from chainrule import Value, gpt, nn, optim
from chainrule.cli import main


def example():
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    c = a * b
    return a, b, c, c + a


# --- evaluate: docs/guide.md --------------------------------------------------------------------


def test_a_value_remembers_how_it_was_computed():
    a, b, c, loss = example()
    assert (loss.data, loss.op, loss.children) == (8.0, "+", (c, a))
    assert (c.op, c.children, c.local_grads) == ("*", (a, b), (3.0, 2.0))
    assert a.children == ()  # a leaf: made by hand, not by an operation


def test_a_function_takes_a_value_a_number_or_an_array():
    assert chainrule.tanh(Value(0.5)).data == chainrule.tanh(0.5)
    assert chainrule.tanh(np.array([0.5, 1.0]))[0] == pytest.approx(chainrule.tanh(0.5))


def test_an_undefined_operation_raises_where_it_happens():
    with pytest.raises(ValueError, match=r"log\(-1\) is undefined.*'price'"):
        chainrule.log(Value(1.0, label="price") - 2)


def test_a_gradient_is_never_lost_silently():
    with pytest.raises(TypeError, match=r"chainrule\.exp"):
        float(Value(1.0))


# --- differentiate: docs/backward-pass.md, docs/guide.md ----------------------------------------


def test_backward_leaves_the_gradient_in_every_node():
    a, b, c, loss = example()
    loss.backward()
    assert (a.grad, b.grad, c.grad) == (4.0, 2.0, 1.0)
    loss.backward()  # leaves add up, interior nodes hold the latest pass
    assert (a.grad, b.grad, c.grad) == (8.0, 4.0, 1.0)


def test_derivatives_of_functions_to_any_order():
    def f(x):
        return x[0] ** 2 * x[1]

    assert list(chainrule.grad(f)([3.0, 5.0])) == [30.0, 9.0]
    assert chainrule.hessian(f)([3.0, 5.0]).tolist() == [[10.0, 6.0], [6.0, 0.0]]
    assert chainrule.jacobian(lambda x: [x[0], x[0] * x[1]])([3.0, 5.0]).tolist() == [
        [1, 0],
        [5, 3],
    ]
    third = chainrule.grad(chainrule.grad(chainrule.grad(lambda x: x**4)))
    assert third(2.0) == 48.0


# --- see: docs/backward-pass.md -----------------------------------------------------------------


def test_explain_says_why_a_gradient_is_what_it_is():
    a, _, _, loss = example()
    explanation = chainrule.explain(loss)
    assert "Stage 2: propagate gradients" in str(explanation)
    assert "why a.grad is 4.0: 2 paths lead from loss to a" in str(explanation.paths(a))


def test_draw_and_explore_make_a_picture_and_a_page():
    *_, loss = example()
    assert chainrule.draw(loss).svg.startswith("<svg")
    assert "<html" in chainrule.explore(loss).html


def test_a_nan_is_traced_to_the_operation_that_made_it():
    with chainrule.nonfinite("allow"):
        loss = chainrule.log(Value(0.0, label="p")) * 2
    assert "-inf was made by" in str(chainrule.find_nonfinite(loss))


# --- check: docs/guide.md -----------------------------------------------------------------------


def test_check_gradients_finds_a_wrong_derivative():
    assert chainrule.check_gradients(lambda x, y: (x * y).sin(), 0.7, 2.0).ok
    with pytest.raises(chainrule.GradientError, match="square"):
        chainrule.check_gradients(lambda x: Value(x.data**2, (x,), (x.data,), op="square"), 3.0)


# --- compile: docs/compile.md, docs/how-it-works.md ---------------------------------------------


def squares(params, xs, ys):
    errors = [
        chainrule.tanh(params["w"] * x + params["b"]) - y for x, y in zip(xs, ys, strict=True)
    ]
    return sum(error * error for error in errors)


def test_a_compiled_function_gives_the_same_as_the_function_itself():
    params = {"w": 0.5, "b": -0.1}
    arguments = params, [k / 50 for k in range(50)], [k % 2 / 2 for k in range(50)]
    value, grads = chainrule.value_and_grad(squares)(*arguments)
    fast = chainrule.compile(squares)
    for _ in range(2):  # recorded, then replayed
        found, slopes = fast.value_and_grad(*arguments)
        assert found == pytest.approx(value, rel=1e-12)
        assert slopes == pytest.approx(grads, rel=1e-12)
    assert "Σ_" in fast.report(stage="lifted")  # it found the arrays, and made machine code


def test_what_cannot_be_repeated_runs_as_plain_python_with_a_warning():
    @chainrule.compile
    def talkative(x):
        print(x.data)
        return x * 2

    with pytest.warns(chainrule.FallbackWarning, match="talkative runs eagerly"):
        assert talkative.value_and_grad(3.0) == (6.0, 2.0)


# --- train: docs/guide.md, docs/compile.md ------------------------------------------------------


def test_a_network_learns_from_backward_and_an_optimiser():
    parameters = [Value(0.0), Value(0.0)]
    optimiser = optim.Adam(parameters, lr=0.1)
    for _ in range(300):
        slope, height = parameters
        loss = nn.mse([slope * x + height for x in (0.0, 1.0, 2.0)], [1.0, 3.0, 5.0])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert [p.data for p in parameters] == pytest.approx([2.0, 1.0], abs=1e-3)


def test_a_compiled_function_takes_whole_training_steps():
    fast = chainrule.compile(lambda params, x, y: (params["w"] * x + params["b"] - y) ** 2)
    params = {"w": np.array(0.0), "b": np.array(0.0)}
    samples = [(x, 2 * x + 1) for x in (-1.0, 0.0, 1.0)]
    losses = fast.train(params, samples, optim.SGD(params, lr=0.1), steps=300)
    assert losses[-1] < 1e-9 < losses[0]
    assert (params["w"].item(), params["b"].item()) == pytest.approx((2.0, 1.0), abs=1e-6)


# --- a GPT: docs/gpt.md -------------------------------------------------------------------------


def test_a_gpt_trains_saves_and_samples(tmp_path):
    config = gpt.Config(width=8, heads=2, block=8, steps=10, learning_rate=0.03)
    run = gpt.Run.start(gpt.names(), config, engine="eager")
    rows = gpt.train(run, tmp_path / "run")
    assert rows[-1].loss < rows[0].loss
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert isinstance(gpt.generate(run.model, run.tokenizer, run.rng), str)


# --- the command line: README.md ----------------------------------------------------------------


def test_the_command_line_explains_an_expression(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["chainrule", "explain", "c = a*b; L = c + a", "a=2", "b=3"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "a.grad += 3.0 × 1.0 = 3.0, now 4.0" in capsys.readouterr().out
