"""The page of ``explore`` with thousands of nodes: its size, how soon it is there, a step.

    python benchmarks/page.py           # 5,000 nodes
    python benchmarks/page.py 20000     # about as many

Needs playwright and a chromium that is installed. A step is timed in the page itself, from the key
to the frame after it, and the minimum and the median over all steps are printed.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from chainrule import Value, explore, topological_order

STEPS = 60
TIMED_STEP = """(key) => new Promise((done) => {
  const began = performance.now();
  document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  requestAnimationFrame(() => {
    const channel = new MessageChannel();  // after the frame was drawn
    channel.port1.onmessage = () => done(performance.now() - began);
    channel.port2.postMessage(0);
  });
})"""


def network(nodes):
    """A network of about so many nodes, weights and all."""
    width = max(2, round((nodes / 8) ** 0.5))
    xs = [Value(0.1 * i, label=f"x{i}") for i in range(width)]
    for layer in range(2):
        xs = [
            sum(
                (Value(0.01 * (i - j), label=f"w{layer}[{i},{j}]") * x for j, x in enumerate(xs)),
                Value(0.0),
            ).tanh()
            for i in range(width)
        ]
    return sum(xs, Value(0.0))


def main(nodes=5_000):
    v = network(nodes)
    count = len(topological_order(v))
    began = time.perf_counter()
    page = explore(v, limit=10 * nodes)
    made = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        page.save(path)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        opened = []
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1360, "height": 820})
            began = time.perf_counter()
            tab.goto(path.as_uri())
            tab.wait_for_selector("svg.graph .cr-node")
            opened.append(time.perf_counter() - began)
        steps = [tab.evaluate(TIMED_STEP, "ArrowRight") for _ in range(STEPS)]
        assert tab.evaluate("Number(document.getElementById('scrub').value)") == STEPS
        size = path.stat().st_size
        browser.close()
    print(f"{count:,} nodes: page {size / 1e6:.2f} MB, made in {made:.2f} s")
    print(f"opened in {min(opened):.2f} s (the first time {opened[0]:.2f})")
    print(f"a step: {min(steps):.1f} ms, median {statistics.median(steps):.1f}, of {STEPS}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
