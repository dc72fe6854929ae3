"""A GPT built from scalars: train it, keep it, sample from it, look inside.

``model`` is the GPT, to be read first; ``config``, ``tokenizer`` and ``data`` are what it is made
for; ``engines`` take the steps of ``training``; ``checkpoints`` and ``metrics`` are its files;
``sampling``, ``passages``, ``inspection`` and ``charts`` show what came of it.

>>> from chainrule import gpt
>>> run = gpt.Run.start(gpt.names(), gpt.Config(width=4, heads=1, block=4, steps=1))
>>> rows = gpt.train(run)
>>> 3.0 < rows[0].loss < 3.6
True
"""

from chainrule.gpt.checkpoints import Checkpoint, load, save
from chainrule.gpt.choice import Choice
from chainrule.gpt.config import PRESETS, Config
from chainrule.gpt.data import Data, names, read_documents, read_lines
from chainrule.gpt.devices import Devices, join_cluster
from chainrule.gpt.errors import GPTError
from chainrule.gpt.inspection import Inspection, inspect
from chainrule.gpt.metrics import Row, Rows
from chainrule.gpt.model import GPT, Cache
from chainrule.gpt.passages import passage, pieces
from chainrule.gpt.sampling import documents, generate, new_documents
from chainrule.gpt.tokenizer import Tokenizer, WordTokenizer
from chainrule.gpt.training import Run, RunFolder, train

__all__ = [
    "GPT",
    "Cache",
    "Config",
    "PRESETS",
    "Tokenizer",
    "WordTokenizer",
    "Data",
    "names",
    "read_documents",
    "read_lines",
    "Run",
    "RunFolder",
    "Devices",
    "join_cluster",
    "Row",
    "Rows",
    "train",
    "Checkpoint",
    "save",
    "load",
    "Choice",
    "generate",
    "documents",
    "new_documents",
    "passage",
    "pieces",
    "Inspection",
    "inspect",
    "GPTError",
]
