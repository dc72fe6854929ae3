// Nudge: move one input by h and see by how much the result moves.

const nudge = { input: inputs[0], h: 0.1 };

const movedBy = (i, x) => new Map([...moved, [i, x]]);

function renderNudge() {
  const i = nudge.input;
  if (i === undefined) return;
  const root = graph.names[graph.root];
  const name = graph.names[i];
  const x = numbers.data[i];
  const why = graph.frozen[i];
  const f = numbers.data[graph.root];
  const slope = numbers.grad[i];
  if (why) {
    find("nudge-said").textContent = `${name} cannot be moved: ${why}.`;
    find("nudge-rows").replaceChildren();
    find("nudge-curve").replaceChildren();
    find("nudge-caption").textContent = "";
    return;
  }
  const beside = resultAt(graph, movedBy(i, x + nudge.h));
  const quotient = (beside - f) / nudge.h;
  find("nudge-said").textContent = `Move ${name} from ${compact(x)} to ${compact(x + nudge.h)}. How much does ${root} move, for each unit of ${name}?`;
  find("nudge-rows").replaceChildren(
    tableRow("", `${root} at ${name} = ${compact(x)}`, repr(f)),
    tableRow("", `${root} at ${name} = ${compact(x + nudge.h)}`, repr(beside)),
    tableRow("", `difference / h`, short(quotient)),
    tableRow("is-grad", attribute(name), short(slope)),
    tableRow("is-soft", "they differ by", Number.isFinite(quotient) ? short(Math.abs(quotient - slope)) : "·")
  );
  drawCurve(i, x, f, slope, beside);
}

function drawCurve(i, x, f, slope, beside) {
  const { low, high } = spanOf(i);
  const samples = Math.max(21, Math.min(161, Math.floor(3e6 / graph.count)));
  const points = [];
  for (let k = 0; k < samples; k++) {
    const at = low + ((high - low) * k) / (samples - 1);
    points.push([at, resultAt(graph, movedBy(i, at))]);
  }
  const heights = [...points.map(([, y]) => y), f].filter(Number.isFinite);
  if (!heights.length) return;
  let [bottom, top] = [Math.min(...heights), Math.max(...heights)];
  if (top - bottom < 1e-9 * Math.max(1, Math.abs(top))) [bottom, top] = [bottom - 1, top + 1];
  const room = (top - bottom) * 0.12;
  [bottom, top] = [bottom - room, top + room];
  const [width, height, left, base] = [360, 220, 52, 26];
  const px = (at) => left + ((at - low) / (high - low)) * (width - left - 10);
  const py = (y) => 10 + (1 - (y - bottom) / (top - bottom)) * (height - base - 10);
  const inside = (y) => Number.isFinite(y) && y >= bottom - 20 * (top - bottom) && y <= top + 20 * (top - bottom);
  let path = "";
  let pen = false;
  for (const [at, y] of points) {
    if (inside(y)) path += `${pen ? "L" : "M"}${coordinate(px(at))},${coordinate(py(y))}`;
    pen = inside(y);
  }
  const ticks = [low, (low + high) / 2, high].map((at, k) => svgText("tick", px(at), height - 8, compact(tidy(at)), ["start", "middle", "end"][k]));
  const levels = [bottom + room, top - room].map((y) => svgText("tick", left - 6, py(y) + 4, short(Number(y.toPrecision(3))), "end"));
  const parts = [
    svgElement("path", { class: "axis", d: `M${left},10V${height - base}H${width - 10}` }),
    ...ticks, ...levels,
    svgElement("path", { class: "curve", d: path }),
  ];
  if (Number.isFinite(slope) && Number.isFinite(f)) {
    // The tangent, as far as it stays in the picture.
    const ends = [low, high].map((at) => [at, f + slope * (at - x)]);
    parts.push(svgElement("path", { class: "tangent", d: `M${ends.map(([at, y]) => `${coordinate(px(at))},${coordinate(py(y))}`).join("L")}` }));
    parts.push(svgElement("circle", { class: "second", cx: coordinate(px(x + nudge.h)), cy: coordinate(Number.isFinite(beside) ? py(beside) : -20), r: 4 }));
    parts.push(svgElement("circle", { class: "here", cx: coordinate(px(x)), cy: coordinate(py(f)), r: 5 }));
  }
  const [root, name] = [graph.names[graph.root], graph.names[i]];
  find("nudge-curve").replaceChildren(...parts);
  find("nudge-curve").setAttribute("aria-label", `${root} over ${name}, from ${compact(tidy(low))} to ${compact(tidy(high))}; the tangent at ${compact(x)} has the slope ${short(slope)}`);
  find("nudge-caption").textContent = `${root} over ${name}; the line's slope is ${attribute(name)} = ${short(slope)}`;
}

options(find("nudge-h"), [1, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13].map((h) => [h, compact(h)]), nudge.h);
options(find("nudge-input"), inputs.slice(0, 500).map((i) => [i, graph.names[i]]));
find("nudge-input").addEventListener("change", (event) => {
  nudge.input = Number(event.target.value);
  renderNudge();
  remember();
});
find("nudge-h").addEventListener("change", (event) => {
  nudge.h = Number(event.target.value);
  renderNudge();
});

addTab("nudge", "Nudge", {
  showsAll: true,
  update: renderNudge,
  choose: (b) => {
    const [i] = view.boxes[b].nodes;
    if (view.boxes[b].isGroup || !inputs.includes(i)) return;
    nudge.input = i;
    find("nudge-input").value = i;
  },
});
