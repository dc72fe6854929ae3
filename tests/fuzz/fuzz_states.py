"""Random functions that return what they are passed, or change it, called plainly.

``python tests/fuzz/fuzz_states.py --programs 300 --seed 1`` writes small functions of a state (a
dict with lists, a deque, an array and an object in it), calls each a few times, eagerly and
compiled, with arguments of which some are one object, and says where results, arguments, or which
objects these are, differ.
"""

import argparse
import copy
import math
import random
import sys
import types
import warnings
from collections import deque
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from handed_trees import picture

import chainrule
from chainrule.compiler.runtime.ledger import allowance

CALLS = 10
STATEMENTS = """
s["h"] = [tanh(a * b) for a, b in zip(p, s["h"])]
s["h"][t % 3] = p[0] * x[1]
s["h"][0] = s["h"][0] + p[1]
s["h"], s["keys"] = [a + b for a, b in zip(x, p)], s["keys"] + [s["h"]]
s["keys"].append([a * b for a, b in zip(p, x)])
s["keys"] = s["keys"] + [x]
s["keys"] = [*s["keys"][-2:], [a * 2 for a in x]]
s["keys"].insert(0, list(x))
s["keys"].reverse()
s["keys"][:] = s["keys"][-2:]
s["keys"].extend([e, x])
s["n"] += 1
s["n"] = s["n"] * 2 + t
s["q"].append(x[0] * p[0])
s["q"].append(s["q"].popleft())
s["q"].rotate(1)
s["q"] = deque([v * 2 for v in s["q"]], maxlen=s["q"].maxlen)
s["a"][1] = p[0] * s["a"][0]
s["a"][t % 3] = x[2]
s["a"] = s["a"] * 0.5
s["a"] += p[1]
s["a"] = np.concatenate([s["a"][1:], [p[0] * x[0]]])
s["o"].total = s["o"].total + p[0]
s["o"].items.append(x[t % 3])
s["o"].last = s["h"]
e.append(p[2] * 2)
e[0] = e[0] * p[0]
s["new"] = e
s["one"] = (s["h"], y)
s.setdefault("seen", []).append(t)
x[0] = x[0] + y
before = e[0]; e[0] = y; y = y + x[0] + sum(s["h"]); e[0] = before
if x[0] > 0.5: s["keys"].append(e)
if t > 1: e.append(y)
for k in range(len(s["h"])): s["h"][k] = s["h"][k] * p[k]
y = y + sum(s["h"])
y = y + sum(k[0] for k in s["keys"])
y = y + e[-1] * s["a"][0]
y = y + len(s["keys"]) + s["n"]
y = y + s["o"].total + max(s["q"])
y = y + float(s["a"].sum())
""".strip().splitlines()
RETURNS = """
y
y, s
y, s["h"], s["keys"]
s
None
{"y": y, "h": s["h"], "same": s["h"]}
y, [e, e], x
s["keys"][-1] if s["keys"] else e
s["n"], s["q"]
s["o"], s["a"]
[y, *s["h"]], (s, e)
tuple(s["keys"])
y, s["keys"][t % 2 if len(s["keys"]) > 1 else 0] if s["keys"] else None
""".strip().splitlines()


class Thing:
    """An object with numbers in it."""

    def __init__(self, rng):
        self.total = rng.uniform(-1, 1)
        self.items = [rng.uniform(-1, 1) for _ in range(rng.randrange(2))]


def source(rng):
    """A function of parameters, an input, a token, a state and a list."""
    lines = ["y = p[0] * x[0]", *rng.sample(STATEMENTS, rng.randrange(1, 7))]
    return "\n    ".join(["def f(p, x, t, s, e):", *lines, f"return {rng.choice(RETURNS)}"])


def function(text):
    module = types.ModuleType("fuzz_state")
    names = {"np": np, "deque": deque, "tanh": chainrule.tanh, "math": math}
    module.__dict__.update(names)
    exec(compile(text, "fuzz_state.py", "exec"), module.__dict__)
    return module.f


def numbers(rng, count):
    return [rng.choice([0.0, 1.0, rng.uniform(-2, 2)]) for _ in range(count)]


def state(rng):
    """What a function may have been left with."""
    q = deque(numbers(rng, rng.randrange(1, 3)), maxlen=rng.choice([None, 2, 3]))
    keys = [numbers(rng, 3) for _ in range(rng.randrange(4))]
    rest = {"n": rng.randrange(5), "q": q, "a": np.array(numbers(rng, 3)), "o": Thing(rng)}
    return {"h": numbers(rng, 3), "keys": keys, **rest}


def arguments(rng, s):
    """A call: some of its lists are one."""
    p, x, e = numbers(rng, 3), numbers(rng, 3), numbers(rng, rng.randrange(1, 4))
    way = rng.randrange(12)
    if way == 0:
        e = s["h"]
    elif way == 1 and s["keys"]:
        e = s["keys"][0]
    elif way == 2:
        x = s["h"]
    elif way == 3:
        x = e = p
    elif way == 4:
        s["keys"] += [s["h"], e]
    elif way == 5:
        s["o"].items = e
    elif way == 6:
        s["a"] = np.arange(6.0)[::2]
    elif way == 7:
        s["a"].flags.writeable = False
    elif way == 8:
        s["view"] = s["a"][:2]
    return [p, x, rng.randrange(4), s, e]


def outcome(f, given):
    """What a call did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = f(*given)
        except Exception as error:
            return None, (type(error).__name__, str(error)), picture(given)
    return result, None, picture(given, result)


def difference(seed):
    """Where the program of this seed differs, in words, or None; and how many calls it replayed."""
    rng = random.Random(seed)
    text = source(rng)
    f = function(text)
    lift = rng.choice([None, False, True])
    fast = chainrule.compile(f, on_fallback="eager", lift=lift)
    pair = [state(rng)] * 2
    for k in range(CALLS):
        if rng.random() < 0.4 or not isinstance(pair[0], dict):
            pair = [state(rng)] * 2
        given = arguments(rng, pair[0])
        writeable = given[3]["a"].flags.writeable
        both = [copy.deepcopy(given), copy.deepcopy(given)]
        for one in both:  # which copying makes anew
            one[3]["a"].flags.writeable = writeable
            if "view" in one[3]:
                one[3]["view"] = one[3]["a"][:2]
        found = [outcome(g, one) for g, one in zip((fast, f), both, strict=True)]
        if found[0][1:] != found[1][1:]:
            return f"call {k} of\n{text}\n  eager:    {found[1]}\n  compiled: {found[0]}", fast
        pair = [one[3] for one in both]
        if not all(len(s["keys"]) < 8 and len(s["q"]) < 8 and abs(s["n"]) < 2**40 for s in pair):
            pair = [None, None]
    return None, fast


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    allowance.left = math.inf  # recorded at the first call, whatever that costs
    bad = replayed = eager = 0
    for seed in range(options.seed, options.seed + options.programs):
        found, fast = difference(seed)
        calls = fast.report().splitlines()[1]
        replayed += int(calls.split(": ")[1].split()[0])
        eager += int(calls.split(", ")[1].split()[0])
        if found is not None:
            bad += 1
            print(f"seed {seed}: {found}\n")
    print(f"{options.programs} programs, {bad} differ; {replayed} calls replayed, {eager} eager")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
