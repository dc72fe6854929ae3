"""The contract's names and signatures, what an import loads, and who may import whom."""

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from number_systems import BINARY, NAMES

import chainrule
from chainrule import Value

PACKAGE = Path(chainrule.__file__).parent

PUBLIC = [
    *("Value", "vsum", "dot", "linear", "topological_order", "engine"),
    *("gradients", "grad", "value_and_grad", "jacobian", "hessian", "hvp", "jvp", "vjp"),
    *("check_gradients", "no_grad", "nonfinite"),
    *NAMES,
]
UNARY_METHODS = [n for n in NAMES if n not in (*BINARY, "where", "clip")]
ALIASES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_name_exists_and_is_listed(name):
    assert hasattr(chainrule, name)
    assert name in chainrule.__all__


def test_everything_listed_exists():
    assert [name for name in chainrule.__all__ if not hasattr(chainrule, name)] == []
    assert len(chainrule.__all__) == len(set(chainrule.__all__))


@pytest.mark.parametrize("name", UNARY_METHODS)
def test_unary_operations_are_methods_too(name):
    assert callable(getattr(Value, "__abs__" if name == "abs" else name))


@pytest.mark.parametrize("alias", ALIASES)
def test_numpys_spellings_are_aliases(alias):
    x = 1.5 if alias == "arccosh" else 0.5
    by_alias, by_name = getattr(Value(x), alias)(), getattr(Value(x), ALIASES[alias])()
    assert (by_alias.data, by_alias.op) == (by_name.data, by_name.op)


def test_conjugate_is_the_same_number():
    v = Value(2.0)
    c = v.conjugate()
    c.backward()
    assert (c.data, v.grad) == (2.0, 1.0)


def parameters(callable_):
    return [
        (p.name, p.default, p.kind.name)
        for p in inspect.signature(callable_).parameters.values()
        if p.name != "self"
    ]


def test_the_constructor_has_the_contracts_signature():
    either, keyword = "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"
    assert parameters(Value) == [
        ("data", inspect.Parameter.empty, either),
        ("children", (), either),
        ("local_grads", (), either),
        ("label", "", either),
        ("op", "", keyword),
        ("_children", (), keyword),
        ("_op", "", keyword),
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Value.backward", [("gradient", 1.0)]),
        ("Value.zero_grad", []),
        ("gradients", [("y", None), ("xs", None), ("create_graph", False)]),
        ("no_grad", []),
    ],
)
def test_functions_have_the_contracts_signature(path, expected):
    target = chainrule
    for part in path.split("."):
        target = getattr(target, part)
    empty = inspect.Parameter.empty
    found = [
        (name, None if default is empty else default) for name, default, _ in parameters(target)
    ]
    assert found == expected


def test_one_nodes_step_takes_nothing():
    assert parameters((Value(1.0) + 1)._backward) == []


def test_check_gradients_takes_a_function_and_its_inputs():
    first, second, *options = inspect.signature(chainrule.check_gradients).parameters.values()
    assert first.name == "f"
    assert (second.name, second.kind.name) == ("inputs", "VAR_POSITIONAL")
    assert all(o.default is not inspect.Parameter.empty for o in options)


def test_engine_is_a_word_and_the_one_asked_for():
    assert chainrule.engine in ("native", "reference")
    asked = os.environ.get("CHAINRULE_ENGINE")
    assert asked in (None, "", chainrule.engine)


def test_attributes_have_the_types_of_the_contract():
    v = Value(2) * 3
    assert [type(x) for x in (v.data, v.grad, v.label, v.op)] == [float, float, str, str]
    assert [type(x) for x in (v.children, v.local_grads)] == [tuple, tuple]
    assert [type(x) for x in v.local_grads] == [float, float]
    assert isinstance(chainrule.topological_order(v), list)


# --- what an import loads -----------------------------------------------------------------------


