// The film of one view: a frame for every step of the three stages, made when it is looked at.
// Its sentences are those of explain(), and a test compares the two.

const LEAVES = { input: "an input", weight: "a weight", data: "a number of the data", constant: "a constant in the formula" };
const [FORWARD, SORT, BACKWARD] = [0, 1, 2];

function makeFilm(graph, view, numbers) {
  const film = { graph, view, numbers };
  film.events = backwardEvents(film);
  film.starts = [0, view.order.length, view.order.length + view.pops.length];
  film.length = film.starts[2] + film.events.length;
  film.lengths = [view.order.length, view.pops.length, film.events.length];
  return film;
}

const stageOf = (film, at) => (at < film.starts[1] ? FORWARD : at < film.starts[2] ? SORT : BACKWARD);

// What happens in stage 2, one event per frame. `amount` and `total` are numbers where the wire
// ends in a single node, else null.
function backwardEvents({ graph, view, numbers }) {
  const { boxes, wires, into, order } = view;
  const totals = boxes.map((box) => (box.isGroup ? null : 0));
  const waiting = [...view.uses];
  const events = [{ box: view.roots[view.roots.length - 1], wire: -1, kind: "seed", seeds: seeds(graph, view, numbers) }];
  for (const [b, total] of events[0].seeds) totals[b] = total;
  for (let k = order.length - 1; k >= 0; k--) {
    const box = boxes[order[k]];
    if (!into[box.number].length) {
      events.push({ box: box.number, wire: -1, kind: "leaf", total: totals[box.number] });
      continue;
    }
    if (!box.isGroup && numbers.grad[box.nodes[0]] === 0) {
      events.push({ box: box.number, wire: -1, kind: "zero" });
      for (const n of into[box.number]) waiting[wires[n].source]--;
      continue;
    }
    for (const n of into[box.number]) {
      const { source, edges } = wires[n];
      const last = --waiting[source] === 0;
      let [amount, total] = [null, null];
      if (!boxes[source].isGroup) {
        amount = edges.reduce((sum, e) => sum + numbers.amount[e], 0);
        if (edges.length === 1) amount = numbers.amount[edges[0]];
        const ends = last && !boxes[source].outside; // an outside box gets more elsewhere
        total = view.plain ? numbers.total[edges[0]] : ends ? numbers.grad[boxes[source].nodes[0]] : totals[source] + amount;
        totals[source] = total;
      }
      events.push({ box: box.number, wire: n, kind: "add", child: source, amount, total, last });
    }
  }
  return events;
}

// The gradients that are there before the first step: 1 for the result; what comes from outside,
// in the inside of a box.
function seeds(graph, view, numbers) {
  if (view.number === 0)
    return [[view.roots[0], view.boxes[view.roots[0]].isGroup ? null : 1]];
  const found = [];
  for (const box of view.boxes) {
    if (box.outside) continue;
    if (box.isGroup) {
      if (!view.uses[box.number]) found.push([box.number, null]);
      continue;
    }
    let total = box.nodes[0] === graph.root ? 1 : 0;
    let comes = box.nodes[0] === graph.root;
    for (const e of graph.usesOf(box.nodes[0])) {
      if (view.boxOf.has(graph.userOf[e]) && !view.boxes[view.boxOf.get(graph.userOf[e])].outside) continue;
      total += numbers.amount[e];
      comes = true;
    }
    if (comes) found.push([box.number, view.uses[box.number] ? total : numbers.grad[box.nodes[0]]]);
  }
  return found;
}

// --- one frame ------------------------------------------------------------------------------------

function frameAt(film, at) {
  const stage = stageOf(film, at);
  const index = at - film.starts[stage];
  const made = [forwardFrame, sortFrame, backwardFrame][stage](film, index);
  return { stage, at, lines: [], exact: "", wires: [], about: [made.box], ...made };
}

function forwardFrame({ graph, view, numbers }, index) {
  const box = view.boxes[view.order[index]];
  const wires = view.into[box.number];
  const data = dataText(box, numbers);
  if (box.isGroup) {
    const size = counted(box.nodes.length, "node");
    return { box: box.number, wires, headline: box.title, lines: [`data ${data}`, size], data };
  }
  const i = box.nodes[0];
  const exact = exactly([numbers.data[i]]);
  const result = compact(numbers.data[i]);
  const frame = { box: box.number, wires, exact, data };
  if (box.outside) return { ...frame, headline: `${box.title} = ${result}`, lines: ["comes from outside this box"] };
  if (isLeaf(graph, i)) {
    const same = isNumber(graph, i) && Object.is(numbers.data[i], graph.data[i]);
    return { ...frame, headline: same ? box.title : `${box.title} = ${result}`, lines: [LEAVES[kindOf(graph, i)]] };
  }
  const [formula, plain] = formulaOf(graph, numbers.data, i);
  const lines = [`= ${plain}`, `= ${result}`];
  if (graph.stale.has(i)) lines.push("(when it was made; .data has been set since)");
  if (numbers.trouble === i) lines.push(troubleInWords(graph, numbers, i));
  return { ...frame, headline: `${box.title} = ${formula}`, lines, how: formula };
}

