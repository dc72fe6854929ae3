"""Expressions of the command line: what they may hold, and where their errors point."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import Value, topological_order
from chainrule.core import ops
from chainrule.see.expressions import (
    FUNCTIONS,
    LONGEST,
    ExpressionError,
    evaluate,
    parse,
    parse_values,
)


def value_of(text, *values):
    return evaluate(text, values)[2].data


def test_the_walkthrough():
    expression, inputs, f = evaluate("relu(a*b + d)", ["a=2", "b=-3", "d=10"])
    f.backward()
    assert f.data == 4.0
    assert {name: v.grad for name, v in inputs.items()} == {"a": -3.0, "b": 2.0, "d": 1.0}
    assert expression.inputs == ("a", "b", "d")
    assert [v.label for v in topological_order(f) if not v.children] == ["a", "b", "d"]


def test_statements_give_labels():
    _, _, loss = evaluate("c = a*b; L = c + a", ["a=2", "b=3"])
    assert [v.label for v in topological_order(loss)] == ["a", "b", "c", "L"]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a - b / 2", ["a=5", "b=4"], 3.0),
        ("-a", ["a=2"], -2.0),
        ("+a", ["a=2"], 2.0),
        ("--a", ["a=2"], 2.0),
        ("a**2 + 2**a", ["a=3"], 17.0),
        ("-a**2", ["a=3"], -9.0),
        ("2 / a", ["a=4"], 0.5),
        ("1/3*a", ["a=3"], 1.0),
        ("a*pi", ["a=1"], math.pi),
        ("a*e", ["a=1"], math.e),
        ("a*e", ["a=3", "e=2"], 6.0),
        ("e = a + 1; e*2", ["a=1"], 4.0),
        ("log(exp(a))", ["a=2"], 2.0),
        ("where(a > b, a, b)", ["a=1", "b=2"], 2.0),
        ("where(a, 10*a, b)", ["a=1", "b=2"], 10.0),
        ("clip(a, 0, 1)", ["a=3"], 1.0),
        ("clip(a, high=2)", ["a=3"], 2.0),
        ("leaky_relu(a)", ["a=-1"], -0.01),
        ("leaky_relu(a, 0.5)", ["a=-1"], -0.5),
        ("leaky_relu(a, slope=0.5)", ["a=-1"], -0.5),
        ("arctan(a)", ["a=0"], 0.0),
        ("maximum(a, 2)", ["a=1"], 2.0),
        ("a = 2; b = 3; a*b", [], 6.0),
        ("d = a; d += d*2; d", ["a=1"], 3.0),
        ("a += 1", ["a=1"], 2.0),
        ("a*1_000", ["a=1"], 1000.0),
        ("  a  ", ["a=1"], 1.0),
        ("a", ["a=pi/2"], math.pi / 2),
        ("a", ["a=-1e-3"], -1e-3),
        ("ﬁ*2", ["fi=2"], 4.0),
    ],
)
def test_what_can_be_written(text, values, expected):
    assert value_of(text, *values) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_of_the_table_can_be_called(name):
    op = FUNCTIONS[name]
    x = {"acosh": 1.5, "arccosh": 1.5}.get(name, 0.5)
    arguments = ["a", "0.25"][: op.arity] + ["0.1", "0.9"][: len(op.parameters)]
    if name == "where":
        arguments = ["1", "a", "b"]
    if name == "polygamma":
        arguments = ["a", "1"]
    _, inputs, y = evaluate(
        f"{name}({', '.join(arguments)})", [f"a={x}"] + ["b=2"] * (name == "where")
    )
    assert y.op == op.symbol
    assert math.isfinite(y.local_grads[0])
    assert inputs["a"] in y.children


def test_a_number_is_a_float_before_any_arithmetic():
    _, _, y = evaluate("a + 7", ["a=1"])
    assert type(y.children[1].data) is float


# Text, values, what the message says, and the column of its caret.
WRONG = [
    ("9**9**9", [], "9**387420489 overflows", 0),
    ("a*9**9**9", ["a=1"], "overflows", 2),
    ("a + 1/0", ["a=1"], "division by zero", 4),
    ("a/0", ["a=1"], "division by zero", 0),
    ("1e308*10*a", ["a=1"], "overflows", 0),
    ("(-8)**(1/3)*a", ["a=1"], "undefined", 0),
    ("2*log(a)", ["a=-1"], "log(-1) is undefined", 2),
    ("a*bb", ["a=1"], "'bb' has no value: add bb=NUMBER", 2),
    ("alpha*x", ["alpah=1", "x=1"], "did you mean 'alpah'?", 0),
    ("1 + tanhh(a)", ["a=1"], "unknown function 'tanhh'; did you mean 'tanh'?", 4),
    ("ln(a)", ["a=1"], "did you mean 'log'?", 0),
    ("a + tanh", ["a=1"], "tanh is a function: write tanh(...)", 4),
    ("a(2)", ["a=1"], "'a' is a number, not a function", 0),
    ("2(a)", ["a=1"], "write 2*(a)", 0),
    ("2a", ["a=1"], "write 2*a", None),  # where exactly is Python's to say
    ("a +", ["a=1"], "syntax error", None),
    ("(a", ["a=1"], "syntax error", None),
    ("a b", ["a=1", "b=1"], "syntax error", None),
    ("a^2", ["a=1"], "a power is written **", 2),
    ("a % 2", ["a=1"], "% is not allowed", 4),
    ("a > 0", ["a=1"], "only be the condition of where", 0),
    ("where(0 < a < 1, a, a)", ["a=1"], "one comparison", 6),
    ("where(a == 1, a, a)", ["a=1"], "one comparison", 6),
    ("a.data", ["a=1"], "an attribute is not allowed", 0),
    ("a[0]", ["a=1"], "an index is not allowed", 0),
    ("__import__('os').system('true')", [], "only functions such as tanh(x)", 0),
    ("(lambda: 1)()", [], "only functions", 0),
    ("a + (lambda: 1)", ["a=1"], "a lambda is not allowed", 5),
    ("a if a else 2", ["a=1"], "write where", 0),
    ("a and a", ["a=1"], "and/or is not allowed", 0),
    ("not a", ["a=1"], "only the signs", 0),
    ("a, a", ["a=1"], "a comma is not allowed", 0),
    ("a + 'x'", ["a=1"], "only real numbers", 4),
    ("a + 2j", ["a=1"], "only real numbers", 4),
    ("a + True", ["a=1"], "only real numbers", 4),
    ("a + 1e999", ["a=1"], "too large for a float", 4),
    ("a + " + "9" * 400, ["a=1"], "too large for a float", 4),
    ("import os", [], "only expressions and assignments", 0),
    ("a.b = 2", ["a=1"], "only a name can be assigned to", 0),
    ("b = c = a", ["a=1"], "only expressions and assignments", 0),
    ("tanh = a", ["a=1"], "'tanh' is a function", 0),
    ("a; a*2", ["a=1"], "only the last statement", 0),
    ("tanh()", [], "tanh is called as tanh(x)", 0),
    ("tanh(a, a)", ["a=1"], "tanh is called as tanh(x)", 0),
    ("where(a, a)", ["a=1"], "where(condition, a, b)", 0),
    ("clip(a, a, 1)", ["a=1"], "must be plain numbers", 0),
    ("leaky_relu(a, slop=1)", ["a=1"], "no such named argument", 19),
    ("tanh(x=a)", ["a=1"], "no such named argument", 7),
    ("tanh(*a)", ["a=1"], "not allowed", 5),
    ("日本 + q", ["日本=1"], "'q' has no value", 5),
    ("1 + 2", [], "nothing to differentiate", 0),
    # in the values
    ("a", ["a=1", "b=2"], "'b' is given but not used", 4),
    ("a + b", ["a=1", "b=1", "c=2"], "'c' is given but not used", 8),
    ("a", ["a=1", "a=2"], "'a' is given twice", 4),
    ("a", ["a"], "'a' is not a value: write a=2", 0),
    ("a", ["a="], "is not a value", 0),
    ("a", ["=2"], "cannot be a name", 0),
    ("a", ["2=3"], "cannot be a name", 0),
    ("a", ["lambda=3"], "cannot be a name", 0),
    ("a", ["tanh=3"], "is a function", 0),
    ("a", ["a=two"], "'two' is not a number", 2),
    ("a", ["a=1+"], "'1+' is not a number: syntax error", None),
    ("a", ["a=9**9**9"], "overflows", 2),
    ("a", ["a=1;2"], "is not a number", 2),
    ("a", ["a=b=2"], "is not a number", 2),
]


@pytest.mark.parametrize(("text", "values", "message", "column"), WRONG)
def test_what_is_wrong_is_said_in_one_line_with_a_caret_under_it(text, values, message, column):
    with pytest.raises(ExpressionError) as caught:
        evaluate(text, values)
    lines = str(caught.value).splitlines()
    assert message in lines[0]
    assert len(lines) == 3
    assert lines[2].strip() == "^"
    assert column in (caught.value.column, None)


def test_the_caret_stands_under_wide_characters():
    with pytest.raises(ExpressionError) as caught:
        evaluate("日本 + q", ["日本=1"])
    assert str(caught.value).splitlines()[1:] == ["  日本 + q", "         ^"]


def test_a_long_line_is_cut_around_the_caret():
    with pytest.raises(ExpressionError) as caught:
        evaluate("+".join(["a"] * 400) + " + $", ["a=1"])
    _, line, caret = str(caught.value).splitlines()
    assert len(line) <= 80
    assert line[caret.index("^")] == "$"


def test_the_second_line_is_shown_where_the_error_is_there():
    with pytest.raises(ExpressionError) as caught:
        evaluate("c = a\nc * q", ["a=1"])
    assert str(caught.value).splitlines()[1:] == ["  c * q", "      ^"]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 900 + "a" + ")" * 900,
        "-" * (LONGEST - 1) + "a",
        "a" + "**a" * 600,
        "tanh(" * 300 + "a" + ")" * 300,
        "a" * (LONGEST + 1),
        "9**9**9**9**9**9*a",
        "0x" + "f" * 1900,
        "a\0",
        "",
        "   ",
        "# nothing",
        "\n\n",
        "\ud800",
    ],
)
def test_hostile_text_is_refused_at_once(text):
    started = time.perf_counter()
    with pytest.raises(ExpressionError):
        evaluate(text, ["a=1"])
    assert time.perf_counter() - started < 5


def test_a_long_sum_is_not_deep():
    text = "+".join(["a"] * 900)
    assert value_of(text, "a=1") == 900.0


@given(st.text(alphabet="ab12.+-*/() ,;=<>[]{}'\"\\\n\t#@!^&|~:lambdawheretanh", max_size=60))
def test_any_text_gives_a_graph_or_an_expression_error(text):
    try:
        _, _, y = evaluate(text, ["a=1.5", "b=-2"])
    except ExpressionError as error:
        y = str(error) and Value(0.0)  # words there are, whatever the text is
    assert isinstance(y, Value)


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_unicode_is_met_with_words(text, value):
    try:
        evaluate(text, [value])
    except ExpressionError as error:
        str(error)


def test_an_expression_can_be_called_again_with_other_numbers():
    f = parse("c = a*b; c + a")
    assert f(a=2, b=3).data == 8.0
    assert f(a=1, b=1).data == 2.0
    a = Value(5.0)
    assert a in topological_order(f(a=a, b=0))


def test_values_are_numbers_by_name():
    assert parse_values(["a=2", "b=-3", "c=1e3"]) == {"a": 2.0, "b": -3.0, "c": 1000.0}
    assert parse_values([]) == {}


def test_the_graph_is_the_one_python_builds():
    _, _, y = evaluate("tanh(a - b) / 3", ["a=1", "b=2"])
    a, b = Value(1.0), Value(2.0)
    expected = (a - b).tanh() / 3
    ours, theirs = topological_order(y), topological_order(expected)
    assert [(v.op, v.data) for v in ours] == [(v.op, v.data) for v in theirs]
    assert y.children[0].op == ops.tanh.symbol
