// The network as a picture: a small plane for every neuron, a line for every weight.

const diagram = { shows: "w", canvases: [], lines: [], chosen: null };
const weightName = ({ layer, of, row, column }) => `layer${layer + 1}.${of}[${of === "w" ? `${row},${column}` : row}]`;
const keyOf = (weight) => [weight.layer, weight.of, weight.row, weight.column ?? ""].join(" ");

function buildDiagram(hidden) {
  const sizes = [2, ...hidden, 1];
  const tallest = Math.max(...sizes);
  const room = find("diagram").clientWidth - 2;
  const size = tallest > 6 || room < 480 ? 44 : 54;
  const gap = tallest > 6 ? 8 : 14;
  const height = tallest * (size + gap) + 26;
  const wide = Math.max(room, 70 * sizes.length);
  const x = (k) => size / 2 + 2 + (k * (wide - size - 4)) / (sizes.length - 1);
  const y = (k, i) => 26 + (tallest - sizes[k]) * (size + gap) / 2 + i * (size + gap) + size / 2;
  const svg = svgElement("svg", { width: wide, height, "aria-hidden": "true" });
  const parts = [svg];
  Object.assign(diagram, { canvases: [], lines: [], chosen: null });
  sizes.forEach((count, k) => {
    const title = k === 0 ? "point" : k === sizes.length - 1 ? "answer" : `layer ${k}`;
    const caption = element("span", "caption", title);
    Object.assign(caption.style, { left: `${x(k)}px`, top: "0" });
    parts.push(caption);
    for (let i = 0; i < count; i++) {
      const button = element("button", k ? "" : "word", k ? undefined : `x${i + 1}`);
      button.type = "button";
      Object.assign(button.style, { left: `${x(k) - size / 2}px`, top: `${y(k, i) - size / 2}px`, width: `${size}px`, height: `${size}px` });
      parts.push(button);
      if (k === 0) {
        button.disabled = true;
        continue;
      }
      const canvas = element("canvas");
      const neuron = k === sizes.length - 1 ? null : [k - 1, i];
      button.append(canvas);
      button.setAttribute("aria-label", neuron ? `Neuron ${i + 1} of layer ${k}: show it large` : "The answer: show it large");
      button.addEventListener("click", () => chooseNeuron(neuron));
      diagram.canvases.push({ canvas, button, neuron });
      for (let j = 0; j < sizes[k - 1]; j++) {
        const [x0, y0, x1, y1] = [x(k - 1) + size / 2, y(k - 1, j), x(k) - size / 2, y(k, i) + ((j + 0.5) / sizes[k - 1] - 0.5) * size * 0.7];
        const bend = (x1 - x0) * 0.4;
        const d = `M${x0},${y0}C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`;
        const reach = svgElement("path", { class: "reach", d });
        const line = svgElement("path", { class: "line", d });
        addWeight({ layer: k - 1, of: "w", row: i, column: j }, reach, line);
        svg.append(reach, line);
      }
      const dot = svgElement("circle", { class: "bias", cx: x(k) - size / 2, cy: y(k, i) + size / 2, r: 6 });
      addWeight({ layer: k - 1, of: "b", row: i }, dot, dot);
      svg.append(dot);
    }
  });
  find("diagram").replaceChildren(...parts);
  find("diagram").style.height = `${height}px`;
  // Dots of biases lie over the neurons' corners, where they can be seen.
  const over = svgElement("svg", { width: wide, height, class: "over", "aria-hidden": "true" });
  over.style.pointerEvents = "none";
  for (const { target, weight } of diagram.lines) if (weight.of === "b") {
    target.style.pointerEvents = "auto";
    over.append(target);
  }
  find("diagram").append(over);
  options(find("weight-which"), diagram.lines.map(({ weight }) => [keyOf(weight), weightName(weight)]));
}

// Drawn again where the window has another width.
function fitDiagram() {
  if (!network.state || find("view-network").hidden) return;
  buildDiagram(network.state.layers.slice(0, -1).map(({ b }) => b.length));
  renderNetwork();
}

function addWeight(weight, target, line) {
  diagram.lines.push({ weight, target, line });
  target.addEventListener("pointerenter", () => tellWeight(weight));
  target.addEventListener("click", () => explainWeight(weight));
}

const numberAt = (state, { layer, of, row, column }, suffix = "") => {
  const found = state.layers[layer][of + suffix][row];
  return of === "w" ? found[column] : found;
};

