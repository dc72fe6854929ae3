"""Make the pictures of the README and of docs/, and the tables of docs/backward-pass.md.

python tools/make_pictures.py           write them
python tools/make_pictures.py --check   only say which are out of date, exit status 1 if any is
"""

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from chainrule import Value, topological_order
from chainrule.see.drawing import draw
from chainrule.see.drawing.picture import Box, Picture, Wire, make_picture
from chainrule.see.drawing.svg import write_svg
from chainrule.see.explanation import explain
from chainrule.see.expressions import parse
from chainrule.see.names import name_nodes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "backward-pass.md"
PICTURES = ROOT / "docs" / "pictures"
# Drawn from what benchmarks/growth.py and benchmarks/shakespeare.py measured.
MEASURED = ("first-calls.svg", "shakespeare.svg")
LINE = 24  # of notation below a drawing

sys.path.insert(0, str(ROOT / "tests"))
from big_graphs import gpt_model, mlp_output  # noqa: E402


def exercise():
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    c = a * b
    c.label = "c"
    loss = c + a
    loss.label = "L"
    return loss


def neuron():
    x1, x2 = Value(2.0, label="x1"), Value(0.0, label="x2")
    w1, w2 = Value(-3.0, label="w1"), Value(1.0, label="w2")
    b = Value(6.8813735870195432, label="b")
    n = x1 * w1 + x2 * w2 + b
    n.label = "n"
    o = n.tanh()
    o.label = "o"
    return o


def moment(v, turns):
    """The graph after some nodes have propagated their gradients, the last of them in colour."""
    order = topological_order(v)
    grads = [0.0] * len(order)
    grads[-1] = 1.0
    steps = explain(v).backward[:turns]
    for step in steps:
        for added in step.contributions:
            grads[added.child] = added.total
    picture = make_picture(order, name_nodes(order), grads=grads)
    svg = write_svg(picture)
    if not steps:
        return svg
    current = steps[-1].node
    lit = [n for n, wire in enumerate(picture.wires) if wire.target == current]
    selectors = ",".join(
        [f'[data-node="{current}"] .cr-frame', *(f'[data-edge="{n}"]' for n in lit)]
    )
    return svg.replace("</style>", f"{selectors}{{stroke:#b23a1e;stroke-width:2.5}}\n</style>")


def readme_example():
    """What the first Python block of the README defines."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    namespace = {}
    with redirect_stdout(StringIO()):
        exec(re.search(r"^```python\n(.*?)^```", text, flags=re.M | re.S)[1], namespace)
    return namespace


def lifted():
    """The graph of the README's loss, and below it the index notation that it became."""
    example = readme_example()
    function, rng = example["loss"], np.random.default_rng(0)
    params = {
        "W": [[Value(w, label="W") for w in row] for row in rng.normal(size=(8, 2)).tolist()],
        "v": [Value(v, label="v") for v in rng.normal(size=8).tolist()],
    }
    loss = function.__wrapped__(params, rng.normal(size=(50, 2)).tolist(), rng.normal(size=50))
    loss.label = "loss"
    svg = draw(with_gradients(loss)).svg
    heading, _, _, *formulas = function.report(stage="lifted").splitlines()
    return with_notation(svg, f"lifted to {heading}:", formulas)


