"""The page's controls, each in a browser: what a learner presses, and what is shown then."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from big_graphs import gpt_loss, mlp_output
from live_page import DESKTOP, LANDSCAPE, PHONE, SCREENSHOTS, SLIDE, exercise, neuron

from chainrule import Value, explain, explore, lessons
from chainrule.see.names import short
from chainrule.see.page.stories import stories


def shown(page, kind):
    """The numbers in the graph, by name."""
    script = """(kind) => Object.fromEntries([...document.querySelectorAll("svg.graph .cr-node")]
      .map((n) => [(n.querySelector(".cr-name") || n.querySelector(".cr-title")).textContent,
                   (n.querySelector(kind) || { textContent: null }).textContent]))"""
    return page.evaluate(script, kind)


def rows(page, selector):
    script = """(s) => [...document.querySelectorAll(s)].map(
      (row) => [...row.cells].map((cell) => cell.firstChild.textContent))"""
    return page.evaluate(script, selector)


def moved_exercise(a, b):
    """The exercise with other inputs."""
    first, second = Value(a, label="a"), Value(b, label="b")
    c = first * second
    c.label = "c"
    loss = c + first
    loss.label = "L"
    return loss


# --- inputs -------------------------------------------------------------------------------------


def test_every_input_has_a_slider_and_a_field_and_all_numbers_follow(visit):
    page = visit(exercise())
    assert page.locator("#input-rows li").count() == 2
    page.keyboard.press("End")
    page.fill("#number-0", "5.5")
    wanted = explain(moved_exercise(5.5, 3.0))
    assert shown(page, ".cr-data") == {n.name: short(n.data) for n in wanted.nodes}
    assert shown(page, ".cr-grad") == {n.name: short(n.grad) for n in wanted.nodes}
    assert page.input_value("#slider-0") == "5.5"
    slider = page.locator("#slider-1")
    slider.focus()
    page.keyboard.press("ArrowRight")
    b = float(page.input_value("#slider-1"))
    assert b > 3.0
    wanted = explain(moved_exercise(5.5, float(page.input_value("#number-1"))))
    assert shown(page, ".cr-grad") == {n.name: short(n.grad) for n in wanted.nodes}
    page.click("#inputs-reset")
    assert shown(page, ".cr-data")["L"] == "8.0"
    assert page.input_value("#number-0") == "2"


def test_the_whole_film_is_that_of_the_moved_inputs(visit):
    page = visit(exercise())
    page.fill("#number-0", "-1.25")
    page.fill("#number-1", "0.1")
    explanation = explain(moved_exercise(-1.25, 0.1))
    said = []
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Home")
    while True:
        said.append(
            page.text_content("#headline")
            + " "
            + " ".join(page.locator("#lines p").all_text_contents())
        )
        if not page.is_enabled("#next"):
            break
        page.click("#next")
    wanted = [step.words for step in explanation.forward if step.formula]
    assert [line for line in said if line in wanted] == wanted
    added = [
        c.words.split(", now")[0].split(" += ")[1]
        for s in explanation.backward
        for c in s.contributions
    ]
    assert all(any(f"= {amount}" in line for line in said) for amount in added)


def test_dragging_keeps_the_step_when_steps_come_and_go(visit):
    a = Value(2.0, label="a")
    b = a.relu()
    b.label = "b"
    page = visit(b * 3.0 + a)
    page.click("[data-stage='2']")
    while "b.grad" not in page.text_content("#headline"):
        page.click("#next")
    before = page.text_content("#headline")
    page.fill("#number-0", "-2")
    assert page.text_content("#headline") == before


def test_what_is_typed_wrongly_changes_nothing_and_is_marked(visit):
    page = visit(exercise())
    page.keyboard.press("End")
    before = shown(page, ".cr-data")
    for text in ("two", "1/3", "", "1e999", "nan", "0x10"):
        page.fill("#number-0", text)
        assert page.get_attribute("#number-0", "aria-invalid") == "true"
        assert shown(page, ".cr-data") == before
    page.press("#number-0", "Tab")
    assert page.input_value("#number-0") == "2"


def test_an_undefined_result_is_said_in_words(visit):
    x = Value(2.0, label="x")
    page = visit(x.log() + 1.0)
    page.fill("#number-0", "-1")
    said = page.text_content("#trouble")
    assert "log(-1) is nan: it needs x > 0. In Python this line raises an error" in said
    page.fill("#number-0", "3")
    assert page.text_content("#trouble") == ""


def test_an_input_of_something_the_page_cannot_compute_is_not_moved(visit):
    x, y = Value(2.0, label="x"), Value(3.0, label="y")
    page = visit(Value(8.0, (x,), (12.0,), op="cube") + y)
    assert page.is_disabled("#slider-0")
    assert page.is_disabled("#number-0")
    assert "the page does not know how cube is computed" in page.text_content("#input-rows")
    assert page.is_enabled("#slider-2")
    page.evaluate("location.hash = 'step=1&in.x=5'")
    page.wait_for_timeout(100)
    assert page.input_value("#number-0") == "2"


def test_corners_are_called_conventions(visit):
    x = Value(0.0, label="x")
    page = visit(x.relu() + abs(x))
    page.click("[data-stage='2']")
    said = ""
    while page.is_enabled("#next"):
        page.click("#next")
        said += page.text_content("#lines") + "\n"
    assert "a corner (slope 0.0 to the left, 1.0 to the right), so 0.0 is a convention" in said
    assert "a corner (slope -1.0 to the left, 1.0 to the right), so 0.0 is a convention" in said


# --- predict ------------------------------------------------------------------------------------


def test_predict_hides_each_number_until_it_is_typed_and_keeps_the_score(visit):
    page = visit(neuron())
    explanation = explain(neuron())
    wanted = [c for step in explanation.backward for c in step.contributions]
    page.click("#show-predict")
    for k, added in enumerate(wanted):
        assert page.text_content("#predict-count").startswith(f"Question {k + 1} of {len(wanted)}")
        name = explanation.nodes[added.child].name
        assert "?" in shown(page, ".cr-grad")[name]
        assert page.is_disabled("#next")
        if k == 1:
            page.fill("#predict-answer", "77")
            page.keyboard.press("Enter")
            assert "Not that" in page.text_content("#predict-feedback")
            assert page.locator("#predict-feedback.is-wrong").count() == 1
        page.fill("#predict-answer", short(added.amount))
        page.keyboard.press("Enter")
        assert page.text_content("#predict-feedback").startswith("Right: ")
        assert shown(page, ".cr-grad")[name] == short(added.total)
        page.keyboard.press("Enter")  # the button "Next" has the focus
    score = f"{len(wanted) - 1} of {len(wanted)} right at the first try"
    assert page.text_content("#predict-headline") == score
    assert page.locator("#predict-answers .is-wrong").count() == 1
    page.click("#predict-again")
    assert "Question 1 of" in page.text_content("#predict-count")
    page.click("#show-step")
    assert page.is_enabled("#next")


def test_predict_says_which_factor_is_wrong(visit):
    a, b = Value(2.0, label="a"), Value(-3.0, label="b")
    c = a * b
    c.label = "c"
    f = c * 5.0 + a
    f.label = "f"
    page = visit(f)
    page.click("#show-predict")
    while "a.grad += ∂c/∂a" not in page.text_content("#predict-headline"):
        page.click("#predict-show")
        page.click("#predict-next")
    # a.grad was 1; ∂c/∂a is b = -3, c.grad is 5, so -15 is added and a.grad becomes -14.
    for answer, said in {
        "-14": "That is what a.grad is afterwards",
        "15": "The size is right, the sign is not",
        "-3": "That is the local gradient alone. Multiply it by c.grad, which is 5.0",
        "5": "That is c.grad alone: the local gradient is missing",
        "10": "The local gradient is wrong: that is the one of b. ∂c/∂a is b = -3.0",
        "18": "The local gradient is right. The other factor is c.grad = 5.0, not the data of c",
        "": "Type a number",
        "many": "“many” is not a number",
    }.items():
        page.fill("#predict-answer", answer)
        page.click("#predict-check")
        assert said in page.text_content("#predict-feedback"), answer
    page.fill("#predict-answer", "-15")
    page.click("#predict-check")
    assert (
        page.text_content("#predict-feedback") == "Right: -3.0 × 5.0 = -15.0. a.grad is now -14.0."
    )


# --- nudge --------------------------------------------------------------------------------------


def test_nudge_compares_the_quotient_with_the_gradient(visit):
    page = visit(exercise())
    page.click("#show-nudge")
    page.select_option("#nudge-h", "0.01")
    table = rows(page, "#nudge-rows tr")
    assert table[0] == ["L at a = 2", "8.0"]
    assert table[1][1] == repr(2.01 * 3.0 + 2.01)
    assert table[2] == ["difference / h", short((2.01 * 3.0 + 2.01 - 8.0) / 0.01)]
    assert table[3] == ["a.grad", "4.0"]
    page.select_option("#nudge-input", "1")
    assert rows(page, "#nudge-rows tr")[3] == ["b.grad", "2.0"]
    page.fill("#number-0", "7")  # the curve follows the other inputs too
    assert rows(page, "#nudge-rows tr")[3] == ["b.grad", "7.0"]
    assert "tangent at 3 has the slope 7.0" in page.get_attribute("#nudge-curve", "aria-label")
    assert page.locator("#nudge-curve .curve").get_attribute("d").startswith("M")
    page.locator("svg.graph .cr-node[data-node='0']").click()
    assert rows(page, "#nudge-rows tr")[3][0] == "a.grad"


# --- paths --------------------------------------------------------------------------------------


def test_paths_light_up_and_their_products_add_up(visit):
    page = visit(exercise())
    page.click("#show-paths")
    assert rows(page, "#paths-rows tr") == [["a → c → L", "3.0"], ["a → L", "1.0"]]
    assert rows(page, "#paths-sum tr") == [["sum = a.grad", "4.0"]]
    assert page.text_content("#paths-formula") == "∂L/∂a = ∂L/∂c · ∂c/∂a  +  ∂L/∂a"
    assert page.locator(".cr-edge.is-path").count() == 3
    assert sorted(page.locator(".slope text").all_text_contents()) == ["× 1.0", "× 1.0", "× 3.0"]
    page.locator("svg.graph .cr-node[data-node='1']").hover()  # pointing is enough
    assert rows(page, "#paths-rows tr") == [["b → c → L", "2.0"]]
    page.mouse.move(5, 5)
    assert rows(page, "#paths-sum tr") == [["sum = a.grad", "4.0"]]
    page.locator("svg.graph .cr-node[data-node='1']").focus()
    page.keyboard.press("Space")
    page.mouse.move(5, 5)
    assert rows(page, "#paths-sum tr") == [["sum = b.grad", "2.0"]]
    page.select_option("#paths-node", "2")
    assert rows(page, "#paths-rows tr") == [["c → L", "1.0"]]


def test_very_many_paths_are_counted(visit):
    x = Value(1.0, label="x")
    y = x
    for _ in range(30):
        y = y + y
    page = visit(y)
    page.click("#show-paths")
    assert "1,073,741,824 paths lead from x" in page.text_content("#paths-said")
    assert page.locator("#paths-rows tr").count() == 12


# --- mistakes -----------------------------------------------------------------------------------


def test_each_broken_engine_beside_the_right_one(visit):
    page = visit(exercise())
    page.click("#show-broken")
    expected = {one.mistake.name: one for one in lessons.compare(exercise()).lessons}
    for story in stories():
        page.select_option("#broken-kind", story["name"])
        assert page.text_content("#broken-why") == story["why"]
        assert "# wrong" in page.text_content("#broken-code .is-wrong >> nth=0")
        table = {name: (right, got) for name, right, got in rows(page, "#broken-rows tr")}
        if story["name"] in expected:
            for case in expected[story["name"]].cases:
                assert table[f"{case.name}.grad"] == (short(case.expected), short(case.got))
            if expected[story["name"]].wrong:
                assert page.locator("#broken-rows .is-first").count() == 1
    page.select_option("#broken-kind", "overwrite")
    assert rows(page, "#broken-rows .is-first") == [["a.grad", "4.0", "3.0"]]
    assert page.locator(".cr-node.is-wrong .badge text").all_text_contents() == ["3.0"]
    page.select_option("#broken-kind", "set_of_children")
    assert "It does not show on this graph" in page.text_content("#broken-verdict")
    assert page.locator(".cr-node.is-wrong").count() == 0
    page.select_option("#broken-kind", "wrong_sign")
    assert page.text_content("#broken-verdict") == (
        "L was 8.0. The right update makes it 7.8008, the broken one 8.2008."
    )
    page.select_option("#broken-kind", "no_seed")
    assert rows(page, "#broken-rows .is-first") == [["L.grad", "1.0", "0.0"]]


def test_broken_engines_follow_the_inputs(visit):
    page = visit(exercise())
    page.click("#show-broken")
    page.fill("#number-1", "10")
    assert rows(page, "#broken-rows .is-first") == [["a.grad", "11.0", "10.0"]]


# --- weights ------------------------------------------------------------------------------------


def test_a_matrix_is_a_heat_map(visit):
    w = [[Value(i - j, label=f"w[{i}][{j}]") for j in range(3)] for i in range(2)]
    x = [Value(k + 1.0, label=f"x{k}") for k in range(3)]
    out = sum(sum(wij * xj for wij, xj in zip(row, x, strict=True)).tanh() for row in w)
    page = visit(out)
    page.click("#show-weights")
    assert page.get_attribute("#weights-data", "aria-label") == (
        "w, 2 by 3, largest absolute value 2.0"
    )
    cells = page.locator("#weights-data rect")
    assert cells.count() == 6
    cells.nth(0).hover()
    nodes = {n.name: n for n in explain(out).nodes}
    assert (
        page.text_content("#weights-said")
        == f"w[0][0]: data 0.0, grad {short(nodes['w[0][0]'].grad)}"
    )
    colours = page.evaluate(
        "[...document.querySelectorAll('#weights-data rect')].map((r) => getComputedStyle(r).fill)"
    )
    assert len(set(colours)) == 4  # 0, ±1, ±2 of the six: 0 1 -1 0 -2 -1


# --- boxes that open ----------------------------------------------------------------------------


def test_a_gpts_loss_is_walked_into_down_to_single_numbers(visit):
    loss = gpt_loss()
    nodes = {n.name: n for n in explain(loss).nodes}
    page = visit(loss)
    box = page.locator("svg.graph .cr-node", has_text="448 ×").first
    box.focus()
    page.keyboard.press("Space")
    assert page.text_content("#history-title") == "History of 448 × dot product of 16 → relu"
    page.click("#history-open")
    assert page.text_content("#crumbs span") == "448 × dot product of 16 → relu"
    page.keyboard.press("End")
    for name, data in shown(page, ".cr-data").items():
        if name in nodes and data is not None:
            assert data == short(nodes[name].data)
    first = shown(page, ".cr-name")
    page.locator("#twin").fill("7")
    page.locator("#twin").dispatch_event("change")
    assert "7 of 448 alike" in page.text_content("#crumbs")
    assert shown(page, ".cr-name") != first
    page.keyboard.press("End")
    inside = page.locator("svg.graph .cr-node:not(.cr-outside) .cr-name").all_text_contents()
    operations = [name for name in inside if nodes[name].children]
    assert len(operations) == 33
    grads = shown(page, ".cr-grad")  # a box outside gets more elsewhere
    assert [grads[name] for name in operations] == [short(nodes[name].grad) for name in operations]
    page.keyboard.press("Escape")
    assert page.locator("#crumbs").is_hidden()


# --- sharing ------------------------------------------------------------------------------------


def test_a_link_holds_the_step_and_the_inputs(visit, tmp_path):
    page = visit(exercise())
    page.fill("#number-0", "4.5")
    page.click("[data-stage='2']")
    page.click("#next")
    page.click("#share")
    link = page.input_value("#share-link")
    assert link.endswith("#step=15&in.a=4.5")
    page.click("#share-dialog form button")
    seen = shown(page, ".cr-data"), page.text_content("#headline"), page.text_content("#counter")
    other = page.context.new_page()
    other.goto(link)
    assert (
        shown(other, ".cr-data"),
        other.text_content("#headline"),
        other.text_content("#counter"),
    ) == seen
    assert other.input_value("#number-0") == "4.5"
    other.evaluate("location.hash = '#step=2&tab=nudge'")
    other.wait_for_selector("#tab-nudge:visible")
    assert other.input_value("#number-0") == "2"


@pytest.mark.parametrize(
    "hash",
    [
        "step=-1",
        "step=99999",
        "step=x",
        "in.a=nan",
        "in.zz=3",
        "inside=9.9",
        "tab=<b>",
        "node=77",
        "mistake=__proto__",
        "%%%",
        "in.a=1e999",
        "step=1&step=2&&&==",
    ],
)
def test_an_address_that_makes_no_sense_is_passed_over(visit, hash):
    page = visit(exercise())
    page.evaluate("(h) => { location.hash = h; }", hash)
    page.wait_for_timeout(50)
    assert page.input_value("#number-0") == "2"
    assert re.fullmatch(r"\d+ / 20", page.text_content("#counter"))
    page.click("#last" if page.is_enabled("#last") else "#first")


def download(page, selector):
    with page.expect_download() as waiting:
        page.click(selector)
    return waiting.value.path().read_bytes()


def test_a_step_is_saved_as_svg_and_png(visit):
    page = visit(exercise())
    page.keyboard.press("End")
    page.click("#share")
    svg = ElementTree.fromstring(download(page, "#save-svg"))
    texts = [e.text for e in svg.iter() if e.tag.endswith("text")]
    assert {"a", "b", "c", "L", "4.0", "8.0"} <= set(texts)
    assert page.text_content("#headline") in texts
    assert not [e for e in svg.iter() if "var(" in " ".join(e.attrib.values())]
    png = download(page, "#save-png")
    assert png.startswith(b"\x89PNG")
    width = int.from_bytes(png[16:20])
    assert abs(width - 2 * float(svg.attrib["width"])) <= 2


def gif_frames(data):
    """The frames of a GIF: their rectangles and their colours' numbers."""
    width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    at = 13 + 3 * 2 ** ((data[10] & 7) + 1)
    frames = []
    while data[at] != 0x3B:
        if data[at] == 0x21:
            at += 2
            while data[at]:
                at += data[at] + 1
            at += 1
            continue
        assert data[at] == 0x2C
        box = [int.from_bytes(data[at + k : at + k + 2], "little") for k in (1, 3, 5, 7)]
        least, at = data[at + 10], at + 11
        packed = b""
        while data[at]:
            packed += data[at + 1 : at + 1 + data[at]]
            at += data[at] + 1
        at += 1
        frames.append((box, unpacked(packed, least)))
    return (width, height), frames


