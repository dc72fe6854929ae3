"""Run the notebooks of examples/ and keep what they print and draw.

python tools/make_notebooks.py [FOLDER]: after changing a cell, or what chainrule shows. With a
folder, the results go there. The tests run the notebooks again and compare what they print.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(file):
    """The notebook with the results of a fresh run; an error in a cell is raised."""
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran: different every time
    notebook.metadata.pop("language_info", None)
    return notebook


def main(folder=EXAMPLES):
    for file in sorted(EXAMPLES.glob("*.ipynb")):
        nbformat.write(run(file), Path(folder) / file.name)
        print(f"wrote {file.name}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
