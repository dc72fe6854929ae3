"""Hostile expressions on the command line: a result, or one clear error; never anything evaluated.

Each goes through explain, draw and explore. Python's audit hooks watch that nothing is executed,
imported, opened or connected to but the one page that explore writes.
"""

import io
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from trials import BAD, Outcome

import chainrule
from chainrule.cli import app
from chainrule.see.expressions import FUNCTIONS, LONGEST

COUNT = 3_285
THINGS = "hostile expressions, each with three commands"
SLOW = 60.0  # seconds of computing for one expression

NAMES = ("a", "b", "x", "ä", "日本", "_", "π", "O0l1", "ﬁ", "𝐚")
#: attempts to run something, to reach something, or to be a statement
CODE = (
    "__import__('os').system('touch owned')",
    "exec('a=1')",
    "eval('1')",
    "open('owned', 'w')",
    "a.__class__.__mro__[1].__subclasses__()",
    "().__class__.__bases__[0]",
    "[x for x in (1).__class__.__mro__]",
    "(lambda: a)()",
    "f'{a.__init__.__globals__}'",
    "f'{__import__(\"os\")}'",
    "a if b else a",
    "(a := 2)",
    "import os",
    "from os import system; system('id')",
    "def f(): pass",
    "class A: pass",
    "while True: pass",
    "for a in b: pass",
    "with a: pass",
    "try: a\nexcept: a",
    "global a",
    "del a",
    "assert a",
    "raise a",
    "return a",
    "yield a",
    "await a",
    "async def f(): pass",
    "print(a)",
    "tanh.__globals__",
    "tanh(*[a])",
    "tanh(**{'x': a})",
    "breakpoint()",
    "help()",
    "exit()",
    "a[0]",
    "a.data",
    "a.backward()",
    "{a: b}",
    "{a, b}",
    "a, b",
    "a and b",
    "not a",
    "a < b < a",
    "a is b",
    "a in b",
    "...",
    "None",
    "True",
    "1j",
    "b'a'",
    "'a' * 10**9",
    "'%1000000000d' % 1",
    "match a:\n case 1: a",
    "type A = a",
    "@a\ndef f(): pass",
    "a: float = 2",
    "a = b = 2",
    "a, b = b, a",
    "tanh = a",
    "pi = 3; pi*a",
    "`id`",
    "$(id)",
    "; touch owned",
    "--help",
    "-h",
    "--version",
    "--output=/owned",
    "-o",
    "\\",
    "#",
    "a #",
    "'''",
    "0777",
    "1__0",
    "1e",
    "0x",
    "0b2",
)
CHARACTERS = (
    "\x00\x01\x07\x08\t\n\x0b\x0c\r\x1a\x1b\x7f\x85\x9b\xa0\xad\u061c\u200b\u200d\u200e\u200f\u2028"
    "\u2029\u202a\u202e\u2060\u2066\u2069\ufeff\ufffe\uffff\ud800\udc80\udfff\U000e0041\U0010ffff"
    "\u0301\u20dd\u0e33\ufdfa\u1d2c²½①Ⅷ−×÷·∂√∞≤“”‘’«»（）＋＝，；🏴‍☠️<>&\"'`{}[]%$#@!?~^|\\"
)
ENDLESS = "9" * 1_500