def in_a_fresh_python(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_chainrule_loads_nothing_installed_but_numpy():
    code = """if True:
        import sys, sysconfig
        before = {*sys.modules}  # what installed tools load into every Python
        import chainrule
        places = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
        files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in sys.modules}
        print(*(n for n in files if n not in before and files[n].startswith(places)))
    """
    loaded = {name.partition(".")[0] for name in in_a_fresh_python(code)}
    assert "numpy" in loaded
    assert loaded - {"chainrule", "numpy"} == set()


def test_the_word_engine_survives_importing_the_module_engine():
    code = "import chainrule, chainrule.core.backend, chainrule.derivatives.checking\n"
    code += "from chainrule.core.backend import Value\nprint(chainrule.engine)"
    assert in_a_fresh_python(code) in (["native"], ["reference"])


# --- layering: imports only go downwards --------------------------------------------------------

LAYERS = [
    ["starting"],  # Ctrl-C during all other imports
    # core: the op table, the engines and which of them runs
    ["core.ops"],
    ["core.rounding"],
    ["core.special", "core.randomness"],
    ["core.text", "files", "tensor_files"],
    ["core.errors"],
    ["core.copying"],
    ["core.protocols"],
    ["core.node"],
    ["core.value"],
    ["core.reference"],
    ["_native"],
    ["core.native"],
    ["core.backend"],
    ["core.functions", "core.condensed", "core.interrupts"],
    ["core.graph"],
    ["core.operations"],
    ["trees", "vectors", "windows"],
    ["random"],
    ["see.tables"],  # text and HTML out of rich's parts: reports of every layer use it
    ["derivatives.arguments"],
    ["derivatives.backward"],
    ["derivatives.transforms", "derivatives.finite_differences"],
    ["derivatives.checking", "derivatives.matrices"],
    ["derivatives.solvers"],
    # see: names, words, then what shows them
    [
        *(
            "see.holders",
            "see.names",
            "see.words",
            "see.expressions",
            "see.explanation",
        ),
        *("see.drawing", "see.page", "see.lessons"),
    ],
    ["see.debugging"],
    ["optim"],
    # compiler: the stages in the order that data flows
    ["compiler.workers"],
    ["compiler.capture"],
    ["compiler.lift", "compiler.differentiation"],
    ["compiler.codegen", "compiler.formulas"],
    ["compiler.runtime"],
    ["compiler.mapping"],
    ["compiler.derived", "compiler.saving", "compiler.training", "compiler.translate"],
    ["compiler.sizes"],
    ["compiler.api"],
    ["compiler.loading"],
    ["compiler"],
    ["nn", "gpt"],
    ["play"],
    ["cli"],
    ["__init__"],
    ["__main__"],
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FOLDERS = ("core", "derivatives", "see")  # whose __init__ only says what is in them


def rank(module):
    return RANK.get(module)


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(tree):
    """All nodes, also those inside functions, except under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if is_type_checking(child):
            for other in child.orelse:
                yield from statements(other)
            continue
        yield child
        yield from statements(child)


def part(module):
    """chainrule.compiler.codegen.ir -> compiler.codegen; chainrule.gpt.data -> gpt."""
    parts = [p for p in module.split(".")[1:] if p != "__init__"]
    if not parts:
        return "__init__"
    return ".".join(parts[:2]) if parts[0] in (*FOLDERS, "compiler") else parts[0]


def is_module(name):
    place = PACKAGE.joinpath(*name.split(".")[1:])
    return place.with_suffix(".py").exists() or place.is_dir() or part(name) == "_native"


def imported_by(path):
    """The package's own modules that a file imports, as full dotted names."""
    package = ["chainrule", *path.relative_to(PACKAGE).parts[:-1]]
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "chainrule")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source.split(".")[0] == "chainrule":
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    yield inner if is_module(inner) else source


def dotted(path):
    return ".".join(["chainrule", *path.relative_to(PACKAGE).with_suffix("").parts])


def edges():
    return {
        (part(dotted(path)), part(imported))
        for path in sorted(PACKAGE.rglob("*.py"))
        for imported in imported_by(path)
        if part(dotted(path)) != part(imported)
    }


def test_every_module_has_its_layer():
    modules = {part(dotted(p)) for p in PACKAGE.rglob("*.py")} - {"__init__", *FOLDERS}
    assert {m for m in modules if rank(m) is None} == set(), "give it its place in LAYERS"


def test_imports_only_go_downwards():
    found = edges()
    placed = {(a, b) for a, b in found if rank(a) is not None and rank(b) is not None}
    upwards = {(a, b) for a, b in placed if rank(b) > rank(a)}
    assert upwards == set()
    assert ("__init__", "core.backend") in found, "the test must see the imports there are"


def test_modules_of_one_layer_do_not_import_each_other_in_a_circle():
    found = edges()
    for layer in range(len(LAYERS)):
        inside = {(a, b) for a, b in found if rank(a) == rank(b) == layer}
        order = sorted({module for edge in inside for module in edge})
        while order:
            free = [m for m in order if not any(a == m and b in order for a, b in inside)]
            assert free, f"a circle among {order}"
            order = [m for m in order if m not in free]


@pytest.mark.parametrize("folder", ["runtime", "mapping", "training"])
def test_modules_of_a_stage_do_not_import_each_other_in_a_circle(folder):
    paths = sorted((PACKAGE / "compiler" / folder).rglob("*.py"))
    found = {dotted(p).removesuffix(".__init__"): {*imported_by(p)} for p in paths}
    assert any(found.values())
    while found:
        free = [m for m, imported in found.items() if not (imported - {m}) & found.keys()]
        assert free, f"a circle among {sorted(found)}"
        found = {m: imported for m, imported in found.items() if m not in free}
