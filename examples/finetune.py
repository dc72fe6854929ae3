"""Fine-tuning: a model that has learned all names goes on with a few of one kind.

Run: python finetune.py DIR, where DIR is the folder of a run (chainrule train --output DIR). It
takes that model and its vocabulary, trains it on with a small learning rate on names that end in
"ette", "elle" and "ine", and saves it in DIR-finetuned. Any documents of the same letters would do.
"""

import random
import sys
from pathlib import Path

from chainrule import gpt


def finetune(directory: Path, steps: int = 200, rate: float = 0.003) -> Path:
    base = gpt.load(directory)
    documents = [name for name in gpt.names() if name.endswith(("ette", "elle", "ine"))]
    print(f"{base!r}; going on with {len(documents)} names")
    show("before", base)

    run = gpt.Run.start(
        documents,
        base.config.replace(steps=steps, learning_rate=rate),
        source="the names in -ette, -elle and -ine",
        tokenizer=base.tokenizer,
        weights=base.weights,
    )
    before = run.validation_loss()
    out = directory.with_name(f"{directory.name}-finetuned")
    gpt.train(run, out)
    print(f"validation loss {before:.4f} before, {run.validation_loss():.4f} after")
    show("after", gpt.load(out))
    return out


def show(when: str, checkpoint: gpt.Checkpoint) -> None:
    model, rng = checkpoint.model(), random.Random(1)
    names = [gpt.generate(model, checkpoint.tokenizer, rng) for _ in range(8)]
    print(f"{when}: {', '.join(names)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python finetune.py DIR [STEPS]")
    try:
        finetune(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
    except gpt.GPTError as error:
        sys.exit(str(error))