def valid(rng: random.Random, depth: int = 3) -> str:
    """An expression that can be used, mostly."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice((*NAMES, "2", "0.5", "pi", "e", "1e-3", "-a"))
    kind = rng.randrange(4)
    if kind == 0:
        return f"{rng.choice(sorted(FUNCTIONS))}({valid(rng, depth - 1)})"
    if kind == 1:
        return f"({valid(rng, depth - 1)})"
    sign = rng.choice(("+", "-", "*", "/", "**", " * ", " - "))
    return f"{valid(rng, depth - 1)}{sign}{valid(rng, depth - 1)}"


def nested(rng: random.Random) -> str:
    n = rng.choice((5, 20, 59, 60, 61, 100, 300, 900, 5_000, 100_000))
    before, after = rng.choice(
        (
            ("(", ")"),
            ("-", ""),
            ("+", ""),
            ("~", ""),
            ("not ", ""),
            ("tanh(", ")"),
            ("maximum(a,", ")"),
            ("where(a<1,a,", ")"),
            ("[", "]"),
            ("{", "}"),
            ("lambda:", ""),
            ("a**", ""),
            ("a**-", ""),
            ("(a+", ")"),
            ("f'{", "}'"),
            ("a if ", " else a"),
            ("a(", ")"),
            ("a.", ""),
            ("await ", ""),
            ("(", ""),
            ("", ")"),
            ("a=", ""),
        )
    )
    return before * n + "a" + after * n


def huge(rng: random.Random) -> str:
    digits = rng.choice((20, 310, 400, 4_299, 4_301, 100_000))
    return rng.choice(
        (
            f"a*{'9' * digits}",
            f"a+0x{'f' * digits}",
            f"a*1e{'9' * rng.choice((2, 3, 10, 1_000))}",
            f"a*1e-{'9' * rng.choice((2, 3, 10, 1_000))}",
            f"a*0.{'0' * digits}1",
            "9**9**9**9*a",
            f"a**{rng.choice((400, 1e308, -1e308, 10**18))}",
            f"{rng.choice((2, 10, 1e300))}**a**a**a*a",
            f"exp(exp(exp(a*{rng.choice((1, 9, 700))})))",
            f"a{'*a' * rng.choice((10, 300, 900))}",
            f"a{'**a' * rng.choice((10, 300))}",
            f"(a*1e308)*(a*1e308){'*10' * 3}",
            f"a/{'0' * rng.choice((1, 100))}.0",
            f"a/1e-{rng.choice((308, 320, 400))}",
            f"log(a-{rng.choice((2, 1.5, 1e308))})",
            f"{ENDLESS}_{ENDLESS}*a",
            "1_000_000*a",
            f"sqrt(a){'/3' * 500}",
        )
    )


def odd_characters(rng: random.Random) -> str:
    text = list(valid(rng))
    for _ in range(rng.choice((1, 1, 2, 5))):
        text.insert(rng.randrange(len(text) + 1), rng.choice(CHARACTERS))
    return "".join(text)


def any_characters(rng: random.Random) -> str:
    top = rng.choice((0x7F, 0x3000, 0x110000))
    return "".join(chr(rng.randrange(top)) for _ in range(rng.choice((1, 5, 40))))


def code(rng: random.Random) -> str:
    text = rng.choice(CODE)
    around = rng.choice(
        ("{}", "{}", "a + {}", "tanh({})", "c = {}; c*a", "{}; a", "a\n{}", "({})*a")
    )
    return around.replace("{}", text)


def many_names(rng: random.Random) -> str:
    n = rng.choice((20, 200, 2_000, 20_000))
    return rng.choice(
        (
            "+".join(f"v{i}" for i in range(n)),
            ";".join(f"v{i}=a" for i in range(n)) + ";a",
            "a;" * n,
            "v" * n,
            "ä" * n + "*a",
            ",".join("a" * n),
            "\n".join("a" * n),
            f"c=a\n{'c=c*0.9+a' + chr(10)}" * min(n, 200) + "c",
        )
    )


def mutated(rng: random.Random) -> str:
    text = list(valid(rng))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        change = rng.randrange(3)
        if change == 0 and text:
            del text[at - 1]
        elif change == 1:
            text.insert(at, rng.choice("()+-*/%^=<>.,;:!@#0a '\""))
        else:
            text[at:at] = text[: rng.randrange(10)]
    return "".join(text)


def soup(rng: random.Random) -> str:
    words = ("a", "b", "tanh", "where", "(", ")", ",", "+", "-", "**", "=", "+=", ";", "\n", " ")
    words += ("<", "2", "0", "if", "else", "lambda", ":", "[", "]", "{", "}", ".", "'", "e", "for")
    return "".join(rng.choice(words) for _ in range(rng.randint(1, 40)))


WRITERS: tuple[Callable[[random.Random], str], ...] = (
    valid,
    nested,
    huge,
    odd_characters,
    any_characters,
    code,
    many_names,
    mutated,
    soup,
)
HOSTILE_VALUES = (
    "a",
    "=1",
    "a=",
    "a==1",
    "a=nan",
    "a=inf",
    "a=1e999",
    "a=-1e308",
    "a=5e-324",
    "a=1;2",
    "a=b",
    "a=__import__('os')",
    f"a={ENDLESS}",
    f"a={'(' * 200}1{')' * 200}",
    "a=9**9**9",
    "a=1\n",
    "a=\x1b[2J",
    "\u202ea=1",
    "tanh=1",
    "if=1",
    "a=1_0",
    "a=True",
    "a=1j",
    "--a=1",
    "\udc80=1",
    "a=\ud800",
    "=" * 3_000,
)


def values_for(text: str, rng: random.Random) -> list[str]:
    """A number for each name that may occur; now and then something else."""
    words = set(re.findall(r"\w+", text[:LONGEST]))
    names = [name for name in NAMES if name in words]
    values = [f"{name}={rng.choice(('2', '0.5', '-1', '0', '1e300', 'pi/2'))}" for name in names]
    if "v19" in text and rng.random() < 0.5:
        values += [f"v{i}=1" for i in range(20 if "v20" not in text else 300)]
    if rng.random() < 0.1:
        values.append(rng.choice(HOSTILE_VALUES))
    return values


class Watch:
    """Python's audit events that no expression may cause, while it is on.

    The command line's own annotations are evaluated by the library that reads it: what harmless
    commands execute is learnt first.
    """

    FORBIDDEN = ("exec", "import", "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "urllib.")

    def __init__(self, scratch: Path) -> None:
        self.learning, self.on = False, False
        # the file to write, the package's own files, and no file at all
        self.ours = (str(scratch), str(Path(chainrule.__file__).parent))
        self.seen: list[str] = []
        self.known: set[Any] = set()
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.learning and event == "exec":
            self.known.add(arguments[0])
        if not self.on or (event == "exec" and arguments[0] in self.known):
            return
        first = arguments[0] if arguments else None
        handle = isinstance(first, int)  # of a file that was opened, and looked at, before
        ours = handle or first == "" or str(first).startswith(self.ours)
        forbidden = event.startswith(self.FORBIDDEN) or event == "open"
        if forbidden and not ours:
            self.seen.append(f"{event}{arguments!r}"[:300])


def attempt(arguments: list[str]) -> tuple[int, str, str]:
    """A command in this process: its exit code, and what it printed."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            app(arguments)
            code: Any = 0
        except SystemExit as exit_:
            code = exit_.code
    return code, out.getvalue(), errors.getvalue()


