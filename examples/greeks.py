"""Greeks of a European call, of first and second order, beside their closed forms.

Run: python greeks.py. The price is one line of ordinary Python; its gradient has delta, vega, rho
and theta, its Hessian gamma, vanna and volga.
"""

import math

from chainrule import Value, exp, grad, hessian, log, normal_cdf, sqrt


def call_price(p: list[Value], strike: float) -> Value:
    """Black and Scholes's price of a call."""
    spot, volatility, rate, years = p
    spread = volatility * sqrt(years)
    d1 = (log(spot / strike) + rate * years) / spread + 0.5 * spread
    return spot * normal_cdf(d1) - strike * exp(-rate * years) * normal_cdf(d1 - spread)


def closed_forms(p: list[float], strike: float) -> dict[str, float]:
    """The same Greeks from the textbook."""
    spot, volatility, rate, years = p
    spread = volatility * math.sqrt(years)
    d1 = (math.log(spot / strike) + rate * years) / spread + 0.5 * spread
    d2 = d1 - spread
    density = math.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    vega = spot * density * math.sqrt(years)
    return {
        "delta": 0.5 * math.erfc(-d1 / math.sqrt(2)),
        "vega": vega,
        "rho": strike * years * math.exp(-rate * years) * 0.5 * math.erfc(-d2 / math.sqrt(2)),
        "gamma": density / (spot * spread),
        "vanna": -density * d2 / volatility,
        "volga": vega * d1 * d2 / volatility,
    }


def greeks(p: list[float], strike: float) -> dict[str, float]:
    """Those that chainrule differentiates."""
    first, second = grad(call_price)(p, strike), hessian(call_price)(p, strike)
    return {
        "delta": first[0],
        "vega": first[1],
        "rho": first[2],
        "gamma": float(second[0, 0]),
        "vanna": float(second[0, 1]),
        "volga": float(second[1, 1]),
    }


def main() -> None:
    """Print both."""
    p, strike = [100.0, 0.2, 0.03, 0.75], 110.0
    found, wanted = greeks(p, strike), closed_forms(p, strike)
    for name, number in found.items():
        print(f"{name:6} {number:12.8f}   closed form {wanted[name]:12.8f}")


if __name__ == "__main__":
    main()
