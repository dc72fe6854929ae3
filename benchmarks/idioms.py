"""No cliffs: functions as people write them, compiled, beside the same calls in eager mode.

    python benchmarks/idioms.py                     every entry, some minutes
    python benchmarks/idioms.py --only 'bigram'     entries whose name matches this pattern
    python benchmarks/idioms.py --calls 300         so many calls of each, in place of 100
    python benchmarks/idioms.py --jobs 2            so many at a time; figures are a little noisier
    python benchmarks/idioms.py --json FILE         all figures, for other programs
    python benchmarks/idioms.py --markdown FILE     the table of docs/idioms.md

Every entry of ``idiom_programs`` gets a fresh process. It makes the same calls, no two alike, in
three ways: ``compile(f).value_and_grad``, from the first call on and with everything that this
takes; ``chainrule.value_and_grad(f)``; and Values, the function, ``backward()``. Then it goes on
to 3,000 calls, or as many as take eager mode two seconds: what is slow for ever is not seen in
100. All values and gradients are compared; a difference makes the exit status 1.
"""

import argparse
import json
import math
import multiprocessing
import re
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from time import process_time as clock

import numpy as np
from idiom_programs import entries, entry_named

import chainrule
from chainrule import Value
from chainrule.trees import map_leaves

ALLOWED_RATIO, ALLOWED_SECONDS = 1.5, 0.3  # of eager's time, and once in a process
ALLOWED_RECORDINGS = 10
LAST_BITS = 1e-15  # of numbers about 1
LONG_CALLS, LONG_SECONDS = 3000, 2.0  # of the long run, which takes eager mode no more than that
STEADY_CALLS, STEADY_SECONDS = 20, 0.1  # calls that are repeated, for so long
MACHINE_CODE, TAPE, EAGER = "machine code", "tape", "eager"
EAGER_WAYS = "backward", "value_and_grad"

# --- one way to make a call -----------------------------------------------------------------------


