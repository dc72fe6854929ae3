"""The volatility that a price implies: a root, differentiable like any other number.

Run: python implied_volatility.py. A whole smile of quotes goes through ``implicit_root``; what the
volatilities depend on, prices and spot, comes back as a gradient. Compiled, the search runs without
Python.
"""

import numpy as np
from greeks import call_price

import chainrule
from chainrule import Value, implicit_root

STRIKES = [80.0, 90.0, 100.0, 110.0, 120.0]
RATE, YEARS = 0.02, 0.5


def implied_volatility(price: Value, spot: Value, strike: float) -> Value:
    """The volatility at which the model's price is this one."""

    def difference(volatility: Value, price: Value, spot: Value) -> Value:
        return call_price([spot, volatility, RATE, YEARS], strike) - price

    return implicit_root(difference, 0.3, price, spot)


def average(quotes: list[Value]) -> Value:
    """The mean volatility of a smile: five prices, then the spot."""
    spot = quotes[5]
    smile = [implied_volatility(quotes[i], spot, strike) for i, strike in enumerate(STRIKES)]
    return sum(smile) / len(smile)


def quotes_at(volatilities: list[float], spot: float) -> np.ndarray:
    """The prices of calls at these volatilities, and the spot."""
    prices = [
        call_price([spot, v, RATE, YEARS], strike)
        for v, strike in zip(volatilities, STRIKES, strict=True)
    ]
    return np.array([*prices, spot])


def main() -> None:
    """Print the smile found, and what moves its mean."""
    volatilities = [0.28, 0.24, 0.21, 0.2, 0.22]
    quotes = quotes_at(volatilities, 100.0)
    for i, strike in enumerate(STRIKES):
        found = implied_volatility(float(quotes[i]), 100.0, strike)
        print(f"strike {strike:5.0f}  price {quotes[i]:8.4f}  volatility {found:.12f}")
    fast = chainrule.compile(average)
    value, slopes = fast.value_and_grad(quotes)
    print(f"mean {value:.12f}, by the prices {slopes[:5].round(6)}, by the spot {slopes[5]:.6f}")


if __name__ == "__main__":
    main()
