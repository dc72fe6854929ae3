"""Random programs as C, under the compiler's sanitizers, beside eager mode.

    python tests/compiler/translate/c_fuzz.py --programs 100 --seed 0

Every program becomes an executable of its own, compiled with all warnings as errors and with
sanitizers for addresses and undefined behaviour. Arguments, results and working memory are
allocated to the byte, so that nothing beyond them is read or written unseen. Each call has to give
eager's value and gradient, or a status that says why not; the call it was translated for has to
give numbers.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import compiled_c
import numpy as np
from compile_programs import TAME, random_arguments, random_source
from structured_programs import Writer

import chainrule
from chainrule import TranslationError

VALUES = re.compile(r"\bValue\((-?[\d.]+)\)")
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CLOSE = 1e-11
UNSURE = 3  # a comparison so close that rounding decides
MAIN = """\
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *copy(const unsigned long long *bits, size_t count) {{
    void *made = malloc(8 * count);
    if (made == NULL) exit(99);
    memcpy(made, bits, 8 * count);
    return made;
}}

static void show(int status, const double *numbers, int count) {{
    printf("%d", status);
    for (int i = 0; i < count; i++) printf(" %a", numbers[i]);
    printf("\\n");
}}

{calls}
int main(void) {{
{run}    return 0;
}}
"""
CALL = """\
static void call{k}(void) {{
{inputs}    {name}_work *work = malloc(sizeof *work);
    double *value = malloc({values} * sizeof *value);
    void *grad = malloc({size} * sizeof *value); /* an array, or a structure of numbers */
    if (work == NULL || value == NULL || grad == NULL) exit(99);
    memset(work, 255, sizeof *work);
    int status = {name}_value({given}, work, value);
    show(status, value, status ? 0 : {values});
    memset(work, 255, sizeof *work);
    memset(grad, 255, {size} * sizeof *value);
    status = {name}_value_and_grad({given}, work, value, grad);
    show(status, grad, status ? 0 : {size});
{ends}    free(work);
    free(value);
    free(grad);
}}
"""


@dataclass(frozen=True)
class Case:
    """A function, and calls of it; the first is the one it is translated for."""

    function: Any
    calls: list[tuple[Any, ...]]
    source: str


def case(seed: int) -> Case:
    """A program with arrays in it, or one with branches, loops and integers."""
    rng, numbers, world = random.Random(seed), np.random.default_rng(seed), {}
    if seed % 2:
        source = Writer(rng).source()
        exec(source, world)
        params = [numbers.normal(size=shape) for shape in (7, 4, (4, 5), (5, 3))]
        calls: list[Any] = []
        for scale in (1.0, 0.9, -0.5, 3.0):
            ids = [rng.randrange(4) for _ in range(3)]
            calls.append((tuple([p * scale + 0.01 for p in params]), ids, rng.randrange(3)))
    else:
        source = VALUES.sub(r"\1", random_source(rng, TAME))  # there are no Values outside
        exec(source, world)
        calls = []
        while len(calls) < 4:
            given = random_arguments(rng)
            if not calls or len(given.rest[0]) == len(calls[0][2]):
                xs = [*given.xs, 0.5][:3]
                calls.append((np.array(given.p), np.array(xs), *given.rest))
    return Case(world["f"], calls, source)


def main_program(model: Any, calls: list[tuple[Any, ...]], values: int) -> str:
    """C that makes some calls and prints what they give."""
    name, parts, sizes = model.__name__, [], []
    body = model.header.partition(f"int {name}_value(")[2].partition(")")[0]
    declared = [p.strip() for p in body.split(",")[:-2]]
    for k, call in enumerate(calls):
        given, inputs, ends = [], "", ""
        for place, (kind, x) in enumerate(zip(declared, call, strict=True)):
            if "*" not in kind:
                number = np.asarray(x).item()
                given.append(f"INT64_C({number})" if "int64_t" in kind else float(number).hex())
                continue
            bits = np.frombuffer(compiled_c.packed(x, integers=place > 0), np.uint64).tolist()
            row = ", ".join(f"{word}ull" for word in bits) or "0"
            inputs += f"    static const unsigned long long bits{place}[] = {{{row}}};\n"
            inputs += f"    void *x{place} = copy(bits{place}, {len(bits)});\n"
            ends += f"    free(x{place});\n"
            given.append(f"x{place}")
        sizes.append(sum(np.size(x) for x in compiled_c.leaves(call[0])))
        fields = {"inputs": inputs, "ends": ends, "given": ", ".join(given), "values": values}
        parts.append(CALL.format(k=k, name=name, size=sizes[-1], **fields))
    run = "".join(f"    call{k}();\n" for k in range(len(calls)))
    return MAIN.format(calls="\n".join(parts), run=run)


def executed(model: Any, calls: list[tuple[Any, ...]], values: int, folder: Path) -> list[Any]:
    """Of each call the status and the numbers, of its values and then of its gradient."""
    model.save(folder / "model.c")
    (folder / "main.c").write_text(main_program(model, calls, values))
    files = [str(folder / name) for name in ("main.c", "model.c")]
    command = [str(compiled_c.compiler()), *compiled_c.STRICT, *SANITIZERS, *files]
    made = subprocess.run([*command, "-o", str(folder / "main"), "-lm"], capture_output=True)
    assert made.returncode == 0, made.stderr.decode()
    ran = subprocess.run([str(folder / "main")], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    found = [(int(status), [float.fromhex(x) for x in rest]) for status, *rest in lines]
    return list(zip(found[::2], found[1::2], strict=True))


def skip_reason() -> str | None:
    """Why there are no sanitizers here, or None."""
    if compiled_c.skip_reason() is not None:
        return compiled_c.skip_reason()
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "empty.c"), str(Path(folder, "empty"))
        source.write_text("int main(void) { return 0; }\n")
        command = [str(compiled_c.compiler()), *SANITIZERS, str(source), "-o", program]
        made = subprocess.run(command, capture_output=True)
        if made.returncode == 0 and subprocess.run([program], capture_output=True).returncode == 0:
            return None
    return "the C compiler has no sanitizers"


def eager(function: Any, call: tuple[Any, ...]) -> Any:
    """Value and gradient, in a row each, or the error."""
    fast = chainrule.compile(function, on_fallback="eager", lift=False)
    try:  # ``value_and_grad`` of a compiled function passes extras on
        with chainrule.nonfinite("raise"):
            value, slopes = fast.value_and_grad(*call)
    except Exception as error:
        return error
    first = value[0] if isinstance(value, tuple) else value
    return first, np.concatenate([np.ravel(x) for x in compiled_c.leaves(slopes)])


def examine(seed: int) -> str:
    """What became of a program: "equal" or "refused"; an AssertionError where C is wrong."""
    made = case(seed)
    if isinstance(eager(made.function, made.calls[0]), Exception):
        return "no example"
    try:
        model = chainrule.compile(made.function, on_fallback="eager").to_c(*made.calls[0])
    except TranslationError as error:
        return f"refused: {error}"
    several = re.search(r"/\* value: (\d+) numbers \*/", model.header)
    values = int(several[1]) if several else 1
    with tempfile.TemporaryDirectory() as folder:
        found = executed(model, made.calls, values, Path(folder))
    answered = 0
    for k, (call, ((status, value), (same, grad))) in enumerate(
        zip(made.calls, found, strict=True)
    ):
        wanted = eager(made.function, call)
        assert status == same, (k, status, same)
        if isinstance(wanted, Exception):
            assert status, (k, value, wanted)
        elif status:
            assert k or status == UNSURE, "the call that it was translated for"
        else:
            answered += 1
            scale = max(1.0, abs(wanted[0]))
            assert abs(value[0] - wanted[0]) <= CLOSE * scale, (k, value, wanted)
            scale = max(1.0, np.abs(wanted[1]).max())
            assert np.abs(np.array(grad) - wanted[1]).max() <= CLOSE * scale, (k, grad, wanted)
    return f"equal in {answered} of {len(found)} calls"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.programs):
        try:
            found = examine(seed)
        except AssertionError as error:
            found = "WRONG"
            print(f"seed {seed}: {error}\n{case(seed).source}", flush=True)
        counts[found] += 1
    for outcome, count in counts.most_common():
        print(f"{count:4} {outcome}")
    return int(counts["WRONG"] > 0)


if __name__ == "__main__":
    sys.exit(main())
