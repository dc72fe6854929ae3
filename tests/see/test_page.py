"""explore: in a browser the page shows exactly the numbers of `.steps`, and asks for nothing."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import pytest
from big_graphs import gpt_loss, mlp_output
from live_page import DESKTOP, PHONE, SCREENSHOTS, everything, exercise, films, neuron

from chainrule import Value
from chainrule.see.explanation import BackwardStep, ForwardStep, SortStep, explain
from chainrule.see.names import bracketed, short
from chainrule.see.page import LIMIT, explore

NASTY = "<script>alert(1)</script>"


# --- the file -----------------------------------------------------------------------------------


class Reader(HTMLParser):
    """The elements, and what is inside script and style."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.contents, self.last = [], {}, ("", None)
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.last = (tag, dict(attributes).get("type"))

    def handle_endtag(self, tag):
        self.last = ("", None)

    def handle_data(self, data):
        self.contents[self.last] = self.contents.get(self.last, "") + data


def sha256(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_the_one_script_and_the_one_style_by_their_hashes():
    page = Reader(explore(exercise()).html)
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == (
        f"default-src 'none'; script-src '{sha256(page.contents['script', None])}'; "
        f"style-src '{sha256(page.contents['style', None])}'; base-uri 'none'; form-action 'none'"
    )


def test_the_file_refers_to_nothing_outside_and_holds_no_inline_code():
    page = explore(exercise())
    for _, attributes in Reader(page.html).elements:
        assert not {"src", "href", "style", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    script = page.html.rpartition("<script>")[2]
    assert "innerHTML" not in script
    assert "eval" not in script
    assert "fetch" not in script


@pytest.mark.parametrize("label", [NASTY, "</script><b>", "<!--", "{{script}}", "\\u003c", "&lt;"])
def test_no_label_can_break_out_of_the_data(label):
    a = Value(2.0, label=label)
    page = Reader(explore(a * a).html)
    data = json.loads(page.contents["script", "application/json"])
    assert data["graph"]["names"]["0"] == label
    harmless = Reader(explore((x := Value(2.0, label="x")) * x).html)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]


def test_save_writes_the_page(tmp_path):
    page = explore(exercise())
    assert page.save(tmp_path / "g") == tmp_path / "g.html"
    assert (tmp_path / "g.html").read_text(encoding="utf-8") == page.html
    with pytest.raises(ValueError, match=r"cannot save 'g\.pdf': the name must end in \.html"):
        page.save(tmp_path / "g.pdf")
    with pytest.raises(TypeError, match="explore takes a Value, not a float"):
        explore(1.0)


def test_no_gradient_is_changed():
    v = exercise()
    explore(v).html  # noqa: B018
    assert v.grad == 0.0


def test_notebooks_get_a_sandboxed_frame():
    ((tag, attributes),) = Reader(explore(exercise())._repr_html_()).elements
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts allow-downloads"  # of pictures
    assert attributes["srcdoc"] == explore(exercise()).html


def test_large_graphs_are_collapsed_and_say_so():
    v = mlp_output(Value, [5, 6, 3])
    assert len(explain(v).nodes) <= LIMIT
    assert not explore(v).picture.is_collapsed
    large = explore(gpt_loss())
    (film,) = films([large])
    assert len(film) < 400
    assert len(large.html) < 2_000_000  # all 60,000 nodes are in it, and can be walked to
    count = len(large.picture.boxes)
    assert f"{large.picture.node_count:,} nodes in {count} boxes: each step here" in large.html


# --- in a browser -------------------------------------------------------------------------------

SEEN = """() => {
  const text = (id) => document.getElementById(id).textContent;
  const graph = [...document.querySelectorAll("svg.graph")].find((g) => g.style.display !== "none");
  const slots = (kind) => Object.fromEntries([...graph.querySelectorAll(".cr-node")].map((node) =>
    [node.dataset.node, (node.querySelector(kind) || {textContent: null}).textContent]));
  const shown = (id) => !document.getElementById(id).closest("section").hidden;
  const rows = (id) => shown(id) && Object.fromEntries([...document.getElementById(id).rows].map(
    (row) => [row.cells[0].firstChild.textContent, row.cells[1].textContent]));
  const items = (id) => shown(id) &&
    [...document.getElementById(id).children].map((item) => item.textContent);
  const lit = (selector, key) => [...graph.querySelectorAll(selector)].map((e) => +e.dataset[key]);
  return {
    stage: +document.body.dataset.stage,
    headline: text("headline"),
    lines: [...document.getElementById("lines").children].map((p) => p.textContent),
    exact: text("exact"),
    stack: items("stack"),
    sorted: items("sorted"),
    data: slots(".cr-data"),
    grad: slots(".cr-grad"),
    values: rows("value-rows"),
    gradients: rows("gradient-rows"),
    current: lit(".cr-node.is-current", "node"),
    edges: lit(".cr-edge.is-lit", "edge"),
    counter: text("counter"),
  };
}"""


def exact(numbers, form="{}"):
    """What the page adds where five digits do not hold a number."""
    if all(repr(x) == short(x) for x in numbers):
        return ""
    return "exactly " + form.format(*map(repr, numbers))


def check_forward(seen, step: ForwardStep, nodes, computed):
    node = nodes[step.node]
    computed[node.index] = short(node.data)
    assert (seen["stage"], seen["current"]) == (0, [step.node])
    if step.formula:
        said = " ".join([seen["headline"], *seen["lines"]])
        assert said == step.words
        assert len(seen["edges"]) == len(node.children)
    elif node.kind == "input":
        assert seen["headline"] == step.words
    else:
        assert seen["headline"] == step.words == short(node.data)
    assert seen["exact"] == exact([node.data])
    for i, text in seen["data"].items():
        if nodes[int(i)].kind != "constant":
            assert text == computed.get(int(i), "·")
    assert set(seen["grad"].values()) == {"·"}
    assert seen["values"][node.name] == short(node.data)


def check_sort(seen, step: SortStep, nodes):
    assert seen["stage"] == 1
    assert tuple(seen["lines"]) == step.words
    assert seen["stack"] == [f"({nodes[i].name}, {k})" for i, k in reversed(step.stack)]
    assert seen["sorted"] == [nodes[i].name for i in step.sorted_nodes]
    if step.popped:
        i, k = step.popped
        assert (seen["headline"], seen["current"]) == (f"pop ({nodes[i].name}, {k})", [i])
        assert len(seen["edges"]) == (step.child is not None)


def check_gradients_shown(seen, nodes, totals):
    assert seen["grad"] == {str(n.index): short(totals.get(n.index, 0.0)) for n in nodes}
    for node in nodes:
        if node.kind != "constant":
            assert seen["gradients"][node.name] == short(totals.get(node.index, 0.0))


def check_backward(frames, step: BackwardStep, nodes, totals):
    """One step is a frame per contribution; frames are taken from the iterator as needed."""
    node = nodes[step.node]
    assert totals.get(step.node, 0.0) == step.grad
    if not step.contributions:
        seen = next(frames)
        assert seen["current"] == [step.node]
        assert short(step.grad) in seen["headline"]
        assert seen["lines"] == [step.words]
        assert seen["exact"] == exact([step.grad])
        check_gradients_shown(seen, nodes, totals)
    for added in step.contributions:
        seen = next(frames)
        totals[added.child] = added.total
        child = nodes[added.child]
        assert (seen["stage"], seen["current"]) == (2, [step.node])
        assert len(seen["edges"]) == 1
        assert " += ∂" in seen["headline"]
        assert child.name in seen["headline"]
        assert node.name in seen["headline"]
        amount = short(added.amount)
        assert seen["lines"][0] == (
            f"= {short(added.local_grad)} × {bracketed(step.grad)} = {amount}"
        )
        assert added.formula in seen["lines"][1]
        assert added.because in seen["lines"][1]
        if added.total != added.amount:
            assert seen["lines"][-1].endswith(f".grad is now {short(added.total)}")
        numbers = [added.local_grad, step.grad, added.amount, added.total]
        assert seen["exact"] == exact(numbers, "{} × {} = {}, now {}")
        check_gradients_shown(seen, nodes, totals)


@pytest.mark.parametrize("make", [exercise, neuron, everything, lambda: Value(2.0)])
def test_stepping_through_shows_exactly_the_numbers_of_the_steps(visit, make):
    v = make()
    explanation = explain(v)
    page = visit(v)
    frames = [page.evaluate(SEEN)]
    while page.is_enabled("#next"):
        page.click("#next")
        frames.append(page.evaluate(SEEN))
    waiting, nodes, computed, totals = iter(frames), explanation.nodes, {}, {}
    for step in explanation.forward:
        check_forward(next(waiting), step, nodes, computed)
    for step in explanation.sort:
        check_sort(next(waiting), step, nodes)
    seed = next(waiting)
    totals[len(nodes) - 1] = explanation.backward[0].grad
    assert seed["headline"].endswith(".grad = 1.0")
    check_gradients_shown(seed, nodes, totals)
    for step in explanation.backward:
        check_backward(waiting, step, nodes, totals)
    assert next(waiting, None) is None, "the page has more frames than there are steps"
    assert totals == {node.index: node.grad for node in nodes if node.index in totals}

    for expected in reversed(frames[:-1]):  # and all the way back
        page.click("#back")
        assert page.evaluate(SEEN) == expected
    assert not page.is_enabled("#back")


def test_the_keyboard_does_everything(visit):
    page = visit(exercise())
    count = int(page.text_content("#counter").split(" / ")[1])

    def at():
        return int(page.text_content("#counter").split(" / ")[0])

    assert at() == 1
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert at() == 3
    page.keyboard.press("ArrowLeft")
    assert at() == 2
    page.keyboard.press("End")
    assert at() == count
    page.keyboard.press("Home")
    assert at() == 1
    page.select_option("#speed", "200")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    assert page.get_attribute("#play", "aria-label") == "Pause"
    for _ in range(100):
        if at() >= 4:
            break
        page.wait_for_timeout(50)
    assert at() >= 4
    page.keyboard.press("Space")
    assert page.get_attribute("#play", "aria-label") == "Play"
    stopped = at()
    page.wait_for_timeout(500)
    assert at() == stopped
    page.focus("#scrub")  # the slider's own keys, not twice
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert at() == 2
    page.focus("#next")
    page.keyboard.press("Space")
    assert at() == 3
    assert page.get_attribute("#play", "aria-label") == "Play"


def test_playing_reaches_the_end_and_stops(visit):
    page = visit(exercise(), motion="no-preference")
    page.select_option("#speed", "200")
    page.click("#play")
    page.wait_for_selector("#next[disabled]", timeout=20_000)
    assert page.get_attribute("#play", "aria-label") == "Play"
    page.wait_for_timeout(500)
    assert page.locator(".token").count() == 0


def test_scrubbing_and_stage_buttons_go_anywhere_at_once(visit):
    page = visit(exercise())
    page.click("[data-stage='2']")
    assert page.text_content("#headline") == "L.grad = 1.0"
    page.fill("#scrub", "3")
    assert page.text_content("#headline") == "L = c + a"
    page.click("[data-stage='1']")
    assert page.text_content("#headline") == "start"
    assert page.locator("[aria-current]").get_attribute("data-stage") == "1"


def test_a_node_shows_its_history(visit):
    page = visit(exercise())
    page.keyboard.press("End")
    node = page.locator("svg.graph:visible .cr-node[data-node='0']")
    node.focus()
    page.keyboard.press("Enter")
    assert page.text_content("#history-title") == "History of a"
    assert page.locator("#history-list li").all_text_contents() == [
        "a = 2: an input",
        "pop (c, 0): a is new, push (a,0) to explore it",
        "pop (a, 0): add a to sorted nodes",
        "pop (L, 1): a already visited, skip",
        "a.grad += ∂L/∂a × L.grad = 1.0 × 1.0 = 1.0",
        "a.grad += ∂c/∂a × c.grad = 3.0 × 1.0 = 3.0",
        "a.grad is 4.0: a has no inputs (leaf), skip",
    ]
    page.locator("#history-list button").nth(5).click()
    assert page.text_content("#headline") == "a.grad += ∂c/∂a × c.grad"
    assert page.locator("tr[data-grad='0']").text_content() == "a1.0 + 3.04.0"
    page.keyboard.press("Escape")
    assert page.locator("#history").is_hidden()
    page.locator("svg.graph:visible .cr-node[data-node='2']").click()
    assert page.text_content("#history-title") == "History of c"


def test_a_label_that_looks_like_a_script_is_text(visit):
    a = Value(2.0, label=NASTY)
    page = visit(a * a)
    assert page.text_content("#headline") == f"{NASTY} = 2"
    assert page.locator("svg.graph:visible .cr-name").first.text_content() == NASTY
    page.locator("svg.graph:visible .cr-node").first.click()
    assert page.text_content("#history-title") == f"History of {NASTY}"
    assert page.locator("script").count() == 2


def test_the_policy_stops_any_other_script(browser, tmp_path):
    file = explore(exercise()).save(tmp_path / "page.html")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.evaluate(
        "() => { const s = document.createElement('script');"
        " s.textContent = 'window.intruder = true'; document.body.append(s); }"
    )
    assert page.evaluate("window.intruder") is None
    page.close()


def test_in_a_notebook_the_frame_runs_and_cannot_reach_out(browser, tmp_path):
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><body>{explore(exercise())._repr_html_()}", encoding="utf-8")
    page = browser.new_page(viewport=DESKTOP)
    page.goto(file.as_uri())
    frame = page.frames[1]
    frame.click("#next")
    assert frame.text_content("#counter") == "2 / 20"
    reach_out = "() => { try { return String(parent.document.title) } catch (e) { return e.name } }"
    assert frame.evaluate(reach_out) == "SecurityError"
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_each_theme_on_each_screen(visit, theme, viewport):
    SCREENSHOTS.mkdir(exist_ok=True)
    page = visit(neuron(), theme=theme, viewport=viewport)
    name = f"{'phone' if viewport is PHONE else 'desktop'}-{theme}"
    for stage in range(3):
        page.click(f"[data-stage='{stage}']")
        for _ in range(6):
            page.click("#next")
        page.screenshot(path=SCREENSHOTS / f"explore-{name}-{stage + 1}.png")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 24)"
    assert dark == (theme == "dark")
    page.click("#theme")
    assert dark != (
        page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 24)"
    )