function troubleInWords(graph, { data }, i) {
  const { rule } = graph.forms[graph.form[i]];
  const [, plain] = formulaOf(graph, data, i);
  const needs = rule.domain ? `: it needs ${rule.domain}` : ": the number is too large";
  return `${plain} is ${short(data[i])}${needs}. In Python this line raises an error`;
}

function sortFrame({ view }, index) {
  const pop = view.pops[index];
  const title = (box) => view.boxes[box].title;
  if (!pop.popped) {
    const box = view.roots[view.roots.length - 1];
    return { box, headline: "start", lines: pop.pushed.map(([b]) => `push (${title(b)},0)`), pop };
  }
  const [box, i] = pop.popped;
  const [name, count] = [title(box), view.into[box].length];
  let lines;
  if (pop.child !== null) {
    const child = title(pop.child);
    lines = [
      `${name} has inputs, index ${i} < ${count}:`,
      `push (${name},${i + 1}) to come back later`,
      pop.action === "explore" ? `${child} is new, push (${child},0) to explore it` : `${child} already visited, skip`,
    ];
  } else if (count === 0) lines = [`${name} has no inputs (leaf):`, `add ${name} to sorted nodes`];
  else lines = [`${name} has inputs, but index ${i} = ${count}:`, `inputs done, add ${name} to sorted nodes`];
  const seen = pop.child === null ? { about: [box] } : { about: [box, pop.child], wires: [view.into[box][i]] };
  return { box, headline: `pop (${name}, ${i})`, lines, pop, ...seen };
}

function backwardFrame(film, index) {
  const event = film.events[index];
  const frame = { box: event.box, event, child: event.child };
  if (event.kind === "seed") return { ...frame, ...seedFrame(film, event) };
  if (event.kind === "add") return { ...frame, ...contributionFrame(film, event) };
  const box = film.view.boxes[event.box];
  if (box.isGroup) return { ...frame, headline: `${box.title}: grad ${gradText(box, film.numbers)}`, lines: ["inputs, nothing to propagate"] };
  const grad = film.numbers.grad[box.nodes[0]];
  if (box.outside) {
    const all = `all of its uses together give it ${short(grad)}`;
    return { ...frame, headline: `${attribute(box.title)} gets ${short(event.total)} from here`, lines: [`${box.title} is outside this box; ${all}`] };
  }
  const said = event.kind === "zero" ? `${attribute(box.title)} is 0: nothing to pass on` : `${box.title} has no inputs (leaf), skip`;
  return { ...frame, headline: `${attribute(box.title)} is ${short(grad)}`, lines: [said], exact: exactly([grad]) };
}

function seedFrame({ graph, view, numbers }, { seeds }) {
  const about = seeds.map(([b]) => b);
  if (view.number === 0) {
    const box = view.boxes[seeds[0][0]];
    const name = graph.names[graph.root];
    const grad = box.isGroup ? gradText(box, numbers) : short(1);
    const lines = box.isGroup ? [] : [`when ${name} changes, ${name} changes by just as much`];
    return { headline: `${attribute(name)} = ${grad}`, lines, about, child: box.number };
  }
  const arrived = seeds.slice(0, 6).map(([b]) => `${attribute(view.boxes[b].title)} = ${gradText(view.boxes[b], numbers)}`);
  if (seeds.length > 6) arrived.push(`… and ${seeds.length - 6} more`);
  return { headline: "gradients from outside", lines: ["what uses this box has passed them on:", ...arrived], about, child: seeds.length ? seeds[0][0] : undefined };
}

function contributionFrame({ graph, view, numbers }, event) {
  const wire = view.wires[event.wire];
  const [target, source] = [view.boxes[wire.target], view.boxes[wire.source]];
  const common = { wires: [event.wire], about: [target.number, source.number] };
  if (target.isGroup || source.isGroup) {
    const count = wire.edges.length > 1 ? counted(wire.edges.length, "contribution") : "one contribution";
    const lines = [`from ${target.title}: ${count}, one for each edge`];
    if (event.amount !== null) lines.unshift(`= ${short(event.amount)} in all`);
    if (event.last) lines.push(`all have come in: grad ${gradText(source, numbers)}`);
    return { ...common, headline: `${source.title}: grad += …`, lines };
  }
  const [i, e] = [target.nodes[0], wire.edges[0]];
  const [slope, grad] = [numbers.slope[e], numbers.grad[i]];
  const [formula, why, corner] = slopeInWords(graph, numbers.data, i, wire.operand);
  const local = `∂${quoted(target.title)}/∂${quoted(source.title)}`;
  let reason = `${local} = ${short(slope)}`;
  if (formula && formula !== compact(slope)) reason = `${local} = ${formula} = ${short(slope)}`;
  if (why) reason += `, because ${why}`;
  const lines = [`= ${product(slope, grad, event.amount)}`, reason, corner || speed(target.title, source.title, slope)];
  if (!Object.is(event.total, event.amount) && event.total !== event.amount) lines.push(`${attribute(source.title)} is now ${short(event.total)}`);
  return {
    ...common,
    headline: `${attribute(source.title)} += ${local} × ${attribute(target.title)}`,
    lines,
    exact: exactly([slope, grad, event.amount, event.total], ([a, b, c, d]) => `${a} × ${b} = ${c}, now ${d}`),
  };
}

