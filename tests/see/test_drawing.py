"""draw: every node and edge once, valid XML, readable at any size."""

import doctest
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
import resvg_py
from big_graphs import gpt_loss, gpt_model, mlp_output
from hypothesis import given
from hypothesis import strategies as st
from number_systems import chainrule_functions
from programs import ALL_OPS, programs, run

from chainrule import Value, nn, topological_order
from chainrule.see.drawing import draw, draw_dot, pixels
from chainrule.see.drawing.collapsing import Part, collapse
from chainrule.see.drawing.picture import COLLAPSED_BOXES, FULL_LIMIT
from chainrule.see.drawing.svg import SvgDrawing
from chainrule.see.names import name_nodes

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
FUNCTIONS = chainrule_functions()


def neuron():
    """The lecture's neuron, gradients included."""
    x1, x2 = Value(2.0, label="x1"), Value(0.0, label="x2")
    w1, w2 = Value(-3.0, label="w1"), Value(1.0, label="w2")
    b = Value(6.8813735870195432, label="b")
    n = x1 * w1 + x2 * w2 + b
    n.label = "n"
    o = n.tanh()
    o.label = "o"
    o.backward()
    return o


def parse(svg):
    return ElementTree.fromstring(svg)


def boxes(root):
    return [g for g in root.iter(f"{SVG}g") if "data-node" in g.attrib]


def wires(root):
    return [path for path in root.iter(f"{SVG}path") if "data-edge" in path.attrib]


def texts(element):
    return ["".join(text.itertext()) for text in element.iter(f"{SVG}text")]


# --- every node and edge, once ------------------------------------------------------------------


def check_complete(v, rankdir="LR"):
    """The full picture has one box per node and one wire per edge, and nothing else."""
    order = topological_order(v)
    place = {id(node): i for i, node in enumerate(order)}
    root = parse(draw(v, rankdir=rankdir, limit=len(order)).svg)
    assert sorted(int(g.get("data-node")) for g in boxes(root)) == list(range(len(order)))
    drawn = Counter(
        (int(w.get("data-from")), int(w.get("data-to")), int(w.get("data-operand")))
        for w in wires(root)
    )
    edges = Counter(
        (place[id(child)], i, operand)
        for i, node in enumerate(order)
        for operand, child in enumerate(node.children)
    )
    assert drawn == edges
    assert sum(1 for r in root.iter(f"{SVG}rect") if r.get("class") == "cr-circle") == sum(
        1 for node in order if node.op
    )
    paths = [w.get("d") for w in wires(root)]
    assert len(set(paths)) == len(paths), "two wires lie on top of one another"


@pytest.mark.parametrize("rankdir", ["LR", "TB"])
def test_a_neuron_is_drawn_with_every_node_and_edge_once(rankdir):
    check_complete(neuron(), rankdir)


@given(programs(ALL_OPS), st.sampled_from(["LR", "TB"]))
def test_random_graphs_are_drawn_with_every_node_and_edge_once(program, rankdir):
    check_complete(run(program, map(Value, program.inputs), FUNCTIONS)[-1], rankdir)


def test_a_single_value_is_a_picture_too():
    root = parse(draw(Value(3.0, label="alone")).svg)
    assert len(boxes(root)) == 1
    assert not wires(root)


def test_both_edges_of_a_plus_a_are_drawn_apart():
    a = Value(3.0, label="a")
    first, second = wires(parse(draw(a + a).svg))
    for path in (first, second):
        assert (path.get("data-from"), path.get("data-to")) == ("0", "1")
    heights = [{float(y) for y in re.findall(r",([\d.]+)", p.get("d"))} for p in (first, second)]
    assert max(heights[0]) < min(heights[1])


def test_one_node_used_three_times_by_one_operation_has_three_wires():
    a = Value(3.0, label="a")
    y = Value(9.0, (a, a, a), (1.0, 1.0, 1.0), op="three")
    assert len({w.get("d") for w in wires(parse(draw(y).svg))}) == 3


# --- what a box says ----------------------------------------------------------------------------


def test_a_box_shows_label_data_and_grad_and_a_circle_the_operation():
    shown = [texts(box) for box in boxes(parse(draw(neuron()).svg))]
    assert ["x1", "data", "2.0", "grad", "-1.5"] in shown
    assert ["tanh", "o", "data", "0.70711", "grad", "1.0"] in shown


