"""Prices, curves and time series: the snippets of quantitative finance."""

import bisect
import datetime
import math

import numpy as np

from chainrule import erf, exp, log, maximum, sqrt, where

from .registry import Field, drifting

FIELD = Field("finance")


def normal_cdf(x):
    return 0.5 * (1 + erf(x / math.sqrt(2)))


# --- options --------------------------------------------------------------------------------------


@FIELD.idiom
def black_scholes(rng):
    for p in drifting(rng, [100.0, 0.2, 0.03], 0.005):
        yield (
            p,
            float(rng.uniform(80, 120)),
            float(rng.uniform(0.1, 2)),
            str(rng.choice(["call", "put"])),
        )


@black_scholes.spelling
def black_scholes_call_or_put(p, strike, expiry, kind):
    spot, vol, rate = p
    d1 = (log(spot / strike) + (rate + vol**2 / 2) * expiry) / (vol * sqrt(expiry))
    d2 = d1 - vol * sqrt(expiry)
    if kind == "call":
        return spot * normal_cdf(d1) - strike * exp(-rate * expiry) * normal_cdf(d2)
    return strike * exp(-rate * expiry) * normal_cdf(-d2) - spot * normal_cdf(-d1)


@black_scholes.spelling
def black_scholes_sign(p, strike, expiry, kind):
    spot, vol, rate = p
    sign = {"call": 1, "put": -1}[kind]
    root = vol * math.sqrt(expiry)
    d1 = (log(spot) - math.log(strike) + rate * expiry) / root + root / 2
    discount = exp(-rate * expiry)
    return sign * (
        spot * normal_cdf(sign * d1) - strike * discount * normal_cdf(sign * (d1 - root))
    )


@black_scholes.spelling(
    adapt=lambda p, k, t, kind: (np.array(p), np.array([k - 10, k, k + 10]), t, kind)
)
def black_scholes_chain(p, strikes, expiry, kind):
    spot, vol, rate = p
    root = vol * expiry**0.5
    d1 = (np.log(spot / strikes) + (rate + vol * vol / 2) * expiry) / root
    prices = spot * normal_cdf(d1) - strikes * np.exp(-rate * expiry) * normal_cdf(d1 - root)
    return prices.sum()


@black_scholes.spelling
def black_scholes_implied_volatility(p, strike, expiry, kind):
    spot, vol, rate = p
    price = 0.08 * spot * (1 + vol)
    sigma = 0.3
    for _ in range(20):
        d1 = (log(spot / strike) + (rate + sigma**2 / 2) * expiry) / (sigma * sqrt(expiry))
        d2 = d1 - sigma * sqrt(expiry)
        model = spot * normal_cdf(d1) - strike * exp(-rate * expiry) * normal_cdf(d2)
        vega = spot * exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi) * math.sqrt(expiry)
        step = (model - price) / (vega + 1.0)
        sigma = sigma - step
        if abs(step) < 1e-6 or sigma < 0.05:
            break
    return sigma


@FIELD.idiom
def binomial_tree(rng):
    for p in drifting(rng, [100.0, 0.25, 0.03], 0.004):
        yield p, float(rng.uniform(90, 110)), 1.0


@binomial_tree.spelling
def binomial_tree_european(p, strike, expiry):
    spot, vol, rate = p
    n = 16
    dt = expiry / n
    up = exp(vol * math.sqrt(dt))
    down = 1 / up
    q = (exp(rate * dt) - down) / (up - down)
    values = [maximum(spot * up**j * down ** (n - j) - strike, 0.0) for j in range(n + 1)]
    for i in range(n, 0, -1):
        values = [exp(-rate * dt) * (q * values[j + 1] + (1 - q) * values[j]) for j in range(i)]
    return values[0]


@binomial_tree.spelling
def binomial_tree_american(p, strike, expiry):
    spot, vol, rate = p
    n = 16
    dt = expiry / n
    u = exp(vol * sqrt(dt))
    d = 1 / u
    q = (exp(rate * dt) - d) / (u - d)
    discount = exp(-rate * dt)
    v = [max(strike - spot * u ** (2 * j - n), 0.0) for j in range(n + 1)]
    for step in range(n - 1, -1, -1):
        for j in range(step + 1):
            hold = discount * (q * v[j + 1] + (1 - q) * v[j])
            exercise = strike - spot * u ** (2 * j - step)
            v[j] = max(hold, exercise)
    return v[0]


