"""Every public name has a docstring with an example, and the examples are true on either engine."""

import doctest
import inspect

import numpy as np
import pytest

import chainrule
from chainrule import Value

NAMES = [name for name in chainrule.__all__ if callable(getattr(chainrule, name))]


def run_examples(name, text):
    """The number of examples in a docstring; fails where one prints something else."""
    globs = {"chainrule": chainrule, "np": np, "Value": Value}
    test = doctest.DocTestParser().get_doctest(text, globs, name, None, 0)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    results = runner.run(test, out=report.append)
    assert results.failed == 0, "".join(report)
    return results.attempted


@pytest.mark.parametrize("name", NAMES)
def test_the_public_name_has_a_docstring_with_a_true_example(name):
    text = inspect.getdoc(getattr(chainrule, name))
    assert text, f"{name} has no docstring"
    assert run_examples(name, text) > 0, f"the docstring of {name} has no example"


def test_examples_of_methods_are_true():
    for name, member in inspect.getmembers(Value):
        text = inspect.getdoc(member) or ""
        if not name.startswith("_") and ">>>" in text:
            assert run_examples(f"Value.{name}", text) > 0


@pytest.mark.parametrize("name", ["backward", "zero_grad"])
def test_the_methods_of_the_contract_are_documented(name):
    assert len(inspect.getdoc(getattr(Value, name)) or "") > 20


def test_the_package_says_what_it_is():
    assert "Value" in (chainrule.__doc__ or "")
