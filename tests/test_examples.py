"""The examples run, and do what they say."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from chainrule import engine, gpt

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = 20 if engine == "native" else 4


@pytest.fixture
def example(tmp_path):
    """Run an example in an empty folder; returns what it prints."""

    def run(name, *arguments):
        command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def losses_of(lines, steps):
    pattern = rf"step +\d+ / +{steps}  loss (.*)"
    return [float(re.fullmatch(pattern, line)[1]) for line in lines]


def test_the_microgpt_script_trains_to_the_losses_of_the_package_bit_for_bit(example):
    lines = example("microgpt.py", 3).splitlines()
    assert lines[0] == "5163 names, 27 tokens, 4192 parameters"
    losses = losses_of(lines[1:4], 3)
    run = gpt.Run.start(gpt.names(), gpt.Config(steps=3), validation=0.0)
    assert losses == [row.loss for row in gpt.train(run)]
    names = lines[4:]
    assert len(names) == 20
    assert names == [gpt.generate(run.model, run.tokenizer, run.rng) for _ in range(20)]


def test_the_microgpt_script_compiled_has_the_same_losses(example):
    steps = STEPS
    eager, compiled = (
        losses_of(example("microgpt.py", steps, *mode).splitlines()[1 : steps + 1], steps)
        for mode in ([], ["compiled"])
    )
    assert compiled == pytest.approx(eager, rel=0, abs=1e-9)


def test_whole_compiled_steps_have_the_same_losses(example):
    lines = example("microgpt_compiled.py", STEPS).splitlines()
    run = gpt.Run.start(gpt.names(), gpt.Config(steps=STEPS), validation=0.0)
    losses = [row.loss for row in gpt.train(run)]
    first, last = re.search(r"first loss ([\d.]+), last ([\d.]+)", lines[1]).groups()
    assert float(first) == pytest.approx(losses[0], rel=0, abs=1e-9)
    assert float(last) == pytest.approx(losses[-1], rel=0, abs=1e-9)
    shown = float(re.match(rf"step +{STEPS} / +{STEPS}  loss ([\d.]+)", lines[0])[1])
    assert shown == pytest.approx(sum(losses) / STEPS, abs=1e-4)
    names = list(gpt.new_documents(run.model, run.tokenizer, run.rng, set(gpt.names()), 20))
    assert lines[2:] == names


def test_the_microgpt_script_is_about_a_hundred_lines():
    assert len((EXAMPLES / "microgpt.py").read_text().splitlines()) < 140


def test_moons_learns_and_draws_its_decision_boundary(example, tmp_path):
    text = example("moons.py", 30, 30, 12, 6)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
    accuracies = [int(percent) for percent in re.findall(r"accuracy (\d+)%", text)]
    assert len(losses) == 30
    assert losses[-1] < losses[0] / 2
    assert accuracies[-1] >= 85
    root = ElementTree.parse(tmp_path / "moons.svg").getroot()
    cells = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(cells) == 12 * 12
    assert len({cell.get("fill") for cell in cells}) == 2, "there is a boundary"
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 30


def test_fine_tuning_improves_on_its_documents(example, tmp_path):
    config = gpt.Config(width=4, heads=2, block=8, steps=10)
    gpt.train(gpt.Run.start(gpt.names(), config), tmp_path / "base")
    text = example("finetune.py", "base", 25)
    before, after = map(float, re.search(r"loss ([\d.]+) before, ([\d.]+) after", text).groups())
    assert after < before
    tuned = gpt.load(tmp_path / "base-finetuned")
    assert tuned.step == 25
    assert tuned.tokenizer.tokens == gpt.load(tmp_path / "base").tokenizer.tokens


def test_fine_tuning_without_a_checkpoint_says_so(tmp_path):
    command = [sys.executable, str(EXAMPLES / "finetune.py"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "there is no checkpoint in" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_asian_option_has_the_price_and_greeks_it_should_have(example, tmp_path):
    text = example("asian_option.py", 20_000)
    found = {
        name: float(number)
        for name, number in re.findall(r"(\w+) +(-?[\d.]+) ± [\d.]+$", text, re.M)
    }
    normals = np.random.default_rng(0).normal(size=(20_000, 20))
    growth = (0.05 - 0.2**2 / 2) / 20 + 0.2 * np.sqrt(1 / 20) * normals
    means = 100 * np.exp(growth.cumsum(axis=1)).mean(axis=1)
    price = np.exp(-0.05) * np.maximum(means - 100, 0).mean()
    assert found["price"] == pytest.approx(price, abs=1e-4)
    # Twice the spot price and the strike is twice the price, so that its derivatives add up to it.
    assert 100 * found["delta"] + 100 * found["strike"] == pytest.approx(price, abs=0.011)
    beside = re.findall(r"(price|delta) +([\d.]+) ± ([\d.]+) +([\d.]+)$", text, re.M)
    assert len(beside) == 2
    for _, number, error, exact in beside:
        assert float(number) == pytest.approx(float(exact), abs=4 * float(error))
    root = ElementTree.parse(tmp_path / "asian_option.svg").getroot()
    curves = [
        [float(point.split(",")[1]) for point in curve.get("points").split()]
        for curve in root.findall("{http://www.w3.org/2000/svg}polyline")
    ]
    assert [len(heights) for heights in curves] == [41, 41]
    assert all(heights == sorted(heights, reverse=True) for heights in curves), "both rise"
    assert all(heights[0] - heights[-1] > 200 for heights in curves)
