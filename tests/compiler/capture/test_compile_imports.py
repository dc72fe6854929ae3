"""Imports in the body of a function: what they bring is followed as globals are."""

import importlib
import sys
import textwrap

import pytest

import chainrule

FILES = {
    "noting.py": "LOG, RATE = [], 2.0\ndef note(x):\n    LOG.append(x)\n    return x\n"
    "def rate():\n    return RATE\n",
    "box/__init__.py": "",
    "box/inside.py": "LOG, RATE = [], 2.0\ndef note(x):\n    LOG.append(x)\n    return x\n"
    "def rate():\n    return RATE\n",
    "box/parts.py": """
        import box.inside

        def of_a_package(x):
            some = box.inside
            return x * some.note(2.0) * some.rate()

        def only_reads(x):
            some = box.inside
            return x * some.rate()
    """,
    "box/users.py": """
        def module(x):
            import noting
            return x * noting.note(2.0) * noting.rate()

        def name(x):
            from noting import note, rate
            return x * note(2.0) * rate()

        def dotted(x):
            import box.inside
            return x * box.inside.note(2.0) * box.inside.rate()

        def renamed(x):
            import box.inside as other
            return x * other.note(2.0) * other.RATE

        def beside(x):
            from . import inside
            return x * inside.note(2.0) * inside.rate()

        def from_beside(x):
            from .inside import note, rate
            return x * note(2.0) * rate()

        def within(x):
            def deep(y):
                from box import inside
                return y * inside.note(2.0) * inside.rate()
            return deep(x)

        noting = 3.0

        def hidden_by_a_global(x):
            import noting
            return x * noting.note(2.0) * noting.rate()

        def only_reads(x):
            from .inside import rate
            return x * rate()

        def rate_of(some):
            return some.RATE

        def passed_on(x):
            import noting as other
            return x * rate_of(other)

        def imported_elsewhere():
            from . import inside
            return inside

        def from_a_helper(x):
            return x * imported_elsewhere().RATE

        def in_a_case(x):
            import noting as other
            match other:
                case object(RATE=rate):
                    return x * rate

        def missing(x):
            try:
                import there_is_no_such_module
            except ImportError:
                return x * 2.0
            return x
    """,
}
USERS = [
    *("module", "name", "dotted", "renamed", "beside", "from_beside", "within"),
    "hidden_by_a_global",
]


@pytest.fixture(params=["imported before", "imported by the first call"])
def users(tmp_path, monkeypatch, request):
    """A package whose functions import modules, of which the log and the rate are asked for."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("noting", "box", "box.inside", "box.users", "box.parts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    made = importlib.import_module("box.users")
    if request.param == "imported before":
        importlib.import_module("noting")
        importlib.import_module("box.inside")
    yield made
    for name in ("noting", "box", "box.inside", "box.users", "box.parts"):
        sys.modules.pop(name, None)


def modules():
    return [sys.modules[name] for name in ("noting", "box.inside") if name in sys.modules]


@pytest.mark.parametrize("name", USERS)
def test_what_an_imported_function_does_happens_at_every_call(users, name):
    fast = chainrule.compile(getattr(users, name), on_fallback="eager")
    for k in range(20):
        before = sum(len(module.LOG) for module in modules())
        assert fast.value_and_grad(1.0 + k) == (4.0 * (1.0 + k), 4.0)
        assert sum(len(module.LOG) for module in modules()) == before + 1


PASSED_ON = ["only_reads", "passed_on", "from_a_helper", "in_a_case"]


@pytest.mark.parametrize("name", [*USERS, *PASSED_ON])
def test_what_changes_in_an_imported_module_is_seen(users, name):
    f = getattr(users, name)
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for k in range(20):
        for module in modules():
            module.RATE = float(k // 3)
        assert fast.value_and_grad(2.0) == eager(2.0)


def test_an_import_that_fails_is_as_in_eager_mode(users):
    fast = chainrule.compile(users.missing, on_fallback="eager")
    for k in range(5):
        assert fast.value_and_grad(float(k)) == (2.0 * k, 2.0)


def test_the_first_call_that_imports_warns_of_nothing(users):
    fast = chainrule.compile(users.only_reads)
    for _ in range(5):
        assert fast.value_and_grad(3.0) == (6.0, 2.0)
    assert fast.dispatch.counts.replayed >= 3


def rate_of(module):
    return module.RATE


def test_modules_in_lists_classes_and_defaults_are_watched_under_all_names(users):
    noting = importlib.import_module("noting")
    several = [noting]

    class Holder:
        module = noting

    def listed(x):
        return x * rate_of(several[0])

    def held(x):
        return x * Holder.module.RATE

    def given(x, module=noting):
        return x * rate_of(module)

    def enclosed(x):
        return x * rate_of(noting)

    for f in (listed, held, given, enclosed):
        fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
        for k in range(12):
            noting.RATE = float(k // 3)
            assert fast.value_and_grad(2.0) == eager(2.0)
        assert fast.dispatch.counts.replayed


def test_a_part_of_a_package_under_another_name_is_watched(users):
    parts = importlib.import_module("box.parts")
    noted = chainrule.compile(parts.of_a_package, on_fallback="eager")
    read = chainrule.compile(parts.only_reads)
    for k in range(6):
        parts.box.inside.RATE = float(k // 2)
        assert noted.value_and_grad(2.0) == (2.0 * 2.0 * (k // 2), 2.0 * (k // 2))
        assert len(parts.box.inside.LOG) == k + 1
        assert read.value_and_grad(2.0) == (2.0 * (k // 2), float(k // 2))
    assert read.dispatch.counts.replayed
