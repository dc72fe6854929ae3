"""The page's engine without a browser: its scripts under node, for tests that compare numbers."""

import json
import shutil
import subprocess
from importlib import resources

import pytest

from chainrule.core import ops
from chainrule.see.page import ENGINE
from chainrule.see.page.javascript import write_rules

NODE = shutil.which("node")

SETUP = """
"use strict";
const exactText = (xs) => Array.from(xs, repr);
const lines = require("fs").readFileSync(0, "utf8").split("\\n");
"""


def engine_source(rows=None):
    """What computes, as one script."""
    files = resources.files("chainrule.see.page").joinpath("script")
    parts = [files.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in ENGINE]
    rules, _ = write_rules(list(ops.TABLE.values()) if rows is None else rows)
    return "\n".join([rules, *parts])


def in_node(jobs, body):
    """``body`` is a JavaScript function's, given each job as ``job``; what it returns, as a list."""
    if NODE is None:
        pytest.skip("needs node")
    program = "\n".join(
        [
            SETUP,
            engine_source(),
            f"const work = (job) => {{ {body} }};",
            "for (const line of lines) if (line) console.log(JSON.stringify(work(JSON.parse(line))));",
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
      const view = makeView(graph, job.views[0], 0);
      const film = makeFilm(graph, view, computeAll(graph));
      return Array.from({ length: film.length }, (_, at) => {
        const { stage, box, headline, lines, exact, child, event } = frameAt(film, at);
        const total = event && event.kind === "add" && event.total !== null ? repr(event.total) : null;
        return { stage, box, headline, lines, exact, child, total };
      });
    """
    return in_node([page.program[1] for page in pages], body)
