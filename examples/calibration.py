"""A yield curve fitted to bond prices: scipy's least_squares with chainrule's Jacobian.

Run: pip install 'chainrule[scipy]', then python calibration.py. The curve is Nelson and Siegel's,
with four parameters; the prices are those of bonds with coupons, made from a curve that is known,
so that the fit can be judged.
"""

import numpy as np
from scipy.optimize import least_squares

from chainrule import Value, exp, expm1, jacobian

TRUE = np.array([0.045, -0.02, 0.015, 1.8])
BONDS = [(0.02, 2), (0.03, 3), (0.025, 5), (0.04, 7), (0.03, 10), (0.035, 15), (0.05, 20)]


def rate(p: list[Value], years: float) -> Value:
    """The curve: a level, a slope and a hump."""
    level, slope, hump, scale = p
    x = years / scale
    near = -expm1(-x) / x
    return level + slope * near + hump * (near - exp(-x))


def price(p: list[Value], coupon: float, years: int) -> Value:
    """A bond that pays its coupon every year, and 1 at the end."""
    discounts = [exp(-rate(p, float(t)) * t) for t in range(1, years + 1)]
    return coupon * sum(discounts) + discounts[-1]


def residuals(p: list[Value], quotes: list[float]) -> list[Value]:
    """Model less market, bond by bond."""
    return [price(p, *bond) - quote for bond, quote in zip(BONDS, quotes, strict=True)]


def fit(quotes: list[float]) -> np.ndarray:
    """The parameters of the curve."""
    start = [0.03, 0.0, 0.0, 1.0]
    found = least_squares(
        residuals,
        start,
        jac=jacobian(residuals),
        args=(quotes,),
        x_scale="jac",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    return found.x


def main() -> None:
    """Print the curve found beside the true one."""
    quotes = [price(list(TRUE), *bond) for bond in BONDS]
    print("true ", TRUE)
    print("found", fit(quotes).round(9))


if __name__ == "__main__":
    main()