@binomial_tree.spelling
def binomial_tree_if_exercised(p, strike, expiry):
    spot, vol, rate = p
    n = 10
    dt = expiry / n
    u = exp(vol * math.sqrt(dt))
    q = (exp(rate * dt) - 1 / u) / (u - 1 / u)

    def node(step, j):
        return spot * u ** (2 * j - step)

    values = []
    for j in range(n + 1):
        payoff = strike - node(n, j)
        values.append(payoff if payoff > 0 else 0.0)
    for step in reversed(range(n)):
        new = []
        for j in range(step + 1):
            hold = exp(-rate * dt) * (q * values[j + 1] + (1 - q) * values[j])
            now = strike - node(step, j)
            new.append(now if now > hold else hold)
        values = new
    return values[0]


@binomial_tree.spelling
def binomial_tree_numpy(p, strike, expiry):
    spot, vol, rate = p
    n = 16
    dt = expiry / n
    u = exp(vol * math.sqrt(dt))
    q = (exp(rate * dt) - 1 / u) / (u - 1 / u)
    prices = np.array([spot * u ** (2 * j - n) for j in range(n + 1)])
    v = np.maximum(strike - prices, 0.0)
    for _ in range(n):
        v = exp(-rate * dt) * (q * v[1:] + (1 - q) * v[:-1])
    return v[0]


@binomial_tree.spelling
def binomial_tree_recursive(p, strike, expiry):
    spot, vol, rate = p
    n = 6
    dt = expiry / n
    u = exp(vol * math.sqrt(dt))
    q = (exp(rate * dt) - 1 / u) / (u - 1 / u)

    def value(step, price):
        if step == n:
            return maximum(price - strike, 0.0)
        return exp(-rate * dt) * (
            q * value(step + 1, price * u) + (1 - q) * value(step + 1, price / u)
        )

    return value(0, spot)


@FIELD.idiom
def monte_carlo(rng):
    for p in drifting(rng, [100.0, 0.2, 0.03], 0.005):
        yield p, rng.normal(size=(20, 10))


@monte_carlo.spelling
def monte_carlo_asian(p, normals):
    spot, vol, rate = p
    dt = 0.1
    total = 0.0
    for path in normals:
        s, running = spot, 0.0
        for z in path:
            s = s * exp((rate - vol * vol / 2) * dt + vol * math.sqrt(dt) * z)
            running = running + s
        total = total + maximum(running / len(path) - 100.0, 0.0)
    return exp(-rate) * total / len(normals)


@monte_carlo.spelling
def monte_carlo_barrier(p, normals):
    spot, vol, rate = p
    payoffs = []
    for path in normals:
        s, alive = spot, True
        for z in path:
            s = s * exp((rate - vol**2 / 2) * 0.1 + vol * 0.1**0.5 * z)
            if s > 130.0:
                alive = False
                break
        payoffs.append(max(s - 95.0, 0) if alive else 0.0)
    return exp(-rate) * sum(payoffs) / len(payoffs)


@monte_carlo.spelling
def monte_carlo_numpy(p, normals):
    spot, vol, rate = p
    steps = (rate - vol**2 / 2) * 0.1 + vol * math.sqrt(0.1) * normals
    terminal = spot * np.exp(steps.sum(axis=1))
    return np.exp(-rate) * np.maximum(terminal - 100.0, 0).mean()