def test_a_phone_has_room_for_everything(visit):
    page = visit(neuron(), viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("document.documentElement.scrollHeight") <= PHONE["height"]
    for selector in ("#first", "#back", "#play", "#next", "#last", "[data-stage='1']"):
        box = page.locator(selector).bounding_box()
        assert box["width"] >= 40
        assert box["height"] >= 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert box["y"] + box["height"] <= PHONE["height"]
    for _ in range(20):  # the node in focus stays in view
        page.click("#next")
        node = page.locator("svg.graph:visible .cr-node.is-current .cr-body").bounding_box()
        area = page.locator("#scroll").bounding_box()
        assert area["x"] <= node["x"]
        assert node["x"] + node["width"] <= area["x"] + area["width"]
        assert area["y"] <= node["y"]
        assert node["y"] + node["height"] <= area["y"] + area["height"]


def test_every_control_has_a_name_and_each_step_is_announced(visit):
    page = visit(exercise())
    for control in page.locator("button:visible, input, select").all():
        name = control.get_attribute("aria-label") or control.text_content()
        assert name.strip() or control.evaluate("e => e.labels.length") == 1
    assert page.get_attribute("#card", "aria-live") == "polite"
    page.click("#next")
    value = page.get_attribute("#scrub", "aria-valuetext")
    assert value == "Forward, step 2 / 20: b = 3"
    node = page.locator("svg.graph:visible .cr-node").first
    assert node.get_attribute("aria-label") == "a, input, data 2.0. Space for its history"
    assert node.get_attribute("role") == "button"


def test_numbers_travel_along_wires_only_where_motion_is_welcome(visit):
    for motion, tokens in (("no-preference", 1), ("reduce", 0)):
        page = visit(exercise(), motion=motion)
        page.click("[data-stage='2']")
        page.click("#next")
        assert page.locator(".token").count() == tokens


def test_two_hundred_nodes_step_without_delay(visit):
    v = mlp_output(Value, [5, 6, 3])
    count = len(explain(v).nodes)
    assert 150 <= count <= LIMIT
    page = visit(v)
    assert page.locator("svg.graph:visible .cr-node").count() == count
    page.keyboard.press("End")
    last = page.text_content("#counter")
    assert re.fullmatch(r"(\d+) / \1", last)


def test_sixty_thousand_nodes_are_stepped_through_box_by_box(visit):
    loss = gpt_loss()
    page = visit(loss)
    boxes = explore(loss).picture.boxes
    assert page.locator("svg.graph:visible .cr-node").count() == len(boxes)
    page.keyboard.press("End")
    shown = page.evaluate(SEEN)["grad"]
    assert shown == {str(box.number): box.grad for box in boxes}
    assert "each step here stands for many" in html.unescape(page.text_content("#note"))
