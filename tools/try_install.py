"""Try an installed chainrule as a stranger would: ``python try_install.py ENGINE VERSION``.

Gradients, machine code, a drawing, a page and the command line must work, from any folder and
without anything of the repository.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import chainrule
from chainrule import Value

engine, expected = sys.argv[1:]
assert chainrule.engine == engine, chainrule.engine
assert chainrule.__version__ == version("chainrule") == expected, version("chainrule")

a, b = Value(2.0, label="a"), Value(3.0, label="b")
loss = a * b + a
loss.backward()
assert (a.grad, b.grad) == (4.0, 2.0)
assert "4.0" in str(chainrule.explain(loss))

fast = chainrule.compile(lambda xs: sum(x * x for x in xs), lift=True)
value, gradient = fast.value_and_grad([1.0, 2.0, 3.0])
assert (value, gradient) == (14.0, [2.0, 4.0, 6.0])
assert "lifted" in fast.report(), fast.report()

with tempfile.TemporaryDirectory() as folder:
    for name in ("graph.svg", "graph.png", "page.html"):
        show = chainrule.explore if name.endswith("html") else chainrule.draw
        show(loss).save(Path(folder, name))
        assert Path(folder, name).stat().st_size > 500
    command = [
        sys.executable,
        "-m",
        "chainrule",
        "train",
        "--steps",
        "2",
        "--samples",
        "1",
        "-o",
        "run",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
print(f"chainrule {expected}, {engine} engine, Python {sys.version.split()[0]}: works")
