// The page: where the film is, what is shown of it, and the controls.

const given = JSON.parse(find("data").textContent);
const STAGES = ["Forward", "Sort", "Backward"];
// What a newcomer needs to know when a stage begins.
const INTRODUCTIONS = [
  "Each box is one number. Blue boxes are inputs, a circle is an operation, the dark box is the result. " +
    "First every box computes its data, from left to right. Press → for the next step, or the play " +
    "button; or drag an input below and watch all numbers change.",
  "Before gradients can flow back, the boxes are put in an order in which each one comes after " +
    "everything it is made of. The stack remembers where the search is: (box, how many of its inputs have " +
    "been looked at).",
  "Now that order is walked from the end. A box's grad says how fast the result moves when that box " +
    "moves. Each box passes its grad on to what it was made of: times the local gradient ∂, which says " +
    "how fast the box moves with its input; and what arrives is added up.",
];
const ARROW = 13; // the arrowhead's length at the end of each wire's path
const TOOLS = 56; // the height kept free for the buttons below the graph
const MOST_ROWS = 60; // of a table in the panel
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

const graph = makeGraph(given.graph);
const views = []; // made when they are first looked at
const viewNumbered = (n) => (views[n] ??= makeView(graph, given.views, n));

const moved = new Map(); // inputs that do not have their first value
let numbers = computeAll(graph);
let view = viewNumbered(0);
let film = makeFilm(graph, view, numbers);
let now = 0;
let chosen = null; // the box whose history is shown
let timer = null;
let sideways = true;
let zoom = 1;
let shownNow = null; // the frame that is on the screen
let peeking = false; // an input was moved: all numbers are shown until the next step

// Each tab of the panel; `overlay` may change what the graph shows while the tab is open.
const tabs = [];
let tab = null;

const drawing = new Drawing(find("graph"), (b, { element: node }) => {
  const box = view.boxes[b];
  node.setAttribute("tabindex", "0");
  node.setAttribute("role", "button");
  node.addEventListener("click", () => choose(b));
  node.addEventListener("dblclick", () => openBox(b));
  node.addEventListener("pointerenter", () => tab.point && tab.point(b));
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (event.key === "Enter" && chosen === b && canOpen(box)) openBox(b);
    else choose(b);
  });
});

// --- one moment -----------------------------------------------------------------------------------

function render() {
  const frame = frameAt(film, now);
  const state = stateAt(film, now);
  shownNow = { frame, state };
  document.body.dataset.stage = tab.showsAll ? BACKWARD : frame.stage;
  if (tab.update) tab.update();
  lookAround();
  renderTransport(frame);
  if (tab.id !== "step") return;
  renderCard(frame);
  renderState(frame, state);
  renderHistory();
}

function renderCard({ stage, headline, lines, exact }) {
  const inStage = now - film.starts[stage] + 1;
  find("stage-name").textContent = `${STAGES[stage]}, step ${inStage} of ${film.lengths[stage]}`;
  find("headline").textContent = headline;
  find("exact").textContent = exact;
  find("intro").textContent = inStage === 1 ? INTRODUCTIONS[stage] : "";
  find("lines").replaceChildren(
    ...lines.map((line) => {
      const maths = /^=|[=∂]/.test(line) && stage !== SORT;
      return element("p", `${maths ? "maths" : ""}${/ is now /.test(line) ? " now" : ""}`, line);
    })
  );
}

// A tab that looks at the whole pass shows it finished, with no step in focus.
const FINISHED = { stage: BACKWARD, box: null, about: [], wires: [], child: undefined };

const showsAll = () => tab.showsAll || (peeking && tab.id === "step");

function renderGraph(moment) {
  const frame = showsAll() ? FINISHED : moment.frame;
  const state = showsAll() ? { grads: { text: (b) => gradText(view.boxes[b], numbers) } } : moment.state;
  const { stage } = frame;
  const reached = stage === SORT ? new Set([...state.stack.map(([b]) => b), ...state.sorted, frame.box]) : null;
  const place = new Map(stage === SORT ? state.sorted.map((b, k) => [b, k + 1]) : []);
  const overlay = tab.overlay || {};
  for (const b of drawing.nodes.keys()) {
    const box = view.boxes[b];
    const names = [];
    const ahead = (stage === FORWARD && !state.known.has(b)) || (stage === SORT && !reached.has(b));
    if (ahead) names.push("is-ahead");
    if (b === frame.box) names.push("is-current");
    else if (frame.about.includes(b)) names.push("is-touched");
    if (b === chosen) names.push("is-chosen");
    if (stage === BACKWARD && b === frame.child) names.push("has-landed");
    if (overlay.box) names.push(...overlay.box(b));
    const data = stage === FORWARD && !state.known.has(b) ? null : dataText(box, numbers);
    const shownGrad = overlay.grad && overlay.grad(b, state);
    const grad = shownGrad ?? (stage === BACKWARD ? state.grads.text(b) : null);
    drawing.paintBox(b, names.join(" "), data, grad, spoken(box, data, grad));
    drawing.badge(b, (overlay.badge && overlay.badge(b)) || place.get(b) || "");
  }
  const lit = new Set(frame.wires);
  for (const n of drawing.wires.keys()) {
    const names = [];
    if (lit.has(n)) names.push("is-lit");
    if (stage === FORWARD && !state.known.has(view.wires[n].target)) names.push("is-ahead");
    if (overlay.wire) names.push(...overlay.wire(n));
    drawing.paintWire(n, names.join(" "));
  }
  drawing.labels.replaceChildren();
  if (overlay.labels) overlay.labels();
}

