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

// ζ(k) - 1 for k = 2, 3, …: the first terms of the sum, and Euler and Maclaurin's formula for the rest.
const ZETA = Array.from({ length: 30 }, (_, i) => {
  const [k, n] = [i + 2, 64];
  let sum = n ** (1 - k) / (k - 1) + n ** -k / 2 + (k * n ** (-k - 1)) / 12;
  sum += (-k * (k + 1) * (k + 2) * n ** (-k - 3)) / 720 + (k * (k + 1) * (k + 2) * (k + 3) * (k + 4) * n ** (-k - 5)) / 30240;
  for (let m = n - 1; m > 1; m--) sum += m ** -k;
  return sum;
});
const EULER = 0.5772156649015329;

// ln |Γ(x)|: near 2 a power series, to the right of 8 Stirling's; between them and to the left by Γ(x + 1) = x·Γ(x)
// and by reflection.
function lgamma(x) {
  if (Number.isNaN(x) || x === Infinity) return x;
  if (x < 0.5) {
    if (Number.isInteger(x) || x === -Infinity) return Infinity;
    const fraction = Math.abs(x) % 1; // exact, and so is what is left of 1
    return Math.log(Math.PI / Math.sin(Math.PI * Math.min(fraction, 1 - fraction))) - lgamma(1 - x);
  }
  if (x < 8) {
    let [product, at] = [1, x];
    for (; at >= 2.5; product *= at) at--;
    if (at < 1.5) return lgamma(at + 1) - Math.log1p(at - 1);
    const z = at - 2;
    let series = 0;
    for (let k = ZETA.length + 1; k > 1; k--) series = ZETA[k - 2] / k - z * series;
    return z * (1 - EULER + z * series) + Math.log(product);
  }
  const square = 1 / (x * x);
  let series = 0;
  for (const [b, n] of [[-3617, 122400], [1, 156], [-691, 360360], [1, 1188], [-1, 1680], [1, 1260], [-1, 360], [1, 12]])
    series = series * square + b / n;
  return (x - 0.5) * (Math.log(x) - 1) + 0.5 * (Math.log(2 * Math.PI) - 1) + series / x;
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
  lgamma,
  fmod: (a, b) => a % b,
};
for (const name of ["exp", "expm1", "log", "log1p", "log2", "log10", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
  "sinh", "cosh", "asinh", "acosh", "atanh", "hypot", "sqrt", "floor", "ceil", "trunc"])
  NUMBERS[name] = Math[name];
