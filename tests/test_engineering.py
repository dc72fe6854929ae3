"""What engineers do: scipy takes chainrule's functions as they are; the examples' numbers."""

import importlib
import re
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import curve_fit, least_squares, minimize, root
from scipy.stats import multivariate_normal

import chainrule
from chainrule import exp, grad, hessian, hvp, jacobian, value_and_grad

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


# --- scipy, as it is ------------------------------------------------------------------------------


def rosenbrock(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))


def residuals(x):
    return [10 * (x[1] - x[0] ** 2), 1 - x[0]]


WAYS = {"eager": lambda f: f, "compiled": lambda f: chainrule.compile(f, on_fallback="eager")}
each_way = pytest.mark.parametrize("way", WAYS)


@each_way
@pytest.mark.parametrize("start", [[-1.2, 1.0, 0.5], (-1.2, 1.0, 0.5), np.array([-1.2, 1.0, 0.5])])
def test_minimize(way, start):
    f = WAYS[way](rosenbrock)
    both = f.value_and_grad if way == "compiled" else value_and_grad(f)
    for found in (
        minimize(both, start, jac=True),
        minimize(f, start, jac=grad(f)),
        minimize(both, start, jac=True, hess=hessian(f), method="trust-exact"),
        minimize(both, start, jac=True, hessp=hvp(f), method="Newton-CG"),
    ):
        np.testing.assert_allclose(found.x, 1.0, atol=1e-5)
        assert found.success


@each_way
def test_least_squares_and_root(way):
    f = WAYS[way](residuals)
    for solver in (least_squares, root):
        found = solver(f, [-1.2, 1.0], jac=jacobian(f))
        np.testing.assert_allclose(found.x, 1.0, rtol=1e-12)


def decay(x, height, rate):
    return [height * exp(-rate * one) for one in x]


def decay_jacobian(x, height, rate):
    return jacobian(lambda p: decay(x, *p))([height, rate])


def test_curve_fit():
    x = np.linspace(0.0, 4.0, 20)
    found, _ = curve_fit(decay, x, decay(x, 2.5, 1.3), p0=[1.0, 1.0], jac=decay_jacobian)
    np.testing.assert_allclose(found, [2.5, 1.3], rtol=1e-9)


def robertson(t, y):
    """Three substances with rates nine orders of magnitude apart."""
    slow, fast, both = 0.04 * y[0], 3e7 * y[1] * y[1], 1e4 * y[1] * y[2]
    return [both - slow, slow - both - fast, fast]


def robertson_jacobian(t, y):
    return jacobian(lambda y: robertson(t, y))(y)


def test_solve_ivp():
    found = solve_ivp(
        robertson,
        (0.0, 40.0),
        [1.0, 0.0, 0.0],
        "BDF",
        jac=robertson_jacobian,
        rtol=1e-8,
        atol=1e-11,
    )
    np.testing.assert_allclose(found.y[:, -1], [0.715827069, 9.18553477e-6, 0.284163746], 1e-6)
    assert found.y[:, -1].sum() == pytest.approx(1.0, abs=1e-9)


# --- the examples ---------------------------------------------------------------------------------


def test_greeks_are_the_closed_forms(example):
    module = example("greeks")
    for p in ([100.0, 0.2, 0.03, 0.75], [80.0, 0.45, 0.0, 2.0]):
        found, wanted = module.greeks(p, 110.0), module.closed_forms(p, 110.0)
        assert found == pytest.approx(wanted, rel=1e-12)


def test_implied_volatilities_and_what_moves_them(example):
    module, greeks = example("implied_volatility"), example("greeks")
    volatilities = [0.28, 0.24, 0.21, 0.2, 0.22]
    quotes = module.quotes_at(volatilities, 100.0)
    for price, strike, wanted in zip(quotes, module.STRIKES, volatilities, strict=False):
        found = module.implied_volatility(float(price), 100.0, strike)
        assert found == pytest.approx(wanted, rel=1e-11)
    fast = chainrule.compile(module.average, on_fallback="raise")
    for spot in (100.0, 101.0, 99.5):
        quotes[5] = spot
        value, slopes = fast.value_and_grad(quotes)
        wanted, by_eager = value_and_grad(module.average)(quotes)
        assert value == pytest.approx(wanted, rel=1e-12)
        np.testing.assert_allclose(slopes, by_eager, rtol=1e-10)
    quotes[5] = 100.0
    slopes = fast.value_and_grad(quotes)[1]
    for i, (strike, volatility) in enumerate(zip(module.STRIKES, volatilities, strict=True)):
        vega = greeks.closed_forms([100.0, volatility, module.RATE, module.YEARS], strike)["vega"]
        assert slopes[i] == pytest.approx(0.2 / vega, rel=1e-10)


def test_calibration_finds_the_curve(example):
    module = example("calibration")
    quotes = [module.price(list(module.TRUE), *bond) for bond in module.BONDS]
    np.testing.assert_allclose(module.fit(quotes), module.TRUE, rtol=1e-7)


