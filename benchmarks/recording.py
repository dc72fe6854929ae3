"""What the first call of a compiled function takes: seconds and memory, by the size of the program.

.venv/bin/python benchmarks/recording.py                   # all sections, some minutes
.venv/bin/python benchmarks/recording.py gpt --most 2e7    # one section, larger models
.venv/bin/python benchmarks/recording.py sizes --most 2e7  # beside code built from small sizes
"""

import argparse
import random
import resource

import numpy as np
import programs
from harness import clock, figure, fresh_process, resident_bytes, table, title
from idiom_programs.geometry import bundle_index_arrays

import chainrule
from chainrule.compiler.training.function import TrainableFunction
from chainrule.gpt import GPT, Config

MOST = 2_500_000  # instructions of the largest program, unless told otherwise
VOCABULARY = 27
EACH = {"mixture": 102, "option": 124, "bundle": 75}  # instructions for one
WORDS = {"mixture": "points", "option": "paths", "bundle": "observations"}
LARGEST = {"mixture": 100_000, "option": 100_000, "bundle": 8_000}


def gpt(width, layers, block):
    """The loss of a text as long as the model takes, as ``chainrule train`` compiles it."""
    config = Config(width=width, heads=4, layers=layers, block=block)
    weights = GPT(config, VOCABULARY, random.Random(1)).arrays()

    def loss(weights, tokens):
        return GPT.of(config, weights).loss(tokens)

    rng, end = random.Random(0), VOCABULARY - 1
    return loss, (weights, [end, *[rng.randrange(end) for _ in range(block - 1)], end])


def gpt_of_any_size(layers):
    """The same for any width and block, and what makes small examples of it."""
    config = Config(width=4, heads=4, layers=layers)

    def loss(weights, tokens):
        width, block = len(weights["head"][0]), len(weights["position_embedding"])
        return GPT.of(config.replace(width=width, block=block), weights).loss(tokens)

    def example(size=3, length=5, block=9):
        rng, small = np.random.default_rng(0), config.replace(width=4 * size, block=block)
        shapes = small.shapes(VOCABULARY).items()
        weights = {name: rng.normal(0, 0.1, shape) for name, shape in shapes}
        return weights, rng.integers(0, VOCABULARY, length).tolist()

    return loss, example


def mixture(points):
    made = programs.mixture(points, components=5, dimensions=2)
    return made.loss, (made.params, *made.samples[0])


def option(paths):
    made = programs.option(paths, steps=20)
    return made.loss, (made.params, *made.samples[0])


def bundle(observations):
    """Bundle adjustment: which camera saw which point is two arrays of integers."""
    rng = np.random.default_rng(0)
    cameras = rng.normal(size=(20, 6)) * 0.1 + [0, 0, 0, 0, 0, 4.0]
    params = {"cams": cameras, "points": rng.normal(size=(500, 3)) * 0.5}
    seen = rng.normal(size=(observations, 2)) * 0.2
    which = [rng.integers(count, size=observations) for count in (20, 500)]
    return bundle_index_arrays, (params, *which, seen)


def points_of_any_size(points=11):
    return mixture(points)[1]


def paths_of_any_size(paths=11):
    return option(paths)[1]


MAKERS = {"gpt": gpt, "mixture": mixture, "option": option, "bundle": bundle}
EXAMPLES = {"mixture": points_of_any_size, "option": paths_of_any_size}


def variants_of(fast):
    structures = fast.dispatch.structures.values()
    return [variant for structure in structures for variant in structure.variants]


def first_call(name, sizes):
    """(instructions, seconds, bytes at the peak, bytes before) of the first call."""
    function, arguments = MAKERS[name](*sizes)
    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    before, begin = resident_bytes(), clock()
    fast.value_and_grad(*arguments)
    seconds = clock() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return max(len(v.recording) for v in variants_of(fast)), seconds, peak, before