def pipeline():
    """The stages of the compiler, with what each makes of the function in docs/how-it-works.md."""
    page = {}
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    with redirect_stdout(StringIO()):
        for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
            exec(block, page)
    recording, graph, program = page["recording"], page["graph"], page["program"]
    done = len(recording) - recording.inputs
    stages = [  # title, what makes it, where, how much there is, and of which stages
        ("function", "", "your code", f"{page['loss'].__code__.co_name}()", ()),
        ("Recording", "record", "capture/", f"{done} operations", (0,)),
        ("Graph", "canonicalise", "lift/", f"{len(graph) - graph.inputs} nodes", (1,)),
        ("Program", "group", "lift/", f"{len(program.instructions)} instructions", (2,)),
        ("index notation", "read", "formulas/", "for people", (3,)),
        ("machine code", "emit", "codegen/", "forward, reverse", (3,)),
        ("tape", "replay", "runtime/", "eager's bits", (1,)),
        ("answer", "call", "runtime/", "value, gradient", (5, 6)),
    ]
    boxes, wires = [], []
    for number, (title, made_by, folder, size, sources) in enumerate(stages):
        kind = "value" if sources else "input"
        if number == len(stages) - 1:
            kind = "output"
        words = f"{title}, made in {folder}: {size}"
        boxes.append(Box(number, kind, title, made_by, folder, size, (number,), 1, words))
        wires += [Wire(source, number, k) for k, source in enumerate(sources)]
    picture = Picture("the compiler", tuple(boxes), tuple(wires), len(boxes), len(wires))
    svg = write_svg(picture, "TB").replace(
        "The graph of the compiler", "The stages of the compiler"
    )
    svg = svg.replace(">data</text>", ">in</text>").replace(">grad</text>", "></text>")
    return re.sub("cr-number cr-(data|grad)", "cr-number", svg)


def with_notation(svg, heading, formulas):
    """A drawing with lines of index notation below it."""
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    taller = height + LINE * (len(formulas) + 1) + 6
    for old, new in ((height, taller), (height - 1, taller - 1)):
        svg = svg.replace(f' height="{old:g}"', f' height="{new:g}"')
    svg = svg.replace(f'viewBox="0 0 {width:g} {height:g}"', f'viewBox="0 0 {width:g} {taller:g}"')
    lines = [f'<text class="cr-note" x="24" y="{height + 8:g}">{heading}</text>']
    for place, line in enumerate(formulas, 1):
        text = escape(line).replace("  ", "\N{NO-BREAK SPACE} ")
        y = height + 8 + LINE * place
        lines.append(f'<text class="cr-name" x="24" y="{y:g}">{text}</text>')
    return svg.replace("</svg>", "\n".join([*lines, "</svg>"]))


def labelled(text, **inputs):
    """The graph of an expression, all of its variables labelled."""
    return parse(text, inputs)(**{name: Value(x, label=name) for name, x in inputs.items()})


def attention():
    """One number of what attention over two keys gives, its parts labelled."""

    def made(label, v):
        v.label = label
        return v

    query = [Value(1.0, label="q1"), Value(-0.5, label="q2")]
    keys = [[Value(1.0, label="k11"), Value(0.0, label="k12")]]
    keys += [[Value(0.5, label="k21"), Value(2.0, label="k22")]]
    values = [Value(3.0, label="value1"), Value(-1.0, label="value2")]
    scores = [
        made(f"score{i}", query[0] * key[0] + query[1] * key[1]) for i, key in enumerate(keys, 1)
    ]
    exps = [made(f"e{i}", score.exp()) for i, score in enumerate(scores, 1)]
    total = made("total", exps[0] + exps[1])
    shares = [made(f"share{i}", e / total) for i, e in enumerate(exps, 1)]
    return made("mixed", shares[0] * values[0] + shares[1] * values[1])


def moons():
    """The half-moons of the course, and what its network says about the rest of the plane."""
    page = {}
    for number in ("07-operations", "08-neuron", "09-network"):
        text = (ROOT / "docs" / "course" / f"{number}.md").read_text(encoding="utf-8")
        with redirect_stdout(StringIO()):
            for block in re.findall(r"^```python[^\n]*\n(.*?)^```", text, flags=re.M | re.S):
                exec(block, page)
    left, top, side, cells = -1.6, 1.4, 0.05, (84, 50)
    parts = []
    for row in range(cells[1]):
        y = top - (row + 0.5) * side
        answers = [
            page["network"]([left + (column + 0.5) * side, y]).data > 0
            for column in range(cells[0])
        ]
        start = 0
        for answer, run in groupby(answers):
            length = len(list(run))
            colour = "#c6dcff" if answer else "#ffd8b5"
            parts.append(
                f'<rect x="{start}" y="{row}" width="{length + 0.02}" height="1.02" '
                f'fill="{colour}"/>'
            )
            start += length
    for (x, y), target in zip(page["points"], page["targets"], strict=True):
        colour = "#1f6feb" if target > 0 else "#d1570a"
        parts.append(
            f'<circle cx="{(x - left) / side:.2f}" cy="{(top - y) / side:.2f}" r="0.9" '
            f'fill="{colour}" stroke="#fff" stroke-width="0.25"/>'
        )
    head = '<svg xmlns="http://www.w3.org/2000/svg" role="img" width="630" height="375" '
    head += f'viewBox="0 0 {cells[0]} {cells[1]}"><title>Half-moons and a network</title>'
    return "\n".join([head, *parts, "</svg>", ""])