@monte_carlo.spelling
def monte_carlo_heston(p, normals):
    spot, vol, rate = p
    total = 0.0
    for i in range(0, len(normals), 2):
        s, v = spot, vol * vol
        for z1, z2 in zip(normals[i], normals[i + 1]):
            positive = maximum(v, 0.0)
            s = s * exp((rate - positive / 2) * 0.1 + sqrt(positive + 1e-12) * 0.316 * z1)
            v = v + 1.5 * (0.04 - positive) * 0.1 + 0.3 * sqrt(positive + 1e-12) * 0.316 * z2
        total += maximum(s - 100, 0.0)
    return total / (len(normals) // 2)


@monte_carlo.spelling
def monte_carlo_delta_hedge(p, normals):
    spot, vol, _ = p
    error = 0.0
    for path in normals[:8]:
        s, cash, held = spot, 8.0, 0.0
        for k, z in enumerate(path):
            left = 1.0 - 0.1 * k
            d1 = (log(s / 100.0) + vol**2 / 2 * left) / (vol * math.sqrt(left))
            delta = normal_cdf(d1)
            cash = cash - (delta - held) * s
            held = delta
            s = s * exp(-(vol**2) / 2 * 0.1 + vol * 0.316 * z)
        error = error + (cash + held * s - maximum(s - 100.0, 0.0)) ** 2
    return error / 8


# --- curves ---------------------------------------------------------------------------------------


@FIELD.idiom
def bond(rng):
    for p in drifting(rng, [0.03, 0.032, 0.035, 0.04], 0.0005):
        yield p, int(rng.integers(2, 10)), float(rng.uniform(0.01, 0.06))


TENORS = [1.0, 2.0, 5.0, 10.0]


def zero_rate(rates, t):
    if t <= TENORS[0]:
        return rates[0]
    if t >= TENORS[-1]:
        return rates[-1]
    i = bisect.bisect_right(TENORS, t)
    w = (t - TENORS[i - 1]) / (TENORS[i] - TENORS[i - 1])
    return rates[i - 1] * (1 - w) + rates[i] * w


@bond.spelling
def bond_curve(rates, years, coupon):
    price = 0.0
    for year in range(1, years + 1):
        flow = coupon + (1.0 if year == years else 0.0)
        price = price + flow * exp(-zero_rate(rates, year) * year)
    return 100 * price


@bond.spelling
def bond_yield(rates, years, coupon):
    y = sum(rates) / len(rates)
    price = sum(coupon / (1 + y) ** k for k in range(1, years + 1)) + 1 / (1 + y) ** years
    return 100.0 * price


@bond.spelling
def bond_annuity_formula(rates, years, coupon):
    y = rates[0]
    growth = (1 + y) ** years
    return coupon * (1 - 1 / growth) / y + 1.0 / growth


@bond.spelling(adapt=lambda p, years, coupon: (p, [(0.5 * k, coupon) for k in range(1, 2 * years)]))
def bond_cash_flows(rates, flows):
    return sum(amount * exp(-zero_rate(rates, t) * t) for t, amount in flows)


@bond.spelling(adapt=lambda p, years, coupon: (p, {f"{k}y": coupon for k in range(1, years)}))
def bond_tenor_names(rates, flows):
    total = 0.0
    for tenor, amount in flows.items():
        t = float(tenor.rstrip("y"))
        total = total + amount * exp(-zero_rate(rates, t) * t)
    return total


TODAY = datetime.date(2024, 1, 15)


@bond.spelling(
    adapt=lambda p, years, coupon: (p, datetime.date(2024 + years, 1 + years % 12, 15), coupon)
)
def bond_dates(rates, maturity, coupon):
    t = (maturity - TODAY).days / 365.25
    accrued = coupon * (t % 1.0)
    return exp(-zero_rate(rates, t) * t) * (1 + coupon * t) - accrued


@bond.spelling
def bond_bootstrap(rates, years, coupon):
    discounts = []
    for par in rates:
        annuity = sum(discounts)
        discounts.append((1 - par * annuity) / (1 + par))
    return sum(coupon * d for d in discounts) + discounts[-1] * years


@FIELD.idiom
def nelson_siegel(rng):
    maturities = [0.25, 0.5, 1, 2, 3, 5, 7, 10, 20, 30]
    for p in drifting(rng, [0.04, -0.02, 0.01, 0.5], 0.001):
        yield p, maturities, (0.03 + 0.01 * rng.random(10)).tolist()


@nelson_siegel.spelling
def nelson_siegel_fit(p, maturities, observed):
    b0, b1, b2, decay = p
    error = 0.0
    for t, y in zip(maturities, observed):
        x = t * decay
        loading = (1 - exp(-x)) / x
        error = error + (b0 + b1 * loading + b2 * (loading - exp(-x)) - y) ** 2
    return error * 1e4


@nelson_siegel.spelling(adapt=lambda p, t, y: (p, np.array(t), np.array(y)))
def nelson_siegel_numpy(p, t, y):
    x = t * p[3]
    loading = (1 - np.exp(-x)) / x
    model = p[0] + p[1] * loading + p[2] * (loading - np.exp(-x))
    return np.sum((model - y) ** 2)


@nelson_siegel.spelling
def nelson_siegel_where(p, maturities, observed):
    total = 0.0
    for t, y in zip(maturities, observed):
        rate = where((p[3] > 0) & (t > 1), p[0] + p[1] * exp(-p[3] * t), p[0] + p[1])
        total = total + (rate - y) ** 2
    return total


# --- returns --------------------------------------------------------------------------------------


@FIELD.idiom
def portfolio(rng):
    for w in drifting(rng, rng.normal(size=5) * 0.2):
        yield w, 0.01 * rng.normal(size=(30, 5)) + 0.001


def shares(w):
    e = [exp(x) for x in w]
    total = sum(e)
    return [x / total for x in e]


@portfolio.spelling
def portfolio_sharpe(w, returns):
    s = shares(w)
    daily = [sum(a * r for a, r in zip(s, row)) for row in returns]
    mean = sum(daily) / len(daily)
    var = sum((d - mean) ** 2 for d in daily) / (len(daily) - 1)
    return -mean / sqrt(var) * math.sqrt(252)


@portfolio.spelling
def portfolio_expected_shortfall(w, returns):
    s = shares(w)
    daily = sorted(sum(a * r for a, r in zip(s, row)) for row in returns)
    worst = daily[: len(daily) // 10]
    return -sum(worst) / len(worst)


@portfolio.spelling
def portfolio_drawdown(w, returns):
    s = shares(w)
    wealth = peak = 1.0
    worst = 0.0
    for row in returns:
        wealth = wealth * (1 + sum(a * r for a, r in zip(s, row)))
        if wealth > peak:
            peak = wealth
        drop = (peak - wealth) / peak
        if drop > worst:
            worst = drop
    return worst


@portfolio.spelling
def portfolio_variance(w, returns):
    centred = returns - returns.mean(axis=0)
    covariance = centred.T @ centred / len(returns)
    w = np.exp(w) / np.exp(w).sum()
    return w @ covariance @ w - 0.1 * (returns.mean(axis=0) @ w)


@portfolio.spelling
def portfolio_transaction_costs(w, returns):
    held, wealth = [0.2] * 5, 1.0
    for row in returns:
        target = shares([a + 10 * r for a, r in zip(w, row)])
        cost = 0.001 * sum(abs(t - h) for t, h in zip(target, held))
        wealth = wealth * (1 + sum(t * r for t, r in zip(target, row)) - cost)
        held = target
    return -log(wealth)


@FIELD.idiom
def garch(rng):
    for p in drifting(rng, [-2.0, -1.5, 1.0], 0.02):
        yield p, rng.normal(size=60).tolist()


@garch.spelling
def garch_likelihood(p, returns):
    omega, alpha, beta = exp(p[0]), exp(p[1]), 1 / (1 + exp(-p[2]))
    var, nll = 1.0, 0.0
    for r in returns:
        nll = nll + 0.5 * (log(var) + r * r / var)
        var = omega + alpha * r * r + beta * var
    return nll


@garch.spelling
def garch_leverage(p, returns):
    var, nll = 1.0, 0.0
    for r in returns:
        nll += log(var) + r**2 / var
        shock = r**2 * (1.5 if r < 0 else 1.0)
        var = exp(p[0]) + exp(p[1]) * shock + 0.7 * var
    return nll / 2


@garch.spelling
def garch_variance_list(p, returns):
    variances = [sum(r * r for r in returns) / len(returns)]
    for r in returns[:-1]:
        variances.append(exp(p[0]) + exp(p[1]) * r**2 + variances[-1] / (1 + exp(-p[2])))
    return sum(log(v) + r**2 / v for r, v in zip(returns, variances))


@garch.spelling
def garch_arma(p, returns):
    phi, theta, _ = p
    error, total = 0.0, 0.0
    for t in range(1, len(returns)):
        error = returns[t] - 0.3 * phi * returns[t - 1] - 0.3 * theta * error
        total = total + error**2
    return total


@garch.spelling
def garch_regimes(p, returns):
    calm, wild = exp(p[0]), exp(p[0]) + exp(p[2])
    stay = 1 / (1 + exp(-2 + p[1]))
    prob, nll = 0.5, 0.0
    for r in returns:
        prior = prob * stay + (1 - prob) * (1 - stay)
        a = prior * exp(-r * r / (2 * calm)) / sqrt(calm)
        b = (1 - prior) * exp(-r * r / (2 * wild)) / sqrt(wild)
        nll = nll - log(a + b)
        prob = a / (a + b)
    return nll