def wrong(code: int, out: str, errors: str) -> str:
    """What is wrong with the answer of a command."""
    if BAD.search(out) or BAD.search(errors):
        return "a control character was printed"
    if code == 0:
        return "" if out.strip() and not errors else "nothing was said"
    lines = errors.splitlines()
    if code not in (1, 2) or out:
        return f"exit code {code}"
    # What is wrong; then, for an expression, its line and the caret.
    if len(lines) not in (1, 3) or not lines[0].startswith("chainrule: "):
        return "not one clear error"
    return "" if all(len(line) < 400 for line in lines) else "an error without end"


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"expressions {seed}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        watch = Watch(scratch)
        commands = {
            "explain": [],
            "draw": ["--format", "svg"],
            "explore": ["-o", str(scratch / "page.html")],
        }
        watch.learning = True
        for text in ("a*b", "a*", "a=1", "\x1b[2J"):  # everything is imported
            for command, options in commands.items():
                attempt([command, *options, "--", text, "a=1", "b=2"])
                attempt([command, *options, "--", text])
        watch.learning = False
        for number in range(count):
            write = WRITERS[number % len(WRITERS)]
            text = write(rng)
            values = values_for(text, rng)
            codes, found = [], []
            for command, options in commands.items():
                watch.on = True
                began = time.process_time()
                try:
                    code, out, errors = attempt([command, *options, "--", text, *values])
                    trouble = wrong(code, out, errors)
                except Exception as error:
                    code, out, errors, trouble = -1, "", "", repr(error)
                finally:
                    watch.on = False
                if time.process_time() - began > SLOW:
                    trouble = "it takes too long"
                if watch.seen:
                    trouble = f"evaluated: {watch.seen}"
                    watch.seen = []
                if os.listdir(scratch) not in ([], ["page.html"]):
                    trouble = f"files were made: {os.listdir(scratch)}"
                if trouble:
                    found.append(f"{command}: {trouble}: {(out + errors)[:500]!r}")
                codes.append(code)
            kind = f"{write.__name__}: {'refused' if all(codes) else 'shown'}"
            where = f"{text[:200]!r} ({len(text)} characters) {values!r:.300}: "
            yield Outcome(kind, where + "\n".join(found) if found else "")