def test_constants_show_their_number_and_variables_lend_their_names():
    weight = Value(2.0)
    shifted = weight * 3 + 1
    shown = [texts(box) for box in boxes(parse(draw(shifted).svg))]
    assert ["weight", "data", "2.0", "grad", "0.0"] in shown
    assert ["3.0", "grad", "0.0"] in shown
    assert ["+", "shifted", "data", "7.0", "grad", "0.0"] in shown


NASTY = [
    "<script>alert(1)</script>",
    "a & b",
    "\"quoted\" and 'quoted'",
    "]]>",
    "{ | }",
    "\\n \\",
    "nul \x00 bell \x07",
    "half a pair \ud800",
    "line\nbreak\ttab",
    "–—… ∂ × 重み 🙂",
    "x" * 500,
]


@pytest.mark.parametrize("label", NASTY)
def test_any_label_gives_valid_xml_and_is_shown_as_text(label):
    a = Value(1.0, label=label)
    y = Value(2.0, (a,), (2.0,), op=label)
    root = parse(draw(y).svg)
    assert not list(root.iter(f"{SVG}script"))
    draw(y).svg.encode("utf-8")
    if label == NASTY[0]:
        assert texts(boxes(root)[0])[0] == label


@pytest.mark.parametrize("label", NASTY)
def test_any_label_gives_one_line_of_dot_and_of_mermaid(label):
    y = Value(1.0, label=label) * 2
    dot = draw(y).dot
    (line,) = [line for line in dot.splitlines() if line.startswith("\tn0 [")]
    inside = re.fullmatch(r'\tn0 \[label="(.*)" shape=record\]', line)[1]
    bare = re.sub(r"\\.", "", inside)
    assert (bare.count("{"), bare.count("|"), bare.count("}"), bare.count('"')) == (1, 2, 1, 0)
    (line,) = [x for x in draw(y).mermaid.splitlines() if x.strip().startswith("n0[")]
    assert not set("<>\"'`{}") & set(re.fullmatch(r'  n0\["(.*)"\]', line)[1])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e308, 5e-324])
def test_numbers_of_any_size_are_drawn(number):
    a = Value(1.0, label="a")
    a.grad = number
    assert short_of(number) in " ".join(texts(parse(draw(a).svg)))


def short_of(number):
    return {5e-324: "5e-324", -1e308: "-1e+308"}.get(number, repr(number))


