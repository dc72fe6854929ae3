"""microgpt, compiled: the weights are arrays, and whole training steps run without Python.

The model is the scalar one of chainrule.gpt, written in plain Python. ``compile`` records it as a
function of arrays, ``train`` takes the steps in place. The losses are those of microgpt.py.
Run: python microgpt_compiled.py [STEPS]
"""

import random
import sys
import time

import chainrule
from chainrule import gpt, optim

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
rng = random.Random(42)
names = gpt.names()
rng.shuffle(names)
tokenizer = gpt.Tokenizer.of(names)
config = gpt.Config(steps=steps)
model = gpt.GPT(config, tokenizer.size, rng)
weights = model.arrays()


@chainrule.compile
def loss(weights, tokens):
    return gpt.GPT.of(config, weights).loss(tokens)


def show(losses, step):
    recent = losses[-100:].mean()
    print(f"step {step:4d} / {steps:4d}  loss {recent:.4f}  {time.perf_counter() - began:5.1f} s")


samples = [(tokenizer.encode(name),) for name in names[:steps]]
optimiser = optim.Adam(weights, lr=config.learning_rates(), betas=(config.beta1, config.beta2))
began = time.perf_counter()
losses = loss.train(weights, samples, optimiser, steps, callback=show)
print(f"first loss {losses[0]}, last {losses[-1]}")

model.load_arrays(weights)
for name in gpt.new_documents(model, tokenizer, rng, set(names), 20):
    print(name)
