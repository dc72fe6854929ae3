"""An Asian option by Monte Carlo: its price and Greeks over 100,000 paths, and a picture of them.

Run: python asian_option.py [PATHS]. An Asian call pays how much the average price of a share is
above the strike. The payoff is written for one path; ``map_value_and_grad`` computes it, with its
derivatives, for all of them. Writes asian_option.svg: price and delta for other spot prices.
"""

import math
import sys
from pathlib import Path
from statistics import NormalDist
from time import perf_counter

import numpy as np

import chainrule
from chainrule import exp, log, relu

STEPS = 20  # over one year
MARKET = {"spot": 100.0, "rate": 0.05, "volatility": 0.2, "strike": 100.0}
GREEKS = {"spot": "delta", "rate": "rho", "volatility": "vega", "strike": "by the strike"}


def prices(market, normals):
    """The share's price after each step, driven by normally distributed numbers."""
    drift = (market["rate"] - market["volatility"] ** 2 / 2) / len(normals)
    spread = market["volatility"] * math.sqrt(1 / len(normals))
    price = market["spot"]
    for normal in normals:
        price = price * exp(drift + spread * normal)
        yield price


@chainrule.compile
def arithmetic(market, normals):
    """What the option on the arithmetic mean pays on one path, discounted."""
    mean = sum(prices(market, normals)) / len(normals)
    return exp(-market["rate"]) * relu(mean - market["strike"])


@chainrule.compile
def geometric(market, normals):
    """The same on the geometric mean: its price is known in closed form."""
    mean = exp(sum(log(price) for price in prices(market, normals)) / len(normals))
    return exp(-market["rate"]) * relu(mean - market["strike"])


def geometric_price(spot, rate, volatility, strike, steps):
    """The price and delta of the option on the geometric mean, whose logarithm is normal."""
    centre = math.log(spot) + (rate - volatility**2 / 2) * (steps + 1) / (2 * steps)
    spread = volatility * math.sqrt((steps + 1) * (2 * steps + 1) / (6 * steps**2))
    d = (centre - math.log(strike)) / spread
    mean = math.exp(centre + spread**2 / 2 - rate) * NormalDist().cdf(d + spread)
    return mean - strike * math.exp(-rate) * NormalDist().cdf(d), mean / spot


def picture(normals, cells=41):
    """An SVG: price and delta over the spot price, each point a mean over all paths."""
    spots = np.linspace(70, 130, cells)
    found = [
        arithmetic.map_value_and_grad(MARKET | {"spot": s}, normals, reduce="mean") for s in spots
    ]
    curves = {
        "price": [value for value, _ in found],
        "delta": [grads["spot"] for _, grads in found],
    }
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="660" height="400" viewBox="0 0 660 400" '
        'font-family="sans-serif" font-size="14" fill="none" stroke-width="2">',
        '<rect width="660" height="400" fill="white"/>',
        '<path d="M60 340H600M60 340V40M600 340V40" stroke="#888" stroke-width="1"/>',
    ]
    for spot in range(70, 131, 10):
        x = 60 + 9 * (spot - 70)
        parts.append(f'<text x="{x}" y="362" text-anchor="middle" fill="#444">{spot}</text>')
    parts.append('<text x="330" y="388" text-anchor="middle" fill="#444">spot price</text>')
    for (name, curve), colour, top, x in zip(
        curves.items(), ("#1f6fb2", "#c2571a"), (35.0, 1.0), (52, 608), strict=True
    ):
        points = " ".join(
            f"{60 + 9 * (s - 70):.1f},{340 - 300 * y / top:.1f}"
            for s, y in zip(spots, curve, strict=True)
        )
        side = "end" if x < 300 else "start"
        parts.append(f'<polyline points="{points}" stroke="{colour}"/>')
        for y, label in ((344, "0"), (46, f"{top:g}"), (25, name)):
            parts.append(
                f'<text x="{x}" y="{y}" text-anchor="{side}" fill="{colour}">{label}</text>'
            )
    return "\n".join([*parts, "</svg>\n"])


def main(paths=100_000):
    normals = np.random.default_rng(0).normal(size=(paths, STEPS))
    arithmetic.map_value_and_grad(MARKET, normals[:2_000])  # records and compiles it
    began = perf_counter()
    values, gradients = arithmetic.map_value_and_grad(MARKET, normals)
    took = perf_counter() - began
    print(f"{paths:,} paths of {STEPS} steps, a price and four Greeks each: {1e3 * took:.1f} ms")
    for name, numbers in {"price": values, **{GREEKS[k]: gradients[k] for k in GREEKS}}.items():
        error = numbers.std() / math.sqrt(paths)
        print(f"{name:>14} {numbers.mean():10.4f} ± {error:.4f}")

    values, gradients = geometric.map_value_and_grad(MARKET, normals)
    exact = geometric_price(**MARKET, steps=STEPS)
    print("the option on the geometric mean, beside its closed form:")
    for name, numbers, known in zip(
        ("price", "delta"), (values, gradients["spot"]), exact, strict=True
    ):
        error = numbers.std() / math.sqrt(paths)
        print(f"{name:>14} {numbers.mean():10.4f} ± {error:.4f}   {known:10.4f}")

    Path("asian_option.svg").write_text(picture(normals), encoding="utf-8")
    print("wrote asian_option.svg")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