def test_the_picture_is_described_for_those_who_cannot_see_it():
    root = parse(draw(neuron()).svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == "The graph of o: 10 nodes, 9 edges"
    assert root.find(f"{SVG}title").text == "The graph of o"
    assert "x1 = 2.0, grad -1.5" in root.find(f"{SVG}desc").text
    for box in boxes(root):
        assert box.find(f"{SVG}title").text


# --- where things are ---------------------------------------------------------------------------


def rectangles(drawing):
    for box, place in zip(drawing.picture.boxes, drawing.layout.places, strict=True):
        across = drawing._sizes[box.number].across
        yield place.op_start, place.end, place.middle - across / 2, place.middle + across / 2


@pytest.mark.parametrize("rankdir", ["LR", "TB"])
@pytest.mark.parametrize("v", [neuron(), mlp_output(Value, [3, 3, 1])], ids=["neuron", "mlp"])
def test_boxes_do_not_overlap_and_wires_run_in_the_drawing_s_direction(v, rankdir):
    drawing = SvgDrawing(draw(v, limit=1000).picture, rankdir)
    for a, b in combinations(rectangles(drawing), 2):
        assert a[1] < b[0] or b[1] < a[0] or a[3] < b[2] or b[3] < a[2]
    places = drawing.layout.places
    for wire in drawing.picture.wires:
        assert places[wire.source].end < places[wire.target].op_start
    for start, end, low, high in rectangles(drawing):
        assert start > 0
        assert low > 0
        along, across = (
            (drawing.width, drawing.height) if rankdir == "LR" else (drawing.height, drawing.width)
        )
        assert end < along
        assert high < across


def test_boxes_are_wide_enough_for_their_text():
    for box in boxes(parse(draw(neuron()).svg)):
        body = next(r for r in box.iter(f"{SVG}rect") if r.get("class") == "cr-body")
        left, right = float(body.get("x")), float(body.get("x")) + float(body.get("width"))
        for text in box.iter(f"{SVG}text"):
            if text.get("class") == "cr-op":
                continue
            letter = 7.83 if text.get("class") == "cr-name" else 7.23  # 0.602 em: DejaVu, Menlo
            width = len(text.text) * letter
            x = float(text.get("x")) - (width / 2 if text.get("text-anchor") == "middle" else 0)
            assert x >= left
            assert x + width <= right or "caption" in text.get("class")


def test_the_same_graph_gives_the_same_picture():
    assert draw(neuron()).svg == draw(neuron()).svg


# --- large graphs -------------------------------------------------------------------------------


def check_collapsed(v, target=COLLAPSED_BOXES) -> list[Part]:
    """Each node is in one part, there are few parts, and no part comes before itself."""
    order = topological_order(v)
    parts = collapse(order, name_nodes(order), target)
    assert sorted(i for part in parts for i in part.nodes) == list(range(len(order)))
    assert len(parts) <= target
    of = {i: n for n, part in enumerate(parts) for i in part.nodes}
    place = {id(node): i for i, node in enumerate(order)}
    after = {n: set() for n in range(len(parts))}
    for i, node in enumerate(order):
        for child in node.children:
            if of[place[id(child)]] != of[i]:
                after[of[place[id(child)]]].add(of[i])
    ready = [n for n in after if not any(n in users for users in after.values())]
    done = set()
    while ready:
        n = ready.pop()
        done.add(n)
        ready += [m for m in after[n] if all(m not in after[k] for k in after if k not in done)]
    assert len(done) == len(parts), "the parts are in a circle"
    return parts


def titles(v, target=COLLAPSED_BOXES):
    return {part.title for part in check_collapsed(v, target)}


@given(programs(ALL_OPS, inputs=4, instructions=40), st.integers(2, 12))
def test_random_graphs_collapse_into_as_few_parts_as_asked(program, target):
    check_collapsed(run(program, map(Value, program.inputs), FUNCTIONS)[-1], target)


def test_a_dot_product_is_one_box():
    xs = [Value(0.1 * i + 0.05, label=f"x[{i}]") for i in range(60)]
    ws = [Value(0.2 * i - 0.31, label=f"w[{i}]") for i in range(60)]
    assert titles(sum(w * x for w, x in zip(ws, xs, strict=True))) == {"dot product of 60"}
    shared = sum(w * x for w, x in zip(ws, xs, strict=True)) * sum(x * x for x in xs)
    assert titles(shared) == {
        "60 × w",
        "60 × x",
        "dot product of 60",
        "sum of 60 squares",
        "multiply",
    }


def test_a_network_is_its_neurons_and_a_larger_one_its_layers():
    small = titles(mlp_output(Value, [3, 4, 4, 1]))
    assert {"dot product of 3, plus 1", "dot product of 4, plus 1", "tanh"} <= small
    large = titles(mlp_output(Value, [16, 32, 32, 8]))
    assert {
        "32 × dot product of 16, plus 1 → tanh",
        "32 × dot product of 32, plus 1 → tanh",
        "8 × dot product of 32, plus 1 → tanh",
        "sum of 8",
        "512 inputs",
    } <= large


def test_labelled_operations_stay_boxes_of_their_own():
    hidden = mlp_output(Value, [16, 32, 8])
    hidden.label = "hidden"
    loss = (hidden - 1.0) ** 2
    loss.label = "loss"
    assert {"hidden", "loss"} <= titles(loss)


def test_a_long_loop_is_one_box():
    x = Value(0.5, label="x")
    for _ in range(3_000):
        x = x + 0.01 * x.sin()
    assert "sin → add, 3,000 times in a row" in titles(x)


def test_sixty_thousand_nodes_are_a_picture_of_a_transformer():
    loss = gpt_loss()
    loss.label = "loss"
    loss.backward()
    count = len(topological_order(loss))
    assert count > 55_000
    drawing = draw(loss)
    root = parse(drawing.svg)
    drawn = boxes(root)
    assert len(drawn) <= COLLAPSED_BOXES
    assert sum(int(box.get("data-nodes")) for box in drawn) == count
    summary = f"{count:,} nodes in {len(drawn)} boxes"
    assert repr(drawing) == f"Drawing({summary})"
    assert summary in texts(root)
    assert summary in drawing.dot
    assert summary in drawing.mermaid
    shown = Counter(box.title for box in drawing.picture.boxes)
    assert shown["112 × dot product of 16"] == 3  # queries, keys and values
    assert shown["448 × dot product of 16 → relu"] == 1
    assert shown["7 × sum of 16 squares → add 1e-05 → **-0.5"] == 3
    # A picture somebody can look at: no wider than a few screens, at the size text is readable.
    down = SvgDrawing(drawing.picture, "TB")
    assert down.width < 2_000
    assert down.height < 4_000


def test_a_collapsed_box_tells_the_range_of_its_numbers():
    v = mlp_output(Value, [16, 32, 32, 1])
    v.backward()
    weights = next(box for box in draw(v).picture.boxes if box.title == "512 inputs")
    low, high = map(float, weights.data.split(" … "))
    assert -1 < low < -0.9
    assert 0.9 < high < 1


def test_graphs_up_to_the_limit_are_drawn_in_full():
    x = Value(1.0, label="x")
    for _ in range(FULL_LIMIT - 1):
        x = x.tanh()
    assert repr(draw(x)) == f"Drawing({FULL_LIMIT} nodes, {FULL_LIMIT - 1} edges)"
    assert " in " in repr(draw(x.tanh()))
    assert repr(draw(x.tanh(), limit=101)) == "Drawing(101 nodes, 100 edges)"


# --- files and notebooks ------------------------------------------------------------------------


def test_the_dot_text_is_the_lecture_s():
    a = Value(3.0, label="a")
    b = a + a
    b.label = "b"
    b.backward()
    assert draw_dot(b, rankdir="TB").dot == (
        "digraph {\n"
        "\tgraph [rankdir=TB]\n"
        '\tn0 [label="{ a | data 3.0 | grad 2.0 }" shape=record]\n'
        '\tn1 [label="{ b | data 6.0 | grad 1.0 }" shape=record]\n'
        '\tn1op [label="+"]\n'
        "\tn1op -> n1\n"
        "\tn0 -> n1op\n"
        "\tn0 -> n1op\n"
        "}\n"
    )
    assert draw(b).source == draw(b).dot


def test_the_mermaid_text_has_the_same_boxes_and_arrows():
    a = Value(3.0, label="a")
    b = a * a
    assert draw(b).mermaid == (
        "flowchart LR\n"
        '  n0["a | data 3.0 | grad 0.0"]\n'
        '  n1["b | data 9.0 | grad 0.0"]\n'
        '  n1op(("#42;"))\n'
        "  n1op --> n1\n"
        "  n0 --> n1op\n"
        "  n0 --> n1op\n"
    )


def test_draw_dot_is_draw():
    assert draw_dot is draw


@pytest.mark.parametrize(
    ("name", "kind"),
    [("g.svg", "svg"), ("g.dot", "dot"), ("g.gv", "dot"), ("g.mmd", "mermaid"), ("G.SVG", "svg")],
)
def test_save_writes_what_the_suffix_says(tmp_path, name, kind):
    drawing = draw(neuron())
    assert drawing.save(tmp_path / name) == tmp_path / name
    assert (tmp_path / name).read_text(encoding="utf-8") == getattr(drawing, kind)


def test_save_without_a_suffix_takes_the_format_s(tmp_path):
    assert draw(neuron()).save(tmp_path / "g").name == "g.svg"
    assert draw(neuron(), format="dot").save(str(tmp_path / "g")).name == "g.dot"
    assert draw(neuron(), "png").save(tmp_path / "g").read_bytes().startswith(b"\x89PNG")
    assert draw(neuron(), format="mermaid").render(tmp_path / "v1.0") == str(tmp_path / "v1.0.mmd")


def test_an_unknown_suffix_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(ValueError, match=r"cannot save 'g\.pdf'.*\.svg, \.png, \.dot, \.mmd"):
        draw(neuron()).save(tmp_path / "g.pdf")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="draw takes a Value, not a float"):
        draw(1.0)
    with pytest.raises(ValueError, match="format must be one of svg, png, dot, mermaid, not 'pdf'"):
        draw(neuron(), format="pdf")
    with pytest.raises(ValueError, match='rankdir must be "LR" or "TB", not \'RL\''):
        draw(neuron(), rankdir="RL")
    with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
        draw(neuron(), limit=0)


