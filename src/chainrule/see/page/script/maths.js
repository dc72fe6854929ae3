// The number kit: what the generated rules ask for, over JavaScript's doubles, by IEEE rules.

const SPLIT = 134217729; // 2^27 + 1

// x * y without rounding, as the sum of two doubles.
function exactProduct(x, y) {
  const [a, b] = [SPLIT * x, SPLIT * y];
  const [xHigh, yHigh] = [a - (a - x), b - (b - y)];
  const [xLow, yLow] = [x - xHigh, y - yHigh];
  const p = x * y;
  return [p, xLow * yLow - (p - xHigh * yHigh - xLow * yHigh - xHigh * yLow)];
}

// JavaScript leaves the last digits of ** open; small whole powers are computed with twice the digits.
function power(x, p) {
  if (x === 1 || p === 0) return 1; // as the C library has it, also for nan
  const n = Math.abs(p);
  if (!Number.isInteger(p) || n > 16) return Math.abs(x) === 1 && !Number.isFinite(p) && p === p ? 1 : x ** p;
  let [high, low] = [1, 0];
  for (let i = 0; i < n; i++) {
    const [q, rest] = exactProduct(high, x);
    const tail = rest + low * x;
    high = q + tail;
    low = tail - (high - q);
  }
  if (!Number.isFinite(high) || !Number.isFinite(low) || Math.abs(high) < 1e-250) return x ** p;
  if (p > 0) return high;
  const y = 1 / high;
  const [q, rest] = exactProduct(y, high);
  const better = y + y * (1 - q - rest - y * low);
  return Number.isFinite(better) ? better : x ** p;
}

// e^(-x²) with the rounding of x² made good.
function gaussian(x) {
  const [square, rest] = exactProduct(x, x);
  return Number.isFinite(square) ? Math.exp(-square) * (1 - rest) : 0;
}

const TWO_OVER_ROOT_PI = 2 / Math.sqrt(Math.PI);

// erf(x) = 2/√π · e^(-x²) · (x + 2x³/3 + 4x⁵/15 + …), whose terms all have one sign.
function erfSeries(x) {
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 1e-18; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return TWO_OVER_ROOT_PI * gaussian(x) * sum;
}

// erfc(x) for x ≥ 2 as a continued fraction, from the inside out.
function erfcFraction(x) {
  let rest = 0;
  for (let n = 120; n > 0; n--) rest = n / 2 / (x + rest);
  return gaussian(x) / Math.sqrt(Math.PI) / (x + rest);
}

function erf(x) {
  if (Number.isNaN(x) || x === 0) return x;
  if (Math.abs(x) < 2) return erfSeries(x);
  return x > 0 ? 1 - erfcFraction(x) : erfcFraction(-x) - 1;
}

function erfc(x) {
  if (Number.isNaN(x)) return x;
  if (x >= 0.5 && x < 2) return erfcMiddle(x);
  if (x >= 2) return x > 28 ? 0 : erfcFraction(x);
  return 1 - erf(x);
}

// Between 0.5 and 2, 1 - erf would lose digits and the fraction is slow: Taylor's series of
// e^(x²)·erfc(x), whose derivatives are f' = 2x·f - 2/√π and f⁽ⁿ⁺¹⁾ = 2x·f⁽ⁿ⁾ + 2n·f⁽ⁿ⁻¹⁾, from x = 2.
function erfcMiddle(x) {
  let at = 2;
  let f = erfcFraction(2) * Math.exp(4);
  while (at !== x) {
    const h = Math.max(-0.125, x - at);
    let [before, derivative, scale, sum] = [f, 2 * at * f - TWO_OVER_ROOT_PI, h, f];
    for (let n = 1; n < 40; n++) {
      sum += derivative * scale;
      [before, derivative] = [derivative, 2 * at * derivative + 2 * n * before];
      scale *= h / (n + 1);
    }
    [f, at] = [sum, Math.abs(x - at - h) < 1e-15 ? x : at + h];
  }
  return f * gaussian(x);
}

const NUMBERS = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  neg: (a) => -a,
  abs: Math.abs,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
  eq: (a, b) => a === b,
  where: (condition, a, b) => (condition ? a : b),
  apply: (name, xs, ps) => RULES[name].forward(NUMBERS, ...xs, ...ps),
  pow: power,
  erf,
  erfc,
};
for (const name of ["exp", "expm1", "log", "log1p", "log2", "log10", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
  "sinh", "cosh", "asinh", "acosh", "atanh", "hypot", "sqrt"])
  NUMBERS[name] = Math[name];
