// The word kit: the same rules over pieces of formula, which gives "1 - y²" and "because e > 0".
// It follows chainrule.see.words, and a test compares the two.

const [SUM, PRODUCT, SIGN, POWER, ATOM] = [0, 1, 2, 3, 4];
// Which of smaller, equal and larger may hold, in this order, and the sign for it.
const RELATIONS = { "<": "<", "<=": "≤", ">": ">", "=>": "≥", "=": "=", "<>": "≠" };

const isWord = (x) => typeof x === "object" && x !== null && "binding" in x;
const makeWord = (text, binding, value, reasons = []) => ({ text, binding, value, reasons });
const nameWord = (name, value) => makeWord(quoted(name), ATOM, value);

function word(x) {
  if (isWord(x)) return x;
  const text = compact(x);
  return makeWord(text, text.startsWith("-") ? SIGN : ATOM, x);
}

const within = (x, binding) => (x.binding >= binding ? x.text : `(${x.text})`);
const because = (x, other) => makeWord(x.text, x.binding, x.value, [...other.reasons, ...x.reasons]);

// The right operand is bracketed where Python would need it: a - (b - c), but a + b + c.
function joined(left, sign, right, binding, value) {
  let tighter = sign === "-" || sign === "/" ? binding + 1 : binding;
  if (right.text.startsWith("-")) tighter = ATOM;
  const text = `${within(left, binding)} ${sign} ${within(right, tighter)}`;
  return makeWord(text, binding, value, [...left.reasons, ...right.reasons]);
}

// The call of a row as people write it: a * b, x**2, tanh(x).
function written(name, operands, parameters, times = "*") {
  const xs = operands.map(word);
  const { symbol } = RULES[name];
  const value = NUMBERS.apply(name, xs.map((x) => x.value), parameters);
  const reasons = xs.flatMap((x) => x.reasons);
  if (symbol === "+") return joined(xs[0], "+", xs[1], SUM, value);
  if (symbol === "*") return joined(xs[0], times, xs[1], PRODUCT, value);
  if (symbol === "**") {
    const exponent = xs.length === 2 ? xs[1] : word(parameters[0]);
    return makeWord(`${within(xs[0], ATOM)}**${within(exponent, SIGN)}`, POWER, value, reasons);
  }
  const texts = xs.map((x) => x.text);
  if (name === "where") texts.unshift(parameters[0] ? "True" : "False");
  else texts.push(...parameters.map(compact));
  return makeWord(`${name}(${texts.join(", ")})`, ATOM, value, reasons);
}

function compared(a, b, relations, holds) {
  if (!isWord(a) && !isWord(b)) return holds;
  const [left, right] = [word(a), word(b)];
  const comparable = !Number.isNaN(left.value) && !Number.isNaN(right.value);
  const known = !comparable ? "" : holds ? relations : [..."<=>"].filter((sign) => !relations.includes(sign)).join("");
  const tie = left.value === right.value; // on either side the choice may differ
  return { holds, reason: { left: left.text, right: right.text, relations: known, tie } };
}

const number = (x) => (isWord(x) ? x.value : x);
// Between plain numbers a rule computes; with a word in it, it writes.
const lifted = (compute, write) => (a, b) => (isWord(a) || isWord(b) ? write(word(a), word(b)) : compute(a, b));

const WORDS = {
  add: lifted((a, b) => a + b, (a, b) => joined(a, "+", b, SUM, a.value + b.value)),
  sub: lifted((a, b) => a - b, (a, b) => joined(a, "-", b, SUM, a.value - b.value)),
  mul: lifted((a, b) => a * b, (a, b) => {
    const value = a.value * b.value;
    if (a.text === "1") return because(b, a);
    if (b.text === "1") return because(a, b);
    if (a.text === "-1") return because(WORDS.neg(b), a);
    if (a.text === b.text && a.binding === ATOM) return makeWord(`${a.text}²`, POWER, value, a.reasons);
    return joined(a, "*", b, PRODUCT, value);
  }),
  div: lifted((a, b) => a / b, (a, b) => joined(a, "/", b, PRODUCT, a.value / b.value)),
  neg: (a) => (isWord(a) ? makeWord(`-${within(a, SIGN)}`, SIGN, -a.value, a.reasons) : -a),
  abs: (a) => (isWord(a) ? makeWord(`|${a.text}|`, ATOM, Math.abs(a.value), a.reasons) : Math.abs(a)),
  lt: (a, b) => compared(a, b, "<", number(a) < number(b)),
  le: (a, b) => compared(a, b, "<=", number(a) <= number(b)),
  gt: (a, b) => compared(a, b, ">", number(a) > number(b)),
  ge: (a, b) => compared(a, b, "=>", number(a) >= number(b)),
  eq: (a, b) => compared(a, b, "=", number(a) === number(b)),
  where: (condition, a, b) => {
    if (typeof condition !== "object") return condition ? a : b;
    const chosen = word(condition.holds ? a : b);
    return makeWord(chosen.text, chosen.binding, chosen.value, [condition.reason, ...chosen.reasons]);
  },
  apply: (name, xs, ps) => {
    if (!xs.some(isWord)) return NUMBERS.apply(name, xs, ps.map(number));
    const made = written(name, xs, ps.map(number));
    if (RULES[name].symbol !== "**") return made;
    const exponent = xs.length === 2 ? number(xs[1]) : number(ps[0]);
    if (exponent !== 0 && exponent !== 1) return made;
    return because(word(exponent ? xs[0] : 1), made); // 2 * x**1 reads better as 2 * x
  },
};

// The reasons, those about one pair as one: "x ≤ 0" and "x < 0" is "x < 0".
function reasonsInWords(reasons) {
  const merged = new Map();
  for (const { left, right, relations } of reasons) {
    const key = JSON.stringify([left, right]);
    const known = merged.get(key);
    merged.set(key, known === undefined ? relations : [...known].filter((sign) => relations.includes(sign)).join(""));
  }
  const sentences = [...merged].map(([key, relations]) => {
    const [left, right] = JSON.parse(key);
    return `${left} ${RELATIONS[relations] || "is not comparable with"} ${right}`;
  });
  return sentences.join(" and ");
}