def test_notebooks_show_the_format_asked_for():
    assert draw(neuron())._repr_svg_().startswith("<svg")
    assert draw(neuron())._repr_png_() is None
    assert draw(neuron(), format="png")._repr_svg_() is None
    assert draw(neuron(), format="png")._repr_png_().startswith(b"\x89PNG")


def test_a_png_is_the_svg_at_twice_the_size_with_its_text():
    drawing = draw(neuron())
    width, height = (int.from_bytes(drawing.png[i : i + 4]) for i in (16, 20))
    root = parse(drawing.svg)
    assert abs(width - 2 * float(root.get("width"))) <= 2
    assert abs(height - 2 * float(root.get("height"))) <= 2
    blank = re.sub(r"<text.*?</text>", "", drawing.svg)
    assert len(drawing.png) > 1.5 * len(pixels.render_png(blank)), "the text is missing"


def test_png_without_its_renderer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ImportError, match="pip install resvg-py"):
        _ = draw(neuron()).png


@pytest.mark.parametrize(("label", "sufficient"), [("w₁·β → ∂L", True), ("学习率", False)])
def test_a_png_uses_the_fonts_that_come_with_the_package(monkeypatch, label, sufficient):
    """So that it looks the same everywhere; the system's help only with scripts they lack."""
    render, asked = resvg_py.svg_to_bytes, {}
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **o: asked.update(o) or render(**o))
    assert draw(Value(1.0, label=label)).png.startswith(b"\x89PNG")
    assert asked["skip_system_fonts"] is sufficient
    assert len(list(Path(*asked["font_dirs"]).glob("DejaVu*.ttf"))) == 4


