// The graph, and what an engine computes on it: data, local gradients, gradients.
// Node i's operands are child[start[i]] … child[start[i + 1] - 1]; such a place is an edge's number.

const read = (x) => (typeof x === "number" ? x : { nan: NaN, inf: Infinity, "-inf": -Infinity }[x]);

function fromRuns(runs) {
  const numbers = [];
  for (let k = 0; k < runs.length; k += 2) for (let i = 0; i < runs[k + 1]; i++) numbers.push(runs[k] + i);
  return numbers;
}

function makeGraph(given) {
  const count = given.form.length;
  const forms = given.forms.map((form) => ({ ...form, rule: form.row === null ? null : RULES[form.row], parameters: form.parameters.map(read) }));
  const form = Int32Array.from(given.form);
  const start = new Int32Array(count + 1);
  for (let i = 0; i < count; i++) start[i + 1] = start[i] + (form[i] < 0 ? 0 : forms[form[i]].arity);
  const graph = { count, forms, form, start, child: Int32Array.from(given.children), root: count - 1 };
  for (let i = 0; i < count; i++) for (let e = start[i]; e < start[i + 1]; e++) graph.child[e] = i - graph.child[e]; // given as distances
  graph.kind = new Map(); // of leaves: weight, data, constant; any other is an input
  for (const [kind, runs] of Object.entries(given.kinds)) for (const i of fromRuns(runs)) graph.kind.set(i, kind);
  graph.stale = new Set(given.stale);
  graph.data = new Float64Array(count); // the engine's
  graph.slope = new Float64Array(graph.child.length);
  let [nextData, nextSlope] = [0, 0];
  for (let i = 0; i < count; i++) {
    const made = form[i] < 0 ? null : forms[form[i]];
    const stale = graph.stale.has(i);
    graph.data[i] = !made || stale || made.given[0] ? read(given.data[nextData++]) : compute(graph, graph.data, i);
    if (!made) continue;
    for (let e = start[i]; e < start[i + 1]; e++)
      graph.slope[e] = stale || made.given[1] ? read(given.slopes[nextSlope++]) : differentiate(graph, graph.data, i, e - start[i]);
  }
  let unnamed = 0;
  graph.names = Array.from({ length: count }, (_, i) => given.names[i] ?? (form[i] < 0 ? short(graph.data[i]) : `v${++unnamed}`));
  graph.frozen = frozenBy(graph);
  addUses(graph);
  graph.inputs = inputsOf(graph);
  return graph;
}

// The leaves that can be moved: all but the numbers written in the formula, or those too where there
// is nothing else.
function inputsOf(graph) {
  const leaves = Array.from({ length: graph.count }, (_, i) => i).filter((i) => isLeaf(graph, i));
  const order = ["input", "data", "weight"];
  const open = order.flatMap((kind) => leaves.filter((i) => kindOf(graph, i) === kind));
  return open.length ? open : leaves;
}

// The edges that lead away from each node, and the node each edge belongs to.
function addUses(graph) {
  const { count, start, child } = graph;
  const first = new Int32Array(count + 1);
  for (const c of child) first[c + 1]++;
  for (let i = 0; i < count; i++) first[i + 1] += first[i];
  const next = first.slice();
  const edges = new Int32Array(child.length);
  graph.userOf = new Int32Array(child.length);
  for (let i = 0; i < count; i++)
    for (let e = start[i]; e < start[i + 1]; e++) {
      graph.userOf[e] = i;
      edges[next[child[e]]++] = e;
    }
  graph.usesOf = (i) => edges.subarray(first[i], first[i + 1]);
}

const isLeaf = (graph, i) => graph.form[i] < 0;
const symbolOf = (graph, i) => (isLeaf(graph, i) ? "" : graph.forms[graph.form[i]].symbol);
const kindOf = (graph, i) => (isLeaf(graph, i) ? graph.kind.get(i) || "input" : i === graph.root ? "output" : "value");
const isNumber = (graph, i) => ["constant", "data"].includes(graph.kind.get(i)); // called by its number

function operands(graph, data, i) {
  const xs = [];
  for (let e = graph.start[i]; e < graph.start[i + 1]; e++) xs.push(data[graph.child[e]]);
  return xs;
}

function compute(graph, data, i) {
  const { rule, parameters } = graph.forms[graph.form[i]];
  return rule.forward(NUMBERS, ...operands(graph, data, i), ...parameters);
}

function differentiate(graph, data, i, operand) {
  const { rule, parameters } = graph.forms[graph.form[i]];
  return rule.partials[operand](NUMBERS, data[i], ...operands(graph, data, i), ...parameters);
}

// Why a node's number cannot follow its operands, or null: the page has no rule for it.
function whyFrozen(graph, i) {
  if (isLeaf(graph, i)) return null;
  const { rule, symbol } = graph.forms[graph.form[i]];
  if (!rule) return `the page does not know how ${symbol || "a custom operation"} is computed`;
  if (graph.stale.has(i)) return `the data of ${graph.names[i]} was set by hand after it was computed`;
  return null;
}

// For each node the reason why it may not be moved: something above it could not follow.
function frozenBy(graph) {
  const reasons = new Array(graph.count).fill(null);
  for (let i = graph.count - 1; i >= 0; i--) {
    const own = whyFrozen(graph, i) || reasons[i];
    if (!own) continue;
    for (let e = graph.start[i]; e < graph.start[i + 1]; e++) reasons[graph.child[e]] = own;
  }
  return reasons;
}

