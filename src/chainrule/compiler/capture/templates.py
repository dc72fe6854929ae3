"""Trees of Python code that ``sides`` puts into a function.

In: parts of a function's source. Out: calls of what converted code asks while it is recorded, and
the statements around the two sides of a branch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from chainrule.compiler.capture.repeats import OWN

PLACEHOLDER = "__chainrule_sides"  # which ``rewriting`` replaces by ``forks.SIDES``


def hook(name: str, *arguments: ast.expr) -> ast.Call:
    """A call of what converted code asks."""
    hooks = ast.Attribute(ast.Name(PLACEHOLDER, ast.Load()), name, ast.Load())
    return ast.Call(hooks, list(arguments), [])


def later(expression: ast.expr) -> ast.Lambda:
    """An expression that is computed when it is called."""
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(none, expression)


def uses(nodes: Iterable[ast.AST]) -> dict[str, int]:
    """How often names are used."""
    found: dict[str, int] = {}
    for node in nodes:
        for x in ast.walk(node):
            if isinstance(x, ast.Name):
                found[x.id] = found.get(x.id, 0) + 1
    return found


def copied(node: Any) -> Any:
    """Another tree like this one: a conversion that fails leaves the first as it was."""
    if isinstance(node, ast.AST):
        made = type(node)(**{name: copied(x) for name, x in ast.iter_fields(node)})
        return ast.copy_location(made, node)
    return [copied(x) for x in node] if isinstance(node, list) else node


def parsed(text: str, like: ast.AST) -> list[ast.stmt]:
    """Statements, in the place of another part of the source."""
    made = ast.parse(text).body
    for x in ast.walk(ast.Module(made, [])):
        if hasattr(x, "lineno"):
            ast.copy_location(x, like)
    return made


def flag(name: str, truth: bool, like: ast.stmt) -> ast.stmt:
    """A truth, assigned to a name."""
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(truth))
    return ast.fix_missing_locations(ast.copy_location(made, like))


def template(fork: str, names: tuple[str, ...], inner: tuple[str, ...]) -> str:
    """The statements around both sides; the sides and the test are put in afterwards."""
    given = f", {names!r}" if names else ""
    back = [
        f"        if {fork}.had({n!r}): {n} = {fork}.before({n!r})\n"
        f"        elif {fork}.binds({n!r}): del {n}\n"
        for n in names
    ]
    after = [
        f"    if {fork}.has({n!r}): {n} = {fork}.after({n!r})\n"
        f"    elif {fork}.binds({n!r}): del {n}\n"
        for n in names
    ]
    attempt = "    try: pass\n    except Exception:\n        if not {0}.forgives({1}): raise\n"
    return (
        f"{fork} = None\n"
        f"if {fork}.both: {fork}.begin({names!r})\n"
        f"if {fork}.body:\n{attempt.format(fork, True)}"
        f"    if {fork}.both:\n        {fork}.end(True{given})\n{''.join(back)}"
        f"if {fork}.orelse:\n{attempt.format(fork, False)}"
        f"    if {fork}.both: {fork}.end(False{given})\n"
        f"if {fork}.both:\n    {fork}.merge({inner!r})\n{''.join(after)}"
    )


def is_own(node: ast.expr) -> bool:
    """Whether it is a part of what converted code calls by itself."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return own and node.value.id.startswith(OWN)  # type: ignore[attr-defined]