def from_small_sizes(name, sizes):
    """The same where the code is built from recordings at small sizes."""
    function, arguments = MAKERS[name](*sizes)
    if name == "gpt":
        function, example = gpt_of_any_size(sizes[1])
    else:
        example = EXAMPLES[name]
    fast = chainrule.compile(function, sizes=example, on_fallback="raise")
    before, begin = resident_bytes(), clock()
    fast.value_and_grad(*arguments)
    seconds = clock() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert "built from formulas" in fast.report()
    return None, seconds, peak, before


def every_length(width, layers, block):
    """(instructions of all lengths, seconds, bytes at the peak, before, and kept)."""
    function, (weights, tokens) = gpt(width, layers, block)
    fast = chainrule.compile(function, lift=True, on_fallback="raise")
    trained, total = TrainableFunction(fast.dispatch), 0
    before, begin = resident_bytes(), clock()
    for length in range(len(tokens), 2, -1):
        trained.value_and_grad(weights, tokens[:length])
        total += len(variants_of(fast)[-1].recording)
    seconds = clock() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return total, seconds, peak, before, resident_bytes()


def row(text, found):
    count, seconds, peak, before, *kept = found
    return [
        text,
        f"{count:,}",
        figure(seconds),
        figure(peak, 1e-6, 0),
        *[figure(x, 1e-6, 0) for x in kept],
        figure((peak - before) / count, digits=0),
        figure(seconds / count, 1e6),
    ]


HEADERS = ["instructions", "seconds", "MB at most", "bytes each", "µs each"]


def instructions(width, layers, block):
    """About how many a GPT has."""
    return block * (layers * (24 * width**2 + 5 * width * block) + 2 * VOCABULARY * width)


def models(most):
    title("The first call of a GPT's loss, each in a process of its own")
    rows = []
    for width in (16, 32, 64, 128):
        for layers in (1, 2, 4):
            for block in (16, 32, 64, 128):
                sizes = (width, layers, block)
                if instructions(*sizes) <= most:
                    text = f"width {width}, layers {layers}, block {block}"
                    rows.append(row(text, fresh_process(first_call, "gpt", sizes)))
    table(["model", *HEADERS], rows)


def lengths(most):
    title("A GPT of width 16 called with every length of text, from the longest on")
    rows = []
    for block in (16, 32, 64, 128):
        if instructions(16, 1, block) <= most:
            rows.append(row(f"block {block}", fresh_process(every_length, 16, 1, block)))
    table(["model", *HEADERS[:3], "MB after", *HEADERS[3:]], rows)


def engineers(most):
    title("The first call of three programs over many data")
    rows = []
    for name, largest in LARGEST.items():
        for count in (largest // 25, largest // 5, largest):
            if count * EACH[name] <= most:
                found = fresh_process(first_call, name, (count,))
                rows.append(row(f"{name}, {count:,} {WORDS[name]}", found))
    table(["program", *HEADERS], rows)


def unrecorded(most):
    title("The first call, recorded and from recordings at small sizes")
    rows = []
    for name, sizes in (
        ("gpt", (32, 2, 32)),
        ("gpt", (64, 4, 32)),
        ("gpt", (128, 4, 64)),
        ("mixture", (20_000,)),
        ("mixture", (100_000,)),
        ("option", (20_000,)),
        ("option", (100_000,)),
    ):
        count = instructions(*sizes) if name == "gpt" else EACH[name] * sizes[0]
        if count <= 10 * most:
            found = [fresh_process(from_small_sizes, name, sizes)]
            found += [fresh_process(first_call, name, sizes)] if count <= most else []
            cells = [x for _, s, peak, _ in found for x in (figure(s), figure(peak, 1e-6, 0))]
            text = "width {}, layers {}, block {}".format(*sizes) if name == "gpt" else ""
            text = text or f"{name}, {sizes[0]:,} {WORDS[name]}"
            rows.append([text, *cells, *["-"] * (4 - len(cells))])
    table(["program", "seconds", "MB at most", "recorded: seconds", "MB at most"], rows)


SECTIONS = {"gpt": models, "lengths": lengths, "engineers": engineers, "sizes": unrecorded}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--most", type=float, default=MOST, help="instructions of a program")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments.most)


if __name__ == "__main__":
    main()