// Every number of one pass, with some inputs moved. Where nothing that a node is computed from has
// moved, it keeps the engine's own number.
function computeAll(graph, moved = new Map()) {
  const { count, start, child } = graph;
  const data = Float64Array.from(graph.data);
  const slope = Float64Array.from(graph.slope);
  const changed = new Uint8Array(count);
  let trouble = -1; // the first operation whose operands are finite and whose result is not
  for (const [i, x] of moved) {
    if (Object.is(x, data[i])) continue;
    data[i] = x;
    changed[i] = 1;
  }
  if (moved.size)
    for (let i = 0; i < count; i++) {
      let follows = false;
      for (let e = start[i]; e < start[i + 1] && !follows; e++) follows = changed[child[e]] === 1;
      if (!follows) continue;
      if (whyFrozen(graph, i)) data[i] = NaN; // no number rather than a wrong one
      else data[i] = compute(graph, data, i);
      changed[i] = 1;
      for (let e = start[i]; e < start[i + 1]; e++) slope[e] = whyFrozen(graph, i) ? NaN : differentiate(graph, data, i, e - start[i]);
      if (trouble < 0 && !Number.isFinite(data[i]) && operands(graph, data, i).every(Number.isFinite)) trouble = i;
    }
  return { data, slope, trouble, ...sweep(graph, slope) };
}

// The backward pass. Zero passes nothing on, be it a node's total or its slope.
function sweep(graph, slope) {
  const { count, start, child } = graph;
  const grad = new Float64Array(count);
  const amount = new Float64Array(child.length); // by edge: what was added,
  const total = new Float64Array(child.length); // and the child's gradient after it
  grad[count - 1] = 1;
  for (let i = count - 1; i >= 0; i--) {
    if (grad[i] === 0) continue;
    for (let e = start[i]; e < start[i + 1]; e++) {
      amount[e] = slope[e] === 0 ? 0 : slope[e] * grad[i];
      if (slope[e] !== 0) grad[child[e]] += amount[e];
      total[e] = grad[child[e]];
    }
  }
  return { grad, amount, total };
}

// The result alone, for curves.
function resultAt(graph, moved) {
  const data = Float64Array.from(graph.data);
  const changed = new Uint8Array(graph.count);
  for (const [i, x] of moved) [data[i], changed[i]] = [x, 1];
  for (let i = 0; i < graph.count; i++) {
    let follows = false;
    for (let e = graph.start[i]; e < graph.start[i + 1] && !follows; e++) follows = changed[graph.child[e]] === 1;
    if (!follows) continue;
    data[i] = whyFrozen(graph, i) ? NaN : compute(graph, data, i);
    changed[i] = 1;
  }
  return data[graph.root];
}

// --- in words -------------------------------------------------------------------------------------

const wordOf = (graph, data, i) => (isNumber(graph, i) ? word(data[i]) : nameWord(graph.names[i], data[i]));

function operandWords(graph, data, i) {
  const words = [];
  for (let e = graph.start[i]; e < graph.start[i + 1]; e++) words.push(wordOf(graph, data, graph.child[e]));
  return words;
}

// "a * b" and "2 × 3"
function formulaOf(graph, data, i) {
  const { row, rule, parameters, symbol } = graph.forms[graph.form[i]];
  const words = operandWords(graph, data, i);
  const plain = words.map((x) => word(x.value));
  if (rule) return [written(row, words, parameters, "*").text, written(row, plain, parameters, "×").text];
  return [words, plain].map((xs) => `${symbol || "custom"}(${xs.map((x) => x.text).join(", ")})`);
}

// A local gradient: its formula, why it is that one, and the slopes on both sides where it is a
// convention: relu at 0, abs at 0, the larger of two equal numbers.
function slopeInWords(graph, data, i, operand) {
  const { rule, parameters } = graph.forms[graph.form[i]];
  if (!rule || graph.stale.has(i)) return ["", "", ""];
  const [y, xs] = [wordOf(graph, data, i), operandWords(graph, data, i)];
  const all = rule.partials.map((partial) => word(partial(WORDS, y, ...xs, ...parameters)));
  const made = all[operand];
  const tied = all.some(({ reasons }) => reasons.some(({ tie }) => tie));
  return [made.text, reasonsInWords(made.reasons), tied ? cornerInWords(graph, data, i, operand) : ""];
}

function cornerInWords(graph, data, i, operand) {
  const { rule, parameters } = graph.forms[graph.form[i]];
  const xs = operands(graph, data, i);
  const step = 2 ** -26 * Math.max(...xs.map(Math.abs)) || 2 ** -500;
  const beside = (by) => {
    const moved = xs.map((x, k) => (k === operand ? x + by : x));
    return rule.partials[operand](NUMBERS, rule.forward(NUMBERS, ...moved, ...parameters), ...moved, ...parameters);
  };
  const [left, right] = [beside(-step), beside(step)];
  const slope = differentiate(graph, data, i, operand);
  const same = (a) => Math.abs(a - slope) <= 1e-6 * Math.max(Math.abs(a), Math.abs(slope));
  if (!xs.every(Number.isFinite) || (same(left) && same(right))) return "";
  return `a corner (slope ${short(left)} to the left, ${short(right)} to the right), so ${short(slope)} is a convention`;
}