def unpacked(packed, least):
    clear, end = 1 << least, (1 << least) + 1
    bits = int.from_bytes(packed, "little")
    at, out, table, size, last = 0, bytearray(), {}, least + 1, None
    while True:
        code = bits >> at & ((1 << size) - 1)
        at += size
        if code == clear:
            table = {i: bytes([i]) for i in range(clear)}
            size, last, following = least + 1, None, end + 1
        elif code == end:
            return bytes(out)
        else:
            entry = table[code] if code in table else last + last[:1]
            out += entry
            if last is not None and following < 4096:
                table[following] = last + entry[:1]
                following += 1
                if following == 1 << size and size < 12:
                    size += 1
            last = entry


def test_the_film_is_saved_as_a_gif(visit):
    a = Value(2.0, label="a")
    page = visit(a * a)
    count = int(page.text_content("#counter").split(" / ")[1])
    page.click("#share")
    (width, height), frames = gif_frames(download(page, "#save-gif"))
    assert len(frames) == count
    assert frames[0][0] == [0, 0, width, height]
    for (left, top, wide, high), pixels in frames:
        assert left + wide <= width
        assert top + high <= height
        assert len(pixels) == wide * high
    assert len({pixels for _, pixels in frames}) > count // 2
    assert page.text_content("#share-said") == f"Saved a film of {count} steps."
    assert page.text_content("#counter") == f"1 / {count}"


