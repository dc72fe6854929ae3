// The second tab: settings, the training's controls, and what a state of the network shows.

const SPEEDS = [[2, "2 steps a second"], [20, "20 a second"], [200, "200 a second"], [2000, "2,000 a second"], [1000000, "as fast as it goes"]];
const HIDDEN = ["2", "4", "8", "3, 2", "4, 4", "6, 4", "8, 8", "4, 4, 4", "8, 8, 8"];
const RATES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3];
const TABLE = "x, y, kind\n0.2, 1.1, red\n1.4, 0.3, blue\n0.1, 0.8, red\n1.2, -0.4, blue\n-0.6, 0.9, red\n0.9, -0.8, blue\n";

const network = { started: null, state: null, seed: 7, neuron: null };

options(find("network-speed"), SPEEDS, 200);
options(find("network-hidden"), HIDDEN.map((text) => [text, `${text.split(", ").join(" + ")} neurons`]), "4, 4");
options(find("network-rate"), RATES.map((rate) => [rate, compact(rate)]), 0.03);
find("network-table").value = TABLE;

function networkSettings() {
  const value = (id) => find(`network-${id}`).value;
  return {
    data: value("data"), table: value("table"), points: Number(value("points")), noise: Number(value("noise")),
    hidden: value("hidden").split(", ").map(Number), activation: value("activation"), optimiser: value("optimiser"),
    rate: Number(value("rate")), seed: network.seed,
  };
}

async function startNetwork() {
  const wasRunning = network.state && network.state.running;
  getReady("network", network);
  const settings = networkSettings();
  const answer = await ask("network", "start", settings);
  if (tell("network", answer)) return;
  network.started = answer;
  setDisabled("network", false);
  network.state = network.neuron = null;
  find("network-about").textContent = `${answer.parameters} parameters, ${answer.points.length} points. Blue points are ${answer.kinds[0]}, red ones ${answer.kinds[1]}.`;
  buildDiagram(settings.hidden);
  drawPoints();
  await ask("network", "speed", { speed: Number(find("network-speed").value) });
  if (wasRunning) await ask("network", "run");
}

// Nothing can be pressed before there is something to train.
function getReady(kind, lab) {
  if (lab.started) return;
  find(`${kind}-run`).textContent = "Starting …";
  setDisabled(kind, true);
}

function setDisabled(kind, isDisabled) {
  const asking = { network: "weight-why", language: "token-why" }[kind];
  for (const id of [`${kind}-run`, `${kind}-step`, asking]) find(id).disabled = isDisabled;
}

function tell(kind, answer) {
  find(`${kind}-trouble`).textContent = answer.error || "";
  return Boolean(answer.error);
}

stream.listeners.set("network", (state) => {
  if (state.ended) return tell("network", { error: `${state.ended}. Start over.` });
  if (!network.started || state.version !== network.started.version) return;
  network.state = state;
  renderNetwork();
});

function renderRun(kind, state) {
  const button = find(`${kind}-run`);
  const waiting = state.running && state.step === 0;
  button.textContent = waiting ? "Compiling …" : state.running ? "Pause" : "Train";
  button.toggleAttribute("data-running", state.running);
  find(`${kind}-at`).textContent = state.step.toLocaleString("en");
  find(`${kind}-pace`).textContent = Math.round(state.running ? state.rate : 0).toLocaleString("en");
  if (state.trouble) find(`${kind}-trouble`).textContent = state.trouble;
}

function renderNetwork() {
  const { state } = network;
  renderRun("network", state);
  find("network-loss").textContent = state.loss === null ? "·" : state.loss.toFixed(4);
  find("network-right").textContent = `${Math.round(100 * state.right)}%`;
  renderPlane();
  renderDiagram(state);
  drawLosses(find("network-curve"), state.curve, state.step);
  const most = Math.max(...state.flow, 1e-12);
  find("network-flow").replaceChildren(
    ...state.flow.map((mean, k) => {
      const row = element("div");
      const bar = element("i");
      bar.style.setProperty("--share", mean / most);
      row.append(element("span", "", k === state.flow.length - 1 ? "answer" : `layer ${k + 1}`), bar, element("span", "", short(Number(mean.toPrecision(3)))));
      return row;
    })
  );
}

// --- the plane ------------------------------------------------------------------------------------

function drawPoints() {
  const { points, reach } = network.started;
  const svg = find("plane-points");
  svg.setAttribute("viewBox", `${-reach} ${-reach} ${2 * reach} ${2 * reach}`);
  svg.replaceChildren(
    ...points.map(([x, y, target]) => {
      const dot = svgElement("circle", { cx: x, cy: -y, r: reach * 0.022, "stroke-width": reach * 0.008 });
      dot.style.fill = `var(${target < 0 ? "--forward" : "--backward"})`;
      return dot;
    })
  );
}

function renderPlane() {
  const { state, neuron } = network;
  const picture = neuron ? state.neurons[neuron[0]][neuron[1]] : state.answer;
  paint(find("plane"), picture, 0.72);
  find("plane-title").textContent = neuron ? `Neuron ${neuron[1] + 1} of layer ${neuron[0] + 1}` : "The answer";
  find("plane-back").hidden = !neuron;
  find("plane-said").textContent = neuron
    ? "What this one neuron says anywhere in the plane."
    : "What the network says anywhere in the plane: blue is -1, red is 1. It is right where a point has its background's colour.";
  find("plane").setAttribute("aria-label", `${find("plane-title").textContent}, as colours in the plane; ${Math.round(100 * state.right)}% of the points are right`);
}

find("plane-back").addEventListener("click", () => chooseNeuron(null));

function chooseNeuron(neuron) {
  network.neuron = neuron;
  if (network.state) renderNetwork();
}

// --- controls -------------------------------------------------------------------------------------

function labControls(kind, lab, start) {
  find(`${kind}-run`).addEventListener("click", async () => {
    const running = lab.state && lab.state.running;
    tell(kind, await ask(kind, running ? "pause" : "run"));
  });
  find(`${kind}-step`).addEventListener("click", async () => tell(kind, await ask(kind, "step")));
  find(`${kind}-again`).addEventListener("click", () => {
    lab.seed += 1;
    start();
  });
  find(`${kind}-speed`).addEventListener("change", ({ target }) => ask(kind, "speed", { speed: Number(target.value) }));
}
labControls("network", network, startNetwork);

function showTable() {
  const own = find("network-data").value === "csv";
  find("network-table-part").hidden = !own;
  find("network-made").hidden = own;
  find("network-points-shown").textContent = find("network-points").value;
  find("network-noise-shown").textContent = Number(find("network-noise").value).toFixed(2);
}
for (const id of ["data", "hidden", "activation", "optimiser"]) find(`network-${id}`).addEventListener("change", startNetwork);
const startSoon = later(startNetwork, 250);
for (const id of ["points", "noise"]) find(`network-${id}`).addEventListener("input", startSoon);
for (const id of ["data", "points", "noise"]) find(`network-${id}`).addEventListener("input", showTable);
find("network-use").addEventListener("click", startNetwork);
find("network-rate").addEventListener("change", ({ target }) => ask("network", "rate", { rate: Number(target.value) }));

// A file's text goes into the field, where it can be seen and changed.
function readInto(id, field, use) {
  find(id).addEventListener("change", async ({ target }) => {
    if (!target.files.length) return;
    find(field).value = (await target.files[0].text()).slice(0, find(field).maxLength);
    target.value = "";
    use();
  });
}
readInto("network-file", "network-table", startNetwork);
showTable();