const KINDS = { input: "input", weight: "weight", data: "data", constant: "constant", value: "value", output: "result", outside: "from outside" };

function spoken(box, data, grad) {
  const parts = [box.title, box.isGroup ? counted(box.nodes.length, "node") : KINDS[box.kind]];
  parts.push(data === null ? "not computed yet" : `data ${data}`);
  if (grad !== null) parts.push(`gradient ${grad}`);
  return `${parts.join(", ")}. ${canOpen(box) ? "Space for its history, Enter twice to open it" : "Space for its history"}`;
}

function renderState(frame, state) {
  const { stage } = frame;
  find("values").hidden = stage !== FORWARD;
  find("sorting").hidden = stage !== SORT;
  find("gradients").hidden = stage !== BACKWARD;
  const index = now - film.starts[stage];
  if (stage === FORWARD) {
    const rows = lastRows(view.order, index + 1).map((b) => [b, howOf(b), dataText(view.boxes[b], numbers)]);
    fill("value-rows", rows, index + 1, frame.box, "data");
  }
  if (stage === SORT) {
    const fresh = frame.pop.pushed.length;
    const stack = state.stack.slice(-MOST_ROWS).reverse();
    find("stack").replaceChildren(...stack.map(([b, i], k) => element("li", k < fresh ? "is-new" : "", `(${view.boxes[b].title}, ${i})`)));
    const first = Math.max(0, state.sorted.length - MOST_ROWS);
    const sorted = state.sorted.slice(first).map((b, k) => {
      const item = element("li", frame.pop.action === "done" && b === frame.box ? "is-new" : "");
      item.value = first + k + 1;
      item.append(element("span", "", view.boxes[b].title));
      return item;
    });
    find("sorted").replaceChildren(...sorted);
  }
  if (stage === BACKWARD) {
    const order = [...view.order].reverse();
    const middle = order.indexOf(frame.child ?? frame.box) - MOST_ROWS / 2;
    const at = Math.max(0, Math.min(middle, order.length - MOST_ROWS));
    const shown = order.slice(at, at + MOST_ROWS);
    const sums = sumsSoFar(film, index, shown);
    const rows = shown.map((b) => [b, sums.get(b), state.grads.text(b)]);
    fill("gradient-rows", rows, order.length, frame.child, "grad", (b) => !state.grads.has(b));
  }
}

const lastRows = (order, count) => order.slice(Math.max(0, count - MOST_ROWS), count);

function howOf(b) {
  const box = view.boxes[b];
  if (box.isGroup || box.outside || isLeaf(graph, box.nodes[0])) return "";
  return formulaOf(graph, numbers.data, box.nodes[0])[0];
}

function fill(id, entries, count, current, kind, waiting = () => false) {
  const rows = entries.map(([b, how, text]) => {
    const row = element("tr", `${b === current ? "is-current" : ""} ${waiting(b) ? "is-waiting" : ""}`.trim());
    row.dataset[kind] = b;
    const name = element("th", "", view.boxes[b].title);
    name.scope = "row";
    if (how) name.append(element("span", "how", how));
    row.append(name, element("td", "", text));
    return row;
  });
  if (entries.length < count) {
    const more = element("tr", "more");
    more.append(element("th", "", `${(count - entries.length).toLocaleString("en")} more`), element("td", "", ""));
    rows.unshift(more);
  }
  find(id).replaceChildren(...rows);
  if (chosen === null) keepInView(find(id).querySelector(".is-current"));
}

function keepInView(row) {
  if (!row) return;
  const panel = find("below");
  const [inner, outer] = [row.getBoundingClientRect(), panel.getBoundingClientRect()];
  if (inner.bottom > outer.bottom) panel.scrollTop += inner.bottom - outer.bottom + 24;
  if (inner.top < outer.top) panel.scrollTop -= outer.top - inner.top + 24;
}

function renderTransport({ stage, headline }) {
  const position = `${now + 1} / ${film.length}`;
  find("counter").textContent = position;
  const scrub = find("scrub");
  const last = film.length - 1 || 1;
  scrub.max = film.length - 1;
  scrub.value = now;
  scrub.style.setProperty("--at", `${(100 * now) / last}%`);
  scrub.style.setProperty("--to-sort", `${(100 * film.starts[1]) / last}%`);
  scrub.style.setProperty("--to-backward", `${(100 * film.starts[2]) / last}%`);
  scrub.setAttribute("aria-valuetext", `${STAGES[stage]}, step ${position}: ${headline}`);
  for (const button of document.querySelectorAll(".stages button")) {
    const own = Number(button.dataset.stage);
    const done = Math.min(Math.max(now - film.starts[own] + 1, 0), film.lengths[own]);
    button.style.setProperty("--progress", done / film.lengths[own]);
    if (own === stage) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
  }
  const busy = tab.holdsFilm === true;
  find("back").disabled = find("first").disabled = busy || now === 0;
  find("next").disabled = find("last").disabled = busy || now === film.length - 1;
  find("play").disabled = scrub.disabled = busy;
}