// A local gradient in plain words.
function speed(node, child, slope) {
  if (slope === 1) return `${node} moves as fast as ${child}`;
  if (slope === 0) return `${node} does not move with ${child}`;
  return `${node} moves ${short(Math.abs(slope))} times as fast as ${child}${slope < 0 ? ", the other way" : ""}`;
}

function exactly(numbers, write = ([x]) => x) {
  if (numbers.every((x) => repr(x) === short(x))) return "";
  return `exactly ${write(numbers.map(repr))}`;
}

function spread(box, values) {
  if (!box.isGroup) return short(values[box.nodes[0]]);
  let [low, high] = [Infinity, -Infinity];
  for (const i of box.results) [low, high] = [Math.min(low, values[i]), Math.max(high, values[i])];
  return range(low, high);
}
const dataText = (box, { data }) => spread(box, data);
const gradText = (box, { grad }) => spread(box, grad);

// --- what is true at a frame ----------------------------------------------------------------------

function stateAt(film, at) {
  const { view } = film;
  const stage = stageOf(film, at);
  const index = at - film.starts[stage];
  const state = { stage, known: null, stack: [], sorted: null, grads: null };
  if (stage === FORWARD) state.known = new Set(view.order.slice(0, index + 1));
  if (stage === SORT) {
    state.stack = bottomFirst(view.pops[index].stack);
    state.sorted = view.order.slice(0, view.pops[index].done);
  }
  if (stage === BACKWARD) state.grads = gradsAt(film, index);
  return state;
}

// By box: the gradient so far as text; a box not in the map has had nothing yet.
function gradsAt({ view, events, numbers }, index) {
  const latest = new Map();
  for (let k = 0; k <= index; k++) {
    const event = events[k];
    if (event.kind === "seed") for (const [b, total] of event.seeds) latest.set(b, { total, last: true });
    if (event.kind === "add") latest.set(event.child, event);
  }
  return {
    has: (b) => latest.has(b),
    text: (b) => {
      const found = latest.get(b);
      if (!found) return short(0);
      if (found.total !== null) return short(found.total);
      return found.last ? gradText(view.boxes[b], numbers) : "…";
    },
    value: (b) => (latest.has(b) ? latest.get(b).total : 0),
  };
}

// The sums that some boxes' gradients are so far: "1.0 + 3.0", or nothing where there is one term.
function sumsSoFar({ events }, index, boxes) {
  const amounts = new Map(boxes.map((b) => [b, []]));
  for (let k = 0; k <= index; k++) {
    const { kind, child, amount } = events[k];
    if (kind === "add" && amount !== null && amounts.has(child)) amounts.get(child).push(amount);
  }
  return new Map([...amounts].map(([b, terms]) => {
    if (terms.length < 2) return [b, ""];
    const shown = terms.length > 4 ? ["…", ...terms.slice(-3).map(short)] : terms.map(short);
    return [b, shown.join(" + ").replaceAll("+ -", "− ")];
  }));
}

// The frames in which a box takes part.
function historyOf(film, b, most = 200) {
  const { view, events, starts } = film;
  const found = [view.order.indexOf(b)];
  view.pops.forEach((pop, k) => {
    if (pop.popped ? pop.popped[0] === b || pop.child === b : pop.pushed.some(([box]) => box === b)) found.push(starts[1] + k);
  });
  events.forEach((event, k) => {
    if (event.kind === "seed" ? event.seeds.some(([box]) => box === b) : event.box === b || event.child === b) found.push(starts[2] + k);
  });
  return found.slice(0, most).map((at) => frameAt(film, at));
}

// "c = a * b = 2 × 3 = 6", "pop (c, 0): a is new, push (a,0) to explore it"
function inOneLine({ stage, headline, lines }) {
  if (stage === SORT) return `${headline}: ${lines[lines.length - 1]}`;
  const equations = lines.filter((line) => line.startsWith("="));
  if (equations.length) return [headline, ...equations].join(" ");
  return lines.length ? `${headline}: ${lines[0]}` : headline;
}
