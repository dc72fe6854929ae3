"""Makes a program smaller while its difference stays, and writes it as a script.

Calls are dropped first, then statements, then parts of expressions. "Stays" means: the first
difference is of the same kind, and the same exceptions are involved.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz_compare import Difference, differences
from fuzz_programs import Program

BLOCKS = ("body", "orelse", "handlers", "finalbody")


def signature(found: list[Difference]) -> tuple[str, ...]:
    """What has to stay: the kind, and for exceptions their types."""
    if not found:
        return ("same",)
    first = found[0]
    if first.kind == "exception":
        words = first.compiled.split(" ")
        return (
            first.kind,
            first.eager.split(" ")[0],
            " ".join(words[: 1 + 4 * (words[0] != "returned")]),
        )
    return (first.kind,)


def shrunk(program: Program, strict: bool = False, seconds: float = 20.0) -> Program:
    """The smallest program found in this time that shows the same difference."""
    deadline = time.monotonic() + seconds
    wanted = signature(differences(program, strict))

    def stays(candidate: Program) -> bool:
        try:
            return signature(differences(candidate, strict)) == wanted
        except Exception:
            return False

    before = None
    while before != program and time.monotonic() < deadline:
        before = program
        program = fewer_calls(program, stays, deadline)
        program = less_source(program, stays, deadline)
    return program


def fewer_calls(program: Program, stays: Callable[[Program], bool], deadline: float) -> Program:
    """Without the calls that do not matter: large pieces first."""
    size = len(program.calls)
    while size >= 1:
        start = 0
        while start < len(program.calls) and time.monotonic() < deadline:
            calls = program.calls[:start] + program.calls[start + size :]
            candidate = replace(program, calls=calls)
            if calls and stays(candidate):
                program = candidate
            else:
                start += size
        size //= 2
    for number, call in enumerate(program.calls):
        if call.before and time.monotonic() < deadline:
            calls = list(program.calls)
            calls[number] = replace(call, before="")
            candidate = replace(program, calls=tuple(calls))
            if stays(candidate):
                program = candidate
    return program


def less_source(program: Program, stays: Callable[[Program], bool], deadline: float) -> Program:
    """Without the statements and operands that do not matter."""
    number = 0
    while time.monotonic() < deadline:
        module = ast.parse(program.source)
        changes = list(edits(module))
        if number >= len(changes):
            break
        changes[number]()
        try:
            source = ast.unparse(ast.fix_missing_locations(module)) + "\n"
        except Exception:
            number += 1
            continue
        candidate = replace(program, source=source)
        if source != program.source and stays(candidate):
            program = candidate  # the next edit has moved to this number
        else:
            number += 1
    return program


def edits(module: ast.Module) -> Iterator[Callable[[], None]]:
    """Every single change that makes the module smaller."""
    for parent in ast.walk(module):
        for name in BLOCKS:
            block = getattr(parent, name, None)
            if not isinstance(block, list):
                continue
            for i, statement in enumerate(block):
                if len(block) > 1 or name != "body":
                    yield lambda block=block, i=i: block.pop(i)
                inner = getattr(statement, "body", None)
                plain = isinstance(statement, (ast.If, ast.For, ast.While, ast.Try))
                if plain and isinstance(inner, list):
                    yield lambda block=block, i=i, inner=inner: block.__setitem__(
                        slice(i, i + 1), inner
                    )
    for parent in ast.walk(module):
        for name, child in ast.iter_fields(parent):
            if isinstance(child, ast.expr):
                for smaller in operands(child):
                    yield lambda p=parent, n=name, s=smaller: setattr(p, n, copy.deepcopy(s))
            elif isinstance(child, list):
                for i, member in enumerate(child):
                    if isinstance(member, ast.expr):
                        for smaller in operands(member):
                            yield lambda c=child, i=i, s=smaller: c.__setitem__(i, copy.deepcopy(s))


def operands(node: ast.expr) -> list[ast.expr]:
    """What may stand in the place of an expression."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.Call):
        return [a for a in node.args if not isinstance(a, (ast.GeneratorExp, ast.Starred))]
    if isinstance(node, (ast.Tuple, ast.Subscript)):
        return node.elts[:1] if isinstance(node, ast.Tuple) else []
    return []


