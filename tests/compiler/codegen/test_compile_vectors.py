"""Machine code for processors with narrower vectors, and for arm64: the same numbers.

``CHAINRULE_VECTOR_BITS`` makes code as for an older x86-64 processor: 128 is its first generation,
without fused multiply-adds; 256 has AVX2. Each runs in a process of its own. For arm64, whose
vectors have 128 bits, everything that was emitted is compiled, though it cannot run here.
"""

import json
import os
import platform
import subprocess
import sys

import pytest

pytest.importorskip("llvmlite")

import llvmlite.binding as llvm

from chainrule.compiler.codegen import jit

ENOUGH = 20  # programs, for a test to say something about them all

SCRIPT = r"""
import json, sys
import numpy as np
import chainrule
from chainrule import compile, gpt, value_and_grad, vsum
from chainrule.compiler.codegen import jit
from chainrule.compiler.runtime.ledger import allowance
from chainrule.core import ops

allowance.left = float("inf")  # everything is recorded and built at once
texts, made = [], jit.Library.__init__

def remember(library, text):
    texts.append(text)
    made(library, text)

jit.Library.__init__ = remember
names = [n for n, op in ops.TABLE.items() if op.arity == 1 and not op.parameters]
rng, worst = np.random.default_rng(0), {"float64": 0.0, "float32": 0.0}
lifted = 0

def compare(dtype, found, wanted):
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    error = np.max(np.abs(found - wanted) / (1e-3 + np.abs(wanted)))
    worst[dtype] = max(worst[dtype], float(error))

for dtype in worst:
    for name in names:
        f = getattr(chainrule, name, None) or (lambda x, op=ops.TABLE[name]: op(x))
        xs = rng.uniform(1.05, 1.9, 19) if name == "acosh" else rng.uniform(0.1, 0.9, 19)
        xs = xs.astype(dtype).astype(float)

        def total(xs):
            return vsum([f(x) * x for x in xs])

        fast = compile(total, dtype=dtype, lift=True, on_fallback="eager")
        for _ in range(2):
            y, g = fast.value_and_grad(xs)
        wanted, slopes = value_and_grad(total)(xs)
        compare(dtype, [y], [wanted])
        compare(dtype, g, slopes)
        lifted += "machine code" in str(fast.report())

    def layer(params, xs):
        return vsum([vsum([w * x for w, x in zip(row, xs)]).tanh() for row in params])

    params = rng.normal(size=(13, 11)).astype(dtype).astype(float)
    xs = rng.normal(size=11).astype(dtype).astype(float)
    fast = compile(layer, dtype=dtype, lift=True)
    for _ in range(2):
        y, g = fast.value_and_grad(params, xs)
    wanted, slopes = value_and_grad(layer)(params, xs)
    compare(dtype, [y], [wanted])
    compare(dtype, g, slopes)

config = gpt.Config(width=12, heads=3, block=7, steps=6, batch=2)
words = ["anna", "bobby", "clara", "eve", "dora", "ada", "abel"]
losses = {}
for engine, dtype in (("eager", "float64"), ("compiled", "float64"), ("compiled", "float32")):
    run = gpt.Run.start(words, config, engine=engine, dtype=dtype)
    losses[engine, dtype] = [row.loss for row in gpt.train(run)]
for dtype in worst:
    compare(dtype, losses["compiled", dtype], losses["eager", "float64"])
json.dump({"worst": worst, "lifted": lifted, "texts": texts}, sys.stdout)
"""


def outcome(bits):
    environment = {k: v for k, v in os.environ.items() if k != jit.VECTOR_BITS}
    if bits:
        environment[jit.VECTOR_BITS] = bits
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def narrow():
    """What code for 128 bits gave: the same IR is arm64's."""
    return outcome("128")


def agrees(found):
    assert found["lifted"] > ENOUGH, "most of it must be machine code"
    assert found["worst"]["float64"] < 1e-9
    assert found["worst"]["float32"] < 1e-3


def widest(found):
    """How many bits the widest vector of doubles in the code has."""
    text = "\n".join(found["texts"])
    return 64 * max(w for w in (1, 2, 4, 8) if w == 1 or f"<{w} x double>" in text)


x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the switch is for x86-64"
)


@x86
def test_vectors_of_128_bits_give_the_same_numbers(narrow):
    agrees(narrow)
    assert widest(narrow) == 128


@x86
@pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx2"), reason="no AVX2 here")
def test_vectors_of_256_bits_give_the_same_numbers():
    found = outcome("256")
    agrees(found)
    assert widest(found) == 256


def test_vectors_of_this_machine_give_the_same_numbers():
    found = outcome("")
    agrees(found)
    assert widest(found) == 64 * jit.vector_width()


@x86
@pytest.mark.parametrize(
    ("triple", "cpu"),
    [("aarch64-unknown-linux-gnu", "generic"), ("arm64-apple-darwin", "apple-m1")],
)
def test_the_code_compiles_for_arm64(narrow, triple, cpu):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2)
    assert len(narrow["texts"]) > ENOUGH
    vectors = 0
    for text in narrow["texts"]:
        assert "llvm.x86" not in text
        module = llvm.parse_assembly(text)
        module.triple = triple
        module.verify()
        assert machine.emit_object(module)
        if vectors <= ENOUGH:  # assembly takes as long again
            vectors += ".2d" in machine.emit_assembly(module)
    assert vectors > ENOUGH, "the code uses vectors of two doubles"