# --- looking ------------------------------------------------------------------------------------


def scale(page):
    return page.evaluate("document.querySelector('#graph').getBoundingClientRect().width")


def test_wheel_and_pinch_and_keys_zoom(visit):
    page = visit(exercise())
    start = scale(page)
    page.mouse.move(400, 350)
    page.mouse.wheel(0, -200)
    assert scale(page) > start * 1.1
    page.keyboard.press("0")
    fitted = scale(page)
    page.keyboard.press("+")
    assert scale(page) == pytest.approx(1.25 * fitted, rel=0.01)
    page.keyboard.press("-")
    assert scale(page) == pytest.approx(fitted, rel=0.01)
    pinch = """(apart) => {
      const area = document.getElementById("scroll");
      const send = (name, id, x) => area.dispatchEvent(new PointerEvent(name,
        { pointerId: id, pointerType: "touch", clientX: x, clientY: 300, bubbles: true }));
      send("pointerdown", 1, 300); send("pointerdown", 2, 400);
      send("pointermove", 2, 300 + apart);
      send("pointerup", 1, 300); send("pointerup", 2, 300 + apart);
    }"""
    page.evaluate(pinch, 200)
    assert scale(page) == pytest.approx(2 * fitted, rel=0.01)
    page.click("#fit")
    assert scale(page) == pytest.approx(fitted, rel=0.01)
    page.click("#turn")
    box = page.locator("#graph").bounding_box()
    assert box["height"] > box["width"] * 0.5