DRIVER = """\
CALLS = [  # what happens before the call, and its arguments
{calls}
]


def fresh(source):
    world = {{"__name__": "world"}}
    exec(compile(source, __file__, "exec"), world)
    return world


def attempt(function, arguments):
    try:
        return repr(function(*arguments))
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"


if __name__ == "__main__":
    import warnings

    import chainrule
    from chainrule import optim

    warnings.simplefilter("ignore")
    text = open(__file__).read()
    eager, compiled = fresh(text.replace("@chainrule" + ".compile\\n", "")), fresh(text)
    fast = chainrule.compile(compiled["f"]{options})

    def loss(*arguments):  # without extras
        result = eager["f"](*arguments)
        return result[0] if isinstance(result, tuple) else result

{how}
    for before, arguments in CALLS:
        for name, world, function in (("eager", eager, slow), ("compiled", compiled, quick)):
            exec(before, world)
            said = attempt(function, eval(arguments, world))
            print(f"{{name:8}}", said, world.get("LOG"), world.get("STATE"))
"""
HOW = {
    "value_and_grad": """\
    slow, quick = chainrule.value_and_grad(loss), fast.value_and_grad""",
    "call": """    slow, quick = eager["f"], fast""",
    "values": """    slow, quick = eager["f"], fast  # the fuzzer passed Values as parameters""",
    "batch": """\

    def slow(p, samples):
        return [chainrule.value_and_grad(loss)(p, *sample) for sample in samples]

    quick = fast.batch_value_and_grad  # the mean of those""",
    "train": """\

    def slow(p, samples):
        optimiser, losses = optim.SGD(p, lr=0.05), []
        for sample in samples * 2:
            loss, gradient = chainrule.value_and_grad(loss)(p, *sample)
            optimiser.step(gradient)
            losses.append(loss)
        return losses

    def quick(p, samples):
        return fast.train(p, samples, optim.SGD(p, lr=0.05), 2 * len(samples)).tolist()
""",
    "jacobian": """\
    slow, quick = chainrule.jacobian(eager["f"]), chainrule.jacobian(fast)""",
    "hessian": """\
    slow, quick = chainrule.hessian(eager["f"]), chainrule.hessian(fast)""",
    "hvp": """\

    def slow(p, *data):
        return chainrule.hvp(eager["f"])(p, p, *data)

    def quick(p, *data):
        return chainrule.hvp(fast)(p, p, *data)
""",
    "interleaved": """\
    import random

    def turns(*ways):  # now a plain call, now value_and_grad
        rng = random.Random({seed})
        return lambda *arguments: rng.choice(ways)(*arguments)

    slow = turns(eager["f"], chainrule.value_and_grad(loss))
    quick = turns(fast, fast.value_and_grad)
""",
    "out": """\
    from chainrule.trees import map_leaves

    slow = chainrule.value_and_grad(loss)

    def quick(p, *data):  # the fuzzer passed the same arrays each time
        return fast.value_and_grad(p, *data, out=map_leaves(lambda part: part * 0.0 + 7.5, p))
""",
    "bound": """\
    slow = chainrule.value_and_grad(loss)

    def quick(*arguments):  # the fuzzer changed the arguments of one bound call in place
        bound = fast.bound(*arguments)
        return bound(), bound.gradient
""",
    "map": """\
    import numpy as np

    def slow(p, samples):
        samples = zip(*map(np.array, zip(*samples)))
        return [chainrule.value_and_grad(loss)(p, *sample) for sample in samples]

    def quick(p, samples):  # in some programs of the fuzzer with reduce="sum" or "mean"
        return fast.map_value_and_grad(p, *map(np.array, zip(*samples)))
""",
}


def script(program: Program, found: list[Difference]) -> str:
    """The program as a script that shows the difference when it is run."""
    said = "\n".join(str(difference) for difference in found[:3]).replace('"""', "'''")
    said = said.replace("\\", "\\\\")
    calls = "\n".join(f"    ({call.before!r}, {call.arguments!r})," for call in program.calls)
    options = "".join(f", {name}={value!r}" for name, value in program.options.items())
    how = HOW[program.mode].replace("{seed}", str(program.seed))
    tail = DRIVER.format(calls=calls, options=options, how=how)
    title = f"Seed {program.seed}, {program.mode}."
    return f'"""{title}\n\n{said}\n"""\n\n{program.source}\n\n{tail}'