def test_the_kalman_filters_likelihood_is_the_normal_distributions(example):
    """The measurements are normal, with a covariance that can be written down at once."""
    module = example("kalman")
    positions, (wandering, noise) = module.measured(12), (0.2, 0.7)
    steps = len(positions) - 1
    ahead = np.arange(1, steps + 1)
    covariance = noise**2 * (1.0 + np.eye(steps)) + np.outer(ahead, ahead)
    for k in range(1, steps):  # the velocity's change at step k moves all later positions
        reach = np.maximum(0.0, ahead - k)
        covariance = covariance + wandering**2 * np.outer(reach, reach)
    exact = -multivariate_normal(np.full(steps, positions[0]), covariance).logpdf(positions[1:])
    fast = chainrule.compile(module.unlikelihood, on_fallback="raise")
    value, slopes = fast.value_and_grad(np.log([wandering, noise]), positions)
    assert value == pytest.approx(exact, rel=1e-12)
    np.testing.assert_allclose(
        slopes, grad(module.unlikelihood)(np.log([wandering, noise]), positions), rtol=1e-12
    )
    np.testing.assert_allclose(module.fit(module.measured(400)), module.TRUE, rtol=0.05)


def test_the_pendulum_swings_up(example):
    module = example("swing_up")
    efforts = module.swing_up()
    states = module.simulate(list(efforts))
    assert all(abs(torque) <= module.STRONGEST for _, _, torque in states)
    assert np.cos(states[-1][0]) < -0.999
    assert abs(states[-1][1]) < 0.1
    value, slopes = chainrule.compile(module.cost, lift=True).value_and_grad(efforts)
    wanted, by_eager = value_and_grad(module.cost)(efforts)
    assert value == pytest.approx(wanted, rel=1e-11)
    np.testing.assert_allclose(slopes, by_eager, rtol=1e-8, atol=1e-10)


def test_bundle_adjustment_finds_cameras_and_points(example):
    module = example("bundle_adjustment")
    true = module.scene()
    first, rest = true[: module.FIXED], true[module.FIXED :]
    guess = rest + np.random.default_rng(2).normal(0, 0.1, rest.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error", chainrule.FallbackWarning)
        found, entries, whole = module.adjust(guess, first, module.photographs(true))
    np.testing.assert_allclose(found, rest, atol=1e-9)
    free = sum(camera * module.POSE >= module.FIXED for camera, _ in module.PAIRS)
    most = 2 * (free * module.POSE + len(module.PAIRS) * module.POINT)
    assert entries <= most < whole / 20


def test_the_mixture_is_more_likely_than_the_clouds_it_comes_from(example):
    module = example("mixture")
    points = module.sample(4000)
    found = module.fit(points)
    np.testing.assert_allclose(found, [[w, *m, *s] for w, m, s in module.CLOUDS], atol=0.15)

    def likelihood(rows):
        parts = [
            w * multivariate_normal([m0, m1], np.diag([s0**2, s1**2])).pdf(points)
            for w, m0, m1, s0, s1 in rows
        ]
        return np.log(np.sum(parts, axis=0)).mean()

    assert likelihood(found) > likelihood([[w, *m, *s] for w, m, s in module.CLOUDS])


# --- the page of examples -------------------------------------------------------------------------

PAGE = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"^```text\n(\w+)\.py\n(.*?)^```", PAGE, flags=re.M | re.S))
NUMBER = re.compile(r"-?\d+\.?\d*")
SHAPES = ("path", "polyline", "circle", "rect")


def shows(line, printed):
    """Whether two lines are the same but for the last digit of a number."""
    if NUMBER.sub("#", line).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(line), NUMBER.findall(printed), strict=True)
    units = [(a, b, 10.0 ** -len(a.partition(".")[2])) for a, b in pairs]
    return all(abs(float(a) - float(b)) < 1.5 * unit for a, b, unit in units)


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_shows_what_an_example_prints(name, example, capsys):
    example(name).main()
    printed = capsys.readouterr().out.splitlines()
    missing = [
        line for line in SHOWN[name].splitlines() if not any(shows(line, p) for p in printed)
    ]
    assert missing == []


def test_every_example_for_engineers_has_its_place_and_its_picture_on_the_page():
    scripts = re.findall(r"\.\./examples/(\w+)\.py", PAGE)
    pictures = re.findall(r"\]\(examples/(\w+)\.svg\)", PAGE)
    assert scripts == pictures
    assert {"greeks", "kalman", "swing_up", *SHOWN} <= set(scripts)
    for name in pictures:
        root = ElementTree.parse(EXAMPLES.parent / "docs" / "examples" / f"{name}.svg").getroot()
        drawn = [part for part in root.iter() if part.tag.rpartition("}")[2] in SHAPES]
        assert len(drawn) >= 3, name