def as_values(tree, leaves):
    """The differentiated argument with Values for its numbers; these also in ``leaves``."""
    if isinstance(tree, np.ndarray):
        array = np.empty(tree.shape, dtype=object)
        array.flat = [as_values(number, leaves) for number in tree.flat]
        return array
    if isinstance(tree, dict):
        return type(tree)((key, as_values(item, leaves)) for key, item in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(as_values(item, leaves) for item in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(as_values(item, leaves) for item in tree)
    if hasattr(tree, "__dataclass_fields__"):
        fields = tree.__dataclass_fields__
        return type(tree)(**{name: as_values(getattr(tree, name), leaves) for name in fields})
    leaves.append(Value(float(tree)))
    return leaves[-1]


def backward_of(function):
    """The value of the function and its gradient, as a list, by Values and ``backward()``."""

    def call(params, *inputs):
        leaves = []
        result = function(as_values(params, leaves), *inputs)
        loss, *extras = result if isinstance(result, tuple) else (result,)
        if isinstance(loss, Value):  # a path may give a plain number
            loss.backward()
            loss = loss.data
        return (loss, *extras), [leaf.grad for leaf in leaves]

    return call


def eager_of(function):
    """``chainrule.value_and_grad`` of the function, with what it returns beside its value."""
    extras = []

    def value_of(*arguments):
        result = function(*arguments)
        if isinstance(result, tuple):
            result, *extras[:] = result
        return result

    value_and_grad = chainrule.value_and_grad(value_of)

    def call(*arguments):
        extras.clear()
        value, gradient = value_and_grad(*arguments)
        return ((value, *extras) if extras else value), gradient

    return call


def outcome(call, arguments):
    """What the call returns, or the error it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        return error


def numbers(tree):
    """All numbers of a result, in order; other things as they are."""
    if isinstance(tree, np.ndarray) and tree.dtype == float:
        return tree.ravel().tolist()
    if isinstance(tree, np.ndarray):
        return [number for item in tree.flat for number in numbers(item)]
    if isinstance(tree, dict):
        return [number for item in tree.values() for number in numbers(item)]
    if isinstance(tree, list | tuple):
        return [number for item in tree for number in numbers(item)]
    if hasattr(tree, "__dataclass_fields__"):
        return [n for name in tree.__dataclass_fields__ for n in numbers(getattr(tree, name))]
    return [tree.data if isinstance(tree, Value) else tree]


def difference(result, expected, same_types):
    """What differs between two outcomes, in words; None where nothing does."""
    if isinstance(expected, Exception) or isinstance(result, Exception):
        same = type(result) is type(expected) and str(result) == str(expected)
        return None if same else f"{result!r} instead of {expected!r}"
    overall = largest(numbers(expected))
    for part, got, wanted in zip(("value", "gradient"), result, expected, strict=True):
        if same_types and type(got) is not type(wanted):
            return f"the {part} is {type(got).__name__} instead of {type(wanted).__name__}"
        got, wanted = numbers(got), numbers(wanted)
        if len(got) != len(wanted):
            return f"the {part} has {len(got)} numbers instead of {len(wanted)}"
        rounding = 1e-12 * largest(wanted) + 1e-15 * overall  # what cancellation may leave
        for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
            if not close(a, b, rounding):
                return f"{part}[{i}] is {a!r} instead of {b!r}"
    return None


def same_numbers(result, expected):
    """Whether there is no difference between two outcomes; False where it takes a closer look."""
    if isinstance(result, Exception) or isinstance(expected, Exception):
        return False
    pairs = [*zip(result, expected, strict=True)]
    if any(np.shape(got) != np.shape(wanted) for got, wanted in pairs):
        return False
    got, wanted = (
        np.concatenate([np.ravel(x) for x in parts]) for parts in zip(*pairs, strict=True)
    )
    if got.dtype != float or wanted.dtype != float or not np.isfinite([got, wanted]).all():
        return False
    return bool((np.abs(got - wanted) <= 1e-9 * np.abs(wanted)).all())


def is_rounding(entry, eager, number, result, expected):
    """Whether a call's parameters, moved by their last bits, move eager's own result as far.

    Parameters drift, and after thousands of calls a loss may be the difference of large numbers,
    or of a probability and 1, of which the last bits are left.
    """
    if not all(isinstance(part, np.ndarray) for x in (result, expected) for part in parts_of(x)):
        return False
    params, *others = next(islice(entry.stream_of_calls(), number, None))
    reach = [np.zeros(np.shape(part)) for part in expected]
    rng = np.random.default_rng(number)
    for _ in range(12):
        scaled = map_leaves(partial(nudged, rng), params, records=True)
        entry.reset()
        moved = compact(outcome(eager, (scaled, *others)))
        if isinstance(moved, Exception) or [*map(np.shape, moved)] != [*map(np.shape, expected)]:
            return False
        reach = [
            np.maximum(most, np.abs(np.subtract(a, b)))
            for most, a, b in zip(reach, moved, expected, strict=True)
        ]
    return all(
        (np.abs(np.subtract(got, wanted)) <= 1e-9 * np.abs(wanted) + 4.0 * most + LAST_BITS).all()
        for got, wanted, most in zip(result, expected, reach, strict=True)
    )


def parts_of(result):
    """The value and the gradient; an error as it is."""
    return [result] if isinstance(result, Exception) else result


def nudged(rng, x):
    """Each number by up to four of its last bits."""
    if isinstance(x, float):
        return x * (1.0 + rng.uniform(-1e-15, 1e-15))
    return x * rng.uniform(1.0 - 1e-15, 1.0 + 1e-15, x.shape) if isinstance(x, np.ndarray) else x


def largest(numbers):
    return max((abs(n) for n in numbers if is_finite(n)), default=0.0)


def is_finite(x):
    return isinstance(x, int | float | np.number) and math.isfinite(x)


def close(a, b, rounding):
    """Equal to 1e-9 of the number, and to ``rounding`` besides."""
    if is_finite(a) and is_finite(b):
        return abs(a - b) <= 1e-9 * abs(b) + rounding
    return a == b or (a != a and b != b)


# --- one entry, in a process of its own -----------------------------------------------------------


def timed_calls(call, calls, limit, keep=lambda result: result):
    """Outcomes and seconds of one call after another, until all are made or ``limit`` is over.

    ``keep``: what becomes of an outcome.
    """
    outcomes, seconds = [], []
    begin = clock()
    for arguments in calls:
        before = clock()
        result = outcome(call, arguments)
        seconds.append(clock() - before)
        outcomes.append(keep(result))
        if clock() - begin > limit:
            break
    return outcomes, seconds


def steady(call, calls):
    """Seconds per call: the minimum over at least three passes through the last calls."""
    best, passes, until = math.inf, 0, clock() + STEADY_SECONDS
    while passes < 3 or clock() < until:  # machine code may be built in one of them
        begin = clock()
        for arguments in calls:
            outcome(call, arguments)
        best = min(best, (clock() - begin) / len(calls))
        passes += 1
    return best


def counts(report):
    """Calls answered by a replay and by eager mode, and recordings made, as the report says."""
    numbers = [
        re.search(rf"([\d,]+) {word}", report) for word in ("replayed", "eager", "recordings")
    ]
    return [int(found[1].replace(",", "")) if found else 0 for found in numbers]


def path_taken(report, before):
    """How most calls since the report ``before`` were answered."""
    replayed, eager = (now - then for now, then in zip(counts(report)[:2], before[:2], strict=True))
    if eager > replayed:
        return EAGER
    return MACHINE_CODE if re.search(r"lifted to|: lifted|machine code built", report) else TAPE


def compact(result):
    """An outcome that takes little memory, for there are many: its gradient in a row."""
    if isinstance(result, Exception):
        return result
    return [row_of(numbers(part)) for part in result]


def row_of(numbers):
    """Some numbers as an array; as they are where there is something else among them."""
    plain = all(isinstance(x, float | np.floating) for x in numbers)
    return np.array(numbers, float) if plain else numbers


def measure(entry, count, limit):
    """All figures of an entry, as a dict that JSON can hold."""
    compiled = chainrule.compile(entry.function)
    ways = {
        "backward": backward_of(entry.function),
        "value_and_grad": eager_of(entry.function),
        "compiled": compiled.value_and_grad,
    }
    row = {"name": entry.name, "calls": count}
    outcomes = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way in EAGER_WAYS:
            entry.reset()
            outcomes[way], row[way] = first_calls(ways[way], entry.stream_of_calls(), count, limit)
        quicker = min(EAGER_WAYS, key=lambda way: sum(row[way]["seconds"]) / row[way]["calls"])
        each = sum(row[quicker]["seconds"]) / row[quicker]["calls"]
        long = max(count, min(LONG_CALLS, int(LONG_SECONDS / each)))
        entry.reset()
        expected, long_seconds = timed_calls(
            ways[quicker], islice(entry.stream_of_calls(), long), limit, compact
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        entry.reset()
        calls = entry.stream_of_calls()
        outcomes["compiled"], row["compiled"] = first_calls(ways["compiled"], calls, count, limit)
        row["recordings"] = counts(compiled.report())[2]
        others, seconds = timed_calls(
            ways["compiled"], islice(calls, long - row["compiled"]["calls"]), limit, compact
        )
    row["warnings"] = list(dict.fromkeys(str(w.message).splitlines()[0] for w in caught))
    row["errors"] = sum(isinstance(result, Exception) for result in outcomes["value_and_grad"])
    row["long"] = {"compiled": row["compiled"]["seconds"] + seconds, "eager": long_seconds}
    found = [
        f"{way}, call {i}: {text}"
        for way in ("compiled", "backward")
        for i, (got, wanted) in enumerate(
            zip(outcomes[way], outcomes["value_and_grad"], strict=False)
        )
        if (text := difference(got, wanted, way == "compiled"))
    ]
    found += [
        f"compiled, call {i}: {text}"
        for i, (got, wanted) in enumerate(
            zip(others, expected[row["compiled"]["calls"] :], strict=False),
            row["compiled"]["calls"],
        )
        if not same_numbers(got, wanted)
        and (text := difference(got, wanted, same_types=False))
        and not is_rounding(entry, ways[quicker], i, got, wanted)
    ]
    row["differences"] = len(found)
    row["difference"] = found[0][:200] if found else None
    before, last = counts(compiled.report()), entry.calls(count)[-STEADY_CALLS:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way, call in ways.items():
            row[way]["steady"] = steady(call, last)
    row["report"] = compiled.report()
    row["path"] = path_taken(row["report"], before)
    return row


def first_calls(call, calls, count, limit):
    """Outcomes of the first calls of one way, and its figures."""
    outcomes, seconds = timed_calls(call, islice(calls, count), limit)
    return outcomes, {"first": seconds[0], "calls": len(seconds), "seconds": seconds}


def work(sender, name, count, limit):
    """What the process of an entry does: sends the figures, or why there are none."""
    try:
        sender.send(measure(entry_named(name), count, limit))
    except Exception as error:
        sender.send({"name": name, "failure": f"{type(error).__name__}: {error}"})


def measured_in_fresh_process(name, count, limit):
    """The figures of an entry; or only why there are none."""
    # A forked process has imported the compiler and done nothing else.
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    context.set_forkserver_preload(["chainrule.compiler", "idiom_programs.registry"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(sender, name, count, limit))
    process.start()
    sender.close()
    # Three ways, and waiting for a processor; what ends one way alone is the limit in ``measure``.
    patience = 6 * limit + 60
    try:
        if receiver.poll(patience):
            return receiver.recv()
        return {"name": name, "failure": f"killed after {patience:.0f} s"}
    except EOFError:
        process.join()
        return {"name": name, "failure": f"the process ended with status {process.exitcode}"}
    finally:
        process.kill()
        process.join()


# --- tables ---------------------------------------------------------------------------------------


def totals(row):
    """Seconds of the compiled calls, and of as many eager ones in the quicker of the two ways."""
    made = min(row[way]["calls"] for way in ("compiled", *EAGER_WAYS))
    compiled, *eager = (sum(row[way]["seconds"][:made]) for way in ("compiled", *EAGER_WAYS))
    return compiled, min(eager)


def long_totals(row):
    """Calls of the long run, and the seconds of the compiled ones and of the eager ones."""
    made = min(map(len, row["long"].values()))
    return made, *(sum(row["long"][way][:made]) for way in ("compiled", "eager"))


def steady_eager(row):
    return min(row[way]["steady"] for way in EAGER_WAYS)


def excess(row):
    """How often the allowed time was used; over 1 is too slow."""
    compiled, eager = totals(row)
    return compiled / (ALLOWED_RATIO * eager + ALLOWED_SECONDS)


def is_quick(row):
    return excess(row) <= 1


def is_replayed(row):
    return row["path"] != EAGER and row["recordings"] <= ALLOWED_RECORDINGS


HEADERS = [
    "entry",
    "path",
    "recordings",
    "first s",
    "calls s",
    "eager s",
    "ratio",
    "long run",
    "steady µs",
    "eager µs",
    "warning",
]


def long_run(row):
    """The ratio of the long run, with the number of calls where that is another."""
    made, compiled, eager = long_totals(row)
    return f"{compiled / eager:.2f}×" + (f" ({made:,} calls)" if made < LONG_CALLS else "")


def cells(row):
    """A row of the table, as texts."""
    if "failure" in row:
        return [row["name"], "failed", *[""] * (len(HEADERS) - 3), row["failure"]]
    compiled, eager = totals(row)
    made = row["compiled"]["calls"]
    return [
        row["name"],
        row["path"],
        str(row["recordings"]),
        f"{row['compiled']['first']:.3f}",
        f"{compiled:.3f}" + (f" ({made} calls)" if made < row["calls"] else ""),
        f"{eager:.3f}",
        f"{compiled / eager:.2f}×" + ("" if is_quick(row) else " !"),
        long_run(row),
        f"{row['compiled']['steady'] * 1e6:,.1f}",
        f"{steady_eager(row) * 1e6:,.1f}",
        "DIFFERENT: " + row["difference"] if row["difference"] else "; ".join(row["warnings"][:1]),
    ]


WIDTHS = [46, 12, 10, 8, 18, 8, 11, 19, 10, 10, 0]


def print_line(texts):
    """The name and the path to the left, numbers to the right, and the warning as it is."""
    first, second, *others = zip(texts, WIDTHS, strict=True)
    padded = [first[0].ljust(first[1]), second[0].ljust(second[1])]
    print("  ".join([*padded, *(text.rjust(width) for text, width in others)]).rstrip(), flush=True)


def summary(rows):
    """The sentences at the end."""
    whole = [row for row in rows if "failure" not in row]
    if not whole:
        return [f"{len(rows)} entries, none of which could be measured"]
    quick, replayed = sum(map(is_quick, whole)), sum(map(is_replayed, whole))
    ahead = sum(row["compiled"]["steady"] <= steady_eager(row) for row in whole)
    long = [long_totals(row) for row in whole]
    ahead_in_all = sum(compiled <= eager for _, compiled, eager in long)
    paths = [
        f"{sum(r['path'] == path for r in whole)} {path}" for path in (MACHINE_CODE, TAPE, EAGER)
    ]
    differences = [row["name"] for row in whole if row["difference"]]
    lines = [
        f"{len(whole)} entries: {', '.join(paths)}",
        f"{quick} of {len(whole)} within {ALLOWED_RATIO}× eager's time + {ALLOWED_SECONDS} s, "
        "everything included",
        f"{replayed} of {len(whole)} in machine code or on the tape within "
        f"{ALLOWED_RECORDINGS} recordings",
        f"{ahead} of {len(whole)} not slower than eager once they are warm, "
        f"{ahead_in_all} over {LONG_CALLS:,} calls with everything included",
        f"different from eager: {', '.join(differences) or 'none'}",
    ]
    failures = [row["name"] for row in rows if "failure" in row]
    return [*lines, f"failed: {', '.join(failures)}"] if failures else lines


PAGE = """# Idioms

What `compile` makes of functions as people write them: each in several spellings, none of them
written with the compiler in mind. This page is generated by

```sh
.venv/bin/python benchmarks/idioms.py --markdown docs/idioms.md
```

on {machine}. Each entry is a function in `benchmarks/idiom_programs`, called {calls} times in a
fresh process with other numbers, tokens and lengths each time. *Calls* is the time of all these
calls, compiled, with recording and building included; *eager* that of the same calls with Values
and `backward()`, or by `chainrule.value_and_grad` where that is quicker; *ratio* one divided by the
other, with a ! where it is over {ratio}× eager + {seconds} s. *Long run* is that ratio over
{long:,} calls, or over as many as take eager mode {long_seconds:g} s: what is slow for ever shows.
*Steady* is one call once it is warm.
All times are processor time. Every value and gradient was compared with eager's.

{summary}

`report()` says why a function is slow, and `--json` keeps it. To ask it about one of your own:

```python
import chainrule


@chainrule.compile
def pick(table, tokens):
    return sum(table[token] for token in tokens) ** 2


value, gradient = pick.value_and_grad([1.0, 2.0, 3.0], [0, 2, 2])
print(value, gradient)
print("eager because" in pick.report())
```

```text
49.0 [14.0, 0.0, 28.0]
False
```
"""


def markdown(rows, count, machine):
    lines = [
        PAGE.format(
            machine=machine,
            calls=count,
            ratio=ALLOWED_RATIO,
            seconds=ALLOWED_SECONDS,
            long=LONG_CALLS,
            long_seconds=LONG_SECONDS,
            summary="\n".join(f"- {line}" for line in summary(rows)),
        )
    ]
    for field in dict.fromkeys(row["name"].split(".")[0] for row in rows):
        lines += [f"## {field.replace('_', ' ')}", ""]
        lines.append("| " + " | ".join(HEADERS) + " |")
        lines.append("|---|---|" + "--:|" * (len(HEADERS) - 3) + "---|")
        for row in rows:
            if row["name"].startswith(field + "."):
                texts = cells(row)
                texts[0] = "`" + texts[0].removeprefix(field + ".") + "`"
                texts[-1] = texts[-1].replace("|", "\\|").replace("<", "&lt;")
                lines.append("| " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


# --- the command ----------------------------------------------------------------------------------


def progress(text):
    """Replace the last line of the terminal; nothing where there is none."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run(names, count, limit, jobs):
    """The rows of all entries, in order, each as soon as it and those before it are measured."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(measured_in_fresh_process, name, count, limit) for name in names]
        try:
            for done, (name, future) in enumerate(zip(names, futures, strict=True)):
                progress(f"{done}/{len(names)} {name}")
                row = future.result()
                progress("")
                yield row
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            progress("")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="PATTERN", help="a regular expression found in the name")
    parser.add_argument("--calls", type=int, default=100, help="calls of each entry (100)")
    parser.add_argument("--jobs", type=int, default=1, help="entries measured at a time (1)")
    parser.add_argument(
        "--limit", type=float, default=30, help="seconds for the calls of one way (30)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the page for the docs")
    parser.add_argument("--list", action="store_true", help="print the names of the entries only")
    options = parser.parse_args()
    names = [name for name in entries() if re.search(options.only or "", name)]
    if not names:
        parser.error(f"no entry's name matches {options.only!r}; --list prints all")
    if options.list:
        print("\n".join(names))
        return 0
    from harness import machine  # not above: every process of an entry would import it

    begin = time.perf_counter()
    rows = []
    print_line(HEADERS)
    for row in run(names, options.calls, options.limit, options.jobs):
        rows.append(row)
        print_line(cells(row))
        if options.json:  # after every row: a run takes long, and may be stopped
            options.json.write_text(json.dumps(rows, indent=1))
    print()
    print("\n".join(summary(rows)))
    print(f"{options.calls} calls each, {time.perf_counter() - begin:.0f} s in all, {machine()}")
    if options.markdown:
        options.markdown.write_text(markdown(rows, options.calls, machine()))
    return int(any(row.get("difference") or "failure" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
