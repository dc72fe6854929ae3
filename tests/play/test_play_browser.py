"""The three tabs of ``play`` in a browser: what a learner presses, and what is shown then."""

import re

import pytest
from live_page import PHONE, SCREENSHOTS
from playwright.sync_api import expect

expect.set_options(timeout=60_000)  # a process starts and compiles, perhaps on a busy machine

CLOSED = "dialog.graph:not([open])"


def shown_frame(page, box):
    """The page of the graph that a tab shows, when it is there."""
    frame = page.frame_locator(f"#{box} iframe:not(.is-coming)")
    expect(frame.locator("#graph .cr-node").first).to_be_visible()
    return frame


def number(page, selector):
    return float(page.text_content(selector).replace(",", ""))


def wait_until(holds, page):
    """The page's policy forbids playwright's own way to wait for a condition."""
    for _ in range(600):
        if holds():
            return
        page.wait_for_timeout(50)
    pytest.fail("it never came true")


def take_picture(page, name):
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"play-{name}.png")


def sideways_room(page):
    """How far the page reaches beyond the window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


# --- expressions --------------------------------------------------------------------------------


def test_an_expression_is_drawn_as_it_is_typed_and_keeps_inputs_and_tab(visit):
    page = visit()
    frame = shown_frame(page, "formula-frames")
    expect(frame.locator("h1 code")).to_have_text("v3")
    frame.locator("#show-nudge").click()
    frame.locator("#number-0").fill("7")
    expect(page.locator("#formula-values")).to_have_value("a=7 b=-3 d=10")
    page.fill("#formula", "L = a*b + k")
    expect(page.locator("#formula-values")).to_have_value("a=7 b=-3 k=0.5")
    expect(frame.locator("h1 code")).to_have_text("L")
    expect(frame.locator("#show-nudge")).to_have_attribute("aria-selected", "true")
    expect(frame.locator("#number-0")).to_have_value("7")
    page.fill("#formula-values", "a=1 b=2 k=3")
    expect(frame.locator("#nudge-rows tr").first.locator("td")).to_have_text("5.0")


def test_errors_stand_under_their_place_and_the_last_picture_stays(visit):
    page = visit()
    frame = shown_frame(page, "formula-frames")
    page.fill("#formula", "relu(a*b + foo(d))")
    place = page.locator("#formula-place")
    expect(place).to_contain_text("unknown function 'foo'")
    assert place.locator("span").text_content() == " " * 11 + "▲"
    expect(page.locator("#formula")).to_have_attribute("aria-invalid", "true")
    expect(frame.locator("h1 code")).to_have_text("v3")
    page.fill("#formula", "relu(a*b + d)")
    expect(place).to_be_empty()
    page.fill("#formula-values", "a=two")
    expect(page.locator("#values-place")).to_contain_text("'two' is not a number")


def test_what_was_typed_survives_a_reload_and_examples_can_be_chosen(visit):
    page = visit()
    shown_frame(page, "formula-frames")
    page.select_option("#formula-example", label="a neuron: tanh(x1*w1 + x2*w2 + b)")
    expect(page.locator("#formula-values")).to_have_value("x1=2 x2=0 w1=-3 w2=1 b=6.88")
    wait_until(lambda: "tanh" in page.evaluate("location.hash"), page)
    page.reload()
    expect(page.locator("#formula")).to_have_value("tanh(x1*w1 + x2*w2 + b)")
    shown_frame(page, "formula-frames")


# --- networks -----------------------------------------------------------------------------------


def test_a_network_trains_pauses_and_steps_until_the_page_is_closed(visit, server):
    page = visit("#view=network")
    expect(page.locator("#network-right")).to_have_text(re.compile(r"\d+%"))
    before = page.evaluate("document.getElementById('plane').toDataURL()")
    page.click("#network-step")
    expect(page.locator("#network-at")).to_have_text("1")
    page.select_option("#network-speed", label="as fast as it goes")
    page.click("#network-run")
    expect(page.locator("#network-run")).to_have_text("Pause")
    wait_until(lambda: number(page, "#network-at") > 3000, page)
    expect(page.locator("#network-right")).to_have_text("100%")
    assert page.evaluate("document.getElementById('plane').toDataURL()") != before
    page.click("#network-run")
    expect(page.locator("#network-run")).to_have_text("Train")
    assert number(page, "#network-loss") < 0.1
    assert page.locator("#network-flow i").count() == 3
    stopped = page.text_content("#network-at")
    page.click("#lines-grad")
    page.click("#diagram button >> nth=3")
    expect(page.locator("#plane-title")).to_have_text("Neuron 2 of layer 1")
    page.click("#plane-back")
    assert page.text_content("#network-at") == stopped
    page.select_option("#network-hidden", "3, 2")
    expect(page.locator("#network-at")).to_have_text("0")
    expect(page.locator("#diagram canvas")).to_have_count(6)
    expect(page.locator("#network-about")).to_contain_text("20 parameters, 120 points")
    page.click("#network-run")
    (session,) = server.sessions.values()
    process = session._labs["network"]._process
    assert process.poll() is None
    page.close()
    assert process.wait(60) is not None


def test_a_weight_says_why_its_gradient_is_what_it_is(visit):
    page = visit("#view=network")
    expect(page.locator("#network-right")).to_have_text(re.compile("%"))
    page.locator("#diagram .reach").nth(9).dispatch_event("click")
    frame = shown_frame(page, "graph-frames")
    title = page.text_content("#graph-title")
    name = re.search(r"gradient of (\S+) ", title)[1]
    expect(frame.locator("#paths-node option:checked")).to_have_text(name)
    total = frame.locator("#paths-sum td").last.text_content()
    assert f"add up to {total}." in page.text_content("#graph-said")
    chosen = page.input_value("#part")
    page.locator("#graph-parts .back").nth(0 if chosen != "1" else 1).dispatch_event("click")
    expect(page.locator("#part")).not_to_have_value(chosen)
    page.keyboard.press("Escape")
    expect(page.locator(CLOSED)).to_have_count(1)
    page.select_option("#weight-which", label="layer3.b[0]")
    page.click("#weight-why")
    expect(page.locator("#graph-title")).to_contain_text("layer3.b[0]")
    shown_frame(page, "graph-frames")


def test_a_table_of_your_own_is_used_and_its_words_stay_text(visit):
    page = visit("#view=network")
    page.select_option("#network-data", "csv")
    page.fill("#network-table", "x,y,kind\n0,1,<b>cat</b>\n1,0,<img src=x onerror=alert(1)>\n")
    page.click("#network-use")
    expect(page.locator("#network-about")).to_contain_text("<b>cat</b>")
    expect(page.locator("#plane-points circle")).to_have_count(2)
    page.fill("#network-table", "1,2\n")
    page.click("#network-use")
    expect(page.locator("#network-trouble")).to_contain_text("the table is empty")


def test_of_two_tables_the_one_asked_for_last_is_shown_though_the_first_answers_late(visit):
    page = visit("#view=network")
    expect(page.locator("#network-right")).to_have_text(re.compile("%"))
    page.evaluate(
        """() => {
          const plain = window.fetch;
          window.fetch = async (path, given) => {
            const answer = await plain(path, given);
            const late = given.body.includes("0.2, 1.1, red");
            if (late) await new Promise((done) => setTimeout(done, 1500));
            return answer;
          };
        }"""
    )
    page.select_option("#network-data", "csv")
    page.fill("#network-table", "x,y,kind\n0,1,cat\n1,0,dog\n")
    page.click("#network-use")
    page.wait_for_timeout(3000)
    expect(page.locator("#network-about")).to_contain_text("cat")
    expect(page.locator("#plane-points circle")).to_have_count(2)


# --- GPT ----------------------------------------------------------------------------------------


def test_a_gpt_learns_a_text_and_shows_what_it_expects(visit):
    page = visit("#view=language")
    page.select_option("#language-source", "text")
    page.select_option("#language-width", "8")
    page.select_option("#language-steps", "500")
    page.fill("#language-text", "abc<i>\nabd\nabe\nabf\n")
    page.click("#language-use")
    expect(page.locator("#language-about")).to_contain_text("4 documents")
    expect(page.locator("#language-about")).to_contain_text("abc<i>")
    page.select_option("#language-speed", label="as fast as it goes")
    page.click("#language-run")
    expect(page.locator("#language-run")).to_have_text("Finished")
    assert page.text_content("#language-at") == "500"
    assert page.locator("#samples tr").count() >= 2
    page.fill("#prefix", "a")
    first = page.locator("#chances li").first
    expect(first.locator("b")).to_have_text("b")
    expect(page.locator("#heads figure")).to_have_count(4)
    first.locator("button").click()
    expect(page.locator("#prefix")).to_have_value("ab")
    expect(page.locator("#heads figure").first.locator("rect")).to_have_count(6)
    page.fill("#prefix", "aQ")
    expect(page.locator("#prefix-place")).to_contain_text("never seen the character 'Q'")
    page.fill("#prefix", "ab")
    expect(page.locator("#prefix-place")).to_be_empty()
    page.select_option("#token-next", label="d")
    page.click("#token-why")
    frame = shown_frame(page, "graph-frames")
    expect(page.locator("#graph-title")).to_have_text("Reading “b”, expecting “d”")
    frame.locator("#next").click()
    expect(frame.locator("#counter")).to_contain_text("2 /")
    frame.locator("#last").click()
    expect(frame.locator("#stage-name")).to_contain_text("Backward")


# --- the whole ----------------------------------------------------------------------------------


def test_the_page_says_when_the_server_has_stopped(visit, server):
    page = visit("#view=network")
    expect(page.locator("#network-right")).to_have_text(re.compile("%"))
    for name in list(server.sessions):
        server.close_session(name)
    expect(page.locator("#lost")).to_contain_text("Start it again with: chainrule play")


def test_keys_alone_are_enough(visit):
    page = visit()
    shown_frame(page, "formula-frames")
    page.focus("#show-formulas")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#view-network")).to_be_visible()
    expect(page.locator("#network-right")).to_have_text(re.compile("%"))
    page.focus("#network-step")
    page.keyboard.press("Enter")
    expect(page.locator("#network-at")).to_have_text("1")
    page.focus("#weight-why")
    page.keyboard.press("Enter")
    shown_frame(page, "graph-frames")
    page.keyboard.press("Escape")
    expect(page.locator(CLOSED)).to_have_count(1)
    page.focus("#help")
    page.keyboard.press("Enter")
    expect(page.locator("#help-dialog")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_and_a_phone(visit, theme):
    page = visit(theme=theme)
    frame = shown_frame(page, "formula-frames")
    other = {"light": "dark", "dark": "light"}[theme]
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == other
    expect(frame.locator("html")).to_have_attribute("data-theme", other)
    expect(frame.locator("#theme")).to_be_hidden()
    page.click("#theme")
    take_picture(page, f"expressions-{theme}")
    for name, ready in (("network", "#network-right"), ("language", "#chances li >> nth=0")):
        page.click(f"#show-{name}")
        expect(page.locator(ready)).to_have_text(re.compile("%"))
        take_picture(page, f"{name}-{theme}")
    page.set_viewport_size(PHONE)
    for name in ("language", "network", "formulas"):
        page.click(f"#show-{name}")
        assert sideways_room(page) == 0
        page.wait_for_timeout(300)  # the diagram is drawn again
        take_picture(page, f"{name}-{theme}-phone")