def test_the_fonts_come_with_their_licence():
    assert "Bitstream" in (Path(pixels.__file__).parent / "fonts" / "LICENSE").read_text()


# --- weights and data ---------------------------------------------------------------------------


def test_weights_and_data_have_boxes_of_their_own_kind_and_are_described():
    neuron = nn.Neuron(2)
    y = neuron([0.25, 3.0])
    root = parse(draw(y).svg)
    classes = {box.get("class").split()[1] for box in boxes(root)}
    assert {"cr-weight", "cr-data", "cr-output"} <= classes
    assert "weight w[1] = " in draw(y).svg
    assert repr(neuron)


def test_a_gpts_picture_starts_at_the_embedding_and_names_its_matrices():
    model, tokens = gpt_model(width=8, heads=2)
    loss = model.loss(tokens)
    picture = draw(loss).picture
    titles = {box.number: box.title for box in picture.boxes if box.kind == "weight"}
    assert any("layers.0.attention.query" in title for title in titles.values())
    (start,) = [n for n, title in titles.items() if "token_embedding" in title]
    (sums,) = [wire.target for wire in picture.wires if wire.source == start]
    into = {titles[wire.source].split(" × ")[-1] for wire in picture.wires if wire.target == sums}
    assert into == {"token_embedding", "position_embedding"}


# --- the page of the documentation --------------------------------------------------------------


def test_the_pictures_and_tables_of_the_documentation_are_up_to_date():
    """They are the golden pictures: whoever changes them looks at them."""
    make = [sys.executable, ROOT / "tools" / "make_pictures.py", "--check"]
    result = subprocess.run(make, capture_output=True, text=True, encoding="utf-8", check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_examples_of_the_documentation_run():
    page = str(ROOT / "docs" / "backward-pass.md")
    result = doctest.testfile(page, module_relative=False, encoding="utf-8")
    assert result.attempted > 5
    assert result.failed == 0


def test_every_picture_of_the_documentation_is_shown_and_described():
    shown = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for description, target in re.findall(r"!\[(.*?)\]\((.*?)\)", page.read_text("utf-8")):
            assert len(description) > 20
            shown.add((page.parent / target).resolve())
    drawn = [*(ROOT / "docs" / "pictures").iterdir(), *(ROOT / "docs" / "examples").iterdir()]
    assert shown == {path.resolve() for path in drawn}


def test_weights_of_neurons_in_one_layer_are_one_box():
    model = nn.MLP(3, [20, 1])
    y = model([0.1, 0.2, 0.3])
    titles = {box.title for box in draw(y).picture.boxes if box.kind == "weight"}
    assert "60 × layers.0.neurons.*.w" in titles
    assert "20 × layers.1.neurons.0.w" in titles