function tellWeight(weight) {
  if (!network.state) return;
  const [data, grad] = [numberAt(network.state, weight), numberAt(network.state, weight, "_grad")];
  find("diagram-said").textContent = `${weightName(weight)} = ${short(data)}, gradient ${short(grad)}: to raise it a little would ${grad > 0 ? "raise" : grad < 0 ? "lower" : "not change"} the loss. Click for the reason.`;
  find("weight-which").value = keyOf(weight);
}

function renderDiagram(state) {
  for (const { canvas, button, neuron } of diagram.canvases) {
    paint(canvas, neuron ? state.neurons[neuron[0]][neuron[1]] : state.answer);
    button.setAttribute("aria-pressed", String(neuron) === String(network.neuron));
  }
  const suffix = diagram.shows === "w" ? "" : "_grad";
  const values = diagram.lines.map(({ weight }) => numberAt(state, weight, suffix));
  const most = Math.max(1e-12, ...values.map(Math.abs));
  diagram.lines.forEach(({ weight, line }, k) => {
    const share = Math.sqrt(Math.abs(values[k]) / most);
    const colour = signed(values[k], 0.25 + 0.75 * share);
    if (weight.of === "w") {
      line.style.stroke = colour;
      line.style.strokeWidth = 0.75 + 4.5 * share;
    } else line.style.fill = colour;
  });
}

for (const [id, shows] of [["lines-weight", "w"], ["lines-grad", "grad"]])
  find(id).addEventListener("click", () => {
    diagram.shows = shows;
    find("lines-weight").setAttribute("aria-pressed", shows === "w");
    find("lines-grad").setAttribute("aria-pressed", shows === "grad");
    if (network.state) renderDiagram(network.state);
  });

// --- why a gradient is what it is -------------------------------------------------------------------

find("weight-why").addEventListener("click", () => {
  const { weight } = diagram.lines.find(({ weight: one }) => keyOf(one) === find("weight-which").value);
  explainWeight(weight);
});
find("weight-which").addEventListener("change", ({ target }) => {
  tellWeight(diagram.lines.find(({ weight }) => keyOf(weight) === target.value).weight);
});

async function explainWeight(weight, point = null) {
  await ask("network", "pause"); // what is shown must stay what it is
  const answer = await ask("network", "weight", { ...weight, point });
  if (tell("network", answer)) return;
  const { parts } = answer;
  const [x, y, target] = network.started.points[answer.point];
  openGraph(
    `Why is the gradient of ${weightName(weight)} ${short(answer.grad)}?`,
    `The loss is the mean over ${parts.length} points, so this gradient is the mean of ${parts.length} gradients, one bar each. ` +
      `Below is all that depends on the weight when the network, at step ${answer.step.toLocaleString("en")}, sees point ${answer.point + 1}, (${short(x)}, ${short(y)}) with target ${target}: ` +
      `the products along the paths from the weight to the loss add up to ${short(parts[answer.point])}.`
  );
  drawParts(weight, parts, answer.point);
  graphFrames.show(answer.graph, `#${asCompact()}&tab=paths&node=${answer.node}`);
}

function drawParts(weight, parts, chosenPoint) {
  const box = find("graph-parts");
  const [width, height] = [parts.length * 10, 70];
  const most = Math.max(1e-12, ...parts.map(Math.abs));
  const svg = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `Each point's gradient; the largest is ${short(most)}` });
  svg.append(svgElement("path", { class: "axis", d: `M0,${height / 2}H${width}`, "vector-effect": "non-scaling-stroke" }));
  parts.forEach((part, k) => {
    const tall = Math.max(0.75, (Math.abs(part) / most) * (height / 2 - 2));
    const bar = svgElement("rect", { x: k * 10 + 1, y: part > 0 ? height / 2 - tall : height / 2, width: 8, height: tall, class: k === chosenPoint ? "is-chosen" : "", "vector-effect": "non-scaling-stroke" });
    bar.style.fill = `var(${part < 0 ? "--forward" : "--backward"})`;
    const back = svgElement("rect", { class: "back", x: k * 10, y: 0, width: 10, height });
    back.addEventListener("click", () => explainWeight(weight, k));
    svg.append(bar, back);
  });
  const label = element("label", "inline", "Point ");
  const slider = element("input");
  slider.type = "range";
  slider.id = "part";
  [slider.min, slider.max, slider.step, slider.value] = [1, parts.length, 1, chosenPoint + 1];
  slider.addEventListener("change", () => explainWeight(weight, Number(slider.value) - 1));
  label.append(slider, element("output", "", String(chosenPoint + 1)));
  box.replaceChildren(svg, label);
  box.hidden = false;
}
