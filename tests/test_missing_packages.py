"""Without llvmlite or fast-sugiyama, as on musl, things work and say what is missing."""

import os
import random
import subprocess
import sys

from chainrule.see.drawing.plain_ranks import plain_ranks


def without(package, code):
    """Run code in a fresh Python that cannot import a package; its output and its warnings."""
    hide = f"import sys; sys.modules[{package!r}] = None\n"
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    result = subprocess.run(
        [sys.executable, "-c", hide + code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


COMPILED = """
import numpy as np
import chainrule
from chainrule import optim

def loss(params, x):
    return sum((w * x).tanh() for w in params["w"])

fast = chainrule.compile(loss, lift=True)
params = {"w": np.linspace(-1.0, 2.0, 300)}
eager = chainrule.value_and_grad(loss)(params, 0.5)
for _ in range(3):
    value, gradient = fast.value_and_grad(params, 0.5)
    assert value == eager[0] and (gradient["w"] == eager[1]["w"]).all()
batch = fast.batch_value_and_grad(params, [(0.5,), (0.5,)])
assert abs(batch[0] - value) < 1e-12
before = params["w"].copy()
losses = fast.train(params, [(0.5,)], optim.SGD(params, lr=0.1), steps=1)
assert np.allclose(params["w"], before - 0.1 * gradient["w"], rtol=0, atol=1e-15)
print(fast.report())
"""


def test_without_llvmlite_compiled_functions_run_on_the_tape_and_say_why():
    report, warned = without("llvmlite.binding", COMPILED)
    line = "llvmlite is not installed, so there is no machine code, only the tape: "
    line += "pip install llvmlite"
    assert f"not lifted: {line}\n" in report
    assert warned.count(f"UserWarning: {line}\n") == 1


DRAWN = """
import chainrule
from chainrule import Value

a, b = Value(2.0, label="a"), Value(3.0, label="b")
loss = (a * b + a).tanh() * a
svg = chainrule.draw(loss).svg
assert svg.count("<rect") >= 6
assert len(chainrule.explore(loss).html) > 10_000
print(chainrule.draw(loss).dot)
"""


def test_without_fast_sugiyama_drawings_have_a_simpler_layout():
    dot, warned = without("fast_sugiyama", DRAWN)
    assert dot.startswith("digraph")
    assert (
        warned.count("UserWarning: fast-sugiyama is not installed, so drawings are laid out") == 1
    )


def test_the_simpler_layout_puts_every_box_after_its_operands_and_nothing_on_one_place():
    rng = random.Random(0)
    for _ in range(50):
        count = rng.randint(2, 30)
        edges = {(rng.randrange(n), n) for n in range(1, count) for _ in range(rng.randint(1, 3))}
        rank, across, bends = plain_ranks(count, sorted(edges))
        assert all(rank[source] < rank[target] for source, target in edges)
        places = [(rank[n], across[n]) for n in range(count)]
        for (source, target), way in bends.items():
            assert len(way) == rank[target] - rank[source] - 1
            places += [(rank[source] + 1 + i, at) for i, at in enumerate(way)]
        assert len(places) == len(set(places))
        assert bends.keys() == edges