def course():
    """The pictures of docs/course, one for each step that has one of its own."""
    product = labelled("c = a*b", a=2.0, b=3.0)
    moves = [
        "when a moves, c moves b = 3 times as much",
        "when b moves, c moves a = 2 times as much",
    ]
    return {
        "course-1.svg": draw(Value(2.0, label="a")).svg,
        "course-2.svg": draw(product).svg,
        "course-3.svg": with_notation(draw(product).svg, "local gradients:", moves),
        "course-4.svg": with_notation(draw(exercise()).svg, "a topological order:", ["a  b  c  L"]),
        "course-5.svg": draw(
            with_gradients(labelled("c = a*b; L = c + d", a=2.0, b=3.0, d=10.0))
        ).svg,
        "course-6.svg": draw(with_gradients(labelled("b = a + a", a=3.0))).svg,
        "course-7.svg": draw(
            with_gradients(labelled("c = a*b; e = c + d; f = relu(e)", a=2.0, b=-3.0, d=10.0))
        ).svg,
        "course-9.svg": moons(),
        "course-10.svg": draw(with_gradients(attention()), rankdir="TB").svg,
    }


def with_gradients(v):
    v.backward()
    return v


def pictures():
    x = Value(3.0, label="x")
    y = x + x
    y.label = "y"
    network = with_gradients(mlp_output(Value, [16, 32, 32, 4]))
    model, tokens = gpt_model()  # found here by draw, which calls its weights by their names
    loss = with_gradients(model.loss(tokens))
    loss.label = "loss"
    return course() | {
        "exercise.svg": draw(exercise()).svg,
        "backward-0.svg": moment(exercise(), 0),
        "backward-1.svg": moment(exercise(), 1),
        "backward-2.svg": moment(exercise(), 2),
        "double.svg": draw(with_gradients(y)).svg,
        "neuron.svg": draw(with_gradients(neuron())).svg,
        "layers.svg": draw(network).svg,
        "lifted.svg": lifted(),
        "pipeline.svg": pipeline(),
        "transformer.svg": draw(loss, rankdir="TB").svg,
    }


def page():
    """The page with its tables as `explain` prints them today."""
    stages = re.split(r"^(?:Stage \d:.*|Result)\n\n", str(explain(exercise())), flags=re.M)
    _, forward, sort, backward, _ = stages
    tables = {"forward": forward, "sort": sort, "backward": backward}

    def table(match):
        lines = tables[match[1]].rstrip().splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line)
        text = "\n".join(line[indent:] for line in lines)
        return f"<!-- generated: {match[1]} -->\n```text\n{text}\n```\n<!-- end -->"

    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"<!-- generated: (\w+) -->.*?<!-- end -->", table, text, flags=re.S)


def main():
    wanted = {PICTURES / name: svg for name, svg in pictures().items()} | {PAGE: page()}
    present = set(PICTURES.glob("*"))
    stale = [
        file
        for file, text in wanted.items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    stale += present - set(wanted) - {PICTURES / name for name in MEASURED}
    for file in stale:
        print(f"{'out of date' if '--check' in sys.argv else 'wrote'}: {file.relative_to(ROOT)}")
    if "--check" in sys.argv:
        return 1 if stale else 0
    PICTURES.mkdir(exist_ok=True)
    for file in stale:
        if file in wanted:
            file.write_text(wanted[file], encoding="utf-8")
        else:
            file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