def test_help_opens_by_key_and_closes_again(visit):
    page = visit(exercise())
    page.keyboard.press("?")
    assert page.locator("#help-dialog").is_visible()
    assert "how fast the result moves" in page.text_content("#help-dialog")
    page.keyboard.press("ArrowRight")  # belongs to the dialog now
    assert page.text_content("#counter") == "1 / 20"
    page.keyboard.press("Escape")
    assert page.locator("#help-dialog").is_hidden()
    page.click("#help")
    page.click("#help-dialog form button")
    assert page.locator("#help-dialog").is_hidden()


def test_large_text_and_compact_are_remembered_in_the_link(visit):
    page = visit(exercise())
    size = "parseFloat(getComputedStyle(document.getElementById('headline')).fontSize)"
    small = page.evaluate(size)
    page.click("#large")
    assert page.evaluate(size) >= 1.3 * small
    assert page.get_attribute("#large", "aria-pressed") == "true"
    page.click("#compact")
    assert page.locator("h1").is_hidden()
    page.click("#share")
    assert "compact&large" in page.input_value("#share-link")
    other = page.context.new_page()
    other.goto(page.input_value("#share-link"))
    assert other.locator("h1").is_hidden()
    assert other.evaluate(size) >= 1.2 * small


TABS = ["step", "predict", "nudge", "paths", "broken"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("name", "viewport"),
    [("desktop", DESKTOP), ("slide", SLIDE), ("landscape", LANDSCAPE), ("phone", PHONE)],
)
def test_every_tab_on_every_screen(visit, name, viewport, theme):
    SCREENSHOTS.mkdir(exist_ok=True)
    page = visit(exercise(), theme=theme, viewport=viewport)
    page.keyboard.press("End")
    for tab in TABS:
        page.click(f"#show-{tab}")
        assert page.locator(f"#tab-{tab}").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        graph = page.locator("#scroll").bounding_box()
        panel = page.locator(f"#tab-{tab}").bounding_box()
        assert graph["width"] >= 250
        assert graph["height"] >= 140
        assert panel["height"] >= 150
        page.screenshot(path=SCREENSHOTS / f"explore-{name}-{theme}-{tab}.png")


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE, SLIDE])
def test_what_is_touched_is_large_enough(visit, viewport):
    page = visit(exercise(), viewport=viewport)
    page.locator("svg.graph .cr-node").first.click()
    for tab in ["step", *TABS]:
        page.click(f"#show-{tab}")
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, select, input[type=range]")]
              .filter((e) => e.offsetParent && !e.closest("dialog"))
              .map((e) => [e.id || e.textContent, e.getBoundingClientRect()])
              .filter(([, r]) => r.height < 43.5 || r.width < 43.5)
              .map(([name, r]) => `${name} ${r.width} × ${r.height}`)"""
        )
        assert not small, tab


def test_the_keyboard_reaches_every_tab_and_every_node(visit):
    page = visit(exercise())
    page.focus("#show-step")
    for tab in ["predict", "nudge", "paths", "broken", "step"]:
        page.keyboard.press("ArrowRight")
        assert page.locator(f"#tab-{tab}").is_visible()
        page.focus(f"#show-{tab}")
        assert page.get_attribute(f"#show-{tab}", "aria-selected") == "true"
    node = page.locator("svg.graph .cr-node").nth(2)
    node.focus()
    page.keyboard.press("Space")
    assert page.text_content("#history-title") == "History of c"
    assert page.get_attribute("#play", "aria-label") == "Play"


def test_nodes_announce_name_data_and_gradient_and_tables_have_headers(visit):
    page = visit(exercise())
    page.keyboard.press("End")
    labels = page.evaluate(
        "[...document.querySelectorAll('.cr-node')].map((n) => n.getAttribute('aria-label'))"
    )
    assert labels[0] == "a, input, data 2.0, gradient 4.0. Space for its history"
    assert labels[3] == "L, result, data 8.0, gradient 1.0. Space for its history"
    for table in page.locator("table").all():
        assert table.evaluate(
            "t => t.tHead ? t.tHead.querySelectorAll('th[scope=col]').length > 1 : !!t.caption"
        )
    assert page.locator("tbody th[scope=row]").count() > 0


def test_five_thousand_nodes_one_by_one(visit):
    v = mlp_output(Value, [10, 20, 20, 1])
    count = len(explain(v).nodes)
    assert 1500 < count < 5000
    html = explore(v, limit=10_000).html
    assert len(html) < 400 * count + 250_000  # 5,000 nodes: far below 2 MB
    page = visit(v, limit=10_000)
    drawn = page.locator("svg.graph .cr-node").count()
    assert 0 < drawn < 400  # what the window shows
    page.keyboard.press("End")
    assert page.locator(".cr-node.is-current").count() == 1
    nodes = {n.name: n for n in explain(v).nodes}
    for name, grad in shown(page, ".cr-grad").items():
        if name in nodes:
            assert grad == short(nodes[name].grad)
    page.click("#fit")  # from far away: shapes, and the node in focus
    assert page.locator(".cr-shapes").count() == 1
    assert page.locator("svg.graph .cr-node").count() <= 2
    page.click("#back")
    assert page.locator(".cr-node.is-current").count() == 1


def test_hostile_names_stay_text_in_every_tab(visit):
    bad = '"><img onerror=alert(1)>'
    a = Value(2.0, label=bad)
    page = visit(a * a + a)
    for tab in TABS:
        page.click(f"#show-{tab}")
        assert page.locator("img").count() == 0
    page.click("#show-nudge")
    assert bad in page.text_content("#nudge-input")
    page.fill("#number-0", "3")
    page.click("#share")
    assert "<img" not in page.input_value("#share-link")
    assert "%3Cimg" in page.input_value("#share-link")
