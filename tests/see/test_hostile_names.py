"""Labels and operation names that try to steer a terminal, a browser or a reader's eye do not."""

import io
import re
import warnings
import xml.dom.minidom
from html.parser import HTMLParser

import pytest
from rich.console import Console

import chainrule
from chainrule import Value, check_gradients, draw, explain, explore, find_nonfinite, gpt, lessons
from chainrule.cli import reporting
from chainrule.core.text import visible
from chainrule.gpt import charts

HOSTILE = {
    "an escape sequence": "\x1b]0;owned\x07\x1b[2J",
    "a null byte": "a\x00b",
    "half a surrogate pair": "\udc80\ud800",
    "turned text": "abc\u202e\u2066dcba",
    "ends of lines": "a\nb\r\x85\u2028\u2029c",
    "C1 controls": "\x9b2J\x90",
    "no characters": "\ufffe\uffff\U0010ffff",
    "markup": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "quotes": '"\'`\\"|{}<>&amp;]]>',
    "a tag": "\U000e0041\ufeff\u00ad",
}
#: what no output may hold, whatever it is for
BAD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff\U0010ffff]"
)


def clean(text):
    found = BAD.search(text)
    assert found is None, (found, text[max(found.start() - 60, 0) : found.end() + 20])
    text.encode()  # and it can be written as UTF-8
    return text


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def text(request):
    return request.param


@pytest.fixture
def graph(text):
    a, b = Value(2.0, label=text), Value(3.0, label=f"{text} too")
    made = Value(6.0, (a, b), (3.0, 2.0), op=text)
    return (made * a).tanh() + b


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attributes):
        self.seen |= {tag, *(name for name, _ in attributes)}


def tags(html):
    parser = Tags()
    parser.feed(html)
    return parser.seen


def test_every_form_of_explain_is_clean(graph):
    explanation = explain(graph)
    clean(str(explanation))
    clean(repr(explanation))
    html = clean(explanation._repr_html_())
    assert not tags(html) & {"script", "img", "onerror"}
    for node in explanation.nodes:
        clean(node.name)
    for leaf in chainrule.topological_order(graph):
        if not leaf.children:
            clean(str(explanation.paths(leaf)))


def test_explaining_a_large_graph_is_clean(graph, text):
    for _ in range(300):
        graph = Value(graph.data, (graph,), (1.0,), op=text, label=text)
    clean(str(explain(graph)))
    clean(explain(graph)._repr_html_())
    clean(draw(graph).svg)
    clean(draw(graph).dot)
    clean(draw(graph).mermaid)
    clean(explore(graph).html)


def test_every_picture_is_clean(graph):
    drawing = draw(graph)
    svg = clean(drawing.svg)
    assert not tags(svg) & {"script", "img", "onerror"}
    xml.dom.minidom.parseString(svg)
    clean(drawing.mermaid)
    dot = clean(drawing.dot)
    # Every line is one statement, and its quotes are closed.
    for line in dot.splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0, line


def test_the_page_is_clean(graph):
    page = clean(explore(graph).html)
    assert page.count("<script") == page.count("</script>") == len(re.findall("<script", page))
    assert not tags(page) & {"img", "onerror"}
    clean(explore(graph)._repr_html_())


def test_reprs_and_errors_are_clean(graph, text):
    clean(repr(graph))
    for node in chainrule.topological_order(graph):
        clean(repr(node))
    small = Value(-1.0, (Value(1.0, label=text),), (1.0,), op=text)
    for compute in (
        small.log,
        lambda: small**0.5,
        lambda: chainrule.grad(chainrule.grad(lambda x: Value(x.data, (x,), (1.0,), op=text)))(1.0),
        lambda: chainrule.gradients(small, list(small.children), create_graph=True),
    ):
        with pytest.raises(Exception, match=r".") as caught:
            compute()
        clean(str(caught.value))


def test_checks_and_searches_are_clean(text):
    def f(x):
        return Value(x.data, (x,), (7.0,), op=text, label=text) * 2

    with pytest.raises(chainrule.GradientError) as caught:
        check_gradients(f, Value(1.0, label=text))
    clean(str(caught.value))
    with chainrule.nonfinite("allow"):
        wrong = Value(0.0, label=text).log() - Value(1.0, (Value(0.0),), (1.0,), op=text)
    clean(str(find_nonfinite(wrong)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with chainrule.debug(), pytest.raises(Exception, match=r".") as caught:
            (Value(1.0, (Value(0.0, label=text),), (1.0,), op=text) - 1.0).log().backward()
    clean(str(caught.value))


def test_lessons_are_clean(graph):
    try:
        compared = lessons.compare(graph)
    except ValueError as error:  # it has an operation that lessons do not know
        clean(str(error))
    else:
        clean(str(compared))


def test_charts_are_clean(text):
    rows = [gpt.Row(1, 1.0, 0.1), gpt.Row(2, 0.5, 0.1)]
    for svg in (
        charts.losses({text: rows}),
        charts.attention({text: [[1.0]]}, [text], text),
        charts.probabilities([(text, 0.5, [(text, 0.5)])], text),
        charts.histograms({text: [1.0, 2.0]}, text),
    ):
        xml.dom.minidom.parseString(clean(svg))
        assert not tags(svg) & {"script", "img", "onerror"}


def test_letters_of_every_script_stay_as_they_are():
    for words in ("zoë", "小明", "مرحبا", "नमस्ते", "می‌خواهم", "👩‍🔬", "a\u00a0b\u3000c", "−√2"):
        assert visible(words) == words


def test_what_a_model_says_cannot_steer_a_terminal(text):
    lines = io.StringIO()
    reporting.say(Console(file=lines, force_terminal=True, color_system=None), text)
    assert clean(lines.getvalue()).count("\n") == 1
