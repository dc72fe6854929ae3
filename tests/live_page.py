"""For the tests of the page: graphs to show, a browser, and the page's engine under node."""

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from chainrule import Value
from chainrule.core import ops
from chainrule.see.page import ENGINE
from chainrule.see.page.javascript import write_rules

NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parents[1] / "screenshots"
DESKTOP = {"width": 1360, "height": 820}
PHONE = {"width": 390, "height": 844}
SLIDE = {"width": 800, "height": 450}
LANDSCAPE = {"width": 844, "height": 390}


def exercise():
    """The C# chapter's: a is used twice."""
    a, b = Value(2.0, label="a"), Value(3.0, label="b")
    c = a * b
    c.label = "c"
    loss = c + a
    loss.label = "L"
    return loss


def neuron():
    x1, x2 = Value(2.0, label="x1"), Value(0.0, label="x2")
    w1, w2 = Value(-3.0, label="w1"), Value(1.0, label="w2")
    n = x1 * w1 + x2 * w2 + Value(6.8813735870195432, label="b")
    n.label = "n"
    return n.tanh()


def everything():
    """Both edges of x + x, a zero gradient, constants, relu on either side, a rounded number."""
    x, y = Value(0.1, label="x"), Value(-1.7, label="y")
    doubled = x + x
    return (doubled * 3 - y / 7).relu() + (y * x).relu() * 5 + (doubled**2).exp()


EXACT_TEXT = "(xs) => Array.from(xs, repr)"  # numbers that survive JSON
SETUP = f"""
"use strict";
const exactText = {EXACT_TEXT};
const lines = require("fs").readFileSync(0, "utf8").split("\\n");
"""


def engine_source(rows=None):
    """What computes, as one script."""
    files = resources.files("chainrule.see.page").joinpath("script")
    parts = [files.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in ENGINE]
    rules, _ = write_rules(list(ops.TABLE.values()) if rows is None else rows)
    return "\n".join([rules, *parts])


def in_node(jobs, body):
    """What ``body``, the body of a JavaScript function, returns for each ``job``."""
    if NODE is None:
        pytest.skip("needs node")
    program = "\n".join(
        [
            SETUP,
            engine_source(),
            f"const work = (job) => {{ {body} }};",
            "for (const line of lines.filter(Boolean))",
            "  console.log(JSON.stringify(work(JSON.parse(line))));",
        ]
    )
    text = "\n".join(json.dumps(job) for job in jobs)
    done = subprocess.run(
        [NODE, "--input-type=commonjs", "-e", program],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.stderr, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def films(pages):
    """For each page, every frame of the whole graph's film."""
    body = """
      const graph = makeGraph(job.graph);
      const view = makeView(graph, job.views, 0);
      const film = makeFilm(graph, view, computeAll(graph));
      return Array.from({ length: film.length }, (_, at) => {
        const { stage, box, headline, lines, exact, child, event } = frameAt(film, at);
        const isSum = event && event.kind === "add" && event.total !== null;
        const total = isSum ? repr(event.total) : null;
        return { stage, box, headline, lines, exact, child, total };
      });
    """
    return in_node([page.program[1] for page in pages], body)
