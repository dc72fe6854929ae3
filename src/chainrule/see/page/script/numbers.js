// Numbers as the tables of explain() write them. The digits are Python's: repr, and "%.5g".

const EXPONENT = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/;

// The digits d.ddd × 10^exponent as Python lays them out: a power of ten below 1e-4 and from `most` on.
function laidOut(sign, digits, exponent, most) {
  if (exponent < -4 || exponent >= most) {
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : "";
    const power = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${digits[0]}${rest}e${exponent < 0 ? "-" : "+"}${power}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  if (digits.length <= exponent + 1) return sign + digits + "0".repeat(exponent + 1 - digits.length);
  return `${sign}${digits.slice(0, exponent + 1)}.${digits.slice(exponent + 1)}`;
}

function special(x) {
  if (Number.isNaN(x)) return "nan";
  return x > 0 ? "inf" : "-inf";
}

// Every digit that is needed to read the same number back: 2.0, 0.1, 1e-05.
function repr(x) {
  if (!Number.isFinite(x)) return special(x);
  if (x === 0) return Object.is(x, -0) ? "-0.0" : "0.0";
  const [, sign, first, rest, exponent] = EXPONENT.exec(x.toExponential());
  const text = laidOut(sign, first + (rest || ""), Number(exponent), 16);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

// Five digits, ties to even. Only six digits that end in 5 can be a tie.
function fiveDigits(x) {
  let [, sign, first, rest, exponent] = EXPONENT.exec(x.toExponential(4));
  const [, , whole, digits = "", power] = EXPONENT.exec(x.toExponential());
  if (digits.length === 5 && digits[4] === "5" && Number(digits[3]) % 2 === 0) {
    const [, , , exact] = EXPONENT.exec(x.toExponential(60));
    if (/^\d{4}50*$/.test(exact)) [first, rest, exponent] = [whole, digits.slice(0, 4), power];
  }
  return laidOut(sign, (first + rest).replace(/0+$/, "") || "0", Number(exponent), 5);
}

// Five digits unless more fit: 4.0, 0.70711.
function short(x) {
  const exact = repr(x);
  if (exact.length <= 7 || !Number.isFinite(x)) return exact;
  const rounded = fiveDigits(x);
  return /[.e]/.test(rounded) ? rounded : `${rounded}.0`;
}

// The same without a useless ".0": 6, 0.70711.
function compact(x) {
  const text = short(x);
  return Math.abs(x) < 1e16 && text.endsWith(".0") ? text.slice(0, -2) : text;
}

const bracketed = (x) => (short(x).startsWith("-") ? `(${short(x)})` : short(x));
const range = (low, high) => (short(low) === short(high) ? short(low) : `${short(low)} … ${short(high)}`);
const counted = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many || `${one}s`}`;

function product(localGrad, grad, amount) {
  const rule = Number.isFinite(grad) || localGrad ? "" : " (zero passes nothing on)";
  return `${short(localGrad)} × ${bracketed(grad)} = ${short(amount)}${rule}`;
}

// A name that can stand inside a formula, and its gradient.
const PLAIN_NAME = /^[\p{L}\p{Nl}\p{No}_][\p{L}\p{N}_#.,[\]'…]*$/u;
const quoted = (name) => (PLAIN_NAME.test(name) ? name : `(${name})`);
const attribute = (name) => `${quoted(name)}.grad`;

// What a person types: 2, -1.5e3, 1/3 is not a number. Anything else is null.
function parsed(text) {
  const trimmed = String(text).trim().replace(/−/g, "-").replace(/^([-+]?\d*),(\d+)$/, "$1.$2");
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed)) return null;
  const number = Number(trimmed);
  return Number.isFinite(number) ? number : null;
}