// --- one box's history ----------------------------------------------------------------------------

function choose(b) {
  chosen = b === chosen ? null : b;
  document.body.toggleAttribute("data-history", chosen !== null);
  if (tab.choose && chosen !== null) tab.choose(chosen);
  render();
  find("below").scrollTop = 0;
  follow();
}

function renderHistory() {
  find("history").hidden = chosen === null;
  if (chosen === null || tab.id !== "step") return;
  const box = view.boxes[chosen];
  find("history-title").textContent = `History of ${box.title}`;
  find("history-open").hidden = !canOpen(box);
  const items = historyOf(film, chosen).map((frame) => {
    const item = element("li", frame.at > now ? "is-future" : "");
    item.dataset.stage = frame.stage;
    if (frame.at === now) item.setAttribute("aria-current", "step");
    const button = element("button", "", inOneLine(frame));
    button.type = "button";
    button.addEventListener("click", () => go(frame.at));
    item.append(button);
    return item;
  });
  find("history-list").replaceChildren(...items);
}

// --- moving through the film ----------------------------------------------------------------------

function go(at, animate = false) {
  peeking = false;
  const next = Math.min(Math.max(at, 0), film.length - 1);
  const hasMoved = next !== now;
  now = next;
  render();
  follow();
  if (hasMoved && animate && !calm.matches) animateToken(shownNow.frame);
  if (now === film.length - 1) pause();
  remember();
}

function step(by) {
  if (tab.holdsFilm) return;
  if (tab.showsAll) openTab("step");
  pause();
  go(now + by, by === 1);
}

function play() {
  if (tab.holdsFilm) return;
  if (tab.showsAll) openTab("step");
  if (now === film.length - 1) go(0);
  document.body.dataset.playing = "";
  find("play").setAttribute("aria-label", "Pause");
  tick();
}

function tick() {
  timer = window.setTimeout(() => {
    go(now + 1, true);
    if (timer !== null) tick();
  }, Number(find("speed").value));
}

function pause() {
  window.clearTimeout(timer);
  timer = null;
  delete document.body.dataset.playing;
  find("play").setAttribute("aria-label", "Play");
}

const toggle = () => (timer === null ? play() : pause());

// A number that travels along its wire: values forwards, gradients back.
function animateToken(frame) {
  for (const old of document.querySelectorAll(".token")) old.remove();
  if (frame.stage === SORT) return;
  const backward = frame.stage === BACKWARD;
  for (const n of frame.wires) {
    const wire = drawing.wires.get(n);
    const source = view.boxes[view.wires[n].source];
    const amount = frame.event && frame.event.amount;
    const words = backward ? `+= ${amount === null ? "…" : short(amount)}` : dataText(source, numbers);
    if (!wire || frame.wires.length > 12) continue;
    const path = wire.element;
    const token = pill("token", words.length * 7.4 + 14, 20);
    token.querySelector("text").textContent = words;
    drawing.svg.append(token);
    const length = path.getTotalLength() - ARROW;
    const duration = Math.min(650, Number(find("speed").value) * 0.6);
    const begin = performance.now();
    const move = (time) => {
      const t = Math.min(1, Math.max(0, (time - begin) / duration));
      const eased = 1 - (1 - t) ** 3;
      const point = path.getPointAtLength(length * (backward ? 1 - eased : eased));
      token.setAttribute("transform", `translate(${point.x} ${point.y})`);
      if (t < 1 && token.isConnected) requestAnimationFrame(move);
      else token.remove();
    };
    move(begin);
  }
}

// --- inputs that are moved ------------------------------------------------------------------------

// What the film was at, so that the same step is found again when there are more or fewer of them.
function landmark() {
  const stage = stageOf(film, now);
  if (stage !== BACKWARD) return () => now;
  const { box, wire, kind } = film.events[now - film.starts[BACKWARD]];
  return () => {
    const same = film.events.findIndex((event) => event.box === box && event.wire === wire && event.kind === kind);
    const near = same >= 0 ? same : film.events.findIndex((event) => event.box === box && event.kind !== "seed");
    return film.starts[BACKWARD] + Math.max(0, near);
  };
}

function computeAgain() {
  const back = landmark();
  numbers = computeAll(graph, moved);
  film = makeFilm(graph, view, numbers);
  now = Math.min(back(), film.length - 1);
  if (!hasRoom()) show(false);
  render();
}

function setInput(i, x) {
  if (graph.frozen[i] || !isLeaf(graph, i)) return;
  if (Object.is(x, graph.data[i])) moved.delete(i);
  else moved.set(i, x);
  peeking = true;
  computeAgain();
  renderInputs();
  remember();
}

function resetInputs() {
  moved.clear();
  computeAgain();
  renderInputs();
  remember();
}
